package codemode

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of one declaration. Beyond them a type is unknown, never cut text.
const (
	maxTypeBytes  = 24 << 10 // of all types of one tool
	maxTypeDepth  = 20
	maxDocBytes   = 4 << 10 // of the description of a tool
	maxFieldDoc   = 600     // of the description of a field
	maxLiterals   = 200     // of one enum
	inlineRef     = 60      // a definition shorter than this is written in place
	unknownType   = "unknown"
	anyArguments  = "Record<string, unknown>"
	typeNamesMost = 100
)

// Declare renders a tool as a TypeScript declaration: its description, the type
// of its arguments and of its result, and the types these need. identifier is
// what code writes to reach the tool: "name", or "server.member". A schema that
// cannot be read becomes unknown; there is always a declaration.
func Declare(identifier, description string, input, output json.RawMessage) string {
	d := newDeclarer(identifier)
	args, optional := d.arguments(input)
	result := d.result(output)
	var b strings.Builder
	for _, a := range d.aliases {
		fmt.Fprintf(&b, "type %s = %s;\n", a.name, a.body)
	}
	doc := docBlock(clipDoc(description, maxDocBytes), nil)
	object, member, nested := strings.Cut(identifier, ".")
	if !nested && isName(identifier) && !reserved[identifier] {
		b.WriteString(doc)
		fmt.Fprintf(&b, "declare function %s(%s): Promise<%s>;\n", identifier, parameter(args, optional), result)
		return b.String()
	}
	if !nested {
		object, member = "codemode", identifier
	}
	if !isName(object) || reserved[object] {
		object = "codemode"
	}
	fmt.Fprintf(&b, "declare const %s: {\n%s%s(%s): Promise<%s>;\n};\n", object, indent(doc), quoteName(member), indent(parameter(args, optional))[2:], indent(result)[2:])
	return b.String()
}

// Signature renders a tool on one line: name(arguments): Promise<result>.
func Signature(identifier string, input, output json.RawMessage) string {
	d := newDeclarer(identifier)
	d.brief = true
	args, optional := d.arguments(input)
	result := d.result(output)
	line := fmt.Sprintf("%s(%s): Promise<%s>", identifier, parameter(args, optional), result)
	return strings.Join(strings.Fields(line), " ")
}

func parameter(args string, optional bool) string {
	if optional {
		return "args?: " + args
	}
	return "args: " + args
}

type alias struct{ name, body string }

type declarer struct {
	prefix  string // of the names of types
	brief   bool   // no documentation, no line breaks
	root    *node
	kind    string // "Args" or "Result": part of the names of types
	aliases []alias
	known   map[*node]string // definitions that have a name, or get one now
	used    map[string]bool
	open    map[*node]int // definitions being rendered
	looped  map[*node]bool
	size    int
}

func newDeclarer(identifier string) *declarer {
	return &declarer{prefix: typeName(identifier), used: map[string]bool{}}
}

func (d *declarer) begin(schema json.RawMessage, kind string) bool {
	d.kind = kind
	d.root = nil
	d.known, d.open, d.looped = map[*node]string{}, map[*node]int{}, map[*node]bool{}
	if len(schema) == 0 {
		return false
	}
	root, err := parseTree(schema)
	if err != nil {
		return false
	}
	d.root = root
	return true
}

func (d *declarer) arguments(schema json.RawMessage) (typ string, optional bool) {
	if !d.begin(schema, "Args") {
		if len(schema) == 0 {
			return anyArguments, true
		}
		return unknownType, true
	}
	typ = d.typeOf(d.root, 0)
	required := d.root.member("required")
	return typ, (required == nil || len(required.kids) == 0) && d.root.kind == '{' && d.root.member("$ref") == nil && !anyOfRequires(d.root)
}

func anyOfRequires(n *node) bool {
	for _, k := range []string{"anyOf", "oneOf", "allOf"} {
		if m := n.member(k); m != nil {
			for _, b := range m.kids {
				if r := b.member("required"); r != nil && len(r.kids) > 0 {
					return true
				}
			}
		}
	}
	return false
}

