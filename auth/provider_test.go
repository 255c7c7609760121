package auth

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
	"github.com/mcp-portal/mcp-portal/auth/clientkey"
	"github.com/mcp-portal/mcp-portal/config"
)

// The whole way with a certified OpenID provider, as a company would have it.
func TestWithACertifiedProvider(t *testing.T) {
	for name, conform := range map[string]bool{"groups in the ID token": false, "groups at userinfo": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var idp *authtest.Provider
			p := startPortal(t, false, func(u string) *config.Config {
				idp = authtest.StartProviderWith(t, authtest.ProviderOptions{Redirects: []string{u + "/auth/callback"}, ConformIDTokens: conform})
				return &config.Config{Name: "Portal", Listen: "127.0.0.1:0", URL: u, Auth: config.Auth{Mode: "oidc", Accept: []string{"portal", "idp"}, Issuer: idp.Issuer,
					ClientID: idp.ClientID, ClientSecret: config.Secret(idp.ClientSecret), Scopes: []string{"openid", "profile", "email", "groups"}, AllowGroups: []string{"mcp-users"}, ClockSkew: time.Minute}}
			})
			p.clock.run()
			for user, groups := range map[string]string{"alice": "eng,mcp-users", "bob": "sales,mcp-users"} {
				page := p.browser(t, user).Get(p.url("/home"))
				if page.Status != 200 || !strings.Contains(page.Body, "user="+idp.Issuer+"|"+user+" name="+strings.ToUpper(user[:1])+user[1:]+" Example groups="+groups+" ") {
					t.Errorf("%s in the browser: %d %s", user, page.Status, page.Body)
				}
				who, err := p.call("Bearer " + idp.Token(t, user, p.url("/mcp")))
				if err != nil {
					t.Errorf("%s with a token: %v", user, err)
					continue
				}
				if who.ID != idp.Issuer+"|"+user || !slices.Equal(who.Groups, strings.Split(groups, ",")) {
					t.Errorf("%s with a token is %+v", user, who)
				}
			}
			if page := p.browser(t, "mallory").Get(p.url("/home")); page.Status != 403 || !strings.Contains(page.Body, "groups") {
				t.Errorf("mallory in the browser: %d %s", page.Status, page.Body)
			}
			_, err := p.call("Bearer " + idp.Token(t, "mallory", p.url("/mcp")))
			wantError(t, err, 403, CodeAccessDenied)
			if page := p.browser(t, "deny").Get(p.url("/home")); page.Status != 403 || !strings.Contains(page.Body, "refused &lt;b&gt;this") {
				t.Errorf("refused by the IdP: %d %s", page.Status, page.Body)
			}
			_, err = p.call("Bearer " + idp.Token(t, "alice", "https://other.example.com/mcp"))
			wantError(t, err, 401, CodeInvalidToken)
		})
	}
}

// The provider's ID token is no access token, though it is signed by the same
// keys for a client of this portal.
func TestRealIDTokenIsNotAccepted(t *testing.T) {
	var idToken string
	idp := authtest.StartProvider(t, "http://127.0.0.1:9/auth/callback")
	// The portal's own exchange is watched on its way.
	p := startPortal(t, false, func(u string) *config.Config {
		return &config.Config{Listen: "127.0.0.1:0", URL: u, Auth: config.Auth{Mode: "oidc", Accept: []string{"portal", "idp"}, Issuer: idp.Issuer, ClientID: idp.PublicClient}}
	})
	p.clock.run()
	seen := authtest.NewBrowser(t, "alice").GetUntil(idp.Issuer+"/auth?"+url.Values{"client_id": {idp.PublicClient}, "response_type": {"code"}, "redirect_uri": {"http://127.0.0.1:7/cb"},
		"scope": {"openid groups"}, "nonce": {"n"}, "state": {"s"}, "code_challenge": {"E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"}, "code_challenge_method": {"S256"}}.Encode(),
		func(u *url.URL) bool { return u.Path == "/cb" })
	res, err := http.PostForm(idp.Issuer+"/token", url.Values{"client_id": {idp.PublicClient}, "grant_type": {"authorization_code"}, "code": {seen.URL.Query().Get("code")},
		"redirect_uri": {"http://127.0.0.1:7/cb"}, "code_verifier": {"dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"}})
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	_, rest, _ := strings.Cut(readAll(t, res), `"id_token":"`)
	idToken, _, _ = strings.Cut(rest, `"`)
	if strings.Count(idToken, ".") != 2 {
		t.Fatal("the provider gave no ID token")
	}
	_, err = p.call("Bearer " + idToken)
	wantError(t, err, 401, CodeInvalidToken)
	// Even where the client id is configured as an audience.
	cfg := *p.cfg
	cfg.Auth.Audience = []string{idp.PublicClient}
	if err := p.SetConfig(&cfg); err != nil {
		t.Fatal(err)
	}
	_, err = p.call("Bearer " + idToken)
	if e := wantError(t, err, 401, CodeInvalidToken); !strings.Contains(e.Description, "ID token") {
		t.Errorf("refused for another reason: %v", e)
	}
}

// The portal proves itself at a certified provider by a key in place of a
// secret: when somebody signs in, and when their tokens are renewed.
func TestPortalProvesItselfByKey(t *testing.T) {
	for _, c := range []struct{ kind, audience string }{{"EC", ""}, {"RSA", "token_endpoint"}, {"Ed25519", "issuer"}} {
		t.Run(c.kind, func(t *testing.T) {
			t.Parallel()
			secret := authtest.PrivateKey(t, c.kind)
			key, err := clientkey.New(secret, "chosen")
			if err != nil {
				t.Fatal(err)
			}
			var idp *authtest.Provider
			p := startPortal(t, false, func(u string) *config.Config {
				idp = authtest.StartProviderWith(t, authtest.ProviderOptions{Redirects: []string{u + "/auth/callback"}, Keys: key.Published()})
				return &config.Config{Name: "Portal", Listen: "127.0.0.1:0", URL: u, Auth: config.Auth{Mode: "oidc", Accept: []string{"portal"}, Issuer: idp.Issuer,
					ClientID: idp.ClientID, PrivateKey: secret, PrivateKeyID: "chosen", AssertionAud: c.audience, ClockSkew: time.Minute, Scopes: []string{"openid", "profile", "email", "groups", "offline_access"},
					LoginParams: map[string]string{"prompt": "consent"}}}
			})
			if page := p.browser(t, "alice").Get(p.url("/home")); page.Status != 200 || !strings.Contains(page.Body, "|alice ") {
				t.Fatalf("signing in: %d %s", page.Status, page.Body)
			}
			before, err := p.SubjectToken(t.Context(), idp.Issuer+"|alice", "access_token")
			if err != nil {
				t.Fatal(err)
			}
			p.clock.add(time.Hour)
			after, err := p.SubjectToken(t.Context(), idp.Issuer+"|alice", "access_token")
			if err != nil || after == before {
				t.Errorf("renewing: %v", err)
			}
			// By another key it is nobody.
			cfg := *p.cfg
			cfg.Auth.PrivateKey = authtest.PrivateKey(t, c.kind)
			if err := p.SetConfig(&cfg); err != nil {
				t.Fatal(err)
			}
			if page := p.browser(t, "bob").Get(p.url("/home")); page.Status == 200 || !strings.Contains(page.Body, "invalid_client") {
				t.Errorf("with another key: %d %s", page.Status, page.Body)
			}
		})
	}
}
