package auth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/auth/authserver"
	"github.com/mcp-portal/mcp-portal/auth/authtest"
	"github.com/mcp-portal/mcp-portal/config"
)

const testVerifier = "a-verifier-of-the-test-that-is-long-enough-0"

// serving is a portal that signs clients in, with the page for people reduced
// to its form.
func serving(t *testing.T, change func(*config.Config)) (*portal, *authtest.IdP) {
	t.Helper()
	p, idp := fakePortal(t, false, func(c *config.Config) {
		d := config.Defaults()
		c.Auth.Accept, c.Auth.Tokens, c.Auth.Clients = []string{"portal"}, d.Auth.Tokens, d.Auth.Clients
		if change != nil {
			change(c)
		}
	})
	mux := http.NewServeMux()
	for _, e := range p.Server().Endpoints() {
		mux.Handle(e.Path, e.Handler)
	}
	for _, path := range MetadataPaths() {
		mux.Handle(path, p.Metadata())
	}
	mux.HandleFunc("/auth/backchannel-logout", p.BackChannelLogout)
	mux.HandleFunc("GET "+authserver.PathConfirm, func(w http.ResponseWriter, r *http.Request) {
		_, csrf, err := p.Session(r)
		if err != nil {
			p.ErrorPage(w, r, err)
			return
		}
		if _, err := p.Server().Ask(r.Context(), r.URL.Query().Get("id"), func(string) bool { return true }); err != nil {
			p.ServerErrorPage(w, r, err)
			return
		}
		_, _ = w.Write([]byte(`<input type="hidden" name="csrf" value="` + csrf + `"><input type="hidden" name="id" value="` + r.URL.Query().Get("id") + `">`))
	})
	mux.HandleFunc("POST "+authserver.PathConfirm, func(w http.ResponseWriter, r *http.Request) {
		if err := p.CheckCSRF(r); err != nil {
			p.ErrorPage(w, r, err)
			return
		}
		who, _, err := p.Session(r)
		if err != nil {
			p.ErrorPage(w, r, err)
			return
		}
		to, err := p.Server().Decide(r.Context(), r.PostForm.Get("id"), PersonOf(who), func(string) bool { return true }, r.PostForm.Get("decision") == "allow")
		if err != nil {
			p.ServerErrorPage(w, r, err)
			return
		}
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusSeeOther)
	})
	inner := p.handler()
	p.srv.Config.Handler = p.GuardHost(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	return p, idp
}

func postForm(t *testing.T, u string, form url.Values) (int, map[string]any) {
	t.Helper()
	res, err := http.PostForm(u, form)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var v map[string]any
	_ = json.NewDecoder(res.Body).Decode(&v)
	return res.StatusCode, v
}

// mcpClient is a registered client and its latest tokens.
type mcpClient struct {
	p               *portal
	id              string
	access, refresh string
}

const clientRedirect = "http://127.0.0.1:5/cb"

