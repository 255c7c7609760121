package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// decoder fills the types of config.go from a YAML tree. It never stops at the
// first error: what cannot be decoded keeps its default and is remembered as
// broken, so that later checks do not report consequences of the same mistake.
type decoder struct {
	file    string
	env     func(string) (string, bool)
	limits  map[string]limit
	errs    Errors
	keys    map[string]position // of each key present, by its path
	values  map[string]position // of each value present, by its path
	broken  map[string]bool     // paths that already have an error
	written map[string]string   // texts as written, before substitution, by path
	anchors map[string]ast.Node
	aliases int               // followed so far
	sources map[string]Secret // files read, with the fingerprint of their content; "" for unreadable
	plain   map[string]place  // secrets that stand in the file itself, by path
}

// maxAliases bounds how often aliases may be used, so that a small file cannot
// become a huge configuration.
const maxAliases = 1000

func newDecoder(file string, env func(string) (string, bool)) *decoder {
	return &decoder{
		file: file, env: env, limits: limits(),
		keys: map[string]position{}, values: map[string]position{},
		broken: map[string]bool{}, written: map[string]string{}, anchors: map[string]ast.Node{}, sources: map[string]Secret{}, plain: map[string]place{},
	}
}

// place is where a value belongs: its path in the file for people, and its
// generic path (* and []) for the limits.
type place struct{ path, generic string }

func (p place) key(name string) place {
	return place{join(p.path, name), join(p.generic, name)}
}

func (p place) entry(name string) place {
	return place{join(p.path, name), join(p.generic, "*")}
}

func (p place) item(i int) place {
	return place{fmt.Sprintf("%s[%d]", p.path, i), p.generic + "[]"}
}

