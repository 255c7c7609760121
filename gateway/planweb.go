package gateway

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/gateway/pages"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// seenPlan reads a plan that the person may see, or answers with why not.
func (g *Gateway) seenPlan(w http.ResponseWriter, r *http.Request, v visitor) (*writeguard.Plan, *writeguard.Progress) {
	plan, progress, err := g.plans.Get(r.Context(), chi.URLParam(r, "id"))
	switch {
	case err == nil && plan.MaySee(v.who):
		return plan, progress
	case err == nil || errors.Is(err, writeguard.ErrNotFound):
		g.message(w, v, http.StatusNotFound, "No such plan", "This plan is not open for you: it may have expired, or belong to another account. You are signed in as "+v.who.Name+".")
	default:
		g.log.Warn("a plan could not be read", "error", err)
		g.message(w, v, http.StatusServiceUnavailable, "Not available", "The store cannot be reached. Try again shortly; nothing was sent.")
	}
	return nil, nil
}

// planData is the page of a plan as the person sees it.
func (g *Gateway) planData(v visitor, plan *writeguard.Plan, progress *writeguard.Progress) pages.PlanData {
	d := pages.PlanData{Frame: g.frame(v.who, v.csrf), Plan: plan, Progress: progress, State: progress.State(g.now()), Foreign: !plan.OwnedBy(v.who), Action: "/plans/" + plan.ID}
	if plan.OwnedBy(v.who) && v.who.Kind != auth.KindService {
		if undoable := g.undoable(v.set, plan, progress); len(undoable) > 0 {
			d.Undo, d.UndoSteps = "/plans/"+plan.ID+"/undo", len(undoable)
		}
	}
	for i, s := range plan.Steps {
		row := pages.PlanStep{Index: i, Step: s, Shown: shownArguments(plan, i), Progress: progress.Steps[i]}
		if i == progress.Unsettled() && plan.MaySettle(v.who, progress, i) {
			d.Settle, row.Settle = "/plans/"+plan.ID+"/settle", true
		}
		if progress.Steps[i].State == writeguard.StepOpen {
			if row.Mine = plan.MayDecide(v.who, i); !row.Mine {
				row.Waits = plan.Who(i)
				if s.From == "client" {
					row.Waits = "an answer in the client that asks"
				}
			}
		}
		d.Steps = append(d.Steps, row)
	}
	return d
}

func (g *Gateway) planPage(w http.ResponseWriter, r *http.Request, v visitor) {
	if plan, progress := g.seenPlan(w, r, v); plan != nil {
		g.show(g.pages.Plan(w, g.planData(v, plan, progress)))
	}
}

// undoForm takes back the applied steps of a plan.
func (g *Gateway) undoForm(w http.ResponseWriter, r *http.Request, v visitor) {
	plan, progress := g.seenPlan(w, r, v)
	if plan == nil {
		return
	}
	if !plan.OwnedBy(v.who) || r.PostFormValue("decision") != "undo" {
		g.message(w, v, http.StatusForbidden, "Not yours", "Only the user whose plan it is takes it back.")
		return
	}
	steps := g.undoable(v.set, plan, progress)
	if len(steps) > 0 {
		req := &request{set: v.set, who: v.who, client: "portal page", view: g.newView(r.Context(), v.set, v.who, "")}
		done, failed := g.undo(r.Context(), req, plan, steps)
		g.log.Info("a plan was taken back", "plan", plan.ID, "by", v.who.ID, "done", done, "failed", failed)
	}
	http.Redirect(w, r, "/plans/"+plan.ID, http.StatusSeeOther)
}

