package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
	"github.com/mcp-portal/mcp-portal/config"
)

const mcpAud = portalURL + "/mcp"

func TestAccessTokenGivesThePrincipal(t *testing.T) {
	idp := authtest.StartFakeIdP(t)
	r := newRig(t, oidcConfig(idp))
	exp := time.Now().Add(3 * time.Minute).Truncate(time.Second)
	p, err := r.call("Bearer " + idp.Token(map[string]any{"aud": mcpAud, "exp": exp.Unix()}))
	if err != nil {
		t.Fatal(err)
	}
	if p.ID != idp.Issuer+"|alice" || p.Kind != KindUser || p.Name != "Alice Example" || p.Email != "alice@corp.test" ||
		!slices.Equal(p.Groups, []string{"eng", "mcp-users"}) || !p.Expires.Equal(exp) || p.Servers != nil || p.Tools != nil {
		t.Errorf("principal = %+v", p)
	}
}

func b64(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// forge signs as someone else than the IdP would.
func forge(t *testing.T, kid string, claims map[string]any) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return signAs(t, jose.ES256, key, kid, claims)
}

func signAs(t *testing.T, alg jose.SignatureAlgorithm, key any, kid string, claims map[string]any) string {
	t.Helper()
	o := &jose.SignerOptions{}
	if kid != "" {
		o = o.WithHeader("kid", kid)
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, o)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := jwt.Signed(s).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestAccessTokenAttacks(t *testing.T) {
	idp := authtest.StartFakeIdP(t)
	r := newRig(t, oidcConfig(idp))
	now := r.clock.now()
	good := map[string]any{"iss": idp.Issuer, "sub": "alice", "aud": mcpAud, "exp": now.Add(time.Minute).Unix()}
	with := func(name string, v any) map[string]any {
		m := map[string]any{}
		for k, v := range good {
			m[k] = v
		}
		m[name] = v
		if v == nil {
			delete(m, name)
		}
		return m
	}
	key, kid := idp.Key()
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	pub := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	hs := b64(map[string]any{"alg": "HS256", "kid": kid, "typ": "at+jwt"}) + "." + b64(good)
	mac := hmac.New(sha256.New, pub)
	mac.Write([]byte(hs))
	hs256 := hs + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	valid := idp.Sign("at+jwt", good)
	parts := strings.Split(valid, ".")

	for _, c := range []struct {
		name, token string
		status      int
		code        string
	}{
		{"the same, unharmed", valid, 0, ""},
		{"type JWT as before RFC 9068", idp.Sign("JWT", good), 0, ""},
		{"no type", idp.Sign("", good), 0, ""},
		{"full media type", idp.Sign("application/at+jwt", good), 0, ""},
		{"alg none", b64(map[string]any{"alg": "none"}) + "." + b64(good) + ".", 401, CodeInvalidToken},
		{"alg none with kid and signature", b64(map[string]any{"alg": "none", "kid": kid}) + "." + b64(good) + "." + parts[2], 401, CodeInvalidToken},
		{"alg nOnE", b64(map[string]any{"alg": "nOnE", "kid": kid}) + "." + b64(good) + ".AA", 401, CodeInvalidToken},
		{"HS256 with the public key", hs256, 401, CodeInvalidToken},
		{"no signature", parts[0] + "." + parts[1] + ".", 401, CodeInvalidToken},
		{"payload changed", parts[0] + "." + b64(with("sub", "root")) + "." + parts[2], 401, CodeInvalidToken},
		{"other key, invented kid", forge(t, "evil", good), 401, CodeInvalidToken},
		{"other key, the IdP's kid", forge(t, kid, good), 401, CodeInvalidToken},
		{"the IdP's key under another kid", signAs(t, jose.ES256, key, "other", good), 401, CodeInvalidToken},
		{"the IdP's key, no kid", signAs(t, jose.ES256, key, "", good), 0, ""},
		{"other key, no kid", forge(t, "", good), 401, CodeInvalidToken},
		{"wrong issuer", idp.Sign("at+jwt", with("iss", "https://evil.example")), 401, CodeInvalidToken},
		{"issuer with slash", idp.Sign("at+jwt", with("iss", idp.Issuer+"/")), 401, CodeInvalidToken},
		{"no issuer", idp.Sign("at+jwt", with("iss", nil)), 401, CodeInvalidToken},
		{"foreign audience", idp.Sign("at+jwt", with("aud", "https://other.example.com/mcp")), 401, CodeInvalidToken},
		{"audience is a prefix", idp.Sign("at+jwt", with("aud", portalURL+"/mc")), 401, CodeInvalidToken},
		{"audience is longer", idp.Sign("at+jwt", with("aud", mcpAud+"/x")), 401, CodeInvalidToken},
		{"audience on another port", idp.Sign("at+jwt", with("aud", portalURL+":8443/mcp")), 401, CodeInvalidToken},
		{"no audience", idp.Sign("at+jwt", with("aud", nil)), 401, CodeInvalidToken},
		{"audience of numbers", idp.Sign("at+jwt", with("aud", []any{1})), 401, CodeInvalidToken},
		{"audience list", idp.Sign("at+jwt", with("aud", []string{"other", mcpAud})), 0, ""},
		{"audience is the origin", idp.Sign("at+jwt", with("aud", portalURL)), 0, ""},
		{"audience with slash", idp.Sign("at+jwt", with("aud", portalURL+"/")), 0, ""},
		{"audience in capitals with port", idp.Sign("at+jwt", with("aud", "HTTPS://Portal.Example.COM:443/mcp/")), 0, ""},
		{"expired within leeway", idp.Sign("at+jwt", with("exp", now.Add(-20*time.Second).Unix())), 0, ""},
		{"expired beyond leeway", idp.Sign("at+jwt", with("exp", now.Add(-40*time.Second).Unix())), 401, CodeInvalidToken},
		{"no expiry", idp.Sign("at+jwt", with("exp", nil)), 401, CodeInvalidToken},
		{"expiry is text", idp.Sign("at+jwt", with("exp", "2099-01-01")), 401, CodeInvalidToken},
		{"expiry out of range", idp.Sign("at+jwt", with("exp", json.Number("1e300"))), 401, CodeInvalidToken},
		{"not yet valid within leeway", idp.Sign("at+jwt", with("nbf", now.Add(20*time.Second).Unix())), 0, ""},
		{"not yet valid", idp.Sign("at+jwt", with("nbf", now.Add(40*time.Second).Unix())), 401, CodeInvalidToken},
		{"issued by a clock that is ahead", idp.Sign("at+jwt", with("iat", now.Add(5*time.Second).Unix())), 0, ""},
		{"issued in the future", idp.Sign("at+jwt", with("iat", now.Add(10*time.Minute).Unix())), 401, CodeInvalidToken},
		{"time of issue is text", idp.Sign("at+jwt", with("iat", "now")), 401, CodeInvalidToken},
		{"no subject", idp.Sign("at+jwt", with("sub", nil)), 401, CodeInvalidToken},
		{"subject with line break", idp.Sign("at+jwt", with("sub", "a\nb")), 401, CodeInvalidToken},
		{"subject too long", idp.Sign("at+jwt", with("sub", strings.Repeat("x", 256))), 401, CodeInvalidToken},
		{"ID token by nonce", idp.Sign("JWT", with("nonce", "n")), 401, CodeInvalidToken},
		{"ID token by at_hash", idp.Sign("JWT", with("at_hash", "h")), 401, CodeInvalidToken},
		{"ID token of the portal's client", idp.Sign("JWT", with("aud", idp.ClientID)), 401, CodeInvalidToken},
		{"for the portal's client and the portal", idp.Sign("JWT", with("aud", []string{idp.ClientID, mcpAud})), 401, CodeInvalidToken},
		{"the same as marked access token", idp.Sign("at+jwt", with("aud", []string{idp.ClientID, mcpAud})), 0, ""},
		{"ID token of Keycloak", idp.Sign("JWT", with("typ", "ID")), 401, CodeInvalidToken},
		{"refresh token of Keycloak", idp.Sign("JWT", with("typ", "Refresh")), 401, CodeInvalidToken},
		{"access token of Keycloak", idp.Sign("JWT", with("typ", "Bearer")), 0, ""},
		{"logout token by type", idp.Sign("logout+jwt", good), 401, CodeInvalidToken},
		{"logout token by claim", idp.Sign("JWT", with("events", map[string]any{})), 401, CodeInvalidToken},
		{"identity assertion", idp.Sign("oauth-id-jag+jwt", good), 401, CodeInvalidToken},
		{"two parts", parts[0] + "." + parts[1], 401, CodeInvalidToken},
		{"encrypted", "a.b.c.d.e", 401, CodeInvalidToken},
		{"opaque", "ya29.opaque", 401, CodeInvalidToken},
		{"garbage", "!!!", 400, CodeInvalidRequest},
		{"payload is a list", parts[0] + "." + b64([]int{1}) + "." + parts[2], 401, CodeInvalidToken},
		{"payload is null", parts[0] + "." + b64(nil) + "." + parts[2], 401, CodeInvalidToken},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := r.call("Bearer " + c.token)
			if c.status == 0 {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			if p != nil {
				t.Fatalf("accepted as %+v", p)
			}
			e := wantError(t, err, c.status, c.code)
			for _, secret := range strings.Split(c.token, ".") {
				if len(secret) > 20 && (strings.Contains(e.Error(), secret) || strings.Contains(r.log.String(), secret)) {
					t.Errorf("a part of the token is in the error or the log: %s", e)
				}
			}
		})
	}
}