// join appends a key to a path. Keys that would be ambiguous are quoted.
func join(path, key string) string {
	if key == "" || strings.ContainsAny(key, ".[]\" \t\n:") {
		return path + fmt.Sprintf("[%q]", key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func (d *decoder) fail(at position, path, format string, args ...any) {
	d.broken[path] = true
	d.errs = append(d.errs, Error{File: d.file, Line: at.line, Column: at.column, Path: path, Message: fmt.Sprintf(format, args...)})
}

// resolve removes anchors and aliases around a node; tags are refused because
// every key has one type already. nil means an error was reported.
func (d *decoder) resolve(n ast.Node, at position, path string) ast.Node {
	for range maxDepth {
		switch x := n.(type) {
		case *ast.AnchorNode:
			n = x.Value
		case *ast.AliasNode:
			name := ""
			if x.Value != nil {
				name = x.Value.GetToken().Value
			}
			target, ok := d.anchors[name]
			if d.aliases++; d.aliases > maxAliases {
				d.fail(at, path, "more than %d aliases in the file; write values out", maxAliases)
				return nil
			}
			if !ok {
				d.fail(at, path, "alias *%s has no anchor &%s; define it or write the value out", name, name)
				return nil
			}
			n = target
		case *ast.TagNode:
			d.fail(at, path, "tags like %s are not supported; remove the tag", x.GetToken().Value)
			return nil
		default:
			return n
		}
	}
	d.fail(at, path, "alias that refers to itself; write the value out")
	return nil
}

// collectAnchors remembers the anchors of the tree. ast.Walk visits every node
// once and does not follow aliases.
type collectAnchors struct{ d *decoder }

func (c collectAnchors) Visit(n ast.Node) ast.Visitor {
	if a, ok := n.(*ast.AnchorNode); ok && a.Name != nil {
		c.d.anchors[a.Name.GetToken().Value] = a.Value
	}
	return c
}

// decode fills v from n. start is the position to blame when n has none.
func (d *decoder) decode(n ast.Node, v reflect.Value, p place, start position) {
	if own := at(n); own.line > 0 {
		start = own
	}
	if p.path != "" {
		d.values[p.path] = start
	}
	n = d.resolve(n, start, p.path)
	if n == nil {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == timeType {
			d.scalar(n, v, p, start)
			return
		}
		d.object(n, v, p, start)
	case reflect.Map:
		d.table(n, v, p, start)
	case reflect.Slice:
		d.sequence(n, v, p, start)
	case reflect.Pointer:
		elem := reflect.New(v.Type().Elem())
		before := len(d.errs)
		d.scalar(n, elem.Elem(), p, start)
		if len(d.errs) == before {
			v.Set(elem)
		}
	default:
		d.scalar(n, v, p, start)
	}
}

// pair is one key of a map in the file.
type pair struct {
	name  string
	at    position
	value ast.Node
}

// pairs returns the keys of a map node without duplicates, or false if n is no
// map. A null is an empty map: a section whose keys are all commented out.
func (d *decoder) pairs(n ast.Node, p place, start position) ([]pair, bool) {
	var values []*ast.MappingValueNode
	switch x := n.(type) {
	case *ast.MappingNode:
		values = x.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{x}
	case *ast.NullNode:
		return nil, true
	default:
		what := "must be a map of keys"
		if p.path == "" {
			what = "portal.yaml must be a map of keys"
		}
		if b, ok := n.(*ast.BoolNode); ok && p.generic == "servers.*.tools.*" {
			d.fail(start, p.path, "%s, not %s; write {enabled: %v}", what, kindOf(n), b.Value)
			return nil, false
		}
		d.fail(start, p.path, "%s, not %s; write the keys on indented lines below", what, kindOf(n))
		return nil, false
	}
	seen := map[string]position{}
	var out []pair
	for _, mv := range values {
		var key ast.Node = mv.Key
		pos := at(key)
		if mk, ok := key.(*ast.MappingKeyNode); ok && mk.Value != nil {
			key = mk.Value
			pos = at(key)
		}
		if mv.Key.IsMergeKey() {
			d.fail(pos, join(p.path, "<<"), "merge keys are not supported; write the keys out")
			continue
		}
		switch key.(type) {
		case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
		default:
			d.fail(pos, p.path, "a key must be plain text, not %s; write the name of the key", kindOf(key))
			continue
		}
		name := key.GetToken().Value
		path := join(p.path, name)
		if first, ok := seen[name]; ok {
			d.fail(pos, path, "the key %s was already given on line %d; keep one of the two", quote(name), first.line)
			continue
		}
		seen[name] = pos
		d.keys[path] = pos
		out = append(out, pair{name, pos, mv.Value})
	}
	return out, true
}

// object fills a struct: every key must be one of its yaml names.
func (d *decoder) object(n ast.Node, v reflect.Value, p place, start position) {
	pairs, ok := d.pairs(n, p, start)
	if !ok {
		return
	}
	names := fieldNames(v.Type())
	given := map[string]bool{}
	for _, kv := range pairs {
		given[kv.name] = true
	}
	for _, kv := range pairs {
		if i := slices.Index(names, kv.name); i >= 0 {
			d.decode(kv.value, fieldByName(v, kv.name), p.key(kv.name), kv.at)
			continue
		}
		path := join(p.path, kv.name)
		near := nearest(kv.name, names)
		if elsewhere, ok := clientKeys[kv.name]; ok && near == "" && slices.Contains(names, elsewhere.key) {
			d.fail(kv.at, path, "unknown key %s; %s", quote(kv.name), elsewhere.hint)
			continue
		}
		if near == "" {
			d.fail(kv.at, path, "unknown key %s; %s", quote(kv.name), d.whereElse(kv.name, p, names))
			continue
		}
		d.fail(kv.at, path, "unknown key %s; did you mean %q?", quote(kv.name), near)
		if !given[near] {
			// Look inside as if it had been written rightly, so that one
			// typing mistake does not hide the others below it, and does not
			// make the checks miss what is there.
			given[near] = true
			d.keys[join(p.path, near)] = kv.at
			d.decode(kv.value, fieldByName(v, near), p.key(near), kv.at)
		}
	}
}

// whereElse helps with a key that is right but stands at the wrong level, and
// otherwise lists the valid keys.
// clientKeys are keys that people bring along from the configuration files of
// MCP clients, and how the same is said here.
var clientKeys = map[string]struct{ key, hint string }{
	"mcpServers": {"servers", `here it is called "servers"`},
	"args":       {"command", `the arguments belong to the list of command: [npx, -y, some-package]`},
	"type":       {"transport", `here it is called "transport" (auto, streamable-http, sse)`},
	"disabled":   {"enabled", `write enabled: false`},
	"cwd":        {"dir", `here it is called "dir"`},
	"timeout":    {"call_timeout", `there are connect_timeout and call_timeout`},
	"token":      {"hash", `only the hash of the token belongs here; make both with: mcp-portal token <id>`},
}

func (d *decoder) whereElse(name string, p place, names []string) string {
	var found []string
	for _, f := range Fields() {
		if last := f.Path[strings.LastIndex(f.Path, ".")+1:]; last == name && f.Path != name {
			found = append(found, f.Path)
		}
	}
	// A key of one section is meant rather than one of each item of a list.
	if plain := slices.DeleteFunc(slices.Clone(found), func(f string) bool { return strings.Contains(f, "[]") }); len(plain) > 0 {
		found = plain
	}
	valid := "valid keys here are " + list(names)
	if len(found) > 0 && len(found) <= 3 {
		return fmt.Sprintf("there is %s, move it there; %s", strings.Join(found, " and "), valid)
	}
	return valid
}

// table fills a map whose keys the file chooses.
func (d *decoder) table(n ast.Node, v reflect.Value, p place, start position) {
	pairs, ok := d.pairs(n, p, start)
	if !ok {
		return
	}
	m := reflect.MakeMap(v.Type())
	for _, kv := range pairs {
		elem := reflect.New(v.Type().Elem()).Elem()
		if v.Type().Elem() == serverType {
			elem.Set(reflect.ValueOf(defaultServer()))
		}
		d.decode(kv.value, elem, p.entry(kv.name), kv.at)
		m.SetMapIndex(reflect.ValueOf(kv.name), elem)
	}
	v.Set(m)
}

// plainWord is text that needs no quotes in a list.
var plainWord = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]{0,60}$`)

// sequence fills a list. A null list is an error and not an empty one: in
// lists of groups, empty means everyone.
func (d *decoder) sequence(n ast.Node, v reflect.Value, p place, start position) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		item := "item"
		if v.Type().Elem().Kind() == reflect.Struct {
			item = "key: value"
		}
		if _, null := n.(*ast.NullNode); null {
			d.fail(start, p.path, "no value for a list; write the items as \"- %s\" lines below, [] for an empty list, or remove the key", item)
			return
		}
		fix := fmt.Sprintf("write each item on its own line as \"- %s\"", item)
		switch s, text := n.(*ast.StringNode); {
		case p.generic == "servers.*.command":
			fix = "write the program and each of its arguments as an item: [npx, -y, some-package]"
		case text && v.Type().Elem() != secretType && plainWord.MatchString(s.Value):
			fix = fmt.Sprintf("write [%s]", s.Value)
		}
		d.fail(start, p.path, "must be a list, not %s; %s", kindOf(n), fix)
		return
	}
	out := reflect.MakeSlice(v.Type(), 0, len(seq.Values))
	for i, node := range seq.Values {
		ip := p.item(i)
		pos := at(node)
		if pos.line == 0 {
			pos = start
		}
		if _, null := node.(*ast.NullNode); null || node == nil {
			d.fail(pos, ip.path, "an empty list item; write a value or remove the dash")
			continue
		}
		elem := reflect.New(v.Type().Elem()).Elem()
		d.decode(node, elem, ip, pos)
		// Keep the item also when broken, so that later items keep the index
		// under which their positions are known.
		out = reflect.Append(out, elem)
	}
	if out.Len() < len(seq.Values) {
		d.broken[p.path] = true
	}
	v.Set(out)
}

// isBroken reports whether a path, or one above it, already has an error.
func (d *decoder) isBroken(path string) bool {
	if d.broken[path] {
		return true
	}
	for i := len(path) - 1; i > 0; i-- {
		if (path[i] == '.' || path[i] == '[') && d.broken[path[:i]] {
			return true
		}
	}
	return false
}

// kindOf names what was found instead of what was wanted.
func kindOf(n ast.Node) string {
	switch n.(type) {
	case *ast.NullNode:
		return "nothing"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a map"
	case *ast.SequenceNode:
		return "a list"
	case *ast.BoolNode:
		return "true or false"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	default:
		return "text"
	}
}

// quote shows a short text from the file in a message.
func quote(s string) string {
	if r := []rune(s); len(r) > 60 {
		s = string(r[:60]) + "…"
	}
	return fmt.Sprintf("%q", s)
}
