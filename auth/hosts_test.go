package auth

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
	"github.com/mcp-portal/mcp-portal/config"
)

// guarded sends a request over a real connection and gives status and body.
func guarded(t *testing.T, a *Auth, host string, header http.Header, method string) *http.Response {
	t.Helper()
	srv := httptest.NewServer(a.GuardHost(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })))
	defer srv.Close()
	req, err := http.NewRequest(method, srv.URL+"/mcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	for k, v := range header {
		req.Header[k] = v
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

// B022: a proxy on the same host forwards the public Host to a loopback
// listener; that is no reason to accept any name.
func TestGuardHost(t *testing.T) {
	idp := authtest.StartFakeIdP(t)
	proxied := oidcConfig(idp)
	proxied.Hosts = []string{"mcp.internal", "alt.example.com:8443"}
	everywhere := oidcConfig(idp)
	everywhere.Listen = ":8080"
	named := oidcConfig(idp)
	named.Listen = "10.1.2.3:8080"
	dev := devConfig()
	dev6 := devConfig()
	dev6.Listen, dev6.URL = "[::1]:8080", "http://[::1]:8080"
	for _, c := range []struct {
		name string
		cfg  *config.Config
		host string
		ok   bool
	}{
		{"public name", proxied, "portal.example.com", true},
		{"public name and port", proxied, "portal.example.com:443", true},
		{"public name in capitals", proxied, "Portal.Example.COM", true},
		{"configured", proxied, "mcp.internal", true},
		{"configured, any port", proxied, "mcp.internal:9000", true},
		{"configured with port", proxied, "alt.example.com:8443", true},
		{"configured with another port", proxied, "alt.example.com:8444", false},
		{"configured with port, none sent", proxied, "alt.example.com", false},
		{"loopback name", proxied, "localhost:8080", true},
		{"loopback address", proxied, "127.0.0.1:8080", true},
		{"IPv6 loopback", proxied, "[::1]:8080", true},
		{"unknown", proxied, "evil.example", false},
		{"name that only begins alike", proxied, "portal.example.com.evil.example", false},
		{"name that only ends alike", proxied, "xportal.example.com", false},
		{"loopback in a name", proxied, "127.0.0.1.evil.example", false},
		{"localhost in a name", proxied, "localhost.evil.example", false},
		{"other loopback spelling", proxied, "0.0.0.0:8080", false},
		{"all addresses: public name", everywhere, "portal.example.com", true},
		{"all addresses: loopback", everywhere, "localhost:8080", false},
		{"all addresses: own address", everywhere, "10.0.0.1:8080", false},
		{"named listener", named, "10.1.2.3:8080", true},
		{"named listener: loopback", named, "127.0.0.1:8080", false},
		{"development", dev, "localhost:8080", true},
		{"development: unknown", dev, "evil.example:8080", false},
		{"development on IPv6", dev6, "[::1]:8080", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := guarded(t, newRig(t, c.cfg).Auth, c.host, nil, http.MethodPost)
			body := readAll(t, res)
			if c.ok != (res.StatusCode == http.StatusTeapot) || (!c.ok && res.StatusCode != 403) {
				t.Fatalf("status %d: %s", res.StatusCode, body)
			}
			if !c.ok && (!strings.Contains(body, "hosts:") || res.Header.Get("WWW-Authenticate") != "") {
				t.Errorf("the refusal does not name the key: %s", body)
			}
		})
	}
}

func TestGuardOrigin(t *testing.T) {
	idp := authtest.StartFakeIdP(t)
	public := oidcConfig(idp)
	public.Hosts = []string{"alt.example.com"}
	public.Origins = []string{"https://app.example.com", "vscode-webview://panel"}
	dev := devConfig()
	for _, c := range []struct {
		name, host string
		cfg        *config.Config
		origins    []string
		ok         bool
	}{
		{"none", "portal.example.com", public, nil, true},
		{"own", "portal.example.com", public, []string{"https://portal.example.com"}, true},
		{"own with port", "portal.example.com", public, []string{"https://portal.example.com:443"}, true},
		{"own by another name", "alt.example.com", public, []string{"https://alt.example.com"}, true},
		{"other name than asked", "portal.example.com", public, []string{"https://alt.example.com"}, false},
		{"own in clear", "portal.example.com", public, []string{"http://portal.example.com"}, false},
		{"own on another port", "portal.example.com", public, []string{"https://portal.example.com:8443"}, false},
		{"configured", "portal.example.com", public, []string{"https://app.example.com"}, true},
		{"configured, an editor", "portal.example.com", public, []string{"vscode-webview://panel"}, true},
		{"configured, in clear", "portal.example.com", public, []string{"http://app.example.com"}, false},
		{"below configured", "portal.example.com", public, []string{"https://x.app.example.com"}, false},
		{"evil", "portal.example.com", public, []string{"https://evil.example"}, false},
		{"null", "portal.example.com", public, []string{"null"}, false},
		{"empty", "portal.example.com", public, []string{""}, false},
		{"two", "portal.example.com", public, []string{"https://portal.example.com", "https://evil.example"}, false},
		{"joined", "portal.example.com", public, []string{"https://portal.example.com, https://evil.example"}, false},
		{"with user", "portal.example.com", public, []string{"https://portal.example.com@evil.example"}, false},
		{"with path", "portal.example.com", public, []string{"https://portal.example.com/"}, false},
		{"loopback page, public portal", "portal.example.com", public, []string{"http://localhost:6274"}, false},
		{"loopback page, loopback name", "127.0.0.1:8080", public, []string{"http://127.0.0.1:6274"}, false},
		{"own page by loopback name", "127.0.0.1:8080", public, []string{"http://127.0.0.1:8080"}, true},
		{"development: another tool", "localhost:8080", dev, []string{"http://localhost:6274"}, true},
		{"development: evil", "localhost:8080", dev, []string{"https://evil.example"}, false},
		{"development: rebinding", "localhost:8080", dev, []string{"http://localhost.evil.example:8080"}, false},
		{"development: null", "localhost:8080", dev, []string{"null"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := guarded(t, newRig(t, c.cfg).Auth, c.host, http.Header{"Origin": c.origins}, http.MethodPost)
			body := readAll(t, res)
			if c.ok != (res.StatusCode == http.StatusTeapot) || (!c.ok && res.StatusCode != 403) {
				t.Fatalf("status %d: %s", res.StatusCode, body)
			}
			if !c.ok && !strings.Contains(body, "origins:") {
				t.Errorf("the refusal does not name the key: %s", body)
			}
		})
	}
}

