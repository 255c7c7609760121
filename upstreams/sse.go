package upstreams

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
)

// sseStream is the connection of a legacy HTTP+SSE session (2024-11-05): a GET
// stream from the server, whose first event names where to POST to.
type sseStream struct {
	*pipe
	poster *streamable // the POST address
	done   chan struct{}
}

// dialSSE opens the stream and waits for the address. ctx bounds that.
func dialSSE(ctx context.Context, s *session, e *endpoint, rawURL string) (*pipe, error) {
	p := &pipe{session: s, waiting: map[string]*queue{}}
	c := &sseStream{pipe: p, poster: &streamable{session: s, endpoint: e, url: rawURL}, done: make(chan struct{})}

	r, err := c.poster.newRequest(s.life, http.MethodGet, nil, "", "")
	if err != nil {
		return nil, s.peer.network(ctx, "", false, err)
	}
	r.Header.Set("Accept", wire.TypeEventStream)
	stop := context.AfterFunc(ctx, s.end) // gives up the request, not the session that it becomes
	resp, err := c.poster.fetch(r)
	if err != nil {
		stop()
		s.end()
		return nil, s.peer.network(ctx, "", false, err)
	}
	fail := func(err error) (*pipe, error) {
		stop()
		s.end()
		resp.Body.Close()
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return fail(s.refusal(resp, b, &Call{}))
	}
	if t := mediaType(resp.Header); t != wire.TypeEventStream {
		return fail(s.peer.fail("", KindProtocol, false, nil, "the answer to GET has content type %q, not an event stream: is the url right?", t))
	}
	events := wire.NewEventReader(resp.Body, s.max)
	ev, err := events.Next()
	for err == nil && ev.Name != "endpoint" {
		ev, err = events.Next()
	}
	if err != nil {
		return fail(s.peer.network(ctx, "", false, err))
	}
	base, err := url.Parse(rawURL)
	if err != nil {
		return fail(s.peer.fail("", KindConnect, false, nil, "the url is not a URL"))
	}
	to, err := base.Parse(string(bytes.TrimSpace(ev.Data)))
	if err != nil || to.Scheme != base.Scheme || to.Host != base.Host {
		return fail(s.peer.fail("", KindProtocol, false, err, "the server wants messages at another origin than its own: refused"))
	}
	if !stop() {
		return fail(s.peer.network(ctx, "", false, ctx.Err()))
	}
	c.poster.url = to.String()
	p.write = c.post
	p.shut = c.shut
	go c.read(resp.Body, events)
	return p, nil
}

// post sends one message; its answer comes on the stream. When ctx ends after
// the message may have left, its sending goes on, see underWay.
func (c *sseStream) post(ctx context.Context, b []byte) (bool, error) {
	var sent atomic.Bool
	var door gate
	whole, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	type outcome struct {
		answered bool
		err      error
	}
	over, landed := make(chan outcome, 1), make(chan bool, 1)
	go func() {
		defer hangUp()
		answered, err := c.postWhole(whole, ctx, b, &sent, &door)
		over <- outcome{answered, err}
		landed <- answered
	}()
	select {
	case o := <-over:
		return sent.Load(), o.err
	case <-ctx.Done():
	}
	if door.shut() {
		hangUp()
		<-over
		return false, ctx.Err()
	}
	time.AfterFunc(persistenceTime, hangUp)
	return true, &underWay{ctx.Err(), landed}
}

// postWhole sends one message. answered reports that the server did, whatever
// it said.
func (c *sseStream) postWhole(ctx, wanted context.Context, b []byte, sent *atomic.Bool, door *gate) (answered bool, err error) {
	resp, err := c.poster.post(ctx, wanted, b, "", "", nil, sent, door)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if resp.StatusCode/100 == 2 {
		return true, nil
	}
	e := c.refusal(resp, said, &Call{})
	if resp.StatusCode == http.StatusNotFound {
		e.Err = errGone
		c.broken(e)
	}
	sent.Store(e.Sent)
	return true, e
}

func (c *sseStream) read(body io.ReadCloser, events *wire.EventReader) {
	defer close(c.done)
	defer body.Close()
	for {
		ev, err := events.Next()
		if errors.Is(err, wire.ErrTooLarge) {
			var head, tail []byte
			if head, tail, err = events.Skip(); err == nil {
				c.tooLong(head, tail)
				continue
			}
		}
		if err != nil {
			msg := "the event stream ended"
			if !errors.Is(err, io.EOF) {
				msg = "the event stream broke"
			}
			c.broken(c.peer.fail("", KindConnect, true, err, "%s", msg))
			return
		}
		if len(ev.Data) == 0 || ev.Name != "" && ev.Name != "message" {
			continue
		}
		if err := c.receive(ev.Data); err != nil {
			c.log.Warn("an event is not JSON-RPC: skipped", "error", err)
			c.failOnly(err)
		}
	}
}

func (c *sseStream) shut(ctx context.Context) {
	select {
	case <-c.done:
	case <-ctx.Done():
	case <-time.After(politeness):
	}
}
