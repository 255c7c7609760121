package logins_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-portal/mcp-portal/auth/vault"
	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/upstreams/logins"
)

// grants is an authorization server (or IdP) that records token requests and
// answers them with the next token.
type grants struct {
	*httptest.Server
	mu     sync.Mutex
	forms  []url.Values
	basic  []string
	answer func(n int, f url.Values) (int, map[string]any)
}

func newGrants(t *testing.T, answer func(n int, f url.Values) (int, map[string]any)) *grants {
	g := &grants{answer: answer}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/.well-known/") {
			_ = json.NewEncoder(w).Encode(map[string]any{"issuer": g.URL, "authorization_endpoint": g.URL + "/a", "token_endpoint": g.URL + "/token"})
			return
		}
		_ = r.ParseForm()
		id, secret, _ := r.BasicAuth()
		g.mu.Lock()
		g.forms, g.basic = append(g.forms, r.PostForm), append(g.basic, id+":"+secret)
		status, doc := g.answer(len(g.forms), r.PostForm)
		g.mu.Unlock()
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(doc)
	}))
	t.Cleanup(g.Close)
	return g
}

// subjects are tokens of the company IdP.
type subjects map[string]string

func (s subjects) SubjectToken(_ context.Context, user, kind string) (string, error) {
	if t := s[user+" "+kind]; t != "" {
		return t, nil
	}
	return "", errors.New("sign in again")
}