func (d *declarer) result(schema json.RawMessage) string {
	if !d.begin(schema, "Result") {
		return unknownType
	}
	return d.typeOf(d.root, 0)
}

// typeOf renders a schema. What it returns can stand in a union; see grouped
// for places where that is not enough.
func (d *declarer) typeOf(n *node, depth int) string {
	if n == nil || depth > maxTypeDepth || d.size > maxTypeBytes {
		return unknownType
	}
	if n.is("true") {
		return unknownType
	}
	if n.is("false") {
		return "never"
	}
	if n.kind != '{' {
		return unknownType
	}
	var parts []string // joined with &
	if ref := n.member("$ref"); ref != nil {
		parts = append(parts, d.reference(ref.text(), depth))
	}
	own := d.own(n, depth)
	if own != "" {
		parts = append(parts, own)
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		if u := d.branches(n.member(key), n, depth); u != "" {
			parts = append(parts, u)
		}
	}
	if all := n.member("allOf"); all != nil && all.kind == '[' {
		for _, k := range all.kids {
			if onlyConstrains(k) {
				continue
			}
			if t := d.typeOf(k, depth+1); t != unknownType {
				parts = append(parts, t)
			}
		}
	}
	t := intersection(parts)
	if n.member("nullable").is("true") && t != unknownType {
		t = union([]string{t, "null"})
	}
	d.size += len(t) / (depth + 1)
	return t
}

// branches renders anyOf or oneOf. Branches that only add conditions, such as
// {required: […]}, add nothing to the type.
func (d *declarer) branches(list, parent *node, depth int) string {
	if list == nil || list.kind != '[' || len(list.kids) == 0 {
		return ""
	}
	var out []string
	for _, k := range list.kids {
		if onlyConstrains(k) {
			if len(parent.keys) > 1 && (parent.member("properties") != nil || parent.member("type") != nil) {
				continue
			}
			out = append(out, unknownType)
			continue
		}
		out = append(out, d.typeOf(k, depth+1))
	}
	if len(out) == 0 {
		return ""
	}
	u := union(out)
	if u == unknownType && (parent.member("properties") != nil || parent.member("type") != nil) {
		return ""
	}
	return u
}

var structural = []string{"type", "properties", "items", "prefixItems", "enum", "const", "$ref", "anyOf", "oneOf", "allOf", "additionalProperties", "patternProperties", "nullable"}

func onlyConstrains(n *node) bool {
	return n.kind == '{' && !slices.ContainsFunc(structural, func(k string) bool { return n.member(k) != nil })
}

// own renders what the schema says itself, without its combinators.
func (d *declarer) own(n *node, depth int) string {
	if c := n.member("const"); c != nil {
		return literal(c)
	}
	if e := n.member("enum"); e != nil && e.kind == '[' {
		if len(e.kids) == 0 {
			return "never"
		}
		var out []string
		for i, k := range e.kids {
			if i == maxLiterals {
				out = append(out, d.named(n, depth))
				break
			}
			out = append(out, literal(k))
		}
		return union(out)
	}
	return d.named(n, depth)
}

// named renders the type keyword, or what the other keywords imply.
func (d *declarer) named(n *node, depth int) string {
	switch t := n.member("type"); {
	case t != nil && t.kind == '[':
		var out []string
		for _, k := range t.kids {
			out = append(out, d.simple(k.text(), n, depth))
		}
		if len(out) == 0 {
			return unknownType
		}
		return union(out)
	case t != nil && t.kind == '"':
		return d.simple(t.text(), n, depth)
	case n.member("properties") != nil || n.member("patternProperties") != nil || n.member("additionalProperties") != nil || n.member("required") != nil && !hasCombinator(n):
		return d.object(n, depth)
	case n.member("items") != nil || n.member("prefixItems") != nil:
		return d.array(n, depth)
	case hasCombinator(n):
		return ""
	}
	return unknownType
}

func hasCombinator(n *node) bool {
	return slices.ContainsFunc([]string{"$ref", "anyOf", "oneOf", "allOf"}, func(k string) bool { return n.member(k) != nil })
}

