package upstreams

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/mcp-portal/mcp-portal/upstreams/logins"
)

// onlyReader hides bytes.Reader from net/http, which would otherwise keep a
// copy of the body to send it again on its own judgement.
type onlyReader struct{ io.Reader }

// maxResends is how often a request that was refused for its token goes out
// again: with a renewed one, and with that while the server learns of it.
const maxResends = 4

// pauseFor waits, unless ctx ends first.
func pauseFor(ctx context.Context, d time.Duration) error {
	if d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// once sends a request, made by prepare, at most once: sent is set while the
// whole of it may have reached the server. A request that met a dead kept-alive
// connection and could not be written to its end is put on a fresh one: half a
// request is none. One that the server refused for its token goes out again
// with another. Nothing is tried again when wanted has ended.
func (e *endpoint) once(wanted context.Context, auth *authorizer, p *peer, sent *atomic.Bool, prepare func() (*http.Request, error)) (*http.Response, error) {
	var renewed *logins.Credential
	for try, resent := 0, 0; ; try++ {
		r, err := prepare()
		if err != nil {
			return nil, err
		}
		if renewed != nil {
			auth.put(r, *renewed)
		}
		var counter *countingConn
		var before int64
		reused := false
		var torn, h2 atomic.Bool // the request could not be written to its end; HTTP/2
		trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
			reused = i.Reused
			if counter = counterOf(i.Conn); counter != nil {
				before = counter.written.Load()
			}
			if t, ok := i.Conn.(*tls.Conn); ok {
				h2.Store(t.ConnectionState().NegotiatedProtocol == "h2")
			}
			sent.Store(true)
		}, WroteRequest: func(i httptrace.WroteRequestInfo) {
			torn.Store(i.Err != nil)
		}}
		resp, err := e.client.Do(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
		if err == nil {
			next, err := auth.refused(r, resp, p)
			again := false
			if err == nil {
				again, err = p.resend(next, resent, resp.StatusCode)
			}
			if err == nil && !again {
				return resp, nil
			}
			resp.Body.Close()
			sent.Store(false) // refused unseen
			if err == nil {
				err = pauseFor(wanted, next.Wait)
			}
			if err != nil {
				return nil, err
			}
			renewed = next
			resent++
			continue
		}
		nothing := counter != nil && counter.written.Load() == before
		if sent.Load() && (nothing || torn.Load() && !h2.Load()) {
			sent.Store(false)
			if reused && try == 0 && wanted.Err() == nil {
				continue
			}
		}
		return nil, err
	}
}
