package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/mcp-portal/mcp-portal/wire"
)

// wholeMost is the size up to which somebody who looks at a document without
// choosing gets all of it; of a larger one an index.
const wholeMost = 256 << 10

// View chooses a part of a document. Empty: all of it, or an index.
type View struct {
	Paths      []string // patterns as in meansOperation
	Tags       []string // patterns
	Operations []string // operationIds or tools
	Search     string   // words that method, path, id, summary and tags together must have
	Full       bool     // all, however large
}

func (v View) chooses() bool { return len(v.Paths)+len(v.Tags)+len(v.Operations) > 0 || v.Search != "" }

func (v View) takes(op *Operation) bool {
	if !v.chooses() {
		return true
	}
	if len(v.Paths) > 0 && !matchesAny(v.Paths, op) {
		return false
	}
	if len(v.Tags) > 0 {
		tags := make([]string, 0, len(v.Tags))
		for _, t := range v.Tags {
			tags = append(tags, "tag:"+t)
		}
		if !matchesAny(tags, op) {
			return false
		}
	}
	if len(v.Operations) > 0 && !contains(v.Operations, op.ID) && !contains(v.Operations, op.Name) {
		return false
	}
	text := strings.ToLower(op.Method + " " + op.Path + " " + op.ID + " " + op.Summary + " " + strings.Join(op.Tags, " "))
	for w := range strings.FieldsSeq(strings.ToLower(v.Search)) {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// Spec writes the document for somebody who looks: its references as they are,
// and what they lead to. tool names the tool of an operation; those without one
// are left out. The whole is at most so many bytes, or an error that says how to
// choose.
//
// x-portal says what it is: an index (of each operation only operationId,
// summary, tags and x-tool), a part, or all; and whether references were left
// out for their size.
func (d *Document) Spec(v View, most int, tool func(op string) string) (json.RawMessage, error) {
	defer d.forget()
	index := !v.chooses() && !v.Full && len(d.raw) > wholeMost
	kind := "all"
	switch {
	case index:
		kind = "index"
	case v.chooses():
		kind = "part"
	}
	paths, count, shown := d.specPaths(v, index, tool)
	if count == 0 && v.chooses() {
		return nil, fmt.Errorf("none of the %d operations is chosen by %s: choose by paths (\"/zones/*\"), tags, operations or search", shown, describeView(v))
	}
	size := 0
	for _, p := range paths {
		size += len(p.Key) + len(p.Value)
	}
	if size > most*9/10 {
		return nil, fmt.Errorf("that is %d operations of %d bytes, more than the %d that a script may receive at once: choose fewer with paths (\"/zones/*\"), tags, operations or search", count, size, most)
	}
	out := wire.Object{}
	for _, key := range []string{"openapi", "swagger", "info", "servers", "host", "basePath"} {
		if f := d.root.Get(key); f != nil {
			out = append(out, wire.Field{Key: key, Value: f})
		}
	}
	out = append(out, wire.Field{Key: "paths", Value: paths.Bytes()})
	cutOff := false
	if !index {
		var more wire.Object
		more, cutOff = d.reached(paths, most-len(out.Bytes()))
		out = append(out, more...)
	}
	about := wire.Object{{Key: "view", Value: wire.Quote(kind)}, {Key: "operations", Value: wire.Encode(count)}, {Key: "of", Value: wire.Encode(shown)}, {Key: "cut", Value: wire.Encode(cutOff)}}
	return append(out, wire.Field{Key: "x-portal", Value: about.Bytes()}).Bytes(), nil
}

func describeView(v View) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "that"
	}
	return cut(string(b), 200)
}

// specPaths writes paths with the operations that are chosen.
func (d *Document) specPaths(v View, index bool, tool func(string) string) (out wire.Object, count, shown int) {
	byPath := map[string]map[string]*Operation{}
	var order []string
	for _, op := range d.Operations {
		name := tool(op.Name)
		if name == "" {
			continue
		}
		shown++
		if !v.takes(op) {
			continue
		}
		count++
		if byPath[op.Path] == nil {
			byPath[op.Path] = map[string]*Operation{}
			order = append(order, op.Path)
		}
		byPath[op.Path][strings.ToLower(op.Method)] = op
	}
	out = wire.Object{}
	source, _ := wire.ParseObject(d.root.Get("paths")) // read before
	items := make(map[string]json.RawMessage, len(source))
	for _, f := range source {
		items[f.Key] = f.Value
	}
	for _, path := range order {
		ops := byPath[path]
		var item wire.Object
		for _, f := range d.follow(items[path]) {
			op := ops[f.Key]
			switch {
			case op != nil && index:
				item = append(item, wire.Field{Key: f.Key, Value: op.indexed(tool(op.Name))})
			case op != nil:
				o, _ := wire.ParseObject(f.Value) // read before
				item = append(item, wire.Field{Key: f.Key, Value: append(wire.Object{{Key: "x-tool", Value: wire.Quote(tool(op.Name))}}, o.Without("x-tool")...).Bytes()})
			case !index && !contains(methods(), f.Key):
				item = append(item, f)
			}
		}
		out = append(out, wire.Field{Key: path, Value: item.Bytes()})
	}
	return out, count, shown
}

