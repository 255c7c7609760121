package gateway_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/logins/logintest"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
	"github.com/mcp-portal/mcp-portal/wire"
)

// whoami is a server whose tool says which account it is called with, and
// whose list of tools names the account.
func whoami(t *testing.T, era upstreamtest.Era) *logintest.Rig {
	return logintest.New(t, upstreamtest.Options{Era: era, Tools: []json.RawMessage{toolDef("look", readOnly), toolDef("kill", destructive)}, Handle: func(c *upstreamtest.Call) bool {
		account := c.Header.Get("X-Account")
		switch c.Method {
		case "tools/call":
			c.Text(c.Name() + " as " + account)
		case "tools/list":
			c.Result(`{"tools":[` + string(toolDef("look", readOnly)) + `,` + string(toolDef("kill", destructive)) + `,` + string(toolDef("of_"+account, readOnly)) + `],"ttlMs":0,"cacheScope":"private"}`)
		default:
			return false
		}
		return true
	}})
}

// onBehalf configures a server where each user signs in.
func onBehalf(r *logintest.Rig, more string) string {
	return "servers:\n  s:\n    url: " + r.URL + "\n    trust_annotations: true\n    auth: {type: oauth, on_behalf: true" + more + "}\n"
}

const noAuth = "auth: {mode: none}\n"

// browser is a person's browser: it keeps cookies and follows redirects.
func (p *portal) browser() *http.Client {
	jar, err := cookiejar.New(nil)
	p.must(err)
	return &http.Client{Jar: jar}
}

var formFields = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)

// signIn opens an address as a person does who then signs in, and returns what
// they see in the end.
func (p *portal) signIn(b *http.Client, address string) (int, string) {
	p.t.Helper()
	status, body := p.visit(b, http.MethodGet, address, nil)
	if status != http.StatusOK || !strings.Contains(body, "Continue to the sign-in") {
		return status, body
	}
	form := url.Values{}
	for _, m := range formFields.FindAllStringSubmatch(body[strings.Index(body, `action="/connect"`):], -1) {
		form.Set(m[1], m[2])
	}
	return p.visit(b, http.MethodPost, p.url+"/connect", form)
}

func (p *portal) visit(b *http.Client, method, address string, form url.Values) (int, string) {
	p.t.Helper()
	req, err := http.NewRequest(method, address, strings.NewReader(form.Encode()))
	p.must(err)
	req.Header.Set("Accept", "text/html")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", p.url)
	}
	resp, err := b.Do(req)
	p.must(err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	p.must(err)
	return resp.StatusCode, string(raw)
}

var connectURL = regexp.MustCompile(`http://[^"\s]*/connect/[A-Z2-7]+`)

const urlCaps = `{"elicitation":{"form":{},"url":{}}}`

