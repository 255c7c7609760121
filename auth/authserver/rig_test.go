package authserver

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/auth/vault"
	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/store"
)

const (
	verifier = "verifier-verifier-verifier-verifier-verifier"
	loopback = "http://127.0.0.1:7777/cb"
)

var alice = Person{ID: "https://idp|alice", Name: "Alice", Groups: []string{"eng"}}

func challengeOf(v string) string {
	sum := sha256.Sum256([]byte(v))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// rig is a server on loopback with a store that can be away and a clock.
type rig struct {
	*Server
	t     testing.TB
	url   string
	cfg   *config.Config
	store *awayStore

	mu    sync.Mutex
	at    time.Time
	renew func(Person, time.Time) (Person, error)
}

type awayStore struct {
	store.Store
	mu   sync.Mutex
	away bool
}

func (a *awayStore) set(v bool) { a.mu.Lock(); a.away = v; a.mu.Unlock() }

func (a *awayStore) err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.away {
		return store.ErrUnavailable
	}
	return nil
}

func (a *awayStore) Get(ctx context.Context, k string) ([]byte, bool, error) {
	if err := a.err(); err != nil {
		return nil, false, err
	}
	return a.Store.Get(ctx, k)
}

func (a *awayStore) Create(ctx context.Context, k string, v []byte, ttl time.Duration) (bool, error) {
	if err := a.err(); err != nil {
		return false, err
	}
	return a.Store.Create(ctx, k, v, ttl)
}

func (r *rig) add(d time.Duration) { r.mu.Lock(); r.at = r.at.Add(d); r.mu.Unlock() }

func (r *rig) clock() time.Time { r.mu.Lock(); defer r.mu.Unlock(); return r.at }

func newStore(t testing.TB) store.Store {
	t.Helper()
	s, err := store.OpenFile(filepath.Join(t.TempDir(), "s.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func newRig(t testing.TB, change func(*config.Config)) *rig {
	t.Helper()
	return newReplica(t, newStore(t), vault.NewKey(time.Now()), change)
}

func newReplica(t testing.TB, st store.Store, key string, change func(*config.Config)) *rig {
	t.Helper()
	r := &rig{t: t, at: time.Now(), store: &awayStore{Store: st}}
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	r.url = srv.URL
	cfg := config.Defaults()
	cfg.URL, cfg.Auth.ClientID = srv.URL, "portal"
	if change != nil {
		change(cfg)
	}
	v, err := vault.New(vault.Options{Keys: []config.Secret{config.Secret(key)}})
	if err != nil {
		t.Fatal(err)
	}
	r.cfg = cfg
	r.Server = New(Options{Store: r.store, Vault: v, Log: slog.New(slog.DiscardHandler), Now: r.clock,
		Renew: func(_ context.Context, p Person, signed time.Time) (Person, error) {
			if r.renew != nil {
				return r.renew(p, signed)
			}
			return p, nil
		},
		Machine: func(_ *http.Request, id, secret string) (time.Time, error) {
			if id == "ci" && secret == "mcpp_st_ci_secret" {
				return r.clock().Add(time.Hour), nil
			}
			return time.Time{}, errors.New("unknown")
		},
		Page: func(w http.ResponseWriter, _ *http.Request, status int, title, text string) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, title+": "+text)
		}})
	r.limits.authorize, r.limits.register, r.limits.token = many(r), many(r), many(r)
	if err := r.SetConfig(cfg, srv.URL); err != nil {
		t.Fatal(err)
	}
	for _, e := range r.Endpoints() {
		mux.Handle(e.Path, e.Handler)
	}
	return r
}

func many(r *rig) *Limiter { return NewLimiter(time.Nanosecond, 1<<30, r.clock) }

type reply struct {
	status int
	header http.Header
	body   string
	json   map[string]any
}

func (r *rig) do(req *http.Request) reply {
	r.t.Helper()
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := c.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	out := reply{status: res.StatusCode, header: res.Header, body: string(b)}
	_ = json.Unmarshal(b, &out.json)
	return out
}

