package upstreams

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
)

// Call is one request to an upstream on behalf of one user.
type Call struct {
	Method  string          // MCP method
	Name    string          // tool or prompt name, or resource URI, as the upstream knows it (Mcp-Name)
	Params  json.RawMessage // object; kept as is but for the _meta members of this hop
	User    string          // principal id
	Session string          // portal session (2025), or empty (2026-07-28: sessions are per user then)
	Header  http.Header     // Mcp-Param-* to pass on; never credentials of the client

	ProtocolVersion string          // of the client's hop
	ClientInfo      json.RawMessage // as the client said; nil: the portal's own
	Capabilities    json.RawMessage // client capabilities that may be used during this call; nil: none
	// SessionCapabilities are what a session that is begun for this call declares,
	// whatever this one call may use. Nil: Capabilities.
	SessionCapabilities json.RawMessage
	LogLevel            string // least level of messages wanted; "": the client named none

	// Notify gets notifications that belong to this call (progress under the
	// caller's own token, messages), in order, before Do returns.
	Notify func(method string, params json.RawMessage)
	// Ask answers a request of the upstream that belongs to this call
	// (elicitation/create, sampling/createMessage, roots/list). Nil: such
	// requests are refused with method not found.
	Ask func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *wire.Error)
}

// Upstream is a connection (or several, one per user) to one server.
type Upstream interface {
	ID() string
	// Do makes one exchange and returns the exact result bytes. An error is
	// *wire.Error (the upstream answered a JSON-RPC error, unchanged) or
	// *CallError (anything else). It is never retried once it may have been
	// dispatched.
	Do(ctx context.Context, c *Call) (json.RawMessage, error)
	// Watch keeps a subscription of the call's user until ctx ends, see Watch.
	Watch(ctx context.Context, c *Call, w Watch)
	// Status is the present state; cheap.
	Status() Status
}

// Catalogue is everything one server offers, byte for byte, all pages.
type Catalogue struct {
	ProtocolVersion string            `json:"protocolVersion"`
	ServerInfo      json.RawMessage   `json:"serverInfo,omitempty"`
	Capabilities    json.RawMessage   `json:"capabilities,omitempty"`
	Instructions    string            `json:"instructions,omitempty"`
	Tools           []json.RawMessage `json:"tools"`
	Prompts         []json.RawMessage `json:"prompts"`
	Resources       []json.RawMessage `json:"resources"`
	Templates       []json.RawMessage `json:"templates"`
	Warnings        []string          `json:"warnings,omitempty"` // "tools/list repeats cursor x: stopped after 3 pages"
}

// State is the health of one upstream. "ready" means connected and its whole
// catalogue listed; nothing else is called ready.
type State string

const (
	Connecting State = "connecting" // first attempt under way
	Ready      State = "ready"
	Degraded   State = "degraded" // last attempt failed; retried with backoff
	// LoginNeeded: nothing is wrong, but it can be listed only once somebody
	// has signed in there: an admin for the portal, or a user.
	LoginNeeded State = "login_needed"
	Disabled    State = "disabled" // by configuration
)

// Status says how one upstream is, for status pages, CLI and log.
type Status struct {
	Server    string    `json:"server"`
	State     State     `json:"state"`
	Since     time.Time `json:"since"`
	Transport string    `json:"transport,omitempty"` // streamable-http, sse, stdio
	Protocol  string    `json:"protocol,omitempty"`  // negotiated version of this hop
	Error     *Problem  `json:"error,omitempty"`     // why it is degraded
	NextTry   time.Time `json:"next_try,omitzero"`
	Listed    time.Time `json:"listed,omitzero"` // last full listing
}

// Problem is a structured reason: what failed and what the other side said.
type Problem struct {
	Message    string `json:"message"` // names server and cause; no credential, bounded
	Kind       string `json:"kind"`    // one of the Kind constants
	HTTPStatus int    `json:"http_status,omitempty"`
	Code       int    `json:"code,omitempty"` // JSON-RPC error code
}

// Kinds of problems.
const (
	KindConnect   = "connect"   // no connection: refused, unknown host, TLS, redirect
	KindTimeout   = "timeout"   // no sign of life in time, or the hard ceiling
	KindHTTP      = "http"      // an HTTP status that is not an answer
	KindProtocol  = "protocol"  // an answer that breaks JSON-RPC, MCP or a size limit
	KindProcess   = "process"   // the child could not start, or ended
	KindList      = "list"      // the catalogue could not be listed
	KindAuth      = "auth"      // 401 or 403
	KindLogin     = "login"     // somebody has to sign in at the server first
	KindCancelled = "cancelled" // the caller gave up
	KindConfig    = "config"    // disabled, removed, or a limit of this portal
)

// CallError is a failed exchange that is not a JSON-RPC error of the upstream.
type CallError struct {
	Server  string
	Tool    string // or prompt, URI
	Problem Problem
	// Sent reports that the request may have reached the upstream: its outcome
	// is unknown and it must not be sent again blindly.
	Sent bool
	Err  error
}

// Error names the server, the tool and the cause, and says what is known of
// the outcome.
func (e *CallError) Error() string {
	s := "server " + e.Server
	if e.Tool != "" {
		s += ", " + e.Tool
	}
	s += ": " + e.Problem.Message
	if e.Sent {
		if !strings.HasSuffix(s, "?") && !strings.HasSuffix(s, ".") {
			s += "."
		}
		s += " The outcome is unknown: the request may have been carried out. Check before calling it again"
	}
	return s
}

// Unwrap gives the cause, unless that is a JSON-RPC error: what stands in a
// chain as one is the server's own answer, and this is not.
func (e *CallError) Unwrap() error {
	if _, ok := wire.AsError(e.Err); ok {
		return nil
	}
	return e.Err
}
