package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/mcp-portal/mcp-portal/wire"
)

// ParamHeader is an argument that travels in a header, too (2026-07-28,
// basic/transports/streamable-http, "x-mcp-header").
type ParamHeader struct {
	Path []string // names of members, from arguments inwards
	Name string   // what follows Mcp-Param-
}

const headerMark = "x-mcp-header"

// ParamHeaders are the arguments of a tool, by its input schema, that travel in
// headers. Marks that break the rules count for nothing.
func ParamHeaders(schema json.RawMessage) []ParamHeader {
	list, _, _ := paramHeaders(schema)
	return list
}

// paramHeaders reads which arguments of a tool travel in headers. Marks that
// break the rules (no header name, one that is there already, not on a string,
// an integer or a boolean) count for nothing: outer is the schema without them,
// because clients must refuse a tool that has one, and note says which they
// were. outer is nil when nothing had to go. (Such tools of 2026-07-28 servers
// over HTTP are withheld altogether, see addTools.)
func paramHeaders(schema json.RawMessage) (list []ParamHeader, outer json.RawMessage, note string) {
	if !bytes.Contains(schema, []byte(headerMark)) {
		return nil, nil, ""
	}
	w := headerWalk{seen: map[string]bool{}}
	if o := w.schema(schema, nil); o != nil {
		outer = o
	}
	if len(w.bad) > 0 {
		note = "x-mcp-header marks that break the protocol's rules: " + strings.Join(w.bad, "; ")
	}
	return w.list, outer, note
}

type headerWalk struct {
	list []ParamHeader
	seen map[string]bool // header names, lower case
	bad  []string
}

// schema walks over the properties of a schema; the result is nil when it may
// stay as it is.
func (w *headerWalk) schema(b json.RawMessage, path []string) json.RawMessage {
	o, err := wire.ParseObject(b)
	if err != nil || len(path) > schemaDepth {
		return nil
	}
	props, err := wire.ParseObject(o.Get("properties"))
	if err != nil {
		return nil
	}
	changed := false
	for i, p := range props {
		at := append(path[:len(path):len(path)], p.Key)
		prop, err := wire.ParseObject(p.Value)
		if err != nil {
			continue
		}
		if mark := prop.Get(headerMark); mark != nil {
			if why := w.take(prop, at); why != "" {
				if len(w.bad) < 5 {
					w.bad = append(w.bad, strings.Join(at, ".")+" "+why)
				}
				prop = prop.Without(headerMark)
				props[i].Value, changed = prop.Bytes(), true
			}
		}
		if inner := w.schema(props[i].Value, at); inner != nil {
			props[i].Value, changed = inner, true
		}
	}
	if !changed {
		return nil
	}
	return o.Set("properties", props.Bytes()).Bytes()
}

// take notes one mark, or says what is wrong with it.
func (w *headerWalk) take(prop wire.Object, at []string) string {
	name := prop.String(headerMark)
	switch t := prop.String("type"); {
	case !headerToken(name):
		return fmt.Sprintf("(%s is no header name)", excerpt(prop.Get(headerMark)))
	case t != "string" && t != "integer" && t != "boolean":
		return "(it is not a string, an integer or a boolean)"
	case w.seen[strings.ToLower(name)]:
		return fmt.Sprintf("(%s is taken)", name)
	}
	w.seen[strings.ToLower(name)] = true
	w.list = append(w.list, ParamHeader{Path: at, Name: name})
	return ""
}

// headerToken reports whether s can stand in a header name (RFC 9110, 5.6.2).
func headerToken(s string) bool {
	for _, c := range s {
		if !strings.ContainsRune("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", c) {
			return false
		}
	}
	return s != ""
}
