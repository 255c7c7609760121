package gateway

import (
	"context"
	"encoding/json"

	"github.com/mcp-portal/mcp-portal/upstreams"
	"github.com/mcp-portal/mcp-portal/wire"
)

// exchange sends a call that may be made, and lives through the rounds of a
// server that wants input (2026-07-28, SEP-2322).
func (g *Gateway) exchange(ctx context.Context, p *passage, x crossing) (json.RawMessage, error) {
	params := x.params
	for round := 0; ; round++ {
		var result json.RawMessage
		var err error
		if round == 0 && isParked(p.state) && inRounds(x.method) {
			result, err = g.parked.goOn(ctx, p, x)
		} else {
			result, err = g.sendSignedIn(ctx, p, x)
		}
		if err != nil || !inRounds(x.method) {
			return result, err
		}
		requests, state, wants := inputRequired(result)
		if !wants {
			return result, nil
		}
		if p.req.modern && !p.inCode() {
			if result, err = markInput(result); err != nil {
				return nil, err
			}
			if x.approval == "" && !wrapState(state) {
				return result, nil // the client answers the server's own questions
			}
			return g.keepContinuation(ctx, p, x, result, state)
		}
		if p.ask == nil || round >= 10 {
			return nil, &upstreams.CallError{Server: x.server, Tool: x.name, Problem: upstreams.Problem{Kind: upstreams.KindProtocol,
				Message: whyNoInput(p, round)}}
		}
		responses, e := g.answerAll(ctx, p, requests)
		if e != nil {
			return nil, e
		}
		x.params = params.Set("inputResponses", responses)
		if state != nil {
			x.params = x.params.Set("requestState", state)
		}
	}
}

// markInput says in a result that wants input that it does. The 2025 side of a
// server may leave that out: the Go SDK's does from the second round on.
func markInput(result json.RawMessage) (json.RawMessage, error) {
	o, err := wire.ParseObject(result)
	if err != nil || o.Get("resultType") != nil {
		return result, err
	}
	return wire.Splice(result, "resultType", json.RawMessage(`"input_required"`))
}

// whyNoInput says why a server that wants input gets none.
func whyNoInput(p *passage, round int) string {
	switch {
	case round >= 10:
		return "the server asks for further input again and again: given up after 10 rounds"
	case p.inCode():
		return "the server asks for further input, which code cannot give: call this tool directly, outside code"
	}
	return "the server asks for further input, and this client cannot be asked during a call: it must accept text/event-stream"
}

// inputRequired reads a result that asks for input (2026-07-28, SEP-2322).
func inputRequired(result json.RawMessage) (requests, state json.RawMessage, wants bool) {
	var r struct {
		ResultType    string          `json:"resultType"`
		InputRequests json.RawMessage `json:"inputRequests"`
		RequestState  json.RawMessage `json:"requestState"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return nil, nil, false
	}
	return r.InputRequests, r.RequestState, r.ResultType == "input_required" || (r.InputRequests != nil && r.ResultType == "")
}

// wrapState reports whether an upstream's requestState looks like one of ours.
func wrapState(state json.RawMessage) bool {
	var s string
	return json.Unmarshal(state, &s) == nil && isOurState(s)
}

// answerAll puts a 2026-07-28 server's questions to a 2025 client.
func (g *Gateway) answerAll(ctx context.Context, p *passage, requests json.RawMessage) (json.RawMessage, *wire.Error) {
	list, err := wire.ParseObject(requests)
	if err != nil {
		return nil, wire.Errorf(wire.CodeInternal, "the server asked for input in a form that cannot be read")
	}
	var out wire.Object
	for _, q := range list {
		o, err := wire.ParseObject(q.Value)
		if err != nil {
			return nil, wire.Errorf(wire.CodeInternal, "the server asked for input in a form that cannot be read")
		}
		params := o.Get("params")
		if params == nil {
			params = json.RawMessage("{}")
		}
		if m := o.String("method"); !p.req.mayBeAsked(m, params) {
			return nil, wire.Errorf(wire.CodeInternal, "the server asked for %q, which this client does not answer", bounded(m, 60))
		}
		res, e := p.screened(p.ask)(ctx, o.String("method"), params)
		if e != nil {
			return nil, e
		}
		out = append(out, wire.Field{Key: q.Key, Value: res})
	}
	return out.Bytes(), nil
}

// askInCode refuses the questions of a server whose tool is called from code:
// nobody reads along there who could answer for this one call.
func askInCode(_ context.Context, method string, _ json.RawMessage) (json.RawMessage, *wire.Error) {
	return nil, wire.Errorf(wire.CodeMethodNotFound, "%s is not available: the tool was called from code. It can ask when it is called directly", bounded(method, 60))
}
