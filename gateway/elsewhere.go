package gateway

import (
	"context"
	"encoding/json"

	"github.com/mcp-portal/mcp-portal/wire"
)

// carried is a resume on its way to the replica that holds its run.
type carried struct {
	User         string          `json:"user"`
	Modern       bool            `json:"modern"`
	Capabilities json.RawMessage `json:"capabilities,omitempty"`
	Params       json.RawMessage `json:"params"`
}

// resumeElsewhere passes a resume on. It reports false when no other replica
// holds the run.
func (g *Gateway) resumeElsewhere(ctx context.Context, r *request, id string) (json.RawMessage, bool) {
	if g.opt.Store.Status().Backend == "file" {
		return nil, false // one process, and it does not hold the run
	}
	raw, ok, err := g.opt.Store.Get(ctx, "run:"+id)
	var rec runRecord
	if err != nil || !ok || json.Unmarshal(raw, &rec) != nil || rec.User != r.who.ID || rec.Ended != "" || !rec.Held {
		return nil, false
	}
	result, err := g.passing.on(ctx, "run", id, wire.Encode(carried{User: r.who.ID, Modern: r.modern, Capabilities: r.caps, Params: r.params.Bytes()}), nil)
	switch {
	case err == nil:
		g.inherit(ctx, r.grant, runReads(id))
		return result, true
	case ctx.Err() != nil:
		return toolError("The run was cancelled."), true
	}
	return nil, false
}

// carry makes this replica go on with its runs for clients of others.
func (g *Gateway) carry(ctx context.Context) {
	g.passing.serve(ctx, "run", func(id string, body json.RawMessage) server {
		var c carried
		if json.Unmarshal(body, &c) != nil {
			return nil
		}
		x, err := g.runs.attach(c.User, id)
		if err != nil {
			return func(context.Context, func(json.RawMessage)) json.RawMessage { return toolError(err.Error()) }
		}
		if x == nil {
			return nil // another replica's
		}
		return func(ctx context.Context, _ func(json.RawMessage)) json.RawMessage {
			params, err := wire.ParseObject(c.Params)
			if err != nil {
				params = nil
			}
			// The client is on the other replica: it can be asked by
			// input_required, but not on a stream.
			r := *x.request(ctx)
			r.modern, r.caps, r.params, r.ask = c.Modern, c.Capabilities, params, nil
			result, e := g.goOn(ctx, &r, x)
			g.inherit(context.WithoutCancel(ctx), runReads(id), x.req.grant)
			if e != nil {
				return toolError(e.Message)
			}
			return result
		}
	})
}
