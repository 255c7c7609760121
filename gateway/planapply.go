package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/mcp-portal/mcp-portal/codemode"
	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// A plan is applied by one process at a time: the attempt in its progress says
// by which, and each step is noted as being sent, by compare-and-swap, before it
// is. A process that finds another attempt there sends nothing more. What was
// being sent when a process died has an unknown outcome; it is not repeated, and
// what comes after it is not sent.

// applying are the plans that this process applies now.
type applying struct {
	mu  sync.Mutex
	all map[string]bool
}

func newApplying(ctx context.Context, g *Gateway) *applying {
	a := &applying{all: map[string]bool{}}
	// Others ask before they take a plan over from a process that may be dead.
	g.passing.serve(ctx, "plan", func(id string, _ json.RawMessage) server {
		if !a.has(id) {
			return nil
		}
		return func(context.Context, func(json.RawMessage)) json.RawMessage { return json.RawMessage(`true`) }
	})
	return a
}

func (a *applying) has(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all[id]
}

// begin reports false if the plan is being applied here already.
func (a *applying) begin(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all[id] {
		return false
	}
	a.all[id] = true
	return true
}

func (a *applying) end(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.all, id)
}

// appliedStep is a step of a plan on its way through the door.
type appliedStep struct {
	plan *writeguard.Plan
	i    int
	undo bool // its inverse, on the word of a person who may decide it
}

func (s *appliedStep) planID() string {
	if s == nil {
		return ""
	}
	return s.plan.ID
}

func (s *appliedStep) number() int {
	if s == nil {
		return 0
	}
	return s.i + 1
}

// asReviewed reports whether the step is to be sent with exactly the arguments
// that a person read: all but those that take something from earlier answers.
func (s *appliedStep) asReviewed() bool {
	return s != nil && !s.undo && len(s.plan.Steps[s.i].Refs) == 0
}

// covers says why the decision on a step does not let it through any more.
func (s *appliedStep) covers(p *passage, d writeguard.Decision) error {
	step := s.plan.Steps[s.i]
	if s.undo {
		if !d.Terms.Answerable(s.plan.User, p.req.who) || !s.plan.MayDecide(p.req.who, s.i) {
			return &refusal{status: "denied", message: "Refused: others than the user decide on this. Nothing was sent."}
		}
		return nil
	}
	if s.plan.User != p.req.who.ID || !s.plan.SameTerms(s.i, d.Terms) {
		return &refusal{status: "denied", message: fmt.Sprintf("Refused: the administrator changed who decides on %s on server %s after the plan was made. Nothing was sent. Make a new plan to ask those who may.", step.Tool, step.Server)}
	}
	return nil
}

var (
	errPlanTaken = errors.New("another process of the portal goes on with the plan; nothing more was sent here")
	errStepState = errors.New("the step is not one that may be sent")
	errFaster    = errors.New("another request was faster to apply the plan")
)

// sending notes that a step is about to be sent. An error means that it must not.
func (g *Gateway) stepSending(ctx context.Context, plan *writeguard.Plan, i int, attempt string) error {
	_, err := g.plans.Change(context.WithoutCancel(ctx), plan.ID, func(_ *writeguard.Plan, p *writeguard.Progress) error {
		switch {
		case p.Attempt != attempt || p.Over:
			return errPlanTaken
		case p.Steps[i].State != writeguard.StepApproved:
			return fmt.Errorf("%w: it is %s", errStepState, p.Steps[i].State)
		}
		p.Steps[i].State, p.Steps[i].Sent = writeguard.StepSending, g.now()
		return nil
	})
	if err != nil {
		return fmt.Errorf("step %d was not sent: %w", i+1, err)
	}
	return nil
}

// stepEnded notes what became of a step. Should another process have taken the
// plan over meanwhile and called its outcome unknown, it is known now.
func (g *Gateway) stepEnded(ctx context.Context, plan *writeguard.Plan, i int, state writeguard.StepState, why string) error {
	_, err := g.plans.Change(context.WithoutCancel(ctx), plan.ID, func(_ *writeguard.Plan, p *writeguard.Progress) error {
		s := &p.Steps[i]
		switch s.State {
		case writeguard.StepSending, writeguard.StepUnknown, writeguard.StepApproved:
			s.State, s.Error, s.Ended = state, bounded(why, 500), g.now()
		}
		return nil
	})
	return err
}

