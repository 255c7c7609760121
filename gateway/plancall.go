package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/mcp-portal/mcp-portal/audit"
	"github.com/mcp-portal/mcp-portal/codemode"
	"github.com/mcp-portal/mcp-portal/registry"
	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// planCall makes the plan of a direct call, or, made again after a person has
// approved it, sends it, once.
func (g *Gateway) planCall(ctx context.Context, p *passage, t *registry.Tool, call writeguard.Call, d writeguard.Decision, step writeguard.PlanStep, x crossing, ev *audit.Event) (json.RawMessage, error) {
	failed := func(err error) error {
		return fmt.Errorf("plan %s on server %s (nothing was sent): %w", call.Tool, call.Server, err)
	}
	plan, progress, err := g.plans.OfCall(ctx, call, d)
	if err != nil {
		return nil, failed(err)
	}
	if plan == nil {
		plan = &writeguard.Plan{User: p.req.who.ID, UserName: p.req.who.Name, Client: p.req.client, Mode: writeguard.Direct, Stage: 1, Steps: []writeguard.PlanStep{step}}
		g.previews(ctx, p.req, plan)
		made := plan
		if plan, err = g.plans.MakeOfCall(ctx, made, call, d); err != nil {
			return nil, failed(err)
		}
		if _, progress, err = g.plans.Get(ctx, plan.ID); err != nil {
			return nil, failed(err)
		}
		if plan == made {
			g.recordPlan(ctx, p.req, plan, "plan/made", planned, "")
			g.announcePlan(plan, progress, nil)
		}
	}
	ev.Plan, ev.Step = plan.ID, 1
	if progress.State(g.now()) == writeguard.PlanOpen {
		// A person may take minutes: what counts then is judged below.
		again, decided, err := g.askPlan(ctx, p.req, p.ask, plan)
		switch {
		case err != nil:
			return nil, failed(err)
		case again != nil:
			return nil, &needPlan{again}
		case decided:
			if _, progress, err = g.plans.Get(ctx, plan.ID); err != nil {
				return nil, failed(err)
			}
		}
	}
	switch st := progress.State(g.now()); st {
	case writeguard.PlanDenied:
		return nil, &refusal{status: "denied", message: fmt.Sprintf("Denied: %s said no to %s on server %s. Nothing was changed. Do not try the same call again; ask the user how to go on.%s", writeguard.Visible(bounded(progress.Steps[0].ByName, 100)), call.Tool, call.Server, noteSentence(progress.Steps[0].Note))}
	case writeguard.PlanApplying:
		if !g.applying.has(plan.ID) && !g.appliedElsewhere(ctx, plan.ID) {
			break // the process that was at it has died
		}
		return nil, &refusal{status: "pending", message: fmt.Sprintf("%s on server %s is being sent for another request, as plan %s. It is not sent twice; look at what it has done before you call it again.", call.Tool, call.Server, plan.ID)}
	case writeguard.PlanOpen:
		return nil, &refusal{status: "pending", message: fmt.Sprintf("Planned: %s on server %s is %s and was not run. %s The plan can be decided until %s.",
			call.Tool, call.Server, describeClass(d.Class), g.planNext(plan, p.req.mode), progress.Expires.UTC().Format("15:04 MST"))}
	}
	if d, err = g.stillHolds(ctx, p, t, call, d, func(now *writeguard.Terms) bool { return plan.SameTerms(0, now) }); err != nil {
		return nil, err
	}
	if !g.applying.begin(plan.ID) {
		return nil, failed(fmt.Errorf("%w: plan %s is being applied for another request", writeguard.ErrUnusable, plan.ID))
	}
	defer g.applying.end(plan.ID)
	attempt := randomID()
	if progress, err = g.plans.Change(ctx, plan.ID, func(_ *writeguard.Plan, now *writeguard.Progress) error {
		if now.Attempt != progress.Attempt {
			return fmt.Errorf("%w: another request was faster", writeguard.ErrUnusable)
		}
		return g.takeOver(now, attempt)
	}); err != nil {
		return nil, failed(err)
	}
	if progress.Steps[0].State != writeguard.StepApproved {
		if err := g.planOver(ctx, plan, attempt); err != nil {
			return nil, failed(err)
		}
		return g.afterCall(ctx, p.req, plan, progress), nil
	}
	q := *p
	q.step = &appliedStep{plan: plan}
	q.sending = func(ctx context.Context) error { return g.stepSending(ctx, plan, 0, attempt) }
	x.params = approvedParams(x.params, taskSupport(t.Raw))
	var result json.RawMessage
	if err = g.countedCall(ctx, p, d, call); err == nil {
		result, err = g.release(ctx, g.afterWait(ctx, &q), x, d.Labels, ev)
	}
	state, why := stepOutcome(ctx, g, result, err)
	if err == nil {
		g.keepStepAnswer(ctx, plan, 0, result)
	}
	if eerr := g.stepEnded(ctx, plan, 0, state, why); eerr != nil {
		g.log.Warn("what became of a planned call could not be noted", "plan", plan.ID, "error", eerr)
	}
	if eerr := g.planOver(ctx, plan, attempt); eerr != nil {
		g.log.Warn("what became of a planned call could not be noted", "plan", plan.ID, "error", eerr)
	}
	return result, err
}

