package upstreams

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
)

const (
	defaultRetry = time.Second // before a cut stream is resumed
	maxResumes   = 5           // without an event in between
)

// do makes one exchange over Streamable HTTP.
func (c *streamable) do(ctx context.Context, x exchange) (json.RawMessage, error) {
	l, body, err := c.begin(ctx, x, c.version, func(l *live, m wire.Message) { l.deliver(m.Method, m.Params) })
	if err != nil {
		return nil, err
	}
	defer c.finish(l)

	resp, err := c.open(l, body)
	if err != nil {
		return nil, c.peer.network(l.watch.ctx, x.Name, l.sent.Load(), err)
	}
	defer func() {
		// In 2025 giving up is a message; in 2026-07-28 closing the stream says it.
		if l.watch.ctx.Err() != nil && l.sent.Load() && c.saysCancelled() {
			c.cancelled(l, nil, func() {})
		}
	}()
	defer func() { resp.Body.Close() }()
	l.watch.touch()
	if resp.StatusCode/100 != 2 {
		return c.refusedCall(l, body, resp)
	}
	return c.answer(l, &resp)
}

// refusedCall makes the outcome of an HTTP status that is not 2xx.
func (c *streamable) refusedCall(l *live, body []byte, resp *http.Response) (json.RawMessage, error) {
	call := l.x.Call
	b, _ := io.ReadAll(io.LimitReader(resp.Body, min(c.max, 1<<20)))
	var m rawError
	if json.Unmarshal(b, &m) != nil || m.Version != "2.0" {
		m = rawError{} // the status tells
	}
	mine := string(bytes.TrimSpace(m.ID)) == l.id
	unaddressed := len(m.ID) == 0 || bytes.Equal(m.ID, []byte("null"))

	if c.sid != "" && !(m.Error != nil && mine) {
		gone := resp.StatusCode == http.StatusNotFound ||
			// Widespread servers answer 400 for a session that they do not know.
			resp.StatusCode == http.StatusBadRequest && m.Error != nil && unaddressed && strings.Contains(strings.ToLower(m.Error.Message), "session")
		if gone {
			e := c.peer.fail(call.Name, KindHTTP, false, errGone, "HTTP %d: %v", resp.StatusCode, errGone)
			e.Problem.HTTPStatus = resp.StatusCode
			c.lose(e)
			return nil, e
		}
	}
	auth := resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden
	nothingHere := unaddressed && elsewhere(c.refusal(resp, nil, call))
	if m.Error != nil && (mine || unaddressed) && !auth && !nothingHere {
		if m.Error.Code == wire.CodeHeaderMismatch && c.retryLiteral(call) {
			l.sent.Store(false)
			again, err := c.post(l.watch.ctx, l.watch.ctx, body, call.Method, call.Name, call.Header, &l.sent, &gate{})
			if err != nil {
				return nil, c.peer.network(l.watch.ctx, call.Name, l.sent.Load(), err)
			}
			defer func() { again.Body.Close() }()
			if again.StatusCode/100 != 2 {
				return c.refusedCall(l, body, again)
			}
			return c.answer(l, &again)
		}
		return nil, m.Error
	}
	return nil, c.refusal(resp, b, call)
}

// retryLiteral reports, once per server, that a name which had to be encoded
// may be tried as it is: servers exist that compare it without decoding, and
// they refuse before running anything (-32020).
func (c *streamable) retryLiteral(call *Call) bool {
	if !c.modern() || call.Name == "" || wire.EncodeHeaderValue(call.Name) == call.Name {
		return false
	}
	if strings.ContainsFunc(call.Name, func(r rune) bool { return r < 0x20 || r == 0x7f }) || strings.TrimSpace(call.Name) != call.Name {
		return false // cannot stand in a header
	}
	return c.literalNames.CompareAndSwap(false, true)
}

// answer reads the answer to a call. *resp changes when a stream is resumed.
func (c *streamable) answer(l *live, resp **http.Response) (json.RawMessage, error) {
	call := l.x.Call
	if call.Method == "initialize" {
		c.sid = (*resp).Header.Get(wire.HeaderSessionID)
	}
	switch status, t, coding := (*resp).StatusCode, mediaType((*resp).Header), (*resp).Header.Get("Content-Encoding"); {
	case coding != "" && !strings.EqualFold(coding, "identity"):
		return nil, c.peer.fail(call.Name, KindProtocol, true, nil, "the answer to %s is compressed (%q), which was not asked for: switch that off at the server, or at the proxy before it", call.Method, coding)
	case status != http.StatusOK:
		return nil, c.peer.fail(call.Name, KindProtocol, true, nil, "HTTP %d in answer to %s, which wants a result", status, call.Method)
	case t == wire.TypeJSON:
		b, err := readBounded(touching{(*resp).Body, l.watch}, c.max)
		if err != nil {
			return nil, c.peer.network(l.watch.ctx, call.Name, true, err)
		}
		m, err := wire.ParseMessage(b)
		if err != nil {
			return nil, c.peer.fail(call.Name, KindProtocol, true, err, "the answer to %s is not JSON-RPC: %v", call.Method, err)
		}
		return c.result(l, m)
	case t == wire.TypeEventStream:
		return c.stream(l, resp)
	default:
		return nil, c.peer.fail(call.Name, KindProtocol, true, nil, "the answer to %s has content type %q, not JSON or an event stream: is the url right?", call.Method, t)
	}
}

