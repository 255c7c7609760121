package logins

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/mcp-portal/mcp-portal/config"
)

// What servers and their authorization servers say is read by these; whatever
// comes, nothing unfit comes out.

// oneLine reports whether a text is fit for an error: short, one line.
func oneLine(s string) bool {
	return len(s) < 2000 && !strings.ContainsFunc(s, unicode.IsControl)
}

func FuzzChallenge(f *testing.F) {
	for _, s := range []string{
		`Bearer resource_metadata="https://a.example/m", scope="a b", error="insufficient_scope"`, `Basic realm="x", Bearer scope="a"`,
		`Bearer`, `bearer scope=a`, `Bearer scope="a\"b"`, `Bearer scope="` + strings.Repeat("x ", 300) + `"`, `DPoP algs="ES256", Bearer error="invalid_token"`, `Bearer scope="a`, ",", `Bearer a=b=c`,
		"Bearer scope=\"\x00\xff\"", `Negotiate abc==, Bearer x="1"`,
	} {
		f.Add(s, "")
		f.Add(`Basic realm="x"`, s)
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		c := parseChallenge(http.Header{"Www-Authenticate": {one, two}})
		if len(c.scopes) > 100 {
			t.Fatalf("%d scopes", len(c.scopes))
		}
		for _, s := range c.scopes {
			if s == "" || len(s) > 200 || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '"' || r == '\\' }) {
				t.Fatalf("scope %q", s)
			}
		}
		if again := scopeList(join(c.scopes)); !slices.Equal(again, c.scopes) {
			t.Fatalf("%q becomes %q", c.scopes, again)
		}
	})
}

// loopbackOrHTTPS reports whether an address is one that a browser or the
// portal may open.
func loopbackOrHTTPS(raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && u.Hostname() != "" && u.User == nil && (u.Scheme == "https" || u.Scheme == "http" && config.IsLoopback(u.Hostname()))
}

func FuzzResourceMetadata(f *testing.F) {
	for _, s := range []string{
		`{"resource":"https://a.example/mcp","authorization_servers":["https://as.example"],"scopes_supported":["a","b c"]}`, `{"resource":"https://a.example/mcp/below"}`,
		`{"resource":"https://a.example/"}`, `{"resource":"https://a.example@evil.example/mcp"}`, `{"resource":"https://A.EXAMPLE/mc"}`, `{"resource":5}`, `{"authorization_servers":"x"}`,
		`{"resource":"https://a.example/mcp?x=1"}`, `{"resource":"//a.example/mcp"}`, `[]`, `null`,
	} {
		f.Add([]byte(s))
	}
	server, _ := url.Parse("https://a.example/mcp")
	f.Fuzz(func(t *testing.T, b []byte) {
		var m resourceMeta
		if json.Unmarshal(b, &m) != nil || !covers(m.Resource, server) {
			return
		}
		u, err := url.Parse(m.Resource)
		if err != nil || !strings.EqualFold(u.Scheme, "https") || !strings.EqualFold(u.Host, "a.example") || u.User != nil || u.Fragment != "" || u.RawQuery != "" {
			t.Fatalf("%q counts as the resource of %s", m.Resource, server)
		}
		if p := strings.TrimSuffix(u.Path, "/"); p != "" && p != "/mcp" {
			t.Fatalf("path %q counts as above %s", u.Path, server)
		}
	})
}

