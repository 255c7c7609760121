package registry

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/upstreams"
	"github.com/mcp-portal/mcp-portal/wire"
)

// descriptionMax bounds a server's own words about itself, in characters: they
// come back in every list of servers.
const descriptionMax = 300

// buildServer makes one server's part of a snapshot from its configuration,
// catalogue (nil: none known yet) and approved definitions. State and FromCache are the caller's. It
// depends on nothing else, in particular on no other server.
func buildServer(cfg config.Server, c *upstreams.Catalogue, nameMax int, pins *pinned) *Server {
	s := &Server{ID: cfg.ID, Identifier: ServerIdentifier(cfg.ID), Bare: !cfg.HasPrefix(), Title: cfg.Title, Description: cfg.Description}
	if c == nil {
		s.Title = cmp.Or(s.Title, s.ID)
		return s
	}
	if _, err := wire.ParseObject(c.ServerInfo); err != nil && len(c.ServerInfo) > 0 {
		s.Warnings = append(s.Warnings, fmt.Sprintf("serverInfo is not an object: %s", excerpt(c.ServerInfo)))
	}
	said, pending := pins.introduced(s.ID, introductionOf(c))
	if pending != nil {
		s.Pending = append(s.Pending, pending)
	}
	s.Instructions, s.Capabilities = said.Instructions, c.Capabilities
	s.Title = cmp.Or(s.Title, said.Title, s.ID)
	s.Description = cmp.Or(s.Description, said.Description, oneLine(said.Instructions))
	s.Warnings = append(s.Warnings, c.Warnings...)
	names := naming{max: nameMax, bare: !cfg.HasPrefix()}
	s.addTools(cfg, c.Tools, names, wire.Modern(c.ProtocolVersion) && len(cfg.Command) == 0, pins)
	s.addPrompts(c.Prompts, names)
	s.addResources(c.Resources, c.Templates)
	return s
}

func (s *Server) warn(format string, args ...any) {
	s.Warnings = append(s.Warnings, fmt.Sprintf(format, args...))
}

