package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mcp-portal/mcp-portal/codemode"
	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// planOf ends the stage of a run that rests, and answers with its plan.
func (g *Gateway) planOf(ctx context.Context, r *request, x *run) (json.RawMessage, *wire.Error) {
	plan, progress, err := g.makePlan(ctx, r, x)
	if err != nil {
		return toolError(err.Error() + x.madeSentence()), nil
	}
	return g.planOpen(ctx, r, plan, progress)
}

// planOpen answers for a plan that is not decided: by asking the user in the
// client, where that is possible, or with the address of its page.
func (g *Gateway) planOpen(ctx context.Context, r *request, plan *writeguard.Plan, progress *writeguard.Progress) (json.RawMessage, *wire.Error) {
	again, decided, err := g.askPlan(ctx, r, r.ask, plan)
	switch {
	case err != nil:
		return toolError(err.Error()), nil
	case again != nil:
		return again, nil
	case decided:
		return g.applyPlan(ctx, g.presently(ctx, r), plan.ID)
	}
	return g.planResult(r, plan, progress), nil
}

// planOfRun is the plan that a run of the user waits for; empty: none.
func (g *Gateway) planOfRun(ctx context.Context, r *request, id string) string {
	raw, found, err := g.opt.Store.Get(ctx, "run:"+id)
	var rec runRecord
	if err != nil || !found || json.Unmarshal(raw, &rec) != nil || rec.User != r.who.ID || rec.Ended != "" {
		return ""
	}
	return rec.Plan
}

// afterPlan reports what became of a plan that was decided, and goes on with its
// run, or says why that is not possible.
func (g *Gateway) afterPlan(ctx context.Context, r *request, plan *writeguard.Plan, progress *writeguard.Progress) (json.RawMessage, *wire.Error) {
	report := planReport(plan, progress)
	if plan.Run == "" {
		return g.afterCall(ctx, r, plan, progress), nil
	}
	if i := progress.Unsettled(); i >= 0 {
		return withReport(toolError(fmt.Sprintf("%s It stopped at step %d, of which the portal cannot tell whether it was carried out. It is not sent again by itself. Ask the user to look, to open %s and to say there whether it happened; then call this tool again with only {\"plan\":%q}: the rest goes on from there. Do not run the code again meanwhile.",
			firstLine(report), i+1, g.planURL(plan.ID), plan.ID)), plan, progress, report), nil
	}
	if progress.State(g.now()) == writeguard.PlanStopped {
		g.endPlanned(ctx, plan, progress)
		return withReport(toolError(firstLine(report)+" It stopped there, and the code was not gone on with. Tell the user what was done; to do the rest, run the code again: it makes a new plan of what is there now."), plan, progress, report), nil
	}
	x, err := g.goOnAfterPlan(ctx, r, plan, progress)
	if err != nil {
		return withReport(toolError(err.Error()), plan, progress, report), nil
	}
	if x == nil { // it went on before
		result, e := g.resume(ctx, r, plan.Run)
		if e != nil {
			return nil, e
		}
		return withReport(result, plan, progress, report), nil
	}
	result, e := g.attend(ctx, r, x)
	if e != nil {
		return nil, e
	}
	return withReport(result, plan, progress, report), nil
}

