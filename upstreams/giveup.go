package upstreams

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
)

// A cancellation that may be ahead of its call is sent again and again, with
// longer and longer pauses: persistence times where nothing shows that the call
// has arrived, else until it is over, at most for persistenceTime.
const (
	persistence     = 7
	persistenceTime = 30 * time.Second
	firstPause      = 50 * time.Millisecond
	// holdOn is how long a request that was given up stays open to show that its
	// call is over. Some servers hear of a cancellation by its end alone.
	holdOn       = 2 * time.Second
	longestPause = 10 * time.Second
)

// tellers is how many cancellations of one session are on their way at once.
// More would only make a server slower that is slow already.
const tellers = 4

// gate decides between a request that is about to leave and a caller who gives
// up: either its body may be sent, or nothing of that ever is.
type gate struct{ state atomic.Int32 }

const (
	gateOpen = iota
	gatePassed
	gateShut
)

// pass lets the body through, unless the gate is shut.
func (g *gate) pass() bool {
	return g.state.CompareAndSwap(gateOpen, gatePassed) || g.state.Load() == gatePassed
}

// shut keeps the body back. It is false when that may be on its way.
func (g *gate) shut() bool {
	return g.state.CompareAndSwap(gateOpen, gateShut) || g.state.Load() == gateShut
}

// gated is a body behind a gate.
type gated struct {
	*gate
	io.Reader
}

var errShut = errors.New("the caller gave up before the request was sent")

func (g gated) Read(p []byte) (int, error) {
	if !g.pass() {
		return 0, errShut
	}
	return g.Reader.Read(p)
}

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
		return c.post(l.watch.ctx, l.watch.ctx, body, x.Method, x.Name, x.Header, &l.sent, &gate{})
	}
	ctx, hangUp := context.WithCancel(context.WithoutCancel(l.watch.ctx))
	var door gate
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
		o.resp, o.err = c.post(ctx, l.watch.ctx, body, x.Method, x.Name, x.Header, &l.sent, &door)
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
	if door.shut() {
		hangUp()
		if o := <-begun; o.err == nil {
			o.resp.Body.Close() // of a server that answers what it has not read
		}
		l.sent.Store(false)
		return nil, l.watch.ctx.Err()
	}
	over := make(chan bool, 1)
	go func() {
		o := <-begun
		if o.err == nil {
			// An answer shows that the call is over; so much else, that it has arrived.
			var n int64
			n, o.err = io.Copy(io.Discard, io.LimitReader(o.resp.Body, 64<<10))
			if n == 64<<10 {
				c.tellCancelled(l)
			}
			o.resp.Body.Close()
		}
		over <- o.err == nil
	}()
	c.cancelled(l, over, hangUp)
	return nil, l.watch.ctx.Err()
}

// cancelled tells a 2025 server that nobody waits for the call any more: once if
// the server has said something of the call, and otherwise again and again
// until over says so; false, and nil: nothing will show it. hangUp ends the
// request.
func (c *streamable) cancelled(l *live, over <-chan bool, hangUp func()) {
	once, end := l.heard.Load(), time.Now().Add(persistenceTime)
	c.notices.Add(1)
	go func() {
		defer hangUp()
		defer time.AfterFunc(holdOn, hangUp).Stop()
		told, pause := 0, firstPause
		for first := true; c.life.Err() == nil; first = false {
			if c.tellCancelled(l) {
				told++
			}
			if first {
				c.notices.Add(-1) // who ends the session need not wait for the rest
			}
			if told > 0 && once || over == nil && told >= persistence || time.Now().After(end) {
				return
			}
			select {
			case known := <-over:
				if known {
					return
				}
				over = nil
			case <-time.After(pause):
			case <-c.life.Done():
			}
			pause = min(3*pause, longestPause)
		}
	}()
}

// tellCancelled sends one cancellation, in its turn. It reports whether the
// server took it.
func (c *streamable) tellCancelled(l *live) bool {
	select {
	case c.telling <- struct{}{}:
	case <-c.life.Done():
		return false
	}
	defer func() { <-c.telling }()
	m := wire.Message{Method: "notifications/cancelled", Params: json.RawMessage(`{"requestId":` + l.id + `}`)}
	if err := c.send(context.WithoutCancel(c.life), m); err != nil {
		c.log.Debug("the cancellation did not reach the server", "error", err)
		return false
	}
	return true
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
// the message may have left and its sending goes on. landed says once whether
// the server has taken or refused it; false: nobody knows.
type underWay struct {
	error
	landed <-chan bool
}

func (u *underWay) Unwrap() error { return u.error }
