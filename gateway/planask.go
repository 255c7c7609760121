package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// planPrefix is what a requestState begins with that asks about a plan.
const planPrefix = "portal-plan:"

// needPlan means that a 2026-07-28 client is to be asked about the plan of a
// direct call.
type needPlan struct{ result json.RawMessage }

func (*needPlan) Error() string { return "a plan is to be decided" }

// planForm is the question about a plan, if the client can put all of it and its
// user may answer there.
func (r *request) planForm(plan *writeguard.Plan) (message string, schema json.RawMessage, ok bool) {
	form, _ := r.elicits()
	if !form || !plan.InClient(r.who) {
		return "", nil, false
	}
	return writeguard.PlanQuestion(plan, func(i int) json.RawMessage { return shownArguments(plan, i) })
}

// whenPlanDecided ends a question in the client once the page has decided.
func (g *Gateway) whenPlanDecided(ctx context.Context, id string, done func()) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if _, now, err := g.plans.Get(ctx, id); err == nil && now.State(g.now()) != writeguard.PlanOpen {
			done()
			return
		}
	}
}

// askPlan asks the client's user about a plan while the request waits, or reads
// the answer that a retry brings. again is the input_required result for a
// client that is to be asked; decided, whether there is a decision now.
func (g *Gateway) askPlan(ctx context.Context, r *request, ask asker, plan *writeguard.Plan) (again json.RawMessage, decided bool, err error) {
	message, schema, ok := r.planForm(plan)
	if !ok {
		return nil, false, nil
	}
	var answer json.RawMessage
	switch {
	case r.modern && r.params.String("requestState") == planPrefix+plan.ID:
		responses, err := wire.ParseObject(r.params.Get("inputResponses"))
		if err != nil {
			return nil, false, nil
		}
		answer = responses.Get("plan")
	case r.modern:
		q := wire.Object{{Key: "method", Value: wire.Quote("elicitation/create")}, {Key: "params", Value: elicitParams(message, schema)}}
		return wire.Object{
			{Key: "resultType", Value: wire.Quote("input_required")},
			{Key: "inputRequests", Value: wire.Object{{Key: "plan", Value: q.Bytes()}}.Bytes()},
			{Key: "requestState", Value: wire.Quote(planPrefix + plan.ID)},
		}.Bytes(), false, nil
	case ask != nil:
		ctx, cancel := context.WithTimeoutCause(ctx, r.set.cfg.Guard.AskTimeout, errors.New("the person did not answer in time"))
		defer cancel()
		go g.whenPlanDecided(ctx, plan.ID, cancel)
		res, e := ask(ctx, "elicitation/create", elicitParams(message, schema))
		if e != nil {
			// Did the page decide meanwhile?
			_, now, err := g.plans.Get(context.WithoutCancel(ctx), plan.ID)
			return nil, err == nil && now.State(g.now()) != writeguard.PlanOpen, nil
		}
		answer = res
	}
	o, perr := wire.ParseObject(answer)
	if perr != nil {
		return nil, false, nil
	}
	action := o.String("action")
	yes, reason := writeguard.ParseAnswer(action, o.Get("content"))
	if !yes && action != "decline" && action != "accept" {
		return nil, false, nil // dismissed: the page still takes the decision
	}
	a := writeguard.PlanAnswer{By: r.who, Via: writeguard.ViaElicitation, Note: reason}
	_, now, err := g.plans.Get(ctx, plan.ID)
	if err != nil {
		return nil, false, err
	}
	for i, s := range now.Steps {
		switch {
		case s.State != writeguard.StepOpen:
		case yes:
			a.Approve = append(a.Approve, i)
		default:
			a.Remove = append(a.Remove, i)
		}
	}
	switch now, err := g.plans.Decide(context.WithoutCancel(ctx), plan.ID, a); {
	case errors.Is(err, writeguard.ErrClosed): // somebody was faster: what they said counts
		return nil, true, nil
	case err != nil:
		return nil, false, fmt.Errorf("record the decision on plan %s: %w", plan.ID, err)
	default:
		g.announcePlan(plan, now, r.who)
	}
	g.recordPlan(ctx, r, plan, "plan/decided", decidedStatus(a), decidedNote(a))
	return nil, true, nil
}
