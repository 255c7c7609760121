package logins_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
	"github.com/mcp-portal/mcp-portal/auth/clientkey"
	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/upstreams/logins"
)

// provenBy reports whether a token request proves the client by a key, for one
// audience, and by nothing else.
func provenBy(t *testing.T, f url.Values, basic string, secret config.Secret, client, audience string) (id string) {
	t.Helper()
	key, err := clientkey.New(secret, "")
	if err != nil {
		t.Fatal(err)
	}
	if f.Get("client_assertion_type") != clientkey.AssertionType || f.Get("client_id") != client || f.Has("client_secret") || basic != ":" {
		t.Errorf("the request is %v, basic %q", f, basic)
	}
	id, err = authtest.Assertion(f.Get("client_assertion"), key.Published(), client, audience, time.Now())
	if err != nil {
		t.Errorf("the assertion for %s: %v", audience, err)
	}
	return id
}

// The portal proves itself by a key in place of a secret, wherever it asks for
// tokens, with a new assertion each time, for whom it asks alone.
func TestProvenByKey(t *testing.T) {
	secret, other := authtest.PrivateKey(t, "EC"), authtest.PrivateKey(t, "RSA")
	t.Run("client_credentials", func(t *testing.T) {
		for audience, of := range map[string]func(string) string{"": func(u string) string { return u }, "token_endpoint": func(u string) string { return u + "/token" }} {
			as := newGrants(t, tokenNo("cc-"))
			l := withGrants(t, "", config.ServerAuth{Type: config.AuthClientCredentials, Issuer: as.URL, ClientID: "me", PrivateKey: secret, AssertionAud: audience}, nil)
			if _, err := l.Current(t.Context(), "s", ""); err != nil {
				t.Fatal(err)
			}
			provenBy(t, as.forms[0], as.basic[0], secret, "me", of(as.URL))
		}
	})
	t.Run("token_exchange", func(t *testing.T) {
		idp := newGrants(t, tokenNo("x-"))
		sub := subjects{"ann access_token": "canary-of-ann"}
		l := withGrants(t, idp.URL, config.ServerAuth{Type: config.AuthTokenExchange, Subject: "access_token", ClientID: "own", PrivateKey: secret}, sub)
		if _, err := l.Current(t.Context(), "s", "ann"); err != nil {
			t.Fatal(err)
		}
		provenBy(t, idp.forms[0], idp.basic[0], secret, "own", idp.URL)
		l = withGrants(t, idp.URL, config.ServerAuth{Type: config.AuthTokenExchange, Subject: "access_token"}, sub, func(c *config.Config) { c.Auth.ClientSecret, c.Auth.PrivateKey = "", other })
		if _, err := l.Current(t.Context(), "s", "ann"); err != nil {
			t.Fatal(err)
		}
		provenBy(t, idp.forms[1], idp.basic[1], other, "portal", idp.URL+"/token")
	})
	t.Run("id_jag", func(t *testing.T) {
		idp, as := newGrants(t, tokenNo("jag-")), newGrants(t, tokenNo("at-"))
		l := withGrants(t, idp.URL, config.ServerAuth{Type: config.AuthIDJAG, Issuer: as.URL, ClientID: "own", PrivateKey: secret}, subjects{"ann id_token": "id-of-ann"},
			func(c *config.Config) {
				c.Auth.ClientSecret, c.Auth.PrivateKey = "", other
				c.Auth.PrivateHosts = []string{as.URL}
			})
		if _, err := l.Current(t.Context(), "s", "ann"); err != nil {
			t.Fatal(err)
		}
		provenBy(t, idp.forms[0], idp.basic[0], other, "portal", idp.URL+"/token")
		provenBy(t, as.forms[0], as.basic[0], secret, "own", as.URL)
	})
	t.Run("oauth", func(t *testing.T) {
		as := newGrants(t, func(n int, _ url.Values) (int, map[string]any) {
			return 200, map[string]any{"access_token": "at-" + string(rune('0'+n)), "token_type": "bearer", "expires_in": 1, "refresh_token": "rt"}
		})
		a := config.ServerAuth{Type: config.AuthOAuth, OnBehalf: true, Issuer: as.URL, ClientID: "own", PrivateKey: secret}
		var cfg *config.Config
		l := withGrants(t, "", a, nil, func(c *config.Config) { cfg = c })
		to, err := l.Begin(t.Context(), ann, logins.Request{Server: "s"})
		if err != nil {
			t.Fatal(err)
		}
		u, _ := url.Parse(to)
		if _, err := l.Finish(t.Context(), ann, url.Values{"state": {u.Query().Get("state")}, "code": {"c"}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1100 * time.Millisecond) // it has expired
		if _, err := l.Current(t.Context(), "s", "ann"); err != nil {
			t.Fatal(err)
		}
		first, second := provenBy(t, as.forms[0], as.basic[0], secret, "own", as.URL), provenBy(t, as.forms[1], as.basic[1], secret, "own", as.URL)
		if first == second {
			t.Error("an assertion was sent twice")
		}
		// The key is that of the configuration of today; without one there is
		// nothing to prove it by.
		next := *cfg
		s := cfg.Servers["s"]
		s.Auth.PrivateKey = other
		next.Servers = map[string]config.Server{"s": s}
		l.SetConfig(&next)
		time.Sleep(1100 * time.Millisecond)
		if _, err := l.Current(t.Context(), "s", "ann"); err != nil {
			t.Fatal(err)
		}
		provenBy(t, as.forms[2], as.basic[2], other, "own", as.URL)
		gone := next
		s.Auth.PrivateKey, s.Auth.ClientID = "", ""
		gone.Servers = map[string]config.Server{"s": s}
		l.SetConfig(&gone)
		time.Sleep(1100 * time.Millisecond)
		if _, err := l.Current(t.Context(), "s", "ann"); err == nil || !strings.Contains(err.Error(), "private_key") {
			t.Errorf("without the key: %v", err)
		}
	})
}

// Where the portal has a key and no client id, it is known by a document that
// names the key. Neither shows anything that is secret.
func TestDocumentOfAClientWithAKey(t *testing.T) {
	as := httptest.NewServer(nil)
	t.Cleanup(as.Close)
	cimd := true
	as.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": as.URL, "authorization_endpoint": as.URL + "/a", "token_endpoint": as.URL + "/token", "client_id_metadata_document_supported": cimd})
	})
	secret := authtest.PrivateKey(t, "EC")
	public := func(c *config.Config) { c.URL = "https://portal.example.com"; c.Auth.PrivateHosts = []string{as.URL} }
	a := config.ServerAuth{Type: config.AuthOAuth, OnBehalf: true, Issuer: as.URL, PrivateKey: secret}
	l := withGrants(t, "", a, nil, public)
	to, err := l.Begin(t.Context(), ann, logins.Request{Server: "s"})
	if err != nil {
		t.Fatal(err)
	}
	u, _ := url.Parse(to)
	id := "https://portal.example.com/.well-known/mcp-portal-client/s.json"
	if got := u.Query().Get("client_id"); got != id || id != "https://portal.example.com"+logins.ServerClientPath("s") {
		t.Errorf("it is known as %s", got)
	}
	var doc struct {
		ID        string   `json:"client_id"`
		Method    string   `json:"token_endpoint_auth_method"`
		Alg       string   `json:"token_endpoint_auth_signing_alg"`
		Keys      string   `json:"jwks_uri"`
		Redirects []string `json:"redirect_uris"`
	}
	raw := l.ServerClientDocument("s")
	if err := json.Unmarshal(raw, &doc); err != nil || doc.ID != id || doc.Method != "private_key_jwt" || doc.Alg != "ES256" || doc.Keys != "https://portal.example.com"+logins.KeysPath ||
		!slices.Equal(doc.Redirects, []string{"https://portal.example.com/servers-callback"}) {
		t.Errorf("%s %v", raw, err)
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(l.Keys(), &set); err != nil || len(set.Keys) != 1 || !set.Keys[0].IsPublic() || strings.Contains(string(l.Keys()), `"d"`) {
		t.Errorf("the keys are %s", l.Keys())
	}
	if l.ServerClientDocument("other") != nil {
		t.Error("there is a document of a server that does not exist")
	}
	cimd = false
	l = withGrants(t, "", a, nil, public)
	if _, err := l.Begin(t.Context(), ann, logins.Request{Server: "s"}); err == nil || !strings.Contains(err.Error(), logins.KeysPath) {
		t.Errorf("where no documents are taken: %v", err)
	}
	cimd = true
	l = withGrants(t, "", a, nil)
	if _, err := l.Begin(t.Context(), ann, logins.Request{Server: "s"}); err == nil || !strings.Contains(err.Error(), "public https") {
		t.Errorf("a portal that nobody can read from: %v", err)
	}
	a.ClientID = "own"
	l = withGrants(t, "", a, nil, public)
	if l.ServerClientDocument("s") != nil {
		t.Error("there is a document although the admin registered a client")
	}
}
