package logins_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/auth/vault"
	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/internal/testlog"
	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/upstreams/logins"
	"github.com/mcp-portal/mcp-portal/upstreams/logins/logintest"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// rig is Logins over a store of its own, and what it logged.
type rig struct {
	*logins.Logins
	t     *testing.T
	store store.Store
	vault *vault.Vault
	log   *testlog.Buffer
	now   atomic.Int64 // added to the time, in seconds
}

// portalConfig is a portal of development with one server.
func portalConfig(serverURL string, auth config.ServerAuth) *config.Config {
	if auth.Type == "" {
		auth.Type = config.AuthOAuth
	}
	if auth.Resource == "" {
		auth.Resource = "auto"
	}
	c := config.Defaults()
	c.Name, c.URL, c.Auth = "Test portal", "http://127.0.0.1:1", config.Auth{Mode: "none"}
	c.Servers = map[string]config.Server{"s": {ID: "s", URL: serverURL, Auth: auth}}
	return c
}

func open(t *testing.T, cfg *config.Config) *rig {
	t.Helper()
	r := &rig{t: t, log: &testlog.Buffer{}}
	log := slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	if r.store, err = store.Open(t.Context(), config.Store{File: filepath.Join(t.TempDir(), "s.db")}, "", log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.store.Close() })
	if r.vault, err = vault.New(vault.Options{Store: r.store}); err != nil {
		t.Fatal(err)
	}
	r.Logins, err = logins.New(t.Context(), logins.Options{Config: cfg, Store: r.store, Vault: r.vault, Log: log,
		Now: func() time.Time { return time.Now().Add(time.Duration(r.now.Load()) * time.Second) }})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var ann = logins.Person{User: "ann", Name: "Ann", Session: "session-of-ann"}

// visit follows an authorization request to the answer that the browser brings
// back.
func visit(t *testing.T, address string) url.Values {
	t.Helper()
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := c.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	back, err := resp.Location()
	if err != nil {
		t.Fatalf("no way back: HTTP %d", resp.StatusCode)
	}
	return back.Query()
}

func (r *rig) signIn(p logins.Person) error {
	r.t.Helper()
	to, err := r.Begin(r.t.Context(), p, logins.Request{Server: "s"})
	if err != nil {
		return err
	}
	_, err = r.Finish(r.t.Context(), p, visit(r.t, to))
	return err
}

func behind(t *testing.T) *logintest.Rig {
	return logintest.New(t, upstreamtest.Options{Era: upstreamtest.Modern})
}

var personal = config.ServerAuth{Type: config.AuthOAuth, OnBehalf: true}