// An ID token that the sign-in really issued must not open /mcp.
func TestClientIDAsAudienceIsAcceptedOnlyIfConfigured(t *testing.T) {
	idp := authtest.StartFakeIdP(t)
	cfg := oidcConfig(idp)
	cfg.Auth.Audience = []string{idp.ClientID, "api://portal"}
	r := newRig(t, cfg)
	for _, c := range []struct {
		name string
		typ  string
		add  map[string]any
		ok   bool
	}{
		{"access token for the client id", "JWT", map[string]any{"aud": idp.ClientID}, true},
		{"ID token for the client id", "JWT", map[string]any{"aud": idp.ClientID, "nonce": "x"}, false},
		{"application URI", "JWT", map[string]any{"aud": "api://portal"}, true},
		{"application URI in capitals", "JWT", map[string]any{"aud": "API://portal"}, false},
		{"the default no more", "JWT", map[string]any{"aud": mcpAud}, false},
	} {
		claims := map[string]any{"iss": idp.Issuer, "sub": "alice", "exp": time.Now().Add(time.Minute).Unix()}
		for k, v := range c.add {
			claims[k] = v
		}
		_, err := r.call("Bearer " + idp.Sign(c.typ, claims))
		if (err == nil) != c.ok {
			t.Errorf("%s: error %v, want accepted %v", c.name, err, c.ok)
		}
	}
}

