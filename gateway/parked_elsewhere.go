package gateway

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/upstreams"
	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// passedCall is a retry on its way to the replica that holds its call.
type passedCall struct {
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
	pk := &parking{g: g, calls: map[string]*parkedCall{}, users: map[string]int{}}
	g.passing.serve(ctx, "call", func(state string, body json.RawMessage) server {
		var c passedCall
		if json.Unmarshal(body, &c) != nil {
			return nil
		}
		k := pk.find(state, c.Record.User)
		if k == nil || k.rec != c.Record {
			return nil // another replica's
		}
		if k = pk.take(state, c.Record.User); k == nil {
			return nil
		}
		return func(ctx context.Context, tell func(json.RawMessage)) json.RawMessage {
			if c.Quit {
				k.cancel(errCancelled)
				<-k.done
				return wire.Encode(endOf(k.result, k.err))
			}
			return wire.Encode(endOf(pk.serve(ctx, state, c, k, tell)))
		}
	})
	return pk
}

// goOnElsewhere passes a retry on to the replica that holds its call.
func (pk *parking) goOnElsewhere(ctx context.Context, p *passage, x crossing) (json.RawMessage, error) {
	rec, err := pk.record(ctx, p, x)
	if err != nil {
		return nil, err
	}
	c := passedCall{Record: rec, Responses: p.responses, Token: p.req.progress}
	body, err := pk.g.passing.on(ctx, "call", p.state, wire.Encode(c), func(body json.RawMessage) {
		if m, err := wire.ParseMessage(body); err == nil {
			p.notify(m.Method, m.Params)
		}
	})
	var end passedEnd
	switch {
	case ctx.Err() != nil:
		return nil, &upstreams.CallError{Server: x.server, Tool: x.name, Sent: true, Err: ctx.Err(),
			Problem: upstreams.Problem{Kind: upstreams.KindCancelled, Message: "the call was cancelled"}}
	case errors.Is(err, errNobody):
		return nil, pk.unknown(x)
	case err != nil:
		return nil, errors.New("the portal process that holds this call cannot be reached, because the store cannot: send the same retry again in a moment")
	case json.Unmarshal(body, &end) != nil:
		return nil, pk.lost(x, "its end could not be read")
	}
	return end.outcome()
}

// quitElsewhere has the holder give up a call.
func (pk *parking) quitElsewhere(ctx context.Context, p *passage, x crossing) {
	rec, err := pk.record(ctx, p, x)
	if err != nil || pk.alone() {
		return
	}
	if _, err := pk.g.passing.on(ctx, "call", p.state, wire.Encode(passedCall{Record: rec, Quit: true}), nil); err != nil {
		pk.g.log.Warn("a call on another replica could not be given up: its deadline will", "server", x.server, "error", err)
	}
}

// serve goes on with a call of this replica for a client of another.
func (pk *parking) serve(ctx context.Context, state string, c passedCall, k *parkedCall, tell func(json.RawMessage)) (json.RawMessage, error) {
	x := crossing{method: k.rec.Method, server: k.rec.Server, name: k.rec.Name, approval: k.rec.Approval}
	p := &passage{mode: writeguard.Direct, state: state, responses: c.Responses,
		req: &request{set: pk.g.settings(), who: &auth.Principal{ID: k.rec.User}, modern: true, progress: c.Token},
		notify: func(method string, params json.RawMessage) {
			tell(wire.Message{Method: method, Params: params}.Bytes())
		}}
	return pk.resume(ctx, k, p, x)
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
