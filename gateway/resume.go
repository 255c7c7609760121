package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// resume goes on with a paused run: here, on the replica that holds it, or from
// its recording.
func (g *Gateway) resume(ctx context.Context, r *request, id string) (json.RawMessage, *wire.Error) {
	if plan := g.planOfRun(ctx, r, id); plan != "" {
		return g.applyPlan(ctx, r, plan)
	}
	x, err := g.runs.attach(r.who.ID, id)
	if err != nil {
		return toolError(err.Error()), nil
	}
	if x == nil {
		if result, ok := g.resumeElsewhere(ctx, r, id); ok {
			return result, nil
		}
		if x, err = g.revive(ctx, r, id); err != nil {
			return toolError(err.Error()), nil
		}
		if x == nil {
			return toolError(g.lostRun(ctx, r, id)), nil
		}
	}
	return g.goOn(ctx, r, x)
}

// goOn goes on with a run that is attached.
func (g *Gateway) goOn(ctx context.Context, r *request, x *run) (json.RawMessage, *wire.Error) {
	if r.modern && r.params.String("requestState") == runPrefix+x.id {
		return g.goOnWithAnswers(ctx, r, x)
	}
	// A moment for the person who is just approving.
	deadline := time.NewTimer(resumeWait)
	defer deadline.Stop()
	for {
		list, idle, changed := x.waits()
		if idle && x.untold(list) {
			break // nobody is approving what they have not heard of
		}
		_, byURL := r.elicits()
		if form := r.takesForms(list); len(list) == 0 && (len(x.signIns()) == 0 || byURL && (r.ask != nil || r.modern)) || len(list) > 0 && form && (r.ask != nil || r.modern) {
			break
		}
		select {
		case <-changed:
			continue
		case <-x.done:
		case <-ctx.Done():
		case <-g.stopped:
		case <-deadline.C:
		}
		break
	}
	return g.attend(ctx, r, x)
}

// goOnWithAnswers goes on with a run after a 2026-07-28 client has asked its
// user.
func (g *Gateway) goOnWithAnswers(ctx context.Context, r *request, x *run) (json.RawMessage, *wire.Error) {
	responses, err := wire.ParseObject(r.params.Get("inputResponses"))
	if err != nil {
		responses = nil
	}
	g.loginAnswers(ctx, x, responses)
	list, _, _ := x.waits()
	dismissed := 0
	for aid, a := range list {
		// Only a question that this client could be asked has an answer of it.
		if r.takesForm(a) {
			res := responses.Get("approval-" + aid)
			if err := g.decideByAnswer(ctx, &passage{req: r}, a, res); err != nil {
				g.log.Warn("a decision could not be recorded", "approval", aid, "error", err)
			}
		}
		if now, err := g.approvals.Get(ctx, aid); err == nil && now.State == writeguard.Pending {
			dismissed++
		}
	}
	if dismissed > 0 && dismissed == len(list) {
		// The user closed the form without a choice. Asking again at once
		// would only annoy; the web page still takes the decision.
		g.runs.detach(x)
		return g.pausedResult(x, list, x.signIns()), nil
	}
	if logins := x.signIns(); len(logins) > 0 {
		g.runs.detach(x) // asking once more would not make the person faster
		return g.pausedResult(x, list, logins), nil
	}
	// Let the decisions reach the run before looking at what it waits for.
	for changed := x.settling(list); changed != nil; changed = x.settling(list) {
		select {
		case <-changed:
		case <-x.done:
		case <-ctx.Done():
		case <-time.After(resumeWait):
		}
		if ctx.Err() != nil || isClosed(x.done) {
			break
		}
	}
	return g.attend(ctx, r, x)
}

// settling returns a channel to wait on while approvals that are decided by
// now still stand among those the run waits for, else nil.
func (x *run) settling(before map[string]*writeguard.Approval) <-chan struct{} {
	list, _, changed := x.waits()
	for id := range list {
		if _, was := before[id]; !was {
			continue
		}
		if now, err := x.g.approvals.Get(x.ctx, id); err == nil && now.State != writeguard.Pending {
			return changed
		}
	}
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// lostRun explains a run id that is not here.
func (g *Gateway) lostRun(ctx context.Context, r *request, id string) string {
	raw, ok, err := g.opt.Store.Get(ctx, "run:"+id)
	var rec runRecord
	if err != nil {
		return "The run could not be looked up, the store cannot be reached: try again shortly."
	}
	if !ok || json.Unmarshal(raw, &rec) != nil || rec.User != r.who.ID {
		return fmt.Sprintf("There is no paused run %q. Check what has been done before you run code again.", bounded(id, 60))
	}
	if rec.Ended != "" {
		return lostText(rec.Ended, append(rec.Before, rec.Made...))
	}
	return "The run is gone: the portal process that held it was restarted or replaced by another version, or another process of this portal holds it." + madeSentence(append(rec.Before, rec.Made...)) +
		" Approvals already given stay valid for exactly the same calls until they expire."
}

// lostText says why a run is no more and what it had called.
func lostText(why string, made []madeCall) string {
	sentence := madeSentence(made)
	if sentence == "" {
		sentence = " It had changed nothing; run the code again if it is still wanted."
	}
	return "There is no such paused run any more: " + why + "." + sentence
}

func (x *run) madeSentence() string { return madeSentence(x.calls()) }

// calls are the calls that the run has made so far.
func (x *run) calls() []madeCall {
	x.mu.Lock()
	defer x.mu.Unlock()
	return append(slices.Clone(x.earlier), x.made...)
}

// mayHaveChanged tells whether a call was sent that is more than a look.
func (m madeCall) mayHaveChanged() bool {
	switch m.Status {
	case "ok", "tool_error", "unknown", "outcome_unknown", "protocol_error", "in_flight", "cancelled", "too_large":
		return m.Class != writeguard.Read
	}
	return false
}

// madeSentence lists the calls that may have changed something. It never
// advises a blind retry once one was sent.
func madeSentence(made []madeCall) string {
	var writes []string
	for _, m := range made {
		if m.mayHaveChanged() {
			what := m.Status
			if m.IDs != "" {
				what += ", " + m.IDs
			}
			writes = append(writes, m.Tool+" ("+what+")")
		}
	}
	if len(writes) == 0 {
		return ""
	}
	more := ""
	if n := len(writes) - 20; n > 0 {
		writes, more = writes[:20], fmt.Sprintf(" and %d more", n)
	}
	return " These calls had already been sent and may have changed something: " + strings.Join(writes, ", ") + more + ". Do not run the code again unless the user wants it done twice."
}
