package authserver

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
)

// rawBasic posts with the parts of the header as they are.
func (r *rig) rawBasic(form url.Values, user, pass string) reply {
	r.t.Helper()
	req, err := http.NewRequest("POST", r.url+PathToken, strings.NewReader(form.Encode()))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(user, pass)
	return r.do(req)
}

// The Go SDK encodes the parts of a Basic header as RFC 6749 section 2.3.1 has
// it, the TypeScript SDK sends them as they are.
func TestBasicIsReadBothWays(t *testing.T) {
	for _, secret := range []string{"plain", "a&b +secret/of:the%client", "100%25", "x+y", "%"} {
		r := newRig(t, func(c *config.Config) {
			c.Auth.Clients.Static = []config.Client{{ID: "an app", SecretHash: hashed(secret), Redirects: []string{loopback}}}
		})
		code := r.code("an app", alice, nil)
		form := codeForm("an app", code)
		form.Del("client_id")
		for _, wrong := range []string{"", secret + "x", url.QueryEscape(url.QueryEscape(secret) + "%")} {
			if a := r.rawBasic(form, "an app", wrong); a.status != 401 {
				t.Errorf("secret %q taken for %q: %d %s", wrong, secret, a.status, a.body)
			}
		}
		r.tokens(r.rawBasic(form, "an app", secret))
		form.Set("code", r.code("an app", alice, nil))
		r.tokens(r.rawBasic(form, url.QueryEscape("an app"), url.QueryEscape(secret)))
		form.Set("client_id", "another")
		if a := r.rawBasic(form, "an app", secret); a.status != 400 || a.json["error"] != "invalid_request" {
			t.Errorf("two ids in one request: %d %s", a.status, a.body)
		}
	}
}
