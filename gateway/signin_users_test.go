package gateway_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// An address to sign in belongs to the user whose call gave it, the answer to
// the browser that asked, and machines are not offered such servers at all.
func TestSignInBelongsToOneUser(t *testing.T) {
	r := whoami(t, upstreamtest.Modern)
	r.Account("alice-at-server")
	idp := authtest.StartFakeIdP(t)
	sum := sha256.Sum256([]byte(machine))
	p := start(t, "url: ORIGIN\nauth:\n  mode: oidc\n  issuer: "+idp.Issuer+"\n  client_id: "+idp.ClientID+"\n  client_secret: "+idp.ClientSecret+"\n  accept: [idp]\n  private_hosts: ['"+r.Issuer+"']\n"+
		"  service_tokens:\n    - {id: ci, hash: 'sha256:"+hex.EncodeToString(sum[:])+"'}\n"+onBehalf(r, ", catalog: shared"), nil)
	as := func(user string) map[string]string {
		return map[string]string{"Authorization": "Bearer " + idp.Token(map[string]any{"sub": user, "aud": p.url + "/mcp", "name": user})}
	}
	browser := func(user string) *http.Client {
		idp.SetUser(authtest.User{Sub: user, Name: user})
		b := p.browser()
		if status, body := p.visit(b, http.MethodGet, p.url+"/auth/login?return_to=/servers", nil); status != 200 {
			t.Fatalf("sign-in of %s: %d %.500s", user, status, body)
		}
		return b
	}
	alice, bob := browser("alice"), browser("bob")
	if status, body := p.signIn(alice, p.url+"/connect?server=s"); status != 200 || !strings.Contains(body, "signed in at") {
		t.Fatalf("%d %.1500s", status, body)
	}
	if got := p.client(modern, "", noCaps, as("alice")).call("s_look", `{}`, "", nil); !strings.Contains(got.text(), "look as alice-at-server") {
		t.Fatalf("alice: %s", got.Raw)
	}
	// Bob is not alice: his call does not run with her account.
	got := p.client(modern, "", noCaps, as("bob")).call("s_look", `{}`, "", nil)
	address := connectURL.FindString(got.text())
	if !got.Result.IsError || address == "" {
		t.Fatalf("bob, not signed in: %s", got.Raw)
	}

	// Alice opens the address that bob's call gave.
	if status, body := p.visit(alice, http.MethodGet, address, nil); status != http.StatusForbidden || !strings.Contains(body, "another user") {
		t.Errorf("alice opened bob's address: %d %.500s", status, body)
	}
	_, page := p.visit(alice, http.MethodGet, p.url+"/servers", nil)
	form := url.Values{"handle": {strings.TrimPrefix(address, p.url+"/connect/")}}
	for _, m := range formFields.FindAllStringSubmatch(page, -1) {
		if m[1] == "csrf" {
			form.Set("csrf", m[2])
		}
	}
	if status, _ := p.visit(alice, http.MethodPost, p.url+"/connect", form); status != http.StatusForbidden {
		t.Errorf("alice posted bob's address: %d", status)
	}
	p.auditLines(func(lines []map[string]any) bool {
		for _, l := range lines {
			if l["method"] == "sign-in" && l["status"] == "denied" && strings.HasSuffix(l["user"].(string), "|alice") {
				return true
			}
		}
		return false
	})

	// Bob begins, and alice's browser is led to the answer.
	stop := &http.Client{Jar: bob.Jar, CheckRedirect: func(req *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(req.URL.Path, "/servers-callback") {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	_, page = p.visit(stop, http.MethodGet, address, nil)
	form = url.Values{}
	for _, m := range formFields.FindAllStringSubmatch(page[strings.Index(page, `action="/connect"`):], -1) {
		form.Set(m[1], m[2])
	}
	req, err := http.NewRequest(http.MethodPost, p.url+"/connect", strings.NewReader(form.Encode()))
	p.must(err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", p.url)
	resp, err := stop.Do(req)
	p.must(err)
	resp.Body.Close()
	callback := resp.Header.Get("Location")
	if !strings.Contains(callback, "/servers-callback?") {
		t.Fatalf("no answer: %d %s", resp.StatusCode, callback)
	}
	for who, b := range map[string]*http.Client{"alice": alice, "nobody": p.browser()} {
		if status, _ := p.visit(b, http.MethodGet, callback, nil); status != http.StatusBadRequest {
			t.Errorf("%s brought bob's answer: %d", who, status)
		}
	}
	if got := p.client(modern, "", noCaps, as("bob")).call("s_look", `{}`, "", nil); !got.Result.IsError {
		t.Errorf("bob is signed in by an answer that another brought: %s", got.Raw)
	}

	// Forms need the token of the session; admins' logins need an admin.
	if status, _ := p.visit(bob, http.MethodPost, p.url+"/connect", url.Values{"server": {"s"}}); status != http.StatusForbidden {
		t.Errorf("a form of another page: %d", status)
	}
	if status, _ := p.visit(bob, http.MethodGet, p.url+"/connect?server=s&for=all", nil); status != http.StatusNotFound {
		t.Errorf("a user was offered to sign the portal in: %d", status)
	}

	robot := p.client(modern, "", noCaps, map[string]string{"Authorization": "Bearer " + machine})
	if seen := robot.sees(); seen != "" {
		t.Errorf("a machine sees %s", seen)
	}
	if got := robot.call("s_look", `{}`, "", nil); got.Error == nil {
		t.Errorf("a machine called it: %s", got.Raw)
	}
}