func (d *declarer) simple(name string, n *node, depth int) string {
	switch name {
	case "string", "boolean", "null":
		return name
	case "number", "integer":
		return "number"
	case "array":
		return d.array(n, depth)
	case "object":
		return d.object(n, depth)
	}
	return unknownType
}

func (d *declarer) array(n *node, depth int) string {
	items := n.member("items")
	tuple := n.member("prefixItems")
	rest := items
	if tuple == nil && items != nil && items.kind == '[' {
		tuple, rest = items, n.member("additionalItems")
	}
	if tuple == nil || tuple.kind != '[' {
		if items == nil {
			return unknownType + "[]"
		}
		return grouped(d.typeOf(items, depth+1)) + "[]"
	}
	least := len(tuple.kids)
	if m := n.member("minItems"); m != nil {
		if json.Unmarshal(m.raw, &least) != nil || least > len(tuple.kids) || least < 0 {
			least = len(tuple.kids)
		}
	}
	var out []string
	for i, k := range tuple.kids {
		t := d.typeOf(k, depth+1)
		if i >= least {
			t = grouped(t) + "?"
		}
		out = append(out, t)
	}
	if rest == nil || !rest.is("false") {
		out = append(out, "..."+grouped(d.typeOf(orTrue(rest), depth+1))+"[]")
	}
	return "[" + strings.Join(out, ", ") + "]"
}

func orTrue(n *node) *node {
	if n == nil {
		return &node{kind: 's', raw: []byte("true")}
	}
	return n
}

func (d *declarer) object(n *node, depth int) string {
	props := n.member("properties")
	required := map[string]bool{}
	var names []string
	if r := n.member("required"); r != nil && r.kind == '[' {
		for _, k := range r.kids {
			if k.kind == '"' && !required[k.text()] {
				required[k.text()] = true
				names = append(names, k.text())
			}
		}
	}
	var fields []string
	seen := map[string]bool{}
	if props != nil && props.kind == '{' {
		for i, key := range props.keys {
			if seen[key] {
				continue
			}
			seen[key] = true
			fields = append(fields, d.field(key, props.kids[i], required[key], depth))
		}
	}
	for _, key := range names {
		if !seen[key] && (props != nil || !hasCombinator(n)) { // required, but described elsewhere
			fields = append(fields, quoteName(key)+": "+unknownType+";")
		}
	}
	index := d.index(n, depth)
	if len(fields) == 0 {
		switch {
		case index != "":
			return "Record<string, " + index + ">"
		case n.member("additionalProperties").is("false"):
			return "{}"
		case hasCombinator(n):
			return ""
		}
		return anyArguments
	}
	body := "{\n" + indent(strings.Join(fields, "\n")) + "\n}"
	if d.brief {
		body = "{ " + strings.TrimSuffix(strings.Join(fields, " "), ";") + " }"
	}
	switch {
	case index == unknownType:
		// In the object itself: every field is compatible with unknown.
		if d.brief {
			return strings.TrimSuffix(body, " }") + "; [key: string]: unknown }"
		}
		return strings.TrimSuffix(body, "\n}") + "\n  [key: string]: unknown;\n}"
	case index != "":
		// Beside it: an index signature in it would have to cover every field.
		return body + " & Record<string, " + index + ">"
	}
	return body
}

