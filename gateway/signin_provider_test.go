package gateway_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// guarded is an MCP server that takes tokens of a real authorization server for
// itself only, and none of those that were withdrawn.
type guarded struct {
	url string
	mu  sync.Mutex
	old map[string]bool // tokens that count as expired
	now map[string]bool // tokens that were taken
}

func behindProvider(t *testing.T, issuer string) *guarded {
	g := &guarded{old: map[string]bool{}, now: map[string]bool{}}
	v := upstreamtest.New(t, upstreamtest.Options{Era: upstreamtest.Modern, Tools: []json.RawMessage{toolDef("look", readOnly)}, Handle: func(c *upstreamtest.Call) bool {
		if c.Method == "tools/call" {
			c.Text("look as " + c.Header.Get("X-Account"))
			return true
		}
		return false
	}})
	to, err := url.Parse(v.URL)
	if err != nil {
		t.Fatal(err)
	}
	to.Path = ""
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval = -1
	provider, err := oidc.NewProvider(context.Background(), issuer)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/.well-known/oauth-protected-resource") {
			_ = json.NewEncoder(w).Encode(map[string]any{"resource": g.url, "authorization_servers": []string{issuer}, "scopes_supported": []string{"openid", "profile"}})
			return
		}
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		id, err := provider.Verifier(&oidc.Config{ClientID: g.url}).Verify(r.Context(), token)
		g.mu.Lock()
		expired := g.old[token]
		if err == nil && !expired {
			g.now[token] = true
		}
		g.mu.Unlock()
		if err != nil || expired {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		r.Header.Set("X-Account", id.Subject)
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	g.url = s.URL + "/mcp"
	return g
}

// expire makes all tokens taken so far count as expired, and says how many
// there are.
func (g *guarded) expire() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := len(g.now)
	for k := range g.now {
		g.old[k] = true
	}
	clear(g.now)
	return n
}

// With a real authorization server: the portal registers itself, a person signs
// in, and ten calls on two replicas that meet an expired token cause one
// refresh. The provider takes a refresh token once and ends the login at the
// second use, so a second refresh would show.
func TestSignInAtARealProvider(t *testing.T) {
	idp := authtest.StartProvider(t)
	s := behindProvider(t, idp.Issuer)
	yaml := noAuth + "servers:\n  s:\n    url: " + s.url + "\n    trust_annotations: true\n    auth: {type: oauth, on_behalf: true, catalog: shared}\nstore: {redis: '" + redisServer(t) + "'}\n"
	p := start(t, yaml, nil)
	jar, err := cookiejar.New(nil)
	p.must(err)
	person := authtest.NewBrowser(t, "alice")
	person.HTTP.Jar = jar
	page := person.Get(p.url + "/connect?server=s")
	form := url.Values{}
	for _, m := range formFields.FindAllStringSubmatch(page.Body[strings.Index(page.Body, `action="/connect"`):], -1) {
		form.Set(m[1], m[2])
	}
	if page = person.Post(p.url+"/connect", form); page.Status != 200 || !strings.Contains(page.Body, "signed in at") {
		t.Fatalf("%s: %d %.1500s", page.URL, page.Status, page.Body)
	}
	q := start(t, yaml, nil)
	var clients []*client
	for i := range 10 {
		clients = append(clients, []*portal{p, q}[i%2].client(modern, "", noCaps, nil))
		if got := clients[i].call("s_look", `{}`, "", nil); !strings.Contains(got.text(), "look as alice") {
			t.Fatalf("before: %s", got.Raw)
		}
	}
	if n := s.expire(); n != 1 {
		t.Fatalf("%d tokens were in use", n)
	}
	var wg sync.WaitGroup
	for _, c := range clients {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if got := c.call("s_look", `{}`, "", nil); !strings.Contains(got.text(), "look as alice") {
				t.Errorf("a call on the expired token: %s", got.Raw)
			}
		}()
	}
	wg.Wait()
	s.mu.Lock()
	n := len(s.now)
	s.mu.Unlock()
	if n != 1 {
		t.Errorf("%d new tokens for ten calls on two replicas, want 1", n)
	}
}
