package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
)

// A portal ends a call when its request is closed, in both eras. Other servers
// of the 2025 revisions only know the message for it, which goes over another
// connection and may be there before the call itself: then they must ignore it.
// So the request of a cancelled call stays open, which shows whether the message
// did its work, and the message is sent again until it has.

const (
	// cancelTries is how often the message arrives, with pauses of two seconds
	// in all.
	cancelTries = 5
	cancelPause = 50 * time.Millisecond
	cancelMost  = 4 * time.Second // between two
	// cancelFor is for how long it is tried where it does not arrive.
	cancelFor = 30 * time.Second
	// cancelWithin is how long one may take.
	cancelWithin = 5 * time.Second
)

// errGivenUp ends a request that its client has cancelled.
type errGivenUp struct{ note wire.Message }

func (*errGivenUp) Error() string { return "cancelled by the client" }

// kept is the request of a call that outlives its cancellation.
type kept struct {
	ctx    context.Context // of the HTTP request
	hangUp context.CancelFunc
	over   chan struct{} // closed when the server has ended it
	end    func()
}

// keep prepares the request of one message of the 2025 revisions, posted in a
// session. sent reports whether it may have reached the server.
func (r *relay) keep(ctx context.Context, version, session string, sent func() bool) *kept {
	k := &kept{over: make(chan struct{})}
	k.ctx, k.hangUp = context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		defer k.hangUp()
		var cancelled *errGivenUp
		if !errors.As(context.Cause(ctx), &cancelled) {
			return // the program ends
		}
		if !sent() {
			k.hangUp()
			if <-k.over; !sent() {
				return
			}
			// In the very moment: nothing will show when it arrives.
			r.tellCancelled(cancelled.note, version, session, nil)
			return
		}
		r.tellCancelled(cancelled.note, version, session, k.over)
	})
	k.end = sync.OnceFunc(func() {
		close(k.over)
		if stop() {
			k.hangUp()
		}
	})
	return k
}

// tellCancelled sends the client's message until the call is over or must have
// arrived.
func (r *relay) tellCancelled(note wire.Message, version, session string, over <-chan struct{}) {
	end := time.Now().Add(cancelFor)
	for n, pause := 0, cancelPause; ; pause = min(3*pause, cancelMost) {
		ctx, cancel := context.WithTimeout(r.life, cancelWithin)
		_, err := r.post(ctx, note, version, session)
		cancel()
		if err != nil && r.life.Err() == nil {
			r.log.Warn("a cancellation did not reach the portal", "error", err)
		}
		if err == nil {
			n++
		}
		if n == cancelTries || time.Now().After(end) {
			return
		}
		select {
		case <-over:
			return
		case <-r.life.Done():
			return
		case <-time.After(pause):
		}
	}
}

// body makes reading a response to its end, or closing it, the end of the call.
func (k *kept) body(resp *http.Response) { resp.Body = &keptBody{resp.Body, k.end} }

type keptBody struct {
	io.ReadCloser
	end func()
}

func (b *keptBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

func (b *keptBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
