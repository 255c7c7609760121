package openapi

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/mcp-portal/mcp-portal/wire"
)

// readStyle says how a parameter is written: style and explode of OpenAPI 3,
// collectionFormat of Swagger 2, or content.
func (p *param) readStyle(version string, o wire.Object) {
	p.style = o.String("style")
	if p.style == "" {
		p.style = "simple"
		if p.in == "query" || p.in == "cookie" {
			p.style = "form"
		}
	}
	p.explode = p.style == "form" || p.style == "deepObject"
	if e := string(o.Get("explode")); e != "" {
		p.explode = e == "true"
	}
	if version == "2.0" {
		p.explode = false
		switch o.String("collectionFormat") {
		case "multi":
			p.explode = true
		case "ssv":
			p.style = "spaceDelimited"
		case "pipes":
			p.style = "pipeDelimited"
		case "tsv":
			p.style = "tabDelimited"
		}
	}
	content, err := wire.ParseObject(o.Get("content"))
	if err != nil || len(content) == 0 {
		return
	}
	m, _ := wire.ParseObject(content[0].Value) // no object: no schema
	p.json, p.schema = isJSON(content[0].Key), m.Get("schema")
}

// pair is a name and a value, not yet encoded.
type pair struct{ name, value string }

// text writes a value as one string, as in paths and headers (style simple).
func (p *param) text(raw json.RawMessage) (string, error) {
	if p.json {
		return string(raw), nil
	}
	list, object, one, err := taken(raw)
	if err != nil {
		return "", err
	}
	switch {
	case list != nil:
		return strings.Join(list, ","), nil
	case object != nil:
		return joinObject(object, p.explode), nil
	}
	return one, nil
}

func joinObject(object []pair, explode bool) string {
	var out []string
	for _, m := range object {
		if explode {
			out = append(out, m.name+"="+m.value)
		} else {
			out = append(out, m.name, m.value)
		}
	}
	return strings.Join(out, ",")
}

// pathText is the text of a value in a path, encoded, by its style.
func (p *param) pathText(raw json.RawMessage) (string, error) {
	list, object, one, err := taken(raw)
	if err != nil {
		return "", err
	}
	if p.json {
		list, object, one = nil, nil, string(raw)
	}
	if one == "" && len(list) == 0 && len(object) == 0 {
		return "", fmt.Errorf("%s is empty, and the path needs it", p.arg)
	}
	all := one
	for _, x := range list {
		all += "/" + x
	}
	for _, x := range object {
		all += "/" + x.name + "/" + x.value
	}
	if controls(strings.ReplaceAll(all, `\`, "")) {
		return "", fmt.Errorf("%s has control characters", p.arg)
	}
	if climbs(all) {
		return "", fmt.Errorf("%s would lead out of the path", p.arg)
	}
	enc := escapeSegment
	for i := range list {
		list[i] = enc(list[i])
	}
	for i := range object {
		object[i] = pair{enc(object[i].name), enc(object[i].value)}
	}
	name := enc(p.name)
	switch p.style {
	case "label":
		switch {
		case list != nil && p.explode:
			return "." + strings.Join(list, "."), nil
		case list != nil:
			return "." + strings.Join(list, ","), nil
		case object != nil && p.explode:
			return "." + strings.ReplaceAll(joinObject(object, true), ",", "."), nil
		case object != nil:
			return "." + joinObject(object, false), nil
		}
		return "." + enc(one), nil
	case "matrix":
		switch {
		case list != nil && p.explode:
			out := ""
			for _, x := range list {
				out += ";" + name + "=" + x
			}
			return out, nil
		case list != nil:
			return ";" + name + "=" + strings.Join(list, ","), nil
		case object != nil && p.explode:
			return ";" + strings.ReplaceAll(joinObject(object, true), ",", ";"), nil
		case object != nil:
			return ";" + name + "=" + joinObject(object, false), nil
		}
		return ";" + name + "=" + enc(one), nil
	}
	switch {
	case list != nil:
		return strings.Join(list, ","), nil
	case object != nil:
		return joinObject(object, p.explode), nil
	}
	return enc(one), nil
}

// pairs writes a value for a query or a cookie.
func (p *param) pairs(raw json.RawMessage) ([]pair, error) {
	if p.json {
		return []pair{{p.name, string(raw)}}, nil
	}
	if p.style == "deepObject" {
		return deep(p.name, raw, 0)
	}
	list, object, one, err := taken(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.arg, err)
	}
	var out []pair
	switch {
	case list != nil && p.explode:
		for _, x := range list {
			out = append(out, pair{p.name, x})
		}
		return out, nil
	case list != nil:
		sep := ","
		switch p.style {
		case "spaceDelimited":
			sep = " "
		case "pipeDelimited":
			sep = "|"
		case "tabDelimited":
			sep = "\t"
		}
		return []pair{{p.name, strings.Join(list, sep)}}, nil
	case object != nil && p.explode:
		return object, nil
	case object != nil:
		return []pair{{p.name, joinObject(object, false)}}, nil
	}
	return []pair{{p.name, one}}, nil
}

// maxDeep bounds the nesting of what is written with brackets.
const maxDeep = 20

// deep writes a value with brackets: a[b]=c. Items of lists are a[]=x, or, if
// they are objects, a[0][b]=x.
func deep(name string, raw json.RawMessage, depth int) ([]pair, error) {
	if depth > maxDeep {
		return nil, fmt.Errorf("%s is nested too deeply", cut(name, 60))
	}
	var out []pair
	switch first(raw) {
	case '{':
		o, err := wire.ParseObject(raw)
		if err != nil {
			return nil, err
		}
		for _, f := range o {
			more, err := deep(name+"["+f.Key+"]", f.Value, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
		}
		return out, nil
	case '[':
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, err
		}
		for i, x := range list {
			at := name + "[]"
			if c := first(x); c == '{' || c == '[' {
				at = fmt.Sprintf("%s[%d]", name, i)
			}
			more, err := deep(at, x, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
		}
		return out, nil
	}
	if string(raw) == "null" {
		return []pair{{name, ""}}, nil // how such interfaces unset a field
	}
	return []pair{{name, scalar(raw)}}, nil
}

// taken takes a value apart: a list, the members of an object, or one text.
// What is nested in it stands there as JSON.
func taken(raw json.RawMessage) (list []string, object []pair, one string, err error) {
	inner := func(raw json.RawMessage) string {
		if c := first(raw); c == '{' || c == '[' {
			return string(raw)
		}
		return scalar(raw)
	}
	switch first(raw) {
	case '[':
		var items []json.RawMessage
		if err := json.Unmarshal(raw, &items); err != nil {
			return nil, nil, "", err
		}
		list = []string{}
		for _, x := range items {
			list = append(list, inner(x))
		}
		return list, nil, "", nil
	case '{':
		o, err := wire.ParseObject(raw)
		if err != nil {
			return nil, nil, "", err
		}
		object = []pair{}
		for _, f := range o {
			if string(f.Value) != "null" {
				object = append(object, pair{f.Key, inner(f.Value)})
			}
		}
		return nil, object, "", nil
	}
	return nil, nil, scalar(raw), nil
}

func first(raw json.RawMessage) byte {
	if len(raw) == 0 {
		return 0
	}
	return raw[0]
}

// encodePairs writes a query, or a form.
func encodePairs(pairs []pair) string {
	var b strings.Builder
	for i, p := range pairs {
		if i > 0 {
			b.WriteByte('&')
		}
		b.WriteString(url.QueryEscape(p.name) + "=" + url.QueryEscape(p.value))
	}
	return b.String()
}
