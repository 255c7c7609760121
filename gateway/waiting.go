package gateway

import (
	"context"
	"slices"
	"time"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// countPatience bounds how long a page waits for the number beside
// "Approvals". It is on every page, and none may hang for it.
const countPatience = time.Second

// waitingFor counts what waits for a person's answer on the page: approvals of
// their own agents and of others, and plans. It is 0 while that is not known;
// the page of approvals then says so itself.
func (g *Gateway) waitingFor(who *auth.Principal) int {
	if who == nil || g.opt.Store.Status().Degraded {
		return 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), countPatience)
	defer cancel()
	own, err := g.approvals.ListFor(ctx, who.ID)
	if err != nil {
		return 0
	}
	others, err := g.approvals.ListOthers(ctx, who)
	if err != nil {
		return 0
	}
	n := 0
	for _, a := range slices.Concat(own, others) {
		if a.State == writeguard.Pending && a.From != "client" && a.MayDecide(who) {
			n++
		}
	}
	plans, err := g.plans.ListFor(ctx, who)
	if err != nil {
		return 0
	}
	for _, p := range plans {
		mine := false
		for i := range p.Plan.Steps {
			mine = mine || p.Progress.Steps[i].State == writeguard.StepOpen && p.Plan.MayDecide(who, i)
		}
		if p.State == writeguard.PlanOpen && mine {
			n++
		}
	}
	return n
}
