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
//	resume-ack   from the holder: I do, wait
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

// ackPatience is how long the holder of a run has to say that it is there.
const ackPatience = 3 * time.Second

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
			patience.Stop()
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
		go g.serveResume(ctx, c, x, err)
	})
}

// serveResume goes on with a run of this replica for a client of another.
func (g *Gateway) serveResume(ctx context.Context, c carried, x *run, problem error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g.away.mu.Lock()
	g.away.served[c.Reply] = cancel
	g.away.mu.Unlock()
	defer func() {
		g.away.mu.Lock()
		delete(g.away.served, c.Reply)
		g.away.mu.Unlock()
	}()
	tell := func(kind string, body json.RawMessage) {
		if err := g.bus.tell(context.WithoutCancel(ctx), note{Kind: kind, Key: c.Reply, Body: body}); err != nil {
			g.log.Warn("the result of a run could not be sent to the replica that asked for it", "error", err)
		}
	}
	if problem != nil {
		tell("resume-done", toolError(problem.Error()))
		return
	}
	tell("resume-ack", nil)
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
	tell("resume-done", result)
}
