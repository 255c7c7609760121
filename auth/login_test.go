package auth

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
	"github.com/mcp-portal/mcp-portal/config"
)

func TestSignInAndOut(t *testing.T) {
	for _, https := range []bool{true, false} {
		name, cookie := "http on loopback", "mcp_portal"
		if https {
			name, cookie = "https", "__Host-mcp_portal"
		}
		t.Run(name, func(t *testing.T) {
			p, idp := fakePortal(t, https, nil)
			b := p.browser(t, "alice")
			page := b.Get(p.url("/home?tab=1"))
			if page.Status != 200 || page.URL.RequestURI() != "/home?tab=1" || !strings.Contains(page.Body, "user="+idp.Issuer+"|alice name=Alice Example groups=eng,mcp-users kind=user") {
				t.Fatalf("after sign-in: %d %s %s", page.Status, page.URL, page.Body)
			}
			sid := p.cookies(t, b)[cookie]
			if !isRandom(sid) {
				t.Fatalf("cookies are %v", p.cookies(t, b))
			}
			if dump := p.store.dump(); strings.Contains(dump, sid) || len(p.store.keys("session:")) != 1 || len(p.store.keys("login:")) != 0 {
				t.Errorf("store holds the session id, or too much: %s", dump)
			}
			for _, secret := range []string{sid, csrfOf(t, page), idp.ClientSecret} {
				if strings.Contains(p.log.String(), secret) {
					t.Error("a secret is in the log")
				}
			}
			// Signing out takes the token of this session.
			if out := b.Post(p.url("/auth/logout"), url.Values{}); out.Status != 403 {
				t.Errorf("sign-out without a token: %d", out.Status)
			}
			if out := b.Get(p.url("/auth/logout")); out.Status != 405 {
				t.Errorf("sign-out by GET: %d", out.Status)
			}
			out := b.Post(p.url("/auth/logout"), url.Values{CSRFField: {csrfOf(t, page)}})
			if out.Status != 200 || !strings.Contains(out.Body, "signed out") || len(p.store.keys("session:")) != 0 || p.cookies(t, b)[cookie] != "" {
				t.Errorf("sign-out: %d %s, cookies %v", out.Status, out.Body, p.cookies(t, b))
			}
		})
	}
}

