package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/internal/testlog"
	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/upstreams"
)

type shelf struct {
	store.Store
	mu   sync.Mutex
	data map[string][]byte
	down bool
	sets int
}

func newShelf() *shelf { return &shelf{data: map[string][]byte{}} }

func (s *shelf) Get(_ context.Context, key string) ([]byte, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, false, fmt.Errorf("get: %w", store.ErrUnavailable)
	}
	b, ok := s.data[key]
	return bytes.Clone(b), ok, nil
}

func (s *shelf) Set(_ context.Context, key string, value []byte, _ time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sets++
	if s.down {
		return fmt.Errorf("set: %w", store.ErrUnavailable)
	}
	s.data[key] = bytes.Clone(value)
	return nil
}

func (s *shelf) break_(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("still not: %s", what)
}

func odd() *upstreams.Catalogue {
	return &upstreams.Catalogue{
		ProtocolVersion: "2025-11-25", ServerInfo: []byte(`{ "name" : "<b>" }`), Instructions: "a\xffb\n",
		Tools:     raws("{ \"name\":\"t\",\n \"n\": 1.50, \"d\":\"<&\u2028\\u00e9>\", \"inputSchema\":{\"type\":\"object\",\"properties\":{}}}"),
		Resources: raws(`{"uri":"file:///a","name":"a"}`), Templates: raws(`{"uriTemplate":"db://{t}","name":"t"}`), Prompts: raws(`{"name":"p"}`),
		Warnings: []string{"w"},
	}
}

func TestRestartServesAtOnce(t *testing.T) {
	ctx, sh := context.Background(), newShelf()
	r := New(Options{Store: sh, Log: quiet()})
	servers := map[string]config.Server{"s": url("https://s"), "cmd": {Command: []string{"x", "y"}}}
	r.SetServers(servers)
	r.Update("s", odd())
	r.Update("cmd", named("a"))
	if err := r.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	before := r.Snapshot()
	r.Close()

	again := New(Options{Store: sh, Log: quiet()})
	defer again.Close()
	again.SetServers(servers)
	again.Restore(ctx)
	s := again.Snapshot()
	if !slices.Equal(outwards(s), outwards(before)) {
		t.Fatalf("%v after the restart, %v before", outwards(s), outwards(before))
	}
	srv := s.Server("s")
	if !srv.FromCache || srv.State != upstreams.Connecting || srv.Instructions != odd().Instructions {
		t.Errorf("restored server: %+v", srv)
	}
	if got, want := again.servers["s"].catalogue, odd(); !sameCatalogue(got, want) {
		t.Errorf("the catalogue is not the same byte for byte: %s", got.Tools[0])
	}
	if len(srv.Prompts) != 1 || len(srv.Resources) != 1 || len(srv.Templates) != 1 {
		t.Errorf("restored: %+v", srv)
	}
	// The live listing takes over; nothing that is offered changes by it.
	again.Update("s", odd())
	if live := again.Snapshot(); live.Server("s").FromCache || live.Offers != s.Offers || live.Version == s.Version {
		t.Errorf("after the live listing: %+v", live.Server("s"))
	}
	// A live listing is never replaced by a stored one.
	again.Update("s", named("new"))
	again.Restore(ctx)
	if again.Snapshot().Tool("s_new") == nil {
		t.Error("restoring replaced a live catalogue")
	}
}

func TestOtherConnectionHasOtherCatalogue(t *testing.T) {
	ctx, sh := context.Background(), newShelf()
	r := New(Options{Store: sh, Log: quiet()})
	defer r.Close()
	r.SetServers(map[string]config.Server{"s": url("https://old")})
	r.Update("s", named("secret"))
	if err := r.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	r.SetServers(map[string]config.Server{"s": {URL: "https://old", Title: "renamed", Bearer: "new"}})
	if len(r.Snapshot().Tools()) != 1 {
		t.Error("a new title or credential lost the catalogue")
	}
	for _, other := range []config.Server{url("https://new"), {Command: []string{"https://old"}}, {URL: "https://old", Transport: "sse"}} {
		r.SetServers(map[string]config.Server{"s": url("https://old")})
		r.SetServers(map[string]config.Server{"s": other})
		r.Restore(ctx)
		if got := outwards(r.Snapshot()); len(got) != 0 {
			t.Errorf("%+v serves %v of another server", other, got)
		}
	}
	r.SetServers(map[string]config.Server{"s": url("https://old")})
	r.Restore(ctx)
	if len(r.Snapshot().Tools()) != 1 {
		t.Error("the old connection's catalogue is lost")
	}
}

