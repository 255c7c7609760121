package gateway

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/wire"
)

// request is one MCP request with all that is known of who makes it and how.
type request struct {
	leave   func() // ends what the request holds of the load, before its end
	set     *settings
	who     *auth.Principal
	modern  bool   // 2026-07-28 or later
	version string // of this hop
	mode    Mode
	note    string // what policy overruled, for the instructions

	sess       *session        // 2025 with a session; else nil
	grant      string          // key of the caller's toggles
	client     string          // "name/version" as the client says
	clientInfo json.RawMessage // as the client says; nil if it does not
	caps       json.RawMessage // client capabilities; nil if unknown
	level      string          // log level wanted; "" none

	msg      wire.Message
	params   wire.Object
	header   http.Header
	progress json.RawMessage // progress token of the caller; nil if none
	stream   *stream
	ask      asker // nil: this client cannot be asked during the call
	view     *view
}

// session id for the upstream hop: sessions of an upstream belong to one
// portal session, or to the user's client where there are no sessions.
func (r *request) upstreamSession() string {
	if r.sess != nil {
		return r.sess.key
	}
	return r.grant
}

// sessionKey is the key of the 2025 session; empty: there is none.
func (r *request) sessionKey() string {
	if r.sess == nil {
		return ""
	}
	return r.sess.key
}

// can reports whether the client declared a capability, e.g. "elicitation".
func (r *request) can(name string) bool {
	o, err := wire.ParseObject(r.caps)
	return err == nil && o.Get(name) != nil
}

// elicits reports which modes of elicitation the client declared. An empty
// object means form (2025-06-18; 2025-11-25 keeps that meaning).
func (r *request) elicits() (form, url bool) {
	o, err := wire.ParseObject(r.caps)
	if err != nil {
		return false, false
	}
	e, err := wire.ParseObject(o.Get("elicitation"))
	if err != nil {
		return false, false
	}
	if len(e) == 0 {
		return true, false
	}
	return e.Get("form") != nil, e.Get("url") != nil
}

// clientName is "name/version" of an Implementation object, bounded and
// without control characters.
func clientName(info json.RawMessage) string {
	o, err := wire.ParseObject(info)
	if err != nil {
		return ""
	}
	name := o.String("name")
	if v := o.String("version"); v != "" {
		name += "/" + v
	}
	name = strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || (r >= 0x202a && r <= 0x202e) || (r >= 0x2066 && r <= 0x2069) {
			return -1
		}
		return r
	}, name)
	return bounded(name, 120)
}

// forwardMeta is the caller's _meta less what belongs to this hop; nil when
// nothing is left.
func forwardMeta(params wire.Object) json.RawMessage {
	m, err := wire.ParseObject(params.Get("_meta"))
	if err != nil {
		return nil
	}
	m = m.Without(wire.MetaProtocolVersion, wire.MetaClientInfo, wire.MetaClientCapabilities, wire.MetaLogLevel, wire.MetaSubscriptionID, WholeKey)
	if len(m) == 0 {
		return nil
	}
	return m.Bytes()
}

// members of params that the protocol gives a meaning.
var members = []string{"name", "arguments", "uri", "ref", "argument", "context", "_meta", "requestState", "inputResponses", "task", "taskId", "cursor"}

// forwardParams prepares params for the upstream hop: its own name or URI in
// place of the outward one, the caller's _meta without this hop's members.
// Members that a server may take for one with a meaning, because many parsers
// ignore case, are left out: what was judged is what the server reads.
func forwardParams(params wire.Object, key, value string) wire.Object {
	out := make(wire.Object, 0, len(params)+1)
next:
	for _, f := range params {
		for _, m := range members {
			if f.Key != m && strings.EqualFold(f.Key, m) {
				continue next
			}
		}
		out = append(out, f)
	}
	if key != "" {
		out = out.SetString(key, value)
	}
	if m := forwardMeta(params); m != nil {
		return out.Set("_meta", m)
	}
	return out.Without("_meta")
}

// approvedParams are the params of a call that a person has approved: what the
// person saw, and of _meta what only concerns the transport.
// tasks says that the tool may become a task: then how long that is kept stays.
func approvedParams(params wire.Object, tasks bool) wire.Object {
	out := wire.Object{{Key: "name", Value: params.Get("name")}}
	if a := params.Get("arguments"); a != nil {
		out = append(out, wire.Field{Key: "arguments", Value: a})
	}
	if tasks {
		if task := wishedTask(params.Get("task")); task != nil {
			out = append(out, wire.Field{Key: "task", Value: task})
		}
	}
	meta, err := wire.ParseObject(params.Get("_meta"))
	if err != nil {
		return out
	}
	var keep wire.Object
	for _, k := range []string{wire.MetaProgressToken, "traceparent", "tracestate", "baggage"} {
		if v := meta.Get(k); v != nil {
			keep = append(keep, wire.Field{Key: k, Value: v})
		}
	}
	if keep != nil {
		out = append(out, wire.Field{Key: "_meta", Value: keep.Bytes()})
	}
	return out
}

// mayBeAsked reports whether a server may put this request to the client: only
// what the client declared that it answers.
func (r *request) mayBeAsked(method string, params json.RawMessage) bool {
	switch method {
	case "elicitation/create":
		form, url := r.elicits()
		if o, err := wire.ParseObject(params); err == nil && o.String("mode") == "url" {
			return url
		}
		return form
	case "sampling/createMessage":
		o, err := wire.ParseObject(params)
		if err != nil || o.Get("tools") == nil && o.Get("toolChoice") == nil {
			return r.can("sampling")
		}
		caps, err := wire.ParseObject(r.caps)
		if err != nil {
			return false
		}
		sampling, err := wire.ParseObject(caps.Get("sampling"))
		return err == nil && sampling.Get("tools") != nil
	case "roots/list":
		return r.can("roots")
	}
	return false
}

// answersAny reports whether there is anything that a server may ask the
// client.
func (r *request) answersAny() bool {
	return r.can("elicitation") || r.can("sampling") || r.can("roots")
}
