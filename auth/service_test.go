package auth

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
	"github.com/mcp-portal/mcp-portal/config"
)

func mustToken(t *testing.T, id string) (token, hash string) {
	t.Helper()
	token, hash, err := NewServiceToken(id)
	if err != nil {
		t.Fatal(err)
	}
	return token, hash
}

func TestServiceTokens(t *testing.T) {
	idp := authtest.StartFakeIdP(t)
	idp.Down() // machines do not need it
	cfg := oidcConfig(idp)
	ci, ciHash := mustToken(t, "ci_build-1")
	old, oldHash := mustToken(t, "old")
	gone, _ := mustToken(t, "gone")
	renamed, renamedHash := mustToken(t, "before")
	now := time.Now()
	cfg.Auth.ServiceTokens = []config.ServiceToken{
		{ID: "ci_build-1", Hash: ciHash, Groups: []string{"eng"}, Servers: []string{"github"}, Tools: []string{"github/get_*"}, Expires: now.Add(time.Hour)},
		{ID: "old", Hash: "sha256:" + strings.ToUpper(oldHash[7:]), Expires: now.Add(time.Minute)},
		{ID: "after", Hash: renamedHash},
	}
	r := newRig(t, cfg)
	p, err := r.call("Bearer " + ci)
	if err != nil {
		t.Fatal(err)
	}
	if p.ID != "svc:ci_build-1" || p.Kind != KindService || p.Name != "ci_build-1" || !slices.Equal(p.Groups, []string{"eng"}) ||
		!slices.Equal(p.Servers, []string{"github"}) || !slices.Equal(p.Tools, []string{"github/get_*"}) || !p.Expires.Equal(now.Add(time.Hour)) {
		t.Errorf("principal = %+v", p)
	}
	p, err = r.call("Bearer " + old)
	if err != nil {
		t.Fatal(err)
	}
	if p.Servers != nil || p.Tools != nil {
		t.Errorf("a token without limits is limited: %+v", p)
	}
	r.clock.add(time.Minute)
	for name, token := range map[string]string{
		"expired":             old,
		"not configured":      gone,
		"configured as other": renamed,
		"cut":                 ci[:len(ci)-1],
		"longer":              ci + "0",
		"id only":             "mcpp_st_ci_build-1",
		"prefix only":         "mcpp_st_",
		"empty secret":        "mcpp_st_ci_build-1_",
		"the hash":            "mcpp_st_ci_build-1_" + ciHash[7:],
		"in capitals":         strings.ToUpper(ci),
	} {
		_, err := r.call("Bearer " + token)
		e := wantError(t, err, 401, CodeInvalidToken)
		if strings.Contains(e.Error(), token) && len(token) > 20 || strings.Contains(e.Description, "old") {
			t.Errorf("%s: the error gives away too much: %v", name, e)
		}
	}
	for _, secret := range []string{ci, old, ciHash[7:]} {
		if strings.Contains(r.log.String(), secret) {
			t.Error("a token or hash is in the log")
		}
	}
	if idp.Requests() != 0 {
		t.Error("a service token caused a request to the IdP")
	}
}

func TestServiceTokenNeedsAllowGroupsToo(t *testing.T) {
	idp := authtest.StartFakeIdP(t)
	cfg := oidcConfig(idp)
	tok, hash := mustToken(t, "ci")
	cfg.Auth.AllowGroups = []string{"mcp-users"}
	cfg.Auth.ServiceTokens = []config.ServiceToken{{ID: "ci", Hash: hash}}
	r := newRig(t, cfg)
	_, err := r.call("Bearer " + tok)
	if e := wantError(t, err, 403, CodeAccessDenied); !strings.Contains(e.Next, "service token") {
		t.Errorf("next step is %q", e.Next)
	}
}

