package upstreams

import (
	"bytes"
	"errors"
	"net/http"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
)

// maxRetry bounds the pause between two attempts at a long-lived stream.
const maxRetry = time.Minute

// standalone keeps the GET stream of a 2025 session open: what the server says
// outside calls comes on it. A server that has none says so once (405).
// attempted is called when it is known, for the first time, whether there is one.
func (c *streamable) standalone(attempted func()) {
	defer attempted()
	last, opened := "", false
	for wait := defaultRetry; c.life.Err() == nil; {
		started := time.Now()
		resp, err := c.listenOnce(last)
		attempted()
		heard := false
		asked := time.Duration(0)
		switch {
		case c.life.Err() != nil:
			if resp != nil {
				resp.Body.Close()
			}
			return
		case err != nil:
			c.log.Debug("the standalone stream could not be opened", "error", c.peer.clean(stripURL(err).Error()))
		case resp.StatusCode == http.StatusOK && mediaType(resp.Header) == wire.TypeEventStream:
			if opened {
				c.events.doubt() // notices may have been missed
				c.watchers.missed()
			}
			opened = true
			last, asked, heard = c.hear(resp, last)
			resp.Body.Close()
			if c.life.Err() == nil {
				c.events.doubt() // is the server still there?
			}
		default:
			resp.Body.Close()
			if !c.retryStandalone(resp.StatusCode) {
				return
			}
		}
		if heard || time.Since(started) > maxRetry/2 {
			wait = defaultRetry
		}
		if asked > 0 {
			wait = max(wait, asked)
		}
		select {
		case <-time.After(wait):
		case <-c.life.Done():
			return
		}
		wait = min(wait*2, maxRetry)
	}
}

func (c *streamable) listenOnce(last string) (*http.Response, error) {
	r, err := c.newRequest(c.life, http.MethodGet, nil, "", "")
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", wire.TypeEventStream)
	if last != "" {
		r.Header.Set(wire.HeaderLastEventID, last)
	}
	return c.fetch(r)
}

// retryStandalone decides what an answer without a stream means.
func (c *streamable) retryStandalone(status int) bool {
	switch {
	case status == http.StatusMethodNotAllowed || status == http.StatusNotImplemented:
		c.noGET.Store(true)
		return false
	case status == http.StatusNotFound && c.sid != "":
		e := c.peer.fail("", KindHTTP, false, errGone, "HTTP 404 on the standalone stream: %v", errGone)
		e.Problem.HTTPStatus = status
		c.lose(e)
		return false
	case status >= 500 || status == http.StatusTooManyRequests || status == http.StatusConflict:
		return true
	}
	c.log.Debug("no standalone stream: changes are found by polling", "status", status)
	return false
}

// hear reads one standalone stream to its end.
func (c *streamable) hear(resp *http.Response, last string) (lastID string, retry time.Duration, heard bool) {
	r := wire.NewEventReader(resp.Body, c.max)
	for {
		ev, err := r.Next()
		if errors.Is(err, wire.ErrTooLarge) {
			c.log.Warn("an event of the standalone stream exceeds limits.message: skipped", "bytes", c.max)
			if _, _, err = r.Skip(); err == nil {
				continue
			}
		}
		if err != nil {
			return last, retry, heard
		}
		if ev.ID != "" {
			last = ev.ID
		}
		if ev.Retry > 0 {
			retry = ev.Retry
		}
		if len(bytes.TrimSpace(ev.Data)) == 0 || ev.Name != "" && ev.Name != "message" {
			continue
		}
		parts, err := wire.SplitBatch(ev.Data)
		if err != nil {
			c.log.Warn("an event of the standalone stream is not JSON-RPC: skipped", "error", err)
			continue
		}
		for _, part := range parts {
			m, err := wire.ParseMessage(part)
			if err != nil {
				c.log.Warn("an event of the standalone stream is not JSON-RPC: skipped", "error", err)
				continue
			}
			heard = true
			c.stray(m, c.reply)
		}
	}
}
