package auth

import (
	"net/http"
	"slices"
)

// wellKnown is where RFC 9728 section 3 puts the metadata of a protected
// resource; the path of the resource is appended.
const wellKnown = "/.well-known/oauth-protected-resource"

// resource is the identifier of the MCP endpoint, and the aud its tokens have.
func (s *settings) resource() string { return s.origin.String() + "/mcp" }

// scopes are what a client should ask the IdP for. offline_access is between
// client and IdP only (MCP 2026-07-28, authorization).
func (s *settings) scopes() []string {
	return slices.DeleteFunc(slices.Clone(s.cfg.Auth.Scopes), func(v string) bool { return v == "offline_access" })
}

// Metadata serves the protected resource metadata (RFC 9728) at
// /.well-known/oauth-protected-resource for the origin and at
// /.well-known/oauth-protected-resource/mcp for the MCP endpoint. It is public
// and readable from any web page. The IdP knows only the plain resource
// identifiers, so a query is not repeated in them.
func (a *Auth) Metadata() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := a.state.Load()
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", "*")
		switch r.Method {
		case http.MethodGet, http.MethodHead:
		case http.MethodOptions:
			h.Set("Access-Control-Allow-Methods", "GET")
			h.Set("Access-Control-Allow-Headers", "MCP-Protocol-Version")
			w.WriteHeader(http.StatusNoContent)
			return
		default:
			h.Set("Allow", "GET, HEAD, OPTIONS")
			writeJSON(w, http.StatusMethodNotAllowed, map[string]string{"error": "method_not_allowed"})
			return
		}
		var resource string
		switch r.URL.Path {
		case wellKnown, wellKnown + "/":
			resource = s.origin.String()
		case wellKnown + "/mcp":
			resource = s.resource()
		}
		if s.dev || resource == "" {
			desc := "there is no protected resource of that name here; the MCP endpoint is " + s.resource()
			if s.dev {
				desc = "this portal runs in development mode: it asks for no sign-in"
			}
			writeJSON(w, http.StatusNotFound, map[string]string{"error": "not_found", "error_description": desc})
			return
		}
		writeJSON(w, http.StatusOK, struct {
			Resource string   `json:"resource"`
			Servers  []string `json:"authorization_servers"`
			Methods  []string `json:"bearer_methods_supported"`
			Name     string   `json:"resource_name,omitempty"`
			Scopes   []string `json:"scopes_supported,omitempty"`
		}{resource, []string{s.idp.issuer}, []string{"header"}, s.cfg.Name, s.scopes()})
	})
}