// B133, B134: a browser client may send the headers it needs and sees how to
// sign in, but only from a configured origin, and never with cookies.
func TestCORSOfConfiguredOrigins(t *testing.T) {
	idp := authtest.StartFakeIdP(t)
	cfg := oidcConfig(idp)
	cfg.Origins = []string{"https://app.example.com"}
	r := newRig(t, cfg)
	ask := http.Header{"Origin": {"https://app.example.com"}, "Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": {"authorization,mcp-protocol-version"}}
	pre := guarded(t, r.Auth, "portal.example.com", ask, http.MethodOptions)
	allowed := strings.ToLower(pre.Header.Get("Access-Control-Allow-Headers"))
	for _, h := range []string{"authorization", "content-type", "mcp-protocol-version", "mcp-session-id", "last-event-id"} {
		if !strings.Contains(allowed, h) {
			t.Errorf("preflight does not allow %s", h)
		}
	}
	if pre.StatusCode != 204 || pre.Header.Get("Access-Control-Allow-Origin") != "https://app.example.com" {
		t.Errorf("preflight: %d %v", pre.StatusCode, pre.Header)
	}
	real := guarded(t, r.Auth, "portal.example.com", http.Header{"Origin": {"https://app.example.com"}}, http.MethodPost)
	if real.StatusCode != http.StatusTeapot || !strings.Contains(real.Header.Get("Access-Control-Expose-Headers"), "WWW-Authenticate") {
		t.Errorf("request: %d %v", real.StatusCode, real.Header)
	}
	for _, res := range []*http.Response{pre, real} {
		if res.Header.Get("Access-Control-Allow-Credentials") != "" || res.Header.Get("Vary") != "Origin" {
			t.Errorf("headers %v", res.Header)
		}
	}
	ask.Set("Origin", "https://evil.example")
	if res := guarded(t, r.Auth, "portal.example.com", ask, http.MethodOptions); res.StatusCode != 403 || res.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("preflight of another origin: %d %v", res.StatusCode, res.Header)
	}
	ask.Set("Origin", "http://localhost:3000")
	if res := guarded(t, newRig(t, devConfig()).Auth, "localhost:8080", ask, http.MethodOptions); res.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Error("development mode lets every page on this machine read answers")
	}
}

func FuzzHostAndOrigin(f *testing.F) {
	for _, s := range []string{"portal.example.com", "localhost:80", "[::1]:1", "https://portal.example.com", "null", "a@b", "//x", "https://a:b", "[::1%eth0]"} {
		f.Add(s)
	}
	r := newRig(f, devConfig())
	rules := &r.state.Load().hosts
	f.Fuzz(func(t *testing.T, s string) {
		if name, port, ok := splitHost(s); ok {
			if name == "" || strings.ContainsAny(name, "/@\\ ") || strings.ContainsAny(port, ":/") {
				t.Fatalf("splitHost(%q) = %q %q", s, name, port)
			}
			if rules.knows(name, port) && name != "localhost" && !isLoopback(name) {
				t.Fatalf("host %q is accepted", s)
			}
		}
		if o, ok := canonicalOrigin(s); ok {
			u, err := url.Parse(o)
			if err != nil || u.Scheme+"://"+u.Host != o || u.User != nil {
				t.Fatalf("canonicalOrigin(%q) = %q", s, o)
			}
			if again, ok := canonicalOrigin(o); !ok || again != o {
				t.Fatalf("canonicalOrigin(%q) = %q, and of that %q", s, o, again)
			}
		}
	})
}