// applyPlan is portal_execute {plan}: it applies what was approved and has not
// been sent, and then goes on with the run.
func (g *Gateway) applyPlan(ctx context.Context, r *request, id string) (json.RawMessage, *wire.Error) {
	plan, progress, err := g.plans.Get(ctx, id)
	switch {
	case err == nil && plan.OwnedBy(r.who):
	case err == nil || errors.Is(err, writeguard.ErrNotFound):
		return toolError(fmt.Sprintf("There is no plan %q. A plan is made where policy wants one: the answer of a run then names it. Plans are kept for a day; check what has been done before you run code again.", bounded(id, 60))), nil
	default:
		return toolError("The plan could not be read, and nothing was sent: " + err.Error() + ". Try again shortly."), nil
	}
	if plan.Run != "" {
		g.inherit(ctx, r.grant, runReads(plan.Run))
	}
	switch st := progress.State(g.now()); st {
	case writeguard.PlanOpen:
		return g.planOpen(ctx, r, plan, progress)
	case writeguard.PlanExpired:
		return toolError(fmt.Sprintf("Plan %s has expired: nothing of it was sent. Run the code again to make a new plan of what is there now.", plan.ID)), nil
	case writeguard.PlanReady, writeguard.PlanApplying:
		// Asked before this process counts as one that applies it.
		if st == writeguard.PlanApplying && !g.applying.has(plan.ID) && g.appliedElsewhere(ctx, plan.ID) {
			return toolError(fmt.Sprintf("Plan %s is being applied just now by another process of the portal. Call this tool again with only {\"plan\":%q} in a moment to get its report.", plan.ID, plan.ID)), nil
		}
		if !g.applying.begin(plan.ID) {
			return toolError(fmt.Sprintf("Plan %s is being applied just now for another request. Call this tool again with only {\"plan\":%q} in a moment to get its report.", plan.ID, plan.ID)), nil
		}
		defer g.applying.end(plan.ID)
		if progress, err = g.apply(ctx, r, plan, progress.Attempt); errors.Is(err, errFaster) {
			return toolError(fmt.Sprintf("Plan %s is being applied just now by another process of the portal. Call this tool again with only {\"plan\":%q} in a moment to get its report.", plan.ID, plan.ID)), nil
		} else if err != nil {
			return toolError(fmt.Sprintf("Plan %s could not be applied to its end: %v. %sCall this tool again with only {\"plan\":%q} to go on; no step is sent twice.", plan.ID, err, g.stepsSentence(plan), plan.ID)), nil
		}
	}
	return g.afterPlan(ctx, r, plan, progress)
}

// appliedElsewhere asks the other replicas whether one of them applies a plan.
func (g *Gateway) appliedElsewhere(ctx context.Context, id string) bool {
	if g.opt.Store.Status().Backend == "file" {
		return false // one process, and it does not
	}
	_, err := g.passing.on(ctx, "plan", id, json.RawMessage("null"), nil)
	return err == nil || !errors.Is(err, errNobody)
}

// apply sends the approved steps in order, until one fails. before is the
// attempt that was there when the caller looked whether somebody is at it: if
// there is another by now, that one lives, and errFaster says so.
func (g *Gateway) apply(ctx context.Context, r *request, plan *writeguard.Plan, before string) (*writeguard.Progress, error) {
	attempt := randomID()
	progress, err := g.plans.Change(ctx, plan.ID, func(_ *writeguard.Plan, p *writeguard.Progress) error {
		if p.Attempt != before {
			return errFaster
		}
		return g.takeOver(p, attempt)
	})
	if err != nil {
		return nil, err
	}
	if progress.Over {
		g.recordPlan(ctx, r, plan, "plan/applied", string(progress.State(g.now())), "it had expired")
		return progress, nil
	}
	if n := progress.Count(); n[writeguard.StepDone]+n[writeguard.StepFailed]+n[writeguard.StepUnknown] == 0 {
		if why := g.changedSince(ctx, r, plan, progress); why != "" {
			return g.refusePlan(ctx, r, plan, attempt, why)
		}
	}
	g.recordPlan(ctx, r, plan, "plan/applying", "ok", "")
	for i := range plan.Steps {
		if n := progress.Count(); n[writeguard.StepFailed]+n[writeguard.StepUnknown] > 0 {
			break
		}
		if progress.Steps[i].State != writeguard.StepApproved {
			continue
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("the client went away before step %d", i+1)
		}
		if isClosed(g.stopped) {
			return nil, fmt.Errorf("the portal is shutting down, before step %d", i+1)
		}
		// What the administrator changed while earlier steps ran counts.
		if err := g.applyStep(ctx, g.presently(ctx, r), plan, progress, i, attempt); err != nil {
			return nil, err
		}
		if _, progress, err = g.plans.Get(context.WithoutCancel(ctx), plan.ID); err != nil {
			return nil, err
		}
	}
	if err := g.planOver(ctx, plan, attempt); err != nil {
		return nil, err
	}
	if _, progress, err = g.plans.Get(context.WithoutCancel(ctx), plan.ID); err != nil {
		return nil, err
	}
	g.recordPlan(ctx, r, plan, "plan/applied", string(progress.State(g.now())), "")
	return progress, nil
}

