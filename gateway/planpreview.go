package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/codemode"
	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

const (
	previewsAtOnce = 8
	previewsFor    = 30 * time.Second
	previewBytes   = 16 << 10 // of what is shown
)

// previews looks at what the steps of a plan are about to change, where the
// configuration says how.
func (g *Gateway) previews(ctx context.Context, r *request, plan *writeguard.Plan) {
	g.eachPreview(ctx, r, plan, func(i int, p *writeguard.Preview) { plan.Steps[i].Preview = p })
}

// eachPreview looks for each step that has a way to; got is called one at a time.
func (g *Gateway) eachPreview(ctx context.Context, r *request, plan *writeguard.Plan, got func(i int, p *writeguard.Preview)) {
	ctx, cancel := context.WithTimeout(ctx, previewsFor)
	defer cancel()
	places := make(chan struct{}, previewsAtOnce)
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, step := range plan.Steps {
		c := r.set.policy.Preview(step.Server, step.Tool)
		if c == nil {
			continue
		}
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			p := g.preview(ctx, r, plan, step, c)
			mu.Lock()
			defer mu.Unlock()
			got(i, p)
		})
	}
	all.Wait()
}

// preview is one look. Only what policy lets through as a read is called.
func (g *Gateway) preview(ctx context.Context, r *request, plan *writeguard.Plan, step writeguard.PlanStep, c *writeguard.Companion) *writeguard.Preview {
	out := &writeguard.Preview{Tool: c.Tool}
	failed := func(why string) *writeguard.Preview {
		out.Reason = bounded(why, 300)
		return out
	}
	if len(step.Refs) > 0 {
		return failed("what it is about is known only when an earlier step was carried out")
	}
	args, err := c.Arguments(map[string]json.RawMessage{"args": step.Arguments})
	if err != nil {
		return failed(err.Error())
	}
	t := r.view.snap.ToolByIdentity(step.Server, c.Tool)
	if t == nil || !r.view.sees(t) {
		return failed("the server has no tool " + c.Tool + " for this user")
	}
	p := &passage{req: r, mode: plan.Mode, run: plan.Run}
	call := p.call(t, args)
	facts := &passage{req: r}
	ev := g.event(facts, crossing{}, 0)
	call.Facts = g.facts(ctx, facts, &ev)
	if d := r.set.policy.Decide(call); d.Action != writeguard.Allow || d.Class != writeguard.Read {
		return failed(fmt.Sprintf("%s is %s under %s, and only reads that are allowed are made for a preview", c.Tool, d.Class, d.Rule))
	}
	result, err := g.callTool(ctx, p, t, withArguments(t, args))
	if err != nil {
		return failed(g.errorText(err))
	}
	if why, isError := codemode.Failure(result); isError {
		return failed(why)
	}
	value, ok := codemode.Plain(result)
	if !ok {
		return failed("what it answered has no value")
	}
	var b bytes.Buffer
	if err := json.Compact(&b, value); err != nil {
		return failed(err.Error())
	}
	sum := sha256.Sum256(b.Bytes())
	out.Hash, out.Value = hex.EncodeToString(sum[:]), b.Bytes()
	if len(out.Value) > previewBytes {
		short, _, _ := codemode.Shape(out.Value, previewBytes/4)
		out.Value, out.Cut = short, true
	}
	return out
}

// changedSince compares what the steps of a plan change with what the reviewer
// saw. A text: something is different, and how.
func (g *Gateway) changedSince(ctx context.Context, r *request, plan *writeguard.Plan, progress *writeguard.Progress) string {
	text := ""
	g.eachPreview(ctx, r, plan, func(i int, now *writeguard.Preview) {
		was := plan.Steps[i].Preview
		if was == nil || was.Hash == "" || was.Hash == now.Hash || progress.Steps[i].State != writeguard.StepApproved || text != "" {
			return
		}
		is := string(now.Value)
		if now.Reason != "" {
			is = now.Reason
		}
		text = fmt.Sprintf("what step %d changes is not what it was when the plan was made: %s gave %s, and gives now %s", i+1, was.Tool, bounded(string(was.Value), 600), bounded(is, 600))
	})
	return text
}

