package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/upstreams"
	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// A call waits in the process that sent it. A retry that reaches another
// replica is passed on over the bus, and all that comes of it comes back the
// same way:
//
//	call-go    to all: who holds this call? here are the answers
//	call-ack   from the holder: I do, wait
//	call-note  from the holder: a notification for the client
//	call-done  from the holder: the end of the round
//	call-quit  to all: the client went away, or must not go on

// passedCall is a retry on its way to the holder of its call.
type passedCall struct {
	Reply     string          `json:"reply"`
	State     string          `json:"state"`
	Record    parkedRecord    `json:"record"`
	Responses json.RawMessage `json:"responses,omitempty"`
	Token     json.RawMessage `json:"token,omitempty"`
	Quit      bool            `json:"quit,omitempty"` // give the call up instead
}

// passedEnd is the end of a round on its way back; one member is set. Results
// travel as bytes, since encoding would compact them.
type passedEnd struct {
	Result []byte      `json:"result,omitempty"`
	Input  []byte      `json:"input,omitempty"` // the result asks for input
	RPC    *wire.Error `json:"rpc,omitempty"`
	Failed *failedCall `json:"failed,omitempty"`
}

// failedCall is upstreams.CallError without its chain.
type failedCall struct {
	Server  string            `json:"server"`
	Tool    string            `json:"tool"`
	Problem upstreams.Problem `json:"problem"`
	Sent    bool              `json:"sent"`
}

func newParking(ctx context.Context, g *Gateway) *parking {
	pk := &parking{g: g, calls: map[string]*parkedCall{}, users: map[string]int{}, passed: map[string]chan note{}, served: map[string]context.CancelCauseFunc{}}
	back := func(n note) {
		pk.mu.Lock()
		got := pk.passed[n.Key]
		pk.mu.Unlock()
		select {
		case got <- n:
		default: // nil, or nobody reads any more
		}
	}
	g.bus.handle("call-ack", back)
	g.bus.handle("call-note", back)
	g.bus.handle("call-done", back)
	g.bus.handle("call-quit", func(n note) {
		pk.mu.Lock()
		cancel := pk.served[n.Key]
		pk.mu.Unlock()
		if cancel != nil {
			cancel(errCancelled)
		}
	})
	g.bus.handle("call-go", func(n note) {
		var c passedCall
		if json.Unmarshal(n.Body, &c) != nil {
			return
		}
		k := pk.find(c.State, c.Record.User)
		if k == nil || k.rec != c.Record {
			return // another replica's
		}
		if k = pk.take(c.State, c.Record.User); k == nil {
			return
		}
		if c.Quit {
			k.cancel(errCancelled)
			return
		}
		go pk.serve(ctx, c, k)
	})
	return pk
}

// goOnElsewhere passes a retry on to the replica that holds its call.
func (pk *parking) goOnElsewhere(ctx context.Context, p *passage, x crossing) (json.RawMessage, error) {
	rec, err := pk.record(ctx, p, x)
	if err != nil {
		return nil, err
	}
	c := passedCall{Reply: randomID(), State: p.state, Record: rec, Responses: p.responses, Token: p.req.progress}
	got := make(chan note, 1+heldNotes)
	pk.mu.Lock()
	pk.passed[c.Reply] = got
	pk.mu.Unlock()
	defer func() {
		pk.mu.Lock()
		delete(pk.passed, c.Reply)
		pk.mu.Unlock()
	}()
	if err := pk.g.bus.tell(ctx, note{Kind: "call-go", Key: c.State, Body: wire.Encode(c)}); err != nil {
		return nil, errors.New("the portal process that holds this call cannot be reached, because the store cannot: send the same retry again in a moment")
	}
	patience := time.NewTimer(ackPatience)
	defer patience.Stop()
	for {
		select {
		case n := <-got:
			patience.Stop()
			switch n.Kind {
			case "call-note":
				if m, err := wire.ParseMessage(n.Body); err == nil {
					p.notify(m.Method, m.Params)
				}
			case "call-done":
				var end passedEnd
				if err := json.Unmarshal(n.Body, &end); err != nil {
					return nil, pk.lost(x, "its end could not be read")
				}
				return end.outcome()
			}
		case <-patience.C:
			return nil, pk.lost(x, "")
		case <-ctx.Done():
			if err := pk.g.bus.tell(context.WithoutCancel(ctx), note{Kind: "call-quit", Key: c.Reply}); err != nil {
				pk.g.log.Warn("a cancelled call on another replica could not be called back", "server", x.server, "error", err)
			}
			return nil, &upstreams.CallError{Server: x.server, Tool: x.name, Sent: true, Err: ctx.Err(),
				Problem: upstreams.Problem{Kind: upstreams.KindCancelled, Message: "the call was cancelled"}}
		}
	}
}

