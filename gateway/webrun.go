package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/mcp-portal/mcp-portal/gateway/pages"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// runURL is the page where all calls that one run waits with are decided.
func (g *Gateway) runURL(run string) string {
	return strings.TrimSuffix(g.baseURL(), "/") + "/approvals/run/" + run
}

// ofRun returns the approvals of a run that the person may see, oldest first.
func (g *Gateway) ofRun(r *http.Request, v visitor, run string) ([]*writeguard.Approval, error) {
	own, err := g.approvals.ListFor(r.Context(), v.who.ID)
	if err != nil {
		return nil, err
	}
	others, err := g.approvals.ListOthers(r.Context(), v.who)
	if err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(append(own, others...), func(a *writeguard.Approval) bool { return !a.WaitedForBy(run) })
	slices.SortStableFunc(all, func(a, b *writeguard.Approval) int { return a.Created.Compare(b.Created) })
	return all, nil
}

// seenRun reads the approvals of the run that the address names, or answers
// with why there are none.
func (g *Gateway) seenRun(w http.ResponseWriter, r *http.Request, v visitor) (string, []*writeguard.Approval) {
	run := chi.URLParam(r, "run")
	all, err := g.ofRun(r, v, run)
	switch {
	case err != nil:
		g.log.Warn("approvals could not be listed", "run", run, "error", err)
		g.message(w, v, http.StatusServiceUnavailable, "Not available", "The store cannot be reached. Try again shortly; nothing was run.")
		return "", nil
	case len(all) == 0:
		g.message(w, v, http.StatusNotFound, "No such requests", "No call of this script is open for you: the time may be over, or it may belong to another account. You are signed in as "+v.who.Name+".")
		return "", nil
	}
	return run, all
}

func (g *Gateway) runData(v visitor, run string, all []*writeguard.Approval) pages.RunData {
	d := pages.RunData{Frame: g.frame(v.who, v.csrf), Run: run, Action: "/approvals/run/" + run}
	for _, a := range all {
		d.Calls = append(d.Calls, g.approvalData(v, a))
	}
	return d
}

func (g *Gateway) runPage(w http.ResponseWriter, r *http.Request, v visitor) {
	if run, all := g.seenRun(w, r, v); all != nil {
		g.show(g.pages.Run(w, g.runData(v, run, all)))
	}
}

// runForm decides the calls that the page showed, each by itself: a call that
// came since then is not among them.
func (g *Gateway) runForm(w http.ResponseWriter, r *http.Request, v visitor) {
	run, all := g.seenRun(w, r, v)
	if all == nil {
		return
	}
	shown, ticked, decision := r.PostForm["shown"], r.PostForm["call"], r.PostFormValue("decision")
	switch decision {
	case "approve", "some", "deny":
	default:
		g.message(w, v, http.StatusBadRequest, "Not understood", "The form had no decision. Open the page again.")
		return
	}
	var yes, no []*writeguard.Approval
	for _, a := range all {
		switch tick := slices.Contains(ticked, a.ID) && decision != "deny"; {
		case a.State != writeguard.Pending || !slices.Contains(shown, a.ID):
		case tick:
			yes = append(yes, a)
		case decision != "some":
			no = append(no, a)
		}
	}
	problem := ""
	if len(yes) == 0 && decision != "deny" {
		no, problem = nil, "Nothing was decided: no call is ticked that waits for you. To send none of them, deny all."
	}
	note, decided, closed := bounded(r.PostFormValue("note"), 500), 0, 0
	for _, a := range append(yes, no...) {
		err := g.approvals.Decide(r.Context(), a.ID, writeguard.Answer{By: v.who, Via: writeguard.ViaWeb, Note: note, Approve: slices.Contains(yes, a)})
		switch {
		case err == nil:
			decided++
		case errors.Is(err, writeguard.ErrClosed), errors.Is(err, writeguard.ErrNotYours):
			closed++
		default:
			g.log.Warn("a decision could not be saved", "approval", a.ID, "error", err)
			problem = "The decisions could not all be saved. What is still marked as waiting below was not decided: try again."
		}
	}
	if problem == "" && closed > 0 {
		problem = fmt.Sprintf("%d of %d were decided. The others were answered meanwhile, have expired, or are not yours to answer.", decided, len(yes)+len(no))
	}
	if problem == "" {
		http.Redirect(w, r, "/approvals/run/"+run, http.StatusSeeOther)
		return
	}
	if now, err := g.ofRun(r, v, run); err == nil {
		all = now
	}
	d := g.runData(v, run, all)
	d.Problem = problem
	g.show(g.pages.Run(w, d))
}
