package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// A server may refuse the greeting or the list, not only calls, for want of
// rights: then there is no call that could ask for them. The user is told
// where, and the sign-in there asks for what is missing.
func TestServerThatWantsMoreRightsToBeListed(t *testing.T) {
	for _, era := range []upstreamtest.Era{upstreamtest.Legacy, upstreamtest.Modern} {
		t.Run(era.String(), func(t *testing.T) {
			r := whoami(t, era)
			r.Want("admin")
			p := start(t, noAuth+onBehalf(r, ""), nil)
			b := p.browser()
			if status, body := p.signIn(b, p.url+"/connect?server=s"); status != 200 {
				t.Fatalf("%d %.1000s", status, body)
			}
			c := p.client(modern, "", noCaps, nil)
			if seen := c.sees(); strings.Contains(seen, "s_look") {
				t.Fatalf("it lists without the right: %s", seen)
			}
			told := func() string { return c.call("portal_list_servers", `{}`, "", nil).Raw }
			if got := told(); !strings.Contains(got, "more rights (admin)") || !strings.Contains(got, p.url+"/servers") {
				t.Errorf("the agent is told %s", got)
			}
			if _, page := p.visit(b, http.MethodGet, p.url+"/servers", nil); !strings.Contains(page, "Sign in for more rights") || !strings.Contains(page, "<code>admin</code>") {
				t.Errorf("the page says %.3000s", page)
			}
			if status, body := p.signIn(b, p.url+"/connect?server=s"); status != 200 {
				t.Fatalf("%d %.1000s", status, body)
			}
			if got := c.call("s_look", `{}`, "", nil); !strings.Contains(got.text(), "look as ann") {
				t.Errorf("with the right: %s", got.Raw)
			}
			if got := told(); strings.Contains(got, "more rights") {
				t.Errorf("afterwards the agent is told %s", got)
			}
			if _, page := p.visit(b, http.MethodGet, p.url+"/servers", nil); strings.Contains(page, "more rights") {
				t.Error("the page still wants more rights")
			}
		})
	}
}
