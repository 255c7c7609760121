package authserver

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
)

// A5, A8, section 6: codes.
func TestCodes(t *testing.T) {
	r := newRig(t, nil)
	c, other := r.newClient(loopback), r.newClient(loopback, "https://other.example.com/cb")
	code := r.code(c, alice, nil)
	for name, change := range map[string]url.Values{
		"another client":    {"client_id": {other}},
		"another redirect":  {"redirect_uri": {"http://127.0.0.1:7778/cb"}},
		"no redirect":       {"redirect_uri": nil},
		"another verifier":  {"code_verifier": {verifier + "x"}},
		"no verifier":       {"code_verifier": nil},
		"the challenge":     {"code_verifier": {challengeOf(verifier)}},
		"another code":      {"code": {"mcpp_ac_" + random()}},
		"the code in twice": {"code": {code, code}},
	} {
		form := codeForm(c, code)
		for k, v := range change {
			form.Del(k)
			if len(v) > 0 {
				form[k] = v
			}
		}
		if a := r.post(PathToken, form); a.status != 400 || a.json["access_token"] != nil {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	access, refresh := r.tokens(r.post(PathToken, codeForm(c, code)))
	if err := r.valid(access); err != nil {
		t.Fatal(err)
	}
	// The second use ends what the first one gave.
	if a := r.post(PathToken, codeForm(c, code)); a.json["error"] != "invalid_grant" {
		t.Errorf("replay: %d %s", a.status, a.body)
	}
	if r.valid(access) == nil {
		t.Error("the access token lives on after its code was used twice")
	}
	if a := r.refreshed(c, refresh); a.json["error"] != "invalid_grant" {
		t.Errorf("the refresh token lives on after its code was used twice: %s", a.body)
	}
	// Codes are short-lived.
	code = r.code(c, alice, nil)
	r.add(pendingFor)
	if a := r.post(PathToken, codeForm(c, code)); a.json["error"] != "invalid_grant" {
		t.Errorf("an old code: %s", a.body)
	}
	// Of two at once one wins, or none.
	code = r.code(c, alice, nil)
	results := make(chan int, 4)
	for range 4 {
		go func() { results <- r.post(PathToken, codeForm(c, code)).status }()
	}
	won := 0
	for range 4 {
		if <-results == 200 {
			won++
		}
	}
	if won > 1 {
		t.Errorf("a code was exchanged %d times", won)
	}
	// Before the exchange there is nothing that could be used.
	code = r.code(c, alice, nil)
	if list, err := r.Grants(t.Context(), alice.ID); err != nil || len(list) != 0 {
		t.Errorf("grants: %v %v", list, err)
	}
	r.tokens(r.post(PathToken, codeForm(c, code)))
	if list, err := r.Grants(t.Context(), alice.ID); err != nil || len(list) != 1 || list[0].ClientName != "Test client" {
		t.Errorf("grants: %v %v", list, err)
	}
}

// A8, 3.4: refresh tokens are rotated; using one again is forgiven for a
// while, since clients refresh in parallel, and later ends the grant.
func TestRefresh(t *testing.T) {
	r := newRig(t, nil)
	c, other := r.newClient(loopback), r.newClient(loopback, "https://other.example.com/cb")
	access, first := r.signIn(c, alice)
	results := make(chan reply, 4)
	for range 4 {
		go func() { results <- r.refreshed(c, first) }()
	}
	seen := map[string]bool{first: true}
	var second string
	for range 4 {
		a, next := r.tokens(<-results)
		if second = next; seen[next] || r.valid(a) != nil {
			t.Error("a refresh token came twice, or its access token is of no use")
		}
		seen[next] = true
	}
	if r.valid(access) != nil {
		t.Error("refreshing ended the access token before")
	}
	if a := r.refreshed(other, second); a.json["error"] != "invalid_grant" {
		t.Errorf("another client: %s", a.body)
	}
	if a := r.refreshed(c, "mcpp_rt_"+random()); a.json["error"] != "invalid_grant" {
		t.Errorf("an invented token: %s", a.body)
	}
	if a := r.refreshed("nobody", second); a.status != 401 || a.json["error"] != "invalid_client" {
		t.Errorf("an unknown client: %d %s", a.status, a.body)
	}
	r.add(r.cfg.Auth.Tokens.ReuseGrace + time.Second)
	latest, third := r.tokens(r.refreshed(c, second)) // not used before: fine however late
	if a := r.refreshed(c, first); a.json["error"] != "invalid_grant" {
		t.Errorf("used again after the grace: %s", a.body)
	}
	if r.valid(latest) == nil || r.refreshed(c, third).json["error"] != "invalid_grant" {
		t.Error("the grant lives on after one of its refresh tokens was used again")
	}
	// Strict rotation.
	strict := newRig(t, func(c *config.Config) { c.Auth.Tokens.ReuseGrace = 0 })
	c = strict.newClient(loopback)
	_, first = strict.signIn(c, alice)
	strict.tokens(strict.refreshed(c, first))
	strict.add(time.Second)
	if a := strict.refreshed(c, first); a.json["error"] != "invalid_grant" {
		t.Errorf("without grace: %s", a.body)
	}
	// In the end a person signs in anew.
	c = r.newClient(loopback)
	_, token := r.signIn(c, alice)
	for range 4 {
		r.add(29 * 24 * time.Hour)
		a := r.refreshed(c, token)
		if a.status != 200 {
			if r.clock().Sub(time.Now()) < 80*24*time.Hour {
				t.Fatalf("it ended early: %s", a.body)
			}
			return
		}
		_, token = r.tokens(a)
	}
	t.Error("a grant never ends")
}

// Who the person is comes from the IdP at each refresh.
func TestRefreshAsksTheIdP(t *testing.T) {
	r := newRig(t, nil)
	c := r.newClient(loopback)
	_, token := r.signIn(c, alice)
	r.renew = func(p Person, _ time.Time) (Person, error) { p.Groups = []string{"new"}; return p, nil }
	access, token := r.tokens(r.refreshed(c, token))
	tok, err := r.Verify(t.Context(), access)
	if err != nil || !slices.Equal(tok.Person.Groups, []string{"new"}) {
		t.Errorf("%+v %v", tok, err)
	}
	r.renew = func(p Person, _ time.Time) (Person, error) { return p, context.DeadlineExceeded }
	if a := r.refreshed(c, token); a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("the IdP is down: %d %s", a.status, a.body)
	}
	if r.valid(access) != nil {
		t.Error("a session ended because the IdP is down")
	}
	r.renew = nil
	_, token = r.tokens(r.refreshed(c, token)) // nothing was lost
	r.renew = func(p Person, _ time.Time) (Person, error) { return p, ErrEnded }
	if a := r.refreshed(c, token); a.json["error"] != "invalid_grant" || r.valid(access) == nil {
		t.Errorf("the IdP ended it: %s", a.body)
	}
}

// RFC 7009, and ending by the person.
func TestEnding(t *testing.T) {
	r := newRig(t, nil)
	c, other := r.newClient(loopback), r.newClient(loopback, "https://other.example.com/cb")
	for _, which := range []string{"access", "refresh"} {
		access, refresh := r.signIn(c, alice)
		token := map[string]string{"access": access, "refresh": refresh}[which]
		if a := r.post(PathRevoke, url.Values{"client_id": {other}, "token": {token}}); a.status != 200 || r.valid(access) != nil {
			t.Errorf("%s: another client's revocation: %d", which, a.status)
		}
		if a := r.post(PathRevoke, url.Values{"client_id": {c}, "token": {token}}); a.status != 200 || r.valid(access) == nil || r.refreshed(c, refresh).status == 200 {
			t.Errorf("%s: revoked, but lives on (%d)", which, a.status)
		}
	}
	if a := r.post(PathRevoke, url.Values{"client_id": {c}, "token": {"unknown"}}); a.status != 200 {
		t.Errorf("an unknown token: %d", a.status)
	}
	if a := r.post(PathRevoke, url.Values{"client_id": {"nobody"}, "token": {"x"}}); a.status != 401 {
		t.Errorf("an unknown client: %d", a.status)
	}
	bob := Person{ID: "https://idp|bob"}
	one, _ := r.signIn(c, alice)
	two, _ := r.signIn(c, alice)
	hers, _ := r.signIn(c, bob)
	list, err := r.Grants(t.Context(), alice.ID)
	if err != nil || len(list) != 2 {
		t.Fatalf("grants: %d %v", len(list), err)
	}
	if found, err := r.End(t.Context(), bob.ID, list[0].ID); found || err != nil || r.valid(one) != nil || r.valid(two) != nil {
		t.Error("bob ended a grant of alice")
	}
	if found, err := r.End(t.Context(), alice.ID, list[0].ID); !found || err != nil || (r.valid(one) == nil) == (r.valid(two) == nil) {
		t.Errorf("ending one: %v %v", found, err)
	}
	if err := r.EndAll(t.Context(), alice.ID, "test"); err != nil || r.valid(one) == nil || r.valid(two) == nil || r.valid(hers) != nil {
		t.Errorf("ending all: %v", err)
	}
}

// Scopes narrow; what is not known is left out.
func TestScopes(t *testing.T) {
	r := newRig(t, nil)
	c := r.newClient(loopback)
	may := func(id string) bool { return id == "dns" || id == "kb" }
	for asked, want := range map[string]string{"": "mcp", "mcp": "mcp", "openid offline_access": "mcp", "mcp mcp:dns": "mcp", "mcp:dns": "mcp:dns", "mcp:dns mcp:kb offline_access": "mcp:dns mcp:kb", "mcp:dns mcp:secret": "mcp:dns", "mcp:secret": "", "openid mcp:secret": ""} {
		if got := strings.Join(grantScopes(asked, may), " "); got != want {
			t.Errorf("%q: %q, want %q", asked, got, want)
		}
	}
	to, err := r.Decide(t.Context(), r.waiting(c, url.Values{"scope": {"mcp:secret"}}), alice, may, true)
	if err != nil || !strings.Contains(to, "error=invalid_scope") {
		t.Errorf("nothing to grant: %s %v", to, err)
	}
	to, err = r.Decide(t.Context(), r.waiting(c, url.Values{"scope": {"mcp:dns mcp:kb"}}), alice, may, true)
	if err != nil {
		t.Fatal(err)
	}
	u, _ := url.Parse(to)
	a := r.post(PathToken, codeForm(c, u.Query().Get("code")))
	_, refresh := r.tokens(a)
	if a.json["scope"] != "mcp:dns mcp:kb" {
		t.Errorf("scope: %s", a.body)
	}
	for asked, want := range map[string]string{"mcp:dns": "mcp:dns", "mcp": "mcp:dns mcp:kb", "mcp:secret": "mcp:dns mcp:kb"} {
		a := r.post(PathToken, url.Values{"grant_type": {"refresh_token"}, "client_id": {c}, "refresh_token": {refresh}, "scope": {asked}})
		if a.json["scope"] != want {
			t.Errorf("refresh with %s: %s", asked, a.body)
		}
	}
	if s := ServersOf([]string{"mcp"}); s != nil {
		t.Errorf("mcp limits to %v", s)
	}
	if s := ServersOf(nil); s == nil || len(s) != 0 {
		t.Errorf("no scope at all gives %v", s)
	}
}

// Machines exchange their service token.
func TestClientCredentials(t *testing.T) {
	r := newRig(t, nil)
	form := url.Values{"grant_type": {"client_credentials"}, "resource": {r.url + "/mcp"}}
	a := r.post(PathToken, form, "ci", "mcpp_st_ci_secret")
	token, _ := a.json["access_token"].(string)
	tok, err := r.Verify(t.Context(), token)
	if a.status != 200 || a.json["refresh_token"] != nil || err != nil || tok.Machine != "ci" {
		t.Fatalf("%d %s %+v %v", a.status, a.body, tok, err)
	}
	for _, bad := range [][]string{{"ci", "x"}, {"other", "mcpp_st_ci_secret"}, {"ci", ""}} {
		if a := r.post(PathToken, form, bad...); a.status != 401 || a.json["error"] != "invalid_client" {
			t.Errorf("%v: %d %s", bad, a.status, a.body)
		}
	}
	if a := r.post(PathToken, url.Values{"grant_type": {"password"}, "client_id": {"ci"}}); a.json["error"] != "unsupported_grant_type" {
		t.Errorf("password: %s", a.body)
	}
}

// Whom the admin takes out of the configuration is out with the next request,
// and not when the access token ends.
func TestClientsThatAreNotTakenAnyMore(t *testing.T) {
	shut := false
	r := newRig(t, func(c *config.Config) {
		c.Auth.Clients.Static = []config.Client{{ID: "agent", Redirects: []string{loopback}}}
	})
	static, _ := r.signIn("agent", alice)
	registered, _ := r.signIn(r.newClient(loopback), alice)
	next := *r.cfg
	for name, c := range map[string]struct {
		change func(*config.Clients)
		token  string
	}{
		"taken out":       {func(c *config.Clients) { c.Static = nil }, static},
		"no registration": {func(c *config.Clients) { c.Register = &shut }, registered},
	} {
		if err := r.valid(c.token); err != nil {
			t.Errorf("%s: before: %v", name, err)
		}
		next.Auth.Clients = r.cfg.Auth.Clients
		c.change(&next.Auth.Clients)
		if err := r.SetConfig(&next, r.url); err != nil {
			t.Fatal(err)
		}
		if r.valid(c.token) == nil {
			t.Errorf("%s: the token still holds", name)
		}
		if err := r.SetConfig(r.cfg, r.url); err != nil {
			t.Fatal(err)
		}
	}
}