// undoStep takes one step back: by the inverse that the configuration names,
// through the door, on the word of the person at the page.
func (g *Gateway) undoStep(ctx context.Context, r *request, plan *writeguard.Plan, i int) error {
	step := plan.Steps[i]
	c := r.set.policy.Undo(step.Server, step.Tool)
	if c == nil {
		return errors.New("there is no way to take it back")
	}
	values := map[string]json.RawMessage{}
	if _, p, err := g.plans.Get(ctx, plan.ID); err == nil {
		if args, state, _ := g.stepArguments(ctx, plan, p, i); state == "" {
			values["args"] = args
		}
	}
	if p := step.Preview; p != nil && !p.Cut {
		values["before"] = p.Value
	}
	if answer, err := g.plans.Answer(ctx, plan.ID, i); err == nil {
		if v, ok := codemode.Plain(answer); ok {
			values["result"] = v
		}
	}
	args, err := c.Arguments(values)
	if err != nil {
		return err
	}
	t := r.view.snap.ToolByIdentity(step.Server, c.Tool)
	if t == nil || !r.view.sees(t) {
		return fmt.Errorf("the server has no tool %s for this user", c.Tool)
	}
	p := &passage{req: r, mode: plan.Mode, run: plan.Run, step: &appliedStep{plan: plan, i: i, undo: true}}
	p.sending = func(ctx context.Context) error { return g.undoState(ctx, plan, i, writeguard.StepSending, "", "") }
	result, err := g.callTool(ctx, p, t, wire.Object{{Key: "name", Value: wire.Quote(t.Outward)}, {Key: "arguments", Value: args}})
	if err != nil {
		if outcome(ctx, nil, err) == "unknown" {
			return &unknownUndo{err}
		}
		return errors.New(g.errorText(err))
	}
	if why, isError := codemode.Failure(result); isError {
		return errors.New(why)
	}
	return nil
}

// unknownUndo is an undo that may have been carried out.
type unknownUndo struct{ error }

// undoState notes how far the undo of a step is, by compare-and-swap. It is sent
// only from none, or after it failed.
func (g *Gateway) undoState(ctx context.Context, plan *writeguard.Plan, i int, to writeguard.StepState, why, by string) error {
	_, err := g.plans.Change(context.WithoutCancel(ctx), plan.ID, func(_ *writeguard.Plan, p *writeguard.Progress) error {
		s := &p.Steps[i]
		if to == writeguard.StepSending && (s.State != writeguard.StepDone || s.Undo != "" && s.Undo != writeguard.StepFailed) {
			return fmt.Errorf("step %d is not one that can be taken back now", i+1)
		}
		s.Undo, s.UndoError = to, bounded(why, 300)
		if by != "" {
			s.UndoBy = by
		}
		return nil
	})
	return err
}

// undoable are the steps of a plan that can be taken back, last first.
func (g *Gateway) undoable(set *settings, plan *writeguard.Plan, progress *writeguard.Progress) (out []int) {
	if !progress.Over {
		return nil
	}
	for i := len(plan.Steps) - 1; i >= 0; i-- {
		s := progress.Steps[i]
		if s.State == writeguard.StepDone && (s.Undo == "" || s.Undo == writeguard.StepFailed) && set.policy.Undo(plan.Steps[i].Server, plan.Steps[i].Tool) != nil {
			out = append(out, i)
		}
	}
	return out
}

// undo takes back steps of an applied plan in reverse order. All are tried; the
// summary says how many were taken back.
func (g *Gateway) undo(ctx context.Context, r *request, plan *writeguard.Plan, steps []int) (done, failed int) {
	ctx = context.WithoutCancel(ctx)
	for _, i := range steps {
		err := g.undoStep(ctx, g.presently(ctx, r), plan, i)
		state, why := writeguard.StepDone, ""
		var unknown *unknownUndo
		switch {
		case errors.As(err, &unknown):
			state, why = writeguard.StepUnknown, g.errorText(unknown.error)
		case err != nil:
			state, why = writeguard.StepFailed, err.Error()
		}
		if err != nil {
			failed++
		} else {
			done++
		}
		if err := g.undoState(ctx, plan, i, state, why, r.who.Name); err != nil {
			g.log.Warn("how the undo of a step came out could not be noted", "plan", plan.ID, "step", i+1, "error", err)
		}
	}
	g.recordPlan(ctx, r, plan, "plan/undone", map[bool]string{true: "ok", false: "error"}[failed == 0], fmt.Sprintf("%d taken back, %d not", done, failed))
	return done, failed
}
