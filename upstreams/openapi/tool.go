package openapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/mcp-portal/mcp-portal/wire"
)

// maxDescription bounds the description of a tool, in bytes.
const maxDescription = 3_000

// Tools are the operations as MCP tools, in the order of the document.
func (d *Document) Tools() []json.RawMessage {
	out := make([]json.RawMessage, 0, len(d.Operations)+1)
	for _, op := range d.Operations {
		out = append(out, d.tool(op))
	}
	if d.options.AnyRequest {
		out = append(out, anyRequestTool())
	}
	d.forget()
	return out
}

func (d *Document) tool(op *Operation) json.RawMessage {
	t := wire.Object{{Key: "name", Value: wire.Quote(op.Name)}}
	if s := oneLine(op.Summary, 120); s != "" {
		t = append(t, wire.Field{Key: "title", Value: wire.Quote(s)})
	}
	t = append(t, wire.Field{Key: "description", Value: wire.Quote(op.describe())}, wire.Field{Key: "inputSchema", Value: d.input(op)})
	if out := d.answer(op); out != nil {
		t = append(t, wire.Field{Key: "outputSchema", Value: out})
	}
	t = append(t, wire.Field{Key: "annotations", Value: op.annotations(d.options.Trust)})
	return t.Bytes()
}

// describe is the operation in words, with method and path at the end.
func (op *Operation) describe() string {
	var parts []string
	if op.Deprecated {
		parts = append(parts, "Deprecated.")
	}
	summary, description := strings.TrimSpace(op.Summary), strings.TrimSpace(op.Description)
	if summary != "" && !strings.HasPrefix(description, summary) {
		if !strings.ContainsAny(summary[len(summary)-1:], ".!?:") {
			summary += "."
		}
		parts = append(parts, summary)
	}
	if description != "" {
		parts = append(parts, cut(description, maxDescription))
	}
	return strings.Join(append(parts, fmt.Sprintf("(%s %s)", op.Method, op.Path)), "\n")
}

func (d *Document) input(op *Operation) json.RawMessage {
	schema, defs := d.fit(false, maxInputSchema, func(c *schemas) json.RawMessage {
		props := wire.Object{}
		required := []string{}
		for _, p := range op.params {
			s, err := wire.SplitObject(c.top(p.schema))
			if err != nil {
				s = wire.Object{}
			}
			if text := strings.TrimSpace(p.description); text != "" {
				c.room -= min(len(text), maxNote)
				s = s.SetString("description", cut(text, maxNote))
			}
			props = append(props, wire.Field{Key: p.arg, Value: s.Bytes()})
			if p.required {
				required = append(required, p.arg)
			}
		}
		if op.body != nil {
			props = append(props, wire.Field{Key: "body", Value: op.body.input(c)})
			if op.body.required {
				required = append(required, "body")
			}
		}
		o := wire.Object{{Key: "type", Value: json.RawMessage(`"object"`)}, {Key: "properties", Value: props.Bytes()}}
		if len(required) > 0 {
			o = append(o, wire.Field{Key: "required", Value: wire.Encode(required)})
		}
		return append(o, wire.Field{Key: "additionalProperties", Value: json.RawMessage("false")}).Bytes()
	})
	return withDefs(schema, defs)
}

func withDefs(schema json.RawMessage, defs wire.Object) json.RawMessage {
	o, err := wire.SplitObject(schema)
	if err != nil || len(defs) == 0 {
		return schema
	}
	return append(o, wire.Field{Key: "$defs", Value: defs.Bytes()}).Bytes()
}

// input is the schema of the argument body.
func (b *body) input(c *schemas) json.RawMessage {
	text := strings.TrimSpace(b.description)
	say := func(o wire.Object, what string) json.RawMessage {
		if what = strings.TrimSpace(strings.TrimSpace(text) + " " + what); what != "" && o.Get("description") == nil {
			o = o.SetString("description", cut(what, maxNote))
		}
		return o.Bytes()
	}
	switch b.kind {
	case bodyText:
		return say(wire.Object{{Key: "type", Value: json.RawMessage(`"string"`)}}, "("+b.media+")")
	case bodyBytes:
		return say(wire.Object{{Key: "type", Value: json.RawMessage(`"string"`)}, {Key: "contentEncoding", Value: json.RawMessage(`"base64"`)}}, "("+b.media+", as base64)")
	}
	o, err := wire.SplitObject(c.top(b.schema))
	if err != nil {
		return anything
	}
	if b.kind == bodyMultipart {
		o = b.files(c, o)
	}
	if b.kind != bodyJSON && o.Get("type") == nil && o.Get("$ref") == nil {
		o = o.SetString("type", "object")
	}
	return say(o, "")
}

