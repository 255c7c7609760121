package config

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// schemaID names the schema; editors show it, nothing fetches it.
const schemaID = "https://github.com/mcp-portal/mcp-portal/deploy/portal.schema.json"

// node is one JSON Schema, with the keywords in the order they are written.
type node struct {
	Schema      string   `json:"$schema,omitempty"`
	ID          string   `json:"$id,omitempty"`
	Title       string   `json:"title,omitempty"`
	Description string   `json:"description,omitempty"`
	Type        any      `json:"type,omitempty"`
	Enum        []string `json:"enum,omitempty"`
	Pattern     string   `json:"pattern,omitempty"`
	Format      string   `json:"format,omitempty"`
	MinLength   int      `json:"minLength,omitempty"`
	Minimum     *int64   `json:"minimum,omitempty"`
	Maximum     *int64   `json:"maximum,omitempty"`
	Default     any      `json:"default,omitempty"`
	AnyOf       []*node  `json:"anyOf,omitempty"`
	OneOf       []*node  `json:"oneOf,omitempty"`
	Not         *node    `json:"not,omitempty"`
	Items       *node    `json:"items,omitempty"`
	Names       *node    `json:"propertyNames,omitempty"`
	Properties  *members `json:"properties,omitempty"`
	Additional  any      `json:"additionalProperties,omitempty"`
	Required    []string `json:"required,omitempty"`
}

// members is a JSON object that keeps its order.
type members struct {
	names []string
	nodes []*node
}

// MarshalJSON writes the members in the order of the types.
func (m *members) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range m.names {
		if i > 0 {
			b.WriteByte(',')
		}
		k, err := plainJSON(name)
		if err != nil {
			return nil, err
		}
		v, err := plainJSON(m.nodes[i])
		if err != nil {
			return nil, err
		}
		b.Write(k)
		b.WriteByte(':')
		b.Write(v)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// plainJSON encodes without escaping <, > and &, which descriptions contain.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// Schema returns the JSON Schema (2020-12) of portal.yaml for editors and
// other tools, made from the types, their comments, defaults and limits. It
// accepts everything Parse accepts; what needs more than one key to judge,
// such as references, only Parse finds.
func Schema() []byte {
	b := schemaBuilder{limits: limits(), fields: map[string]Field{}}
	for _, f := range Fields() {
		b.fields[f.Path] = f
	}
	root := b.object(reflect.TypeFor[Config](), "")
	root.Schema, root.ID = "https://json-schema.org/draft/2020-12/schema", schemaID
	root.Type = "object"
	root.Title, root.Description = "portal.yaml", "Configuration of an MCP portal. Any text value may contain ${NAME} for an environment variable."
	raw, err := plainJSON(root)
	if err != nil {
		return nil // a test checks that this is a schema
	}
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		return nil
	}
	out.WriteByte('\n')
	return out.Bytes()
}

type schemaBuilder struct {
	limits map[string]limit
	fields map[string]Field
}

// object describes a struct type that stands at the generic path.
func (b schemaBuilder) object(t reflect.Type, path string) *node {
	m := &members{}
	for _, name := range fieldNames(t) {
		p := name
		if path != "" {
			p = path + "." + name
		}
		f := b.fields[p]
		n := b.value(f.goType, p)
		n.Description = f.Description
		if f.Default != "" {
			n.Default = defaultJSON(f)
		}
		m.names, m.nodes = append(m.names, name), append(m.nodes, n)
	}
	out := &node{Type: []string{"object", "null"}, Properties: m, Additional: false}
	switch t {
	case serverType:
		out.Type = "object"
		out.OneOf = []*node{{Required: []string{"url"}, Not: &node{Required: []string{"openapi"}}}, {Required: []string{"command"}, Not: &node{Required: []string{"openapi"}}},
			{Required: []string{"openapi"}, Not: &node{Required: []string{"command"}}}}
	case reflect.TypeFor[Rule]():
		out.Type, out.Required = "object", []string{"action"}
	case reflect.TypeFor[ServiceToken]():
		out.Type, out.Required = "object", []string{"id", "hash"}
	case reflect.TypeFor[Client]():
		out.Type, out.Required = "object", []string{"id", "redirects"}
	case reflect.TypeFor[Workload]():
		out.Type, out.Required = "object", []string{"id", "issuer", "claims"}
	case reflect.TypeFor[Store]():
		out.Not = &node{Type: "object", Required: []string{"redis", "file"}}
	}
	return out
}

// variable accepts a value that comes from the environment, where the type is
// known only after substitution.
const variable = `\$\{[A-Za-z_][A-Za-z0-9_]*\}`

func (b schemaBuilder) value(t reflect.Type, path string) *node {
	lim := b.limits[path]
	orVariable := func(n *node) *node {
		return &node{AnyOf: []*node{n, {Type: "string", Pattern: variable}}}
	}
	switch {
	case t == durationType:
		return &node{Type: "string", Pattern: `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$|` + variable}
	case t == timeType:
		return &node{Type: "string", Pattern: `^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9:.]+(Z|[+-][0-9]{2}:[0-9]{2}))?$|` + variable}
	case t == secretType:
		n := &node{Type: "string"}
		if !b.limits[path[:max(0, strings.LastIndex(path, "."))]].empty {
			n.MinLength = 1
		}
		return n
	}
	switch t.Kind() {
	case reflect.Pointer:
		return b.value(t.Elem(), path)
	case reflect.Bool:
		return orVariable(&node{Type: "boolean"})
	case reflect.Int, reflect.Int64:
		n := &node{Type: "integer", Minimum: &lim.min}
		if lim.max > 0 {
			n.Maximum = &lim.max
		}
		return orVariable(n)
	case reflect.String:
		return b.text(lim)
	case reflect.Slice:
		item := path + "[]"
		if _, own := b.limits[item]; !own {
			b.limits[item] = lim
		}
		if t.Elem().Kind() == reflect.Struct {
			return &node{Type: "array", Items: b.object(t.Elem(), item)}
		}
		return &node{Type: "array", Items: b.value(t.Elem(), item)}
	case reflect.Map:
		n := &node{Type: []string{"object", "null"}}
		if t.Elem().Kind() == reflect.Struct {
			n.Additional = b.object(t.Elem(), path+".*")
		} else {
			n.Additional = b.value(t.Elem(), path+".*")
		}
		switch path {
		case "servers":
			n.Names = &node{Pattern: serverIDPattern.String()}
		case "servers.*.env":
			n.Names = &node{Pattern: envNamePattern.String()}
		case "servers.*.headers":
			n.Names = &node{Pattern: headerPattern.String()}
		}
		return n
	case reflect.Struct:
		return b.object(t, path)
	}
	return &node{}
}

func (b schemaBuilder) text(lim limit) *node {
	n := &node{Type: "string"}
	if !lim.empty {
		n.MinLength = 1
	}
	switch {
	case lim.enum != nil:
		return &node{AnyOf: []*node{{Type: "string", Enum: lim.enum}, {Type: "string", Pattern: variable}}}
	case lim.pattern != nil:
		n.Pattern = lim.pattern.String() + "|" + variable
	}
	return n
}

// defaultJSON gives a default its JSON type.
func defaultJSON(f Field) any {
	t := f.goType
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == durationType:
		return f.Default
	case t.Kind() == reflect.Bool, t.Kind() == reflect.Int, t.Kind() == reflect.Int64:
		return json.RawMessage(f.Default)
	case t.Kind() == reflect.Slice:
		return strings.Split(strings.Trim(f.Default, "[]"), ", ")
	}
	return f.Default
}
