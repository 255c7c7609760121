package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/upstreams"
)

// shelf is a store that can be down. Only what the registry uses is there.
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

func url(u string) config.Server { return config.Server{URL: u} }

func yes() *bool { v := true; return &v }
func no() *bool  { v := false; return &v }

func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("still not: %s", what)
}

func outwards(s *Snapshot) []string {
	var out []string
	for _, t := range s.Tools() {
		out = append(out, t.Outward)
	}
	return out
}

func TestSwitches(t *testing.T) {
	r := New(Options{Log: quiet()})
	defer r.Close()
	cfg := func(byDefault bool, tools map[string]config.ServerTool) {
		r.SetServers(map[string]config.Server{"s": {URL: "https://s", DefaultDisabled: byDefault, Tools: tools}, "off": {URL: "https://off", Enabled: no()}})
	}
	cfg(false, nil)
	r.Update("s", named("a", "b", "c"))
	r.Update("off", named("x"))
	r.Update("unknown", named("x"))
	for _, c := range []struct {
		allowList bool
		tools     map[string]config.ServerTool
		want      string
		warning   string
	}{
		{false, nil, "s_a s_b s_c", ""},
		{false, map[string]config.ServerTool{"b": {Enabled: no()}, "c": {Class: "read"}}, "s_a s_c", ""},
		{true, map[string]config.ServerTool{"b": {Enabled: yes()}, "c": {Class: "read"}}, "s_b", ""},
		{true, nil, "", ""},
		{false, map[string]config.ServerTool{"B": {Enabled: no()}}, "s_a s_b s_c", `names tool "B"`},
	} {
		cfg(c.allowList, c.tools)
		s := r.Snapshot()
		if got := strings.Join(outwards(s), " "); got != c.want {
			t.Errorf("%+v: %s, want %s", c, got, c.want)
		}
		if w := strings.Join(s.Server("s").Warnings, "; "); !strings.Contains(w, c.warning) || c.warning == "" && w != "" {
			t.Errorf("%+v: warnings %q", c, w)
		}
		if s.Server("off") != nil || len(s.Servers) != 1 {
			t.Error("a server that is switched off is in the snapshot")
		}
	}
}

func TestOwnWordsOfAServer(t *testing.T) {
	r := New(Options{Log: quiet()})
	defer r.Close()
	r.SetServers(map[string]config.Server{"own": url("https://a"), "admin": {URL: "https://b", Title: "Admin's", Description: "admin says"}, "mute": url("https://c")})
	c := &upstreams.Catalogue{ServerInfo: []byte(`{"name":"n","title":"The\n Title"}`), Instructions: "First\n\tdo " + strings.Repeat("é", 1000)}
	r.Update("own", c)
	r.Update("admin", c)
	s := r.Snapshot()
	if o := s.Server("own"); o.Title != "The Title" || !strings.HasPrefix(o.Description, "First do é") || len([]rune(o.Description)) > descriptionMax+1 || o.Instructions != c.Instructions {
		t.Errorf("own: %+v", o)
	}
	if a := s.Server("admin"); a.Title != "Admin's" || a.Description != "admin says" {
		t.Errorf("admin: %+v", a)
	}
	if m := s.Server("mute"); m.Title != "mute" || m.Description != "" || m.State != upstreams.Connecting {
		t.Errorf("mute: %+v", m)
	}
}

// B002: what changes nothing makes no snapshot and wakes nobody.
func TestSameCatalogueIsNoChange(t *testing.T) {
	r := New(Options{Log: quiet()})
	defer r.Close()
	var calls [][2]uint64
	r.SetServers(map[string]config.Server{"s": url("https://s"), "u": url("https://u")})
	r.Update("s", named("a", "b"))
	first := r.Snapshot()
	cancel := r.Subscribe(func(old, new *Snapshot) { calls = append(calls, [2]uint64{old.Version, new.Version}) })
	for range 20 {
		r.Update("s", named("a", "b"))
		r.Update("s", named("b", "a")) // another order is the same offer
		r.SetStatus(upstreams.Status{Server: "u", State: upstreams.Connecting, NextTry: time.Now()})
		r.SetServers(map[string]config.Server{"s": url("https://s"), "u": url("https://u")})
	}
	if r.Snapshot() != first || len(calls) != 0 {
		t.Fatalf("version %d became %d, %d calls", first.Version, r.Snapshot().Version, len(calls))
	}
	// The state is another thing than what is offered.
	r.SetStatus(upstreams.Status{Server: "s", State: upstreams.Degraded})
	second := r.Snapshot()
	if second.Version == first.Version || second.Offers != first.Offers || second.index != first.index || second.Server("s").State != upstreams.Degraded {
		t.Errorf("after a change of state: %+v", second)
	}
	if len(second.Tools()) != 2 {
		t.Error("a degraded server loses its tools")
	}
	r.Update("s", named("a", "b", "c"))
	third := r.Snapshot()
	if third.Offers != third.Version || third.Offers == first.Offers || len(third.Tools()) != 3 || len(first.Tools()) != 2 {
		t.Errorf("after a new tool: %+v", third)
	}
	// A new description of the same tool is a change.
	c := named("a", "b", "c")
	c.Tools[0] = bytes.Replace(c.Tools[0], []byte("does a"), []byte("does A"), 1)
	r.Update("s", c)
	if r.Snapshot().Offers == third.Offers {
		t.Error("a changed description is not noticed")
	}
	if want := [][2]uint64{{first.Version, second.Version}, {second.Version, third.Version}, {third.Version, r.Snapshot().Version}}; !slices.Equal(calls, want) {
		t.Errorf("calls %v, want %v", calls, want)
	}
	cancel()
	r.Update("s", named("z"))
	if len(calls) != 3 {
		t.Error("called after cancel")
	}
}

