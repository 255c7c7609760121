package authserver

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/mcp-portal/mcp-portal/auth/vault"
	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/store"
)

// A sign-in that is older than auth.tokens.grant is over at that very moment,
// and the IdP is not asked about it any more.
func TestRefreshEndsWithTheGrant(t *testing.T) {
	r := newRig(t, nil)
	c := r.newClient(loopback)
	_, before := r.signIn(c, alice)
	_, after := r.signIn(c, alice)
	asked := 0
	r.renew = func(p Person, _ time.Time) (Person, error) { asked++; return p, nil }
	next := *r.cfg
	next.Auth.Tokens.Grant = time.Hour
	if err := r.SetConfig(&next, r.url); err != nil {
		t.Fatal(err)
	}
	r.add(time.Hour - 2*time.Second)
	if a := r.refreshed(c, before); a.status != 200 || a.json["expires_in"] != 2.0 || asked != 1 {
		t.Errorf("two seconds before the end: %d %s, IdP asked %d times", a.status, a.body, asked)
	}
	r.add(2 * time.Second)
	if a := r.refreshed(c, after); a.status != 400 || a.json["error"] != "invalid_grant" || asked != 1 {
		t.Errorf("at the end: %d %s, IdP asked %d times", a.status, a.body, asked)
	}
}

// An IdP that names somebody else for a sign-in does not hand it over to them.
func TestRefreshStaysWithThePerson(t *testing.T) {
	r := newRig(t, nil)
	c := r.newClient(loopback)
	access, refresh := r.signIn(c, alice)
	bob := Person{ID: "https://idp|bob", Name: "Bob"}
	r.renew = func(Person, time.Time) (Person, error) { return bob, nil }
	if a := r.refreshed(c, refresh); a.status != 500 || a.json["error"] != "server_error" || a.json["access_token"] != nil || strings.Contains(a.body, "bob") {
		t.Errorf("refreshing as somebody else: %d %s", a.status, a.body)
	}
	tok, err := r.Verify(t.Context(), access)
	if err != nil || tok.Person.ID != alice.ID {
		t.Errorf("the sign-in belongs to %+v now (%v)", tok, err)
	}
	if list, err := r.Grants(t.Context(), bob.ID); err != nil || len(list) != 0 {
		t.Errorf("the other has %v (%v)", list, err)
	}
	r.renew = nil
	r.tokens(r.refreshed(c, refresh)) // nothing was used up by it
}

// racingStore lets somebody else in before the first write of a refresh token.
type racingStore struct {
	store.Store
	let   atomic.Bool // somebody was let in
	first func()
}

func (s *racingStore) Swap(ctx context.Context, key string, old, next []byte, ttl time.Duration) (bool, error) {
	if strings.HasPrefix(key, "rt:") && s.let.CompareAndSwap(false, true) {
		s.first()
	}
	return s.Store.Swap(ctx, key, old, next, ttl)
}

// Of two uses of one refresh token in the same moment both are served within
// auth.tokens.reuse_grace; without it, both sides lose the sign-in.
func TestRefreshTwiceAtOnce(t *testing.T) {
	for _, grace := range []time.Duration{0, time.Minute} {
		for _, parallel := range []bool{false, true} {
			race := &racingStore{Store: newStore(t)}
			r := newReplica(t, race, vault.NewKey(time.Now()), func(c *config.Config) { c.Auth.Tokens.ReuseGrace = grace })
			c := r.newClient(loopback)
			_, token := r.signIn(c, alice)
			var one reply
			race.first = func() {}
			if parallel {
				race.first = func() { one = r.refreshed(c, token) }
			} else {
				one = r.refreshed(c, token)
			}
			two := r.refreshed(c, token)
			access, _ := r.tokens(one)
			if grace > 0 {
				r.tokens(two)
			} else if two.status != 400 || two.json["error"] != "invalid_grant" {
				t.Errorf("no grace, parallel %v: %d %s", parallel, two.status, two.body)
			}
			if lives := r.valid(access) == nil; lives != (grace > 0) {
				t.Errorf("grace %s, parallel %v: the sign-in lives on is %v", grace, parallel, lives)
			}
		}
	}
}

// documentHost serves one client metadata document that can change or be away.
type documentHost struct {
	mu        sync.Mutex
	redirects []string
	cache     string // Cache-Control
	away      bool
	origin    string
	url       string // of the document
}

