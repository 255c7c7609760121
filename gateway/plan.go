package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/mcp-portal/mcp-portal/audit"
	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/codemode"
	"github.com/mcp-portal/mcp-portal/registry"
	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// Under a rule with action: plan a run of code is a dry run: what only looks is
// done, what changes something is collected and left without an answer. When
// the script can do nothing more without such an answer, what was collected is
// a plan: data in the store, which people decide on. Applying it needs no code.
// Then the run goes on by replay with the answers, to its next plan or its end.

// planned is the status of a call that is part of a plan and was not sent.
const planned = "planned"

// collected is why the door did not let a call through: it is part of a plan.
type collected struct{ step writeguard.PlanStep }

func (c *collected) Error() string {
	return fmt.Sprintf("%s on server %s is part of a plan and was not sent", c.step.Tool, c.step.Server)
}

// planning is what a run has collected for its next plan.
type planning struct {
	mu      sync.Mutex
	steps   []writeguard.PlanStep
	looked  map[string]bool // reads of the run so far, by tool and arguments
	reads   int             // that came after a step
	wants   map[int]bool    // reads that want to see what steps have done, by question
	resting bool
}

// toPlan collects a call in code. A direct call is a plan of one step.
func (g *Gateway) toPlan(ctx context.Context, p *passage, t *registry.Tool, call writeguard.Call, d writeguard.Decision, x crossing, ev *audit.Event) (json.RawMessage, error) {
	if p.req.who.Kind == auth.KindService && !d.AskOthers() {
		return nil, &refusal{status: "denied", message: fmt.Sprintf("Refused: %s on server %s is planned and needs a person's decision (%s), and a service token is no person. Nothing was sent. Ask the administrator for a guard rule that names approvers or allows it.", t.Name, t.Server, d.Rule)}
	}
	if err := g.room(ctx, p, d, call); err != nil {
		return nil, err
	}
	step, err := writeguard.StepOf(call, d)
	if err != nil {
		return nil, &refusal{status: "denied", message: fmt.Sprintf("%s on server %s cannot be planned: %v. Nothing was sent.", t.Name, t.Server, err)}
	}
	ev.Decision = string(writeguard.ToPlan)
	if p.collect != nil {
		p.collect(step)
		return nil, &collected{step}
	}
	return g.planCall(ctx, p, t, call, d, step, x, ev)
}

// collect takes a call of the run into its plan.
func (x *run) collect(c codemode.HostCall, before writeguard.Facts, s writeguard.PlanStep) {
	s.Question, s.Seq = c.Question, c.Seq
	s.Before = writeguard.Facts{Calls: before.Calls, ToolCalls: before.ToolCalls}
	x.plan.mu.Lock()
	x.plan.steps = append(x.plan.steps, s)
	x.plan.mu.Unlock()
	x.mu.Lock()
	x.waited = true // people will take their time
	x.mu.Unlock()
}

// collecting reports whether there is something in the plan of the run.
func (x *run) collecting() bool {
	x.plan.mu.Lock()
	defer x.plan.mu.Unlock()
	return len(x.plan.steps) > 0
}

// rests is told by the pool when nothing but answers can make the run go on.
func (x *run) rests(resting bool) {
	x.plan.mu.Lock()
	x.plan.resting = resting
	x.plan.mu.Unlock()
	x.mu.Lock()
	x.signal()
	x.mu.Unlock()
}

// stageOver reports whether the stage is over: there are steps, and nothing but
// what becomes of them can make the run go on.
func (x *run) stageOver() bool {
	list, _, _ := x.waits()
	if len(list)+len(x.signIns()) > 0 {
		return false
	}
	x.plan.mu.Lock()
	defer x.plan.mu.Unlock()
	return x.plan.resting && len(x.plan.steps) > 0
}

// repeats notes what an earlier life of the run has read.
func (p *planning) repeats(r *codemode.Recording) {
	if r == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ev := range r.Events {
		if ev.Kind == codemode.EventCall {
			p.note(lookKey(ev.Name, ev.Data))
		}
	}
}

// note remembers a read and reports whether it was one before.
func (p *planning) note(key string) bool {
	if p.looked == nil {
		p.looked = map[string]bool{}
	}
	was := p.looked[key]
	p.looked[key] = true
	return was
}

func lookKey(tool string, args json.RawMessage) string {
	canonical, err := writeguard.Canonical(args)
	if err != nil {
		canonical = args
	}
	return tool + " " + writeguard.HashArguments(canonical)
}

