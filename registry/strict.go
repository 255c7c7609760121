package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/mcp-portal/mcp-portal/wire"
)

// Strict clients refuse schemas that JSON Schema allows, and some then refuse
// every tool of the server. The rewriting here replaces such places by an
// equivalent that all accept and keeps every other byte:
//
//   - true and false as the schema of a property, of items, of an alternative
//     and so on become {} and {"not":{}}.
//   - additionalProperties, additionalItems, unevaluatedProperties and
//     unevaluatedItems keep their booleans: there a boolean is the oldest form,
//     and clients that ask for additionalProperties ask for false.
//   - null where a schema, or an object of schemas, belongs becomes {}.
//   - Only places where a schema is expected are looked at: never const, enum,
//     default or examples. References and definitions keep their names.

// schemaDepth bounds nesting; deeper schemas are of no use to a client.
const schemaDepth = 64

// place is how a keyword holds schemas.
type place int

const (
	placeNone   place = iota
	placeSchema       // a schema
	placeList         // an array of schemas
	placeMap          // an object of schemas
	placeEither       // a schema or an array of schemas (items before 2020-12)
	placeLoose        // a schema or a boolean that stays
	placeDeps         // an object of schemas or arrays of names (dependencies)
)

func placeOf(keyword string) place {
	switch keyword {
	case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
		return placeMap
	case "dependencies":
		return placeDeps
	case "allOf", "anyOf", "oneOf", "prefixItems":
		return placeList
	case "items":
		return placeEither
	case "additionalProperties", "additionalItems", "unevaluatedProperties", "unevaluatedItems":
		return placeLoose
	case "not", "if", "then", "else", "contains", "propertyNames", "contentSchema":
		return placeSchema
	}
	return placeNone
}

var (
	anything = json.RawMessage(`{}`)
	nothing  = json.RawMessage(`{"not":{}}`)
)

// strictSchema returns the schema with every sub-schema in object form. The
// bytes are those given if nothing had to change.
func strictSchema(b json.RawMessage, depth int) (json.RawMessage, error) {
	if depth > schemaDepth {
		return nil, fmt.Errorf("schema is nested deeper than %d levels", schemaDepth)
	}
	switch b = bytes.TrimSpace(b); string(b) {
	case "true", "null":
		return anything, nil
	case "false":
		return nothing, nil
	}
	if len(b) == 0 || b[0] != '{' {
		return nil, fmt.Errorf("a schema is expected where %s stands", excerpt(b))
	}
	o, err := wire.ParseObject(b)
	if err != nil {
		return nil, err
	}
	changed := false
	for i, f := range o {
		v, err := strictKeyword(placeOf(f.Key), f.Value, depth)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Key, err)
		}
		if !bytes.Equal(v, f.Value) {
			o[i].Value, changed = v, true
		}
	}
	if !changed {
		return b, nil
	}
	return o.Bytes(), nil
}

func strictKeyword(p place, b json.RawMessage, depth int) (json.RawMessage, error) {
	first := byte(0)
	if t := bytes.TrimSpace(b); len(t) > 0 {
		first = t[0]
	}
	switch p {
	case placeNone:
		return b, nil
	case placeLoose:
		if first == 't' || first == 'f' {
			return b, nil
		}
	case placeEither:
		if first == '[' {
			return strictList(b, depth)
		}
	case placeList:
		if first != '[' {
			return nil, fmt.Errorf("a list of schemas is expected where %s stands", excerpt(b))
		}
		return strictList(b, depth)
	case placeMap, placeDeps:
		if first == 'n' { // null: none
			return anything, nil
		}
		if first != '{' {
			return nil, fmt.Errorf("an object of schemas is expected where %s stands", excerpt(b))
		}
		o, err := wire.ParseObject(b)
		if err != nil {
			return nil, err
		}
		changed := false
		for i, f := range o {
			if p == placeDeps && len(f.Value) > 0 && f.Value[0] == '[' {
				continue
			}
			v, err := strictSchema(f.Value, depth+1)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.Key, err)
			}
			if !bytes.Equal(v, f.Value) {
				o[i].Value, changed = v, true
			}
		}
		if !changed {
			return b, nil
		}
		return o.Bytes(), nil
	}
	return strictSchema(b, depth+1)
}

func strictList(b json.RawMessage, depth int) (json.RawMessage, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, err
	}
	changed := false
	for i, s := range list {
		v, err := strictSchema(s, depth+1)
		if err != nil {
			return nil, fmt.Errorf("%d: %w", i, err)
		}
		if !bytes.Equal(v, s) {
			list[i], changed = v, true
		}
	}
	if !changed {
		return b, nil
	}
	out := []byte{'['}
	for i, s := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, s...)
	}
	return append(out, ']'), nil
}