func newDocumentHost(t *testing.T, cache string, redirects ...string) *documentHost {
	t.Helper()
	h := &documentHost{redirects: redirects, cache: cache}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.away {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", h.cache)
		_ = json.NewEncoder(w).Encode(map[string]any{"client_id": "http://" + req.Host + req.URL.Path, "client_name": "Hosted", "redirect_uris": h.redirects})
	}))
	t.Cleanup(srv.Close)
	h.origin, h.url = srv.URL, srv.URL+"/client.json"
	return h
}

func (h *documentHost) change(away bool, redirects ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.away, h.redirects = away, redirects
}

// A redirect URI that the client or the admin withdraws while a person looks at
// the page gets no code.
func TestRedirectWithdrawnMeanwhile(t *testing.T) {
	const old, other = "https://old.example.com/cb", "https://new.example.com/cb"
	host := newDocumentHost(t, "no-store", old)
	r := newRig(t, func(c *config.Config) {
		c.Auth.PrivateHosts = []string{host.origin}
		c.Auth.Clients.Static = []config.Client{{ID: "agent", Redirects: []string{old}}}
	})
	registered := r.newClient(old)
	for name, c := range map[string]struct {
		client   string
		withdraw func(*config.Clients)
	}{
		"document":   {host.url, func(*config.Clients) { host.change(false, other) }},
		"static":     {"agent", func(c *config.Clients) { c.Static = []config.Client{{ID: "agent", Redirects: []string{other}}} }},
		"registered": {registered, func(c *config.Clients) { c.RedirectHosts = []string{"new.example.com"} }},
	} {
		where := url.Values{"redirect_uri": {old}}
		if to, err := r.Decide(t.Context(), r.waiting(c.client, where), alice, anyServer, true); err != nil || !strings.HasPrefix(to, old+"?code=") {
			t.Errorf("%s: before: %s %v", name, to, err)
		}
		refused, allowed := r.waiting(c.client, where), r.waiting(c.client, where)
		next := *r.cfg
		c.withdraw(&next.Auth.Clients)
		if err := r.SetConfig(&next, r.url); err != nil {
			t.Fatal(err)
		}
		r.add(2 * documentMin)
		if req, err := r.Ask(t.Context(), allowed, anyServer); err == nil {
			t.Errorf("%s: the person is asked about %+v", name, req)
		}
		if to, err := r.Decide(t.Context(), refused, alice, anyServer, false); err == nil {
			t.Errorf("%s: a no went to %s", name, to)
		}
		if to, err := r.Decide(t.Context(), allowed, alice, anyServer, true); err == nil {
			t.Errorf("%s: a code went to %s", name, to)
		}
		if err := r.SetConfig(r.cfg, r.url); err != nil {
			t.Fatal(err)
		}
	}
}

// signed makes a token with the portal's own key, so that only its claims can
// be what is refused.
func (r *rig) signed(c accessClaims) string {
	r.t.Helper()
	key, err := r.keys.current(r.t.Context(), r.Server)
	if err != nil {
		r.t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key.private}, (&jose.SignerOptions{}).WithType(tokenType).WithHeader(jose.HeaderKey("kid"), key.ID))
	if err != nil {
		r.t.Fatal(err)
	}
	raw, err := jwt.Signed(signer).Claims(c).Serialize()
	if err != nil {
		r.t.Fatal(err)
	}
	return raw
}

