package registry

import (
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/upstreams"
)

func TestBareNames(t *testing.T) {
	for name, want := range map[string]string{
		"add_numbers": "add_numbers", "getUser": "getUser", "get-data": "get-data", "x": "x", "_x_": "_x_",
		"portal": "portal", "portal-x": "portal-x", "portals_list": "portals_list",
		"report_20240101":       "report_20240101",
		strings.Repeat("a", 64): strings.Repeat("a", 64),
		// as with a prefix: reserved, odd, too long, empty, like a hash
		"portal_execute":        "",
		"portal_":               "",
		"vercel.deploy":         "",
		"日本語":                   "",
		"":                      "",
		strings.Repeat("a", 65): "",
		"get_b2345678":          "",
		"_b2345678":             "",
	} {
		got := bareName("everything", name, 64)
		if want == "" {
			want = "everything_" + readablePrefix(name, 64-len("everything_")-1-hashLen)
			want = strings.TrimSuffix(want, "_") + "_" + hashOf("everything", name)
		}
		if got != want {
			t.Errorf("bareName(%q) = %q, want %q", name, got, want)
		}
	}
}

// Every server of the corpora, as the only one: names are its own wherever
// they may be, and stay apart.
func TestRealToolsWithoutPrefix(t *testing.T) {
	all := namesOnly(t, dumps(t))
	kept, total := 0, 0
	for id, c := range all {
		for _, limit := range []int{40, 64} {
			cfg := config.Server{ID: id, Prefix: no()}
			bare, prefixed := buildServer(cfg, c, limit, nil), buildServer(config.Server{ID: id}, c, limit, nil)
			if len(bare.Tools) != len(prefixed.Tools) || len(bare.Tools) == 0 && len(c.Tools) > 0 {
				t.Fatalf("%s: %d tools without prefix, %d with it", id, len(bare.Tools), len(prefixed.Tools))
			}
			code := map[string]*Tool{}
			for _, tool := range prefixed.Tools {
				code[tool.Name] = tool
			}
			seen := map[string]bool{}
			for _, tool := range bare.Tools {
				if seen[tool.Outward] || len(tool.Outward) > limit || !isNameText(tool.Outward) {
					t.Errorf("%s/%s is %q", id, tool.Name, tool.Outward)
				}
				seen[tool.Outward] = true
				if total++; tool.Outward == tool.Name {
					kept++
				} else if !hashedForm.MatchString(tool.Outward) {
					t.Errorf("%s/%s became %q, neither its own nor hashed", id, tool.Name, tool.Outward)
				}
				if with := code[tool.Name]; with.Identifier != tool.Identifier || with.Member != tool.Member {
					t.Errorf("%s/%s is %s and %s in code, with a prefix %s and %s", id, tool.Name, tool.Identifier, tool.Member, with.Identifier, with.Member)
				}
			}
		}
	}
	if kept*10 < total*9 {
		t.Errorf("only %d of %d names are the server's own", kept, total)
	}
}

// The switch takes effect with the next configuration, for tools and prompts,
// and says that what is offered changed; back again it is as before.
func TestPrefixIsSwitched(t *testing.T) {
	r := New(Options{Log: quiet()})
	defer r.Close()
	c := named("get_data", "a.b")
	c.Prompts = raws(`{"name":"greet"}`)
	servers := func(prefix *bool) map[string]config.Server {
		return map[string]config.Server{"s": {URL: "https://s.example", Prefix: prefix}}
	}
	r.SetServers(servers(nil))
	r.Update("s", c)
	before := r.Snapshot()
	r.SetServers(servers(no()))
	bare := r.Snapshot()
	if bare.Offers == before.Offers {
		t.Error("clients would not be told")
	}
	if bare.Tool("get_data") == nil || bare.Tool("s_get_data") != nil || bare.Tool(outwardName("s", "a.b", 0)) == nil || !bare.Server("s").Bare {
		t.Errorf("without prefix: %v", outwards(bare))
	}
	if p := bare.Prompt("greet"); p == nil || string(p.Outer) != `{"name":"greet"}` || bare.Prompt("s_greet") != nil {
		t.Errorf("prompt: %+v", p)
	}
	if tool := bare.Tool("get_data"); bare.ToolByIdentifier("s_get_data") != tool || tool.Member != "get_data" {
		t.Errorf("scripts lost their name for it: %+v", tool)
	}
	r.SetServers(servers(yes()))
	if after := r.Snapshot(); after.Tool("s_get_data") == nil || after.Tool("get_data") != nil || after.Prompt("s_greet") == nil {
		t.Errorf("with prefix again: %v", outwards(after))
	}
}

// A server that is known by its configuration alone says so too: a call in the
// first moments finds out by it which server to wait for.
func TestBareIsKnownBeforeTheList(t *testing.T) {
	var none *upstreams.Catalogue
	if !buildServer(config.Server{ID: "a", Prefix: no()}, none, 0, nil).Bare || buildServer(config.Server{ID: "a"}, none, 0, nil).Bare {
		t.Error("Bare does not follow the configuration")
	}
}

// Two names of one server must never meet, nor one of the portal's own.
func FuzzBareNamesAreInjective(f *testing.F) {
	f.Add("s", "get_data", "get-data", uint8(64))
	f.Add("s", "get_b2345678", "get", uint8(40))
	f.Add("s", "portal_execute", "portal.execute", uint8(64))
	f.Add("get", "data.x", "get_data_x_"+hashOf("get", "data.x"), uint8(64))
	f.Add("s", "", "s_"+hashOf("s", ""), uint8(64))
	f.Fuzz(func(t *testing.T, server, n1, n2 string, limit uint8) {
		if strings.Contains(server, "\x00") {
			return // no server id has a zero byte; it separates id and name in the hash
		}
		o1, o2 := bareName(server, n1, int(limit)), bareName(server, n2, int(limit))
		for _, o := range []string{o1, o2} {
			if o == "" || len(o) > clampNameMax(int(limit)) || !isNameText(o) || strings.HasPrefix(o, ownPrefix) {
				t.Fatalf("outward name %q of server %q", o, server)
			}
		}
		if (o1 == o2) != (n1 == n2) {
			t.Fatalf("%q and %q of %q are %q and %q", n1, n2, server, o1, o2)
		}
		names := naming{max: clampNameMax(int(limit)), bare: true}
		i1, m1 := names.code(server, n1)
		i2, m2 := names.code(server, n2)
		if same := n1 == n2; (i1 == i2) != same || (m1 == m2) != same {
			t.Fatalf("%q and %q are %q and %q, members %q and %q, in code", n1, n2, i1, i2, m1, m2)
		}
	})
}
