package gateway

import (
	"context"
	"encoding/json"
	"slices"
	"sort"
	"strings"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/registry"
	"github.com/mcp-portal/mcp-portal/upstreams"
)

// view is what one caller sees in one request: a snapshot, narrowed by access
// rules and by the caller's own toggles. It never changes.
type view struct {
	set  *settings
	snap *registry.Snapshot
	who  *auth.Principal
	off  map[string]bool // servers switched off by the caller
}

func (g *Gateway) newView(ctx context.Context, set *settings, who *auth.Principal, grant string) *view {
	v := &view{set: set, snap: g.personal.snapshot(ctx, set, who), who: who}
	if grant != "" {
		v.off = g.toggles.off(ctx, grant)
	}
	return v
}

// allowed lists the servers the caller may use, switched off ones included.
func (v *view) allowed() []*registry.Server {
	var out []*registry.Server
	for _, s := range v.snap.Servers {
		if v.set.access.CanServer(v.who, s.ID) {
			out = append(out, s)
		}
	}
	return out
}

// servers lists the servers the caller sees.
func (v *view) servers() []*registry.Server {
	var out []*registry.Server
	for _, s := range v.allowed() {
		if !v.off[s.ID] {
			out = append(out, s)
		}
	}
	return out
}

// sees reports whether the caller may see and call the tool.
func (v *view) sees(t *registry.Tool) bool {
	return !v.off[t.Server] && v.set.access.CanServer(v.who, t.Server) && v.set.access.CanTool(v.who, t.Server, t.Name)
}

// toolsOf lists the visible tools of a server.
func (v *view) toolsOf(s *registry.Server) (out []*registry.Tool) {
	for _, t := range s.Tools {
		if v.sees(t) {
			out = append(out, t)
		}
	}
	return out
}

// tools lists the visible tools, sorted by outward name.
func (v *view) tools() []*registry.Tool {
	var out []*registry.Tool
	for _, s := range v.servers() {
		out = append(out, v.toolsOf(s)...)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Outward < out[j].Outward })
	return out
}

// tool finds a visible tool by its outward name.
func (v *view) tool(outward string) (*registry.Tool, bool) {
	t := v.snap.Tool(outward)
	if t == nil || !v.sees(t) {
		return nil, false
	}
	return t, true
}

// connecting is the visible server that an outward name belongs to, if that
// server has not been listed yet.
func (v *view) connecting(outward string) string {
	id, _, ok := strings.Cut(outward, "_")
	if len(v.snap.Servers) == 1 && v.snap.Servers[0].Bare {
		id, ok = v.snap.Servers[0].ID, true
	}
	if !ok || !v.shows(id) {
		return ""
	}
	if s := v.snap.Server(id); s != nil && s.State == upstreams.Connecting && len(s.Tools) == 0 {
		return id
	}
	return ""
}

// contents lists the servers whose prompts and resources the caller sees.
func (v *view) contents() []*registry.Server {
	return slices.DeleteFunc(v.servers(), func(s *registry.Server) bool { return !v.content(s.ID) })
}

func (v *view) prompts() []json.RawMessage {
	var out []json.RawMessage
	for _, s := range v.contents() {
		for _, p := range s.Prompts {
			out = append(out, p.Outer)
		}
	}
	return out
}

func (v *view) resources() []json.RawMessage {
	var out []json.RawMessage
	for _, s := range v.contents() {
		for _, r := range s.Resources {
			out = append(out, r.Outer)
		}
	}
	return out
}

func (v *view) templates() []json.RawMessage {
	var out []json.RawMessage
	for _, s := range v.contents() {
		for _, t := range s.Templates {
			out = append(out, t.Outer)
		}
	}
	return out
}

// resource says which server a URI of the client means and how that server
// knows it.
func (v *view) resource(uri string) (server, own string, ok bool) {
	for _, t := range v.snap.Targets(uri) {
		if v.content(t.Server) {
			return t.Server, t.URI, true
		}
	}
	return "", "", false
}

// templateRef finds the owner of a resource template or resource that a
// completion names by its outward URI.
func (v *view) templateRef(uri string) (server, own string, ok bool) {
	for _, s := range v.contents() {
		for _, t := range s.Templates {
			if t.Outward == uri {
				return s.ID, t.URITemplate, true
			}
		}
	}
	return v.resource(uri)
}
