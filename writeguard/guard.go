package writeguard

import (
	"encoding/json"

	"github.com/mcp-portal/mcp-portal/auth"
)

// Class is what a tool does to the world.
type Class string

const (
	Read        Class = "read"
	Write       Class = "write"
	Destructive Class = "destructive"
)

// Action is what policy says about a call.
type Action string

const (
	Allow   Action = "allow"
	Deny    Action = "deny"
	Approve Action = "approve"
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
}

// Classification is a class with its source, for people to check.
type Classification struct {
	Class  Class
	Source string // "config", "annotations", "name", "description", "default"
	Why    string // one line: which hint or word decided
}

// Decision is the verdict on one call.
type Decision struct {
	Action Action
	Classification
	Rule   string // name of the rule, "rule 3", or "preset careful"
	Reason string // from the rule, else a sentence of ours
}