func TestGroups(t *testing.T) {
	idp := authtest.StartFakeIdP(t)
	overage := map[string]any{"groups": nil, "_claim_names": map[string]any{"groups": "src1"},
		"_claim_sources": map[string]any{"src1": map[string]any{"endpoint": "https://graph.windows.net/x/getMemberObjects"}}}
	for _, c := range []struct {
		name, path string
		claims     map[string]any
		want       []string
		status     int
	}{
		{"list", "groups", map[string]any{"groups": []string{"a", "b"}}, []string{"a", "b"}, 0},
		{"text", "groups", map[string]any{"groups": "a"}, []string{"a"}, 0},
		{"text with a space is one group", "groups", map[string]any{"groups": "a b"}, []string{"a b"}, 0},
		{"empty text is no group", "groups", map[string]any{"groups": ""}, nil, 0},
		{"missing", "groups", map[string]any{"groups": nil}, nil, 0},
		{"dotted", "realm_access.roles", map[string]any{"realm_access": map[string]any{"roles": []string{"r"}}}, []string{"r"}, 0},
		{"dotted, not there", "realm_access.roles", map[string]any{"realm_access": "x"}, nil, 0},
		{"namespaced", "https://corp.example/groups", map[string]any{"https://corp.example/groups": []string{"n"}}, []string{"n"}, 0},
		{"client with dots", "resource_access.my.app.roles", map[string]any{"resource_access": map[string]any{"my.app": map[string]any{"roles": []string{"d"}}}}, []string{"d"}, 0},
		{"letter case counts", "groups", map[string]any{"groups": nil, "Groups": []string{"a"}}, nil, 0},
		{"number", "groups", map[string]any{"groups": 7}, nil, 403},
		{"list with an object", "groups", map[string]any{"groups": []any{"a", map[string]any{"name": "b"}}}, nil, 403},
		{"overage", "groups", overage, nil, 403},
		{"overage, implicit flow", "groups", map[string]any{"groups": nil, "hasgroups": true}, nil, 403},
		{"overage of another claim", "roles", map[string]any{"roles": []string{"r"}, "groups": nil, "_claim_names": overage["_claim_names"], "_claim_sources": overage["_claim_sources"]}, []string{"r"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := oidcConfig(idp)
			cfg.Auth.GroupsClaim = c.path
			r := newRig(t, cfg)
			c.claims["aud"] = mcpAud
			p, err := r.call("Bearer " + idp.Token(c.claims))
			if c.status != 0 {
				wantError(t, err, c.status, CodeAccessDenied)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(p.Groups, c.want) {
				t.Errorf("groups = %q, want %q", p.Groups, c.want)
			}
		})
	}
	t.Run("overage says why", func(t *testing.T) {
		r := newRig(t, oidcConfig(idp))
		overage["aud"] = mcpAud
		_, err := r.call("Bearer " + idp.Token(overage))
		if e := wantError(t, err, 403, CodeAccessDenied); !strings.Contains(e.Description, "more groups than") || !strings.Contains(e.Next, "roles") {
			t.Errorf("description %q, next %q", e.Description, e.Next)
		}
	})
}

func TestNamesOfPeopleAreFitToBeShown(t *testing.T) {
	idp := authtest.StartFakeIdP(t)
	r := newRig(t, oidcConfig(idp))
	for _, c := range []struct {
		claims map[string]any
		want   string
	}{
		{map[string]any{"name": "Eve\r\n\x1b[31m\u202eroot"}, "Eve[31mroot"},
		{map[string]any{"name": nil, "preferred_username": "al"}, "al"},
		{map[string]any{"name": nil}, "alice@corp.test"},
		{map[string]any{"name": "\n", "email": nil}, idp.Issuer + "|alice"},
		{map[string]any{"name": strings.Repeat("ü", 500)}, strings.Repeat("ü", 100)},
	} {
		c.claims["aud"] = mcpAud
		p, err := r.call("Bearer " + idp.Token(c.claims))
		if err != nil {
			t.Fatal(err)
		}
		if p.Name != c.want {
			t.Errorf("name of %q = %q, want %q", c.claims, p.Name, c.want)
		}
	}
}

func TestAllowGroups(t *testing.T) {
	idp := authtest.StartFakeIdP(t)
	cfg := oidcConfig(idp)
	cfg.Auth.AllowGroups = []string{"mcp-users", "admins"}
	r := newRig(t, cfg)
	for _, c := range []struct {
		groups any
		ok     bool
		says   string
	}{
		{[]string{"eng", "mcp-users"}, true, ""},
		{[]string{"admins"}, true, ""},
		{[]string{"eng"}, false, "none of the groups"},
		{nil, false, `claim "groups"`},
	} {
		_, err := r.call("Bearer " + idp.Token(map[string]any{"aud": mcpAud, "groups": c.groups}))
		if c.ok {
			if err != nil {
				t.Errorf("groups %v: %v", c.groups, err)
			}
			continue
		}
		e := wantError(t, err, 403, CodeAccessDenied)
		if !strings.Contains(e.Description, c.says) || strings.Contains(e.Description+e.Next, "admins") {
			t.Errorf("groups %v: description %q", c.groups, e.Description)
		}
	}
	// A reload counts for the next request.
	next := *cfg
	next.Auth.AllowGroups = nil
	if err := r.SetConfig(&next); err != nil {
		t.Fatal(err)
	}
	if _, err := r.call("Bearer " + idp.Token(map[string]any{"aud": mcpAud, "groups": nil})); err != nil {
		t.Errorf("after the reload: %v", err)
	}
}

func TestSetConfigKeepsTheOldOneOnError(t *testing.T) {
	idp := authtest.StartFakeIdP(t)
	r := newRig(t, oidcConfig(idp))
	bad := func(change func(*config.Config)) *config.Config {
		c := oidcConfig(idp)
		change(c)
		return c
	}
	for i, c := range []*config.Config{
		nil,
		bad(func(c *config.Config) { c.Auth.Mode = "" }),
		bad(func(c *config.Config) { c.Auth.Issuer = "" }),
		bad(func(c *config.Config) { c.Auth.Issuer = "http://login.example.com" }),
		bad(func(c *config.Config) { c.URL = "" }),
		bad(func(c *config.Config) { c.URL = "http://portal.example.com" }),
		bad(func(c *config.Config) { c.URL = portalURL + "/sub" }),
		bad(func(c *config.Config) { c.Auth.ClockSkew = -time.Second }),
		bad(func(c *config.Config) { c.Hosts = []string{"a/b"} }),
		bad(func(c *config.Config) { c.Origins = []string{"null"} }),
		bad(func(c *config.Config) { c.Auth.ServiceTokens = []config.ServiceToken{{ID: "ci", Hash: "sha256:00"}} }),
		bad(func(c *config.Config) { c.Auth.Mode, c.Listen = "none", "0.0.0.0:8080" }),
		bad(func(c *config.Config) { c.Auth.Mode, c.Listen = "none", ":8080" }),
		bad(func(c *config.Config) { c.Auth.Mode = "none" }), // url is public
	} {
		if err := r.SetConfig(c); err == nil {
			t.Errorf("configuration %d was accepted", i)
		}
		if _, err := r.call("Bearer " + idp.Token(map[string]any{"aud": mcpAud})); err != nil {
			t.Fatalf("after configuration %d: %v", i, err)
		}
	}
	if n := idp.Fetches(); n != 1 {
		t.Errorf("keys were fetched %d times, want once: reloading keeps them", n)
	}
}

func TestAnotherIssuerAfterReload(t *testing.T) {
	one, two := authtest.StartFakeIdP(t), authtest.StartFakeIdP(t)
	r := newRig(t, oidcConfig(one))
	tok1, tok2 := one.Token(map[string]any{"aud": mcpAud}), two.Token(map[string]any{"aud": mcpAud})
	check := func(tok string, ok bool) {
		t.Helper()
		if _, err := r.call("Bearer " + tok); (err == nil) != ok {
			t.Errorf("error %v, want accepted %v", err, ok)
		}
	}
	check(tok1, true)
	check(tok2, false)
	if err := r.SetConfig(oidcConfig(two)); err != nil {
		t.Fatal(err)
	}
	check(tok1, false)
	check(tok2, true)
}

func FuzzAccessToken(f *testing.F) {
	idp := authtest.StartFakeIdP(f)
	r := newRig(f, oidcConfig(idp))
	good := idp.Token(map[string]any{"aud": mcpAud})
	f.Add(good)
	f.Add(good + ".")
	f.Add(fmt.Sprintf("%s.%s.", b64(map[string]any{"alg": "none"}), b64(map[string]any{"iss": idp.Issuer})))
	f.Add("e30.e30.e30")
	f.Fuzz(func(t *testing.T, token string) {
		p, err := r.call("Bearer " + token)
		if err != nil {
			return
		}
		// Base64 may be written in more than one way; what was signed may not.
		_, got, _ := peekJWT(strings.Trim(token, " \t"))
		if _, want, _ := peekJWT(good); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%q was accepted as %+v", token, p)
		}
	})
}
