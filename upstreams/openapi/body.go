package openapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strings"

	"github.com/mcp-portal/mcp-portal/wire"
)

// kinds of bodies.
type bodyKind int

const (
	bodyJSON bodyKind = iota
	bodyForm
	bodyMultipart
	bodyText
	bodyBytes
)

// body is what an operation takes as the body of its request, in the first
// media type that can be written, JSON before others.
type body struct {
	required    bool
	media       string
	kind        bodyKind
	schema      json.RawMessage
	encoding    wire.Object // of the fields of a form
	description string
}

func isJSON(media string) bool {
	t, _, err := mime.ParseMediaType(media)
	if err != nil {
		t = media
	}
	t = strings.ToLower(strings.TrimSpace(t))
	return t == "application/json" || t == "text/json" || strings.HasSuffix(t, "+json") || t == "*/*" || t == "application/*"
}

func kindOf(media string) bodyKind {
	t, _, err := mime.ParseMediaType(media)
	if err != nil {
		t = strings.ToLower(media)
	}
	switch {
	case isJSON(t):
		return bodyJSON
	case t == "application/x-www-form-urlencoded":
		return bodyForm
	case strings.HasPrefix(t, "multipart/"):
		return bodyMultipart
	case isText(t):
		return bodyText
	}
	return bodyBytes
}

// isText reports media types whose content is text.
func isText(t string) bool {
	switch t {
	case "application/xml", "application/javascript", "application/yaml", "application/x-yaml", "application/graphql", "application/sql", "application/x-ndjson",
		"application/jsonl", "application/toml", "application/sparql-query":
		return true
	}
	return strings.HasPrefix(t, "text/") || strings.HasSuffix(t, "+xml") || strings.HasSuffix(t, "+yaml")
}

// readBody reads requestBody of OpenAPI 3.
func (d *Document) readBody(op *Operation, o wire.Object) {
	content, err := wire.ParseObject(o.Get("content"))
	if err != nil || len(content) == 0 {
		if string(o.Get("required")) == "true" {
			d.warn("%s %s: its body has no content that can be read", op.Method, op.Path)
		}
		return
	}
	best := 0
	for i, c := range content {
		if kindOf(c.Key) < kindOf(content[best].Key) {
			best = i
		}
	}
	m, _ := wire.ParseObject(content[best].Value) // no object: no schema
	op.body = &body{required: string(o.Get("required")) == "true", media: content[best].Key, kind: kindOf(content[best].Key), schema: m.Get("schema"), description: o.String("description")}
	if strings.Contains(op.body.media, "*") {
		op.body.media = "application/json"
	}
	op.body.encoding, _ = wire.ParseObject(m.Get("encoding")) // no object: defaults
	// Some generators demand a body of every method and say nothing of it.
	if empty := op.body.schema == nil || string(op.body.schema) == "{}"; empty && (Safe(op.Method) || op.Method == http.MethodDelete) {
		op.body.required = false
	}
}

// swaggerBody reads the body of Swagger 2: a parameter in "body", or several in
// "formData".
func (d *Document) swaggerBody(op *Operation, o, item wire.Object) {
	var list, own []json.RawMessage
	_ = json.Unmarshal(item.Get("parameters"), &list) // said by readParams
	_ = json.Unmarshal(o.Get("parameters"), &own)
	var consumes []string
	if json.Unmarshal(o.Get("consumes"), &consumes) != nil || len(consumes) == 0 {
		_ = json.Unmarshal(d.root.Get("consumes"), &consumes) // neither: JSON
	}
	var fields, encoding wire.Object
	var required []string
	media := ""
	for _, raw := range append(list, own...) {
		p := d.follow(raw)
		switch p.String("in") {
		case "body":
			b := &body{required: string(p.Get("required")) == "true", media: "application/json", schema: p.Get("schema"), description: p.String("description")}
			for i, c := range consumes {
				if i == 0 || kindOf(c) < b.kind {
					b.media, b.kind = c, kindOf(c)
				}
			}
			if strings.Contains(b.media, "*") {
				b.media = "application/json"
			}
			op.body = b
		case "formData":
			name := p.String("name")
			schema := p.Without("name", "in", "required", "collectionFormat")
			if p.String("type") == "file" {
				media = "multipart/form-data"
				schema = schema.SetString("type", "string").SetString("format", "binary")
			}
			fields = fields.Set(name, schema.Bytes())
			explode := "false"
			if p.String("collectionFormat") == "multi" {
				explode = "true"
			}
			encoding = encoding.Set(name, json.RawMessage(`{"style":"form","explode":`+explode+`}`))
			if string(p.Get("required")) == "true" {
				required = append(required, name)
			}
		}
	}
	if op.body != nil || fields == nil {
		return
	}
	if media == "" {
		media = "application/x-www-form-urlencoded"
		if contains(consumes, "multipart/form-data") && !contains(consumes, media) {
			media = "multipart/form-data"
		}
	}
	schema := wire.Object{{Key: "type", Value: json.RawMessage(`"object"`)}, {Key: "properties", Value: fields.Bytes()}}
	if required != nil {
		schema = append(schema, wire.Field{Key: "required", Value: wire.Encode(required)})
	}
	op.body = &body{required: len(required) > 0, media: media, kind: kindOf(media), schema: schema.Bytes(), encoding: encoding}
}