// planReport says of each step what became of it.
func planReport(plan *writeguard.Plan, progress *writeguard.Progress) string {
	n := progress.Count()
	var parts []string
	for _, x := range []struct {
		state writeguard.StepState
		what  string
	}{{writeguard.StepDone, "done"}, {writeguard.StepRemoved, "removed by the reviewer"}, {writeguard.StepFailed, "failed"},
		{writeguard.StepUnknown, "with unknown outcome"}, {writeguard.StepNotSent, "not sent"}} {
		if n[x.state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[x.state], x.what))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Plan %s: %s: %s.", plan.ID, plural(len(plan.Steps), "step"), strings.Join(parts, ", "))
	said, left := 0, 0
	if progress.Why != "" {
		fmt.Fprintf(&b, " %s, since %s.", map[bool]string{true: "Stopped", false: "Refused"}[n[writeguard.StepDone] > 0], progress.Why)
	}
	tail := notSentTail(progress)
	for i, s := range progress.Steps[:tail] {
		if said++; said > reportedSteps && s.State != writeguard.StepFailed && s.State != writeguard.StepUnknown {
			left++
			continue
		}
		step := plan.Steps[i]
		fmt.Fprintf(&b, "\n%d. %s on %s %s: %s", i+1, step.Tool, step.Server, bounded(string(shownArguments(plan, i)), 120), s.State)
		if s.State == writeguard.StepUnknown {
			b.WriteString(" outcome: it may have been carried out, check before doing it again")
		}
		if s.Settled == writeguard.SettledDone {
			fmt.Fprintf(&b, ", as %s says; its answer is lost", writeguard.Visible(bounded(s.SettledBy, 100)))
		}
		why := s.Error
		if s.State == writeguard.StepRemoved {
			why = s.Note
		}
		if why != "" {
			fmt.Fprintf(&b, " (%s)", bounded(why, 200))
		}
	}
	if left > 0 {
		fmt.Fprintf(&b, "\nand %d more, all on the page of the plan", left)
	}
	if tail < len(progress.Steps) {
		fmt.Fprintf(&b, "\n%d to %d: not sent (%s)", tail+1, len(progress.Steps), bounded(progress.Steps[tail].Error, 200))
	}
	return b.String()
}

