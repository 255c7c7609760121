package codemode

import (
	"encoding/json"
	"fmt"
	"strings"
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
	return d.declaration(identifier, description, input, func() string { return d.result(output) })
}

func (d *declarer) declaration(identifier, description string, input json.RawMessage, resultType func() string) string {
	args, optional := d.arguments(input)
	result := resultType()
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

// signature renders a tool on one line: name(arguments): Promise<result>.
func signature(identifier string, input, output json.RawMessage) string {
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
	size    int
}

func newDeclarer(identifier string) *declarer {
	return &declarer{prefix: typeName(identifier), used: map[string]bool{}}
}

func (d *declarer) begin(schema json.RawMessage, kind string) bool {
	d.kind = kind
	d.root = nil
	d.known, d.open = map[*node]string{}, map[*node]int{}
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

func (d *declarer) field(name string, schema *node, required bool, depth int) (line, typ string) {
	mark := "?"
	if required {
		mark = ""
	}
	typ = d.typeOf(schema, depth+1)
	line = quoteName(name) + mark + ": " + typ + ";"
	if !required {
		typ = union([]string{typ, "undefined"})
	}
	if d.brief {
		return line, typ
	}
	return docBlock(clipDoc(schema.member("description").text(), maxFieldDoc), tags(schema)) + line, typ
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