// withGrants is Logins for a server whose tokens come from issuer; idp is the
// company IdP.
func withGrants(t *testing.T, idp string, a config.ServerAuth, s subjects, change ...func(*config.Config)) *logins.Logins {
	t.Helper()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	cfg := portalConfig(server.URL+"/mcp", a)
	cfg.Auth = config.Auth{Mode: "oidc", Issuer: idp, ClientID: "portal", ClientSecret: "portal secret"}
	if idp == "" {
		cfg.Auth = config.Auth{Mode: "none"}
	}
	for _, f := range change {
		f(cfg)
	}
	st, err := store.Open(t.Context(), config.Store{File: filepath.Join(t.TempDir(), "s.db")}, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	v, err := vault.New(vault.Options{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	l, err := logins.New(t.Context(), logins.Options{Config: cfg, Store: st, Vault: v, Subjects: s})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func tokenNo(prefix string) func(int, url.Values) (int, map[string]any) {
	return func(n int, _ url.Values) (int, map[string]any) {
		return 200, map[string]any{"access_token": prefix + string(rune('0'+n)), "token_type": "bearer", "expires_in": 300}
	}
}

func wantForm(t *testing.T, f url.Values, want map[string]string) {
	t.Helper()
	for k, v := range want {
		if f.Get(k) != v {
			t.Errorf("%s is %q, want %q", k, f.Get(k), v)
		}
	}
}

func TestClientCredentials(t *testing.T) {
	as := newGrants(t, tokenNo("cc-"))
	l := withGrants(t, "", config.ServerAuth{Type: config.AuthClientCredentials, Issuer: as.URL, ClientID: "me:x", ClientSecret: "s&x", Scopes: []string{"a", "b"}}, nil)
	for _, user := range []string{"", "ann", "svc:ci"} { // one token for all
		if c, err := l.Current(t.Context(), "s", user); err != nil || c.Token != "cc-1" {
			t.Fatalf("%q: %+v %v", user, c, err)
		}
	}
	wantForm(t, as.forms[0], map[string]string{"grant_type": "client_credentials", "scope": "a b"})
	if as.forms[0].Get("resource") == "" || as.basic[0] != "me%3Ax:s%26x" || as.forms[0].Get("client_secret") != "" {
		t.Errorf("form %v, basic %s", as.forms[0], as.basic[0])
	}
	// One that is refused at once again is not asked for over and over.
	c, _ := l.Current(t.Context(), "s", "ann")
	if _, err := l.Refused(t.Context(), "s", "ann", c, 401, http.Header{}); !errors.Is(err, logins.ErrHopeless) {
		t.Errorf("a fresh token that is refused: %v", err)
	}
	if len(as.forms) != 1 {
		t.Errorf("%d token requests", len(as.forms))
	}
}

func TestTokenExchange(t *testing.T) {
	idp := newGrants(t, tokenNo("x-"))
	l := withGrants(t, idp.URL, config.ServerAuth{Type: config.AuthTokenExchange, Subject: "access_token", Audience: "reports"}, subjects{"ann access_token": "canary-of-ann", "bob access_token": "canary-of-bob"})
	a, err := l.Current(t.Context(), "s", "ann")
	if err != nil || a.Token != "x-1" {
		t.Fatalf("%+v %v", a, err)
	}
	b, err := l.Current(t.Context(), "s", "bob")
	if err != nil || b.Token != "x-2" {
		t.Fatalf("each user needs a token of their own: %+v %v", b, err)
	}
	wantForm(t, idp.forms[1], map[string]string{"grant_type": "urn:ietf:params:oauth:grant-type:token-exchange", "subject_token": "canary-of-bob",
		"subject_token_type": "urn:ietf:params:oauth:token-type:access_token", "audience": "reports"})
	if idp.basic[0] != "portal:portal+secret" {
		t.Errorf("client %s", idp.basic[0])
	}
	if _, err := l.Current(t.Context(), "s", "eve"); err == nil || !strings.Contains(err.Error(), "sign in again") {
		t.Errorf("a user without a token: %v", err)
	}
	var need *logins.Needed
	if _, err := l.Current(t.Context(), "s", ""); !errors.As(err, &need) {
		t.Errorf("the portal itself is no user: %v", err)
	}
	idp.answer = func(int, url.Values) (int, map[string]any) {
		return 400, map[string]any{"error": "invalid_target", "error_description": "no canary-of-ann"}
	}
	if _, err := l.Refused(t.Context(), "s", "ann", a, 401, http.Header{}); err == nil || strings.Contains(err.Error(), "canary") {
		t.Errorf("got %v", err)
	}
}

func TestIDJAG(t *testing.T) {
	idp := newGrants(t, func(int, url.Values) (int, map[string]any) {
		return 200, map[string]any{"access_token": "the-assertion", "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag", "token_type": "N_A", "expires_in": 60}
	})
	as := newGrants(t, tokenNo("j-"))
	a := config.ServerAuth{Type: config.AuthIDJAG, Issuer: as.URL, ClientID: "portal-there", ClientSecret: "sss"}
	l := withGrants(t, idp.URL, a, subjects{"ann id_token": "id-of-ann"})
	if c, err := l.Current(t.Context(), "s", "ann"); err != nil || c.Token != "j-1" {
		t.Fatalf("%+v %v", c, err)
	}
	wantForm(t, idp.forms[0], map[string]string{"grant_type": "urn:ietf:params:oauth:grant-type:token-exchange", "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
		"subject_token": "id-of-ann", "subject_token_type": "urn:ietf:params:oauth:token-type:id_token", "audience": as.URL})
	wantForm(t, as.forms[0], map[string]string{"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": "the-assertion"})
	if as.basic[0] != "portal-there:sss" || as.forms[0].Get("subject_token") != "" {
		t.Errorf("the server's authorization server got %v by %s", as.forms[0], as.basic[0])
	}
	idp.answer = func(int, url.Values) (int, map[string]any) {
		return 200, map[string]any{"access_token": "an-access-token", "issued_token_type": "urn:ietf:params:oauth:token-type:access_token", "token_type": "Bearer"}
	}
	other := withGrants(t, idp.URL, a, subjects{"ann id_token": "id-of-ann"})
	if _, err := other.Current(t.Context(), "s", "ann"); err == nil || len(as.forms) != 1 {
		t.Errorf("a token that is no assertion was passed on: %v", err)
	}
}