// notSentTail is from where on no step was sent for one and the same reason. A
// few are named one by one.
func notSentTail(progress *writeguard.Progress) int {
	const few = 3
	n := len(progress.Steps)
	i := n
	for i > 0 && progress.Steps[i-1].State == writeguard.StepNotSent && progress.Steps[i-1].Error == progress.Steps[n-1].Error {
		i--
	}
	if n-i <= few {
		return n
	}
	return i
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// reportedSteps is how many steps the text of a report names, besides those that
// went wrong.
const reportedSteps = 50

// listedSteps is how many the structured content of a report lists, likewise.
const listedSteps = 150

// shownArguments are those of a step as people and agents read them: with words
// where answers of earlier steps will stand.
func shownArguments(plan *writeguard.Plan, i int) json.RawMessage {
	step := plan.Steps[i]
	at := map[int]int{}
	for _, ref := range step.Refs {
		at[ref.Question] = ref.Step + 1
	}
	args, err := codemode.Resolve(plan.Marker, step.Arguments, func(ref codemode.Ref) (json.RawMessage, error) {
		text := fmt.Sprintf("⟨answer of step %d⟩", at[ref.Question])
		for _, p := range ref.Path {
			text += "." + p
		}
		return wire.Quote(text), nil
	})
	if err != nil || len(step.Refs) == 0 {
		return step.Arguments
	}
	return args
}

// withReport puts the report of a plan before what came after it.
func withReport(result json.RawMessage, plan *writeguard.Plan, progress *writeguard.Progress, report string) json.RawMessage {
	o, err := wire.ParseObject(result)
	if err != nil {
		return result
	}
	if t := o.String("resultType"); t != "" && t != "complete" {
		return result // a question to the client; the report comes with its answer
	}
	var content []json.RawMessage
	_ = json.Unmarshal(o.Get("content"), &content) // our own, a list
	o = o.Set("content", wire.Encode(append(content, textBlock(report))))
	type step struct {
		Tool      string               `json:"tool"`
		Server    string               `json:"server"`
		Arguments string               `json:"arguments"`
		State     writeguard.StepState `json:"state"`
		Error     string               `json:"error,omitempty"`
	}
	steps, n := []step{}, progress.Count()
	tail := len(progress.Steps)
	if tail > listedSteps {
		tail = notSentTail(progress)
	}
	for i, s := range progress.Steps[:tail] {
		if i >= listedSteps && s.State != writeguard.StepFailed && s.State != writeguard.StepUnknown {
			continue
		}
		steps = append(steps, step{plan.Steps[i].Tool, plan.Steps[i].Server, bounded(string(shownArguments(plan, i)), 200), s.State, s.Error})
	}
	said, err := wire.ParseObject(o.Get("structuredContent"))
	if err != nil {
		said = wire.Object{{Key: "status", Value: json.RawMessage(`"error"`)}}
	}
	return o.Set("structuredContent", said.Set("applied", wire.Encode(map[string]any{"plan": plan.ID, "steps": steps, "counts": n})).Bytes()).Bytes()
}

// stepsSentence says how many steps of a plan were sent by now.
func (g *Gateway) stepsSentence(plan *writeguard.Plan) string {
	_, progress, err := g.plans.Get(context.Background(), plan.ID)
	if err != nil {
		return ""
	}
	n := progress.Count()
	return fmt.Sprintf("%d of its %s are done, %d have an unknown outcome. ", n[writeguard.StepDone], plural(len(plan.Steps), "step"), n[writeguard.StepUnknown]+n[writeguard.StepSending])
}

// endPlanned notes in the record of a run that it does not go on after its plan.
func (g *Gateway) endPlanned(ctx context.Context, plan *writeguard.Plan, progress *writeguard.Progress) {
	raw, found, err := g.opt.Store.Get(ctx, "run:"+plan.Run)
	var rec runRecord
	if err != nil || !found || json.Unmarshal(raw, &rec) != nil || rec.Plan != plan.ID {
		return
	}
	rec.Ended, rec.Plan = "its plan "+plan.ID+" stopped at a step that was not carried out", ""
	rec.Made = madeBy(rec.Made, plan, progress)
	if _, err := g.opt.Store.Swap(context.WithoutCancel(ctx), "run:"+plan.Run, raw, wire.Encode(rec), keptFor); err != nil {
		g.log.Warn("that a run is over could not be noted in the store", "run", plan.Run, "error", err)
	}
}

// madeBy puts what became of steps into the list of a run's calls.
func madeBy(made []madeCall, plan *writeguard.Plan, progress *writeguard.Progress) []madeCall {
	for i, s := range progress.Steps {
		k := plan.Steps[i].Seq - 1
		if k < 0 || k >= len(made) {
			continue
		}
		switch s.State {
		case writeguard.StepDone:
			made[k].Status = "ok"
		case writeguard.StepFailed:
			made[k].Status = "tool_error"
		case writeguard.StepUnknown, writeguard.StepSending:
			made[k].Status = "unknown"
		default:
			made[k].Status = notSent
		}
	}
	return made
}

// goOnAfterPlan lets the run of a plan go on with what became of its steps. Nil
// without an error: it did so before.
func (g *Gateway) goOnAfterPlan(ctx context.Context, r *request, plan *writeguard.Plan, progress *writeguard.Progress) (*run, error) {
	id := plan.Run
	cannot := func(why string) error {
		return fmt.Errorf("The plan was applied, but its code cannot go on: %s. Go on from the report of the steps; do not run the code again", why)
	}
	raw, found, err := g.opt.Store.Get(ctx, "run:"+id)
	var rec runRecord
	switch {
	case err != nil:
		return nil, fmt.Errorf("The plan was applied; its code could not be gone on with now, the store cannot be reached. Call this tool again with only {\"plan\":%q} shortly", plan.ID)
	case !found || json.Unmarshal(raw, &rec) != nil || rec.User != r.who.ID:
		return nil, cannot("the store does not have its recording any more")
	case rec.Plan != plan.ID:
		return nil, nil
	case rec.Chunks == 0:
		return nil, cannot("what it had read was too much to be kept")
	}
	head, events, err := g.recorded(ctx, id, rec)
	if err != nil {
		return nil, cannot("its recording cannot be read (" + bounded(err.Error(), 200) + ")")
	}
	if head.Version != g.runVersion() {
		return nil, cannot("the portal was replaced by another version meanwhile")
	}
	events, loose, err := g.withAnswers(ctx, r, plan, progress, events)
	if err != nil {
		return nil, cannot(err.Error())
	}
	rec.Plan, rec.Life, rec.Epoch, rec.Held, rec.Chunks, rec.Stage = "", rec.Life+1, rec.Epoch+1, true, 2, plan.Stage
	rec.Made = madeBy(rec.Made, plan, progress)
	chunks := []any{head, events}
	if loose { // it is recorded anew from its beginning
		chunks, rec.Chunks = nil, 0
		rec.Before, rec.Made = append(rec.Before, rec.Made...), nil
	}
	for n, chunk := range chunks {
		if err := g.keepChunk(ctx, id, rec.Epoch, n, chunk); err != nil {
			return nil, fmt.Errorf("The plan was applied; its code could not be gone on with now: %w. Call this tool again with only {\"plan\":%q} shortly", err, plan.ID)
		}
	}
	mine := wire.Encode(rec)
	won, err := g.opt.Store.Swap(ctx, "run:"+id, raw, mine, keptFor)
	switch {
	case err != nil:
		return nil, fmt.Errorf("The plan was applied; its code could not be gone on with now: %w. Call this tool again with only {\"plan\":%q} shortly", err, plan.ID)
	case !won:
		return nil, errors.New("another request is already continuing the code of this plan: wait for its answer")
	}
	g.inherit(ctx, r.grant, runReads(id))
	x := g.runs.again(id, r, rec, head, mine, events)
	g.runs.begin(x, &codemode.Recording{Version: head.Version, Seed: head.Seed, Start: head.Start, Events: events, Loose: loose})
	return x, nil
}

// withAnswers is a recording with what became of the steps of a plan. loose says
// that the script was told of a success which did not come about: it need not
// repeat itself from there on.
func (g *Gateway) withAnswers(ctx context.Context, r *request, plan *writeguard.Plan, progress *writeguard.Progress, events []codemode.Event) (all []codemode.Event, loose bool, err error) {
	last := int64(0)
	for _, ev := range events {
		last = max(last, ev.Time)
	}
	answers := map[int]codemode.Event{}
	for i, s := range progress.Steps {
		ev, err := g.stepAnswer(ctx, r, plan, i, s)
		if err != nil {
			return nil, false, err
		}
		ev.Time = max(last, s.Ended.UnixMilli(), s.At.UnixMilli())
		answers[ev.N] = ev
		loose = loose || plan.Steps[i].Given && (s.State != writeguard.StepDone || s.Settled == writeguard.SettledDone)
	}
	value := func(ref codemode.Ref) (json.RawMessage, error) {
		a, ok := answers[ref.Question]
		if !ok || a.Failed {
			return nil, errors.New("there is no such answer")
		}
		return codemode.Follow(a.Data, ref)
	}
	given := map[int]bool{}
	for _, ev := range events {
		switch a, ok := answers[ev.N]; {
		case ev.Kind == codemode.EventAnswer && ev.Later && ok:
			given[ev.N] = true
			a.Time = ev.Time // the script's clock goes as it went
			ev = a
		case ev.Kind == codemode.EventAnswer && ev.Later:
			return nil, false, errors.New("its recording does not fit the plan")
		case ev.Kind == codemode.EventCall:
			if data, err := codemode.Resolve(plan.Marker, ev.Data, value); err == nil {
				ev.Data = data
			}
		}
		all = append(all, ev)
	}
	for _, s := range plan.Steps {
		if !given[s.Question] {
			all = append(all, answers[s.Question])
		}
	}
	return all, loose, nil
}

// stepAnswer is what a script is told of a step.
func (g *Gateway) stepAnswer(ctx context.Context, r *request, plan *writeguard.Plan, i int, s writeguard.StepProgress) (codemode.Event, error) {
	ev := codemode.Event{Kind: codemode.EventAnswer, N: plan.Steps[i].Question}
	if !s.Ended.IsZero() && !s.Sent.IsZero() {
		ev.Millis = float64(s.Ended.Sub(s.Sent)) / float64(time.Millisecond)
	}
	what := fmt.Sprintf("%s on server %s", plan.Steps[i].Tool, plan.Steps[i].Server)
	fail := func(code, message string) {
		ev.Failed, ev.Data = true, wire.Encode(map[string]string{"code": code, "message": message})
	}
	switch s.State {
	case writeguard.StepDone:
		if s.Settled == writeguard.SettledDone {
			fail("answer_lost", fmt.Sprintf("%s was carried out, as %s says, but its answer never reached the portal. It was not sent again. Read what it has made or changed instead", what, writeguard.Visible(bounded(s.SettledBy, 100))))
			break
		}
		answer, err := g.plans.Answer(ctx, plan.ID, i)
		if err != nil {
			return ev, err
		}
		if ev.Data = answer; len(answer) > r.set.cfg.Code.MaxCallResult {
			fail("too_large", fmt.Sprintf("%s was carried out, but its result of %d bytes is more than a script may receive", what, len(answer)))
		}
	case writeguard.StepRemoved:
		text := fmt.Sprintf("%s was removed from the plan by its reviewer and was not sent", what)
		if s.Note != "" {
			text += ": " + bounded(s.Note, 300)
		}
		fail("removed", text)
	default:
		fail("not_sent", fmt.Sprintf("%s was not sent: %s", what, bounded(s.Error, 300)))
	}
	return ev, nil
}