func TestNewServiceToken(t *testing.T) {
	seen := map[string]bool{}
	for range 50 {
		token, hash := mustToken(t, "ci")
		if !strings.HasPrefix(token, "mcpp_st_ci_") || len(token) != len("mcpp_st_ci_")+64 || seen[token] {
			t.Fatalf("token %q", token)
		}
		if _, ok := decodeHash(hash); !ok || strings.Contains(hash, token) {
			t.Fatalf("hash %q", hash)
		}
		seen[token] = true
	}
	for _, id := range []string{"", "_x", "a b", "a/b", "ä", strings.Repeat("x", 65), "a\n"} {
		if _, _, err := NewServiceToken(id); err == nil {
			t.Errorf("id %q was accepted", id)
		}
	}
}

func TestBadServiceTokenSettings(t *testing.T) {
	idp := authtest.StartFakeIdP(t)
	_, hash := mustToken(t, "ci")
	for _, list := range [][]config.ServiceToken{
		{{ID: "ci"}}, {{ID: "ci", Hash: hash[7:]}}, {{ID: "ci", Hash: "md5:" + hash[7:]}}, {{ID: "ci", Hash: hash + "00"}},
		{{ID: "", Hash: hash}}, {{ID: "c i", Hash: hash}}, {{ID: "ci", Hash: hash}, {ID: "ci", Hash: hash}},
		{{ID: "ci", Hash: hash, Tools: []string{"get_issue"}}},
	} {
		cfg := oidcConfig(idp)
		cfg.Auth.ServiceTokens = list
		if _, err := New(Options{Config: cfg, Store: newMemStore(time.Now)}); err == nil {
			t.Errorf("%+v was accepted", list)
		}
	}
}

// A service token may be bound to networks. Who calls is the peer, or whom a
// proxy of auth.proxies names last; nobody else is believed.
func TestServiceTokenFromItsNetworks(t *testing.T) {
	idp := authtest.StartFakeIdP(t)
	cfg := oidcConfig(idp)
	token, hash := mustToken(t, "ci")
	cfg.Auth.Proxies = []string{"10.9.0.1", "203.0.113.0/24"}
	cfg.Auth.ServiceTokens = []config.ServiceToken{{ID: "ci", Hash: hash, From: []string{"192.0.2.0/24", "2001:db8::/32"}}}
	r := newRig(t, cfg)
	for _, c := range []struct {
		peer, forwarded string
		ok              bool
	}{
		{"192.0.2.7:1", "", true},
		{"[2001:db8::1]:1", "", true},
		{"[::ffff:192.0.2.7]:1", "", true},
		{"198.51.100.7:1", "", false},
		{"198.51.100.7:1", "192.0.2.7", false}, // invented
		{"10.9.0.2:1", "192.0.2.7", false},     // a neighbour of the proxy
		{"10.9.0.1:1", "192.0.2.7", true},
		{"10.9.0.1:1", "198.51.100.7, 192.0.2.7", true},
		{"10.9.0.1:1", "192.0.2.7, 198.51.100.7", false},
		{"10.9.0.1:1", "192.0.2.7, unknown", false},
		{"10.9.0.1:1", "", false},
		{"", "192.0.2.7", false},
		// Two proxies in a row: the outer one's word counts through the inner.
		{"10.9.0.1:1", "192.0.2.7, 203.0.113.9", true},
		{"10.9.0.1:1", "192.0.2.7, 198.51.100.7, 203.0.113.9", false},
		{"10.9.0.1:1", "203.0.113.9", false}, // the outer itself
		{"10.9.0.1:1", ", 203.0.113.9", false},
		// With a port, as some write.
		{"10.9.0.1:1", "192.0.2.7:4711", true},
		{"10.9.0.1:1", "[2001:db8::7]:4711", true},
		{"10.9.0.1:1", "2001:db8::7", true},
	} {
		req := httptest.NewRequest("POST", portalURL+"/mcp", nil)
		req.RemoteAddr = c.peer
		req.Header.Set("Authorization", "Bearer "+token)
		if c.forwarded != "" {
			req.Header.Set("X-Forwarded-For", c.forwarded)
		}
		_, err := r.Authenticate(req)
		if c.ok && err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		if !c.ok {
			wantError(t, err, 403, CodeAccessDenied)
		}
		if _, err := r.machine(req, "ci", token); (err == nil) != c.ok {
			t.Errorf("at /token, %+v: %v", c, err)
		}
	}
}
