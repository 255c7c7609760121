package openapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strings"

	"github.com/mcp-portal/mcp-portal/wire"
)

// Call is the request of a tool with its arguments. The operation is not nil
// when the error is an *ArgumentError.
func (d *Document) Call(tool string, args json.RawMessage) (*Operation, *Request, error) {
	if tool == AnyRequestTool && d.options.AnyRequest {
		return anyRequest(args)
	}
	op := d.byName[tool]
	if op == nil {
		return nil, nil, fmt.Errorf("the document has no operation %q any more: look for another", cut(tool, 100))
	}
	r, err := op.Request(args)
	return op, r, err
}

// anyRequest is a request that the document does not describe.
func anyRequest(args json.RawMessage) (*Operation, *Request, error) {
	var a struct {
		Method string          `json:"method"`
		Path   string          `json:"path"`
		Query  json.RawMessage `json:"query"`
		Body   json.RawMessage `json:"body"`
	}
	op := &Operation{Name: AnyRequestTool, Method: http.MethodPost, Path: "(any path)"}
	if json.Unmarshal(args, &a) != nil {
		return op, nil, badArgument("it takes method, path, query and body")
	}
	if op.Method = strings.ToUpper(a.Method); !slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}, op.Method) {
		return op, nil, badArgument("method is one of GET, HEAD, POST, PUT, PATCH and DELETE")
	}
	parts, query, err := splitTarget(a.Path)
	if err != nil {
		return op, nil, err
	}
	op.Path = cut(a.Path, 200)
	r := &Request{Method: op.Method, Header: http.Header{}}
	for _, p := range parts {
		r.Path += "/" + escapeSegment(p)
	}
	if !absent(a.Query) {
		o, err := wire.ParseObject(a.Query)
		if err != nil {
			return op, nil, badArgument("query is an object")
		}
		for _, f := range o {
			p := &param{name: f.Key, arg: f.Key, style: "form", explode: true}
			if first(f.Value) == '{' {
				p.style = "deepObject"
			}
			pairs, err := p.pairs(f.Value)
			if err != nil {
				return op, nil, badArgument("query: %v", err)
			}
			if !absent(f.Value) {
				query = append(query, pairs...)
			}
		}
	}
	r.Query = encodePairs(query)
	if !absent(a.Body) {
		r.Body = a.Body
		r.Header.Set("Content-Type", "application/json")
	}
	return op, r, nil
}

// Target is a request as a script writes it.
type Target struct {
	Method  string          `json:"method"`
	Path    string          `json:"path"`
	Query   json.RawMessage `json:"query"`
	Body    json.RawMessage `json:"body"`
	Headers json.RawMessage `json:"headers"`
}

// Resolve finds the operation that a request means, and the arguments of its
// tool. base is the path of the server's address, which a request may have
// before its own. The error says what to do; it is an *ArgumentError, or an
// *Unknown if no operation fits.
func (d *Document) Resolve(t Target, base string) (*Operation, json.RawMessage, error) {
	if t.Method == "" {
		t.Method = http.MethodGet
	}
	t.Method = strings.ToUpper(t.Method)
	parts, query, err := splitTarget(t.Path)
	if err != nil {
		return nil, nil, err
	}
	op, values := d.match(t.Method, parts)
	if op == nil {
		if below := splitPath(base); len(below) > 0 && len(parts) > len(below) && slices.Equal(parts[:len(below)], below) {
			op, values = d.match(t.Method, parts[len(below):])
		}
	}
	if op == nil {
		return nil, nil, &Unknown{Method: t.Method, Path: t.Path}
	}
	args := wire.Object{}
	for _, p := range op.params {
		v, ok := values[p.name]
		if !ok || p.in != "path" {
			continue
		}
		if strings.HasPrefix(v, "{") && strings.HasSuffix(v, "}") {
			return nil, nil, badArgument("put the value of %s into the path %s", v, t.Path)
		}
		args = append(args, wire.Field{Key: p.arg, Value: wire.Quote(v)})
	}
	if args, err = op.takeQuery(args, query, t.Query); err != nil {
		return nil, nil, err
	}
	if args, err = op.takeHeaders(args, t.Headers); err != nil {
		return nil, nil, err
	}
	if !absent(t.Body) {
		if op.body == nil {
			return nil, nil, badArgument("%s %s takes no body", op.Method, op.Path)
		}
		args = append(args, wire.Field{Key: "body", Value: t.Body})
	}
	// What could not be sent is refused before anybody is asked about it.
	if _, err := op.Request(args.Bytes()); err != nil {
		return nil, nil, err
	}
	return op, args.Bytes(), nil
}

