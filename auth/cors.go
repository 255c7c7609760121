package auth

import (
	"net/http"
	"regexp"
	"strings"
)

var mirrored = regexp.MustCompile(`^Mcp-Param-[A-Za-z0-9-]{1,64}$`)

// cors lets web pages of the configured origins read the answers and, for a
// preflight, answers it and reports true (Fetch standard, CORS protocol).
// Without this a browser client could send a request but not see that it has
// to sign in.
func (h *hostRules) cors(w http.ResponseWriter, r *http.Request) bool {
	raw := r.Header.Get("Origin")
	if raw == "" {
		return false
	}
	origin, ok := canonicalOrigin(raw)
	if !ok || !h.origins[origin] || h.own(origin, r) {
		return false
	}
	out := w.Header()
	out.Set("Access-Control-Allow-Origin", raw)
	out.Add("Vary", "Origin")
	out.Set("Access-Control-Expose-Headers", "WWW-Authenticate, Mcp-Session-Id, MCP-Protocol-Version, Retry-After")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	out.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	allowed := "Authorization, Content-Type, Accept, Last-Event-ID, Mcp-Session-Id, MCP-Protocol-Version, Mcp-Method, Mcp-Name"
	// The names of headers that mirror a tool's arguments (2026-07-28,
	// basic/transports) are the tool's, and no wildcard goes with a prefix.
	for name := range strings.SplitSeq(r.Header.Get("Access-Control-Request-Headers"), ",") {
		if name = http.CanonicalHeaderKey(strings.TrimSpace(name)); mirrored.MatchString(name) {
			allowed += ", " + name
		}
	}
	out.Set("Access-Control-Allow-Headers", allowed)
	out.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}
