package upstreams

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
)

// persistence is how often a cancellation is sent that may be ahead of its call,
// with pauses of two seconds in all. Each waits for the one before: where a
// server is slow to take messages the call is late for the same reason.
const persistence = 5

// saysCancelled reports whether the server wants a message for a call that is
// given up. initialize must not be cancelled.
func (c *streamable) saysCancelled() bool { return c.version != "" && !c.modern() }

// open posts the request of a call and waits for the beginning of the answer.
//
// A 2025 call that is given up meanwhile is not torn off. Its cancellation goes
// over another connection and may be at the server before the call itself is,
// when the server must ignore it and would work on for nobody. So the request
// stays open: what the server does on it shows whether the cancellation worked.
func (c *streamable) open(l *live, body []byte) (*http.Response, error) {
	x := l.x
	if !c.saysCancelled() {
		return c.post(l.watch.ctx, l.watch.ctx, body, x.Method, x.Name, x.Header, &l.sent)
	}
	ctx, hangUp := context.WithCancel(context.WithoutCancel(l.watch.ctx))
	type outcome struct {
		resp *http.Response
		err  error
	}
	begun := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			if v := recover(); v != nil { // here it would end the process
				o.err = c.peer.fail(x.Name, KindProtocol, l.sent.Load(), nil, "an error inside the portal: %v", v)
			}
			begun <- o
		}()
		o.resp, o.err = c.post(ctx, l.watch.ctx, body, x.Method, x.Name, x.Header, &l.sent)
	}()
	select {
	case o := <-begun:
		if o.err != nil {
			hangUp()
			return nil, o.err
		}
		stop := context.AfterFunc(l.watch.ctx, hangUp)
		o.resp.Body = &closing{o.resp.Body, func() { stop(); hangUp() }}
		return o.resp, nil
	case <-l.watch.ctx.Done():
	}
	early := !l.sent.Load() // it had no connection yet
	if early {
		hangUp()
	}
	over := make(chan struct{})
	end := func() {
		defer close(over)
		if o := <-begun; o.err == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(o.resp.Body, 64<<10))
			o.resp.Body.Close()
		}
	}
	if !early {
		go end()
		c.cancelled(l, over, hangUp)
		return nil, l.watch.ctx.Err()
	}
	if end(); l.sent.Load() { // in the very moment: nothing will show when it arrives
		c.cancelled(l, nil, hangUp)
	}
	hangUp()
	return nil, l.watch.ctx.Err()
}

// cancelled tells a 2025 server that nobody waits for the call any more: once if
// the server has said something of the call, and otherwise again and again
// until over, or, when that is nil or long in coming, until the call must have
// arrived.
func (c *streamable) cancelled(l *live, over <-chan struct{}, hangUp func()) {
	m := wire.Message{Method: "notifications/cancelled", Params: json.RawMessage(`{"requestId":` + l.id + `}`)}
	once := l.heard.Load()
	c.notices.Add(1)
	go func() {
		defer c.notices.Add(-1)
		defer hangUp()
		for n, pause := 1, 50*time.Millisecond; ; n, pause = n+1, 3*pause {
			if err := c.send(context.WithoutCancel(c.life), m); err != nil {
				c.log.Debug("the cancellation did not reach the server", "error", err)
			}
			if once || n == persistence {
				return
			}
			select {
			case <-over:
				return
			case <-time.After(pause):
			}
		}
	}()
}

// closing is a body with something to do when it is closed.
type closing struct {
	io.ReadCloser
	then func()
}

func (c *closing) Close() error {
	defer c.then()
	return c.ReadCloser.Close()
}

// underWay is the error of a write whose caller gave up in the middle of it:
// the message may have left and its sending goes on. landed is closed when the
// server has taken it, or will not.
type underWay struct {
	error
	landed <-chan struct{}
}

func (u *underWay) Unwrap() error { return u.error }