// A call that needs a sign-in asks the user and goes on afterwards, in each of
// the ways in which a client can be asked.
func TestSignInInTheMiddleOfACall(t *testing.T) {
	for _, server := range []upstreamtest.Era{upstreamtest.Legacy, upstreamtest.Modern} {
		t.Run("server "+server.String(), func(t *testing.T) {
			r := whoami(t, server)
			p := start(t, noAuth+onBehalf(r, ", catalog: shared"), nil)
			b := p.browser()
			if status, body := p.signIn(b, p.url+"/connect?server=s"); status != 200 || !strings.Contains(body, "signed in") {
				t.Fatalf("signing in: %d %.2000s", status, body)
			}
			if got := p.client(modern, "", noCaps, nil).call("s_look", `{}`, "", nil); !strings.Contains(got.text(), "look as ann") {
				t.Fatalf("signed in: %s", got.Raw)
			}
			r.Account("ann2")

			t.Run("question by URL, 2025", func(t *testing.T) {
				r.Withdraw()
				c := p.client(legacy, "", urlCaps, nil)
				asked := 0
				got := c.call("s_look", `{}`, "", func(q question) {
					asked++
					o, _ := wire.ParseObject(q.Params)
					if q.Method != "elicitation/create" || o.String("mode") != "url" || o.String("elicitationId") == "" {
						t.Errorf("asked %s %s", q.Method, q.Params)
					}
					go func() {
						q.reply(`{"action":"accept"}`) // opened, not yet done
						p.signIn(p.browser(), o.String("url"))
					}()
				})
				if asked != 1 || !strings.Contains(got.text(), "look as ann2") {
					t.Errorf("asked %d times, got %s", asked, got.Raw)
				}
				if !strings.Contains(strings.Join(got.Notes, "\n"), "notifications/elicitation/complete") {
					t.Errorf("the client was not told that the question is done: %q", got.Notes)
				}
			})
			t.Run("input required, 2026", func(t *testing.T) {
				r.Withdraw()
				c := p.client(modern, "", urlCaps, nil)
				got := c.call("s_look", `{}`, "", nil)
				if got.Result.ResultType != "input_required" || len(got.Result.InputRequests) != 1 {
					t.Fatalf("got %s", got.Raw)
				}
				state := `"requestState":` + string(wire.Quote(got.Result.RequestState))
				address := connectURL.FindString(got.Raw)
				done := make(chan struct{})
				go func() { defer close(done); p.signIn(p.browser(), address) }()
				got = c.call("s_look", `{}`, state+`,"inputResponses":{"portal-sign-in":{"action":"accept"}}`, nil)
				<-done
				if !strings.Contains(got.text(), "look as ann2") {
					t.Errorf("got %s", got.Raw)
				}
			})
			t.Run("an approved call keeps its approval", func(t *testing.T) {
				r.Withdraw()
				c := p.client(modern, "", urlCaps, nil)
				got := c.call("s_kill", `{"id":"7"}`, "", nil)
				got = c.call("s_kill", `{"id":"7"}`, got.sayYes(), nil)
				if got.Result.ResultType != "input_required" || connectURL.FindString(got.Raw) == "" {
					t.Fatalf("after the approval: %s", got.Raw)
				}
				p.signIn(p.browser(), connectURL.FindString(got.Raw))
				got = c.call("s_kill", `{"id":"7"}`, `"requestState":`+string(wire.Quote(got.Result.RequestState))+`,"inputResponses":{"portal-sign-in":{"action":"accept"}}`, nil)
				if !strings.Contains(got.text(), "kill as ann2") {
					t.Errorf("got %s", got.Raw)
				}
			})
			t.Run("declined", func(t *testing.T) {
				r.Withdraw()
				got := p.client(legacy, "", urlCaps, nil).call("s_look", `{}`, "", func(q question) { go q.reply(`{"action":"decline"}`) })
				if !got.Result.IsError || !strings.Contains(got.text(), "did not sign in") {
					t.Errorf("got %s", got.Raw)
				}
			})
			t.Run("plain error with the address", func(t *testing.T) {
				for _, e := range []era{legacy, modern} {
					r.Withdraw()
					c := p.client(e, "", formCaps, nil)
					got := c.call("s_look", `{}`, "", nil)
					address := connectURL.FindString(got.text())
					if !got.Result.IsError || address == "" || !strings.Contains(got.text(), "make the same call again") {
						t.Fatalf("got %s", got.Raw)
					}
					if status, body := p.signIn(p.browser(), address); status != 200 || !strings.Contains(body, "Signed in") {
						t.Fatalf("%d %.1000s", status, body)
					}
					if got := c.call("s_look", `{}`, "", nil); !strings.Contains(got.text(), "look as ann2") {
						t.Errorf("after signing in: %s", got.Raw)
					}
				}
			})
			t.Run("code waits", func(t *testing.T) {
				r.Withdraw()
				c := p.client(legacy, twoTools, formCaps, nil)
				got := c.code(`return await codemode.s_look({})`, "", nil)
				run, address := runID.FindString(got.Raw), connectURL.FindString(got.Raw)
				if run == "" || address == "" || !strings.Contains(got.text(), "Paused") {
					t.Fatalf("got %s", got.Raw)
				}
				p.signIn(p.browser(), address)
				if got := c.resume(run, "", nil); !strings.Contains(got.text(), "look as ann2") {
					t.Errorf("resumed: %s", got.Raw)
				}
			})
			t.Run("more rights", func(t *testing.T) {
				r.Want("admin")
				defer r.Want("")
				c := p.client(legacy, "", formCaps, nil)
				got := c.call("s_look", `{}`, "", nil)
				address := connectURL.FindString(got.text())
				if address == "" || !strings.Contains(got.text(), "admin") {
					t.Fatalf("got %s", got.Raw)
				}
				p.signIn(p.browser(), address)
				if got := c.call("s_look", `{}`, "", nil); !strings.Contains(got.text(), "look as ann2") {
					t.Errorf("with the rights: %s", got.Raw)
				}
			})
			t.Run("rights that are not granted are asked for once", func(t *testing.T) {
				r.Want("owner")
				r.Grant("use")
				defer r.Grant("")
				defer r.Want("")
				asked, done := 0, make(chan struct{}, 8)
				got := p.client(legacy, "", urlCaps, nil).call("s_look", `{}`, "", func(q question) {
					asked++
					o, _ := wire.ParseObject(q.Params)
					go func() {
						defer func() { done <- struct{}{} }()
						p.signIn(p.browser(), o.String("url"))
						q.reply(`{"action":"accept"}`)
					}()
				})
				<-done
				if asked != 1 || !got.Result.IsError || !strings.Contains(got.text(), "not granted") || !strings.Contains(got.text(), "owner") {
					t.Errorf("asked %d times, got %s", asked, got.Raw)
				}
			})
			secretsIn(t, p, r)
		})
	}
}

