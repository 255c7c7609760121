package openapi

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/mcp-portal/mcp-portal/wire"
)

// Bounds of the schemas of one tool, in bytes. A document may have one schema
// that reaches all others; a tool is read by a model.
const (
	maxInputSchema  = 40_000
	maxOutputSchema = 6_000
	maxSchemaDepth  = 40
	maxNote         = 1_000 // of one description within a schema
)

// schemas writes schemas of a document as JSON Schema for one tool. References
// are written in place; those that lead back to themselves become $defs. What
// lies beyond so many references, or beyond the size, is left open.
type schemas struct {
	d      *Document
	output bool // of answers: leaves out what is only written, else what is only read
	refs   int  // so many references deep
	room   int  // bytes left

	open map[string]bool   // references being written in place
	defs map[string]string // recursive references by their name in $defs
	todo []string          // of them, those to be written
}

// fit writes with as many references in depth as the room allows, and returns
// the $defs beside.
func (d *Document) fit(output bool, room int, write func(*schemas) json.RawMessage) (json.RawMessage, wire.Object) {
	for _, refs := range []int{12, 6, 4, 3, 2, 1, 0} {
		c := &schemas{d: d, output: output, refs: refs, room: room, open: map[string]bool{}, defs: map[string]string{}}
		out := write(c)
		defs := c.definitions()
		if c.room >= 0 || refs == 0 {
			return out, defs
		}
	}
	return nil, nil // not reached
}

// definitions writes what recursive references lead to.
func (c *schemas) definitions() wire.Object {
	var out wire.Object
	for len(c.todo) > 0 {
		ref := c.todo[0]
		c.todo = c.todo[1:]
		name := c.defs[ref]
		out = append(out, wire.Field{Key: name, Value: json.RawMessage("{}")})
		if c.room < 0 {
			continue
		}
		out[len(out)-1].Value = c.schema(c.d.lookup(ref), 0, 1)
	}
	return out
}

// defName is a free name for a recursive reference.
func (c *schemas) defName(ref string) string {
	if n, ok := c.defs[ref]; ok {
		return n
	}
	base := nameText(ref[strings.LastIndexByte(ref, '/')+1:])
	if base == "" {
		base = "schema"
	}
	name := base
	for i := 2; slices.Contains(values(c.defs), name); i++ {
		name = base + "_" + strconv.Itoa(i)
	}
	c.defs[ref] = name
	c.todo = append(c.todo, ref)
	return name
}

func values(m map[string]string) []string {
	var out []string
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

var anything = json.RawMessage("{}")

// schema writes one schema. depth is its nesting, refs the references on the
// way to it.
func (c *schemas) schema(raw json.RawMessage, depth, refs int) json.RawMessage {
	if string(raw) == "true" || string(raw) == "false" {
		return raw
	}
	return c.object(raw, depth, refs).Bytes()
}

// object is schema for one that is an object.
func (c *schemas) object(raw json.RawMessage, depth, refs int) wire.Object {
	if depth > maxSchemaDepth || c.room < 0 {
		return wire.Object{}
	}
	o := c.d.object(raw)
	if o == nil {
		return wire.Object{}
	}
	if r := o.Get("$ref"); first(r) == '"' {
		return c.reference(o.String("$ref"), o, depth, refs)
	}
	var out wire.Object
	for _, f := range o {
		if v := c.keyword(f.Key, f.Value, o, depth, refs); v != nil {
			c.room -= len(f.Key) + 4
			if first(v) != '{' && first(v) != '[' {
				c.room -= len(v)
			}
			out = append(out, wire.Field{Key: f.Key, Value: v})
		}
	}
	c.room -= 2
	return nullable(bounds(out, o), o)
}

// reference writes what a $ref leads to.
func (c *schemas) reference(ref string, o wire.Object, depth, refs int) wire.Object {
	note := func(out wire.Object) wire.Object {
		if t := o.String("description"); t != "" {
			c.room -= min(len(t), maxNote) + 16
			out = out.SetString("description", cut(t, maxNote))
		}
		return nullable(out, o)
	}
	target := c.d.lookup(ref)
	switch {
	case target == nil:
		return note(wire.Object{})
	case c.open[ref] || c.defs[ref] != "":
		c.room -= 40
		return note(wire.Object{{Key: "$ref", Value: wire.Quote("#/$defs/" + c.defName(ref))}})
	case refs >= c.refs:
		return note(c.outline(target))
	}
	c.open[ref] = true
	out := c.object(target, depth+1, refs+1)
	if string(target) == "false" {
		out = wire.Object{{Key: "not", Value: anything}}
	}
	delete(c.open, ref)
	return note(out)
}

// outline is what remains of a schema for which there is no room.
func (c *schemas) outline(raw json.RawMessage) wire.Object {
	o := c.d.follow(raw)
	var out wire.Object
	if t := typeOf(o.Get("type")); t != nil {
		out = append(out, wire.Field{Key: "type", Value: t})
	} else if o.Get("properties") != nil {
		out = append(out, wire.Field{Key: "type", Value: json.RawMessage(`"object"`)})
	}
	if e := o.Get("enum"); first(e) == '[' && len(e) < 300 {
		out = append(out, wire.Field{Key: "enum", Value: e})
	}
	c.room -= 40
	return out
}

// keyword writes the value of one keyword; nil: it is left out.
func (c *schemas) keyword(key string, v json.RawMessage, o wire.Object, depth, refs int) json.RawMessage {
	switch key {
	case "type":
		return typeOf(v)
	case "title":
		if t := o.String(key); t != "" && o.Get("description") == nil {
			return wire.Quote(cut(t, 100))
		}
	case "description", "format", "pattern":
		if t := o.String(key); t != "" {
			return wire.Quote(cut(t, maxNote))
		}
	case "enum", "default", "const", "contentEncoding", "contentMediaType", "deprecated", "multipleOf",
		"minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties":
		if key == "enum" && (first(v) != '[' || string(v) == "[]") || string(v) == "null" && key != "const" {
			return nil
		}
		c.room -= len(v)
		return v
	case "required":
		return c.requiredNames(v, o)
	case "properties", "patternProperties":
		members := c.d.object(v)
		if members == nil {
			return nil
		}
		out := wire.Object{}
		for _, m := range members {
			if c.room < 0 && c.refs > 0 {
				break // all this is thrown away
			}
			if key == "properties" && c.hides(m.Value) {
				continue
			}
			c.room -= len(m.Key) + 4
			out = append(out, wire.Field{Key: m.Key, Value: c.schema(m.Value, depth+1, refs)})
		}
		return out.Bytes()
	case "items", "additionalProperties", "not", "propertyNames", "contains":
		if first(v) == '{' || string(v) == "true" || string(v) == "false" {
			return c.schema(v, depth+1, refs)
		}
	case "allOf", "anyOf", "oneOf", "prefixItems":
		var list []json.RawMessage
		if json.Unmarshal(v, &list) != nil || len(list) == 0 {
			return nil
		}
		out := []byte{'['}
		for i, x := range list {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, c.schema(x, depth+1, refs)...)
		}
		return append(out, ']')
	}
	return nil // bounds, example, xml, discriminator, extensions, dynamic references …
}