func TestCookieFlags(t *testing.T) {
	for _, https := range []bool{true, false} {
		p, _ := fakePortal(t, https, nil)
		b := p.browser(t, "alice")
		var seen []*http.Cookie
		next := b.HTTP.Transport
		b.HTTP.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
			res, err := next.RoundTrip(r)
			if err == nil {
				seen = append(seen, res.Cookies()...)
			}
			return res, err
		})
		b.Get(p.url("/home"))
		if len(seen) != 2 {
			t.Fatalf("cookies %v, want two", seen)
		}
		for i, age := range []time.Duration{loginMaxAge, time.Hour} {
			c := seen[i]
			if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" || c.Secure != https ||
				strings.HasPrefix(c.Name, "__Host-") != https || c.MaxAge != int(age/time.Second) {
				t.Errorf("https %v: cookie %s", https, c)
			}
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestSignInAsksForCodeFlowWithPKCE(t *testing.T) {
	p, idp := fakePortal(t, true, nil)
	at := p.browser(t, "alice").GetUntil(p.url("/auth/login"), func(u *url.URL) bool { return u.Path == "/authorize" })
	q := at.URL.Query()
	if q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || len(q.Get("code_challenge")) != 43 || !isRandom(q.Get("nonce")) || !isRandom(q.Get("state")) ||
		q.Get("client_id") != idp.ClientID || q.Get("redirect_uri") != p.url("/auth/callback") || q.Get("scope") != "openid profile email offline_access" || q.Has("client_secret") {
		t.Errorf("request to the IdP: %s", at.URL)
	}
	if strings.Contains(p.store.dump(), q.Get("state")) {
		t.Error("the store holds the state itself")
	}
}

func TestReturnToCannotLeaveThePortal(t *testing.T) {
	p, idp := fakePortal(t, true, nil)
	for _, evil := range []string{"//evil.example", `/\evil.example`, "https://evil.example", "/%2Fevil.example", "/\t/evil.example", "/auth/logout"} {
		page := p.browser(t, "alice").Get(p.url("/auth/login?return_to=" + url.QueryEscape(evil)))
		if page.Status != 400 || len(page.Via) != 1 {
			t.Errorf("%q: %d after %v", evil, page.Status, page.Via)
		}
	}
	if idp.Requests() != 0 {
		t.Error("the IdP was asked")
	}
}

// callbackURL begins a sign-in in the browser and stops before the answer of
// the IdP is delivered.
func callbackURL(t *testing.T, p *portal, b *authtest.Browser) string {
	t.Helper()
	at := b.GetUntil(p.url("/auth/login?return_to=/home"), func(u *url.URL) bool { return u.Path == "/auth/callback" })
	if at.URL.Path != "/auth/callback" {
		t.Fatalf("no callback: %s %d", at.URL, at.Status)
	}
	return at.URL.String()
}

// A code of the IdP of before, or of the client of before, is brought to no
// other (mix-up by a change of the configuration), whatever iss says.
func TestIdPChangedMeanwhile(t *testing.T) {
	p, idp := fakePortal(t, true, nil)
	other := authtest.StartFakeIdP(t)
	other.SetClock(p.clock.now)
	for name, c := range map[string]struct {
		change func(*config.Config)
		now    *authtest.IdP
	}{
		"another IdP":    {func(c *config.Config) { c.Auth.Issuer = other.Issuer }, other},
		"another client": {func(c *config.Config) { c.Auth.ClientID = "another" }, idp},
	} {
		b := p.browser(t, "alice")
		back, err := url.Parse(callbackURL(t, p, b))
		if err != nil {
			t.Fatal(err)
		}
		q := back.Query()
		q.Set("iss", c.now.Issuer)
		back.RawQuery = q.Encode()
		next := *p.cfg
		c.change(&next)
		if err := p.SetConfig(&next); err != nil {
			t.Fatal(err)
		}
		before := c.now.Requests()
		if page := b.Get(back.String()); page.Status != 400 || len(p.store.keys("session:")) != 0 || c.now.Requests() != before {
			t.Errorf("%s: %d %s, %d requests to the IdP", name, page.Status, page.Body, c.now.Requests()-before)
		}
		if err := p.SetConfig(p.cfg); err != nil {
			t.Fatal(err)
		}
		if page := b.Get(callbackURL(t, p, b)); page.Status != 200 {
			t.Errorf("%s: signing in anew: %d %s", name, page.Status, page.Body)
		}
		for _, k := range p.store.keys("session:") {
			if err := p.store.Delete(t.Context(), k); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestCallbackAttacks(t *testing.T) {
	p, idp := fakePortal(t, true, nil)
	refused := func(t *testing.T, b *authtest.Browser, target string, status int) *authtest.Page {
		t.Helper()
		before := len(p.store.keys("session:"))
		page := b.Get(target)
		if page.Status != status || len(p.store.keys("session:")) != before {
			t.Errorf("status %d %s, sessions before %d now %v", page.Status, page.Body, before, p.store.keys("session:"))
		}
		if page.Header.Get("X-Frame-Options") != "DENY" || page.Header.Get("Content-Security-Policy") == "" {
			t.Errorf("headers of the page: %v", page.Header)
		}
		return page
	}
	edit := func(target string, change func(url.Values)) string {
		u, err := url.Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		change(q)
		u.RawQuery = q.Encode()
		return u.String()
	}
	t.Run("login CSRF: the attacker's answer in the victim's browser", func(t *testing.T) {
		target := callbackURL(t, p, p.browser(t, "mallory"))
		refused(t, p.browser(t, "alice"), target, 400)
	})
	t.Run("the same with a sign-in of the victim under way", func(t *testing.T) {
		victim := p.browser(t, "alice")
		own := callbackURL(t, p, victim)
		refused(t, victim, callbackURL(t, p, p.browser(t, "mallory")), 400)
		if page := victim.Get(own); page.Status != 200 {
			t.Errorf("the victim's own sign-in: %d %s", page.Status, page.Body)
		}
	})
	t.Run("the attacker's code with the victim's state", func(t *testing.T) {
		code := callbackURL(t, p, p.browser(t, "mallory"))
		victim := p.browser(t, "alice")
		u, err := url.Parse(code)
		if err != nil {
			t.Fatal(err)
		}
		refused(t, victim, edit(callbackURL(t, p, victim), func(q url.Values) { q.Set("code", u.Query().Get("code")) }), 502)
	})
	t.Run("replay", func(t *testing.T) {
		b := p.browser(t, "alice")
		target := callbackURL(t, p, b)
		if page := b.Get(target); page.Status != 200 {
			t.Fatalf("first: %d %s", page.Status, page.Body)
		}
		refused(t, b, target, 400)
	})
	t.Run("too late", func(t *testing.T) {
		b := p.browser(t, "alice")
		target := callbackURL(t, p, b)
		p.clock.add(loginMaxAge)
		refused(t, b, target, 400)
	})
	t.Run("no state", func(t *testing.T) {
		b := p.browser(t, "alice")
		refused(t, b, edit(callbackURL(t, p, b), func(q url.Values) { q.Del("state") }), 400)
	})
	t.Run("invented state", func(t *testing.T) {
		b := p.browser(t, "alice")
		refused(t, b, edit(callbackURL(t, p, b), func(q url.Values) { q.Set("state", random()) }), 400)
	})
	t.Run("state twice", func(t *testing.T) {
		b := p.browser(t, "alice")
		refused(t, b, edit(callbackURL(t, p, b), func(q url.Values) { q.Add("state", random()) }), 400)
	})
	t.Run("answer of another server", func(t *testing.T) {
		b := p.browser(t, "alice")
		refused(t, b, edit(callbackURL(t, p, b), func(q url.Values) { q.Set("iss", "https://evil.example") }), 400)
	})
	t.Run("answer without the issuer that was promised", func(t *testing.T) {
		b := p.browser(t, "alice")
		refused(t, b, edit(callbackURL(t, p, b), func(q url.Values) { q.Del("iss") }), 400)
	})
	t.Run("neither code nor error", func(t *testing.T) {
		b := p.browser(t, "alice")
		refused(t, b, edit(callbackURL(t, p, b), func(q url.Values) { q.Del("code") }), 400)
	})
	t.Run("invented code", func(t *testing.T) {
		b := p.browser(t, "alice")
		page := refused(t, b, edit(callbackURL(t, p, b), func(q url.Values) { q.Set("code", "x") }), 502)
		if !strings.Contains(page.Body, "invalid_grant") {
			t.Errorf("the page does not say what the IdP said: %s", page.Body)
		}
	})
	t.Run("error text without a sign-in under way is not shown", func(t *testing.T) {
		page := refused(t, p.browser(t, "alice"), p.url("/auth/callback?error=x&error_description=call+0123456&state="+random()), 400)
		if strings.Contains(page.Body, "0123456") {
			t.Error("anyone can put text on a page of the portal")
		}
	})
	t.Run("POST", func(t *testing.T) {
		b := p.browser(t, "alice")
		if page := b.Post(callbackURL(t, p, b), nil); page.Status != 405 {
			t.Errorf("status %d", page.Status)
		}
	})
	for name, c := range map[string]struct {
		change func(map[string]any)
		why    string // in the log
	}{
		"foreign nonce":  {func(c map[string]any) { c["nonce"] = "x" }, "nonce"},
		"no nonce":       {func(c map[string]any) { c["nonce"] = nil }, "nonce"},
		"foreign issuer": {func(c map[string]any) { c["iss"] = "https://evil.example" }, "different provider"},
		"foreign client": {func(c map[string]any) { c["aud"] = "other" }, "expected audience"},
		"more audiences": {func(c map[string]any) { c["aud"] = []string{idp.ClientID, "other"} }, "another client"},
		"foreign azp":    {func(c map[string]any) { c["azp"] = "other" }, "another client"},
		"expired":        {func(c map[string]any) { c["exp"] = p.clock.now().Add(-time.Hour).Unix() }, "has expired"},
		"not yet valid":  {func(c map[string]any) { c["nbf"] = p.clock.now().Add(time.Hour).Unix() }, "not valid yet"},
		"no subject":     {func(c map[string]any) { c["sub"] = nil }, "no subject"},
	} {
		t.Run("ID token: "+name, func(t *testing.T) {
			idp.EditIDTokens(c.change)
			defer idp.EditIDTokens(nil)
			b := p.browser(t, "alice")
			logged := len(p.log.String())
			refused(t, b, callbackURL(t, p, b), 502)
			if line := p.log.String()[logged:]; !strings.Contains(line, c.why) {
				t.Errorf("refused for another reason than %q: %s", c.why, line)
			}
		})
	}
	t.Run("ID token with more audiences and the right azp", func(t *testing.T) {
		idp.EditIDTokens(func(c map[string]any) { c["aud"], c["azp"] = []string{idp.ClientID, "other"}, idp.ClientID })
		defer idp.EditIDTokens(nil)
		if page := p.browser(t, "alice").Get(p.url("/home")); page.Status != 200 {
			t.Errorf("status %d %s", page.Status, page.Body)
		}
	})
}

func TestTwoTabsSignInAtOnce(t *testing.T) {
	p, _ := fakePortal(t, true, nil)
	b := p.browser(t, "alice")
	one, two := callbackURL(t, p, b), callbackURL(t, p, b)
	for _, target := range []string{two, one} {
		if page := b.Get(target); page.Status != 200 {
			t.Errorf("status %d %s", page.Status, page.Body)
		}
	}
	if n := len(p.store.keys("session:")); n != 1 {
		t.Errorf("%d sessions, want only the last", n)
	}
}

func TestSessionFixation(t *testing.T) {
	p, _ := fakePortal(t, true, nil)
	// The attacker's own valid session id is planted in the victim's browser.
	attacker := p.browser(t, "mallory")
	attacker.Get(p.url("/home"))
	planted := p.cookies(t, attacker)["__Host-"+sessionCookie]
	victim := p.browser(t, "alice")
	u, err := url.Parse(p.srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	victim.HTTP.Jar.SetCookies(u, []*http.Cookie{{Name: "__Host-" + sessionCookie, Value: planted, Path: "/", Secure: true}})
	victim.Get(p.url("/auth/login"))
	got := p.cookies(t, victim)["__Host-"+sessionCookie]
	if got == planted || !isRandom(got) {
		t.Errorf("the session id stayed %q", got)
	}
	if !slices.Equal(p.store.keys("session:"), []string{sessionKey(got)}) {
		t.Errorf("sessions %v, want only the new one", p.store.keys("session:"))
	}
	// An invented id gives nothing.
	req := httptest.NewRequest(http.MethodGet, p.url("/home"), nil)
	req.AddCookie(&http.Cookie{Name: "__Host-" + sessionCookie, Value: random()})
	if _, _, ok := p.Browser(req); ok {
		t.Error("an invented session id is accepted")
	}
}

func TestSessionEnds(t *testing.T) {
	p, _ := fakePortal(t, true, nil)
	in := func(b *authtest.Browser) bool {
		return b.GetUntil(p.url("/home"), func(u *url.URL) bool { return u.Path == "/auth/login" }).Status == 200
	}
	b := p.browser(t, "alice")
	b.Get(p.url("/home"))
	p.clock.add(time.Hour - time.Second)
	if !in(b) {
		t.Error("ended too early")
	}
	p.clock.add(time.Second)
	if in(b) {
		t.Error("lives longer than session_max_age")
	}
	reload := func(change func(*config.Config)) {
		t.Helper()
		cfg := *p.cfg
		change(&cfg)
		if err := p.SetConfig(&cfg); err != nil {
			t.Fatal(err)
		}
	}
	b.Get(p.url("/home"))
	p.clock.add(10 * time.Minute)
	reload(func(c *config.Config) { c.Auth.SessionMaxAge = 5 * time.Minute })
	if in(b) {
		t.Error("a shorter session_max_age does not hold for sessions that exist")
	}
	reload(func(*config.Config) {})
	if !in(b) {
		t.Error("the session is gone though the old setting is back")
	}
	reload(func(c *config.Config) { c.Auth.AllowGroups = []string{"nobody"} })
	if page := b.Get(p.url("/home")); page.Status != 403 || !strings.Contains(page.Body, "none of the groups") {
		t.Errorf("not allowed any more: %d %s", page.Status, page.Body)
	}
	reload(func(c *config.Config) { c.Auth.Issuer = authtest.StartFakeIdP(t).Issuer })
	if in(b) {
		t.Error("a session of the IdP before is accepted")
	}
}

func TestNotAllowedAtSignIn(t *testing.T) {
	p, idp := fakePortal(t, true, func(c *config.Config) { c.Auth.AllowGroups = []string{"mcp-users"} })
	idp.SetUser(authtest.User{Sub: "mallory", Name: "Mallory"})
	page := p.browser(t, "mallory").Get(p.url("/home"))
	if page.Status != 403 || !strings.Contains(page.Body, "groups") || len(p.store.keys("session:")) != 0 {
		t.Errorf("%d %s", page.Status, page.Body)
	}
}

func TestIdPErrorsAreShownPlainly(t *testing.T) {
	p, idp := fakePortal(t, true, nil)
	idp.Refuse("access_denied", "You are not <script>alert(1)</script> assigned")
	page := p.browser(t, "alice").Get(p.url("/home"))
	if page.Status != 403 || !strings.Contains(page.Body, "access_denied") || !strings.Contains(page.Body, "You are not &lt;script&gt;") || strings.Contains(page.Body, "<script") {
		t.Errorf("%d %s", page.Status, page.Body)
	}
	idp.Refuse("", "")
	wrong := *p.cfg
	wrong.Auth.ClientSecret = "wrong-secret-of-the-portal"
	if err := p.SetConfig(&wrong); err != nil {
		t.Fatal(err)
	}
	page = p.browser(t, "alice").Get(p.url("/home"))
	if page.Status != 502 || !strings.Contains(page.Body, "invalid_client") || strings.Contains(page.Body+p.log.String(), "wrong-secret") {
		t.Errorf("%d %s", page.Status, page.Body)
	}
}

// B119: the portal runs while the IdP is down; only new sign-ins wait.
func TestSignInWhileTheIdPIsDown(t *testing.T) {
	p, idp := fakePortal(t, true, nil)
	signedIn := p.browser(t, "alice")
	signedIn.Get(p.url("/home"))
	half := p.browser(t, "alice")
	target := callbackURL(t, p, half)
	idp.Down()
	p.clock.add(loginFresh)
	page := p.browser(t, "alice").Get(p.url("/home"))
	if page.Status != 503 || page.Header.Get("Retry-After") == "" || !strings.Contains(page.Body, "cannot reach the identity provider") {
		t.Errorf("new sign-in: %d %s", page.Status, page.Body)
	}
	if page := signedIn.Get(p.url("/home")); page.Status != 200 {
		t.Errorf("who is signed in: %d %s", page.Status, page.Body)
	}
	if page := half.Get(target); page.Status != 503 {
		t.Errorf("in the middle of a sign-in: %d %s", page.Status, page.Body)
	}
	idp.Up()
	p.clock.add(failureBackoff)
	if page := p.browser(t, "alice").Get(p.url("/home")); page.Status != 200 {
		t.Errorf("after it is up: %d %s", page.Status, page.Body)
	}
}

func TestSignInWhileTheStoreIsDown(t *testing.T) {
	p, _ := fakePortal(t, true, nil)
	b := p.browser(t, "alice")
	b.Get(p.url("/home"))
	half := p.browser(t, "alice")
	target := callbackURL(t, p, half)
	p.store.setDown(true)
	for name, page := range map[string]*authtest.Page{
		"page of who is signed in": b.Get(p.url("/home")), "new sign-in": p.browser(t, "alice").Get(p.url("/auth/login")), "callback": half.Get(target),
	} {
		if page.Status != 503 || !strings.Contains(page.Body, "cannot reach its store") || strings.Contains(page.Body, "10.0.0.7") {
			t.Errorf("%s: %d %s", name, page.Status, page.Body)
		}
	}
	p.store.setDown(false)
	if page := b.Get(p.url("/home")); page.Status != 200 || len(p.cookies(t, b)) == 0 {
		t.Errorf("after it is back: %d %s", page.Status, page.Body)
	}
}

func TestBrowserSignInNotSetUp(t *testing.T) {
	p, _ := fakePortal(t, true, func(c *config.Config) { c.Auth.ClientID, c.Auth.ClientSecret = "", "" })
	page := p.browser(t, "alice").Get(p.url("/home"))
	if page.Status != 501 || !strings.Contains(page.Body, "auth.client_id") || p.Status().Browser {
		t.Errorf("%d %s", page.Status, page.Body)
	}
}

func TestGroupsFromUserInfo(t *testing.T) {
	for _, c := range []struct {
		name, body string
		status     int
		says       string // on the page, or in the log
	}{
		{"of the same person", `{"sub":"alice","name":"Alice U.","groups":["from-userinfo"]}`, 200, "name=Alice U. groups=from-userinfo"},
		{"no groups either", `{"sub":"alice"}`, 200, "groups= "},
		{"of someone else", `{"sub":"mallory","groups":["admins"]}`, 502, "another subject"},
		{"groups left out", `{"sub":"alice","_claim_names":{"groups":"src"}}`, 403, "more groups than"},
		{"unreadable", `<html>secret-body`, 503, "userinfo"},
	} {
		t.Run(c.name, func(t *testing.T) {
			info := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ") {
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(c.body))
			}))
			defer info.Close()
			p, idp := fakePortal(t, true, nil)
			idp.EditDiscovery(func(doc map[string]any) { doc["userinfo_endpoint"] = info.URL })
			idp.EditIDTokens(func(c map[string]any) { c["groups"], c["name"] = nil, nil })
			page := p.browser(t, "alice").Get(p.url("/home"))
			if page.Status != c.status || !strings.Contains(page.Body+p.log.String(), c.says) || strings.Contains(page.Body, "secret-body") {
				t.Errorf("%d %s\n%s", page.Status, page.Body, p.log.String())
			}
		})
	}
}

// What an IdP needs beside the standard: Google gives a refresh token only for
// access_type=offline.
func TestFurtherParametersOfTheSignIn(t *testing.T) {
	p, idp := fakePortal(t, false, func(c *config.Config) {
		c.Auth.LoginParams = map[string]string{"access_type": "offline", "prompt": "consent"}
	})
	for path, prompt := range map[string]string{"/auth/login": "consent", "/auth/login?switch=1": "consent select_account"} {
		at := p.browser(t, "alice").GetUntil(p.url(path), func(u *url.URL) bool { return u.Path == "/authorize" && strings.HasPrefix(u.String(), idp.Issuer) })
		q := at.URL.Query()
		if q.Get("access_type") != "offline" || !slices.Equal(q["prompt"], []string{prompt}) || q.Get("code_challenge_method") != "S256" {
			t.Errorf("%s asks for %v", path, q)
		}
	}
}

func TestPromptForSomebodyElse(t *testing.T) {
	for always, want := range map[string]string{"": "login", "none": "login", "consent": "consent select_account", "login consent": "login consent", "select_account": "select_account"} {
		if got := switchPrompt(always); got != want {
			t.Errorf("%q: %q, want %q", always, got, want)
		}
	}
}
