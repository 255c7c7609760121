package main

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/mcp-portal/mcp-portal/gateway"
	"github.com/mcp-portal/mcp-portal/registry"
	"github.com/mcp-portal/mcp-portal/wire"
)

// Clients of 2026-07-28 put marked arguments into headers as well, but only
// over HTTP: on standard input there are none, so the relay adds them, by the
// definitions that passed through it.

// setHeaders adds the headers of a call's arguments.
func (r *relay) setHeaders(h http.Header, version, tool string, m wire.Message) {
	if m.Method != "tools/call" || !wire.Modern(version) {
		return
	}
	r.mu.Lock()
	list := r.headers[tool]
	r.mu.Unlock()
	params, err := wire.ParseObject(m.Params)
	if err != nil {
		return
	}
	for k, v := range gateway.SentHeaders(list, params.Get("arguments")) {
		h[k] = v
	}
}

// learnHeaders reads the definitions of a tools/list result. It returns the
// cursor of the next page.
func (r *relay) learnHeaders(raw json.RawMessage) (next json.RawMessage) {
	msg, err := wire.ParseMessage(raw)
	if err != nil {
		return nil
	}
	result, err := wire.ParseObject(msg.Result)
	if err != nil {
		return nil
	}
	var tools []struct {
		Name        string          `json:"name"`
		InputSchema json.RawMessage `json:"inputSchema"`
	}
	if json.Unmarshal(result.Get("tools"), &tools) != nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.headers == nil {
		r.headers = map[string][]registry.ParamHeader{}
	}
	for _, t := range tools {
		delete(r.headers, t.Name)
		if list := registry.ParamHeaders(t.InputSchema); len(list) > 0 {
			r.headers[t.Name] = list
		}
	}
	return result.Get("nextCursor")
}

// lacksHeader reports whether the portal refused a call because a header is
// missing: before it looked at the call, so that it may be sent again.
func lacksHeader(raw json.RawMessage) bool {
	msg, err := wire.ParseMessage(raw)
	return err == nil && msg.Error != nil && msg.Error.Code == wire.CodeHeaderMismatch
}

// listHeaders lists the tools for a client that calls one from memory. It
// reports whether the tool has arguments that travel in headers.
func (r *relay) listHeaders(ctx context.Context, call wire.Message) bool {
	params, err := wire.ParseObject(call.Params)
	if err != nil {
		return false
	}
	meta := params.Get("_meta")
	tool := params.String("name")
	var cursor json.RawMessage
	for range 1000 {
		p := wire.Object{{Key: "_meta", Value: meta}}
		if cursor != nil {
			p = append(p, wire.Field{Key: "cursor", Value: cursor})
		}
		raw, err := r.exchange(ctx, wire.Message{ID: wire.Quote("mcp-portal-stdio-list"), Method: "tools/list", Params: p.Bytes()})
		if err != nil {
			return false
		}
		if cursor = r.learnHeaders(raw); cursor == nil {
			break
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.headers[tool]) > 0
}