func TestStoreMayBeDown(t *testing.T) {
	ctx, sh := context.Background(), newShelf()
	var log testlog.Buffer
	r := New(Options{Store: sh, Log: slog.New(slog.NewTextHandler(&log, nil))})
	defer r.Close()
	r.cache.mu.Lock()
	r.cache.retry, r.cache.retryAtMost = time.Millisecond, 5*time.Millisecond
	r.cache.mu.Unlock()
	sh.break_(true)
	r.SetServers(map[string]config.Server{"s": url("https://s"), "u": url("https://u")})
	r.Restore(ctx)
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(r.Cache()[0].Error, "unavailable") || len(r.Cache()) != 2 {
		t.Errorf("log %q, cache %+v", log.String(), r.Cache())
	}
	r.Update("s", named("a"))
	if len(r.Snapshot().Tools()) != 1 {
		t.Fatal("live listing is not served while the store is down")
	}
	within(t, "the failed write is visible", func() bool {
		c := r.Cache()[0]
		return c.Server == "s" && c.Pending && c.Error != "" && c.Attempts > 2
	})
	if err := r.Flush(ctx); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "server s") {
		t.Errorf("Flush: %v", err)
	}
	r.Update("s", named("a", "b")) // the newer one is what gets written
	sh.break_(false)
	within(t, "the catalogue is stored", func() bool {
		c := r.Cache()[0]
		return !c.Pending && c.Error == "" && !c.Stored.IsZero()
	})
	b, ok, _ := sh.Get(ctx, cacheKey(config.Server{ID: "s", URL: "https://s"}))
	cat, err := decodeCatalogue(b)
	if !ok || err != nil || len(cat.Tools) != 2 {
		t.Errorf("stored: %v %v %v", ok, err, cat)
	}
	if strings.Count(log.String(), "catalogue is not stored") != 1 || !strings.Contains(log.String(), "stored after all") {
		t.Errorf("log: %s", log.String())
	}
	sh.mu.Lock()
	sets := sh.sets
	sh.mu.Unlock()
	for range 10 {
		r.Update("s", named("a", "b"))
	}
	if err := r.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if sh.sets != sets {
		t.Errorf("an unchanged catalogue was written %d times again", sh.sets-sets)
	}
}

func TestBrokenCacheEntryIsReportedAndSkipped(t *testing.T) {
	ctx, sh := context.Background(), newShelf()
	good, err := encodeCatalogue(named("a"))
	if err != nil {
		t.Fatal(err)
	}
	sh.data[cacheKey(config.Server{ID: "bad", URL: "https://s"})] = good[:len(good)/2]
	sh.data[cacheKey(config.Server{ID: "good", URL: "https://s"})] = good
	var log testlog.Buffer
	r := New(Options{Store: sh, Log: slog.New(slog.NewTextHandler(&log, nil))})
	defer r.Close()
	r.SetServers(map[string]config.Server{"bad": url("https://s"), "good": url("https://s")})
	r.Restore(ctx)
	if got := outwards(r.Snapshot()); !slices.Equal(got, []string{"good_a"}) {
		t.Errorf("restored %v", got)
	}
	if !strings.Contains(log.String(), "server=bad") || r.Cache()[0].Error == "" {
		t.Errorf("log %q, cache %+v", log.String(), r.Cache())
	}
}

func FuzzDecodeCatalogue(f *testing.F) {
	b, _ := encodeCatalogue(odd())
	f.Add(b)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := decodeCatalogue(b); err == nil && c == nil {
			t.Fatal("neither a catalogue nor an error")
		}
	})
}
