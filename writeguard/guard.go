package writeguard

import (
	"encoding/json"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/config"
)

// Class is what a tool does to the world.
type Class string

const (
	Read        Class = "read"
	Write       Class = "write"
	Destructive Class = "destructive"
)

// classExternal is the word for a write that leaves the company, where the
// configuration gives classes. In rules it matches whatever is external.
const classExternal = "external"

// Action is what policy says about a call.
type Action string

const (
	Allow   Action = "allow"
	Deny    Action = "deny"
	Approve Action = "approve"
	// ToPlan collects a call for a plan that a person decides on as a whole.
	ToPlan Action = "plan"
)

// Mode says where a call came from.
type Mode string

const (
	Direct Mode = "direct" // tools/call, or portal_execute with one tool
	Code   Mode = "code"   // from inside a script
)

// Call is what the guard judges: a real tool under its real identity.
type Call struct {
	Principal   *auth.Principal
	Client      string // clientInfo "name/version"
	Mode        Mode
	Run         string          // run id, empty for direct calls
	Server      string          // server id
	Tool        string          // original name
	Description string          // of the tool, as its server says
	Annotations json.RawMessage // of the tool, as its server says; may be nil
	Arguments   json.RawMessage // JSON object
	// Facts tells what happened before the call. It is asked only when the
	// decision depends on it. Nil, or an error: it is not known, and the
	// decision is the one for the worst case.
	Facts func() (Facts, error)
}

// Facts are what happened before a call.
type Facts struct {
	Calls     int    // calls of the run before this one; 0 outside code
	ToolCalls int    // of them, calls of this tool
	Taints    Labels // what the session has read: Private, Untrusted
	// NoTaints: what the session has read is not known.
	NoTaints bool
}

// Classification is a class with its source, for people to check.
type Classification struct {
	Class  Class
	Source string // "config", "annotations", "name", "description", "default"
	Why    string // one line: which hint or word decided

	Labels      Labels // what flows through it
	ExternalWhy string // one line, if Labels has External
}

// Word is the class for people: "read", or "write, external".
func (c Classification) Word() string {
	if c.Labels.Has(External) {
		return string(c.Class) + ", external"
	}
	return string(c.Class)
}

// Decision is the verdict on one call.
type Decision struct {
	Action Action
	Classification
	Rule   string // name of the rule, "rule 3", or "preset careful"
	Reason string // from the rule, else a sentence of ours

	// Would is what Action had been if the guard did not only observe; empty:
	// it does not, or the call is allowed anyway.
	Would Action
	// Terms of the rule that decided; nil: none.
	Terms *Terms
}

// AskOthers reports whether the rule names people other than the user who may
// approve the call.
func (d Decision) AskOthers() bool {
	return d.Terms != nil && len(d.Terms.Approvers.Groups)+len(d.Terms.Approvers.Users) > 0
}

// Terms are what a rule says besides what it matches and its action.
type Terms struct {
	Rule      string // its name, which budgets are counted under
	Budget    config.Budget
	Approvers config.Approvers
	Via       string // "any", "web", "client"
	Grant     int    // most calls of the tool in one run that one approval may release; 0: one
}
