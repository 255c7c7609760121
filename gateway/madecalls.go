package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/mcp-portal/mcp-portal/codemode"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// madeCall is a call that a run made, for reports that must survive it.
type madeCall struct {
	Tool   string           `json:"tool"`
	Class  writeguard.Class `json:"class"`
	Status string           `json:"status"`
	IDs    string           `json:"ids,omitempty"` // of what it made or changed
}

// counted lets the run know which calls are under way.
type counted struct {
	*host
	run *run
}

// notSent is the status of a call that has not reached its server.
const notSent = "not_sent"

func (c *counted) Call(ctx context.Context, hc codemode.HostCall) (json.RawMessage, error) {
	x := c.run
	i := hc.Seq - 1
	x.mu.Lock()
	for len(x.made) <= i {
		x.made = append(x.made, madeCall{Class: writeguard.Write, Status: notSent})
	}
	before := x.made[i]
	if before.Tool == "" {
		x.made[i].Tool = hc.Tool
		if t, ok := c.req.view.tool(hc.Tool); ok {
			x.made[i].Class = c.req.set.policy.Classify(writeguard.Call{Server: t.Server, Tool: t.Name, Description: t.Description, Annotations: t.Annotations, Arguments: hc.Arguments}).Class
		}
	}
	facts := callsBefore(x.made, i)
	x.mu.Unlock()
	if err := unknownBefore(hc, before); err != nil {
		return nil, err
	}
	if held := x.keeps(c.req.view, hc, i); held != nil {
		return nil, held
	}
	x.mu.Lock()
	x.busy++
	x.made[i].Status = notSent
	x.mu.Unlock()
	h := &host{g: c.g, req: x.request(ctx), run: x, before: facts}
	res, err := h.Call(context.WithValue(ctx, madeKey{}, i), hc)
	x.mu.Lock()
	x.busy--
	sent := x.made[i].Status == inFlight
	if err == nil && x.made[i].Class != writeguard.Read {
		x.made[i].IDs = idsOf(res)
	}
	var he *codemode.HostError
	var held *codemode.Held
	switch isHost := errors.As(err, &he); {
	case errors.As(err, &held):
		x.made[i].Status = planned
	case sent && isHost:
		x.made[i].Status = he.Code
	case sent:
		x.made[i].Status = outcome(ctx, res, err)
	case isHost && he.Code == "denied":
		x.made[i].Status = he.Code
	default:
		x.made[i].Status = notSent
	}
	keep := sent && x.waited && x.made[i].Class != writeguard.Read
	x.signal()
	x.mu.Unlock()
	if keep {
		if err := x.g.keepRecord(context.WithoutCancel(ctx), x, "", true); err != nil && !errors.Is(err, errElsewhere) {
			x.g.log.Warn("how a call of a run came out is only known in this process", "run", x.id, "error", err)
		}
	}
	return res, err
}

const inFlight = "in_flight"

// callsBefore counts what a run called before its call i: by its place in the
// script, which a repeated run does not change. A call that is begun but not
// known yet counts as one of the same tool.
func callsBefore(made []madeCall, i int) writeguard.Facts {
	f := writeguard.Facts{Calls: i}
	for _, m := range made[:i] {
		if m.Tool == made[i].Tool || m.Tool == "" {
			f.ToolCalls++
		}
	}
	return f
}

// unknownBefore refuses to send a call again that an earlier life of the run may
// have sent and whose answer is not in the recording. Reads do no harm twice.
func unknownBefore(hc codemode.HostCall, before madeCall) error {
	if !hc.Known || before.Class == writeguard.Read {
		return nil
	}
	switch before.Status {
	case "", notSent, planned, "pending", "denied":
		return nil
	case inFlight, "cancelled":
		return &codemode.HostError{Code: "outcome_unknown", Message: fmt.Sprintf("The portal process ended while %s was under way: whether it was carried out is unknown, and it was not sent again. Check before doing anything that depends on it.", before.Tool)}
	}
	return &codemode.HostError{Code: "result_lost", Message: fmt.Sprintf("%s was called before the portal process ended (%s), but its result is lost, and it was not sent again. Read what it has changed instead.", before.Tool, before.Status)}
}

// sending notes that a call is about to be sent. From then on nobody may send it
// again, so what changes something is sent only when that is in the store; for a
// run that has not waited there is no other life.
func (x *run) sending(ctx context.Context) error {
	i, known := ctx.Value(madeKey{}).(int)
	if !known {
		return nil
	}
	x.mu.Lock()
	x.made[i].Status = inFlight
	keep := x.waited && x.made[i].Class != writeguard.Read
	x.mu.Unlock()
	if !keep {
		return nil
	}
	err := x.g.keepRecord(context.WithoutCancel(ctx), x, "", true)
	if err == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.made[i].Status = notSent
	return fmt.Errorf("%s was not sent: %w", x.made[i].Tool, err)
}

// madeKey is the context key of a call's place in run.made.
type madeKey struct{}

// callWaits notes that a call, number i of those made if that is known, waits
// for a person; callGoesOn that it does not any more, and has yet to be sent.
// The caller of both holds mu.
func (x *run) callWaits(i int, known bool) {
	x.waiters++
	x.waited = true
	if known {
		x.made[i].Status = "pending"
	}
	x.signal()
}

func (x *run) callGoesOn(i int, known bool) {
	x.waiters--
	if known {
		x.made[i].Status = notSent
	}
	x.signal()
}
