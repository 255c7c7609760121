package gateway

import (
	"context"
	"time"

	"github.com/mcp-portal/mcp-portal/auth"
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
	calls, err := g.approvals.CountFor(ctx, who)
	if err != nil {
		return 0
	}
	plans, err := g.plans.CountFor(ctx, who)
	if err != nil {
		return 0
	}
	return calls + plans
}
