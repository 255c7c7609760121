package registry

import (
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/upstreams"
)

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
	if got := s.Targets("portal+a:file:///secret"); len(got) != 1 || got[0].Server != "a" || got[0].Resource != nil {
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