// hides reports properties that the other direction alone has.
func (c *schemas) hides(raw json.RawMessage) bool {
	o := c.d.object(raw)
	if o.Get("$ref") != nil {
		o = c.d.follow(raw)
	}
	if c.output {
		return string(o.Get("writeOnly")) == "true"
	}
	return string(o.Get("readOnly")) == "true"
}

// requiredNames keeps the names that are strings and not hidden. Answers often
// lack what their documents promise, so nothing of them is called required.
func (c *schemas) requiredNames(v json.RawMessage, o wire.Object) json.RawMessage {
	var names []string
	if c.output || json.Unmarshal(v, &names) != nil {
		return nil
	}
	props := c.d.object(o.Get("properties")) // no object: nothing is hidden
	names = slices.DeleteFunc(names, func(n string) bool { p := props.Get(n); return p != nil && c.hides(p) })
	if len(names) == 0 {
		return nil
	}
	return wire.Encode(names)
}

// typeOf keeps the types that JSON Schema has.
func typeOf(v json.RawMessage) json.RawMessage {
	known := func(t string) bool {
		return contains([]string{"object", "array", "string", "number", "integer", "boolean", "null"}, t)
	}
	var one string
	var many []string
	switch {
	case first(v) == '"' && json.Unmarshal(v, &one) == nil:
		switch {
		case known(one):
			return v
		case one == "file":
			return json.RawMessage(`"string"`)
		}
	case first(v) == '[' && json.Unmarshal(v, &many) == nil:
		if many = slices.DeleteFunc(many, func(t string) bool { return !known(t) }); len(many) > 0 {
			return wire.Encode(many)
		}
	}
	return nil
}

// bounds writes the bounds of numbers: in OpenAPI 3.0 the exclusive ones are
// booleans.
func bounds(out, o wire.Object) wire.Object {
	for _, b := range [][2]string{{"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}} {
		limit, exclusive := o.Get(b[0]), o.Get(b[1])
		switch {
		case isNumber(exclusive):
			out = append(out, wire.Field{Key: b[1], Value: exclusive})
			if isNumber(limit) {
				out = append(out, wire.Field{Key: b[0], Value: limit})
			}
		case isNumber(limit) && string(exclusive) == "true":
			out = append(out, wire.Field{Key: b[1], Value: limit})
		case isNumber(limit):
			out = append(out, wire.Field{Key: b[0], Value: limit})
		}
	}
	return out
}

func isNumber(v json.RawMessage) bool {
	c := first(v)
	return c == '-' || c >= '0' && c <= '9'
}

// nullable writes nullable of OpenAPI 3.0, and x-nullable of Swagger 2, as the
// type null.
func nullable(out, o wire.Object) wire.Object {
	if string(o.Get("nullable")) != "true" && string(o.Get("x-nullable")) != "true" {
		return out
	}
	t := out.Get("type")
	if first(t) == '"' {
		out = out.Set("type", json.RawMessage("["+string(t)+`,"null"]`))
		var enum []json.RawMessage
		if e := out.Get("enum"); e != nil && json.Unmarshal(e, &enum) == nil && !slices.ContainsFunc(enum, func(v json.RawMessage) bool { return string(v) == "null" }) {
			out = out.Set("enum", wire.Encode(append(enum, json.RawMessage("null"))))
		}
		return out
	}
	if t != nil || len(out.Without("description")) == 0 {
		return out
	}
	note := out.Get("description")
	either := wire.Object{{Key: "anyOf", Value: wire.Encode([]json.RawMessage{out.Without("description").Bytes(), json.RawMessage(`{"type":"null"}`)})}}
	if note != nil {
		either = append(either, wire.Field{Key: "description", Value: note})
	}
	return either
}