func (r *rig) get(path string) reply {
	r.t.Helper()
	req, err := http.NewRequest("GET", r.url+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.do(req)
}

func (r *rig) post(path string, form url.Values, basic ...string) reply {
	r.t.Helper()
	req, err := http.NewRequest("POST", r.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if len(basic) == 2 {
		req.SetBasicAuth(url.QueryEscape(basic[0]), url.QueryEscape(basic[1]))
	}
	return r.do(req)
}

func (r *rig) registerJSON(body string) reply {
	r.t.Helper()
	req, err := http.NewRequest("POST", r.url+PathRegister, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return r.do(req)
}

// newClient registers a public client with these redirect URIs.
func (r *rig) newClient(redirects ...string) string {
	r.t.Helper()
	b, _ := json.Marshal(map[string]any{"client_name": "Test client", "redirect_uris": redirects, "application_type": "native"})
	a := r.registerJSON(string(b))
	id, _ := a.json["client_id"].(string)
	if a.status != 201 || id == "" {
		r.t.Fatalf("registering: %d %s", a.status, a.body)
	}
	return id
}

// query is a good authorization request; change spoils it.
func (r *rig) query(client string, change url.Values) string {
	q := url.Values{"response_type": {"code"}, "client_id": {client}, "redirect_uri": {loopback}, "state": {"st"}, "scope": {"mcp offline_access"},
		"code_challenge": {challengeOf(verifier)}, "code_challenge_method": {"S256"}, "resource": {r.url + "/mcp"}, "prompt": {"consent"}}
	for k, v := range change {
		q.Del(k)
		if len(v) > 0 {
			q[k] = v
		}
	}
	return PathAuthorize + "?" + q.Encode()
}

func anyServer(string) bool { return true }

// waiting begins a sign-in and gives the id of the request.
func (r *rig) waiting(client string, change url.Values) string {
	r.t.Helper()
	a := r.get(r.query(client, change))
	id, ok := strings.CutPrefix(a.header.Get("Location"), PathConfirm+"?id=")
	if a.status != 303 || !ok {
		r.t.Fatalf("authorize: %d %s %s", a.status, a.header.Get("Location"), a.body)
	}
	return id
}

// code signs a person in and gives the code.
func (r *rig) code(client string, who Person, change url.Values) string {
	r.t.Helper()
	to, err := r.Decide(r.t.Context(), r.waiting(client, change), who, anyServer, true)
	if err != nil {
		r.t.Fatal(err)
	}
	u, err := url.Parse(to)
	if err != nil || u.Query().Get("code") == "" {
		r.t.Fatalf("no code in %s", to)
	}
	return u.Query().Get("code")
}

func codeForm(client, code string) url.Values {
	return url.Values{"grant_type": {"authorization_code"}, "client_id": {client}, "code": {code}, "redirect_uri": {loopback}, "code_verifier": {verifier}}
}

// signIn gives the tokens of a new sign-in.
func (r *rig) signIn(client string, who Person) (access, refresh string) {
	r.t.Helper()
	return r.tokens(r.post(PathToken, codeForm(client, r.code(client, who, nil))))
}

func (r *rig) tokens(a reply) (access, refresh string) {
	r.t.Helper()
	access, _ = a.json["access_token"].(string)
	refresh, _ = a.json["refresh_token"].(string)
	if a.status != 200 || access == "" || refresh == "" {
		r.t.Fatalf("no tokens: %d %s", a.status, a.body)
	}
	return access, refresh
}

func (r *rig) refreshed(client, token string) reply {
	r.t.Helper()
	return r.post(PathToken, url.Values{"grant_type": {"refresh_token"}, "client_id": {client}, "refresh_token": {token}, "resource": {r.url + "/mcp"}})
}

func (r *rig) valid(token string) error {
	_, err := r.Verify(r.t.Context(), token)
	return err
}
