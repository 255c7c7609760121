package pages

import "fmt"

// Decision is what the form of a decision needs, on each of the pages that have
// one.
type Decision struct {
	CSRF    string
	Action  string // path it posts to
	What    string // what is ticked, in the plural
	Deny    string // what happens to the others
	DenyAll string // the button that refuses all
}

// Decision is the form of one call.
func (d ApprovalData) Decision() Decision { return Decision{CSRF: d.CSRF, Action: d.Action} }

// Decision is the form of a plan.
func (d PlanData) Decision() Decision {
	return Decision{CSRF: d.CSRF, Action: d.Action, What: "steps", Deny: "remove", DenyAll: "Remove all"}
}

// Decision is the form of the calls of one script.
func (d RunData) Decision() Decision {
	return Decision{CSRF: d.CSRF, Action: d.Action, What: "calls", Deny: "deny", DenyAll: "Deny all"}
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// destructive is plural with how many of them are destructive.
func destructive(n, bad int, one, many string) string {
	switch {
	case bad == 0:
		return plural(n, one, many)
	case n == 1:
		return "1 destructive " + one
	case bad == n:
		return fmt.Sprintf("%d %s, all of them destructive", n, many)
	}
	return fmt.Sprintf("%d %s, %d of them destructive", n, many, bad)
}
