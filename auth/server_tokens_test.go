package auth

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
	"github.com/mcp-portal/mcp-portal/config"
)

func TestBackChannelLogout(t *testing.T) {
	p, idp := serving(t, nil)
	b := p.browser(t, "alice")
	c := newMCPClient(t, p)
	c.signIn(t, b)
	good := func() map[string]any {
		return map[string]any{"iss": idp.Issuer, "aud": idp.ClientID, "sub": "alice", "iat": p.clock.now().Unix(), "exp": p.clock.now().Add(time.Minute).Unix(), "jti": random(),
			"events": map[string]any{logoutEvent: map[string]any{}}}
	}
	send := func(raw string) int {
		status, _ := postForm(t, p.url("/auth/backchannel-logout"), url.Values{"logout_token": {raw}})
		return status
	}
	for what, spoil := range map[string]func(map[string]any){
		"an ID token":     func(m map[string]any) { m["nonce"] = "n" },
		"no event":        func(m map[string]any) { delete(m, "events") },
		"another client":  func(m map[string]any) { m["aud"] = "other" },
		"another issuer":  func(m map[string]any) { m["iss"] = "https://evil" },
		"old":             func(m map[string]any) { m["iat"] = p.clock.now().Add(-time.Hour).Unix() },
		"no id":           func(m map[string]any) { delete(m, "jti") },
		"nobody":          func(m map[string]any) { delete(m, "sub") },
		"a broken sub":    func(m map[string]any) { m["sub"] = 7; m["sid"] = "x" },
		"an access token": func(m map[string]any) { delete(m, "events"); delete(m, "jti") },
	} {
		m := good()
		spoil(m)
		if status := send(idp.Sign("logout+jwt", m)); status != 400 {
			t.Errorf("%s: %d", what, status)
		}
	}
	if status := send(""); status != 400 {
		t.Errorf("nothing: %d", status)
	}
	if _, err := c.who(); err != nil || b.Get(p.url("/home")).Status != 200 {
		t.Fatalf("something ended: %v", err)
	}
	raw := idp.Sign("logout+jwt", good())
	if status := send(raw); status != 200 {
		t.Fatalf("a good one: %d", status)
	}
	wantError(t, second(c.who()), 401, CodeInvalidToken)
	if page := b.GetUntil(p.url("/home"), func(u *url.URL) bool { return u.Path == "/auth/login" }); page.Status != 0 {
		t.Errorf("the browser session lives on: %d", page.Status)
	}
	if status := send(raw); status != 400 {
		t.Errorf("twice: %d", status)
	}
	p.clock.add(time.Second)
	c.signIn(t, b) // and a new sign-in works
}

// Some IdPs name only their session in logout tokens.
func TestBackChannelLogoutOfASession(t *testing.T) {
	p, idp := serving(t, nil)
	signIn := func(user, sid string) (*mcpClient, *authtest.Browser) {
		idp.SetUser(authtest.User{Sub: user, Groups: []string{"eng", "mcp-users"}})
		idp.EditIDTokens(func(m map[string]any) { m["sid"] = sid })
		b, c := p.browser(t, user), newMCPClient(t, p)
		c.signIn(t, b)
		return c, b
	}
	alice, aliceB := signIn("alice", "s1")
	bob, bobB := signIn("bob", "s2")
	send := func(sid string) int {
		m := map[string]any{"iss": idp.Issuer, "aud": idp.ClientID, "sid": sid, "iat": p.clock.now().Unix(), "exp": p.clock.now().Add(time.Minute).Unix(), "jti": random(),
			"events": map[string]any{logoutEvent: map[string]any{}}}
		status, _ := postForm(t, p.url("/auth/backchannel-logout"), url.Values{"logout_token": {idp.Sign("logout+jwt", m)}})
		return status
	}
	if status := send("unknown"); status != 200 {
		t.Errorf("a session that is not known has nothing to end: %d", status)
	}
	if _, err := alice.who(); err != nil {
		t.Fatalf("something ended: %v", err)
	}
	if status := send("s1"); status != 200 {
		t.Fatalf("alice's session: %d", status)
	}
	wantError(t, second(alice.who()), 401, CodeInvalidToken)
	if page := aliceB.GetUntil(p.url("/home"), func(u *url.URL) bool { return u.Path == "/auth/login" }); page.Status != 0 {
		t.Errorf("alice's browser session lives on: %d", page.Status)
	}
	if _, err := bob.who(); err != nil || bobB.Get(p.url("/home")).Status != 200 {
		t.Errorf("bob's sign-in ended as well: %v", err)
	}
}