func FuzzServerMetadata(f *testing.F) {
	const issuer = "https://as.example/tenant"
	for _, s := range []string{
		`{"issuer":"` + issuer + `","authorization_endpoint":"https://as.example/a","token_endpoint":"https://as.example/t","code_challenge_methods_supported":["S256"]}`,
		`{"issuer":"` + issuer + `/","authorization_endpoint":"javascript:alert(1)","token_endpoint":"https://as.example/t","code_challenge_methods_supported":["S256"]}`,
		`{"issuer":"` + issuer + `","authorization_endpoint":"https://as.example/a?x=1","token_endpoint":"http://127.0.0.1/t","code_challenge_methods_supported":["plain"]}`,
		`{"issuer":"` + issuer + `","authorization_endpoint":"https:as.example","token_endpoint":"HTTPS://AS.example","code_challenge_methods_supported":null}`,
		`{"issuer":"https://evil.example"}`, `{"issuer":"` + issuer + `","registration_endpoint":"data:x"}`, `{}`, `"x"`,
	} {
		f.Add([]byte(s))
	}
	l := &Logins{}
	s := config.Server{ID: "s", URL: "https://a.example/mcp", Auth: config.ServerAuth{Type: config.AuthOAuth}}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m serverMeta
		if json.Unmarshal(b, &m) != nil {
			return
		}
		if err := l.checkMeta(s, issuer, &m); err != nil {
			if !oneLine(err.Error()) {
				t.Fatalf("the error %q", err)
			}
			return
		}
		if strings.TrimSuffix(m.Issuer, "/") != issuer || !slices.Contains(m.PKCE, "S256") {
			t.Fatalf("taken: %+v", m)
		}
		for _, e := range []string{m.Authorize, m.Token} {
			if !loopbackOrHTTPS(e) {
				t.Fatalf("endpoint %q is taken", e)
			}
		}
		for _, e := range []string{m.Register, m.Revoke} {
			if e != "" && !loopbackOrHTTPS(e) {
				t.Fatalf("endpoint %q is taken", e)
			}
		}
		to, err := authorizeURL(m.Authorize, flow{Client: client{ID: "c"}, Verifier: "v", Scopes: []string{"a"}, Resource: "https://a.example/mcp"}, "state")
		if err != nil {
			return
		}
		u, err := url.Parse(to)
		if err != nil || !loopbackOrHTTPS(to) || u.Query().Get("state") != "state" || len(u.Query()["code_challenge"]) != 1 || u.Query().Get("code_challenge_method") != "S256" {
			t.Fatalf("the browser is sent to %q", to)
		}
	})
}

func FuzzTokenAnswer(f *testing.F) {
	for _, s := range []string{
		`{"access_token":"a","token_type":"Bearer","expires_in":3600,"refresh_token":"r","scope":"a b"}`, `{"access_token":"a","expires_in":"3600"}`, `{"access_token":"a","expires_in":1e300}`,
		`{"access_token":"a\r\nX: y"}`, `{"access_token":"ä"}`, `{"access_token":"a","token_type":"DPoP"}`, `{"access_token":"a","expires_in":-1}`, `{"access_token":"a","expires_in":null}`,
		`{"error":"invalid_grant","error_description":"the secret-of-the-test is bad\u0000\n"}`, `{"error":"` + strings.Repeat("x", 5000) + `"}`, `{"error":{}}`, `<html>`, ``, `{"access_token":""}`,
	} {
		for _, status := range []int{200, 201, 302, 400, 401, 429, 500} {
			f.Add([]byte(s), status)
		}
	}
	now := time.Unix(1_900_000_000, 0)
	f.Fuzz(func(t *testing.T, b []byte, status int) {
		got, err := parseTokens(b, status, now, func(s string) string { return strings.ReplaceAll(s, "secret-of-the-test", "[redacted]") })
		if (got == nil) == (err == nil) {
			t.Fatalf("%v, %v", got, err)
		}
		if err != nil {
			var no *refused
			if !oneLine(err.Error()) || strings.Contains(err.Error(), "secret-of-the-test") {
				t.Fatalf("the error %q", err)
			}
			if errors.As(err, &no) && (status >= 500 || status == 429) {
				t.Fatalf("HTTP %d ends a login: %v", status, err)
			}
			return
		}
		if status != 200 && status != 201 || !headerSafe(got.Access) || got.Access == "" {
			t.Fatalf("HTTP %d gives the token %q", status, got.Access)
		}
		h := http.Header{}
		h.Set("Authorization", "Bearer "+got.Access)
		if strings.ContainsAny(h.Get("Authorization"), "\r\n\x00") {
			t.Fatalf("the token smuggles: %q", got.Access)
		}
		if !got.Expires.IsZero() && (got.Expires.Before(now) || got.Expires.After(now.AddDate(11, 0, 0))) {
			t.Fatalf("expires %v", got.Expires)
		}
	})
}

func FuzzRegistrationAnswer(f *testing.F) {
	for _, s := range []string{`{"client_id":"c"}`, `{"client_id":"c","client_secret":"s","token_endpoint_auth_method":"private_key_jwt"}`, `{"client_id":"c","client_secret":"s","token_endpoint_auth_method":"none"}`, `{"client_id":5}`, `{"error":"invalid_redirect_uri","error_description":"\u0007"}`, `x`} {
		for _, status := range []int{200, 201, 400, 500} {
			f.Add([]byte(s), status)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, status int) {
		c, err := parseRegistration(b, status, []string{"client_secret_post"})
		switch {
		case err != nil && !oneLine(err.Error()):
			t.Fatalf("the error %q", err)
		case err == nil && (c.ID == "" || status/100 != 2 || !slices.Contains([]string{"none", "client_secret_basic", "client_secret_post"}, c.Method) || c.Secret == "" && c.Method != "none"):
			t.Fatalf("HTTP %d gives %+v", status, c)
		}
	})
}
