package authserver

import (
	"net/url"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
)

func FuzzRedirect(f *testing.F) {
	for _, s := range []string{"http://127.0.0.1:80/cb", "http://127.0.0.1@evil/cb", "http://localhost:1/cb", "http://[::1]:5/cb", "https://a/cb", "http://127.0.0.1:1\\@evil/cb", "http://localhost/cb?x#y"} {
		f.Add(s)
	}
	registered := []string{"http://127.0.0.1/cb", "http://localhost:3/cb", "https://app.example.com/cb"}
	f.Fuzz(func(t *testing.T, asked string) {
		got, ok := matchRedirect(registered, asked)
		if !ok {
			return
		}
		u, err := url.Parse(got)
		if err != nil || got != asked || u.User != nil || u.Fragment != "" || u.Path != "/cb" || u.RawQuery != "" {
			t.Fatalf("%q is taken as %q", asked, got)
		}
		if got != registered[2] && u.Hostname() != "127.0.0.1" && u.Hostname() != "localhost" {
			t.Fatalf("%q leads to %q", asked, u.Hostname())
		}
	})
}

func FuzzResource(f *testing.F) {
	for _, s := range []string{"https://p.example/mcp", "https://p.example/mcp?optimize_context=x", "https://p.example@evil/mcp", "https://p.example:443", "https://evil/mcp"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if !canonicalResource("https://p.example", raw) {
			return
		}
		u, err := url.Parse(raw)
		if err != nil || !strings.EqualFold(u.Hostname(), "p.example") || !strings.EqualFold(u.Scheme, "https") || u.User != nil || u.Fragment != "" {
			t.Fatalf("%q is taken for this portal", raw)
		}
	})
}

func FuzzClientDocument(f *testing.F) {
	const id = "https://client.example/doc"
	f.Add([]byte(`{"client_id":"https://client.example/doc","client_name":"x","redirect_uris":["http://localhost/cb"]}`))
	f.Add([]byte(`{"client_id":"https://evil/doc","Client_Id":"https://client.example/doc","client_name":"x","redirect_uris":["https://a/b"]}`))
	f.Add([]byte(`{"client_id":"https://client.example/doc","client_name":"\u202ex","redirect_uris":["javascript:x"]}`))
	set := &settings{cfg: config.Defaults()}
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := parseDocument(set, id, body)
		if err != nil {
			return
		}
		if m.ClientID != id || m.Name == "" || m.Secret != "" || len(m.Redirects) == 0 {
			t.Fatalf("%s is taken as %+v", body, m)
		}
		for _, u := range m.Redirects {
			if checkRedirect(set.cfg.Auth.Clients, u) != nil {
				t.Fatalf("redirect %q is taken", u)
			}
		}
		for _, r := range m.Name {
			if hiddenRune(r) {
				t.Fatalf("the name %q hides something", m.Name)
			}
		}
	})
}
