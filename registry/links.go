package registry

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/mcp-portal/mcp-portal/wire"
)

// Results and tools point at resources by URI. Where the plain URI would lead
// elsewhere or nowhere, clients get the explicit address instead.

// Outward is the address under which a client reaches a URI that a server
// pointed at: the URI itself if it leads to that server and no other, or if
// clients fetch it from the web themselves; else its explicit address.
func (s *Snapshot) Outward(server, uri string) string {
	targets := s.Targets(uri)
	switch {
	case strings.HasPrefix(uri, explicitScheme), len(targets) > 1, len(targets) == 1 && targets[0].Server != server:
		return ExplicitURI(server, uri)
	case len(targets) == 0 && !onTheWeb(uri):
		return ExplicitURI(server, uri)
	}
	return uri
}

// Ambiguous reports whether a URI that a server speaks of could be taken for
// another server's.
func (s *Snapshot) Ambiguous(server, uri string) bool {
	for _, t := range s.Targets(uri) {
		if t.Server != server {
			return true
		}
	}
	return strings.HasPrefix(uri, explicitScheme)
}

func onTheWeb(uri string) bool {
	scheme, _, ok := strings.Cut(uri, ":")
	switch strings.ToLower(scheme) {
	case "http", "https", "data", "mailto":
		return ok
	}
	return !ok || uri == ""
}

// Members of a tool's _meta that point at its user interface (MCP apps): the
// present one, an object with resourceUri, and the earlier one. Those of others
// (openai/outputTemplate) repeat the same address.
const (
	metaUI    = "ui"
	metaUIOld = "ui/resourceUri"
)

// appURI is the resource that a tool's user interface comes from; empty if it
// has none.
func appURI(tool wire.Object) string {
	raw := tool.Get("_meta")
	if !bytes.Contains(raw, []byte("resourceUri")) {
		return ""
	}
	meta, err := wire.ParseObject(raw)
	if err != nil {
		return ""
	}
	if ui, err := wire.ParseObject(meta.Get(metaUI)); err == nil {
		if uri := ui.String("resourceUri"); uri != "" {
			return uri
		}
	}
	return meta.String(metaUIOld)
}

// WithAppURI is an object with a _meta, a tool or a result, whose user
// interface is at another address. The bytes are those given if it has none.
func WithAppURI(raw json.RawMessage, from, to string) json.RawMessage {
	o, err := wire.ParseObject(raw)
	if err != nil {
		return raw
	}
	meta, err := wire.ParseObject(o.Get("_meta"))
	if err != nil {
		return raw
	}
	changed := false
	if ui, err := wire.ParseObject(meta.Get(metaUI)); err == nil && ui.String("resourceUri") == from {
		meta, changed = meta.Set(metaUI, ui.SetString("resourceUri", to).Bytes()), true
	}
	for _, f := range meta {
		if meta.String(f.Key) == from {
			meta, changed = meta.SetString(f.Key, to), true
		}
	}
	if !changed {
		return raw
	}
	return o.Set("_meta", meta.Bytes()).Bytes()
}

// AppURI is the resource that an object with a _meta points at as its user
// interface; empty if there is none.
func AppURI(raw json.RawMessage) string {
	o, err := wire.ParseObject(raw)
	if err != nil {
		return ""
	}
	return appURI(o)
}

// addressApps gives the tools of new parts the outward addresses of their user
// interfaces. Tools of the snapshot before are kept where they are the same:
// search relies on that.
func addressApps(old *Snapshot, servers []*Server, shared func(uri string) bool) {
	for i, s := range servers {
		var fresh *Server
		for j, t := range s.Tools {
			if t.AppURI == "" || !shared(t.AppURI) && !strings.HasPrefix(t.AppURI, explicitScheme) {
				continue
			}
			c := *t
			c.Outer = WithAppURI(t.Outer, t.AppURI, ExplicitURI(s.ID, t.AppURI))
			if old != nil {
				if before := old.byIdentity[identity{s.ID, t.Name}]; before != nil && bytes.Equal(before.Raw, c.Raw) && bytes.Equal(before.Outer, c.Outer) {
					if fresh == nil {
						fresh = withTools(s)
					}
					fresh.Tools[j] = before
					continue
				}
			}
			if fresh == nil {
				fresh = withTools(s)
			}
			fresh.Tools[j] = &c
		}
		if fresh != nil {
			servers[i] = fresh
		}
	}
}

func withTools(s *Server) *Server {
	fresh := *s
	fresh.Tools = append([]*Tool(nil), s.Tools...)
	return &fresh
}
