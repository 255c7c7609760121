package registry

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// URIs of resources stay as they are: links in results and tool metadata point
// at them. Two servers may offer the same one, so every resource also has an
// explicit address, portal+<server id>:<uri>, which always works. It is the
// outward URI of
//
//   - each resource whose URI more than one server offers, so that none of them
//     wins by coming first, and
//   - each resource whose own URI begins with "portal+", so that no server can
//     pose as another.
//
// Templates follow the same rules.

const explicitScheme = "portal+"

// ExplicitURI is the address of a server's resource that no other can share.
func ExplicitURI(server, uri string) string { return explicitScheme + server + ":" + uri }

// splitExplicit takes an explicit address apart.
func splitExplicit(uri string) (server, rest string, ok bool) {
	rest, ok = strings.CutPrefix(uri, explicitScheme)
	if !ok {
		return "", "", false
	}
	server, rest, ok = strings.Cut(rest, ":")
	return server, rest, ok && isServerID(server)
}

// outwardURI is the address clients see; shared says that another server has
// the same URI.
func outwardURI(server, uri string, shared bool) string {
	if shared || strings.HasPrefix(uri, explicitScheme) {
		return ExplicitURI(server, uri)
	}
	return uri
}

// Target is where a resources/read could go: the server and the URI as that
// server knows it.
type Target struct {
	Server, URI string
	Resource    *Resource // if it is listed
	// Template is, else, the one it fits. With neither only the server may know
	// the URI.
	Template *Template
}

// Targets returns every place that could be meant by a URI from a client, by
// server id: the resources listed under it or, if no server lists it, servers
// with a template it fits. An explicit address means its server only. The
// caller drops those the user may not see; more than one left means the client
// must use an explicit address (ExplicitURI).
func (s *Snapshot) Targets(uri string) []Target {
	only, own, explicit := splitExplicit(uri)
	if !explicit {
		only, own = "", uri
	}
	var out []Target
	for _, r := range s.resources[own] {
		if (only == "" || r.Server == only) && (explicit || !strings.HasPrefix(r.URI, explicitScheme)) {
			out = append(out, Target{Server: r.Server, URI: own, Resource: r})
		}
	}
	if out != nil {
		return out
	}
	for _, server := range s.apps[own] { // linked to, though not listed
		if only == "" || server == only {
			out = append(out, Target{Server: server, URI: own})
		}
	}
	if out != nil {
		return out
	}
	for _, srv := range s.Servers {
		if only != "" && srv.ID != only {
			continue
		}
		for _, t := range srv.Templates {
			if t.match != nil && t.match.MatchString(own) {
				out = append(out, Target{Server: srv.ID, URI: own, Template: t})
				break
			}
		}
	}
	if out == nil && explicit && s.byID[only] != nil {
		// A server may have given it out in a result: it knows.
		out = append(out, Target{Server: only, URI: own})
	}
	return out
}

// Names reports whether a server itself names a resource by that URI of its own:
// lists it, or links to it in the definition of a tool. What it does not name is
// made by a caller, by a template or otherwise.
func (s *Snapshot) Names(server, uri string) bool {
	return slices.Contains(s.apps[uri], server) || slices.ContainsFunc(s.resources[uri], func(r *Resource) bool { return r.Server == server })
}

// Resource returns the resources meant by an outward or original URI, by
// server id: usually one, several if servers share the URI.
func (s *Snapshot) Resource(uri string) []*Resource {
	var out []*Resource
	for _, t := range s.Targets(uri) {
		if t.Resource != nil {
			out = append(out, t.Resource)
		}
	}
	return out
}