// fileSchema is how a file is passed.
const fileSchema = `{"type":"object","description":"a file: base64 or text","properties":{"filename":{"type":"string"},"content_type":{"type":"string"},"base64":{"type":"string"},"text":{"type":"string"}}}`

// files writes the binary fields of a multipart body as files.
func (b *body) files(c *schemas, o wire.Object) wire.Object {
	props, err := wire.ParseObject(o.Get("properties"))
	if err != nil {
		return o
	}
	binary := func(raw json.RawMessage) bool {
		s, err := wire.ParseObject(raw)
		return err == nil && (s.String("format") == "binary" || s.String("contentMediaType") == "application/octet-stream")
	}
	for i, p := range props {
		s, err := wire.ParseObject(p.Value)
		switch {
		case err != nil:
		case binary(p.Value):
			props[i].Value = json.RawMessage(fileSchema)
			c.room -= len(fileSchema)
		case binary(s.Get("items")):
			props[i].Value = s.Set("items", json.RawMessage(fileSchema)).Bytes()
			c.room -= len(fileSchema)
		}
	}
	return o.Set("properties", props.Bytes())
}

// outputSchema is the type of the answer where that is an object.
func (d *Document) outputSchema(op *Operation) json.RawMessage {
	if op.output == nil {
		return nil
	}
	schema, defs := d.fit(true, maxOutputSchema, func(c *schemas) json.RawMessage { return c.schema(op.output, 0, 0) })
	o, err := wire.SplitObject(withDefs(schema, defs))
	if err != nil || len(o) == 0 {
		return nil
	}
	switch t := o.Get("type"); {
	case string(t) == `"object"`, t == nil && o.Get("properties") != nil:
		return o.SetString("type", "object").Bytes()
	case t == nil && (o.Get("allOf") != nil || o.Get("$ref") != nil):
		return o.SetString("type", "object").Bytes()
	}
	return nil
}

// annotations say what the method says (RFC 9110, 9.2). Extensions only
// tighten that, unless the administrator trusts the document.
func (op *Operation) annotations(trust bool) json.RawMessage {
	readOnly := Safe(op.Method)
	destructive := op.Method == http.MethodDelete
	idempotent := readOnly || op.Method == http.MethodPut || op.Method == http.MethodDelete
	if h := op.hints.readOnly; h != nil && (trust || !*h) {
		readOnly = *h
	}
	if h := op.hints.destructive; h != nil && (trust || *h) {
		destructive = *h
		readOnly = readOnly && !*h
	}
	if h := op.hints.idempotent; h != nil {
		idempotent = *h
	}
	open := true
	if h := op.hints.openWorld; h != nil {
		open = *h
	}
	return wire.Object{
		{Key: "readOnlyHint", Value: wire.Encode(readOnly)}, {Key: "destructiveHint", Value: wire.Encode(destructive)},
		{Key: "idempotentHint", Value: wire.Encode(idempotent)}, {Key: "openWorldHint", Value: wire.Encode(open)},
	}.Bytes()
}

func anyRequestTool() json.RawMessage {
	return wire.Object{
		{Key: "name", Value: wire.Quote(AnyRequestTool)},
		{Key: "description", Value: wire.Quote("Sends a request that the API's document does not describe. Use the tool of an operation where there is one.")},
		{Key: "inputSchema", Value: json.RawMessage(`{"type":"object","properties":{"method":{"type":"string","enum":["GET","HEAD","POST","PUT","PATCH","DELETE"]},"path":{"type":"string","description":"below the address of the API, beginning with a slash; values percent-encoded"},"query":{"type":"object","additionalProperties":true},"body":{"description":"sent as JSON"}},"required":["method","path"],"additionalProperties":false}`)},
		{Key: "annotations", Value: json.RawMessage(`{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":true}`)},
	}.Bytes()
}
