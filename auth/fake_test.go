package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/internal/testlog"
	"github.com/mcp-portal/mcp-portal/store"
)

const portalURL = "https://portal.example.com"

// clock is a time that tests move. Beside an IdP that lives in real time it has
// to run: its tokens would soon be from the future.
type clock struct {
	mu   sync.Mutex
	t    time.Time
	runs bool
}

func (c *clock) run() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs = true
}

func newClock() *clock { return &clock{t: time.Now()} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs {
		return time.Now()
	}
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// memStore is the part of store.Store that auth uses, in memory; the rest of
// the interface is nil and would panic.
type memStore struct {
	store.Store
	now  func() time.Time
	mu   sync.Mutex
	data map[string]memValue
	down bool
}

type memValue struct {
	v   []byte
	end time.Time
}

func newMemStore(now func() time.Time) *memStore {
	return &memStore{now: now, data: map[string]memValue{}}
}

func (m *memStore) setDown(down bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = down
}

// with runs f under the lock and drops what has expired first.
func (m *memStore) with(f func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return fmt.Errorf("redis at 10.0.0.7:6379 refuses: %w", store.ErrUnavailable)
	}
	for k, v := range m.data {
		if !v.end.IsZero() && !m.now().Before(v.end) {
			delete(m.data, k)
		}
	}
	f()
	return nil
}

func (m *memStore) Get(_ context.Context, key string) (v []byte, ok bool, err error) {
	err = m.with(func() { var e memValue; e, ok = m.data[key]; v = e.v })
	return
}

func (m *memStore) Take(_ context.Context, key string) (v []byte, ok bool, err error) {
	err = m.with(func() { var e memValue; e, ok = m.data[key]; v = e.v; delete(m.data, key) })
	return
}

func (m *memStore) Create(_ context.Context, key string, value []byte, ttl time.Duration) (created bool, err error) {
	err = m.with(func() {
		if _, ok := m.data[key]; !ok {
			m.data[key], created = m.value(value, ttl), true
		}
	})
	return
}

func (m *memStore) Set(_ context.Context, key string, value []byte, ttl time.Duration) error {
	return m.with(func() { m.data[key] = m.value(value, ttl) })
}

func (m *memStore) Swap(_ context.Context, key string, old, new []byte, ttl time.Duration) (done bool, err error) {
	err = m.with(func() {
		if have, ok := m.data[key]; ok && bytes.Equal(have.v, old) {
			m.data[key], done = m.value(new, ttl), true
		}
	})
	return
}

func (m *memStore) Keys(_ context.Context, prefix string) ([]string, error) {
	if m.isDown() {
		return nil, store.ErrUnavailable
	}
	return m.keys(prefix), nil
}

func (m *memStore) isDown() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.down
}

func (m *memStore) value(v []byte, ttl time.Duration) memValue {
	e := memValue{v: bytes.Clone(v)}
	if ttl > 0 {
		e.end = m.now().Add(ttl)
	}
	return e
}

func (m *memStore) Delete(_ context.Context, key string) error {
	return m.with(func() { delete(m.data, key) })
}

// keys lists the keys with a prefix.
func (m *memStore) keys(prefix string) (out []string) {
	_ = m.with(func() {
		for k := range m.data {
			if strings.HasPrefix(k, prefix) {
				out = append(out, k)
			}
		}
	})
	sort.Strings(out)
	return out
}

// dump gives everything that is stored, to look for secrets in it.
func (m *memStore) dump() string {
	var b strings.Builder
	_ = m.with(func() {
		for k, v := range m.data {
			fmt.Fprintf(&b, "%s=%s\n", k, v.v)
		}
	})
	return b.String()
}

func oidcConfig(idp *authtest.IdP) *config.Config {
	return &config.Config{Name: "Test Portal", Listen: "127.0.0.1:0", URL: portalURL, Auth: config.Auth{
		Mode: "oidc", Accept: []string{"idp"}, Issuer: idp.Issuer, ClientID: idp.ClientID, ClientSecret: config.Secret(idp.ClientSecret),
		Scopes: []string{"openid", "profile", "email", "offline_access"}, GroupsClaim: "groups", ClockSkew: 30 * time.Second, SessionMaxAge: time.Hour}}
}

func devConfig() *config.Config {
	return &config.Config{Name: "Dev Portal", Listen: "127.0.0.1:0", URL: "http://127.0.0.1:8080",
		Auth: config.Auth{Mode: "none", DevUser: "dev@localhost", DevGroups: []string{"eng"}}}
}

// rig is an Auth with everything around it that a test may look at.
type rig struct {
	*Auth
	clock *clock
	store *memStore
	log   *testlog.Buffer
}

func newRig(t testing.TB, cfg *config.Config) *rig {
	t.Helper()
	r := &rig{clock: newClock(), log: &testlog.Buffer{}}
	r.store = newMemStore(r.clock.now)
	a, err := New(Options{Config: cfg, Store: r.store, Now: r.clock.now,
		Log: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	r.Auth = a
	return r
}

// call authenticates a request to /mcp with these Authorization headers.
func (r *rig) call(headers ...string) (*Principal, error) {
	req := httptest.NewRequest(http.MethodPost, portalURL+"/mcp", nil)
	for _, h := range headers {
		req.Header.Add("Authorization", h)
	}
	return r.Authenticate(req)
}

// wantError fails unless err is an *Error of that status and code.
func wantError(t testing.TB, err error, status int, code string) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("error is %v, want an *Error %d %s", err, status, code)
	}
	if e.Status != status || e.Code != code {
		t.Fatalf("error is %d %q (%v), want %d %q", e.Status, e.Code, e, status, code)
	}
	return e
}

func readAll(t testing.TB, res *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