func TestReadyMeansListed(t *testing.T) {
	r := New(Options{Log: quiet()})
	defer r.Close()
	r.SetServers(map[string]config.Server{"s": url("https://s")})
	r.SetStatus(upstreams.Status{Server: "s", State: upstreams.Ready})
	if got := r.Snapshot().Server("s").State; got != upstreams.Connecting {
		t.Errorf("%s without a catalogue", got)
	}
	r.Update("s", named("a"))
	if got := r.Snapshot().Server("s").State; got != upstreams.Ready {
		t.Errorf("%s after the listing", got)
	}
	r.Update("s", nil)
	if len(r.Snapshot().Tools()) != 1 {
		t.Error("a failed listing emptied the catalogue")
	}
}

// odd is a catalogue whose bytes an encoder would change.
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

// The list of another server under the same id is never served.
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

// B158: the store may be down at the start and later; that is visible, and
// heals by itself.
func TestStoreMayBeDown(t *testing.T) {
	ctx, sh := context.Background(), newShelf()
	var log lockedBuffer
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
	var log lockedBuffer
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

func TestResourcesOfSeveralServers(t *testing.T) {
	a := &upstreams.Catalogue{
		Resources: raws(`{"uri":"file:///x","name":"x","n":1.0}`, `{"uri":"file:///a"}`, `{"uri":"file:///a","name":"twice"}`, `{"name":"no uri"}`),
		Templates: raws(`{"uriTemplate":"db://{table}/{id}","name":"row"}`, `{"uriTemplate":"bad://{","name":"bad"}`),
	}
	b := &upstreams.Catalogue{
		Resources: raws(`{"uri":"file:///x","name":"x"}`, `{"uri":"portal+a:file:///secret","name":"spoof"}`),
		Templates: raws(`{"uriTemplate":"db://{table}/{id}","name":"row"}`, `{"uriTemplate":"log://b{/path*}{?q,n}","name":"log"}`),
	}
	alone := loaded(t, map[string]*upstreams.Catalogue{"a": a}, 0).Snapshot()
	if got := alone.Resource("file:///x"); len(got) != 1 || got[0].Outward != "file:///x" || string(got[0].Outer) != string(a.Resources[0]) {
		t.Errorf("alone: %+v", got)
	}
	if got := alone.Resource("file:///a"); len(got) != 1 || string(got[0].Outer) != `{"uri":"file:///a","name":"file:///a"}` {
		t.Errorf("nameless: %s", got[0].Outer)
	}
	r := loaded(t, map[string]*upstreams.Catalogue{"a": a, "b": b}, 0)
	s := r.Snapshot()
	// Shared: both are told apart, neither wins, both readable; the explicit
	// address works with and without the conflict.
	if got := s.Resource("file:///x"); len(got) != 2 || got[0].Outward != "portal+a:file:///x" || got[1].Outward != "portal+b:file:///x" {
		t.Errorf("shared: %+v", got)
	}
	for _, snap := range []*Snapshot{alone, s} {
		if got := snap.Targets("portal+a:file:///x"); len(got) != 1 || got[0].Server != "a" || got[0].URI != "file:///x" {
			t.Errorf("explicit: %+v", got)
		}
	}
	if got := s.Resource("portal+b:file:///x"); len(got) != 1 || string(got[0].Outer) != `{"uri":"portal+b:file:///x","name":"x"}` {
		t.Errorf("explicit b: %+v", got)
	}
	if got := s.Resource("file:///a"); len(got) != 1 || got[0].Outward != "file:///a" {
		t.Errorf("unshared: %+v", got)
	}
	// A server cannot pose as another.
	if got := s.Targets("portal+a:file:///secret"); len(got) != 0 {
		t.Errorf("spoofed: %+v", got)
	}
	if got := s.Targets("portal+b:portal+a:file:///secret"); len(got) != 1 || got[0].Server != "b" {
		t.Errorf("honest: %+v", got)
	}
	for uri, want := range map[string]string{
		"db://users/7": "a b", "portal+b:db://users/7": "b", "db://users/7/8": "", "log://b/x/y?q=1": "b", "log://b": "b", "log://bx": "",
		"bad://x": "", "nothing": "",
	} {
		var got []string
		for _, target := range s.Targets(uri) {
			if target.Template == nil || target.Resource != nil {
				t.Errorf("%s: %+v", uri, target)
			}
			got = append(got, target.Server)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s fits templates of %v, want %q", uri, got, want)
		}
	}
	if w := strings.Join(s.Server("a").Warnings, "\n"); strings.Count(w, "\n") != 2 || !strings.Contains(w, "twice") || !strings.Contains(w, "no uri") || !strings.Contains(w, "bad://") {
		t.Errorf("warnings: %s", w)
	}
	// When the other server goes, the plain address is back.
	r.SetServers(map[string]config.Server{"a": url("https://a.example/mcp")})
	if got := r.Snapshot().Resource("file:///x"); len(got) != 1 || got[0].Outward != "file:///x" {
		t.Errorf("afterwards: %+v", got)
	}
	if got := s.Resource("file:///x"); len(got) != 2 {
		t.Error("the old snapshot changed")
	}
}

func TestSubscribersMayUseTheRegistry(t *testing.T) {
	r := New(Options{Log: quiet()})
	defer r.Close()
	r.SetServers(map[string]config.Server{"s": url("https://s"), "u": url("https://u")})
	last := r.Snapshot()
	done := make(chan struct{})
	var versions []uint64
	var once sync.Once
	r.Subscribe(func(old, new *Snapshot) {
		if old != last {
			t.Errorf("a snapshot is missing between %d and %d", last.Version, new.Version)
		}
		last = new
		versions = append(versions, new.Version)
		once.Do(func() { r.Update("u", named("x")) })
		if new.Tool("u_x") != nil && new.Tool("s_49") != nil {
			select {
			case <-done:
			default:
				close(done)
			}
		}
	})
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			for j := range 10 {
				r.SetStatus(upstreams.Status{Server: "u", State: []upstreams.State{upstreams.Degraded, upstreams.Connecting}[j%2]})
				if i == 0 {
					r.Update("s", named(fmt.Sprint(40+j)))
				}
			}
		})
	}
	wg.Wait()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("the last change was not told")
	}
	if !slices.IsSorted(versions) {
		t.Errorf("out of order: %v", versions)
	}
}

