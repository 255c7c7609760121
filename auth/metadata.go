package auth

import (
	"net/http"
	"slices"

	"github.com/mcp-portal/mcp-portal/auth/authserver"
)

// wellKnown is where RFC 9728 section 3 puts the metadata of a protected
// resource; the path of the resource is appended.
const wellKnown = "/.well-known/oauth-protected-resource"

// resource is the identifier of the MCP endpoint, and the aud its tokens have.
func (s *settings) resource() string { return s.origin.String() + "/mcp" }

// scopes are what a client should ask for. offline_access is between client
// and authorization server only (MCP 2026-07-28, authorization).
func (s *settings) scopes() []string {
	if s.portal {
		return []string{authserver.ScopeAll}
	}
	return slices.DeleteFunc(slices.Clone(s.cfg.Auth.Scopes), func(v string) bool { return v == "offline_access" })
}

// echo is the part of a request's query that addresses in the answer repeat.
// Clients compare the resource in the metadata with the address they were
// given; an IdP knows only the plain one.
func (s *settings) echo(r *http.Request) string {
	if !s.portal || r == nil {
		return ""
	}
	return authserver.EchoQuery(r.URL.RawQuery)
}

// MetadataPaths are the addresses of Metadata: by RFC 9728, and as clients
// make them from the address of the MCP endpoint.
func MetadataPaths() []string {
	return []string{wellKnown, wellKnown + "/", wellKnown + "/mcp", "/mcp" + wellKnown}
}

// Metadata serves the protected resource metadata (RFC 9728) at
// /.well-known/oauth-protected-resource for the origin and at
// /.well-known/oauth-protected-resource/mcp for the MCP endpoint. It is public
// and readable from any web page.
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
		case wellKnown + "/mcp", "/mcp" + wellKnown:
			resource = s.resource() + s.echo(r)
		}
		if s.dev || resource == "" {
			desc := "there is no protected resource of that name here; the MCP endpoint is " + s.resource()
			if s.dev {
				desc = "this portal runs in development mode: it asks for no sign-in"
			}
			writeJSON(w, http.StatusNotFound, map[string]string{"error": "not_found", "error_description": desc})
			return
		}
		issuer := s.idp.issuer
		if s.portal {
			issuer = s.origin.String()
		}
		writeJSON(w, http.StatusOK, struct {
			Resource string   `json:"resource"`
			Servers  []string `json:"authorization_servers"`
			Methods  []string `json:"bearer_methods_supported"`
			Name     string   `json:"resource_name,omitempty"`
			Scopes   []string `json:"scopes_supported,omitempty"`
		}{resource, []string{issuer}, []string{"header"}, s.cfg.Name, s.scopes()})
	})
}
