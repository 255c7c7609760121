package authserver

import (
	"net/http"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// metadataPaths are where clients look: RFC 8414 and OpenID Connect Discovery,
// at the root as the issuer has no path, and as older clients make them from
// the address of the MCP endpoint.
var metadataPaths = []string{
	"/.well-known/oauth-authorization-server",
	"/.well-known/oauth-authorization-server/mcp",
	"/.well-known/openid-configuration",
	"/.well-known/openid-configuration/mcp",
	"/mcp/.well-known/oauth-authorization-server",
	"/mcp/.well-known/openid-configuration",
}

// metadata is RFC 8414 section 2 with the members that MCP looks for.
type metadata struct {
	Issuer        string   `json:"issuer"`
	Authorize     string   `json:"authorization_endpoint"`
	Token         string   `json:"token_endpoint"`
	Register      string   `json:"registration_endpoint,omitempty"`
	Revoke        string   `json:"revocation_endpoint"`
	Keys          string   `json:"jwks_uri"`
	Scopes        []string `json:"scopes_supported"`
	ResponseTypes []string `json:"response_types_supported"`
	ResponseModes []string `json:"response_modes_supported"`
	Grants        []string `json:"grant_types_supported"`
	Profiles      []string `json:"authorization_grant_profiles_supported"`
	AuthMethods   []string `json:"token_endpoint_auth_methods_supported"`
	RevokeMethods []string `json:"revocation_endpoint_auth_methods_supported"`
	PKCE          []string `json:"code_challenge_methods_supported"`
	Iss           bool     `json:"authorization_response_iss_parameter_supported"`
	Documents     bool     `json:"client_id_metadata_document_supported"`
	Resources     []string `json:"protected_resources"`
	Documentation string   `json:"service_documentation,omitempty"`
	// Only at the OpenID paths, where clients insist on them.
	Subjects []string `json:"subject_types_supported,omitempty"`
	IDTokens []string `json:"id_token_signing_alg_values_supported,omitempty"`
}

func (s *Server) metadata(w http.ResponseWriter, r *http.Request) {
	set := s.state.Load()
	methods := []string{"none", "client_secret_basic", "client_secret_post"}
	m := metadata{
		Issuer: set.origin, Authorize: set.origin + PathAuthorize, Token: set.origin + PathToken, Revoke: set.origin + PathRevoke, Keys: set.origin + PathKeys,
		Scopes: []string{ScopeAll, "offline_access"}, ResponseTypes: []string{"code"}, ResponseModes: []string{"query"},
		Grants: []string{"authorization_code", "refresh_token", "client_credentials", grantAssertion}, Profiles: []string{profileIDJAG},
		AuthMethods: methods, RevokeMethods: methods, PKCE: []string{"S256"}, Iss: true,
		Documents: set.cfg.Auth.Clients.MayPublish(), Resources: []string{set.resource()},
	}
	if set.cfg.Auth.Clients.MayRegister() {
		m.Register = set.origin + PathRegister
	}
	if strings.Contains(r.URL.Path, "openid-configuration") {
		m.Subjects, m.IDTokens = []string{"public"}, []string{"ES256"}
	}
	w.Header().Set("Access-Control-Allow-Origin", "*")
	answer(w, http.StatusOK, m)
}

// resource is the aud of every token.
func (set *settings) resource() string { return set.origin + "/mcp" }

// jwks serves the public keys. Only the portal itself verifies its tokens;
// that a proxy in front of it can do so too is worth the few bytes.
func (s *Server) jwks(w http.ResponseWriter, r *http.Request) {
	ring, err := s.keys.all(r.Context(), s)
	if err != nil {
		s.refuse(w, r, internal("reading the signing keys", err))
		return
	}
	out := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, k := range ring {
		out.Keys = append(out.Keys, jose.JSONWebKey{Key: &k.private.PublicKey, KeyID: k.ID, Algorithm: string(jose.ES256), Use: "sig"})
	}
	w.Header().Set("Access-Control-Allow-Origin", "*")
	answer(w, http.StatusOK, out)
}
