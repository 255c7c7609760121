package e2e

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
	"github.com/mcp-portal/mcp-portal/store/storetest"
)

// steered stands at the public address of replicas and leads to the one that
// the test chose.
type steered struct {
	URL string
	to  atomic.Pointer[url.URL]
}

func steer(t *testing.T) *steered {
	t.Helper()
	s := &steered{}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(s.to.Load())
		r.Out.Host = r.In.Host
	}}
	srv := httptest.NewServer(http.HandlerFunc(proxy.ServeHTTP))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	s.URL = srv.URL
	return s
}

func (s *steered) at(t *testing.T, addr string) {
	t.Helper()
	u, err := url.Parse("http://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	s.to.Store(u)
}

// Two portals over one Redis: a sign-in at one is used and refreshed at the
// other, the way back from the IdP may end at the other, what one ends is over
// at the other with the next request, and a key that one made verifies at both.
func TestSignInAcrossReplicas(t *testing.T) {
	redis := storetest.StartRedis(t)
	public := steer(t)
	idp := authtest.StartProvider(t, public.URL+"/auth/callback")
	o := signInOptions{base: public.URL, store: "store: {redis: " + redis.URL() + "}"}
	addrA, addrB := freePort(t), freePort(t)
	var p signInPortal // at the public address, whoever answers there
	for _, addr := range []string{addrB, addrA} {
		public.at(t, addr)
		p = startSignInPortalAt(t, o, addr, idp)
	}
	const calls = `[{"name":"dns_zones_list","arguments":{"per_page":1}}]`

	// Cold, at A.
	admin := authtest.NewBrowser(t, "alice")
	if page := admin.Get(p.base() + "/clients"); page.Status != 200 {
		t.Fatalf("the page of clients at A: %d", page.Status)
	}
	clients := map[string]*tsClient{
		"2025-11-25": startTS(t, identity{}, "oauth1.mjs", p.URL, calls),
		"2026-07-28": startTS(t, identity{}, "oauth2.mjs", p.URL, calls, "auto"),
	}
	tokens := map[string]string{}
	round := func(phase string, signIns int) {
		t.Helper()
		for name, c := range clients {
			r := c.do(t)
			if len(r.Results) != 1 || r.Results[0].IsError || !strings.Contains(r.Results[0].Text, "example") || c.opens != signIns {
				t.Errorf("%s, %s: %+v, asked %d times, want %d", name, phase, r.Results, c.opens, signIns)
			}
			if r.Token == "" {
				t.Fatalf("%s, %s: no token", name, phase)
			}
			tokens[name] = r.Token
		}
	}
	round("cold at A", 1)

	// Used at B, whose keys are those of A; then refreshed there.
	public.at(t, addrB)
	round("used at B", 1)
	before := tokens["2026-07-28"]
	p.expired(t, before)
	round("refreshed at B", 1)
	if tokens["2026-07-28"] == before {
		t.Error("nothing was refreshed at B")
	}

	// The person's session holds at B; what they end at A is over at B at once.
	if page := admin.Get(p.base() + "/clients"); page.Status != 200 || !page.Form().Has("id") {
		t.Errorf("the page of clients at B: %d", page.Status)
	}
	public.at(t, addrA)
	p.disconnectAll(t, admin)
	public.at(t, addrB)
	for name, token := range tokens {
		if resp, _ := post(t, p.URL, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, map[string]string{"Authorization": "Bearer " + token}); resp.StatusCode != 401 {
			t.Errorf("%s: the token ended at A is answered %s at B", name, resp.Status)
		}
	}
	round("signed in anew at B", 2)

	// A sign-in begun at A is answered at B: the request, the way back from
	// the IdP and the decision may all be elsewhere.
	public.at(t, addrA)
	bob := authtest.NewBrowser(t, "bob")
	at := bob.GetUntil(p.base()+"/auth/login?return_to=/clients", func(u *url.URL) bool { return u.Path == "/auth/callback" })
	public.at(t, addrB)
	if page := bob.Get(at.URL.String()); page.Status != 200 || page.URL.Path != "/clients" {
		t.Errorf("a sign-in begun at A ends at B with %d at %s", page.Status, page.URL.Path)
	}
}
