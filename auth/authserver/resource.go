package authserver

import (
	"net"
	"net/url"
	"strings"
)

// queryOptions are the options that clients write into the address of the
// portal; gateway reads them. Clients compare addresses with the metadata, so
// these are repeated there; others are not.
var queryOptions = []string{"optimize_context", "codemode"}

const maxQuery = 256

// EchoQuery gives the part of a query string that addresses of the portal may
// repeat: known options with plain values, in a fixed form. It is "" for
// anything else, and "" or "?…" otherwise.
func EchoQuery(raw string) string {
	if raw == "" || len(raw) > maxQuery {
		return ""
	}
	var out []string
	for _, pair := range strings.Split(raw, "&") {
		name, value, _ := strings.Cut(pair, "=")
		known := false
		for _, o := range queryOptions {
			known = known || o == name
		}
		if known && plainValue(value) {
			out = append(out, name+"="+value)
		}
	}
	if len(out) == 0 {
		return ""
	}
	// In the order given: clients compare texts.
	return "?" + strings.Join(out, "&")
}

func plainValue(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '.') {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// canonicalResource says whether a resource indicator (RFC 8707) means this
// portal: its origin or its MCP endpoint, with or without the slash at the end
// and options in the query; scheme and host in any case. Tokens are always for
// the MCP endpoint.
func canonicalResource(origin, raw string) bool {
	if len(raw) > 2048 || strings.ContainsAny(raw, "#\\ \t\r\n") {
		return false
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.User != nil || u.Opaque != "" {
		return false
	}
	o, err := url.Parse(origin)
	if err != nil || !strings.EqualFold(u.Scheme, o.Scheme) || hostPort(u) != hostPort(o) {
		return false
	}
	switch u.EscapedPath() {
	case "", "/":
		return u.RawQuery == "" && !u.ForceQuery
	case "/mcp", "/mcp/":
		return u.RawQuery == "" || EchoQuery(u.RawQuery) == "?"+u.RawQuery
	}
	return false
}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