// settleForm takes what a person says became of a step whose outcome is unknown.
func (g *Gateway) settleForm(w http.ResponseWriter, r *http.Request, v visitor) {
	plan, progress := g.seenPlan(w, r, v)
	if plan == nil {
		return
	}
	step, err := strconv.Atoi(r.PostFormValue("step"))
	said := r.PostFormValue("decision")
	if err != nil || said != "happened" && said != "not" {
		g.message(w, v, http.StatusBadRequest, "Not understood", "The form named no step or no choice. Open the page again.")
		return
	}
	problem := ""
	switch _, err := g.plans.Settle(r.Context(), plan.ID, step, said == "happened", v.who); {
	case err == nil:
		g.recordPlan(r.Context(), &request{who: v.who, client: "portal page"}, plan, "plan/settled", said, "step "+strconv.Itoa(step+1))
		http.Redirect(w, r, "/plans/"+plan.ID, http.StatusSeeOther)
		return
	case errors.Is(err, writeguard.ErrNotYours):
		problem = "Nothing was noted: those who decide on this step say what became of it."
	case errors.Is(err, writeguard.ErrClosed), errors.Is(err, writeguard.ErrNotFound):
		problem = "Nothing was noted: what became of this step is known by now."
	default:
		problem = "What you said could not be saved. Try again."
		g.log.Warn("what became of a step could not be saved", "plan", plan.ID, "error", err)
	}
	if p, now, err := g.plans.Get(r.Context(), plan.ID); err == nil {
		plan, progress = p, now
	}
	d := g.planData(v, plan, progress)
	d.Problem = problem
	g.show(g.pages.Plan(w, d))
}

func (g *Gateway) planForm(w http.ResponseWriter, r *http.Request, v visitor) {
	plan, progress := g.seenPlan(w, r, v)
	if plan == nil {
		return
	}
	ticked := map[int]bool{}
	for _, s := range r.PostForm["step"] {
		i, err := strconv.Atoi(s)
		if err != nil || i < 0 || i >= len(plan.Steps) {
			g.message(w, v, http.StatusBadRequest, "Not understood", "The form named a step that the plan does not have. Open the page again.")
			return
		}
		ticked[i] = true
	}
	answer := writeguard.PlanAnswer{By: v.who, Via: writeguard.ViaWeb, Note: bounded(r.PostFormValue("note"), 500)}
	decision := r.PostFormValue("decision")
	for i := range plan.Steps {
		if progress.Steps[i].State != writeguard.StepOpen || !plan.MayDecide(v.who, i) {
			continue
		}
		switch {
		case decision == "deny", decision == "approve" && !ticked[i]:
			answer.Remove = append(answer.Remove, i)
		case ticked[i] && (decision == "approve" || decision == "some"):
			answer.Approve = append(answer.Approve, i)
		}
	}
	problem := ""
	switch {
	case decision != "approve" && decision != "some" && decision != "deny":
		g.message(w, v, http.StatusBadRequest, "Not understood", "The form had no decision. Open the page again.")
		return
	case len(answer.Approve)+len(answer.Remove) == 0 && (decision != "some" || progress.State(g.now()) != writeguard.PlanOpen):
		problem = "Nothing was decided: what you could decide was decided meanwhile, here or elsewhere, or has expired. Look at it again."
	case decision == "approve" && len(answer.Approve) == 0:
		problem = "Nothing was decided: no step is ticked. To send none of them, remove all."
	case len(answer.Approve)+len(answer.Remove) == 0:
		problem = "Nothing was decided: no step is ticked that waits for you."
	default:
		now, err := g.plans.Decide(r.Context(), plan.ID, answer)
		switch {
		case err == nil:
			g.announcePlan(plan, now, v.who)
			g.recordPlan(r.Context(), &request{who: v.who, client: "portal page"}, plan, "plan/decided", decidedStatus(answer), decidedNote(answer))
			http.Redirect(w, r, "/plans/"+plan.ID, http.StatusSeeOther)
			return
		case errors.Is(err, writeguard.ErrClosed):
			problem = "Nothing was decided: the plan was decided by somebody else meanwhile, or has expired. Look at it again."
		case errors.Is(err, writeguard.ErrNotYours):
			problem = "Nothing was decided: a step of the plan is not yours to answer."
		default:
			problem = "The decision could not be saved. Try again."
			g.log.Warn("a decision could not be saved", "plan", plan.ID, "error", err)
		}
	}
	if p, now, err := g.plans.Get(r.Context(), plan.ID); err == nil {
		plan, progress = p, now
	}
	d := g.planData(v, plan, progress)
	d.Problem = problem
	g.show(g.pages.Plan(w, d))
}

func decidedStatus(a writeguard.PlanAnswer) string {
	if len(a.Approve) > 0 {
		return "approved"
	}
	return "denied"
}

func decidedNote(a writeguard.PlanAnswer) string {
	return strconv.Itoa(len(a.Approve)) + " approved, " + strconv.Itoa(len(a.Remove)) + " removed"
}