// addressResources gives resources and templates of a new snapshot their
// outward addresses, which depend on all servers. Those that already have the
// right one are kept as they are. So are tools, whose user interfaces are
// resources. The second result is who links to which of those.
func addressResources(old *Snapshot, servers []*Server) (map[string][]*Resource, map[string][]string) {
	byURI, templates, apps := map[string][]string{}, map[string]int{}, map[string][]string{}
	for _, s := range servers {
		for _, r := range s.Resources {
			byURI[r.URI] = append(byURI[r.URI], s.ID)
		}
		for _, t := range s.Tools {
			if t.AppURI == "" {
				continue
			}
			if !slices.Contains(apps[t.AppURI], s.ID) {
				apps[t.AppURI] = append(apps[t.AppURI], s.ID)
			}
			if !slices.Contains(byURI[t.AppURI], s.ID) {
				byURI[t.AppURI] = append(byURI[t.AppURI], s.ID)
			}
		}
		for _, t := range s.Templates {
			templates[t.URITemplate]++
		}
	}
	out := make(map[string][]*Resource, len(byURI))
	for i, s := range servers {
		fresh := *s
		fresh.Resources, fresh.Templates = slices.Clone(s.Resources), slices.Clone(s.Templates)
		changed := false
		for j, r := range fresh.Resources {
			if want := outwardURI(s.ID, r.URI, len(byURI[r.URI]) > 1); want != r.Outward {
				c := *r
				c.Outward, c.Outer = want, c.object.SetString("uri", want).Bytes()
				fresh.Resources[j], changed = &c, true
			}
			out[r.URI] = append(out[r.URI], fresh.Resources[j])
		}
		for j, t := range fresh.Templates {
			if want := outwardURI(s.ID, t.URITemplate, templates[t.URITemplate] > 1); want != t.Outward {
				c := *t
				c.Outward, c.Outer = want, c.object.SetString("uriTemplate", want).Bytes()
				fresh.Templates[j], changed = &c, true
			}
		}
		if changed {
			sortResources(&fresh)
			servers[i] = &fresh
		}
	}
	if len(apps) > 0 {
		addressApps(old, servers, func(uri string) bool { return len(byURI[uri]) > 1 })
	}
	return out, apps
}

func sortResources(s *Server) {
	slices.SortFunc(s.Resources, func(a, b *Resource) int { return cmp.Compare(a.Outward, b.Outward) })
	slices.SortFunc(s.Templates, func(a, b *Template) int { return cmp.Compare(a.Outward, b.Outward) })
}

// templateMax bounds a template; matching costs time linear in it.
const templateMax = 2048

// templatePattern turns a URI template (RFC 6570, all four levels) into a
// pattern for the URIs it can expand to. It is generous about the values and
// strict about the literal parts, which is what tells servers apart.
func templatePattern(template string) (*regexp.Regexp, error) {
	if len(template) > templateMax {
		return nil, fmt.Errorf("uriTemplate is longer than %d bytes", templateMax)
	}
	var b strings.Builder
	b.WriteString(`\A`)
	for rest := template; rest != ""; {
		open := strings.IndexByte(rest, '{')
		if open < 0 {
			b.WriteString(regexp.QuoteMeta(rest))
			break
		}
		end := strings.IndexByte(rest[open:], '}')
		if end < 2 {
			return nil, fmt.Errorf("uriTemplate %q has an expression that does not end or is empty", template)
		}
		b.WriteString(regexp.QuoteMeta(rest[:open]))
		expr := rest[open+1 : open+end]
		rest = rest[open+end+1:]
		// A variable may be undefined, so each expression may expand to nothing.
		switch expr[0] {
		case '+':
			b.WriteString(`.*`)
		case '#':
			b.WriteString(`(?:#.*)?`)
		case '?', '&':
			b.WriteString(`(?:[?&][^/?#]*)?`)
		case '/':
			b.WriteString(`(?:/[^?#]*)?`)
		case '.', ';':
			b.WriteString(`(?:` + regexp.QuoteMeta(expr[:1]) + `[^/?#]*)?`)
		default:
			b.WriteString(`[^/?#]*`)
		}
	}
	b.WriteString(`\z`)
	return regexp.Compile(`(?s)` + b.String())
}
