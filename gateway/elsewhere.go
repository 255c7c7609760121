package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
)

// A run lives in the process that started it. A resume that reaches another
// replica is passed on over the bus and its result comes back the same way:
//
//	resume       to all: who holds this run?
//	resume-ack   from the holder, again and again: I do, wait
//	resume-done  from the holder: the result of the call
//	resume-quit  to all: the client went away

// carried is a resume on its way to the holder of its run.
type carried struct {
	Reply        string          `json:"reply"`
	User         string          `json:"user"`
	Modern       bool            `json:"modern"`
	Capabilities json.RawMessage `json:"capabilities,omitempty"`
	Params       json.RawMessage `json:"params"`
}

// elsewhere keeps the resumes that this replica has passed on, and those it
// serves for others.
type elsewhere struct {
	mu     sync.Mutex
	passed map[string]chan note // by reply id
	served map[string]context.CancelCauseFunc
}

const (
	// The holder of a run says so often that it is there; silent for so long,
	// it is taken for gone.
	ackEvery    = time.Second
	ackPatience = 5 * time.Second
	// A result is sent again so often while the bus is away.
	doneTries = 30
)

// resumeElsewhere passes a resume on. It reports false when no other replica
// holds the run.
func (g *Gateway) resumeElsewhere(ctx context.Context, r *request, id string) (json.RawMessage, bool) {
	if g.opt.Store.Status().Backend == "file" {
		return nil, false // one process, and it does not hold the run
	}
	raw, ok, err := g.opt.Store.Get(ctx, "run:"+id)
	var rec runRecord
	if err != nil || !ok || json.Unmarshal(raw, &rec) != nil || rec.User != r.who.ID || rec.Ended != "" {
		return nil, false
	}
	c := carried{Reply: randomID(), User: r.who.ID, Modern: r.modern, Capabilities: r.caps, Params: r.params.Bytes()}
	got := make(chan note, 2)
	g.away.mu.Lock()
	g.away.passed[c.Reply] = got
	g.away.mu.Unlock()
	defer func() {
		g.away.mu.Lock()
		delete(g.away.passed, c.Reply)
		g.away.mu.Unlock()
	}()
	if err := g.bus.tell(ctx, note{Kind: "resume", Key: id, Body: wire.Encode(c)}); err != nil {
		return nil, false
	}
	patience := time.NewTimer(ackPatience)
	defer patience.Stop()
	for {
		select {
		case n := <-got:
			if n.Kind == "resume-done" {
				return n.Body, true
			}
			patience.Reset(ackPatience)
		case <-patience.C:
			return nil, false
		case <-ctx.Done():
			if err := g.bus.tell(context.WithoutCancel(ctx), note{Kind: "resume-quit", Key: c.Reply}); err != nil {
				g.log.Warn("a cancelled resume could not be called back", "run", id, "error", err)
			}
			return toolError("The run was cancelled."), true
		}
	}
}

// carry makes this replica take part.
func (g *Gateway) carry(ctx context.Context) {
	g.away = &elsewhere{passed: map[string]chan note{}, served: map[string]context.CancelCauseFunc{}}
	back := func(n note) {
		g.away.mu.Lock()
		got := g.away.passed[n.Key]
		g.away.mu.Unlock()
		select {
		case got <- n:
		default: // nil, or nobody reads any more
		}
	}
	g.bus.handle("resume-ack", back)
	g.bus.handle("resume-done", back)
	g.bus.handle("resume-quit", func(n note) {
		g.away.mu.Lock()
		cancel := g.away.served[n.Key]
		g.away.mu.Unlock()
		if cancel != nil {
			cancel(errCancelled)
		}
	})
	g.bus.handle("resume", func(n note) {
		var c carried
		if json.Unmarshal(n.Body, &c) != nil {
			return
		}
		x, err := g.runs.attach(c.User, n.Key)
		if x == nil && err == nil {
			return // another replica's
		}
		// Known before the next note is read: that may call it off.
		serving, cancel := context.WithCancelCause(ctx)
		g.away.mu.Lock()
		g.away.served[c.Reply] = cancel
		g.away.mu.Unlock()
		go func() {
			defer func() {
				cancel(nil)
				g.away.mu.Lock()
				delete(g.away.served, c.Reply)
				g.away.mu.Unlock()
			}()
			g.serveResume(serving, c, x, err)
		}()
	})
}

// serveResume goes on with a run of this replica for a client of another.
func (g *Gateway) serveResume(ctx context.Context, c carried, x *run, problem error) {
	tell := func(kind string, body json.RawMessage) error {
		return g.bus.tell(context.WithoutCancel(ctx), note{Kind: kind, Key: c.Reply, Body: body})
	}
	finish := func(body json.RawMessage) {
		for try := 1; ; try++ {
			err := tell("resume-done", body)
			if err == nil {
				return
			}
			if try == doneTries || ctx.Err() != nil {
				g.log.Warn("the result of a run could not be sent to the replica that asked for it", "error", err)
				return
			}
			time.Sleep(ackEvery)
		}
	}
	if problem != nil {
		finish(toolError(problem.Error()))
		return
	}
	ctx, end, err := g.calls.begin(ctx, "")
	if err != nil {
		g.runs.detach(x)
		finish(toolError(err.Error()))
		return
	}
	defer end()
	over := make(chan struct{})
	defer close(over)
	go func() {
		t := time.NewTicker(ackEvery)
		defer t.Stop()
		for {
			// Lost ones do no harm; the next is a moment away.
			_ = tell("resume-ack", nil)
			select {
			case <-over:
				return
			case <-t.C:
			}
		}
	}()
	params, err := wire.ParseObject(c.Params)
	if err != nil {
		params = nil
	}
	// The client is on the other replica: it can be asked by input_required,
	// but not on a stream.
	r := *x.request(ctx)
	r.modern, r.caps, r.params, r.ask = c.Modern, c.Capabilities, params, nil
	result, e := g.goOn(ctx, &r, x)
	if e != nil {
		result = toolError(e.Message)
	}
	if errors.Is(context.Cause(ctx), errCancelled) {
		return
	}
	finish(result)
}