// quitElsewhere has the holder give up a call.
func (pk *parking) quitElsewhere(ctx context.Context, p *passage, x crossing) {
	rec, err := pk.record(ctx, p, x)
	if err != nil || pk.alone() {
		return
	}
	c := passedCall{State: p.state, Record: rec, Quit: true}
	if err := pk.g.bus.tell(ctx, note{Kind: "call-go", Key: c.State, Body: wire.Encode(c)}); err != nil {
		pk.g.log.Warn("a call on another replica could not be given up: its deadline will", "server", x.server, "error", err)
	}
}

// serve goes on with a call of this replica for a client of another.
func (pk *parking) serve(ctx context.Context, c passedCall, k *parkedCall) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	pk.mu.Lock()
	pk.served[c.Reply] = cancel
	pk.mu.Unlock()
	defer func() {
		pk.mu.Lock()
		delete(pk.served, c.Reply)
		pk.mu.Unlock()
	}()
	tell := func(kind string, body json.RawMessage) {
		if err := pk.g.bus.tell(context.WithoutCancel(ctx), note{Kind: kind, Key: c.Reply, Body: body}); err != nil {
			pk.g.log.Warn("what became of a call could not be sent to the replica that asked for it", "server", k.rec.Server, "error", err)
		}
	}
	tell("call-ack", nil)
	x := crossing{method: k.rec.Method, server: k.rec.Server, name: k.rec.Name, approval: k.rec.Approval}
	p := &passage{mode: writeguard.Direct, state: c.State, responses: c.Responses,
		req: &request{set: pk.g.settings(), who: &auth.Principal{ID: k.rec.User}, modern: true, progress: c.Token},
		notify: func(method string, params json.RawMessage) {
			tell("call-note", wire.Message{Method: method, Params: params}.Bytes())
		}}
	result, err := pk.resume(ctx, k, p, x)
	if errors.Is(context.Cause(ctx), errCancelled) {
		return
	}
	tell("call-done", wire.Encode(endOf(result, err)))
}

// endOf makes the end of a round fit for the bus.
func endOf(result json.RawMessage, err error) passedEnd {
	var input *inputNeeded
	var call *upstreams.CallError
	if err == nil {
		return passedEnd{Result: result}
	}
	if errors.As(err, &input) {
		return passedEnd{Input: input.result}
	}
	if e, ok := wire.AsError(err); ok {
		return passedEnd{RPC: e}
	}
	if errors.As(err, &call) {
		return passedEnd{Failed: &failedCall{call.Server, call.Tool, call.Problem, call.Sent}}
	}
	return passedEnd{RPC: wire.Errorf(wire.CodeInternal, "%s", err.Error())}
}

func (e passedEnd) outcome() (json.RawMessage, error) {
	switch {
	case e.Input != nil:
		return nil, &inputNeeded{e.Input}
	case e.RPC != nil:
		return nil, e.RPC
	case e.Failed != nil:
		return nil, &upstreams.CallError{Server: e.Failed.Server, Tool: e.Failed.Tool, Problem: e.Failed.Problem, Sent: e.Failed.Sent}
	}
	return e.Result, nil
}