// keeps tells whether a call is not made in this life of the run: it is in the
// plan already, or wants to know what the plan will have done.
func (x *run) keeps(v *view, c codemode.HostCall, i int) error {
	p := &x.plan
	p.mu.Lock()
	known := slices.ContainsFunc(p.steps, func(s writeguard.PlanStep) bool { return s.Question == c.Question })
	wants := p.wants[c.Question]
	p.mu.Unlock()
	if known {
		x.mu.Lock()
		x.made[i].Status = planned
		x.mu.Unlock()
		return &codemode.Held{StandIn: true}
	}
	if wants {
		return &codemode.Held{}
	}
	x.mu.Lock()
	class := x.made[i].Class
	x.mu.Unlock()
	if class == writeguard.Read && len(codemode.Refs(x.marker(), c.Arguments)) > 0 {
		p.mu.Lock()
		p.want(c.Question)
		p.mu.Unlock()
		return &codemode.Held{}
	}
	if x.looksBack(v, c, i) {
		return &codemode.Held{}
	}
	return nil
}

// marker is that of references in arguments of the run's calls.
func (x *run) marker() string { return codemode.Marker(x.recording.head.Seed) }

// looksBack tells whether a read wants to see what a collected step will have
// done: it asks the same server again what was asked before, or about the very
// thing that a step changes. What it would answer now would be a lie later, so
// it waits for the plan.
func (x *run) looksBack(v *view, c codemode.HostCall, i int) bool {
	x.mu.Lock()
	class := x.made[i].Class
	x.mu.Unlock()
	t, ok := v.tool(c.Tool)
	if !ok || class != writeguard.Read {
		return false
	}
	p := &x.plan
	p.mu.Lock()
	defer p.mu.Unlock()
	again := p.note(lookKey(c.Tool, c.Arguments)) && !c.Known
	if len(p.steps) == 0 {
		return false
	}
	args, err := wire.ParseObject(c.Arguments)
	for _, s := range p.steps {
		if s.Seq > c.Seq || s.Server != t.Server {
			continue
		}
		if again || err == nil && within(args, s.Arguments) {
			p.want(c.Question)
			return true
		}
	}
	p.reads++
	return false
}

// want notes a read that waits for the plan.
func (p *planning) want(question int) {
	if p.wants == nil {
		p.wants = map[int]bool{}
	}
	p.wants[question] = true
}

// within reports whether every member of a is the same in b.
func within(a wire.Object, b json.RawMessage) bool {
	other, err := wire.ParseObject(b)
	if err != nil {
		return false
	}
	for _, f := range a {
		x, errX := writeguard.Canonical(wire.Object{{Key: "v", Value: f.Value}}.Bytes())
		y, errY := writeguard.Canonical(wire.Object{{Key: "v", Value: other.Get(f.Key)}}.Bytes())
		if other.Get(f.Key) == nil || errX != nil || errY != nil || string(x) != string(y) {
			return false
		}
	}
	return true
}

// makePlan ends a stage: what was collected becomes a plan, and the run is let
// go until that was applied.
func (g *Gateway) makePlan(ctx context.Context, r *request, x *run) (*writeguard.Plan, *writeguard.Progress, error) {
	ctx = context.WithoutCancel(ctx)
	x.plan.mu.Lock()
	steps := slices.Clone(x.plan.steps)
	reads, waiting := x.plan.reads, len(x.plan.wants)
	x.plan.mu.Unlock()
	slices.SortFunc(steps, func(a, b writeguard.PlanStep) int { return a.Seq - b.Seq })
	ends := x.stageEnds(waiting)
	steps = x.recording.fit(steps, ends.look)
	plan := &writeguard.Plan{User: r.who.ID, UserName: r.who.Name, Client: r.client, Mode: writeguard.Code, Run: x.id, Stage: x.recording.stage, Reads: reads, Steps: steps, Ends: ends.text(steps)}
	refer(plan, x.marker())
	if !x.recording.whole() {
		plan.Ends += "; what it has read is too much to be kept, so it cannot go on after the plan"
	}
	g.previews(ctx, r, plan)
	if err := g.plans.Make(ctx, plan); err != nil {
		g.dropPlanned(x, "its plan could not be made")
		return nil, nil, fmt.Errorf("The plan of %s could not be made, and nothing of it was sent: %w", plural(len(steps), "call"), err)
	}
	x.recording.plan = plan.ID
	if err := g.keepRecord(ctx, x, "", false); err != nil {
		g.dropPlanned(x, "its plan could not be kept")
		if _, derr := g.plans.Change(ctx, plan.ID, func(_ *writeguard.Plan, p *writeguard.Progress) error {
			p.Over, p.Why = true, "the run could not be kept"
			return nil
		}); derr != nil {
			g.log.Warn("a plan whose run is lost stays until it expires", "plan", plan.ID, "error", derr)
		}
		return nil, nil, fmt.Errorf("The run could not be kept until its plan is decided, and nothing of the plan was sent: %w", err)
	}
	g.runs.release(x)
	g.recordPlan(ctx, r, plan, "plan/made", planned, "")
	g.log.Info("a plan was made", "plan", plan.ID, "run", x.id, "stage", plan.Stage, "steps", len(steps), "user", r.who.ID)
	_, progress, err := g.plans.Get(ctx, plan.ID)
	if err == nil {
		g.announcePlan(plan, progress, nil)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("The plan was made and cannot be read now: %w. Try portal_execute({plan: %q}) in a moment.", err, plan.ID)
	}
	return plan, progress, nil
}

