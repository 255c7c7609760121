package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
)

var namedMetadata = regexp.MustCompile(`resource_metadata="([^"]*)"`)

// B109: whatever a client sends instead of a good token, on every method and in
// every era, it reads how to sign in, and a page of an allowed origin can
// (B133). B110: what the challenge names is there, for the very address that
// the client used. B115, B116: all of it under the configured address, whatever
// a proxy or a client says in headers.
func TestB109_EveryRefusalSaysHowToSignIn(t *testing.T) {
	const public = "https://portal.example"
	idp := authtest.StartFakeIdP(t)
	p := start(t, "url: "+public+"\norigins: [https://app.example]\nauth:\n  mode: oidc\n  accept: [portal, idp]\n  issuer: "+idp.Issuer+"\n  client_id: x\n  client_secret: s\n", nil)
	send := func(method, address string, header map[string]string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequest(method, p.url+address, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
		p.must(err)
		req.Host = "portal.example"
		for k, v := range map[string]string{"Content-Type": "application/json", "Origin": "https://app.example", "X-Forwarded-Proto": "https", "X-Forwarded-Host": `evil.example", error="x`, "Forwarded": "host=evil.example;proto=http"} {
			req.Header.Set(k, v)
		}
		for k, v := range header {
			req.Header.Set(k, v)
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		p.must(err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		p.must(err)
		return resp, string(body)
	}
	good := map[string]any{"aud": public + "/mcp"}
	with := func(name string, value any) string {
		claims := map[string]any{name: value}
		for k, v := range good {
			if k != name {
				claims[k] = v
			}
		}
		return "Bearer " + idp.Token(claims)
	}
	if resp, body := send("POST", "/mcp", map[string]string{"Authorization": with("sub", "ann")}); resp.StatusCode != 200 {
		t.Fatalf("a good token: %d %s", resp.StatusCode, body)
	}
	now := time.Now()
	bad := map[string]struct{ token, code string }{
		"none":           {"", ""},
		"expired":        {with("exp", now.Add(-time.Hour).Unix()), "invalid_token"},
		"wrong audience": {with("aud", "https://other.example/mcp"), "invalid_token"},
		"wrong issuer":   {with("iss", "https://other.example"), "invalid_token"},
		"no JWT":         {"Bearer opaque", "invalid_token"},
		"service token":  {"Bearer mcpp_st_x_y", "invalid_token"},
	}
	for what, c := range bad {
		for _, method := range []string{"POST", "GET", "DELETE"} {
			for _, address := range []string{"/mcp", "/mcp?optimize_context=search_and_execute"} {
				for _, e := range []map[string]string{{}, {"Mcp-Session-Id": "somebodys"}, {"Mcp-Protocol-Version": string(modern), "Mcp-Method": "tools/list"}} {
					name := fmt.Sprint(what, ", ", method, " ", address, " ", e)
					header := map[string]string{"Authorization": c.token}
					if c.token == "" {
						header = map[string]string{}
					}
					for k, v := range e {
						header[k] = v
					}
					resp, body := send(method, address, header)
					challenge := resp.Header.Get("WWW-Authenticate")
					m := namedMetadata.FindStringSubmatch(challenge)
					if resp.StatusCode != 401 || m == nil || !strings.HasPrefix(m[1], public+"/") || strings.Contains(challenge, "evil") || strings.Contains(challenge, `error="`) != (c.code != "") || !strings.Contains(challenge, c.code) {
						t.Fatalf("%s: %d %q %s", name, resp.StatusCode, challenge, body)
					}
					if got := resp.Header.Get("Access-Control-Expose-Headers"); resp.Header.Get("Access-Control-Allow-Origin") != "https://app.example" || !strings.Contains(got, "WWW-Authenticate") || !strings.Contains(got, "Mcp-Session-Id") || !strings.Contains(got, "MCP-Protocol-Version") {
						t.Fatalf("%s: a page of an allowed origin cannot read it: %v", name, resp.Header)
					}
					meta, body := send("GET", strings.TrimPrefix(m[1], public), nil)
					var doc struct {
						Resource string
						Servers  []string `json:"authorization_servers"`
					}
					if err := json.Unmarshal([]byte(body), &doc); err != nil || meta.StatusCode != 200 || doc.Resource != public+address || len(doc.Servers) == 0 || doc.Servers[0] != public || strings.Contains(body, "evil") || strings.Contains(body, "http://") {
						t.Fatalf("%s: %s is %d %s", name, m[1], meta.StatusCode, body)
					}
				}
			}
		}
	}
	for _, path := range []string{"/.well-known/oauth-authorization-server", "/.well-known/oauth-authorization-server/mcp", "/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"} {
		if resp, body := send("GET", path, nil); resp.StatusCode != 200 || strings.Contains(body, "evil") || strings.Contains(body, "http://") || !strings.Contains(body, `"`+public) {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
}

// B134: what a browser asks before it sends the headers of MCP is granted to
// the configured origins, the headers that mirror a tool's arguments included,
// and refusals of other kinds can be read as well.
func TestB134_PreflightsOfAllHeaders(t *testing.T) {
	idp := authtest.StartFakeIdP(t)
	p := start(t, "url: ORIGIN\norigins: [https://app.example]\nauth:\n  mode: oidc\n  accept: [portal, idp]\n  issuer: "+idp.Issuer+"\n  client_id: x\n  client_secret: s\n", nil)
	ask := func(origin, path string) *http.Response {
		t.Helper()
		req, err := http.NewRequest(http.MethodOptions, p.url+path, nil)
		p.must(err)
		req.Header.Set("Origin", origin)
		req.Header.Set("Access-Control-Request-Method", "POST")
		req.Header.Set("Access-Control-Request-Headers", "authorization,content-type,last-event-id,mcp-method,mcp-name,mcp-param-region,mcp-protocol-version,mcp-session-id,x-other")
		resp, err := http.DefaultClient.Do(req)
		p.must(err)
		resp.Body.Close()
		return resp
	}
	resp := ask("https://app.example", "/mcp?optimize_context=search_and_execute")
	allowed := strings.Split(strings.ReplaceAll(strings.ToLower(resp.Header.Get("Access-Control-Allow-Headers")), " ", ""), ",")
	has := map[string]bool{}
	for _, h := range allowed {
		has[h] = true
	}
	for _, h := range []string{"authorization", "content-type", "last-event-id", "mcp-method", "mcp-name", "mcp-param-region", "mcp-protocol-version", "mcp-session-id"} {
		if !has[h] {
			t.Errorf("%s is not allowed: %q", h, allowed)
		}
	}
	if has["x-other"] || has["*"] || resp.StatusCode != 204 || resp.Header.Get("Access-Control-Allow-Origin") != "https://app.example" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	for _, path := range []string{"/token", "/register", "/revoke", "/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-authorization-server"} {
		if resp := ask("https://app.example", path); resp.StatusCode != 204 || resp.Header.Get("Access-Control-Allow-Origin") == "" {
			t.Errorf("%s: %d %v", path, resp.StatusCode, resp.Header)
		}
	}
	if resp := ask("https://evil.example", "/mcp"); resp.StatusCode != 403 || resp.Header.Get("Access-Control-Allow-Origin") != "" || resp.Header.Get("Access-Control-Allow-Headers") != "" {
		t.Errorf("another origin: %d %v", resp.StatusCode, resp.Header)
	}
	lost, _ := p.post("", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, map[string]string{"Origin": "https://app.example", "Mcp-Session-Id": "gone", "Authorization": "Bearer " + idp.Token(map[string]any{"aud": p.url + "/mcp"})})
	if lost.StatusCode != 404 || lost.Header.Get("Access-Control-Allow-Origin") != "https://app.example" {
		t.Errorf("a lost session: %d %v", lost.StatusCode, lost.Header)
	}
}