// The IdP vouches for a person to a client that the admin knows (ID-JAG).
func TestAssertionsOfTheIdP(t *testing.T) {
	secret := sha256.Sum256([]byte("s3cret"))
	p, idp := serving(t, func(c *config.Config) {
		hash := "sha256:" + hex.EncodeToString(secret[:])
		c.Auth.AllowGroups = []string{"mcp-users"}
		c.Auth.Clients.Static = []config.Client{
			{ID: "agent", SecretHash: hash, IDJAG: true, Redirects: []string{clientRedirect}},
			{ID: "other", SecretHash: hash, IDJAG: true, Redirects: []string{clientRedirect}},
			{ID: "plain", SecretHash: hash, Redirects: []string{clientRedirect}}}
	})
	good := func() map[string]any {
		return map[string]any{"iss": idp.Issuer, "sub": "alice", "aud": p.srv.URL, "client_id": "agent", "resource": p.srv.URL + "/mcp", "jti": random(), "scope": "mcp",
			"iat": p.clock.now().Unix(), "exp": p.clock.now().Add(5 * time.Minute).Unix(), "groups": []string{"mcp-users", "eng"}}
	}
	bring := func(client, secret, raw string) (int, map[string]any) {
		return postForm(t, p.url("/token"), url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "client_id": {client}, "client_secret": {secret}, "assertion": {raw}})
	}
	raw := idp.Sign(typeIDJAG, good())
	status, v := bring("agent", "s3cret", raw)
	token, _ := v["access_token"].(string)
	if status != 200 || token == "" || v["refresh_token"] != nil {
		t.Fatalf("a good one: %d %v", status, v)
	}
	who, err := p.call("Bearer " + token)
	if err != nil || who.ID != idp.Issuer+"|alice" || who.Client != "agent" || !who.InGroup("eng") {
		t.Fatalf("%+v %v", who, err)
	}
	for what, x := range map[string]struct {
		typ, client, secret, want string
		spoil                     func(map[string]any)
	}{
		"wrong secret":        {secret: "x", want: "invalid_client"},
		"not allowed to":      {client: "plain", want: "unauthorized_client", spoil: func(m map[string]any) { m["client_id"] = "plain" }},
		"another client's":    {client: "other"},
		"no client":           {spoil: func(m map[string]any) { delete(m, "client_id") }},
		"an ID token":         {typ: "JWT"},
		"an access token":     {typ: "at+jwt"},
		"another server":      {spoil: func(m map[string]any) { m["aud"] = "https://other.example" }},
		"two servers":         {spoil: func(m map[string]any) { m["aud"] = []string{p.srv.URL, "https://other.example"} }},
		"another resource":    {spoil: func(m map[string]any) { m["resource"] = "https://other.example/mcp" }},
		"another issuer":      {spoil: func(m map[string]any) { m["iss"] = "https://evil.example" }},
		"expired":             {spoil: func(m map[string]any) { m["exp"] = p.clock.now().Add(-time.Minute).Unix() }},
		"for ever":            {spoil: func(m map[string]any) { m["exp"] = p.clock.now().Add(48 * time.Hour).Unix() }},
		"no id":               {spoil: func(m map[string]any) { delete(m, "jti") }},
		"nobody":              {spoil: func(m map[string]any) { delete(m, "sub") }},
		"not of the portal":   {spoil: func(m map[string]any) { m["groups"] = []string{"sales"} }, want: "access_denied"},
		"groups not readable": {spoil: func(m map[string]any) { m["groups"] = 7 }, want: "access_denied"},
	} {
		m := good()
		if x.spoil != nil {
			x.spoil(m)
		}
		status, v := bring(cmp.Or(x.client, "agent"), cmp.Or(x.secret, "s3cret"), idp.Sign(cmp.Or(x.typ, typeIDJAG), m))
		if status/100 != 4 || v["access_token"] != nil || v["error"] != cmp.Or(x.want, "invalid_grant") {
			t.Errorf("%s: %d %v", what, status, v)
		}
	}
	if status, v := bring("agent", "s3cret", raw); status != 400 || v["error"] != "invalid_grant" {
		t.Errorf("twice: %d %v", status, v)
	}
	// The person sees it and can end it; all that the IdP ends ends it, too.
	grants, err := p.Server().Grants(t.Context(), who.ID)
	if err != nil || len(grants) != 1 {
		t.Fatalf("%v %v", grants, err)
	}
	if _, err := p.Server().End(t.Context(), who.ID, grants[0].ID); err != nil {
		t.Fatal(err)
	}
	wantError(t, second(p.call("Bearer "+token)), 401, CodeInvalidToken)
}

