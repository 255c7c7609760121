package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/mcp-portal/mcp-portal/codemode"
	"github.com/mcp-portal/mcp-portal/registry"
	"github.com/mcp-portal/mcp-portal/upstreams/openapi"
	"github.com/mcp-portal/mcp-portal/wire"
)

// Scripts see servers that are HTTP APIs as their documents, too: codemode.spec
// gives the document, codemode.request names an operation by method and path.
// Neither is a way past the door: a request becomes the call of its tool.

func invalid(format string, args ...any) error {
	return &codemode.HostError{Code: "invalid_arguments", Message: fmt.Sprintf(format, args...)}
}

// document finds the document of a server that the caller sees. name may be
// empty if there is only one.
func (h *host) document(helper, name string) (*registry.Server, *openapi.Document, error) {
	var with []*registry.Server
	var ids []string
	for _, s := range h.req.view.servers() {
		if h.g.opt.Upstreams.Document(s.ID) != nil {
			with, ids = append(with, s), append(ids, s.ID)
		}
		if s.ID == name || s.Identifier == name || strings.ReplaceAll(s.ID, "-", "_") == name {
			name = s.ID
		}
	}
	if name == "" && len(with) == 1 {
		name = with[0].ID
	}
	for _, s := range with {
		if s.ID == name {
			return s, h.g.opt.Upstreams.Document(s.ID), nil
		}
	}
	switch {
	case len(with) == 0:
		return nil, nil, invalid("%s is for servers that are HTTP APIs with an OpenAPI document, and there is none for you now. Find tools with codemode.search.", helper)
	case name == "":
		return nil, nil, invalid("%s needs a server: one of %s.", helper, bounded(strings.Join(ids, ", "), 300))
	}
	return nil, nil, invalid("%s: %q is no server with an OpenAPI document; those are %s. Call the tools of others by name.", helper, bounded(name, 60), bounded(strings.Join(ids, ", "), 300))
}

// toolOf is the tool of an operation, if the caller sees it.
func (h *host) toolOf(s *registry.Server, operation string) *registry.Tool {
	t := h.req.view.snap.ToolByIdentity(s.ID, operation)
	if t == nil || !h.req.view.sees(t) {
		return nil
	}
	return t
}

// spec answers codemode.spec(server, {paths, tags, operations, search, full}).
func (h *host) spec(args []json.RawMessage) (json.RawMessage, error) {
	var name string
	if len(args) > 0 && json.Unmarshal(args[0], &name) != nil {
		return nil, invalid(`codemode.spec takes the id of a server, then what to choose: codemode.spec("shop", {paths: "/items/*"}).`)
	}
	v, err := specView(args)
	if err != nil {
		return nil, err
	}
	s, d, err := h.document("codemode.spec", name)
	if err != nil {
		return nil, err
	}
	raw, err := d.Spec(v, h.req.set.cfg.Code.MaxCallResult, func(op string) string {
		if t := h.toolOf(s, op); t != nil {
			return t.Identifier
		}
		return ""
	})
	if err != nil {
		return nil, invalid("codemode.spec(%q): %v.", s.ID, err)
	}
	return raw, nil
}

func specView(args []json.RawMessage) (v openapi.View, err error) {
	if len(args) < 2 || string(args[1]) == "null" {
		return v, nil
	}
	o, err := wire.ParseObject(args[1])
	if err != nil {
		return v, invalid("the second argument of codemode.spec is an object with paths, tags, operations, search or full.")
	}
	list := func(raw json.RawMessage) (out []string, ok bool) {
		var one string
		if json.Unmarshal(raw, &one) == nil {
			return []string{one}, true
		}
		return out, json.Unmarshal(raw, &out) == nil
	}
	for _, f := range o {
		ok := true
		switch f.Key {
		case "paths", "path":
			v.Paths, ok = list(f.Value)
		case "tags", "tag":
			v.Tags, ok = list(f.Value)
		case "operations", "operation":
			v.Operations, ok = list(f.Value)
		case "search":
			ok = json.Unmarshal(f.Value, &v.Search) == nil
		case "full":
			ok = json.Unmarshal(f.Value, &v.Full) == nil
		default:
			return v, invalid("codemode.spec has no option %q: it takes paths, tags, operations, search and full.", bounded(f.Key, 60))
		}
		if !ok {
			return v, invalid("the option %s of codemode.spec has the wrong type: paths, tags and operations are texts or lists of them, search is text, full is a boolean.", f.Key)
		}
	}
	return v, nil
}