func noteSentence(note string) string {
	if note == "" {
		return ""
	}
	return " Their reason: " + bounded(note, 300) + "."
}

// stepOutcome is what became of a step by what its call gave.
func stepOutcome(ctx context.Context, g *Gateway, result json.RawMessage, err error) (writeguard.StepState, string) {
	switch what := outcome(ctx, result, err); {
	case what == "tool_error":
		why, _ := codemode.Failure(result)
		return writeguard.StepFailed, why
	case err == nil:
		return writeguard.StepDone, ""
	case what == "unknown" || what == "cancelled":
		return writeguard.StepUnknown, g.errorText(err)
	}
	return writeguard.StepFailed, g.errorText(err)
}

func (g *Gateway) keepStepAnswer(ctx context.Context, plan *writeguard.Plan, i int, result json.RawMessage) {
	if err := g.plans.KeepAnswer(context.WithoutCancel(ctx), plan.ID, i, result); err != nil {
		g.log.Warn("the answer of a step of a plan could not be kept", "plan", plan.ID, "step", i+1, "error", err)
	}
}

// planOver notes that applying a plan has ended.
func (g *Gateway) planOver(ctx context.Context, plan *writeguard.Plan, attempt string) error {
	_, err := g.plans.Change(context.WithoutCancel(ctx), plan.ID, func(_ *writeguard.Plan, p *writeguard.Progress) error {
		if p.Attempt != attempt {
			return errPlanTaken
		}
		p.Over = true
		for i := range p.Steps {
			if p.Steps[i].State == writeguard.StepApproved {
				p.Steps[i].State, p.Steps[i].Error = writeguard.StepNotSent, "an earlier step was not carried out"
			}
		}
		return nil
	})
	return err
}

// afterCall answers for the plan of a direct call with its result.
func (g *Gateway) afterCall(ctx context.Context, r *request, plan *writeguard.Plan, progress *writeguard.Progress) json.RawMessage {
	step, s := plan.Steps[0], progress.Steps[0]
	what := fmt.Sprintf("%s on server %s", step.Tool, step.Server)
	switch s.State {
	case writeguard.StepDone, writeguard.StepFailed:
		answer, err := g.plans.Answer(ctx, plan.ID, 0)
		if err == nil {
			g.readStep(ctx, r, step)
			if r.whole() {
				return answer
			}
			return g.toolResult(ctx, r, answer)
		}
		if s.State == writeguard.StepFailed {
			return toolError(fmt.Sprintf("%s was not carried out: %s", what, s.Error))
		}
		if !errors.Is(err, writeguard.ErrNotFound) {
			g.log.Warn("the answer of a planned call could not be read", "plan", plan.ID, "error", err)
		}
		return toolError(what + " was carried out, but its result is not there any more. It was not sent again; look at what it has changed.")
	case writeguard.StepRemoved:
		return toolError(fmt.Sprintf("Denied: %s was removed from its plan and was not sent.%s Do not try the same call again; ask the user how to go on.", what, noteSentence(s.Note)))
	case writeguard.StepUnknown:
		return toolError(what + " may have been carried out: the portal cannot tell (" + s.Error + "). It was not sent again; look at what it has changed. The user can say on " + g.planURL(plan.ID) + " whether it happened.")
	}
	return toolError(fmt.Sprintf("%s was not sent: %s", what, s.Error))
}

// withArguments are the parameters of a call of a tool.
func withArguments(t *registry.Tool, args json.RawMessage) wire.Object {
	return wire.Object{{Key: "name", Value: wire.Quote(t.Outward)}, {Key: "arguments", Value: args}}
}