func newMCPClient(t *testing.T, p *portal) *mcpClient {
	t.Helper()
	res, err := http.Post(p.url("/register"), "application/json", strings.NewReader(`{"client_name":"c","redirect_uris":["`+clientRedirect+`"]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var v struct {
		ID string `json:"client_id"`
	}
	if err := json.NewDecoder(res.Body).Decode(&v); err != nil || v.ID == "" {
		t.Fatalf("registering: %s %v", res.Status, err)
	}
	return &mcpClient{p: p, id: v.ID}
}

func (c *mcpClient) authorizeURL() string {
	sum := sha256.Sum256([]byte(testVerifier))
	return c.p.url("/authorize?") + url.Values{"response_type": {"code"}, "client_id": {c.id}, "redirect_uri": {clientRedirect}, "state": {"s"},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"}}.Encode()
}

func (c *mcpClient) signIn(t *testing.T, b *authtest.Browser) {
	t.Helper()
	back, _ := b.SignIn(c.authorizeURL(), "allow")
	status, v := postForm(t, c.p.url("/token"), url.Values{"grant_type": {"authorization_code"}, "client_id": {c.id}, "code": {back.Query().Get("code")}, "redirect_uri": {clientRedirect}, "code_verifier": {testVerifier}})
	c.keep(t, status, v)
}

func (c *mcpClient) keep(t *testing.T, status int, v map[string]any) {
	t.Helper()
	var ok bool
	if c.access, ok = v["access_token"].(string); status != 200 || !ok {
		t.Fatalf("no tokens: %d %v", status, v)
	}
	c.refresh, _ = v["refresh_token"].(string)
}

func (c *mcpClient) renew(t *testing.T) (int, map[string]any) {
	t.Helper()
	return postForm(t, c.p.url("/token"), url.Values{"grant_type": {"refresh_token"}, "client_id": {c.id}, "refresh_token": {c.refresh}})
}

func (c *mcpClient) who() (*Principal, error) { return c.p.call("Bearer " + c.access) }

// The whole way with the IdP: who it says, for as long as it says so.
func TestClientsSignInAtThePortal(t *testing.T) {
	p, idp := serving(t, nil)
	b := p.browser(t, "alice")
	c := newMCPClient(t, p)
	c.signIn(t, b)
	who, err := c.who()
	if err != nil || who.ID != idp.Issuer+"|alice" || !who.InGroup("eng") || who.Client != c.id || who.Scope != nil || who.Kind != KindUser {
		t.Fatalf("%+v %v", who, err)
	}
	// Confused deputy: a second client of a browser that is signed in gets
	// nothing without a yes of its own.
	other := newMCPClient(t, p)
	page := b.GetUntil(other.authorizeURL(), func(u *url.URL) bool { return strings.HasPrefix(u.String(), clientRedirect) })
	if page.Status != 200 || !page.Form().Has("id") {
		t.Errorf("the second client: %d %s", page.Status, page.URL)
	}
	form := page.Form()
	form.Set("decision", "allow")
	for what, spoil := range map[string]url.Values{"no token": {"csrf": {""}}, "a foreign token": {"csrf": {random()}}} {
		bad := url.Values{"id": form["id"], "decision": {"allow"}, "csrf": spoil["csrf"]}
		if page := b.Post(p.url(authserver.PathConfirm), bad); page.Status != 403 {
			t.Errorf("%s: %d", what, page.Status)
		}
	}
	// Groups of the IdP are read anew with the client's tokens, but not at
	// each turn.
	idp.SetUser(authtest.User{Sub: "alice", Name: "Alice", Groups: []string{"sales"}})
	status, v := c.renew(t)
	c.keep(t, status, v)
	if who, _ := c.who(); idp.Renewals() != 0 || !who.InGroup("eng") {
		t.Errorf("renewed at once: %d, groups %v", idp.Renewals(), who.Groups)
	}
	p.clock.add(personFresh)
	status, v = c.renew(t)
	c.keep(t, status, v)
	if who, err := c.who(); err != nil || idp.Renewals() != 1 || !slices.Equal(who.Groups, []string{"sales"}) {
		t.Errorf("groups now: %+v %v, %d renewals", who, err, idp.Renewals())
	}
	// The IdP is down: sessions live, with the groups it named last, for a day.
	idp.Down()
	p.clock.add(personFresh)
	status, v = c.renew(t)
	c.keep(t, status, v)
	if who, err := c.who(); err != nil || !who.InGroup("sales") {
		t.Errorf("IdP down: %+v %v", who, err)
	}
	p.clock.add(personStale)
	if status, _ = c.renew(t); status != 503 {
		t.Errorf("IdP down for a day: %d", status)
	}
	idp.Up()
	p.clock.add(failureBackoff)
	// Too many groups: nothing is allowed, with the reason.
	idp.EditIDTokens(func(c map[string]any) {
		delete(c, "groups")
		c["_claim_names"] = map[string]any{"groups": "src1"}
		c["_claim_sources"] = map[string]any{"src1": map[string]any{"endpoint": "https://graph.example/groups"}}
	})
	if status, v = c.renew(t); status != 400 || v["error"] != "invalid_grant" {
		t.Errorf("overage: %d %v", status, v)
	}
	idp.EditIDTokens(nil)
	// The IdP ended the sign-in.
	d := newMCPClient(t, p)
	d.signIn(t, p.browser(t, "alice"))
	idp.EndSessions()
	p.clock.add(personFresh)
	if status, v = d.renew(t); status != 400 || v["error"] != "invalid_grant" {
		t.Errorf("ended at the IdP: %d %v", status, v)
	}
	wantError(t, second(d.who()), 401, CodeInvalidToken)
	for _, secret := range []string{c.access, c.refresh, idp.ClientSecret} {
		if strings.Contains(p.store.dump(), secret) || strings.Contains(p.log.String(), secret) {
			t.Errorf("a secret is in the store or the log: %.12s…", secret)
		}
	}
}

func second(_ *Principal, err error) error { return err }

// Without a refresh token of the IdP nobody can say that groups still hold.
func TestWithoutIdPRefreshToken(t *testing.T) {
	p, idp := serving(t, func(c *config.Config) { c.Auth.Scopes = []string{"openid"} })
	c := newMCPClient(t, p)
	c.signIn(t, p.browser(t, "alice"))
	p.clock.add(time.Hour - time.Minute) // session_max_age of the test
	status, v := c.renew(t)
	c.keep(t, status, v)
	p.clock.add(time.Minute)
	if status, v := c.renew(t); status != 400 || v["error"] != "invalid_grant" || idp.Renewals() != 0 {
		t.Errorf("%d %v", status, v)
	}
}

// Signing out ends everything, here and at the IdP, and nothing of others.
func TestSignOutEndsAll(t *testing.T) {
	p, idp := serving(t, nil)
	var ended []string
	var broken error
	p.OnSignOut(func(_ context.Context, user string) error { ended = append(ended, user); return broken })
	b := p.browser(t, "alice")
	c := newMCPClient(t, p)
	c.signIn(t, b)
	idp.SetUser(authtest.User{Sub: "bob", Name: "Bob"})
	bob := newMCPClient(t, p)
	bob.signIn(t, p.browser(t, "bob"))
	csrf := csrfOf(t, b.Get(p.url("/home")))
	atIdP := func(u *url.URL) bool { return strings.HasPrefix(u.String(), idp.Issuer) }
	broken = errors.New("store away")
	if page := b.Post(p.url("/auth/logout"), url.Values{"csrf": {csrf}}); page.Status != 500 || b.Get(p.url("/home")).Status != 200 {
		t.Errorf("a part failed: %d", page.Status)
	}
	broken = nil
	req, _ := http.NewRequest("POST", p.url("/auth/logout"), strings.NewReader(url.Values{"csrf": {csrf}}.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := b.HTTP.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	to, err := url.Parse(res.Header.Get("Location"))
	if err != nil || !atIdP(to) || to.Path != "/logout" || to.Query().Get("id_token_hint") == "" || to.Query().Get("client_id") != idp.ClientID {
		t.Errorf("it ends at %s", res.Header.Get("Location"))
	}
	wantError(t, second(c.who()), 401, CodeInvalidToken)
	if _, err := bob.who(); err != nil {
		t.Errorf("bob: %v", err)
	}
	if !slices.Equal(ended, []string{idp.Issuer + "|alice", idp.Issuer + "|alice"}) {
		t.Errorf("the hook was told %v", ended)
	}
	if _, err := p.SubjectToken(t.Context(), idp.Issuer+"|alice", "id_token"); err == nil {
		t.Error("a token of the IdP is left")
	}
}

// The IdP's tokens are kept for exchange, and renewed once for all who ask.
func TestSubjectToken(t *testing.T) {
	p, idp := serving(t, nil)
	if _, err := p.SubjectToken(t.Context(), idp.Issuer+"|alice", "access_token"); err == nil || !strings.Contains(err.Error(), "/auth/login") {
		t.Errorf("before sign-in: %v", err)
	}
	p.browser(t, "alice").Get(p.url("/auth/login?return_to=/home"))
	one, err := p.SubjectToken(t.Context(), idp.Issuer+"|alice", "access_token")
	if err != nil || strings.Contains(p.store.dump(), one) {
		t.Fatalf("%q %v", one, err)
	}
	if again, err := p.SubjectToken(t.Context(), idp.Issuer+"|alice", "access_token"); err != nil || again != one {
		t.Errorf("%q %v", again, err)
	}
	p.clock.add(5 * time.Minute)
	results := make(chan string, 10)
	for range 10 {
		go func() {
			tok, err := p.SubjectToken(context.Background(), idp.Issuer+"|alice", "access_token")
			if err != nil {
				t.Error(err)
			}
			results <- tok
		}()
	}
	first := <-results
	for range 9 {
		if got := <-results; got != first || got == one {
			t.Errorf("%q, %q", got, first)
		}
	}
	if idp.Renewals() != 1 {
		t.Errorf("%d renewals", idp.Renewals())
	}
	if tok, err := p.SubjectToken(t.Context(), idp.Issuer+"|alice", "id_token"); err != nil || strings.Count(tok, ".") != 2 {
		t.Errorf("%q %v", tok, err)
	}
}

// B109, R2, R3, R4, R8, 4.2: what a client without a good token reads.
func TestPortalChallenge(t *testing.T) {
	p, _ := serving(t, nil)
	for _, method := range []string{"POST", "GET", "DELETE"} {
		for what, header := range map[string]string{"none": "", "garbage": "Bearer x", "a JWT": "Bearer a.b.c", "service": "Bearer mcpp_st_x_y"} {
			r := httptest.NewRequest(method, p.srv.URL+"/mcp?optimize_context=search_and_execute&x=1", nil)
			if header != "" {
				r.Header.Set("Authorization", header)
			}
			_, err := p.Authenticate(r)
			w := httptest.NewRecorder()
			p.Challenge(w, r, err)
			h := w.Header().Get("WWW-Authenticate")
			if w.Code != 401 || !strings.Contains(h, `resource_metadata="`+p.srv.URL+`/.well-known/oauth-protected-resource/mcp?optimize_context=search_and_execute"`) || !strings.Contains(h, `scope="mcp"`) || strings.Contains(h, "offline_access") || (header != "") != strings.Contains(h, `error="invalid_token"`) {
				t.Errorf("%s, %s: %d %s", method, what, w.Code, h)
			}
		}
	}
	for path, want := range map[string]string{"/.well-known/oauth-protected-resource": "", "/.well-known/oauth-protected-resource/mcp": "/mcp", "/mcp/.well-known/oauth-protected-resource": "/mcp",
		"/.well-known/oauth-protected-resource/mcp?optimize_context=search_and_execute": "/mcp?optimize_context=search_and_execute", "/.well-known/oauth-protected-resource/mcp?evil=1": "/mcp"} {
		res, err := http.Get(p.url(path))
		if err != nil {
			t.Fatal(err)
		}
		var doc struct {
			Resource string   `json:"resource"`
			Servers  []string `json:"authorization_servers"`
			Scopes   []string `json:"scopes_supported"`
		}
		if err := json.NewDecoder(res.Body).Decode(&doc); err != nil || doc.Resource != p.srv.URL+want || !slices.Equal(doc.Servers, []string{p.srv.URL}) || !slices.Equal(doc.Scopes, []string{"mcp"}) {
			t.Errorf("%s: %+v %v", path, doc, err)
		}
		res.Body.Close()
	}
	e := NeedScope(&Principal{Scope: []string{"dns"}}, "kb")
	w := httptest.NewRecorder()
	p.Challenge(w, httptest.NewRequest("POST", "/mcp", nil), e)
	if h := w.Header().Get("WWW-Authenticate"); w.Code != 403 || !strings.Contains(h, `error="insufficient_scope"`) || !strings.Contains(h, `scope="mcp:dns mcp:kb"`) || !strings.Contains(h, "resource_metadata=") {
		t.Errorf("%d %s", w.Code, h)
	}
}

// A token of the IdP is no token of the portal, and the other way round.
func TestAcceptDecides(t *testing.T) {
	p, idp := serving(t, nil)
	token := idp.Token(map[string]any{"aud": p.srv.URL + "/mcp"})
	wantError(t, second(p.call("Bearer "+token)), 401, CodeInvalidToken)
	both, idp2 := serving(t, func(c *config.Config) { c.Auth.Accept = []string{"portal", "idp"} })
	if _, err := both.call("Bearer " + idp2.Token(map[string]any{"aud": both.srv.URL + "/mcp"})); err != nil {
		t.Errorf("with idp: %v", err)
	}
	c := newMCPClient(t, both)
	c.signIn(t, both.browser(t, "alice"))
	if _, err := c.who(); err != nil {
		t.Errorf("with portal: %v", err)
	}
	next := *both.cfg
	next.Auth.Accept = []string{"idp"}
	if err := both.SetConfig(&next); err != nil {
		t.Fatal(err)
	}
	wantError(t, second(c.who()), 401, CodeInvalidToken)
	// Somebody of another IdP is nobody.
	other := authtest.StartFakeIdP(t)
	moved := *p.cfg
	moved.Auth.Issuer = other.Issuer
	c = newMCPClient(t, p)
	c.signIn(t, p.browser(t, "alice"))
	if err := p.SetConfig(&moved); err != nil {
		t.Fatal(err)
	}
	wantError(t, second(c.who()), 401, CodeInvalidToken)
}

func TestSignInIsLimited(t *testing.T) {
	p, _ := serving(t, nil)
	p.logins = authserver.NewLimiter(time.Minute, 2, p.clock.now)
	b := p.browser(t, "alice")
	for i, want := range []int{303, 303, 429} {
		res, err := b.HTTP.Get(p.url("/auth/login"))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("sign-in %d: %d, want %d", i+1, res.StatusCode, want)
		}
	}
}

// Who is counted is the one who sent the request; a proxy says otherwise only
// if the admin listed it. In a private network, too, anybody could invent
// addresses to go round the limits.
func TestLimitsCountByProxiesOfTheAdmin(t *testing.T) {
	for _, c := range []struct {
		name    string
		proxies []string
		second  int // status of the second request, from another address
	}{{"no proxy listed", nil, 429}, {"another listed", []string{"10.9.0.1"}, 429}, {"listed", []string{"127.0.0.0/8"}, 303}} {
		t.Run(c.name, func(t *testing.T) {
			p, _ := serving(t, func(cfg *config.Config) { cfg.Auth.Proxies = c.proxies })
			p.logins = authserver.NewLimiter(time.Minute, 1, p.clock.now)
			b := p.browser(t, "alice")
			ask := func(path, from string) int {
				req, err := http.NewRequest("GET", p.url(path), nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("X-Forwarded-For", from)
				res, err := b.HTTP.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				return res.StatusCode
			}
			for i, want := range []int{303, c.second} {
				if got := ask("/auth/login", fmt.Sprintf("198.51.100.%d", i)); got != want {
					t.Errorf("sign-in %d: %d, want %d", i+1, got, want)
				}
			}
			// The authorization server's limits go by the same address.
			last := 0
			for i := range 70 { // more than its burst
				last = ask("/authorize", fmt.Sprintf("198.51.100.%d", i))
			}
			if want := map[int]int{303: 400, 429: 429}[c.second]; last != want {
				t.Errorf("authorize: %d, want %d", last, want)
			}
		})
	}
}

// Rotation: the token before works until its time is over.
func TestServiceTokenRotation(t *testing.T) {
	before, oldHash, err := NewServiceToken("ci")
	if err != nil {
		t.Fatal(err)
	}
	after, hash, err := NewServiceToken("ci")
	if err != nil {
		t.Fatal(err)
	}
	p, _ := serving(t, func(c *config.Config) {
		c.Auth.ServiceTokens = []config.ServiceToken{{ID: "ci", Hash: hash, PreviousHash: oldHash, PreviousUntil: time.Now().Add(time.Hour), Groups: []string{"g"}}}
	})
	for _, token := range []string{before, after} {
		if who, err := p.call("Bearer " + token); err != nil || who.ID != "svc:ci" {
			t.Errorf("%+v %v", who, err)
		}
	}
	status, v := postForm(t, p.url("/token"), url.Values{"grant_type": {"client_credentials"}, "client_id": {"ci"}, "client_secret": {after}})
	short, _ := v["access_token"].(string)
	if who, err := p.call("Bearer " + short); status != 200 || err != nil || who.ID != "svc:ci" || !who.InGroup("g") || who.Kind != KindService {
		t.Errorf("exchanged: %d %+v %v", status, who, err)
	}
	p.clock.add(2 * time.Hour)
	wantError(t, second(p.call("Bearer "+before)), 401, CodeInvalidToken)
	if _, err := p.call("Bearer " + after); err != nil {
		t.Error(err)
	}
	_, v = postForm(t, p.url("/token"), url.Values{"grant_type": {"client_credentials"}, "client_id": {"ci"}, "client_secret": {after}})
	short, _ = v["access_token"].(string)
	next := *p.cfg
	next.Auth.ServiceTokens = nil
	if err := p.SetConfig(&next); err != nil {
		t.Fatal(err)
	}
	wantError(t, second(p.call("Bearer "+short)), 401, CodeInvalidToken)
}

// B115, B116: addresses are those of the configuration, whatever a proxy or a
// client says in headers.
func TestAddressesComeFromTheConfiguration(t *testing.T) {
	p, _ := serving(t, nil)
	for _, path := range []string{"/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-authorization-server"} {
		req, err := http.NewRequest("GET", p.url(path), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Forwarded-Host", "evil.example")
		req.Header.Set("X-Forwarded-Proto", "https")
		req.Header.Set("Forwarded", "host=evil.example;proto=https")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body := readAll(t, res)
		res.Body.Close()
		if res.StatusCode != 200 || strings.Contains(body, "evil") || strings.Contains(body, "https://") || !strings.Contains(body, p.srv.URL) {
			t.Errorf("%s: %d %s", path, res.StatusCode, body)
		}
	}
	r := httptest.NewRequest("POST", p.srv.URL+"/mcp", nil)
	r.Header.Set("X-Forwarded-Host", `evil.example", x="`)
	_, err := p.Authenticate(r)
	w := httptest.NewRecorder()
	p.Challenge(w, r, err)
	if h := w.Header().Get("WWW-Authenticate"); strings.Contains(h, "evil") || !strings.Contains(h, p.srv.URL) {
		t.Errorf("challenge: %s", h)
	}
}
