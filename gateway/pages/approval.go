package pages

import (
	"net/http"
	"slices"
	"strings"

	"github.com/mcp-portal/mcp-portal/writeguard"
)

// ApprovalData is the page of one call that waits, or waited, for a person.
type ApprovalData struct {
	Frame
	Approval *writeguard.Approval
	Action   string // path the decision posts to; empty: it can only be read
	Problem  string // what went wrong with a decision just made; empty: nothing
	Foreign  bool   // the call is of another user's agent
}

// Elsewhere says where an open approval is answered, if not by this viewer on
// this page.
func (d ApprovalData) Elsewhere() string {
	switch a := d.Approval; {
	case a.State != writeguard.Pending || d.Action != "":
		return ""
	case a.From == "client":
		return "It is answered in the client that asks."
	default:
		return "You cannot answer it yourself. It waits for " + a.Who() + ": pass on the address of this page."
	}
}

// Decider names who answered.
func (d ApprovalData) Decider() string {
	if d.Approval.DeciderName != "" {
		return d.Approval.DeciderName
	}
	return d.Approval.DecidedBy
}

// Hidden reports whether the arguments hold characters that are shown as
// escapes because they would not show otherwise.
func (d ApprovalData) Hidden() bool {
	plain := string(d.Approval.Arguments)
	return writeguard.Visible(plain) != plain
}

// NamesRule reports whether the rule has to be named, because the reason is
// the administrator's own text.
func (d ApprovalData) NamesRule() bool { return !strings.Contains(d.Approval.Reason, d.Approval.Rule) }

// Open reports whether it can be decided now.
func (d ApprovalData) Open() bool { return d.Approval.State == writeguard.Pending && d.Action != "" }

// Approval shows one approval with all its arguments and, while it is pending,
// the two buttons. The status is 200 also for one that is closed.
func (p *Pages) Approval(w http.ResponseWriter, d ApprovalData) error {
	return p.render(w, http.StatusOK, "approval", titleOf(d.Approval), d.Frame, d)
}

func titleOf(a *writeguard.Approval) string {
	switch a.State {
	case writeguard.Pending:
		return "Approve this call?"
	case writeguard.Approved:
		return "Approved"
	case writeguard.Denied:
		return "Denied"
	case writeguard.Used:
		return "Approved and sent"
	}
	return "Expired"
}

// ApprovalsData is the list of one user's approvals.
type ApprovalsData struct {
	Frame
	Approvals []*writeguard.Approval // in the order to show
	Others    []*writeguard.Approval // of other users, for the viewer to answer
	Plans     []writeguard.Listed    // of the viewer, and those that wait for the viewer
	Path      string                 // prefix of each one's page: Path + ID
	Problem   string                 // why the list is not known; empty: it is
}

// Open returns the pending ones, Closed the others.
func (d ApprovalsData) Open() []*writeguard.Approval { return which(d.Approvals, true) }

// Closed returns the approvals that are not pending.
func (d ApprovalsData) Closed() []*writeguard.Approval { return which(d.Approvals, false) }

// OthersOpen returns the pending ones of other users, OthersClosed the rest.
func (d ApprovalsData) OthersOpen() []*writeguard.Approval { return which(d.Others, true) }

// OthersClosed returns the approvals of other users that are not pending.
func (d ApprovalsData) OthersClosed() []*writeguard.Approval { return which(d.Others, false) }

// RunCalls is a script that waits with more than one call.
type RunCalls struct {
	Run   string
	Calls int
}

// Runs returns the scripts of the user that wait with more than one call, in
// the order of the list.
func (d ApprovalsData) Runs() (out []RunCalls) {
	for _, a := range d.Open() {
		i := slices.IndexFunc(out, func(r RunCalls) bool { return r.Run == a.Run })
		if i < 0 && a.Run != "" {
			out = append(out, RunCalls{a.Run, 1})
		} else if i >= 0 {
			out[i].Calls++
		}
	}
	return slices.DeleteFunc(out, func(r RunCalls) bool { return r.Calls < 2 })
}

func which(list []*writeguard.Approval, pending bool) (out []*writeguard.Approval) {
	for _, a := range list {
		if (a.State == writeguard.Pending) == pending {
			out = append(out, a)
		}
	}
	return out
}

// listed is one line of the list.
type listed struct {
	Path string
	A    *writeguard.Approval
}

// Approvals lists a user's approvals.
func (p *Pages) Approvals(w http.ResponseWriter, d ApprovalsData) error {
	return p.render(w, http.StatusOK, "approvals", "Approvals", d.Frame, d)
}