// dropPlanned ends a run whose stage cannot become a plan.
func (g *Gateway) dropPlanned(x *run, why string) {
	x.cancel(errors.New(why))
	<-x.done
	g.runs.forget(x, why)
}

// release lets go of a run that this process has just kept in the store.
func (s *runs) release(x *run) {
	s.mu.Lock()
	delete(s.all, x.id)
	s.mu.Unlock()
	x.cancel(errLetGo)
}

// recordPlan writes the audit line of what happens to a plan as a whole.
func (g *Gateway) recordPlan(ctx context.Context, r *request, plan *writeguard.Plan, method, status, note string) {
	ev := audit.Event{ID: randomID(), Time: g.now(), User: r.who.ID, Email: r.who.Email, Groups: r.who.Groups, Client: r.client, Mode: string(plan.Mode), Run: plan.Run,
		Method: method, Plan: plan.ID, Capability: plural(len(plan.Steps), "step"), Decision: string(writeguard.ToPlan), Status: status, Error: note}
	if r.sess != nil {
		ev.Session = shortHash(r.sess.key)
	}
	g.opt.Audit.Record(context.WithoutCancel(ctx), ev)
}

func (g *Gateway) planURL(id string) string {
	return strings.TrimSuffix(g.baseURL(), "/") + "/plans/" + id
}

// planNext says to an agent what to do with a plan that is not decided.
func (g *Gateway) planNext(plan *writeguard.Plan, mode Mode) string {
	ask := "Ask the user to open"
	if others := plan.Others(); len(others) > 0 {
		ask = "The user cannot decide all of it alone: ask " + strings.Join(others, " and ") + " to open"
	}
	then := fmt.Sprintf("call this tool again with only {\"plan\":%q}", plan.ID)
	if plan.Run == "" && (mode == ModeAll || mode == ModeMinimize) {
		then = "make exactly the same call again"
	}
	return fmt.Sprintf("%s %s and decide. Then %s.", ask, g.planURL(plan.ID), then)
}

// planResult tells the agent of a plan that waits for a decision.
func (g *Gateway) planResult(r *request, plan *writeguard.Plan, progress *writeguard.Progress) json.RawMessage {
	next := g.planNext(plan, r.mode)
	var b strings.Builder
	fmt.Fprintf(&b, "Planned: %s of the code would change something, and nothing of it was sent:\n", plural(len(plan.Steps), "call"))
	for i, s := range plan.Steps {
		if i == 20 {
			fmt.Fprintf(&b, "- and %d more, all on the page\n", len(plan.Steps)-i)
			break
		}
		fmt.Fprintf(&b, "- %s on server %s (%s) %s\n", s.Tool, s.Server, s.Class, bounded(string(shownArguments(plan, i)), 200))
	}
	if plan.Ends != "" {
		fmt.Fprintf(&b, "The plan ends here because %s; the code goes on from there once it was applied.\n", plan.Ends)
	}
	fmt.Fprintf(&b, "%s The plan can be decided until %s; do not run the code again.", next, progress.Expires.UTC().Format("15:04 MST"))
	body := wire.Encode(map[string]any{"status": "paused", "run": plan.Run, "plan": plan.ID, "url": g.planURL(plan.ID), "steps": len(plan.Steps), "next": next})
	return wire.Object{{Key: "content", Value: wire.Encode([]json.RawMessage{textBlock(b.String())})}, {Key: "structuredContent", Value: body}}.Bytes()
}
