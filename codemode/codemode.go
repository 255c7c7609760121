package codemode

import (
	"context"
	"encoding/json"
	"time"

	"github.com/mcp-portal/mcp-portal/codemode/internal/proto"
)

// Tool is one tool as code sees it.
type Tool struct {
	Outward    string // argument of codemode.call(name, args)
	Identifier string // codemode.<Identifier>(args)
	Server     string // JavaScript identifier of the server: <Server>.<Member>(args)
	Member     string
}

// Withheld are tools of one server that its caller cannot use now, and why.
type Withheld = proto.Withheld

// WhyWithheld says why there is no tool, or server, of a name in whatever
// spelling although there could be one; "" if nothing is known of it.
func WhyWithheld(list []Withheld, name string) string { return proto.WhyWithheld(list, name) }

// Host is what a script can reach. Every method may be called from several
// goroutines at once; ctx ends when the run does.
type Host interface {
	// Call calls one tool by its outward name and returns the raw
	// CallToolResult. An error becomes a catchable exception in the script.
	Call(ctx context.Context, c HostCall) (json.RawMessage, error)
	// Query answers the discovery functions (tools, search, describe, servers)
	// with a JSON value.
	Query(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error)
}

// HostCall is one call a script made.
type HostCall struct {
	Seq       int    // 1, 2, … in issue order within the run
	Tool      string // outward name
	Arguments json.RawMessage
	Question  int  // its number among all that the script asked, as in its Recording
	Known     bool // made before the run was continued from its recording, which does not have the answer
	// Aside gives up the call's place among those that run at once while it waits
	// for a person; back takes one again, and fails only when ctx ends. Nil: the
	// call keeps its place.
	Aside func() (back func(ctx context.Context) error)
}

// HostError is an error of Host.Call whose parts the script may see.
type HostError struct {
	Code    string // "denied", "tool_error", "outcome_unknown", "unavailable", …
	Message string // complete sentence with the next step
}

func (e *HostError) Error() string { return e.Message }

// Held, as an error of Host.Call, leaves the call without an answer in this life
// of the run: it is part of a plan, or waits for one. The run goes on as far as
// it can and then comes to rest.
type Held struct {
	// StandIn lets a guarded run go on with a stand-in for the answer.
	StandIn bool
}

func (*Held) Error() string { return "the call is part of a plan that is not decided" }

// Request is one run.
type Request struct {
	ID    string // run id
	Owner string // principal id: workers are only ever reused for the same owner
	Code  string // as the model wrote it
	Tools []Tool
	// Withheld are tools that there would be, and why there are not: a script
	// that names one is told.
	Withheld []Withheld
	Limits   Limits
	// Paused tells the pool that the script waits for a person; while it is
	// positive the wall clock of the run stands still.
	Paused *Pause
	// Rests, if not nil, is told whenever the run comes to rest, true, and goes on,
	// false: at rest every call under way is in Paused or Held, and the worker has said
	// that the script can do nothing without an answer. It must not block.
	Rests func(resting bool)
	// Guarded makes the script notice what it does with the answers of calls that
	// are Held, so that stand-ins can be given for them. Code that cannot be
	// guarded fails.
	Guarded bool
	// Journal, if not nil, is told what the script does and learns.
	Journal Journal
	// Replay continues a run from its recording: the script is run again, is
	// told what it was told then, and goes on from there.
	Replay *Recording
	// Seed of chance, and the start of the script's clock in Unix milliseconds;
	// of no meaning with Replay. Zero: the pool chooses.
	Seed  uint64
	Start int64
}

// Limits of one run. Zero values mean those of the configuration.
type Limits struct {
	Wall, CPU     time.Duration
	MemoryMB      int
	MaxCalls      int
	Parallel      int
	MaxSource     int
	MaxCallResult int
	MaxArguments  int // bytes of one call's
	MaxValue      int // bytes of the value kept before shaping
	MaxContent    int // bytes of returned content blocks
	MaxLogs       int
}

// Outcome is how a run ended. Exactly one of Value and Error is meaningful.
type Outcome struct {
	Value    json.RawMessage   // JSON of the returned value; nil: undefined
	ValueCut bool              // Value is shortened to MaxValue; it says where
	Content  []json.RawMessage // content blocks (images, audio, resources) the code returned
	Logs     []string          // console lines, bounded
	LogsCut  int               // lines left out
	Calls    []CallRecord      // in issue order
	Error    *ScriptError
	Looked   *Looked // a guarded run came to a look; then there is nothing else
	Wall     time.Duration
	CPU      time.Duration
}

// CallRecord is one call a script made, for the list that goes back.
type CallRecord struct {
	Seq      int     `json:"seq"`
	Tool     string  `json:"tool"`
	Status   string  `json:"status"` // ok, error, in_flight, not_started, planned
	Millis   float64 `json:"ms"`
	BytesOut int     `json:"bytes"`
	Error    string  `json:"error,omitempty"`
}

// ScriptError is why a run failed, in the user's coordinates.
type ScriptError struct {
	Kind    string // syntax, exception, wall, cpu, memory, stack, calls, deadlock, cancelled, engine, busy, unavailable
	Name    string // of the exception: TypeError, …
	Message string // short, with the next step where there is one
	Line    int    // 1-based in the code as sent; 0: unknown
	Column  int
	Code    string // HostError.Code of an uncaught tool error
}

func (e *ScriptError) Error() string { return e.Name + ": " + e.Message }