// acceptable reports whether a decoded schema needs no rewriting. Most do not,
// and looking at the decoded form is much cheaper than taking bytes apart.
func acceptable(v any, depth int) bool {
	o, ok := v.(map[string]any)
	if !ok || depth > schemaDepth {
		return false
	}
	for k, v := range o {
		p := placeOf(k)
		switch v := v.(type) {
		case map[string]any:
			switch p {
			case placeSchema, placeEither, placeLoose:
				if !acceptable(v, depth+1) {
					return false
				}
			case placeMap, placeDeps:
				for _, s := range v {
					if _, names := s.([]any); names && p == placeDeps {
						continue
					}
					if !acceptable(s, depth+1) {
						return false
					}
				}
			case placeList:
				return false
			}
		case []any:
			switch p {
			case placeList, placeEither:
				for _, s := range v {
					if !acceptable(s, depth+1) {
						return false
					}
				}
			case placeNone:
			default:
				return false
			}
		case bool:
			if p != placeNone && p != placeLoose {
				return false
			}
		default:
			if p != placeNone {
				return false
			}
		}
	}
	return true
}

// errNotObject is why a tool whose arguments cannot be an object is withheld:
// MCP has no way to pass it any others.
var errNotObject = errors.New(`its arguments are not an object, and MCP passes nothing else`)

// strictInput is the outward form of an input schema: always an object schema
// with properties, as every client and model API accepts it.
// decoded is the same schema, decoded.
func strictInput(b json.RawMessage, decoded any) (json.RawMessage, error) {
	switch t := bytes.TrimSpace(b); {
	case len(t) == 0, string(t) == "null", string(t) == "true":
		return json.RawMessage(`{"type":"object","properties":{}}`), nil
	case string(t) == "false":
		return nil, errors.New("its schema is false: no call could ever be valid")
	}
	if top, ok := decoded.(map[string]any); ok && acceptable(decoded, 0) {
		if _, has := top["properties"]; has && top["type"] == "object" {
			return b, nil
		}
	}
	b, err := strictSchema(b, 0)
	if err != nil {
		return nil, err
	}
	o, err := wire.ParseObject(b)
	if err != nil {
		return nil, err
	}
	t, ok := objectType(o.Get("type"))
	if !ok {
		return nil, fmt.Errorf(`its type is %s: %w`, excerpt(o.Get("type")), errNotObject)
	}
	if !bytes.Equal(t, o.Get("type")) {
		o, b = o.Set("type", t), nil
	}
	if o.Get("properties") == nil {
		o, b = o.Set("properties", anything), nil
	}
	if b != nil {
		return b, nil
	}
	return o.Bytes(), nil
}

// strictOutput is the outward form of an output schema. Clients demand that it
// describes an object; one that describes something else is left out, which
// they accept, and reported by ok=false.
func strictOutput(b json.RawMessage) (schema json.RawMessage, ok bool, err error) {
	if t := bytes.TrimSpace(b); len(t) == 0 || t[0] != '{' {
		return nil, string(t) == "null" || len(t) == 0, nil
	}
	if b, err = strictSchema(b, 0); err != nil {
		return nil, false, err
	}
	o, err := wire.ParseObject(b)
	if err != nil {
		return nil, false, err
	}
	t, ok := objectType(o.Get("type"))
	if !ok {
		return nil, false, nil
	}
	if !bytes.Equal(t, o.Get("type")) {
		b = o.Set("type", t).Bytes()
	}
	return b, true, nil
}

var typeObject = json.RawMessage(`"object"`)

// objectType is what type must become for a schema of objects: the keyword may
// be absent, "object", or a list with "object" in it.
func objectType(t json.RawMessage) (json.RawMessage, bool) {
	t = bytes.TrimSpace(t)
	var one string
	var many []string
	switch {
	case len(t) == 0, string(t) == "null":
		return typeObject, true
	case t[0] == '"' && json.Unmarshal(t, &one) == nil:
		if one == "object" {
			return t, true
		}
	case t[0] == '[' && json.Unmarshal(t, &many) == nil:
		return typeObject, slices.Contains(many, "object")
	}
	return nil, false
}

// excerpt shows a little of some JSON in a message.
func excerpt(b []byte) string {
	const most = 40
	if r := []rune(string(b)); len(r) > most {
		return string(r[:most]) + "…"
	}
	return string(b)
}
