package openapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/mcp-portal/mcp-portal/wire"
)

// maxWarnings bounds what is said about one document.
const maxWarnings = 50

// Operation is one method of one path.
type Operation struct {
	Name        string // of its tool, unique within the document
	ID          string // operationId; may be empty
	Method      string // upper case
	Path        string // template, as in the document
	Summary     string
	Description string
	Tags        []string
	Deprecated  bool

	params   []*param
	body     *body
	segments []segment
	fixed    string // query that the path itself has
	hints    hints
	output   json.RawMessage // schema of what it answers; nil: unknown
}

// param is one parameter outside the body.
type param struct {
	arg         string // of the tool
	name, in    string // of the request
	required    bool
	style       string
	explode     bool
	json        bool // its value travels as JSON
	description string
	schema      json.RawMessage
}

// hints are what extensions of the document say about an operation.
type hints struct{ readOnly, destructive, idempotent, openWorld *bool }

func methods() []string {
	return []string{"get", "head", "post", "put", "patch", "delete", "options", "trace", "query"}
}

// Safe reports whether the method only reads (RFC 9110, 9.2.1).
func Safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, "QUERY":
		return true
	}
	return false
}

func (d *Document) warn(format string, args ...any) {
	if len(d.Warnings) < maxWarnings {
		d.Warnings = append(d.Warnings, oneLine(fmt.Sprintf(format, args...), 300))
	}
}

func (d *Document) readOperations() {
	paths, err := wire.ParseObject(d.root.Get("paths"))
	if err != nil && d.root.Get("paths") != nil {
		d.warn("paths is no object")
	}
	filter := newFilter(d.options)
	hidden := string(d.root.Get("x-mcp")) == "false"
	for _, p := range paths {
		if strings.HasPrefix(p.Key, "x-") {
			continue
		}
		item := d.follow(p.Value)
		if item == nil {
			d.warn("path %s cannot be read: it is no object, or its $ref leads nowhere", p.Key)
			continue
		}
		for _, m := range methods() {
			raw := item.Get(m)
			if raw == nil {
				continue
			}
			d.Total++
			o, err := wire.ParseObject(raw)
			if err != nil {
				d.warn("%s %s is no object", strings.ToUpper(m), p.Key)
				continue
			}
			op := &Operation{ID: o.String("operationId"), Method: strings.ToUpper(m), Path: p.Key, Summary: o.String("summary"), Description: o.String("description"),
				Deprecated: string(o.Get("deprecated")) == "true"}
			if op.Summary == "" {
				op.Summary = item.String("summary")
			}
			if op.Description == "" {
				op.Description = item.String("description")
			}
			_ = json.Unmarshal(o.Get("tags"), &op.Tags) // no list: no tags
			if !filter.keeps(op) || isHidden(hidden, item, o) {
				continue
			}
			if err := d.readOperation(op, item, o); err != nil {
				d.warn("%s %s cannot be called: %v", op.Method, op.Path, err)
				continue
			}
			d.Operations = append(d.Operations, op)
		}
	}
	d.nameOperations()
	d.forget()
}

// isHidden reports whether the document asks not to be offered to models:
// x-mcp: false at the operation, its path or the whole.
func isHidden(all bool, item, op wire.Object) bool {
	for _, o := range []wire.Object{op, item} {
		switch string(o.Get("x-mcp")) {
		case "false":
			return true
		case "true":
			return false
		}
	}
	return all
}

func (d *Document) readOperation(op *Operation, item, o wire.Object) error {
	var err error
	if op.segments, op.fixed, err = parsePath(op.Path); err != nil {
		return err
	}
	op.hints = readHints(o)
	if err := d.readParams(op, item.Get("parameters"), o.Get("parameters")); err != nil {
		return err
	}
	if d.Version == "2.0" {
		d.swaggerBody(op, o, item)
	} else if raw := o.Get("requestBody"); raw != nil {
		d.readBody(op, d.follow(raw))
	}
	d.nameArguments(op)
	op.output = d.readOutput(o)
	return nil
}

