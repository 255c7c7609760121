package gateway

import (
	"context"

	"github.com/mcp-portal/mcp-portal/writeguard"
)

// What was read by one session can come to another: as what a run returns that
// the other goes on with, as the answer to a plan that it applies, as a kept
// value. The taints come along, so that starting anew does not wash them off.

// runReads is the key under which the taints of a run are kept that has waited.
func runReads(run string) string { return "run:" + run }

// inherit adds to what one session has read what another, or a run, has read.
func (g *Gateway) inherit(ctx context.Context, to, from string) {
	if to == "" || to == from {
		return
	}
	g.taints.Add(ctx, to, g.readBy(ctx, from))
}

// readBy is what a session has read, or the worst if that is not known.
func (g *Gateway) readBy(ctx context.Context, session string) writeguard.Labels {
	l, err := g.taints.Of(ctx, session)
	if err != nil {
		return writeguard.Private | writeguard.Untrusted
	}
	return l
}

// readStep marks a session that is given the answer of a step, which another may
// have sent.
func (g *Gateway) readStep(ctx context.Context, r *request, step writeguard.PlanStep) {
	labels := r.set.policy.ServerLabels(step.Server)
	if t := r.view.snap.ToolByIdentity(step.Server, step.Tool); t != nil {
		labels = r.set.policy.Classify((&passage{req: r}).call(t, step.Arguments)).Labels
	}
	g.taints.Add(ctx, r.grant, labels)
}