// A token counts for the person, client and audience of its sign-in, and for
// none else, whoever signed it.
func TestTokenFitsItsGrant(t *testing.T) {
	r := newRig(t, nil)
	c, other := r.newClient(loopback), r.newClient(loopback)
	access, _ := r.signIn(c, alice)
	good, err := r.claims(t.Context(), r.state.Load(), access)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*accessClaims){
		"as it is":            func(*accessClaims) {},
		"another person":      func(c *accessClaims) { c.Subject = "https://idp|bob" },
		"another client":      func(c *accessClaims) { c.Client = other },
		"another grant":       func(c *accessClaims) { c.Grant = newGrantID(alice.ID) },
		"another audience":    func(c *accessClaims) { c.Audience = r.url + "/other" },
		"the origin as aud":   func(c *accessClaims) { c.Audience = r.url },
		"no audience":         func(c *accessClaims) { c.Audience = "" },
		"another issuer":      func(c *accessClaims) { c.Issuer = "https://elsewhere.example" },
		"expired in this one": func(c *accessClaims) { c.Expires = r.clock().Unix() },
		"nobody":              func(c *accessClaims) { c.Subject, c.Grant = "", "" },
		"no grant":            func(c *accessClaims) { c.Grant = "" },
	} {
		claims := good
		change(&claims)
		if err := r.valid(r.signed(claims)); (err == nil) != (name == "as it is") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What a person allowed counts from the exchange of the code, not before.
func TestGrantBeforeItsCode(t *testing.T) {
	r := newRig(t, nil)
	c := r.newClient(loopback)
	code := r.code(c, alice, nil)
	keys, err := r.store.Keys(t.Context(), grantKey(userPart(alice.ID)+"."))
	if err != nil || len(keys) != 1 {
		t.Fatalf("%v %v", keys, err)
	}
	token := r.signed(accessClaims{Issuer: r.url, Audience: r.url + "/mcp", Subject: alice.ID, Client: c, Scope: ScopeAll, Grant: strings.TrimPrefix(keys[0], "grant:"), Expires: r.clock().Add(time.Hour).Unix()})
	if r.valid(token) == nil {
		t.Error("a token of a sign-in whose code waits is taken")
	}
	if list, err := r.Grants(t.Context(), alice.ID); err != nil || len(list) != 0 {
		t.Errorf("it is listed: %v %v", list, err)
	}
	r.tokens(r.post(PathToken, codeForm(c, code)))
	if err := r.valid(token); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// A metadata document that was read before the admin's rules changed counts
// under those of today, also while its host is away.
func TestKeptDocumentUnderTodaysRules(t *testing.T) {
	const hosted = "https://app.example.com/cb"
	host := newDocumentHost(t, "max-age=86400", hosted)
	r := newRig(t, func(c *config.Config) { c.Auth.PrivateHosts = []string{host.origin} })
	form := codeForm(host.url, r.code(host.url, alice, url.Values{"redirect_uri": {hosted}}))
	form.Set("redirect_uri", hosted)
	_, refresh := r.tokens(r.post(PathToken, form))
	next := *r.cfg
	next.Auth.Clients.RedirectHosts = []string{"other.example.com"}
	if err := r.SetConfig(&next, r.url); err != nil {
		t.Fatal(err)
	}
	if a := r.refreshed(host.url, refresh); a.status != 400 || a.json["error"] != "invalid_client" || !strings.Contains(a.body, "auth.clients.redirect_hosts") {
		t.Errorf("the document breaks the rules of today: %d %s", a.status, a.body)
	}
	host.change(true)
	if a := r.refreshed(host.url, refresh); a.status != 503 || a.json["access_token"] != nil {
		t.Errorf("and its host is away: %d %s", a.status, a.body)
	}
	if err := r.SetConfig(r.cfg, r.url); err != nil {
		t.Fatal(err)
	}
	r.tokens(r.refreshed(host.url, refresh)) // the rules of before: it is kept still
}

// A client proves itself in one way (RFC 6749 section 2.3), even if both hold.
func TestTwoProofsAtOnce(t *testing.T) {
	r := newRig(t, func(c *config.Config) {
		c.Auth.Clients.Static = []config.Client{{ID: "app", SecretHash: hashed("secret"), Redirects: []string{loopback}}}
	})
	code := r.code("app", alice, nil)
	for _, second := range []string{"secret", "other"} {
		form := codeForm("app", code)
		form.Set("client_secret", second)
		if a := r.post(PathToken, form, "app", "secret"); a.status != 400 || a.json["error"] != "invalid_request" {
			t.Errorf("header and form %q: %d %s", second, a.status, a.body)
		}
	}
	form := codeForm("app", code)
	form.Set("client_secret", "secret")
	r.tokens(r.post(PathToken, form)) // the code was not used up
}

// The token that a machine gets ends with its service token at the latest.
func TestMachineTokenEndsWithTheServiceToken(t *testing.T) {
	r := newRig(t, func(c *config.Config) { c.Auth.Tokens.Access = 2 * time.Hour })
	a := r.post(PathToken, url.Values{"grant_type": {"client_credentials"}}, "ci", "mcpp_st_ci_secret") // holds for an hour
	token, _ := a.json["access_token"].(string)
	if a.status != 200 || a.json["expires_in"] != 3600.0 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	r.add(time.Hour - time.Second)
	if err := r.valid(token); err != nil {
		t.Errorf("a second before: %v", err)
	}
	r.add(time.Second)
	if r.valid(token) == nil {
		t.Error("it outlives the service token")
	}
}
