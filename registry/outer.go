package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/mcp-portal/mcp-portal/wire"
)

// The outward form of a definition is the definition as its server sent it,
// with another name and with what strict clients refuse replaced by what they
// accept (strict.go). Members nobody here knows, their order, numbers and
// spelling stay. A definition that cannot be made acceptable is an error: the
// caller withholds it, and only it.

// outerTool returns the tool with everything but its server set, and a note if
// something a client could have used had to be left out.
func outerTool(server string, raw json.RawMessage, names naming) (t *Tool, schema any, note string, err error) {
	o, err := definition(raw)
	if err != nil {
		return nil, nil, "", err
	}
	name, err := stringMember(o, "name", true)
	if err != nil {
		return nil, nil, "", err
	}
	t = &Tool{
		Server: server, Name: name, Outward: names.outward(server, name), Raw: raw,
		InputSchema: present(o.Get("inputSchema")), OutputSchema: present(o.Get("outputSchema")), Annotations: present(o.Get("annotations")),
	}
	t.AppURI = appURI(o)
	t.Identifier, t.Member = names.code(server, name)
	if t.Title, err = stringMember(o, "title", false); err != nil {
		return t, nil, "", err
	}
	if t.Description, err = stringMember(o, "description", false); err != nil {
		return t, nil, "", err
	}
	if t.Annotations != nil {
		a, err := wire.ParseObject(t.Annotations)
		if err != nil {
			return t, nil, "", fmt.Errorf("annotations: %w", err)
		}
		if t.Title == "" {
			t.Title = a.String("title")
		}
	}
	o = withoutNulls(o, "title", "description", "annotations", "outputSchema", "icons", "_meta", "execution")

	if t.InputSchema != nil {
		dec := json.NewDecoder(bytes.NewReader(t.InputSchema))
		dec.UseNumber()
		if err := dec.Decode(&schema); err != nil {
			return t, nil, "", fmt.Errorf("inputSchema: %w", err)
		}
	}
	in, err := strictInput(t.InputSchema, schema)
	if err != nil {
		return t, nil, "", fmt.Errorf("inputSchema: %w", err)
	}
	headers, shown, note := paramHeaders(in)
	t.badHeaders = note
	if t.ParamHeaders = headers; shown != nil {
		in = shown
	}
	if !bytes.Equal(in, t.InputSchema) {
		o = o.Set("inputSchema", in)
	}
	if t.OutputSchema != nil {
		out, ok, err := strictOutput(t.OutputSchema)
		if err != nil || !ok {
			o = o.Without("outputSchema")
			why := "its outputSchema is left out for clients: it does not describe an object"
			if err != nil {
				why = "its outputSchema is left out for clients: " + err.Error()
			}
			note = strings.TrimPrefix(note+"; "+why, "; ")
		} else if !bytes.Equal(out, t.OutputSchema) {
			o = o.Set("outputSchema", out)
		}
	}
	t.Outer = o.SetString("name", t.Outward).Bytes()
	return t, schema, note, nil
}

// outerPrompt is outerTool for prompts.
func outerPrompt(server string, raw json.RawMessage, names naming) (*Prompt, error) {
	o, err := definition(raw)
	if err != nil {
		return nil, err
	}
	name, err := stringMember(o, "name", true)
	if err != nil {
		return nil, err
	}
	if err := listMember(o, "arguments"); err != nil {
		return nil, err
	}
	p := &Prompt{Server: server, Name: name, Outward: names.outward(server, name), Raw: raw}
	p.Outer = withoutNulls(o, "title", "description", "arguments", "icons", "_meta").SetString("name", p.Outward).Bytes()
	return p, nil
}

// outerResource checks a resource (key "uri") or template (key "uriTemplate")
// and returns its URI and its outward form, still under that URI.
func outerResource(raw json.RawMessage, key string) (uri string, outer wire.Object, err error) {
	o, err := definition(raw)
	if err != nil {
		return "", nil, err
	}
	if uri, err = stringMember(o, key, true); err != nil {
		return "", nil, err
	}
	if uri == "" {
		return "", nil, fmt.Errorf("%s is empty", key)
	}
	name, err := stringMember(o, "name", false)
	if err != nil {
		return uri, nil, err
	}
	o = withoutNulls(o, "title", "description", "mimeType", "size", "annotations", "icons", "_meta", "name")
	if name == "" && o.Get("name") == nil {
		o = o.SetString("name", uri) // clients demand one
	}
	return uri, o, nil
}

func definition(raw json.RawMessage) (wire.Object, error) {
	if !json.Valid(raw) {
		return nil, errors.New("it is not valid JSON")
	}
	o, err := wire.ParseObject(raw)
	if err != nil {
		return nil, fmt.Errorf("it is not an object: %s", excerpt(raw))
	}
	return o, nil
}

// stringMember returns a member that must be a string, or absent or null
// unless required.
func stringMember(o wire.Object, key string, required bool) (string, error) {
	v := o.Get(key)
	switch {
	case len(v) > 0 && v[0] == '"':
		return o.String(key), nil
	case present(v) != nil:
		return "", fmt.Errorf("%s is not a string: %s", key, excerpt(v))
	case required:
		return "", fmt.Errorf("it has no %s", key)
	}
	return "", nil
}

func listMember(o wire.Object, key string) error {
	if v := present(o.Get(key)); v != nil && v[0] != '[' {
		return fmt.Errorf("%s is not a list: %s", key, excerpt(v))
	}
	return nil
}

// present is v, or nil for null.
func present(v json.RawMessage) json.RawMessage {
	if string(v) == "null" {
		return nil
	}
	return v
}

// withoutNulls drops optional members that are null: some servers write their
// absence so, and strict clients then refuse the whole list.
func withoutNulls(o wire.Object, keys ...string) wire.Object {
	var drop []string
	for _, k := range keys {
		if string(o.Get(k)) == "null" {
			drop = append(drop, k)
		}
	}
	if drop == nil {
		return o
	}
	return o.Without(drop...)
}