// readParams reads the parameters of a path and of an operation; the latter
// replace those of the path with the same name and place.
func (d *Document) readParams(op *Operation, lists ...json.RawMessage) error {
	var list []json.RawMessage
	for _, l := range lists {
		var part []json.RawMessage
		if l != nil && json.Unmarshal(l, &part) != nil {
			d.warn("%s %s: parameters is no list", op.Method, op.Path)
		}
		list = append(list, part...)
	}
	for _, raw := range list {
		o := d.follow(raw)
		p := &param{name: o.String("name"), in: o.String("in"), required: string(o.Get("required")) == "true", description: o.String("description"), schema: o.Get("schema")}
		switch {
		case o == nil:
			d.warn("%s %s: a parameter is left out, its $ref leads nowhere", op.Method, op.Path)
			continue
		case p.in == "body" || p.in == "formData":
			continue // see swaggerBody
		case p.in == "query" && p.name == "":
			continue
		case p.in != "query" && p.in != "header" && p.in != "path" && p.in != "cookie":
			continue
		case p.in == "header" && d.ownHeader(p.name):
			continue
		case p.in == "query" && slices.ContainsFunc(d.options.Query, func(own string) bool { return strings.EqualFold(own, p.name) }):
			continue // as above
		}
		p.readStyle(d.Version, o)
		if p.schema == nil && d.Version == "2.0" {
			p.schema = o.Without("name", "in", "required", "description", "collectionFormat").Bytes()
		}
		if i := slices.IndexFunc(op.params, func(q *param) bool { return q.name == p.name && q.in == p.in }); i >= 0 {
			op.params[i] = p
		} else {
			op.params = append(op.params, p)
		}
	}
	// What the template names is needed, and what it does not name cannot be sent.
	names := map[string]bool{}
	for _, s := range op.segments {
		for _, part := range s {
			if part.param != "" {
				names[part.param] = true
			}
		}
	}
	op.params = slices.DeleteFunc(op.params, func(p *param) bool { return p.in == "path" && !names[p.name] })
	for _, s := range op.segments {
		for _, part := range s {
			if part.param == "" {
				continue
			}
			i := slices.IndexFunc(op.params, func(p *param) bool { return p.in == "path" && p.name == part.param })
			if i < 0 {
				op.params = append(op.params, &param{name: part.param, in: "path", style: "simple", schema: json.RawMessage(`{"type":"string"}`)})
				i = len(op.params) - 1
			}
			op.params[i].required = true
		}
	}
	return nil
}

// ownHeader reports headers that an argument must not set: those of HTTP
// itself, those that the specification takes from elsewhere, and those that the
// administrator has set.
func (d *Document) ownHeader(name string) bool {
	if !validHeaderName(name) {
		return true
	}
	for _, h := range d.options.Headers {
		if strings.EqualFold(h, name) {
			return true
		}
	}
	switch strings.ToLower(name) {
	case "accept", "accept-encoding", "authorization", "connection", "content-length", "content-type", "content-encoding", "cookie", "expect", "host", "keep-alive",
		"proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "x-http-method", "x-http-method-override", "x-method-override":
		return true
	}
	return false
}

// nameArguments gives every parameter the name of its argument: its own, or
// with its place behind it where two would share one. "body" is the body's.
func (d *Document) nameArguments(op *Operation) {
	count := map[string]int{}
	if op.body != nil {
		count["body"] = 1
	}
	for _, p := range op.params {
		count[p.name]++
	}
	for _, p := range op.params {
		p.arg = p.name
		if count[p.name] > 1 && (p.in != "path" || p.name == "body") {
			p.arg = p.name + "_" + p.in
		}
	}
	taken := map[string]bool{}
	for _, p := range op.params {
		for taken[p.arg] {
			p.arg += "_"
		}
		taken[p.arg] = true
	}
}

// argument is the parameter of an argument; nil: none has the name.
func (op *Operation) argument(name string) *param {
	for _, p := range op.params {
		if p.arg == name {
			return p
		}
	}
	return nil
}

// Arguments are the names that its tool takes, in the order of the document.
func (op *Operation) Arguments() []string {
	var out []string
	for _, p := range op.params {
		out = append(out, p.arg)
	}
	if op.body != nil {
		out = append(out, "body")
	}
	return out
}

// readHints reads x-mcp: an object with the hints of MCP.
func readHints(o wire.Object) (h hints) {
	x, err := wire.ParseObject(o.Get("x-mcp"))
	if err != nil {
		return h
	}
	read := func(key string) *bool {
		switch string(x.Get(key)) {
		case "true":
			return new(true)
		case "false":
			return new(false)
		}
		return nil
	}
	return hints{read("readOnlyHint"), read("destructiveHint"), read("idempotentHint"), read("openWorldHint")}
}

// readOutput is the schema of the first successful answer in JSON.
func (d *Document) readOutput(o wire.Object) json.RawMessage {
	responses, err := wire.ParseObject(o.Get("responses"))
	if err != nil {
		return nil
	}
	var found json.RawMessage
	best := "~"
	for _, r := range responses {
		code := strings.ToUpper(r.Key)
		if !strings.HasPrefix(code, "2") && code != "DEFAULT" || code >= best {
			continue
		}
		resp := d.follow(r.Value)
		schema := resp.Get("schema") // 2.0
		content, _ := wire.ParseObject(resp.Get("content"))
		for _, c := range content {
			if isJSON(c.Key) {
				m, _ := wire.ParseObject(c.Value)
				schema = m.Get("schema")
				break
			}
		}
		if schema != nil {
			best, found = code, schema
		}
	}
	return found
}
