package openapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/mcp-portal/mcp-portal/wire"
)

// Request is one call of an operation, ready for a server. It holds no
// credential.
type Request struct {
	Method string
	Path   string // encoded, to be put behind the path of the server's address
	Query  string // encoded
	Header http.Header
	Body   []byte // nil: none
}

// ArgumentError means that arguments do not fit the operation. Nothing was
// sent; the text says what is wanted.
type ArgumentError struct{ Text string }

func (e *ArgumentError) Error() string { return e.Text }

func badArgument(format string, args ...any) error {
	return &ArgumentError{fmt.Sprintf(format, args...)}
}

// Request writes the arguments of a tool as a request. The error is an
// *ArgumentError.
func (op *Operation) Request(arguments json.RawMessage) (*Request, error) {
	args, err := wire.ParseObject(arguments)
	if err != nil {
		return nil, badArgument("the arguments are no JSON object")
	}
	if err := op.check(args); err != nil {
		return nil, err
	}
	r := &Request{Method: op.Method, Query: op.fixed, Header: http.Header{}}
	if r.Path, err = op.path(args); err != nil {
		return nil, err
	}
	var query, cookies []pair
	for _, p := range op.params {
		v := args.Get(p.arg)
		if absent(v) || p.in == "path" {
			continue
		}
		if err := p.add(r, v, &query, &cookies); err != nil {
			return nil, badArgument("%s: %v", p.arg, err)
		}
	}
	if len(query) > 0 {
		r.Query = strings.TrimPrefix(r.Query+"&"+encodePairs(query), "&")
	}
	if len(cookies) > 0 {
		var list []string
		for _, c := range cookies {
			list = append(list, escapeSegment(c.name)+"="+escapeSegment(c.value))
		}
		r.Header.Set("Cookie", strings.Join(list, "; "))
	}
	if b := args.Get("body"); op.body != nil && !absent(b) {
		contentType, data, err := op.body.encode(b)
		if err != nil {
			return nil, badArgument("body: %v", err)
		}
		r.Body = data
		r.Header.Set("Content-Type", contentType)
	}
	return r, nil
}

// add puts the value of a parameter where it belongs.
func (p *param) add(r *Request, v json.RawMessage, query, cookies *[]pair) error {
	switch p.in {
	case "query", "cookie":
		pairs, err := p.pairs(v)
		if err != nil {
			return err
		}
		if p.in == "query" {
			*query = append(*query, pairs...)
		} else {
			*cookies = append(*cookies, pairs...)
		}
	case "header":
		text, err := p.text(v)
		if err != nil {
			return err
		}
		if strings.ContainsFunc(text, func(r rune) bool { return r < 0x20 && r != '\t' || r == 0x7f }) {
			return fmt.Errorf("has characters that no header may have")
		}
		r.Header.Set(p.name, text)
	}
	return nil
}

// check refuses arguments that the operation does not have, and misses those
// that it needs.
func (op *Operation) check(args wire.Object) error {
	takes := func() string {
		if list := op.Arguments(); len(list) > 0 {
			return "; it takes " + strings.Join(list, ", ")
		}
		return "; it takes none"
	}
	for _, f := range args {
		if f.Key == "body" && op.body != nil {
			continue
		}
		if op.argument(f.Key) == nil && string(f.Value) != "null" {
			return badArgument("there is no argument %q%s", cut(f.Key, 80), takes())
		}
	}
	var missing []string
	for _, p := range op.params {
		if p.required && absent(args.Get(p.arg)) {
			missing = append(missing, p.arg)
		}
	}
	if op.body != nil && op.body.required && absent(args.Get("body")) {
		missing = append(missing, "body")
	}
	if len(missing) > 0 {
		return badArgument("%s missing%s", isAre(missing), takes())
	}
	return nil
}

func isAre(list []string) string {
	if len(list) == 1 {
		return list[0] + " is"
	}
	return strings.Join(list, ", ") + " are"
}

func absent(v json.RawMessage) bool { return v == nil || string(v) == "null" }

// path fills the template.
func (op *Operation) path(args wire.Object) (string, error) {
	var b strings.Builder
	for _, seg := range op.segments {
		b.WriteByte('/')
		whole := ""
		for _, part := range seg {
			text := literal(part.text)
			if part.param != "" {
				i := slices.IndexFunc(op.params, func(p *param) bool { return p.in == "path" && p.name == part.param })
				var err error
				if text, err = op.params[i].pathText(args.Get(op.params[i].arg)); err != nil {
					return "", badArgument("%v", err)
				}
			}
			b.WriteString(text)
			whole += text
		}
		if dots(whole) {
			return "", badArgument("the arguments would lead out of the path %s", op.Path)
		}
	}
	return b.String(), nil
}

// URL is the address of a request below that of the server. Whatever the
// document and the arguments are, scheme and host are the server's.
func (r *Request) URL(base *url.URL) *url.URL {
	escaped := strings.TrimRight(base.EscapedPath(), "/") + r.Path
	u := &url.URL{Scheme: base.Scheme, Host: base.Host, RawQuery: r.Query}
	if base.RawQuery != "" {
		u.RawQuery = strings.Trim(base.RawQuery+"&"+r.Query, "&")
	}
	path, err := url.PathUnescape(escaped)
	if err != nil { // not written by escapeSegment or literal
		path = escaped
	}
	u.Path, u.RawPath = path, escaped
	return u
}

// validHeaderName follows RFC 9110, 5.6.2.
func validHeaderName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}