func TestWhatServersAreToldAndAsked(t *testing.T) {
	s := behind(t)
	r := open(t, portalConfig(s.URL, personal))
	to, err := r.Begin(t.Context(), ann, logins.Request{Server: "s"})
	if err != nil {
		t.Fatal(err)
	}
	u, _ := url.Parse(to)
	q := u.Query()
	for k, want := range map[string]string{"response_type": "code", "code_challenge_method": "S256", "resource": s.URL, "scope": "use", "redirect_uri": "http://127.0.0.1:1/servers-callback"} {
		if q.Get(k) != want {
			t.Errorf("%s is %q, want %q", k, q.Get(k), want)
		}
	}
	if _, err := r.Finish(t.Context(), ann, visit(t, to)); err != nil {
		t.Fatal(err)
	}
	f := s.Forms()[0]
	if f.Get("resource") != s.URL || f.Get("code_verifier") == "" || f.Get("redirect_uri") != q.Get("redirect_uri") {
		t.Errorf("the token request was %v", f)
	}
	c, err := r.Current(t.Context(), "s", "ann")
	if err != nil || !strings.HasPrefix(c.Token, "at-") || c.Login == "" {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := r.Current(t.Context(), "s", "bob"); err == nil {
		t.Error("another user has the login, too")
	}
	raw, _ := r.store.Keys(t.Context(), "")
	for _, k := range raw {
		v, _, _ := r.store.Get(t.Context(), k)
		if strings.Contains(string(v), c.Token) || strings.Contains(k, "ann") {
			t.Errorf("the store shows a token or a name under %s", k)
		}
	}
	// A registration is used again, and belongs to issuer and redirect URI.
	if err := r.signIn(ann); err != nil {
		t.Fatal(err)
	}
	if n := s.Count("register"); n != 1 {
		t.Errorf("registered %d times", n)
	}
	moved := portalConfig(s.URL, personal)
	moved.URL = "http://127.0.0.1:2"
	r.SetConfig(moved)
	if err := r.signIn(ann); err != nil || s.Count("register") != 2 {
		t.Errorf("after the portal has moved: %v, registered %d times", err, s.Count("register"))
	}
}

// Each attack of the table ends without a login. Nothing of it is an attack
// without the check: the first row signs in.
func TestAttacksOnTheWayBack(t *testing.T) {
	for name, c := range map[string]struct {
		person logins.Person // who brings the answer
		change func(q url.Values)
		ok     bool
	}{
		"none":                     {ann, func(url.Values) {}, true},
		"another user's browser":   {logins.Person{User: "bob", Session: "session-of-ann"}, func(url.Values) {}, false},
		"another browser":          {logins.Person{User: "ann", Session: "session-of-mallory"}, func(url.Values) {}, false},
		"state of nobody":          {ann, func(q url.Values) { q.Set("state", strings.Repeat("A", 52)) }, false},
		"no state":                 {ann, func(q url.Values) { q.Del("state") }, false},
		"two states":               {ann, func(q url.Values) { q.Add("state", "x") }, false},
		"another issuer (mix-up)":  {ann, func(q url.Values) { q.Set("iss", "https://evil.example") }, false},
		"issuer left out (mix-up)": {ann, func(q url.Values) { q.Del("iss") }, false},
		"two codes":                {ann, func(q url.Values) { q.Add("code", "x") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := behind(t)
			r := open(t, portalConfig(s.URL, personal))
			to, err := r.Begin(t.Context(), ann, logins.Request{Server: "s"})
			if err != nil {
				t.Fatal(err)
			}
			q := visit(t, to)
			c.change(q)
			_, err = r.Finish(t.Context(), c.person, q)
			if (err == nil) != c.ok {
				t.Errorf("got %v", err)
			}
			if !c.ok && s.Count("token authorization_code") != 0 {
				t.Error("the code was sent")
			}
			for _, user := range []string{"ann", "bob"} {
				if _, err := r.Current(t.Context(), "s", user); (err == nil) != (c.ok && user == "ann") {
					t.Errorf("login of %s: %v", user, err)
				}
			}
			if c.ok {
				if _, err := r.Finish(t.Context(), ann, q); err == nil || s.Count("token authorization_code") != 1 {
					t.Errorf("the same answer was taken twice: %v, %d token requests", err, s.Count("token authorization_code"))
				}
			}
		})
	}
}

// Documents that lead astray are refused before a browser is sent anywhere.
func TestHostileMetadata(t *testing.T) {
	for name, c := range map[string]struct {
		doc, key string
		value    any
	}{
		"another issuer":           {"metadata", "issuer", "https://evil.example"},
		"javascript:":              {"metadata", "authorization_endpoint", "javascript:alert(1)"},
		"data:":                    {"metadata", "authorization_endpoint", "data:text/html,x"},
		"plain http":               {"metadata", "authorization_endpoint", "http://as.example/authorize"},
		"user in the URL":          {"metadata", "authorization_endpoint", "https://u:p@as.example/authorize"},
		"file:":                    {"metadata", "token_endpoint", "file:///etc/passwd"},
		"no token endpoint":        {"metadata", "token_endpoint", nil},
		"no PKCE":                  {"metadata", "code_challenge_methods_supported", nil},
		"plain PKCE":               {"metadata", "code_challenge_methods_supported", []string{"plain"}},
		"another resource":         {"resource", "resource", "https://other.example/mcp"},
		"resource below the URL":   {"resource", "resource", "BELOW"},
		"issuer of another scheme": {"resource", "authorization_servers", []string{"ftp://as.example"}},
		"javascript: registration": {"metadata", "registration_endpoint", "javascript:alert(1)"},
	} {
		t.Run(name, func(t *testing.T) {
			s := behind(t)
			s.Edit(c.doc, func(m map[string]any) {
				if m[c.key] = c.value; c.value == nil {
					delete(m, c.key)
				}
				if c.value == "BELOW" {
					m[c.key] = s.URL + "/below"
				}
			})
			r := open(t, portalConfig(s.URL, personal))
			if to, err := r.Begin(t.Context(), ann, logins.Request{Server: "s"}); err == nil {
				t.Errorf("the browser was to be sent to %s", to)
			}
			s.Edit(c.doc, nil)
			r.SetConfig(portalConfig(s.URL, personal))
			if _, err := r.Begin(t.Context(), ann, logins.Request{Server: "s"}); err != nil {
				t.Errorf("without the attack: %v", err)
			}
		})
	}
}

// Where a challenge leads is looked at before anything is asked for there.
func TestHostileChallenge(t *testing.T) {
	for _, to := range []string{"http://as.example/m", "javascript:alert(1)", "file:///etc/passwd", "https://u:p@as.example/m", "https:as.example", "ftp://127.0.0.1/m"} {
		evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+to+`"`)
			w.WriteHeader(401)
		}))
		defer evil.Close()
		r := open(t, portalConfig(evil.URL, personal))
		if _, err := r.Begin(t.Context(), ann, logins.Request{Server: "s"}); err == nil || !strings.Contains(err.Error(), "the resource_metadata of its challenge") {
			t.Errorf("%s: %v", to, err)
		}
	}
}

