package registry

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/wire"
)

// Ways of pin, as in the configuration.
const (
	pinOff    = "off"
	pinWarn   = "warn"
	pinReview = "review"
)

// Pending is a definition that is not the approved one of its tool, or words of
// a server about itself that are not the approved ones.
type Pending struct {
	Server  string          `json:"server"`
	Tool    string          `json:"tool"` // original name; "" is the server itself
	Outward string          `json:"outward"`
	New     bool            `json:"new"`    // no definition of the tool was approved
	Held    bool            `json:"held"`   // the tool is neither listed nor callable until it is released
	Digest  string          `json:"digest"` // of Now; names what is released
	Was     json.RawMessage `json:"was,omitempty"`
	Now     json.RawMessage `json:"now"`
}

// pinnedMembers are those by which a tool tells a model, and the guard, what
// it is and does. A change of another, an icon say, needs no person.
var pinnedMembers = []string{"title", "description", "inputSchema", "outputSchema", "annotations"}

// pinDefinition is what of a tool is pinned, in one form whatever the order of
// members and the whitespace: these are no changes.
func pinDefinition(raw json.RawMessage) (json.RawMessage, error) {
	o, err := wire.ParseObject(raw)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for _, name := range pinnedMembers {
		v := o.Get(name)
		if v == nil {
			continue
		}
		d := json.NewDecoder(bytes.NewReader(v))
		d.UseNumber()
		var x any
		if err := d.Decode(&x); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if x != nil {
			out[name] = x
		}
	}
	return json.Marshal(out)
}

func digestOf(definition []byte) string {
	sum := sha256.Sum256(definition)
	return hex.EncodeToString(sum[:8])
}

// pinned is what is known of the approved definitions of one server. It is
// immutable; nil pins nothing.
type pinned struct {
	mode string
	// approved are definitions by original name. Nil: the store was not read
	// yet, or cannot be.
	approved map[string]json.RawMessage
	failed   bool // reading it was tried in vain
	ofOne    bool // it judges the list of one user
}

// check compares a tool with what was approved. Nil: it is that, or nothing is
// pinned.
func (p *pinned) check(t *Tool) *Pending {
	if p == nil || p.mode == pinOff || p.approved == nil && p.mode != pinReview {
		return nil
	}
	now, err := pinDefinition(t.Raw)
	if err != nil {
		return nil // it does not get here: outerTool has parsed it
	}
	pending := p.compare(t.Server, t.Name, now)
	if pending != nil {
		pending.Outward = t.Outward
	}
	return pending
}

// compare looks a definition up among the approved ones.
func (p *pinned) compare(server, name string, now json.RawMessage) *Pending {
	if p == nil || p.mode == pinOff || p.approved == nil && p.mode != pinReview {
		return nil
	}
	was, known := p.approved[name]
	if known && bytes.Equal(was, now) {
		return nil
	}
	return &Pending{Server: server, Tool: name, New: !known, Held: p.mode == pinReview, Digest: digestOf(now), Was: was, Now: now}
}

// unread reports whether tools are held because nobody knows what was
// approved.
func (p *pinned) unread() bool { return p != nil && p.mode == pinReview && p.approved == nil }

// pinMode is how a server's definitions are pinned.
func (r *Registry) pinMode(cfg config.Server) string {
	return cmp.Or(cfg.Pin, r.pinDefault, pinOff)
}

// Difference is one place where a definition is not as it was.
type Difference struct {
	Path        string // "inputSchema.properties.id.description"
	Was, Is     string // texts as they are, all else as JSON
	Added, Gone bool   // it was not there before, or is not any more
}

// Differences compares two definitions leaf by leaf, in the order of paths.
func Differences(was, now json.RawMessage) (out []Difference) {
	before, after := leaves(was), leaves(now)
	paths := slices.Collect(maps.Keys(before))
	for p := range after {
		if _, ok := before[p]; !ok {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	for _, p := range paths {
		a, had := before[p]
		b, has := after[p]
		if a != b || had != has {
			out = append(out, Difference{Path: p, Was: a, Is: b, Added: !had, Gone: !has})
		}
	}
	return out
}

// leaves are the values of a definition that hold no others, by path.
func leaves(raw json.RawMessage) map[string]string {
	out := map[string]string{}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if len(raw) == 0 || d.Decode(&v) != nil {
		return out
	}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		at := func(name string) string {
			if strings.ContainsAny(name, ".[\"") || name == "" {
				name = strconv.Quote(name)
			}
			if path == "" {
				return name
			}
			return path + "." + name
		}
		switch v := v.(type) {
		case map[string]any:
			if len(v) == 0 && path != "" {
				out[path] = "{}"
			}
			for k, x := range v {
				walk(at(k), x)
			}
		case []any:
			if len(v) == 0 {
				out[path] = "[]"
			}
			for i, x := range v {
				walk(path+"["+strconv.Itoa(i)+"]", x)
			}
		case string:
			if out[path] = v; json.Valid([]byte(v)) { // "1" is not 1
				out[path] = strconv.Quote(v)
			}
		case nil:
			out[path] = "null"
		default:
			out[path] = fmt.Sprint(v)
		}
	}
	walk("", v)
	return out
}

// Pending lists the definitions that are not the approved ones, of lists for
// all and of lists of users.
func (r *Registry) Pending() (out []*Pending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[[3]string]bool{}
	add := func(list []*Pending) {
		for _, p := range list {
			if p.Tool == itself && p.New {
				continue // approved as they are, in a moment
			}
			if k := [3]string{p.Server, p.Tool, p.Digest}; !seen[k] {
				seen[k] = true
				out = append(out, p)
			}
		}
	}
	for _, e := range r.servers {
		if e.pins.unread() {
			continue // there is nothing to decide on
		}
		add(e.part.Pending)
		for _, own := range e.own {
			add(own.list.part.Pending)
		}
	}
	slices.SortFunc(out, func(a, b *Pending) int {
		return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Tool, b.Tool), cmp.Compare(a.Digest, b.Digest))
	})
	return out
}

// samePending reports whether the same is pending.
func samePending(a, b *Pending) bool {
	return a.Tool == b.Tool && a.Outward == b.Outward && a.Digest == b.Digest && a.Held == b.Held && a.New == b.New && bytes.Equal(a.Was, b.Was)
}

// Held finds a tool that is held back by its outward name; false if there
// is none.
func (s *Snapshot) Held(outward string) (*Pending, bool) {
	for _, srv := range s.Servers {
		for _, p := range srv.Pending {
			if p.Held && p.Tool != itself && p.Outward == outward {
				return p, true
			}
		}
	}
	return nil, false
}
