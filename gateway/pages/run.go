package pages

import (
	"fmt"
	"net/http"

	"github.com/mcp-portal/mcp-portal/writeguard"
)

// RunData is the page of all calls with which one script waits for people.
type RunData struct {
	Frame
	Run     string         // run id
	Calls   []ApprovalData // oldest first; their Frame and Problem are not used
	Action  string         // path the decision posts to
	Problem string         // what went wrong with a decision just made; empty: nothing
}

// Open counts the calls that the viewer can decide now.
func (d RunData) Open() int {
	n := 0
	for _, c := range d.Calls {
		if c.Open() {
			n++
		}
	}
	return n
}

// Destructive counts those of Open that are destructive.
func (d RunData) Destructive() int {
	n := 0
	for _, c := range d.Calls {
		if c.Open() && c.Approval.Class == writeguard.Destructive {
			n++
		}
	}
	return n
}

// Waiting counts the calls that wait for somebody, the viewer or another.
func (d RunData) Waiting() int {
	n := 0
	for _, c := range d.Calls {
		if c.Approval.State == writeguard.Pending {
			n++
		}
	}
	return n
}

// First is the call that was asked first; there is always one.
func (d RunData) First() *writeguard.Approval { return d.Calls[0].Approval }

// Run shows the calls of one script, each with all its arguments, and one form
// to decide those that wait for the viewer. There must be at least one call.
func (p *Pages) Run(w http.ResponseWriter, d RunData) error {
	title := "All answered"
	switch n := d.Waiting(); {
	case n == 1:
		title = "Approve this call?"
	case n > 1:
		title = fmt.Sprintf("Approve these %d calls?", n)
	}
	return p.render(w, http.StatusOK, "run", title, d.Frame, d)
}
