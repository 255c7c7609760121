package openapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"github.com/mcp-portal/mcp-portal/wire"
)

// MaxDocument bounds a document, in bytes.
const MaxDocument = 64 << 20

// Options say what of a document counts.
type Options struct {
	Include []string // patterns of operations, see Filter; empty: all
	Exclude []string
	// Headers are set by the portal itself; parameters of these names are left
	// out.
	Headers []string
	Query   []string // the same for parameters of the query
	// AnyRequest adds a tool for requests that the document does not describe.
	AnyRequest bool
	// Trust lets x-mcp hints loosen what the method says.
	Trust bool
}

// Document is one OpenAPI document, ready to be used. It is safe for
// concurrent use.
type Document struct {
	Version     string // "2.0", "3.0.3", "3.1.0", …
	Title       string
	APIVersion  string
	Description string
	Operations  []*Operation // in the order of the document
	Total       int          // operations before Include and Exclude
	Warnings    []string     // what could not be used, and why

	options Options
	raw     json.RawMessage // compact
	root    wire.Object
	byName  map[string]*Operation

	mu      sync.Mutex
	objects map[string]map[string]json.RawMessage // containers by pointer, for refs
	parsed  map[*byte]wire.Object                 // parts by where they begin, for schemas: many tools share them
	found   map[string]json.RawMessage            // what references lead to
	written map[writtenKey]*written               // schemas of bodies and parameters
	answers map[string]json.RawMessage            // output schemas
}

// Parse reads a document in JSON or YAML, OpenAPI 3 or Swagger 2.
func Parse(data []byte, o Options) (*Document, error) {
	if len(data) > MaxDocument {
		return nil, fmt.Errorf("the document has %d bytes, more than the %d that are read", len(data), MaxDocument)
	}
	raw, err := toJSON(data)
	if err != nil {
		return nil, err
	}
	d := &Document{options: o, raw: raw, byName: map[string]*Operation{}}
	d.forget()
	if d.root, err = wire.ParseObject(raw); err != nil {
		return nil, fmt.Errorf("the document is no object: %w", err)
	}
	switch swagger, v := scalar(d.root.Get("swagger")), scalar(d.root.Get("openapi")); {
	case swagger == "2.0" || swagger == "2":
		d.Version = "2.0"
	case strings.HasPrefix(v, "3."):
		d.Version = v
	case swagger != "" || v != "":
		return nil, fmt.Errorf("version %.20q is not read: OpenAPI 3.0, 3.1 and Swagger 2.0 are", swagger+v)
	default:
		return nil, errors.New(`it is no OpenAPI document: it has neither "openapi" nor "swagger" at its top`)
	}
	info, _ := wire.ParseObject(d.root.Get("info")) // a document without one still works
	d.Title, d.APIVersion, d.Description = oneLine(info.String("title"), 200), scalar(info.Get("version")), info.String("description")
	d.readOperations()
	if len(d.Operations) == 0 && !o.AnyRequest {
		if d.Total > 0 && len(d.Warnings) == 0 && len(o.Include)+len(o.Exclude) > 0 {
			return nil, fmt.Errorf("of its %d operations none is left by operations.include and operations.exclude", d.Total)
		}
		return nil, errors.New("the document describes no operation that can be called" + firstWarning(d.Warnings))
	}
	return d, nil
}

func firstWarning(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return ": " + list[0]
}

// Operation is the one whose tool has the name; nil: none.
func (d *Document) Operation(name string) *Operation { return d.byName[name] }

// Base is the address that the document gives for itself: its first server,
// with defaults for variables, relative to where the document was found (nil: a
// file). Nil: it names none that could be used.
func (d *Document) Base(found *url.URL) *url.URL {
	var text string
	if d.Version == "2.0" {
		host, path := d.root.String("host"), d.root.String("basePath")
		scheme := "https"
		var schemes []string
		if json.Unmarshal(d.root.Get("schemes"), &schemes) == nil && len(schemes) > 0 && !contains(schemes, "https") {
			scheme = schemes[0]
		}
		switch {
		case host != "":
			text = scheme + "://" + host + path
		case path != "":
			text = path
		default:
			text = "/"
		}
	} else {
		text = "/"
		var servers []json.RawMessage
		if json.Unmarshal(d.root.Get("servers"), &servers) == nil && len(servers) > 0 {
			s, _ := wire.ParseObject(servers[0]) // no object: no URL
			text = s.String("url")
			vars, _ := wire.ParseObject(s.Get("variables"))
			for _, v := range vars {
				def, _ := wire.ParseObject(v.Value)
				text = strings.ReplaceAll(text, "{"+v.Key+"}", scalar(def.Get("default")))
			}
		}
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil
	}
	if found != nil {
		u = found.ResolveReference(u)
	}
	if u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || strings.ContainsAny(u.Path, "{}") {
		return nil
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
}

// toJSON gives a document as compact JSON.
func toJSON(data []byte) (json.RawMessage, error) {
	data = bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")))
	switch {
	case len(data) == 0:
		return nil, errors.New("the document is empty")
	case data[0] == '<':
		return nil, errors.New("it is a web page, not an OpenAPI document: use the address of the JSON or YAML itself")
	case data[0] == '{' && json.Valid(data):
		var b bytes.Buffer
		if err := json.Compact(&b, data); err != nil {
			return nil, err
		}
		return b.Bytes(), nil
	}
	raw, err := yamlToJSON(data)
	if err != nil {
		return nil, fmt.Errorf("it is neither JSON nor YAML: %w", err)
	}
	return raw, nil
}

// scalar is a string, or a number or boolean as written.
func scalar(raw json.RawMessage) string {
	if len(raw) == 0 || raw[0] == '{' || raw[0] == '[' || string(raw) == "null" {
		return ""
	}
	var s string
	if raw[0] == '"' && json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// oneLine bounds a text and takes line breaks out.
func oneLine(s string, most int) string { return cut(strings.Join(strings.Fields(s), " "), most) }

// cut shortens a text to so many bytes, at a rune.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && s[most]&0xC0 == 0x80 {
		most--
	}
	return s[:most] + "…"
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}
