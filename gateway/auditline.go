package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mcp-portal/mcp-portal/audit"
	"github.com/mcp-portal/mcp-portal/upstreams"
	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// event begins an audit line.
func (g *Gateway) event(p *passage, x crossing, in int) audit.Event {
	ev := audit.Event{ID: randomID(), Plan: p.step.planID(), Step: p.step.number(), User: p.req.who.ID, Email: p.req.who.Email, Groups: p.req.who.Groups, Client: p.req.client, Mode: string(p.mode), Run: p.run,
		Method: x.method, Server: x.server, Capability: x.name, BytesIn: in}
	if p.req.sess != nil {
		ev.Session = shortHash(p.req.sess.key)
	}
	return ev
}

// record writes the audit line of a call that is over.
func (g *Gateway) record(ctx context.Context, ev audit.Event, start time.Time, result json.RawMessage, err error) {
	ev.Time = start
	ev.Duration = float64(g.now().Sub(start).Microseconds()) / 1000
	ev.BytesOut = len(result)
	ev.Status = outcome(ctx, result, err)
	if err != nil {
		ev.Error = g.auditError(err)
	}
	g.opt.Audit.Record(context.WithoutCancel(ctx), ev)
}

// auditError is what the audit keeps of an error. Error texts of servers may
// repeat arguments, so without audit.arguments only what kind it was is kept.
func (g *Gateway) auditError(err error) string {
	if g.settings().cfg.Audit.Arguments {
		return audit.Redact(err.Error())
	}
	var ref *refusal
	var call *upstreams.CallError
	var need *needInput
	var input *inputNeeded
	var plan *needPlan
	var kept *collected
	if e, ok := wire.AsError(err); ok {
		return fmt.Sprintf("JSON-RPC error %d", e.Code)
	}
	switch {
	case errors.As(err, &ref):
		return ref.status
	case errors.As(err, &call):
		s := call.Problem.Kind
		if call.Problem.HTTPStatus != 0 {
			s += fmt.Sprintf(", HTTP %d", call.Problem.HTTPStatus)
		}
		return s
	case errors.As(err, &need), errors.As(err, &input), errors.As(err, &plan), errors.As(err, &kept):
		return err.Error() // of the portal's own words
	}
	return "failed inside the portal"
}

// recordRefused writes the audit line of a call that named nothing the caller
// may use.
func (g *Gateway) recordRefused(ctx context.Context, r *request, method, name string) {
	p := &passage{req: r, mode: writeguard.Direct}
	ev := g.event(p, crossing{method: method, name: bounded(name, 200)}, 0)
	ev.Time, ev.Status, ev.Decision, ev.Error = g.now(), "denied", string(writeguard.Deny), "unknown or not allowed"
	g.opt.Audit.Record(context.WithoutCancel(ctx), ev)
}

// outcome is the audit status of a call.
func outcome(ctx context.Context, result json.RawMessage, err error) string {
	var ref *refusal
	var need *needInput
	var kept *collected
	var plan *needPlan
	var input *inputNeeded
	var call *upstreams.CallError
	switch {
	case err == nil && isToolError(result):
		return "tool_error"
	case err == nil:
		return "ok"
	case errors.As(err, &ref):
		return ref.status
	case errors.As(err, &need), errors.As(err, &input), errors.As(err, &plan):
		return "pending"
	case errors.As(err, &kept):
		return planned
	case errors.As(err, &call) && call.Sent:
		return "unknown"
	case ctx.Err() != nil:
		return "cancelled"
	}
	return "error"
}

func isToolError(result json.RawMessage) bool {
	var r struct {
		IsError bool `json:"isError"`
	}
	return json.Unmarshal(result, &r) == nil && r.IsError
}
