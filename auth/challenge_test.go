package auth

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	sdkauth "github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
)

// challenge gives what a client gets for an error, and its parsed challenge.
func challenge(t *testing.T, a *Auth, err error) (*http.Response, map[string]string, map[string]string) {
	t.Helper()
	w := httptest.NewRecorder()
	a.Challenge(w, httptest.NewRequest(http.MethodPost, portalURL+"/mcp", nil), err)
	res := w.Result()
	var body map[string]string
	if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
		t.Fatalf("the body is not JSON: %v", err)
	}
	var params map[string]string
	if res.Header.Get("WWW-Authenticate") != "" {
		list, err := sdkauth.ParseWWWAuthenticate(res.Header["Www-Authenticate"])
		if err != nil || len(list) != 1 || list[0].Scheme != "bearer" {
			t.Fatalf("challenge %q: %v %v", res.Header.Get("WWW-Authenticate"), list, err)
		}
		params = list[0].Params
	}
	return res, params, body
}

func TestChallenge(t *testing.T) {
	idp := authtest.StartFakeIdP(t)
	r := newRig(t, oidcConfig(idp))
	meta := portalURL + "/.well-known/oauth-protected-resource/mcp"
	_, noToken := r.call()
	_, bad := r.call("Bearer x")
	_, twice := r.call("Bearer x", "Bearer y")
	for _, c := range []struct {
		name   string
		err    error
		status int
		params map[string]string // nil: no challenge; description is checked apart
		body   string
	}{
		{"no token: no error, RFC 6750 section 3.1", noToken, 401, map[string]string{"resource_metadata": meta, "scope": "openid profile email"}, "unauthorized"},
		{"bad token", bad, 401, map[string]string{"resource_metadata": meta, "scope": "openid profile email", "error": "invalid_token"}, "invalid_token"},
		{"malformed", twice, 400, map[string]string{"resource_metadata": meta, "error": "invalid_request"}, "invalid_request"},
		{"not allowed", denied("no", "ask"), 403, map[string]string{"resource_metadata": meta, "error": "access_denied"}, "access_denied"},
		{"wrapped", fmt.Errorf("calling: %w", denied("no", "ask")), 403, map[string]string{"resource_metadata": meta, "error": "access_denied"}, "access_denied"},
		{"IdP down", unavailable("down", 1500*time.Millisecond, errors.New("dial 10.0.0.1")), 503, nil, "temporarily_unavailable"},
		{"anything else", errors.New("secret-detail"), 500, nil, "internal_error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			res, params, body := challenge(t, r.Auth, c.err)
			if res.StatusCode != c.status || body["error"] != c.body || body["error_description"] == "" || body["next_step"] == "" {
				t.Errorf("status %d, body %v", res.StatusCode, body)
			}
			desc := params["error_description"]
			if (params["error"] != "") != (desc != "") {
				t.Errorf("error %q with description %q", params["error"], desc)
			}
			delete(params, "error_description")
			if fmt.Sprint(params) != fmt.Sprint(c.params) {
				t.Errorf("challenge %v, want %v", params, c.params)
			}
			all := fmt.Sprint(res.Header, body)
			if strings.Contains(all, "10.0.0.1") || strings.Contains(all, "secret-detail") {
				t.Errorf("details leak: %s", all)
			}
			if res.Header.Get("Cache-Control") != "no-store" || res.Header.Get("Content-Type") != "application/json" {
				t.Errorf("headers %v", res.Header)
			}
			if want := map[bool]string{true: "2"}[c.status == 503]; res.Header.Get("Retry-After") != want {
				t.Errorf("Retry-After %q, want %q", res.Header.Get("Retry-After"), want)
			}
		})
	}
	if !strings.Contains(r.log.String(), "secret-detail") {
		t.Error("an unexpected error is not in the log")
	}
}

func TestChallengeCannotBeBrokenOutOf(t *testing.T) {
	for _, s := range []string{"a\"b", "a\\", "a\r\nSet-Cookie: x", "ü\x7f", ""} {
		q := quoted(s)
		if q[0] != '"' || q[len(q)-1] != '"' || strings.ContainsAny(q[1:len(q)-1], "\"\\\r\n") {
			t.Errorf("quoted(%q) = %q", s, q)
		}
	}
}

func TestMetadata(t *testing.T) {
	idp := authtest.StartFakeIdP(t)
	r := newRig(t, oidcConfig(idp))
	get := func(a *Auth, method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		a.Metadata().ServeHTTP(w, httptest.NewRequest(method, portalURL+path, nil))
		return w
	}
	for path, resource := range map[string]string{ // B110
		"/.well-known/oauth-protected-resource":                           portalURL,
		"/.well-known/oauth-protected-resource/mcp":                       portalURL + "/mcp",
		"/.well-known/oauth-protected-resource/mcp?optimize_context=x&y=": portalURL + "/mcp",
	} {
		w := get(r.Auth, http.MethodGet, path)
		var m struct {
			Resource string   `json:"resource"`
			Servers  []string `json:"authorization_servers"`
			Methods  []string `json:"bearer_methods_supported"`
			Name     string   `json:"resource_name"`
			Scopes   []string `json:"scopes_supported"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil || w.Code != 200 {
			t.Fatalf("%s: %d %v", path, w.Code, err)
		}
		if m.Resource != resource || !slices.Equal(m.Servers, []string{idp.Issuer}) || !slices.Equal(m.Methods, []string{"header"}) ||
			m.Name != "Test Portal" || !slices.Equal(m.Scopes, []string{"openid", "profile", "email"}) {
			t.Errorf("%s: %+v", path, m)
		}
		if w.Header().Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: not readable from web pages", path)
		}
	}
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{http.MethodGet, "/.well-known/oauth-protected-resource/other", 404},
		{http.MethodGet, "/.well-known/oauth-protected-resource/mcp/", 404},
		{http.MethodPost, "/.well-known/oauth-protected-resource", 405},
		{http.MethodOptions, "/.well-known/oauth-protected-resource", 204},
	} {
		if w := get(r.Auth, c.method, c.path); w.Code != c.status {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, w.Code, c.status)
		}
	}
	if idp.Requests() != 0 {
		t.Error("the metadata needed the IdP")
	}
	dev := newRig(t, devConfig())
	if w := get(dev.Auth, http.MethodGet, wellKnown+"/mcp"); w.Code != 404 || !strings.Contains(w.Body.String(), "development mode") {
		t.Errorf("mode none: %d %s", w.Code, w.Body)
	}
}
