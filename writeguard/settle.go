package writeguard

import (
	"context"
	"fmt"
	"time"

	"github.com/mcp-portal/mcp-portal/auth"
)

// What a person found out about a step whose outcome the portal does not know.
const (
	SettledDone = "happened"     // it was carried out; its answer is lost
	SettledNot  = "not_happened" // it was not: it may be sent once more
)

// MaySettle reports whether the principal may say what became of a step whose
// outcome is unknown: who may decide on the step.
func (p *Plan) MaySettle(who *auth.Principal, g *Progress, i int) bool {
	return g.Over && i >= 0 && i < len(g.Steps) && g.Steps[i].State == StepUnknown && p.asApproval(i).MayDecide(who)
}

// Settle records what a person says became of a step whose outcome is unknown,
// so that the plan can be gone on with: what happened is done, what did not is
// approved again, and so is what was not sent because the plan stopped there. Of
// answers that race one counts. Errors: ErrNotFound, ErrNotYours, ErrClosed, or
// the store's.
func (p *Plans) Settle(ctx context.Context, id string, step int, happened bool, by *auth.Principal) (*Progress, error) {
	g, err := p.Change(ctx, id, func(plan *Plan, g *Progress) error {
		switch {
		case step < 0 || step >= len(g.Steps):
			return fmt.Errorf("%w: it has no step %d", ErrNotFound, step+1)
		case !g.Over || g.Steps[step].State != StepUnknown:
			return fmt.Errorf("%w: the outcome of step %d is not open", ErrClosed, step+1)
		case !plan.MaySettle(by, g, step):
			return ErrNotYours
		}
		now, s := p.now(), &g.Steps[step]
		s.SettledBy, s.Error = by.Name, ""
		if s.Settled = SettledNot; happened {
			s.Settled, s.State = SettledDone, StepDone
		} else {
			s.State, s.Sent, s.Ended = StepApproved, time.Time{}, time.Time{}
		}
		for i := range g.Steps {
			// None of these was sent. Those that build on what did not happen
			// are found again.
			if g.Steps[i].State == StepNotSent {
				g.Steps[i].State, g.Steps[i].Error = StepApproved, ""
			}
		}
		g.Over, g.Why, g.Attempt = false, "", ""
		g.Expires = now.Add(time.Duration(p.expires.Load()))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("settle step %d of plan %s: %w", step+1, Visible(id), err)
	}
	p.log.Info("the outcome of a step was settled", "plan", id, "step", step+1, "happened", happened, "by", by.ID)
	return g, nil
}

// Unsettled is the step whose outcome stopped the plan and can be settled by a
// person, or -1: nothing failed, and nothing but that keeps the rest from going
// on.
func (g *Progress) Unsettled() int {
	at := -1
	for i, s := range g.Steps {
		switch s.State {
		case StepFailed:
			return -1
		case StepUnknown:
			at = i
		}
	}
	if !g.Over || g.Why != "" {
		return -1
	}
	return at
}