func (op *Operation) indexed(tool string) json.RawMessage {
	o := wire.Object{}
	if op.ID != "" {
		o = append(o, wire.Field{Key: "operationId", Value: wire.Quote(op.ID)})
	}
	if op.Summary != "" {
		o = append(o, wire.Field{Key: "summary", Value: wire.Quote(oneLine(op.Summary, 200))})
	}
	if len(op.Tags) > 0 {
		o = append(o, wire.Field{Key: "tags", Value: wire.Encode(op.Tags)})
	}
	if op.Deprecated {
		o = append(o, wire.Field{Key: "deprecated", Value: json.RawMessage("true")})
	}
	return append(o, wire.Field{Key: "x-tool", Value: wire.Quote(tool)}).Bytes()
}

// reached are the parts of the document that references lead to, nearest first,
// as far as the room allows: components (or what Swagger has instead) by kind
// and name, others under x-refs.
func (d *Document) reached(paths wire.Object, room int) (out wire.Object, cutOff bool) {
	seen := map[string]bool{}
	var queue []string
	find := func(raw []byte) {
		for _, ref := range refsIn(raw) {
			if !seen[ref] {
				seen[ref] = true
				queue = append(queue, ref)
			}
		}
	}
	for _, p := range paths {
		find(p.Value)
	}
	components, named, other := map[string]wire.Object{}, map[string]wire.Object{}, wire.Object{}
	var kinds, tops []string
	for len(queue) > 0 {
		ref := queue[0]
		queue = queue[1:]
		target := d.lookup(ref)
		if target == nil || len(ref) < 3 {
			continue
		}
		if room -= len(target) + len(ref); room < 0 {
			cutOff = true
			break
		}
		find(target)
		parts := strings.Split(ref[2:], "/")
		for i, p := range parts {
			if u, err := url.PathUnescape(p); err == nil {
				p = u
			}
			parts[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(p)
		}
		switch {
		case len(parts) == 3 && parts[0] == "components":
			if components[parts[1]] == nil {
				kinds = append(kinds, parts[1])
			}
			components[parts[1]] = append(components[parts[1]], wire.Field{Key: parts[2], Value: target})
		case len(parts) == 2 && parts[0] != "paths" && parts[0] != "components" && parts[0] != "info":
			if named[parts[0]] == nil {
				tops = append(tops, parts[0])
			}
			named[parts[0]] = append(named[parts[0]], wire.Field{Key: parts[1], Value: target})
		default:
			other = append(other, wire.Field{Key: ref, Value: target})
		}
	}
	if len(kinds) > 0 {
		all := wire.Object{}
		for _, k := range kinds {
			all = append(all, wire.Field{Key: k, Value: components[k].Bytes()})
		}
		out = append(out, wire.Field{Key: "components", Value: all.Bytes()})
	}
	for _, k := range tops {
		out = append(out, wire.Field{Key: k, Value: named[k].Bytes()})
	}
	if len(other) > 0 {
		out = append(out, wire.Field{Key: "x-refs", Value: other.Bytes()})
	}
	return out, cutOff
}

// refsIn are the references in some JSON, in order. What only looks like one,
// in an example say, does no harm.
func refsIn(raw []byte) []string {
	var out []string
	for {
		i := bytes.Index(raw, []byte(`"$ref"`))
		if i < 0 {
			return out
		}
		raw = bytes.TrimLeft(raw[i+len(`"$ref"`):], " \t\r\n:")
		if len(raw) == 0 || raw[0] != '"' {
			continue
		}
		end := 1
		for end < len(raw) && raw[end] != '"' {
			if raw[end] == '\\' {
				end++
			}
			end++
		}
		if end < len(raw) {
			var ref string
			if json.Unmarshal(raw[:end+1], &ref) == nil && strings.HasPrefix(ref, "#/") {
				out = append(out, ref)
			}
			raw = raw[end:]
		}
	}
}