// index renders what further properties may hold, "" for none declared.
func (d *declarer) index(n *node, depth int) string {
	var out []string
	if a := n.member("additionalProperties"); a != nil && !a.is("false") {
		out = append(out, d.typeOf(a, depth+1))
	}
	if p := n.member("patternProperties"); p != nil && p.kind == '{' {
		for _, k := range p.kids {
			out = append(out, d.typeOf(k, depth+1))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return union(out)
}

func (d *declarer) field(name string, schema *node, required bool, depth int) string {
	mark := "?"
	if required {
		mark = ""
	}
	line := quoteName(name) + mark + ": " + d.typeOf(schema, depth+1) + ";"
	if d.brief {
		return line
	}
	return docBlock(clipDoc(schema.member("description").text(), maxFieldDoc), tags(schema)) + line
}

// tags are the keywords that a type cannot say.
func tags(n *node) []string {
	var out []string
	if n.member("deprecated").is("true") {
		out = append(out, "@deprecated")
	}
	for _, k := range []string{"default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "pattern", "format", "contentEncoding"} {
		v := n.member(k)
		if v == nil {
			continue
		}
		text := string(v.appendJSON(nil))
		if v.kind == '"' && k != "default" {
			text = v.text()
		}
		out = append(out, "@"+k+" "+clipDoc(text, 200))
	}
	if n.member("type").text() == "integer" {
		out = append(out, "@integer")
	}
	return out
}

// reference renders a $ref within the document. A short definition is written
// in place; a longer or recursive one becomes a type of its own.
func (d *declarer) reference(ref string, depth int) string {
	target := d.resolve(ref)
	if target == nil {
		return unknownType
	}
	if name := d.known[target]; name != "" {
		return name
	}
	if d.open[target] > 0 {
		d.looped[target] = true
		if len(d.known) >= typeNamesMost {
			return unknownType
		}
		d.known[target] = d.freeName(ref)
		return d.known[target]
	}
	d.open[target]++
	body := d.typeOf(target, depth+1)
	d.open[target]--
	name := d.known[target]
	if name == "" {
		if len(body) <= inlineRef || d.brief && !d.looped[target] || len(d.known) >= typeNamesMost {
			return body
		}
		name = d.freeName(ref)
		d.known[target] = name
	}
	if d.brief {
		// One line has no room for types of its own.
		return unknownType
	}
	d.aliases = append(d.aliases, alias{name, body})
	return name
}

// resolve follows a JSON pointer in this document; nil when it leads elsewhere.
func (d *declarer) resolve(ref string) *node {
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	n := d.root
	if pointer == "" {
		return n
	}
	if !strings.HasPrefix(pointer, "/") {
		return nil
	}
	for part := range strings.SplitSeq(pointer[1:], "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(unescape(part))
		switch {
		case n == nil:
			return nil
		case n.kind == '{':
			n = n.member(part)
		case n.kind == '[':
			var i int
			if _, err := fmt.Sscanf(part, "%d", &i); err != nil || i < 0 || i >= len(n.kids) {
				return nil
			}
			n = n.kids[i]
		default:
			return nil
		}
	}
	return n
}

func (d *declarer) freeName(ref string) string {
	last := ref[strings.LastIndexByte(ref, '/')+1:]
	if last == "#" || last == "" {
		last = d.kind
	}
	base := d.prefix + "_" + typeName(unescape(last))
	name := base
	for i := 2; d.used[name]; i++ {
		name = fmt.Sprintf("%s%d", base, i)
	}
	d.used[name] = true
	return name
}

// unescape decodes the percent signs of a URL fragment.
func unescape(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		var c byte
		if s[i] == '%' && i+2 < len(s) {
			if _, err := fmt.Sscanf(s[i+1:i+3], "%02x", &c); err == nil {
				b.WriteByte(c)
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// union joins types with |, each once.
func union(parts []string) string {
	var out []string
	for _, p := range parts {
		if p == unknownType {
			return unknownType
		}
		for _, m := range members(p) {
			if m != "" && !slices.Contains(out, m) {
				out = append(out, m)
			}
		}
	}
	if len(out) > 1 {
		out = slices.DeleteFunc(out, func(p string) bool { return p == "never" })
	}
	for i, p := range out {
		if len(out) > 1 && topLevel(p, '&') {
			out[i] = "(" + p + ")"
		}
	}
	if len(out) == 0 {
		return "never"
	}
	return strings.Join(out, " | ")
}

// intersection joins types with &.
func intersection(parts []string) string {
	var out []string
	for _, p := range parts {
		if p != "" && p != unknownType && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	switch len(out) {
	case 0:
		return unknownType
	case 1:
		return out[0]
	}
	for i, p := range out {
		if topLevel(p, '|') {
			out[i] = "(" + p + ")"
		}
	}
	return strings.Join(out, " & ")
}

// grouped puts a type that is not one word into parentheses.
func grouped(t string) string {
	if topLevel(t, '|') || topLevel(t, '&') {
		return "(" + t + ")"
	}
	return t
}

// members splits a union at its own bars.
func members(t string) []string {
	var out []string
	for {
		i := operator(t, '|')
		if i < 0 {
			return append(out, strings.TrimSpace(t))
		}
		out = append(out, strings.TrimSpace(t[:i]))
		t = t[i+1:]
	}
}

func topLevel(t string, op byte) bool { return operator(t, op) >= 0 }

// operator returns where an operator stands in a type outside of all brackets,
// texts and comments, or -1.
func operator(t string, op byte) int {
	depth := 0
	for i := 0; i < len(t); i++ {
		switch c := t[i]; c {
		case '"':
			for i++; i < len(t) && t[i] != '"'; i++ {
				if t[i] == '\\' {
					i++
				}
			}
		case '/':
			if strings.HasPrefix(t[i:], "/*") {
				end := strings.Index(t[i+2:], "*/")
				if end < 0 {
					return -1
				}
				i += end + 3
			}
		case '{', '[', '(', '<':
			depth++
		case '}', ']', ')', '>':
			depth--
		case op:
			if depth == 0 {
				return i
			}
		}
	}
	return -1
}

// literal renders a JSON value as a literal type.
func literal(n *node) string {
	switch n.kind {
	case '{':
		if len(n.kids) == 0 {
			return "{}"
		}
		var out []string
		for i, k := range n.kids {
			out = append(out, quoteName(n.keys[i])+": "+literal(k))
		}
		return "{ " + strings.Join(out, "; ") + " }"
	case '[':
		var out []string
		for _, k := range n.kids {
			out = append(out, literal(k))
		}
		return "[" + strings.Join(out, ", ") + "]"
	case '"':
		return string(appendQuoted(nil, lineSafe(n.text())))
	}
	return string(n.raw)
}

// lineSafe removes the two separators that older TypeScript ends a line at.
func lineSafe(s string) string {
	return strings.NewReplacer("\u2028", " ", "\u2029", " ").Replace(s)
}

var nameShape = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*$`)

func isName(s string) bool { return nameShape.MatchString(s) }

// reserved words cannot be the name of a function; as a member they can.
var reserved = func() map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq("arguments await break case catch class const continue debugger default delete do else enum eval export extends false finally for function if implements import in instanceof interface let new null package private protected public return static super switch this throw true try typeof var void while with yield") {
		m[w] = true
	}
	return m
}()

func quoteName(s string) string {
	if isName(s) {
		return s
	}
	return string(appendQuoted(nil, lineSafe(s)))
}

// typeName makes an identifier of any text.
func typeName(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r < utf8.RuneSelf && (r == '_' || r == '$' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
			b.WriteRune(r)
		} else {
			b.WriteByte('_')
		}
	}
	name := b.String()
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		name = "_" + name
	}
	return name
}

func clipDoc(s string, n int) string {
	s = strings.TrimSpace(strings.ToValidUTF8(s, "\ufffd"))
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.TrimSpace(s[:n]) + " …"
}

// docBlock renders a documentation comment, "" without content.
func docBlock(text string, tags []string) string {
	var lines []string
	if text != "" {
		for line := range strings.SplitSeq(strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u2028", "\n", "\u2029", "\n").Replace(text), "\n") {
			lines = append(lines, line)
		}
	}
	for _, t := range tags {
		lines = append(lines, strings.Join(strings.Fields(t), " "))
	}
	if len(lines) == 0 {
		return ""
	}
	for i, l := range lines {
		lines[i] = strings.TrimRight(strings.ReplaceAll(l, "*/", `*\/`), " \t")
	}
	if len(lines) == 1 {
		return "/** " + lines[0] + " */\n"
	}
	return "/**\n * " + strings.Join(lines, "\n * ") + "\n */\n"
}

func indent(s string) string {
	lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	for i, l := range lines {
		if l != "" {
			lines[i] = "  " + l
		}
	}
	out := strings.Join(lines, "\n")
	if strings.HasSuffix(s, "\n") {
		out += "\n"
	}
	return out
}