// secretsIn looks for tokens where they must not be.
func secretsIn(t *testing.T, p *portal, r *logintest.Rig) {
	t.Helper()
	trail, err := os.ReadFile(p.audit)
	p.must(err)
	db, err := os.ReadFile(p.dir + "/portal.db")
	p.must(err)
	for _, tok := range r.Tokens() {
		for where, text := range map[string]string{"log": p.log.String(), "audit": string(trail), "store": string(db)} {
			if strings.Contains(text, tok) {
				t.Errorf("a token is in the %s", where)
			}
		}
	}
	if len(r.Tokens()) == 0 {
		t.Error("no token to look for")
	}
}

// Without a login of anybody the server shows itself as what it is, and one
// user's list is nobody else's.
func TestListsOfOneUserAreNobodyElses(t *testing.T) {
	r := whoami(t, upstreamtest.Modern)
	cfg := func(user string) string { return "auth: {mode: none, dev_user: " + user + "}\n" + onBehalf(r, "") }
	p := start(t, cfg("ann"), nil)
	c := p.client(modern, "?optimize_context=search_and_execute", noCaps, nil)
	if got := c.call("portal_query_tools", `{}`, "", nil); !strings.Contains(got.text(), "s (0 tools)") || !strings.Contains(got.text(), "sign-in needed") {
		t.Errorf("before: %s", got.Raw)
	}
	if status, body := p.signIn(p.browser(), p.url+"/connect?server=s"); status != 200 || !strings.Contains(body, "signed in at") {
		t.Fatalf("%d %.2000s", status, body)
	}
	if got := c.call("portal_query_tools", `{"servers":["s"]}`, "", nil); !strings.Contains(got.text(), "s_of_ann") {
		t.Errorf("after signing in: %s", got.Raw)
	}
	if p.registry.Snapshot().Server("s").Tools != nil {
		t.Error("the list of one user is in the snapshot of all")
	}
	if got := p.registry.SnapshotFor("bob").Server("s").Tools; got != nil {
		t.Errorf("another user sees %d tools", len(got))
	}
	// Signing out takes the list along.
	b := p.browser()
	_, body := p.visit(b, http.MethodGet, p.url+"/servers", nil)
	form := url.Values{"server": {"s"}}
	for _, m := range formFields.FindAllStringSubmatch(body, -1) {
		if m[1] == "csrf" {
			form.Set("csrf", m[2])
		}
	}
	if status, body := p.visit(b, http.MethodPost, p.url+"/servers/sign-out", form); status != 200 || !strings.Contains(body, "not signed in") {
		t.Fatalf("signing out: %d %.1000s", status, body)
	}
	if r.Count("revoke") != 2 {
		t.Errorf("%d tokens were revoked, want both", r.Count("revoke"))
	}
	if got := c.call("portal_query_tools", `{}`, "", nil); !strings.Contains(got.text(), "s (0 tools)") {
		t.Errorf("after signing out: %s", got.Raw)
	}
}

// The admin's login serves the list, and its end is loud, while users' own
// logins go on.
func TestAdminLoginThatEndsIsLoud(t *testing.T) {
	r := whoami(t, upstreamtest.Modern)
	r.Account("boss")
	p := start(t, noAuth+onBehalf(r, ""), nil)
	if status, body := p.signIn(p.browser(), p.url+"/connect?server=s&for=all"); status != 200 || !strings.Contains(body, "signed in at") {
		t.Fatalf("%d %.2000s", status, body)
	}
	p.until("the list of the admin is there", func() bool { return len(p.registry.Snapshot().Server("s").Tools) == 3 })
	r.Withdraw() // the admin's
	r.Account("ann")
	if status, body := p.signIn(p.browser(), p.url+"/connect?server=s"); status != 200 {
		t.Fatalf("%d %.2000s", status, body)
	}
	p.manager.Refresh("s")
	p.until("the end of the admin's login is known", func() bool {
		_, body := p.get("/status")
		return strings.Contains(body, `"login_needed"`) && strings.Contains(body, "or each user signs in there")
	})
	if !strings.Contains(p.log.String(), "level=ERROR") {
		t.Error("the log has no error about it")
	}
	if _, body := p.get("/"); !strings.Contains(body, "does not hold any more") {
		t.Error("the home page does not say so to an admin")
	}
	if n := len(p.registry.Snapshot().Server("s").Tools); n != 3 {
		t.Errorf("%d tools are still listed, want all three", n)
	}
	if got := p.client(modern, "", noCaps, nil).call("s_look", `{}`, "", nil); !strings.Contains(got.text(), "look as ann") {
		t.Errorf("the user's own login: %s", got.Raw)
	}
}