// result takes the response out of its envelope.
func (c *session) result(l *live, m wire.Message) (json.RawMessage, error) {
	call := l.x.Call
	if !m.IsResponse() {
		return nil, c.peer.fail(call.Name, KindProtocol, true, nil, "the answer to %s is a request", call.Method)
	}
	if m.Error != nil && m.ID == nil {
		return nil, m.Error // of a server that could not tell whose request it refuses (JSON-RPC, section 5)
	}
	if string(m.ID) != l.id {
		return nil, c.peer.fail(call.Name, KindProtocol, true, nil, "the answer has the id %s, not that of the request (%s)", m.ID, l.id)
	}
	if m.Error != nil {
		return nil, m.Error
	}
	return m.Result, nil
}

// stream reads events until the answer, resuming a cut 2025 stream.
func (c *streamable) stream(l *live, resp **http.Response) (json.RawMessage, error) {
	call := l.x.Call
	last, retry := "", defaultRetry
	for resumes := 0; ; {
		r := wire.NewEventReader((*resp).Body, c.max)
		var err error
		for err == nil {
			var ev wire.Event
			if ev, err = r.Next(); err != nil {
				break
			}
			if ev.ID != "" {
				last = ev.ID
			}
			if ev.Retry > 0 {
				retry = ev.Retry
			}
			if len(bytes.TrimSpace(ev.Data)) == 0 || ev.Name != "" && ev.Name != "message" {
				continue // a priming event is no sign of progress
			}
			l.watch.touch()
			resumes = 0
			res, done, e := c.event(l, ev.Data)
			if done {
				return res, e
			}
		}
		switch {
		case l.watch.ctx.Err() != nil || errors.Is(err, wire.ErrTooLarge):
			return nil, c.peer.network(l.watch.ctx, call.Name, true, err)
		case last == "" || c.modern():
			return nil, c.peer.fail(call.Name, KindConnect, true, err, "the stream ended without an answer")
		case resumes >= maxResumes:
			return nil, c.peer.fail(call.Name, KindConnect, true, err, "the stream ended without an answer and could not be resumed %d times", resumes)
		}
		resumes++
		next, err := c.resume(l, last, retry)
		if err != nil {
			return nil, err
		}
		if next != nil {
			(*resp).Body.Close()
			*resp = next
		}
	}
}

// event takes one event of a call's stream; done when it is the answer, or
// when nothing sensible can follow.
func (c *streamable) event(l *live, data []byte) (res json.RawMessage, done bool, err error) {
	parts, err := wire.SplitBatch(data)
	if err != nil {
		return nil, true, c.peer.fail(l.x.Name, KindProtocol, true, err, "an event is not JSON-RPC: %v", err)
	}
	l.heard.Store(true)
	for _, part := range parts {
		m, err := wire.ParseMessage(part)
		if err != nil {
			return nil, true, c.peer.fail(l.x.Name, KindProtocol, true, err, "an event is not JSON-RPC: %v", err)
		}
		if m.IsResponse() {
			res, err := c.result(l, m)
			return res, true, err
		}
		c.own(l, m, c.reply)
	}
	return nil, false, nil
}

// resume asks for the rest of a cut stream. Nil without an error means that
// the server could not be reached this time.
func (c *streamable) resume(l *live, last string, retry time.Duration) (*http.Response, error) {
	ctx, call := l.watch.ctx, l.x.Call
	select {
	case <-time.After(retry):
	case <-ctx.Done():
		return nil, c.peer.network(ctx, call.Name, true, ctx.Err())
	}
	r, err := c.newRequest(ctx, http.MethodGet, nil, "", "")
	if err != nil {
		return nil, c.peer.fail(call.Name, KindConnect, true, err, "%v", err)
	}
	r.Header.Set("Accept", wire.TypeEventStream)
	r.Header.Set(wire.HeaderLastEventID, last)
	resp, err := c.fetch(r)
	if err != nil {
		if ctx.Err() != nil {
			return nil, c.peer.network(ctx, call.Name, true, err)
		}
		return nil, nil
	}
	if resp.StatusCode == http.StatusOK && mediaType(resp.Header) == wire.TypeEventStream {
		return resp, nil
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 500 {
		return nil, nil
	}
	e := c.peer.fail(call.Name, KindConnect, true, nil, "the stream ended without an answer, and resuming it was answered with HTTP %d", resp.StatusCode)
	e.Problem.HTTPStatus = resp.StatusCode
	return nil, e
}

// touching is a reader whose progress is a sign of life.
type touching struct {
	io.Reader
	w *watch
}

func (t touching) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	if n > 0 {
		t.w.touch()
	}
	return n, err
}

// readBounded reads all of r, at most max bytes.
func readBounded(r io.Reader, max int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, max+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > max {
		return nil, fmt.Errorf("%w of %d bytes", wire.ErrTooLarge, max)
	}
	return b, nil
}