// addTools adds what the server lists. strictHeaders withholds tools whose
// x-mcp-header marks break the rules: over HTTP, clients of 2026-07-28 must not
// offer them.
func (s *Server) addTools(cfg config.Server, list []json.RawMessage, names naming, strictHeaders bool, pins *pinned) {
	seen := make(map[string]bool, len(list))
	entries := make([]listed, 0, len(list))
	for i, raw := range list {
		t, schema, note, err := outerTool(s.ID, raw, names)
		if t == nil {
			s.warn("tool %d of the list is withheld: %v", i+1, err)
			continue
		}
		if seen[t.Name] {
			s.warn("tool %q is listed twice: only the first counts", t.Name)
			continue
		}
		seen[t.Name] = true
		if !toolEnabled(cfg, t.Name) {
			s.Disabled = append(s.Disabled, Disabled{t.Name, t.Outward})
			continue
		}
		if err != nil {
			s.warn("tool %q is withheld: %v", t.Name, err)
			continue
		}
		if strictHeaders && t.badHeaders != "" {
			s.warn("tool %q is withheld: %s", t.Name, t.badHeaders)
			continue
		}
		if note != "" {
			s.warn("tool %q: %s", t.Name, note)
		}
		if p := pins.check(t); p != nil {
			s.Pending = append(s.Pending, p)
			if p.Held {
				continue
			}
		}
		entries = append(entries, listed{t, newDocument(t, s.Title, schema)})
	}
	s.warnPending(pins)
	// A switch for a tool that does not exist is most likely a misspelt name,
	// and then the tool it was meant for is not switched.
	missing := make([]string, 0, len(cfg.Tools))
	for name := range cfg.Tools {
		if !seen[name] {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	for _, name := range missing {
		s.warn("the configuration names tool %q, which the server does not offer", name)
	}
	kept, withheld := withoutTwins(entries)
	for _, t := range withheld {
		s.warn("tool %q is withheld: another tool of the server has the same outward name %s", t.Name, t.Outward)
	}
	for _, e := range kept {
		s.Tools, s.docs = append(s.Tools, e.tool), append(s.docs, e.doc)
	}
}

// warnPending says what is not as it was approved.
func (s *Server) warnPending(pins *pinned) {
	if pins.unread() {
		n := len(slices.DeleteFunc(slices.Clone(s.Pending), func(p *Pending) bool { return p.Tool == itself }))
		if n > 0 && pins.failed { // else it is a matter of milliseconds
			s.warn("%d tools are held back until their approved definitions can be read from the store (pin: review)", n)
		}
		return
	}
	for _, p := range s.Pending {
		switch {
		case p.Tool == itself && p.New: // approved as they are, in a moment
		case p.Tool == itself && p.Held:
			s.warn("what the server says of itself and its use is not what was approved, and agents are told what was; an administrator looks at the change on the page of pins (pin: review; %s)", p.Digest)
		case p.Tool == itself:
			s.warn("what the server says of itself and its use is not what was approved; an administrator looks at the change on the page of pins (pin: warn; %s)", p.Digest)
		case p.Held && p.New:
			s.warn("tool %q is new and held back until an administrator releases it on the page of pins (pin: review; %s)", p.Tool, p.Digest)
		case p.Held:
			s.warn("tool %q is held back: its definition is not the approved one; an administrator looks at the change on the page of pins (pin: review; %s)", p.Tool, p.Digest)
		case !p.New:
			s.warn("the definition of tool %q is not the approved one; an administrator looks at the change on the page of pins (pin: warn; %s)", p.Tool, p.Digest)
		}
	}
}

// listed is a tool with its words.
type listed struct {
	tool *Tool
	doc  document
}

// withoutTwins sorts by outward name and takes out tools that share one: none
// may have it, because which one it meant would depend on the others.
func withoutTwins(list []listed) (kept []listed, withheld []*Tool) {
	slices.SortFunc(list, func(a, b listed) int {
		return cmp.Or(cmp.Compare(a.tool.Outward, b.tool.Outward), cmp.Compare(a.tool.Name, b.tool.Name))
	})
	for i, e := range list {
		if i > 0 && list[i-1].tool.Outward == e.tool.Outward || i+1 < len(list) && list[i+1].tool.Outward == e.tool.Outward {
			withheld = append(withheld, e.tool)
		} else {
			kept = append(kept, e)
		}
	}
	return kept, withheld
}

// toolEnabled is the admin's switch for one tool.
func toolEnabled(cfg config.Server, name string) bool {
	if t, ok := cfg.Tools[name]; ok && t.Enabled != nil {
		return *t.Enabled
	}
	return !cfg.DefaultDisabled
}

func (s *Server) addPrompts(list []json.RawMessage, names naming) {
	seen, taken := make(map[string]bool, len(list)), make(map[string]int, len(list))
	var all []*Prompt
	for i, raw := range list {
		p, err := outerPrompt(s.ID, raw, names)
		switch {
		case err != nil:
			s.warn("prompt %d of the list is withheld: %v", i+1, err)
		case seen[p.Name]:
			s.warn("prompt %q is listed twice: only the first counts", p.Name)
		default:
			seen[p.Name] = true
			taken[p.Outward]++
			all = append(all, p)
		}
	}
	for _, p := range all {
		if taken[p.Outward] > 1 {
			s.warn("prompt %q is withheld: another prompt of the server has the same outward name %s", p.Name, p.Outward)
			continue
		}
		s.Prompts = append(s.Prompts, p)
	}
	slices.SortFunc(s.Prompts, func(a, b *Prompt) int { return cmp.Compare(a.Outward, b.Outward) })
}

func (s *Server) addResources(resources, templates []json.RawMessage) {
	seen := make(map[string]bool, len(resources))
	for i, raw := range resources {
		uri, o, err := outerResource(raw, "uri")
		switch {
		case err != nil:
			s.warn("resource %d of the list is withheld: %v", i+1, err)
		case seen[uri]:
			s.warn("resource %q is listed twice: only the first counts", uri)
		default:
			seen[uri] = true
			out := outwardURI(s.ID, uri, false)
			s.Resources = append(s.Resources, &Resource{Server: s.ID, URI: uri, Outward: out, Raw: raw, Outer: o.SetString("uri", out).Bytes(), object: o})
		}
	}
	clear(seen)
	for i, raw := range templates {
		uri, o, err := outerResource(raw, "uriTemplate")
		switch {
		case err != nil:
			s.warn("resource template %d of the list is withheld: %v", i+1, err)
		case seen[uri]:
			s.warn("resource template %q is listed twice: only the first counts", uri)
		default:
			seen[uri] = true
			match, err := templatePattern(uri)
			if err != nil {
				s.warn("resource template %q is listed, but URIs cannot be matched with it: %v", excerpt([]byte(uri)), err)
			}
			out := outwardURI(s.ID, uri, false)
			s.Templates = append(s.Templates, &Template{Server: s.ID, URITemplate: uri, Outward: out, Raw: raw, Outer: o.SetString("uriTemplate", out).Bytes(), object: o, match: match})
		}
	}
	sortResources(s)
}

// oneLine is a server's own text made fit for a list: one line, bounded, no
// control characters.
func oneLine(s string) string {
	var b strings.Builder
	n, space := 0, false
	for _, r := range s {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			space = n > 0
			continue
		}
		if n >= descriptionMax {
			return b.String() + "…"
		}
		if space {
			b.WriteByte(' ')
			n++
			space = false
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}

// sameOffers reports whether clients get the same from both parts.
func sameOffers(a, b *Server) bool {
	return a.Identifier == b.Identifier && a.Bare == b.Bare && a.Title == b.Title && a.Description == b.Description && a.Instructions == b.Instructions && bytes.Equal(a.Capabilities, b.Capabilities) &&
		slices.EqualFunc(a.Tools, b.Tools, func(x, y *Tool) bool {
			return x == y || bytes.Equal(x.Raw, y.Raw) && x.Outward == y.Outward && bytes.Equal(x.Outer, y.Outer)
		}) &&
		slices.EqualFunc(a.Prompts, b.Prompts, func(x, y *Prompt) bool { return x == y || bytes.Equal(x.Raw, y.Raw) && x.Outward == y.Outward }) &&
		slices.EqualFunc(a.Resources, b.Resources, func(x, y *Resource) bool { return x == y || bytes.Equal(x.Raw, y.Raw) && x.Outward == y.Outward }) &&
		slices.EqualFunc(a.Templates, b.Templates, func(x, y *Template) bool { return x == y || bytes.Equal(x.Raw, y.Raw) && x.Outward == y.Outward })
}

// sameServer reports whether nothing at all differs.
func sameServer(a, b *Server) bool {
	return a == b || a.ID == b.ID && a.State == b.State && a.FromCache == b.FromCache && slices.Equal(a.Warnings, b.Warnings) && slices.EqualFunc(a.Pending, b.Pending, samePending) && slices.Equal(a.Disabled, b.Disabled) && sameOffers(a, b)
}

// sameCatalogue compares byte for byte.
func sameCatalogue(a, b *upstreams.Catalogue) bool {
	if a == nil || b == nil {
		return a == b
	}
	same := func(x, y []json.RawMessage) bool {
		return slices.EqualFunc(x, y, func(p, q json.RawMessage) bool { return bytes.Equal(p, q) })
	}
	return a.ProtocolVersion == b.ProtocolVersion && a.Instructions == b.Instructions &&
		bytes.Equal(a.ServerInfo, b.ServerInfo) && bytes.Equal(a.Capabilities, b.Capabilities) && slices.Equal(a.Warnings, b.Warnings) &&
		same(a.Tools, b.Tools) && same(a.Prompts, b.Prompts) && same(a.Resources, b.Resources) && same(a.Templates, b.Templates)
}