// encode writes a body.
func (b *body) encode(v json.RawMessage) (contentType string, data []byte, err error) {
	switch b.kind {
	case bodyJSON:
		return b.media, v, nil
	case bodyForm:
		pairs, err := b.form(v)
		return "application/x-www-form-urlencoded", []byte(encodePairs(pairs)), err
	case bodyMultipart:
		return b.multipart(v)
	case bodyText:
		if first(v) != '"' {
			return "", nil, fmt.Errorf("must be text (%s): write the document itself, it is sent as it is; no object is made into one", b.media)
		}
		return b.media, []byte(scalar(v)), nil
	}
	data, err = base64.StdEncoding.DecodeString(scalar(v))
	if first(v) != '"' || err != nil {
		return "", nil, fmt.Errorf("must be text that is the base64 of the %s", b.media)
	}
	media := b.media
	if strings.Contains(media, "*") {
		media = "application/octet-stream"
	}
	return media, data, nil
}

// form writes an object as pairs, each field by its encoding. Lists repeat the
// name; objects use brackets, as interfaces with such bodies read them.
func (b *body) form(v json.RawMessage) ([]pair, error) {
	o, err := wire.ParseObject(v)
	if err != nil {
		return nil, errors.New("must be an object with the fields of the form")
	}
	var out []pair
	for _, f := range o {
		if string(f.Value) == "null" {
			continue
		}
		e, _ := wire.ParseObject(b.encoding.Get(f.Key)) // none: defaults
		p := &param{arg: f.Key, name: f.Key, in: "query"}
		p.readStyle("3", e)
		nested := first(f.Value) == '{'
		if first(f.Value) == '[' {
			var items []json.RawMessage
			_ = json.Unmarshal(f.Value, &items)
			for _, x := range items {
				nested = nested || first(x) == '{' || first(x) == '['
			}
		}
		if isJSON(e.String("contentType")) && e.String("contentType") != "" {
			p.json = true
		} else if e.String("style") == "" && nested {
			p.style = "deepObject"
		}
		pairs, err := p.pairs(f.Value)
		if err != nil {
			return nil, err
		}
		out = append(out, pairs...)
	}
	return out, nil
}

// multipart writes an object as parts. A file is {"base64": …} or {"text": …},
// with filename and content_type if wanted.
func (b *body) multipart(v json.RawMessage) (string, []byte, error) {
	o, err := wire.ParseObject(v)
	if err != nil {
		return "", nil, errors.New("must be an object with the parts")
	}
	var buf bytes.Buffer
	w := multipart.NewWriter(&buf)
	for _, f := range o {
		values := []json.RawMessage{f.Value}
		if first(f.Value) == '[' {
			if err := json.Unmarshal(f.Value, &values); err != nil {
				return "", nil, err
			}
		}
		for _, x := range values {
			if string(x) == "null" {
				continue
			}
			if err := b.writePart(w, f.Key, x); err != nil {
				return "", nil, err
			}
		}
	}
	if err := w.Close(); err != nil {
		return "", nil, err
	}
	media := "multipart/form-data"
	if t, _, err := mime.ParseMediaType(b.media); err == nil && !strings.Contains(t, "*") {
		media = t
	}
	return mime.FormatMediaType(media, map[string]string{"boundary": w.Boundary()}), buf.Bytes(), nil
}

func (b *body) writePart(w *multipart.Writer, name string, v json.RawMessage) error {
	e, _ := wire.ParseObject(b.encoding.Get(name)) // none: defaults
	kind := e.String("contentType")
	if strings.ContainsAny(kind, ",*") {
		kind = ""
	}
	data, file := []byte(scalar(v)), ""
	if first(v) == '{' || first(v) == '[' {
		data = v
		o, _ := wire.ParseObject(v)
		switch {
		case isFile(o) && o.Get("base64") != nil:
			raw, err := base64.StdEncoding.DecodeString(o.String("base64"))
			if err != nil {
				return fmt.Errorf("%s.base64 is not base64", name)
			}
			data, file = raw, o.String("filename")
			if kind = o.String("content_type"); kind == "" {
				kind = "application/octet-stream"
			}
		case isFile(o):
			data, file = []byte(o.String("text")), o.String("filename")
			if kind = o.String("content_type"); kind == "" {
				kind = "text/plain; charset=utf-8"
			}
		case kind == "":
			kind = "application/json"
		}
		if isFile(o) && file == "" {
			file = name
		}
	}
	if strings.ContainsAny(name+file+kind, "\r\n\x00") {
		return fmt.Errorf("%s has a line break where none can be", cut(name, 60))
	}
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace
	h := textproto.MIMEHeader{}
	disposition := `form-data; name="` + quote(name) + `"`
	if file != "" {
		disposition += `; filename="` + quote(file) + `"`
	}
	h.Set("Content-Disposition", disposition)
	if kind != "" {
		h.Set("Content-Type", kind)
	}
	p, err := w.CreatePart(h)
	if err != nil {
		return err
	}
	_, err = p.Write(data)
	return err
}

// isFile reports an argument that is a file: its members say so and nothing
// else.
func isFile(o wire.Object) bool {
	if o.Get("base64") == nil && o.Get("text") == nil {
		return false
	}
	for _, f := range o {
		switch f.Key {
		case "base64", "text", "filename", "content_type":
		default:
			return false
		}
	}
	return true
}
