package audit

import (
	"context"
	"encoding/json"
	"time"
)

// Event is one call through the door, nested calls included. It never holds a
// credential, and argument values only if the configuration says so.
type Event struct {
	Time       time.Time       `json:"time"`
	ID         string          `json:"id"`                 // of this event
	User       string          `json:"user"`               // principal id
	Email      string          `json:"email,omitempty"`    // of a person
	Groups     []string        `json:"groups,omitempty"`   // of the user, at the time
	Client     string          `json:"client,omitempty"`   // clientInfo name/version as the client said
	Session    string          `json:"session,omitempty"`  // hash of the 2025 session id
	Mode       string          `json:"mode"`               // "direct", "code"
	Run        string          `json:"run,omitempty"`      // run id of a portal_execute
	Method     string          `json:"method"`             // MCP method: tools/call, prompts/get, …
	Server     string          `json:"server"`             // server id
	Capability string          `json:"capability"`         // original tool or prompt name, or resource URI
	Class      string          `json:"class,omitempty"`    // read, write, destructive
	Source     string          `json:"source,omitempty"`   // of the class: config, annotations, name, description, default
	Taints     []string        `json:"taints,omitempty"`   // what the session had read before, where the decision depended on it
	Labels     []string        `json:"labels,omitempty"`   // of the tool: private, untrusted, external
	Decision   string          `json:"decision,omitempty"` // allow, deny, approve, plan
	Would      string          `json:"would,omitempty"`    // what Decision had been, if the guard did not only observe
	Rule       string          `json:"rule,omitempty"`     // rule name or preset that decided
	Approval   string          `json:"approval,omitempty"` // id of the approval record
	Plan       string          `json:"plan,omitempty"`     // id of the plan that it is a step of, or that was made, decided or undone
	Step       int             `json:"step,omitempty"`     // of that plan, from 1
	Filters    []string        `json:"filters,omitempty"`  // what filters found, without saying it
	Status     string          `json:"status"`             // ok, tool_error, error, denied, pending, unknown
	Error      string          `json:"error,omitempty"`    // short, bounded, redacted
	Duration   float64         `json:"duration_ms"`
	BytesIn    int             `json:"bytes_in"`  // arguments
	BytesOut   int             `json:"bytes_out"` // result
	Arguments  json.RawMessage `json:"arguments,omitempty"`
}

// Recorder takes events. Record must not block a call for long and never
// loses an event silently: failures are counted and logged.
type Recorder interface {
	Record(ctx context.Context, e Event)
}
