package gateway

import (
	"encoding/json"

	"github.com/mcp-portal/mcp-portal/wire"
)

// Extensions that work through the portal. What another one would need of it
// nobody knows, so no other is promised.
const (
	extTasks = "io.modelcontextprotocol/tasks"
	extUI    = "io.modelcontextprotocol/ui"
)

// capabilities are what the portal declares to a client: what it always offers,
// and what some server that the client sees does.
func capabilities(v *view, modern bool) json.RawMessage {
	// The lists can always change here, whatever a server says of itself:
	// clients listen only if they are told so.
	caps := wire.Object{
		{Key: "tools", Value: json.RawMessage(`{"listChanged":true}`)},
		{Key: "prompts", Value: json.RawMessage(`{"listChanged":true}`)},
		{Key: "resources", Value: json.RawMessage(`{"listChanged":true,"subscribe":true}`)},
		{Key: "completions", Value: json.RawMessage(`{}`)},
		{Key: "logging", Value: json.RawMessage(`{}`)},
	}
	var extensions wire.Object
	tasks := false
	for _, s := range v.servers() {
		o, err := wire.ParseObject(s.Capabilities)
		if err != nil {
			continue
		}
		tasks = tasks || o.Get("tasks") != nil
		e, err := wire.ParseObject(o.Get("extensions"))
		if err != nil {
			continue
		}
		for _, name := range []string{extTasks, extUI} {
			if x := e.Get(name); x != nil && extensions.Get(name) == nil {
				extensions = append(extensions, wire.Field{Key: name, Value: x})
			}
		}
	}
	if tasks && !modern { // 2025-11-25; the later versions have an extension instead
		caps = append(caps, wire.Field{Key: "tasks", Value: json.RawMessage(`{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`)})
	}
	if extensions != nil {
		caps = append(caps, wire.Field{Key: "extensions", Value: extensions.Bytes()})
	}
	return caps.Bytes()
}
