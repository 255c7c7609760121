package registry

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/upstreams"
)

// shelf is a store that can be down. Only what the registry uses is there.
func url(u string) config.Server { return config.Server{URL: u} }

func yes() *bool { v := true; return &v }
func no() *bool  { v := false; return &v }

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
// The list of another server under the same id is never served.
// B158: the store may be down at the start and later; that is visible, and
// heals by itself.
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