// Tokens of platforms for their machines, by claim rules.
func TestWorkloads(t *testing.T) {
	job, keysOnly := authtest.StartFakeIdP(t), authtest.StartFakeIdP(t)
	job.EditDiscovery(func(doc map[string]any) { delete(doc, "authorization_endpoint"); delete(doc, "token_endpoint") })
	keysOnly.EditDiscovery(func(doc map[string]any) { clear(doc) })
	p, _ := serving(t, func(c *config.Config) {
		c.Auth.Workloads = []config.Workload{
			{ID: "deploy", Issuer: job.Issuer, Audience: c.URL + "/mcp", Claims: map[string][]string{"repository": {"example/portal"}, "ref": {"refs/heads/main", "refs/tags/*"}}, Groups: []string{"ci"}, Servers: []string{"dns"}, Tools: []string{"dns/get_*"}},
			{ID: "any", Issuer: job.Issuer, Audience: "other-audience", Claims: map[string][]string{"repository": {"example/*"}}},
			{ID: "pod", Issuer: keysOnly.Issuer, JWKS: keysOnly.Issuer + "/keys", Audience: "mcp-portal", Claims: map[string][]string{"kubernetes.io.namespace": {"reports"}}},
		}
	})
	p.clock.add(0)
	token := func(idp *authtest.IdP, change map[string]any) string {
		m := map[string]any{"iss": idp.Issuer, "sub": "repo:example/portal", "aud": p.srv.URL + "/mcp", "exp": p.clock.now().Add(time.Minute).Unix(), "repository": "example/portal", "ref": "refs/heads/main"}
		for k, v := range change {
			if m[k] = v; v == nil {
				delete(m, k)
			}
		}
		return idp.Sign("JWT", m)
	}
	who, err := p.call("Bearer " + token(job, nil))
	if err != nil || who.ID != "svc:deploy" || who.Kind != KindService || !who.InGroup("ci") || !slices.Equal(who.Servers, []string{"dns"}) || !slices.Equal(who.Tools, []string{"dns/get_*"}) {
		t.Fatalf("%+v %v", who, err)
	}
	if who, err := p.call("Bearer " + token(job, map[string]any{"aud": "other-audience", "ref": "x"})); err != nil || who.ID != "svc:any" {
		t.Errorf("the second rule: %+v %v", who, err)
	}
	if who, err := p.call("Bearer " + token(keysOnly, map[string]any{"aud": []string{"mcp-portal"}, "kubernetes.io": map[string]any{"namespace": "reports"}})); err != nil || who.ID != "svc:pod" {
		t.Errorf("keys at an address of their own: %+v %v", who, err)
	}
	for what, x := range map[string]struct {
		change map[string]any
		status int
	}{
		"another repository":   {map[string]any{"repository": "evil/portal"}, 403},
		"another branch":       {map[string]any{"ref": "refs/heads/evil"}, 403},
		"no branch":            {map[string]any{"ref": nil}, 403},
		"a claim of no text":   {map[string]any{"ref": map[string]any{"x": 1}}, 403},
		"another audience":     {map[string]any{"aud": "https://elsewhere"}, 401},
		"expired":              {map[string]any{"exp": p.clock.now().Add(-time.Hour).Unix()}, 401},
		"an ID token":          {map[string]any{"nonce": "x"}, 401},
		"an issuer not listed": {map[string]any{"iss": "https://evil"}, 401},
	} {
		_, err := p.call("Bearer " + token(job, x.change))
		var e *Error
		if !errors.As(err, &e) || e.Status != x.status {
			t.Errorf("%s: %v, want %d", what, err, x.status)
		}
	}
	// Signed by another issuer than it says.
	if _, err := p.call("Bearer " + token(keysOnly, map[string]any{"iss": job.Issuer})); err == nil {
		t.Error("a token with a foreign signature is taken")
	}
}