func (op *Operation) takeQuery(args wire.Object, inPath []pair, query json.RawMessage) (wire.Object, error) {
	q := wire.Object{}
	for _, p := range inPath {
		q = append(q, wire.Field{Key: p.name, Value: wire.Quote(p.value)})
	}
	if !absent(query) {
		o, err := wire.ParseObject(query)
		if err != nil {
			return nil, badArgument("query is an object, such as {per_page: 50}")
		}
		q = append(q, o...)
	}
	for _, f := range q {
		if absent(f.Value) {
			continue
		}
		name := strings.TrimSuffix(f.Key, "[]")
		i := slices.IndexFunc(op.params, func(p *param) bool {
			return p.in == "query" && (p.name == f.Key || strings.TrimSuffix(p.name, "[]") == name)
		})
		if i < 0 {
			return nil, badArgument("%s %s has no query parameter %q%s", op.Method, op.Path, cut(f.Key, 80), op.names("query"))
		}
		key := op.params[i].arg
		if before := args.Get(key); before != nil { // given twice: a list
			var list []json.RawMessage
			if json.Unmarshal(before, &list) != nil {
				list = []json.RawMessage{before}
			}
			args = args.Set(key, wire.Encode(append(list, f.Value)))
			continue
		}
		args = append(args, wire.Field{Key: key, Value: f.Value})
	}
	return args, nil
}

func (op *Operation) takeHeaders(args wire.Object, headers json.RawMessage) (wire.Object, error) {
	if absent(headers) {
		return args, nil
	}
	o, err := wire.ParseObject(headers)
	if err != nil {
		return nil, badArgument("headers is an object")
	}
	for _, f := range o {
		if n := strings.ToLower(f.Key); n == "accept" || n == "content-type" || absent(f.Value) {
			continue // made for the request anyway
		}
		i := slices.IndexFunc(op.params, func(p *param) bool { return p.in == "header" && strings.EqualFold(p.name, f.Key) })
		if i < 0 {
			return nil, badArgument("%s %s has no header %q that could be set%s; what signs the portal in is added by itself", op.Method, op.Path, cut(f.Key, 80), op.names("header"))
		}
		args = args.Set(op.params[i].arg, f.Value)
	}
	return args, nil
}

// names lists the parameters in one place, for messages.
func (op *Operation) names(in string) string {
	var list []string
	for _, p := range op.params {
		if p.in == in {
			list = append(list, p.name)
		}
	}
	if len(list) == 0 {
		return ": it has none"
	}
	return ": it has " + cut(strings.Join(list, ", "), 600)
}

// Unknown means that the document describes no such request.
type Unknown struct{ Method, Path string }

func (e *Unknown) Error() string {
	return fmt.Sprintf("no operation is %s %s", cut(e.Method, 20), cut(e.Path, 200))
}

// splitTarget takes a path apart that a script wrote: decoded segments and
// query. What is no path below the server is refused.
func splitTarget(path string) (parts []string, query []pair, err error) {
	bad := func(what string) error {
		return badArgument("the path %q %s: write it as the document has it, such as /zones/123/dns_records", cut(path, 120), what)
	}
	path, raw, _ := strings.Cut(path, "?")
	switch {
	case strings.Contains(path, "://"):
		return nil, nil, bad("is an address, and only the part behind the API's own address is wanted")
	case !strings.HasPrefix(path, "/"):
		return nil, nil, bad("does not begin with a slash")
	case strings.HasPrefix(path, "//"):
		return nil, nil, bad("begins with two slashes")
	case strings.Contains(path+raw, "#"):
		return nil, nil, bad("has a fragment")
	case controls(path + raw):
		return nil, nil, bad("has characters that no path has")
	}
	for s := range strings.SplitSeq(path[1:], "/") {
		p, err := url.PathUnescape(s)
		if err != nil {
			return nil, nil, bad("has a percent sign that encodes nothing")
		}
		if dots(s) || climbs(s) || controls(p) {
			return nil, nil, bad("would lead out of the API")
		}
		parts = append(parts, p)
	}
	for s := range strings.SplitSeq(raw, "&") {
		if s == "" {
			continue
		}
		k, v, _ := strings.Cut(s, "=")
		key, err1 := url.QueryUnescape(k)
		value, err2 := url.QueryUnescape(v)
		if err1 != nil || err2 != nil {
			return nil, nil, bad("has a query that cannot be read")
		}
		query = append(query, pair{key, value})
	}
	return parts, query, nil
}

