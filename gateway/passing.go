package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
)

// Some things live in one process: a paused run, a call that waits for answers.
// A request about one that reaches another replica is passed on over the bus,
// and what comes of it comes back the same way:
//
//	pass-<what>  to all: who holds this? here is a request about it
//	pass-ack     from the holder, again and again: I do, wait
//	pass-note    from the holder: something for the client meanwhile
//	pass-done    from the holder: the answer
//	pass-quit    to all: the client went away

// passing passes requests on, and serves those of other replicas.
type passing struct {
	bus   *bus
	log   *slog.Logger
	calls *inflight

	mu     sync.Mutex
	sent   map[string]chan note // by reply id
	served map[string]context.CancelCauseFunc
}

// passed is a request on its way to the holder of what it is about.
type passed struct {
	Reply string          `json:"reply"`
	Body  json.RawMessage `json:"body"`
}

const (
	// The holder says so often that it is there; silent for so long, it is
	// taken for gone.
	ackEvery    = time.Second
	ackPatience = 5 * time.Second
	// An answer is sent again so often while the bus is away.
	doneTries = 30
	// Notes that wait to be read by the request that was passed on.
	passedNotes = 256
)

// errNobody means that no other replica holds it, or that the one that did is
// gone.
var errNobody = errors.New("no other process of the portal holds it")

func newPassing(b *bus, log *slog.Logger, calls *inflight) *passing {
	x := &passing{bus: b, log: log, calls: calls, sent: map[string]chan note{}, served: map[string]context.CancelCauseFunc{}}
	for _, kind := range []string{"pass-ack", "pass-note", "pass-done"} {
		b.handle(kind, func(n note) {
			x.mu.Lock()
			got := x.sent[n.Key]
			x.mu.Unlock()
			select {
			case got <- n:
			default: // nil, or nobody reads any more
			}
		})
	}
	b.handle("pass-quit", func(n note) {
		x.mu.Lock()
		cancel := x.served[n.Key]
		x.mu.Unlock()
		if cancel != nil {
			cancel(errCancelled)
		}
	})
	return x
}

// on passes a request on: what kind of thing it is about, which one, and the
// request. heard gets what the holder tells meanwhile; it may be nil. The error
// is errNobody, that of the bus, or that of ctx.
func (x *passing) on(ctx context.Context, what, key string, body json.RawMessage, heard func(json.RawMessage)) (json.RawMessage, error) {
	p := passed{Reply: randomID(), Body: body}
	got := make(chan note, passedNotes)
	x.mu.Lock()
	x.sent[p.Reply] = got
	x.mu.Unlock()
	defer func() {
		x.mu.Lock()
		delete(x.sent, p.Reply)
		x.mu.Unlock()
	}()
	if err := x.bus.tell(ctx, note{Kind: "pass-" + what, Key: key, Body: wire.Encode(p)}); err != nil {
		return nil, err
	}
	patience := time.NewTimer(ackPatience)
	defer patience.Stop()
	for {
		select {
		case n := <-got:
			patience.Reset(ackPatience)
			switch {
			case n.Kind == "pass-done":
				return n.Body, nil
			case n.Kind == "pass-note" && heard != nil:
				heard(n.Body)
			}
		case <-patience.C:
			return nil, errNobody
		case <-ctx.Done():
			if err := x.bus.tell(context.WithoutCancel(ctx), note{Kind: "pass-quit", Key: p.Reply}); err != nil {
				x.log.Warn("a cancelled request could not be called back from the replica that serves it", "about", key, "error", err)
			}
			return nil, context.Cause(ctx)
		}
	}
}

// server answers a request of another replica. Its context ends when the client
// goes away (errCancelled) or this process must stop.
type server func(ctx context.Context, tell func(json.RawMessage)) json.RawMessage

// serve makes this replica answer requests about a kind of thing. hold takes
// hold of the one that is asked about, at once; nil: it is not here.
func (x *passing) serve(ctx context.Context, what string, hold func(key string, body json.RawMessage) server) {
	x.bus.handle("pass-"+what, func(n note) {
		var p passed
		if json.Unmarshal(n.Body, &p) != nil {
			return
		}
		ctx, end, err := x.calls.begin(ctx, "")
		if err != nil {
			return // shutting down: what is held here ends, too
		}
		s := hold(n.Key, p.Body)
		if s == nil {
			end()
			return
		}
		// Known before the next note is read: that may call it off.
		ctx, cancel := context.WithCancelCause(ctx)
		x.mu.Lock()
		x.served[p.Reply] = cancel
		x.mu.Unlock()
		go func() {
			defer end()
			defer func() {
				cancel(nil)
				x.mu.Lock()
				delete(x.served, p.Reply)
				x.mu.Unlock()
			}()
			x.answer(ctx, p.Reply, s)
		}()
	})
}

func (x *passing) answer(ctx context.Context, reply string, s server) {
	tell := func(kind string, body json.RawMessage) error {
		return x.bus.tell(context.WithoutCancel(ctx), note{Kind: kind, Key: reply, Body: body})
	}
	over := make(chan struct{})
	go func() {
		t := time.NewTicker(ackEvery)
		defer t.Stop()
		for {
			_ = tell("pass-ack", nil) // a lost one does no harm, the next is a moment away
			select {
			case <-over:
				return
			case <-t.C:
			}
		}
	}()
	defer close(over)
	body := s(ctx, func(body json.RawMessage) {
		if err := tell("pass-note", body); err != nil {
			x.log.Warn("a notification could not be sent to the replica of its client", "error", err)
		}
	})
	for try := 1; !errors.Is(context.Cause(ctx), errCancelled); try++ {
		err := tell("pass-done", body)
		if err == nil {
			return
		}
		if try == doneTries || ctx.Err() != nil {
			x.log.Warn("an answer could not be sent to the replica that asked for it", "error", err)
			return
		}
		time.Sleep(ackEvery)
	}
}