// request says which tool codemode.request({server, method, path, query, body})
// is a call of, and with which arguments.
func (h *host) request(args []json.RawMessage) (json.RawMessage, error) {
	const usage = `codemode.request takes one object: {server, method, path, query, body}, such as {server: "shop", method: "GET", path: "/items/7"}.`
	if len(args) != 1 {
		return nil, invalid(usage)
	}
	o, err := wire.ParseObject(args[0])
	if err != nil {
		return nil, invalid(usage)
	}
	for _, f := range o {
		switch f.Key {
		case "server", "method", "path", "query", "body", "headers", "contentType":
		default:
			return nil, invalid("codemode.request has no member %q. %s", bounded(f.Key, 60), usage)
		}
	}
	var t openapi.Target
	if json.Unmarshal(args[0], &t) != nil || t.Path == "" {
		return nil, invalid(usage)
	}
	s, d, err := h.document("codemode.request", o.String("server"))
	if err != nil {
		return nil, err
	}
	base := ""
	cfg := h.req.set.cfg.Servers[s.ID]
	if u, err := url.Parse(cfg.URL); err == nil && cfg.URL != "" {
		base = u.EscapedPath()
	} else if at, err := url.Parse(cfg.OpenAPI); err == nil && d.Base(at) != nil {
		base = d.Base(at).EscapedPath()
	}
	op, arguments, err := d.Resolve(t, base)
	var unknown *openapi.Unknown
	switch {
	case errors.As(err, &unknown):
		if any := h.toolOf(s, openapi.AnyRequestTool); any != nil {
			return h.anyRequest(any, t)
		}
		return nil, h.noOperation(s, d, unknown)
	case err != nil:
		return nil, invalid("codemode.request: %v. Nothing was sent.", err)
	}
	tool := h.toolOf(s, op.Name)
	if tool == nil {
		return nil, h.noOperation(s, d, &openapi.Unknown{Method: op.Method, Path: t.Path})
	}
	return requestAnswer(tool, op.Method+" "+op.Path, arguments), nil
}

func requestAnswer(t *registry.Tool, request string, arguments json.RawMessage) json.RawMessage {
	return wire.Object{{Key: "tool", Value: wire.Quote(t.Outward)}, {Key: "request", Value: wire.Quote(request)}, {Key: "arguments", Value: arguments}}.Bytes()
}

// anyRequest is the call of the tool for what the document does not have.
func (h *host) anyRequest(tool *registry.Tool, t openapi.Target) (json.RawMessage, error) {
	if t.Method == "" {
		t.Method = "GET"
	}
	o := wire.Object{{Key: "method", Value: wire.Quote(strings.ToUpper(t.Method))}, {Key: "path", Value: wire.Quote(t.Path)}}
	if t.Query != nil {
		o = append(o, wire.Field{Key: "query", Value: t.Query})
	}
	if t.Body != nil {
		o = append(o, wire.Field{Key: "body", Value: t.Body})
	}
	return requestAnswer(tool, strings.ToUpper(t.Method)+" "+bounded(t.Path, 100), o.Bytes()), nil
}

// noOperation names the operations that may have been meant.
func (h *host) noOperation(s *registry.Server, d *openapi.Document, u *openapi.Unknown) error {
	msg := fmt.Sprintf("%s has no operation %s %s for you. Nothing was sent.", s.ID, bounded(u.Method, 20), bounded(u.Path, 200))
	near := d.Nearest(u.Method, u.Path, 3, func(op *openapi.Operation) bool { return h.toolOf(s, op.Name) != nil })
	if len(near) == 0 {
		return &codemode.HostError{Code: "unknown_operation", Message: msg + fmt.Sprintf(" See what there is with codemode.spec(%q, {search: \"words\"}).", s.ID)}
	}
	var list []string
	for _, op := range near {
		list = append(list, op.Method+" "+op.Path)
	}
	return &codemode.HostError{Code: "unknown_operation", Message: msg + " Near: " + strings.Join(list, ", ") + "."}
}