func splitPath(path string) []string {
	path = strings.Trim(path, "/")
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}

// match finds the operation of a method and a path. Of several that fit, the
// one whose template has text where others have parameters counts.
func (d *Document) match(method string, parts []string) (*Operation, map[string]string) {
	var best *Operation
	var values map[string]string
	for _, op := range d.Operations {
		if op.Method != method || len(op.segments) != len(parts) {
			continue
		}
		if best != nil && !moreExact(op, best) {
			continue
		}
		found := map[string]string{}
		fits := true
		for i, seg := range op.segments {
			if fits = seg.match(parts[i], found); !fits {
				break
			}
		}
		if fits {
			best, values = op, found
		}
	}
	return best, values
}

// moreExact compares two templates of equal length from left to right.
func moreExact(a, b *Operation) bool {
	for i := range a.segments {
		if x, y := a.segments[i].exactness(), b.segments[i].exactness(); x != y {
			return x > y
		}
	}
	return false
}

// exactness is the text of a segment; one without a parameter is the most exact.
func (s segment) exactness() int {
	n := 1 << 20
	for _, p := range s {
		if p.param != "" {
			n &^= 1 << 20
		}
		n += len(p.text)
	}
	return n
}

// match takes the parameters out of a decoded segment.
func (s segment) match(text string, found map[string]string) bool {
	if len(s) == 1 && s[0].param != "" {
		found[s[0].param] = text
		return text != ""
	}
	for i, p := range s {
		if p.param == "" {
			lit := p.text
			if u, err := url.PathUnescape(lit); err == nil {
				lit = u
			}
			if !strings.HasPrefix(text, lit) {
				return false
			}
			text = text[len(lit):]
			continue
		}
		end := len(text)
		if i+1 < len(s) && s[i+1].param == "" {
			end = strings.Index(text, s[i+1].text)
			if i+2 == len(s) { // the last one ends it
				end = strings.LastIndex(text, s[i+1].text)
			}
		}
		if end <= 0 {
			return false
		}
		found[p.param] = text[:end]
		text = text[end:]
	}
	return text == ""
}

// Nearest are the operations most like a request that none fits, of those that
// may be shown.
func (d *Document) Nearest(method, path string, n int, shown func(*Operation) bool) []*Operation {
	path, _, _ = strings.Cut(path, "?")
	words := map[string]bool{}
	for _, w := range splitPath(path) {
		words[stem(w)] = true
	}
	type scored struct {
		op    *Operation
		score int
	}
	var list []scored
	for _, op := range d.Operations {
		if !shown(op) {
			continue
		}
		score, segs := 0, splitPath(op.Path)
		for _, w := range segs {
			if words[stem(w)] {
				score += 10
			}
		}
		if score == 0 {
			continue
		}
		if op.Method == method {
			score += 4
		}
		if len(segs) == len(splitPath(path)) {
			score += 3
		}
		list = append(list, scored{op, score - len(segs)})
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].score > list[j].score })
	var out []*Operation
	for _, s := range list[:min(n, len(list))] {
		out = append(out, s.op)
	}
	return out
}

// stem is what remains of a segment without signs, capitals and plural: dnsRecord
// and dns_records are alike.
func stem(s string) string {
	if strings.HasPrefix(s, "{") {
		return s
	}
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(s))
	return strings.TrimSuffix(s, "s")
}