// B124: nothing of the client's credentials reaches an upstream, and what is
// sent is the upstream's own token.
func TestB124_NoTokenPassthrough(t *testing.T) {
	r := whoami(t, upstreamtest.Modern)
	p := start(t, noAuth+onBehalf(r, ", catalog: shared"), nil)
	p.signIn(p.browser(), p.url+"/connect?server=s")
	canary := map[string]string{"Authorization": "Bearer canary-of-the-client", "Cookie": "c=canary-of-the-client", "Mcp-Param-Authorization": "canary-of-the-client", "X-Forwarded-Access-Token": "canary-of-the-client"}
	p.client(modern, "", noCaps, canary).call("s_look", `{}`, "", nil)
	n := 0
	for _, h := range r.Headers() {
		for k, vs := range h {
			for _, v := range vs {
				if strings.Contains(v, "canary") {
					t.Errorf("the upstream got %s: %s", k, v)
				}
			}
		}
		if strings.HasPrefix(h.Get("Authorization"), "Bearer at-") {
			n++
		}
	}
	if n == 0 {
		t.Error("the upstream got no token of its own")
	}
}

// B103, B104: however many calls need a token that has expired, it is renewed
// once, on however many replicas.
func TestB103_OneRefreshForAll(t *testing.T) {
	r := whoami(t, upstreamtest.Modern)
	addr := redisServer(t)
	yaml := noAuth + onBehalf(r, ", catalog: shared") + "store: {redis: '" + addr + "'}\n"
	p := start(t, yaml, nil)
	if status, body := p.signIn(p.browser(), p.url+"/connect?server=s"); status != 200 {
		t.Fatalf("%d %.1000s", status, body)
	}
	q := start(t, yaml, nil)
	var clients []*client
	for i := range 10 {
		at := p
		if i%2 == 1 {
			at = q
		}
		clients = append(clients, at.client(modern, "", noCaps, nil))
		if got := clients[i].call("s_look", `{}`, "", nil); !strings.Contains(got.text(), "look as ann") {
			t.Fatalf("before: %s", got.Raw)
		}
	}
	before := r.Count("token refresh_token")
	r.Expire()
	var wg sync.WaitGroup
	for _, c := range clients {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if got := c.call("s_look", `{}`, "", nil); !strings.Contains(got.text(), "look as ann") {
				t.Errorf("a call on the expired token: %s", got.Raw)
			}
		}()
	}
	wg.Wait()
	if n := r.Count("token refresh_token") - before; n != 1 {
		t.Errorf("%d refreshes for ten calls on two replicas, want 1", n)
	}
}

// A server that hears of a renewed token late costs nobody a call, and one that
// never does nobody their login.
func TestServerThatKnowsRenewedTokensLate(t *testing.T) {
	r := whoami(t, upstreamtest.Modern)
	p := start(t, noAuth+onBehalf(r, ", catalog: shared"), nil)
	if status, body := p.signIn(p.browser(), p.url+"/connect?server=s"); status != 200 {
		t.Fatalf("%d %.1000s", status, body)
	}
	c := p.client(modern, "", noCaps, nil)
	if got := c.call("s_look", `{}`, "", nil); !strings.Contains(got.text(), "look as ann") {
		t.Fatalf("before: %s", got.Raw)
	}
	r.Late(2)
	r.Expire()
	if got := c.call("s_look", `{}`, "", nil); !strings.Contains(got.text(), "look as ann") {
		t.Errorf("a server that is late: %s", got.Raw)
	}
	r.Expire() // of a token that was renewed a moment ago, and that the server took
	if got := c.call("s_look", `{}`, "", nil); !strings.Contains(got.text(), "look as ann") {
		t.Errorf("a young token that is no longer good: %s", got.Raw)
	}
	r.Late(1000)
	r.Expire()
	for range 2 {
		if got := c.call("s_look", `{}`, "", nil); !got.Result.IsError || !strings.Contains(got.text(), "The sign-in is kept") {
			t.Errorf("a server that refuses it all along: %s", got.Raw)
		}
	}
	if n := r.Count("token refresh_token"); n != 3 {
		t.Errorf("%d renewals, want 3", n)
	}
	if _, page := p.visit(p.browser(), http.MethodGet, p.url+"/servers", nil); strings.Contains(page, "does not accept the sign-in") {
		t.Error("the login has ended")
	}
}