// takeOver makes an attempt the one that applies a plan. What the process before
// it was sending has an unknown outcome. A plan that was begun and left is gone
// on with only as long as it could have been begun.
func (g *Gateway) takeOver(p *writeguard.Progress, attempt string) error {
	st := p.State(g.now())
	if st != writeguard.PlanReady && st != writeguard.PlanApplying {
		return fmt.Errorf("it is %s", st)
	}
	p.Attempt = attempt
	expired := !g.now().Before(p.Expires)
	for i := range p.Steps {
		switch s := &p.Steps[i]; {
		case s.State == writeguard.StepSending:
			s.State, s.Error, s.Ended = writeguard.StepUnknown, "the portal process ended while it was under way", g.now()
		case expired && s.State == writeguard.StepApproved:
			s.State, s.Error = writeguard.StepNotSent, "the plan had expired before it came to this step"
		}
	}
	if expired {
		p.Over, p.Why = true, "its time was over when it was to be gone on with"
	}
	return nil
}

// refusePlan ends a plan of which nothing was sent.
func (g *Gateway) refusePlan(ctx context.Context, r *request, plan *writeguard.Plan, attempt, why string) (*writeguard.Progress, error) {
	g.recordPlan(ctx, r, plan, "plan/refused", "denied", "the preview of a step differs")
	return g.plans.Change(context.WithoutCancel(ctx), plan.ID, func(_ *writeguard.Plan, p *writeguard.Progress) error {
		if p.Attempt != attempt {
			return errPlanTaken
		}
		p.Over, p.Why = true, why
		for i := range p.Steps {
			if p.Steps[i].State == writeguard.StepApproved {
				p.Steps[i].State, p.Steps[i].Error = writeguard.StepNotSent, "the plan was refused"
			}
		}
		return nil
	})
}

// applyStep sends one step through the door and notes what became of it. An
// error means that this process must not go on.
func (g *Gateway) applyStep(ctx context.Context, r *request, plan *writeguard.Plan, progress *writeguard.Progress, i int, attempt string) error {
	step := plan.Steps[i]
	// A client that goes away does not leave a half sent step.
	ctx = context.WithoutCancel(ctx)
	t := r.view.snap.ToolByIdentity(step.Server, step.Tool)
	if t == nil || !r.view.sees(t) {
		return g.stepEnded(ctx, plan, i, writeguard.StepFailed, "the tool is not there any more, or not for this user")
	}
	args, state, why := g.stepArguments(ctx, plan, progress, i)
	if state != "" {
		return g.stepEnded(ctx, plan, i, state, why)
	}
	var taken error
	p := &passage{req: r, mode: plan.Mode, run: plan.Run, before: step.Before, step: &appliedStep{plan: plan, i: i}, sending: func(ctx context.Context) error {
		taken = g.stepSending(ctx, plan, i, attempt)
		return taken
	}}
	result, err := g.callTool(ctx, p, t, withArguments(t, args))
	if taken != nil {
		return taken
	}
	state, why = stepOutcome(ctx, g, result, err)
	if err == nil {
		g.keepStepAnswer(ctx, plan, i, result)
	}
	return g.stepEnded(ctx, plan, i, state, why)
}

// stepArguments are those of a step with the answers of earlier steps in their
// places. A state: the step is not sent, and why.
func (g *Gateway) stepArguments(ctx context.Context, plan *writeguard.Plan, progress *writeguard.Progress, i int) (args json.RawMessage, state writeguard.StepState, why string) {
	step := plan.Steps[i]
	if len(step.Refs) == 0 {
		return step.Arguments, "", ""
	}
	by := map[int]int{}
	for _, ref := range step.Refs {
		if ref.Step < 0 || ref.Step >= i {
			return nil, writeguard.StepFailed, "it builds on an answer that is not part of the plan"
		}
		if s := progress.Steps[ref.Step].State; s != writeguard.StepDone {
			return nil, writeguard.StepNotSent, fmt.Sprintf("it builds on step %d, which is %s", ref.Step+1, strings.ReplaceAll(string(s), "_", " "))
		}
		if progress.Steps[ref.Step].Settled == writeguard.SettledDone {
			return nil, writeguard.StepNotSent, fmt.Sprintf("it takes something from the answer of step %d, which is lost", ref.Step+1)
		}
		by[ref.Question] = ref.Step
	}
	args, err := codemode.Resolve(plan.Marker, step.Arguments, func(ref codemode.Ref) (json.RawMessage, error) {
		k, ok := by[ref.Question]
		if !ok {
			return nil, errors.New("it builds on an answer that is not part of the plan")
		}
		answer, err := g.plans.Answer(ctx, plan.ID, k)
		if err != nil {
			return nil, err
		}
		v, err := codemode.Follow(answer, ref)
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", k+1, err)
		}
		return v, nil
	})
	if err != nil {
		return nil, writeguard.StepFailed, "its arguments could not be completed: " + err.Error()
	}
	return args, "", ""
}