// A server of the Internet must not make the portal reach into its network.
func TestServersCannotSendThePortalAround(t *testing.T) {
	hits := make(chan string, 10)
	inside := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hits <- r.URL.Path }))
	defer inside.Close()
	for _, doc := range []string{"challenge", "issuer", "registration", "token"} {
		t.Run(doc, func(t *testing.T) {
			s := behind(t)
			switch doc {
			case "issuer":
				s.Edit("resource", func(m map[string]any) { m["authorization_servers"] = []string{inside.URL} })
			case "registration":
				s.Edit("metadata", func(m map[string]any) { m["registration_endpoint"] = inside.URL + "/register" })
			case "token":
				s.Edit("metadata", func(m map[string]any) { m["token_endpoint"] = inside.URL + "/token" })
			}
			cfg := portalConfig(s.URL, personal)
			if doc == "challenge" {
				evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+inside.URL+`/meta"`)
					w.WriteHeader(401)
				}))
				defer evil.Close()
				cfg.Servers["s"] = config.Server{ID: "s", URL: evil.URL, Auth: personal}
			}
			// A portal that is no developer's, which knows the server and its
			// authorization server only.
			cfg.Auth = config.Auth{Mode: "oidc", Issuer: "https://idp.example", PrivateHosts: []string{s.Issuer}}
			r := open(t, cfg)
			to, err := r.Begin(t.Context(), ann, logins.Request{Server: "s"})
			if doc == "token" && err == nil {
				_, err = r.Finish(t.Context(), ann, visit(t, to))
			}
			if err == nil || !strings.Contains(err.Error(), "does not contact") {
				t.Errorf("got %v", err)
			}
			select {
			case path := <-hits:
				t.Errorf("the portal asked for %s inside its network", path)
			default:
			}
		})
	}
}

// A login given for one server is not sent to another under the same id.
func TestLoginStaysWithItsServer(t *testing.T) {
	s, other := behind(t), behind(t)
	r := open(t, portalConfig(s.URL, personal))
	if err := r.signIn(ann); err != nil {
		t.Fatal(err)
	}
	r.SetConfig(portalConfig(other.URL, personal))
	if c, err := r.Current(t.Context(), "s", "ann"); err == nil {
		t.Errorf("the new server would get the token of the old one: %v", c.Login)
	}
	r.SetConfig(portalConfig(s.URL, personal))
	if _, err := r.Current(t.Context(), "s", "ann"); err != nil {
		t.Errorf("back at the old one: %v", err)
	}
}