// A snapshot is the same at the end of a request as at its beginning, whatever
// happens meanwhile, and always of one piece.
func TestSnapshotsAreImmutable(t *testing.T) {
	r := New(Options{Log: quiet(), Store: newShelf()})
	defer r.Close()
	ids := []string{"a", "b", "c"}
	servers := map[string]config.Server{}
	for _, id := range ids {
		servers[id] = url("https://" + id)
	}
	r.SetServers(servers)
	generation := func(n int) *upstreams.Catalogue {
		c := named(fmt.Sprintf("gen%d_first", n), fmt.Sprintf("gen%d_second", n), "stays")
		c.Resources = raws(fmt.Sprintf(`{"uri":"r://%d","name":"r"}`, n%3))
		return c
	}
	stop := make(chan struct{})
	var writers, readers sync.WaitGroup
	for i, id := range ids {
		writers.Go(func() {
			for n := range 150 {
				r.Update(id, generation(n+i))
				if n%10 == 0 {
					r.SetStatus(upstreams.Status{Server: id, State: []upstreams.State{upstreams.Ready, upstreams.Degraded}[n/10%2]})
				}
				if n%50 == 49 && i == 0 {
					next := maps.Clone(servers)
					next["d"] = url(fmt.Sprint("https://d", n))
					r.SetServers(next)
				}
			}
		})
	}
	print := func(s *Snapshot) string {
		var b strings.Builder
		for _, srv := range s.Servers {
			fmt.Fprintln(&b, srv.ID, srv.State, srv.FromCache, len(srv.Tools))
			for _, x := range srv.Resources {
				fmt.Fprintln(&b, x.Outward, string(x.Outer))
			}
		}
		for _, tool := range s.Tools() {
			fmt.Fprintln(&b, tool.Outward, tool.Identifier, string(tool.Outer), s.Tool(tool.Outward) == tool, s.ToolByIdentity(tool.Server, tool.Name) == tool)
		}
		return b.String()
	}
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				s := r.Snapshot()
				before := print(s)
				res, err := s.Search(Query{Text: "first generation stays"}, nil)
				if err != nil {
					t.Error(err)
					return
				}
				for _, h := range res.Hits {
					if s.Tool(h.Tool.Outward) != h.Tool {
						t.Errorf("search found %s of another snapshot", h.Tool.Outward)
						return
					}
				}
				for _, srv := range s.Servers {
					if n := len(srv.Tools); n != 0 && n != 3 {
						t.Errorf("server %s shows %d tools: two generations are mixed", srv.ID, n)
					}
				}
				if after := print(s); after != before {
					t.Errorf("a snapshot changed from\n%s\nto\n%s", before, after)
					return
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
}

// lockedBuffer takes log lines from several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
