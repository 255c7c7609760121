package codemode

import (
	"encoding/json"
	"slices"
	"strings"
)

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
	var fields, types []string
	seen := map[string]bool{}
	if props != nil && props.kind == '{' {
		for i, key := range props.keys {
			if seen[key] {
				continue
			}
			seen[key] = true
			line, typ := d.field(key, props.kids[i], required[key], depth)
			fields, types = append(fields, line), append(types, typ)
		}
	}
	for _, key := range names {
		if !seen[key] && (props != nil || !hasCombinator(n)) { // required, but described elsewhere
			fields, types = append(fields, quoteName(key)+": "+unknownType+";"), append(types, unknownType)
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
	if index != "" {
		// An index signature has to cover every field; a type beside it that
		// holds further properties only would refuse the fields.
		fields = append(fields, "[key: string]: "+union(append([]string{index}, types...))+";")
	}
	body := "{\n" + indent(strings.Join(fields, "\n")) + "\n}"
	if d.brief {
		body = "{ " + strings.TrimSuffix(strings.Join(fields, " "), ";") + " }"
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