// A record of one user, copied over another's, cannot be read.
func TestSealedLoginCannotBeMoved(t *testing.T) {
	s := behind(t)
	r := open(t, portalConfig(s.URL, personal))
	bob := logins.Person{User: "bob", Session: "session-of-bob"}
	for _, p := range []logins.Person{ann, bob} {
		if err := r.signIn(p); err != nil {
			t.Fatal(err)
		}
	}
	keys, err := r.store.Keys(t.Context(), "upstream-login:")
	if err != nil || len(keys) != 2 {
		t.Fatalf("%q %v", keys, err)
	}
	v, _, _ := r.store.Get(t.Context(), keys[0])
	if err := r.store.Set(t.Context(), keys[1], v, 0); err != nil {
		t.Fatal(err)
	}
	fresh, err := logins.New(t.Context(), logins.Options{Config: portalConfig(s.URL, personal), Store: r.store, Vault: r.vault})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, user := range []string{"ann", "bob"} {
		if _, err := fresh.Current(t.Context(), "s", user); err == nil {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d of 2 logins can be read after one was copied over the other", n)
	}
}

// B106: only a clear no ends a login. B107: then its user is told what to do.
func TestB106_RefreshThatFailsIsTriedAgain(t *testing.T) {
	s := behind(t)
	r := open(t, portalConfig(s.URL, personal))
	if err := r.signIn(ann); err != nil {
		t.Fatal(err)
	}
	r.now.Store(3600) // expired
	var need *logins.Needed
	for what, status := range map[string]int{"busy": http.StatusTooManyRequests, "failing": http.StatusInternalServerError, "down": http.StatusServiceUnavailable, "cutting the connection": 0} {
		if s.Fail("token", status); status == 0 {
			s.BeforeToken(func(url.Values) { panic(http.ErrAbortHandler) })
		}
		if _, err := r.Current(t.Context(), "s", "ann"); err == nil || asNeeded(err, &need) {
			t.Fatalf("while the authorization server is %s: %v", what, err)
		}
		s.Fail("token", 0)
		s.BeforeToken(nil)
		r.now.Add(10)
		if _, err := r.Current(t.Context(), "s", "ann"); err != nil {
			t.Errorf("when it is no longer %s: %v", what, err)
		}
		r.now.Add(3600) // expired
	}
	s.Withdraw()
	r.now.Add(3600)
	if _, err := r.Current(t.Context(), "s", "ann"); !asNeeded(err, &need) || need.User != "ann" {
		t.Errorf("when it was revoked: %v", err)
	}
}

// Some authorization servers say in words of their own that a refresh token has
// ended. Its user is asked, and the login kept, should it have been another
// thing.
func TestRefusalInOtherWords(t *testing.T) {
	for code, asks := range map[string]bool{"bad_refresh_token": true, "invalid_request": true, "token_expired": true, "temporarily_unavailable": false, "slow_down": false, "server_error": false} {
		s := behind(t)
		r := open(t, portalConfig(s.URL, personal))
		if err := r.signIn(ann); err != nil {
			t.Fatal(err)
		}
		r.now.Store(3600) // expired
		s.Fail("token", 400)
		s.Edit("token error", func(m map[string]any) { m["error"] = code })
		_, err := r.Current(t.Context(), "s", "ann")
		var need *logins.Needed
		if err == nil || asNeeded(err, &need) != asks || !strings.Contains(err.Error(), code) {
			t.Errorf("%s: %v", code, err)
		}
		s.Fail("token", 0)
		r.now.Add(10)
		if _, err := r.Current(t.Context(), "s", "ann"); err != nil {
			t.Errorf("%s, and then it works: %v", code, err)
		}
	}
}

func asNeeded(err error, need **logins.Needed) bool {
	n, ok := err.(*logins.Needed)
	if ok {
		*need = n
	}
	return ok
}

// An authorization server that has forgotten the portal gets it registered
// anew at the next sign-in.
func TestForgottenRegistration(t *testing.T) {
	s := behind(t)
	r := open(t, portalConfig(s.URL, personal))
	if err := r.signIn(ann); err != nil {
		t.Fatal(err)
	}
	s.ForgetClients()
	r.now.Store(3600)
	var need *logins.Needed
	if _, err := r.Current(t.Context(), "s", "ann"); !asNeeded(err, &need) {
		t.Fatalf("refresh of a forgotten client: %v", err)
	}
	if err := r.signIn(ann); err != nil || s.Count("register") != 2 {
		t.Errorf("signing in again: %v, registered %d times", err, s.Count("register"))
	}
}

// Who signs out while a refresh is under way stays signed out, and the new
// tokens are revoked.
func TestSignOutDuringARefresh(t *testing.T) {
	s := behind(t)
	r := open(t, portalConfig(s.URL, personal))
	if err := r.signIn(ann); err != nil {
		t.Fatal(err)
	}
	r.now.Store(3600)
	s.BeforeToken(func(f url.Values) {
		if f.Get("grant_type") == "refresh_token" {
			if err := r.SignOut(context.Background(), "s", "ann"); err != nil {
				t.Error(err)
			}
		}
	})
	var need *logins.Needed
	if _, err := r.Current(t.Context(), "s", "ann"); !asNeeded(err, &need) {
		t.Errorf("the call goes on: %v", err)
	}
	if left := s.Tokens(); len(left) != 0 {
		t.Errorf("%d tokens are still good", len(left))
	}
	if keys, _ := r.store.Keys(t.Context(), "upstream-login:"); len(keys) != 0 {
		t.Errorf("the login is back: %q", keys)
	}
}

// A token that would smuggle a header is not used.
func TestTokenThatSmugglesAHeader(t *testing.T) {
	s := behind(t)
	s.Edit("token", func(m map[string]any) { m["access_token"] = "x\r\nX-Admin: yes" })
	r := open(t, portalConfig(s.URL, personal))
	if err := r.signIn(ann); err == nil || !strings.Contains(err.Error(), "no token that can be used") {
		t.Errorf("got %v", err)
	}
}

// What an authorization server repeats of secrets is not repeated further.
func TestErrorsRepeatNoSecrets(t *testing.T) {
	s := behind(t)
	var code string
	s.BeforeToken(func(f url.Values) { code = f.Get("code") })
	s.Edit("token error", func(m map[string]any) { m["error_description"] = "bad code " + code })
	r := open(t, portalConfig(s.URL, personal))
	to, err := r.Begin(t.Context(), ann, logins.Request{Server: "s"})
	if err != nil {
		t.Fatal(err)
	}
	q := visit(t, to)
	q.Set("code", "canary-code-that-is-unknown")
	_, err = r.Finish(t.Context(), ann, q)
	if err == nil || strings.Contains(err.Error(), "canary") || strings.Contains(r.log.String(), "canary") || !strings.Contains(err.Error(), "redacted") {
		t.Errorf("error %v\nlog %s", err, r.log)
	}
}

// Three ways to the metadata of an issuer with a path, in the prescribed order.
func TestMetadataOrder(t *testing.T) {
	for want := range 3 {
		var asked []string
		var mu sync.Mutex
		as := httptest.NewUnstartedServer(nil)
		issuer := "http://" + as.Listener.Addr().String() + "/tenant"
		as.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			asked = append(asked, r.URL.Path)
			n := len(asked)
			mu.Unlock()
			if n <= want {
				http.NotFound(w, r)
				return
			}
			_, _ = w.Write([]byte(`{"issuer":"` + issuer + `","authorization_endpoint":"` + issuer + `/a","token_endpoint":"` + issuer + `/t","code_challenge_methods_supported":["S256"]}`))
		})
		as.Start()
		defer as.Close()
		s := behind(t)
		r := open(t, portalConfig(s.URL, config.ServerAuth{Type: config.AuthOAuth, OnBehalf: true, Issuer: issuer, ClientID: "given"}))
		to, err := r.Begin(t.Context(), ann, logins.Request{Server: "s"})
		order := []string{"/.well-known/oauth-authorization-server/tenant", "/.well-known/openid-configuration/tenant", "/tenant/.well-known/openid-configuration"}
		if err != nil || !strings.HasPrefix(to, issuer+"/a?") || strings.Join(asked, " ") != strings.Join(order[:want+1], " ") {
			t.Errorf("%d: %v, asked %q", want, err, asked)
		}
	}
}
