package authserver

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
)

const (
	maxRegistration = 16 << 10 // bytes of a request
	maxRedirects    = 10
	maxRedirectText = 2000 // bytes of all redirect URIs: they become part of the id
	maxClientName   = 120
)

// clientMetadata is what of RFC 7591 section 2 matters here. The rest is
// ignored, as the RFC has it; addresses of logos and pages are never shown or
// fetched.
type clientMetadata struct {
	ClientID   string   `json:"client_id"`
	Name       string   `json:"client_name"`
	Redirects  []string `json:"redirect_uris"`
	AuthMethod string   `json:"token_endpoint_auth_method"`
	Grants     []string `json:"grant_types"`
	Responses  []string `json:"response_types"`
	Type       string   `json:"application_type"`
	Secret     string   `json:"client_secret"`
}

type registrationAnswer struct {
	ClientID   string   `json:"client_id"`
	IssuedAt   int64    `json:"client_id_issued_at"`
	Secret     string   `json:"client_secret,omitempty"`
	SecretEnds *int64   `json:"client_secret_expires_at,omitempty"`
	Name       string   `json:"client_name,omitempty"`
	Redirects  []string `json:"redirect_uris"`
	AuthMethod string   `json:"token_endpoint_auth_method"`
	Grants     []string `json:"grant_types"`
	Responses  []string `json:"response_types"`
	Type       string   `json:"application_type,omitempty"`
	Scope      string   `json:"scope"`
}

// register is Dynamic Client Registration (RFC 7591). Nothing is stored, so
// there is nothing to fill up, to expire, or to lose.
func (s *Server) register(w http.ResponseWriter, r *http.Request) {
	set := s.state.Load()
	w.Header().Set("Access-Control-Allow-Origin", "*")
	if s.limited(s.limits.register, w, r) {
		return
	}
	if !set.cfg.Auth.Clients.MayRegister() {
		s.refuse(w, r, fail(403, "access_denied", "clients cannot register themselves here; ask the portal's admin for a client id, or use a client metadata document"))
		return
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		s.refuse(w, r, fail(400, "invalid_client_metadata", "send the client's metadata as application/json"))
		return
	}
	var m clientMetadata
	if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxRegistration)).Decode(&m); err != nil {
		var long *http.MaxBytesError
		if errors.As(err, &long) {
			s.refuse(w, r, fail(413, "invalid_client_metadata", "the client's metadata is longer than %d bytes", maxRegistration))
			return
		}
		s.refuse(w, r, fail(400, "invalid_client_metadata", "the client's metadata is not a JSON object of the form of RFC 7591"))
		return
	}
	_, _ = io.Copy(io.Discard, http.MaxBytesReader(nil, r.Body, maxRegistration))
	if err := checkMetadata(set, &m); err != nil {
		s.refuse(w, r, err)
		return
	}
	reg := registration{Name: m.Name, Redirects: m.Redirects}
	out := registrationAnswer{IssuedAt: s.now().Unix(), Name: m.Name, Redirects: m.Redirects, AuthMethod: m.AuthMethod, Type: m.Type,
		Grants: []string{"authorization_code", "refresh_token"}, Responses: []string{"code"}, Scope: ScopeAll}
	if m.AuthMethod != "none" {
		out.Secret, out.SecretEnds = random(), new(int64)
		reg.Secret = hashed(out.Secret)
	}
	id, err := s.remember(r.Context(), set, reg)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	out.ClientID = id
	s.log.InfoContext(r.Context(), "client registered", "name", m.Name, "redirects", m.Redirects, "remote", s.caller(r))
	answer(w, http.StatusCreated, out)
}

// checkMetadata judges what a client says of itself, and fills in defaults.
func checkMetadata(set *settings, m *clientMetadata) error {
	m.Name = printable(m.Name, maxClientName)
	if len(m.Redirects) == 0 {
		return fail(400, "invalid_redirect_uri", "redirect_uris is missing")
	}
	total := 0
	for _, u := range m.Redirects {
		total += len(u)
	}
	if len(m.Redirects) > maxRedirects || total > maxRedirectText {
		return fail(400, "invalid_redirect_uri", "at most %d redirect_uris of %d bytes altogether are accepted", maxRedirects, maxRedirectText)
	}
	for i, u := range m.Redirects {
		if err := checkRedirect(set.cfg.Auth.Clients, u); err != nil {
			return fail(400, "invalid_redirect_uri", "redirect_uris[%d] %s", i, err)
		}
	}
	switch m.AuthMethod {
	case "":
		// The RFC's default is client_secret_basic; clients of MCP that say
		// nothing mean none, and all can do without.
		m.AuthMethod = "none"
	case "none", "client_secret_basic", "client_secret_post":
	default:
		return fail(400, "invalid_client_metadata", "token_endpoint_auth_method %q is not supported; use none, client_secret_basic or client_secret_post", printable(m.AuthMethod, 50))
	}
	if len(m.Grants) > 0 && !slices.Contains(m.Grants, "authorization_code") {
		return fail(400, "invalid_client_metadata", "grant_types must contain authorization_code")
	}
	if len(m.Responses) > 0 && !slices.Contains(m.Responses, "code") {
		return fail(400, "invalid_client_metadata", "response_types must contain code")
	}
	switch m.Type {
	case "", "native", "web":
	default:
		m.Type = ""
	}
	return nil
}

// printable makes foreign text fit for one line of a page or a log.
func printable(s string, limit int) string {
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if hiddenRune(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "")))
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}
