package gateway

import (
	"encoding/json"
	"math/big"
	"net/http"
	"strings"

	"github.com/mcp-portal/mcp-portal/registry"
	"github.com/mcp-portal/mcp-portal/wire"
)

// SentHeaders are the Mcp-Param-* headers of a call, made from the arguments
// themselves: like every header of a hop they belong to that hop, whatever the
// client's hop carried.
func SentHeaders(list []registry.ParamHeader, args json.RawMessage) http.Header {
	if len(list) == 0 {
		return nil
	}
	h := http.Header{}
	for _, p := range list {
		if v := argument(args, p.Path); headerValue(v) {
			h.Set(wire.HeaderParamPrefix+p.Name, headerText(v))
		}
	}
	return h
}

// checkHeaders compares the Mcp-Param-* headers of a 2026-07-28 client with
// its arguments (basic/transports/streamable-http, "Server behavior for custom
// headers"). complete says that the client has seen the tool's schema, so that
// none may be missing. Headers that the tool does not name are nobody's
// business.
func checkHeaders(h http.Header, list []registry.ParamHeader, args json.RawMessage, complete bool) *wire.Error {
	for _, p := range list {
		name := http.CanonicalHeaderKey(wire.HeaderParamPrefix + p.Name)
		got, there := h[name]
		v := argument(args, p.Path)
		where := strings.Join(p.Path, ".")
		switch {
		case !there && (!complete || !headerValue(v)):
			continue
		case !there:
			return wire.Errorf(wire.CodeHeaderMismatch, "the %s header is required: set it to the argument %s, as x-mcp-header in the tool's inputSchema says. List the tools again if you do not have that schema", name, where)
		case len(got) > 1:
			return wire.Errorf(wire.CodeHeaderMismatch, "the %s header is there %d times: send it once", name, len(got))
		case !headerValue(v):
			return wire.Errorf(wire.CodeHeaderMismatch, "the %s header is there, but the argument %s is not: leave one out or give the other", name, where)
		}
		text, err := wire.DecodeHeaderValue(got[0])
		if err != nil || strings.ContainsFunc(got[0], func(r rune) bool { return r < 0x20 && r != '\t' || r > 0x7e }) {
			return wire.Errorf(wire.CodeHeaderMismatch, "the %s header cannot be decoded: send printable ASCII, or =?base64?…?=", name)
		}
		if !sameHeader(v, text) {
			return wire.Errorf(wire.CodeHeaderMismatch, "the %s header says %q, the argument %s says %q: they must be equal", name, bounded(text, 80), where, bounded(plainText(v), 80))
		}
	}
	return nil
}

// argument is the member of args at a path; nil if there is none.
func argument(args json.RawMessage, path []string) json.RawMessage {
	for _, key := range path {
		o, err := wire.ParseObject(args)
		if err != nil {
			return nil
		}
		args = o.Get(key)
	}
	return args
}

// headerValue reports whether a value travels in a header: strings, numbers and
// booleans do.
func headerValue(v json.RawMessage) bool {
	return len(v) > 0 && (v[0] == '"' || v[0] == 't' || v[0] == 'f' || v[0] == '-' || v[0] >= '0' && v[0] <= '9')
}

func headerText(v json.RawMessage) string {
	if v[0] == '"' {
		return wire.EncodeHeaderValue(plainText(v))
	}
	return string(v)
}

func plainText(v json.RawMessage) string {
	var s string
	if v[0] == '"' && json.Unmarshal(v, &s) == nil {
		return s
	}
	return string(v)
}

// sameHeader compares an argument with the text of its header: numbers by
// their value (42 and 42.0), everything else to the letter.
func sameHeader(v json.RawMessage, text string) bool {
	if v[0] == '"' || v[0] == 't' || v[0] == 'f' || len(v) > 40 || len(text) > 40 {
		return plainText(v) == text
	}
	if strings.Trim(string(v)+text, "-.0123456789") != "" { // exponents could be made to cost a lot
		return string(v) == text
	}
	a, ok := new(big.Rat).SetString(string(v))
	b, valid := new(big.Rat).SetString(text)
	return ok && valid && a.Cmp(b) == 0
}
