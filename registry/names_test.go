package registry

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/upstreams"
)

var (
	outwardForm    = regexp.MustCompile(`\A[a-z0-9]+(-[a-z0-9]+)*_[A-Za-z0-9_-]+\z`)
	identifierForm = regexp.MustCompile(`\A[A-Za-z_$][A-Za-z0-9_$]*\z`)
	hashedForm     = regexp.MustCompile(`_[bcdfghjklmnpqrstvwxz][0-9bcdfghjklmnpqrstvwxz]{7}\z`)
)

func TestNames(t *testing.T) {
	for _, c := range []struct{ server, name, outward, identifier, member string }{
		// names that keep their letters
		{"dns", "zones_list", "dns_zones_list", "dns_zones_list", "zones_list"},
		{"github", "getUser", "github_getUser", "github_getUser", "getUser"},
		{"my-server", "get_data", "my-server_get_data", "myServer_get_data", "get_data"},
		{"shop", "get-data", "shop_get-data", "shop_get_data$", "get_data$"},
		{"my-server", "get-data", "my-server_get-data", "myServer_get_data$", "get_data$"},
		{"shop", "get-all_data", "shop_get-all_data", "shop_$get$all_data", "$get$all_data"},
		{"acme", "_status", "acme__status", "acme__status", "_status"},
		{"log-2", "tail", "log-2_tail", "log$2_tail", "tail"},
		{"1password", "list", "1password_list", "_1password_list", "list"},
		{"render", "3d", "render_3d", "render_$3d", "$3d"},
		{"a", "delete", "a_delete", "a_delete", "delete"},
		{"a", "then", "a_then", "a_then$", "then$"},
		{"a", "__proto__", "a___proto__", "a_proto$$", "proto$$"},
		{"twilio", "TwilioApiV2010--CreateMessage", "twilio_TwilioApiV2010--CreateMessage", "twilio_TwilioApiV2010__CreateMessage$", "TwilioApiV2010__CreateMessage$"},
		// dates and words of eight letters do not look like hashes
		{"a", "report_20240101", "a_report_20240101", "a_report_20240101", "report_20240101"},
		{"a", "list_messages", "a_list_messages", "a_list_messages", "list_messages"},
		{"a", "get_v2010xyz", "a_get_v2010xyz", "", ""}, // has a y, so no hash
	} {
		out := outwardName(c.server, c.name, 64)
		if out != c.outward {
			t.Errorf("outwardName(%q, %q) = %q, want %q", c.server, c.name, out, c.outward)
		}
		if c.identifier == "" {
			continue
		}
		if got := Identifier(out); got != c.identifier {
			t.Errorf("Identifier(%q) = %q, want %q", out, got, c.identifier)
		}
		if got := memberName(out); got != c.member {
			t.Errorf("memberName(%q) = %q, want %q", out, got, c.member)
		}
	}
	for _, c := range []struct{ server, name, prefix string }{
		{"vercel", "vercel.deploy", "vercel_vercel_deploy_"},
		{"foo", "foo/list", "foo_foo_list_"},
		{"foo", "foo.list", "foo_foo_list_"},
		{"a", "日本語", "a_"},
		{"a", "", "a_"},
		{"a", "héllo", "a_h_llo_"},
		{"a", "get_b2345678", "a_get_b2345678_"}, // looks hashed
		{"a", "b2345678", "a_b2345678_"},
		{"enterprise-database-management", strings.Repeat("x", 80), "enterprise-database-management_xxxx"},
		{"portal", "query_tools", "portal-"},
		{strings.Repeat("s", 60), "list", "sssssss"},
		{"UPPER_case", "list", "upper-case-"},
	} {
		for _, limit := range []int{40, 64} {
			out := outwardName(c.server, c.name, limit)
			if limit == 64 && !strings.HasPrefix(out, c.prefix) {
				t.Errorf("outwardName(%q, %q) = %q, want it to begin with %q", c.server, c.name, out, c.prefix)
			}
			if len(out) > limit || !outwardForm.MatchString(out) || out == c.server+"_"+c.name {
				t.Errorf("outwardName(%q, %q, %d) = %q", c.server, c.name, limit, out)
			}
		}
	}
	if a, b := outwardName("foo", "foo/list", 0), outwardName("foo", "foo.list", 0); a == b {
		t.Errorf("foo/list and foo.list are both %s", a)
	}
	// Pinned: clients, scripts and people remember names across versions.
	if got := outwardName("vercel", "vercel.deploy", 64); got != "vercel_vercel_deploy_"+hashOf("vercel", "vercel.deploy") || !hashedForm.MatchString(got) {
		t.Errorf("hashed name is %s", got)
	}
}

func TestServerIdentifiersDoNotHideGlobals(t *testing.T) {
	for id, want := range map[string]string{
		"github": "github", "my-server": "myServer", "codemode": "codemode_", "console": "console_", "sleep": "sleep_",
		"global-this": "globalThis_", "delete": "delete_", "fetch": "fetch_", "json": "json", "1password": "_1password", "a-1": "a$1",
	} {
		if got := ServerIdentifier(id); got != want {
			t.Errorf("ServerIdentifier(%q) = %q, want %q", id, got, want)
		}
	}
}

// uniqueNames checks every name of a snapshot's tools against every other.
func uniqueNames(t *testing.T, s *Snapshot, nameMax int) {
	t.Helper()
	outward, identifiers := map[string]*Tool{}, map[string]*Tool{}
	servers := map[string]bool{}
	for _, srv := range s.Servers {
		if servers[srv.Identifier] || !identifierForm.MatchString(srv.Identifier) {
			t.Errorf("server %s has identifier %q", srv.ID, srv.Identifier)
		}
		servers[srv.Identifier] = true
		members := map[string]bool{}
		for _, tool := range srv.Tools {
			if members[tool.Member] || !identifierForm.MatchString(tool.Member) {
				t.Errorf("%s/%s has member name %q", srv.ID, tool.Name, tool.Member)
			}
			members[tool.Member] = true
			if len(tool.Outward) > nameMax || !outwardForm.MatchString(tool.Outward) {
				t.Errorf("%s/%s has outward name %q", srv.ID, tool.Name, tool.Outward)
			}
			if other := outward[tool.Outward]; other != nil {
				t.Errorf("%s/%s and %s/%s are both %s", srv.ID, tool.Name, other.Server, other.Name, tool.Outward)
			}
			if !identifierForm.MatchString(tool.Identifier) || identifiers[tool.Identifier] != nil {
				t.Errorf("%s/%s has identifier %q", srv.ID, tool.Name, tool.Identifier)
			}
			outward[tool.Outward], identifiers[tool.Identifier] = tool, tool
		}
	}
}

func TestRealToolsKeepTheirNamesApart(t *testing.T) {
	real, large := namesOnly(t, dumps(t)), namesOnly(t, crawl(t))
	for _, c := range []struct {
		what       string
		catalogues map[string]*upstreams.Catalogue
		tools      int
	}{{"dumps", real, 1928}, {"crawl", large, 9970}} {
		for _, limit := range []int{40, 64} {
			s := loadedAtOnce(t, c.catalogues, limit).Snapshot()
			if len(s.Tools()) < c.tools {
				t.Errorf("%s: only %d tools of at least %d came through", c.what, len(s.Tools()), c.tools)
			}
			uniqueNames(t, s, limit)
			hashed := 0
			for _, tool := range s.Tools() {
				if tool.Outward != tool.Server+"_"+tool.Name {
					hashed++
				}
			}
			t.Logf("%s at %d: %d of %d names do not keep their letters", c.what, limit, hashed, len(s.Tools()))
		}
	}
}

// namesOnly are the catalogues without anything that takes time to read.
func namesOnly(t *testing.T, catalogues map[string]*upstreams.Catalogue) map[string]*upstreams.Catalogue {
	out := map[string]*upstreams.Catalogue{}
	for id, c := range catalogues {
		var names []string
		for _, raw := range c.Tools {
			var d struct{ Name string }
			if err := json.Unmarshal(raw, &d); err != nil {
				t.Fatalf("%s: %v", id, err)
			}
			names = append(names, d.Name)
		}
		out[id] = named(names...)
	}
	return out
}

// A limit changes what does not fit into it, and nothing else.
func TestNameMaxChangesLengthsOnly(t *testing.T) {
	names := namesOnly(t, dumps(t))
	long, short := loadedAtOnce(t, names, 64).Snapshot(), loadedAtOnce(t, names, 40).Snapshot()
	for _, tool := range long.Tools() {
		other := short.ToolByIdentity(tool.Server, tool.Name)
		if other == nil {
			t.Fatalf("%s/%s is missing at 40", tool.Server, tool.Name)
		}
		if len(tool.Outward) <= 40 && !hashedForm.MatchString(tool.Outward) && other.Outward != tool.Outward {
			t.Errorf("%s became %s though it fits", tool.Outward, other.Outward)
		}
		if string(other.Raw) != string(tool.Raw) {
			t.Errorf("%s: the definition changed", tool.Outward)
		}
	}
}

// B050, B052, B059: equal tool names, names that begin with the separator, and
// servers coming and going in either order never move a name.
func TestNamesDoNotDependOnOtherServersOrOrder(t *testing.T) {
	catalogues := map[string]*upstreams.Catalogue{
		"a": named("send_email"), "b": named("send_email"),
		"acme": named("status", "_status", "x_status"), "acme-x": named("status", "_status"),
		"my": named("server_get", "get-stock", "get_stock"), "my-server": named("get", "get_stock"),
	}
	want := map[string]string{
		"a_send_email": "a/send_email", "b_send_email": "b/send_email",
		"acme_status": "acme/status", "acme__status": "acme/_status", "acme_x_status": "acme/x_status",
		"acme-x_status": "acme-x/status", "acme-x__status": "acme-x/_status",
		"my_server_get": "my/server_get", "my-server_get": "my-server/get",
		"my_get-stock": "my/get-stock", "my_get_stock": "my/get_stock", "my-server_get_stock": "my-server/get_stock",
	}
	ids := []string{"a", "acme", "acme-x", "b", "my", "my-server"}
	for range 2 {
		slices.Reverse(ids)
		r := New(Options{Log: quiet()})
		servers := map[string]config.Server{}
		seen := map[string]string{}
		for _, id := range ids {
			servers[id] = config.Server{URL: "https://" + id + ".example"}
			r.SetServers(servers)
			slices.Reverse(catalogues[id].Tools)
			r.Update(id, catalogues[id])
			for _, tool := range r.Snapshot().Tools() {
				identity := tool.Server + "/" + tool.Name
				if old, ok := seen[identity]; ok && old != tool.Outward+" "+tool.Identifier {
					t.Errorf("%s was %s and is %s %s after %s came", identity, old, tool.Outward, tool.Identifier, id)
				}
				seen[identity] = tool.Outward + " " + tool.Identifier
			}
		}
		s := r.Snapshot()
		if len(s.Tools()) != len(want) {
			t.Errorf("%d tools, want %d", len(s.Tools()), len(want))
		}
		for outward, identity := range want {
			if tool := s.Tool(outward); tool == nil || tool.Server+"/"+tool.Name != identity {
				t.Errorf("%s leads to %+v, want %s", outward, tool, identity)
			}
		}
		if a, b := s.ToolByIdentity("my", "get_stock"), s.ToolByIdentity("my", "get-stock"); a.Identifier != "my_get_stock" || b.Identifier == a.Identifier {
			t.Errorf("the exact name must own its identifier: %s, %s", a.Identifier, b.Identifier)
		}
		uniqueNames(t, s, 64)
		r.Close()
	}
}

func TestPromptsAreNamedLikeTools(t *testing.T) {
	r := loaded(t, map[string]*upstreams.Catalogue{"a-b": {Prompts: raws(`{"name":"sum.up","description":"x"}`, `{"name":"greet","arguments":null}`, `{"title":"no name"}`)}}, 0)
	s := r.Snapshot()
	if p := s.Prompt("a-b_greet"); p == nil || string(p.Outer) != `{"name":"a-b_greet"}` || p.Name != "greet" {
		t.Errorf("prompt: %+v", p)
	}
	if p := s.Prompt(outwardName("a-b", "sum.up", 0)); p == nil || p.Name != "sum.up" {
		t.Errorf("prompt with a dot: %+v", p)
	}
	if w := s.Server("a-b").Warnings; len(w) != 1 || !strings.Contains(w[0], "prompt 3") {
		t.Errorf("warnings: %q", w)
	}
}

// Two names must never meet, whatever they are.
func FuzzNamesAreInjective(f *testing.F) {
	f.Add("my", "server_get", "my-server", "get", uint8(64))
	f.Add("a", "get-data", "a", "get_data", uint8(40))
	f.Add("a", "a_b-", "a", "a-b", uint8(64))
	f.Add("a", "-a_b", "a", "--a_b", uint8(64))
	f.Add("a", "then", "a", "then-", uint8(64))
	f.Add("a", "__proto__", "a", "--proto--", uint8(64))
	f.Add("a", "3d", "a", "-3d", uint8(64))
	f.Add("x-bcdfghjk", "n", "x", "n", uint8(64))
	f.Add("a", "get_b2345678", "a", "get", uint8(64))
	f.Add("1a", "b", "-1a", "b", uint8(64))
	f.Fuzz(func(t *testing.T, s1, n1, s2, n2 string, limit uint8) {
		if strings.Contains(s1+s2, "\x00") {
			return // no server id has a zero byte; it separates id and name in the hash
		}
		most := clampNameMax(int(limit))
		o1, o2 := outwardName(s1, n1, int(limit)), outwardName(s2, n2, int(limit))
		same := s1 == s2 && n1 == n2
		for _, o := range []string{o1, o2} {
			if len(o) > most || !outwardForm.MatchString(o) {
				t.Fatalf("outward name %q at %d", o, most)
			}
			if id := Identifier(o); !identifierForm.MatchString(id) {
				t.Fatalf("identifier %q of %q", id, o)
			}
		}
		if (o1 == o2) != same {
			t.Fatalf("(%q,%q) and (%q,%q) are %q and %q", s1, n1, s2, n2, o1, o2)
		}
		if (Identifier(o1) == Identifier(o2)) != same {
			t.Fatalf("%q and %q have identifiers %q and %q", o1, o2, Identifier(o1), Identifier(o2))
		}
		p1, p2 := strings.SplitN(o1, "_", 2), strings.SplitN(o2, "_", 2)
		if p1[0] == p2[0] && p1[1] != p2[1] && memberName(o1) == memberName(o2) {
			t.Fatalf("%q and %q are both member %q", o1, o2, memberName(o1))
		}
		if (ServerIdentifier(s1) == ServerIdentifier(s2)) != (s1 == s2) {
			t.Fatalf("servers %q and %q are %q and %q", s1, s2, ServerIdentifier(s1), ServerIdentifier(s2))
		}
	})
}

// FuzzIdentifier searches the whole space of outward characters for two that
// meet: every text within one change of dashes, underscores and dollars.
func FuzzIdentifier(f *testing.F) {
	for _, s := range []string{"a_b-c", "my-server_x", "a__-b", "a_-", "1-2_3-4", "a-b", "", "_", "-_-", "a_then", "a_--proto--"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 24 || !isNameText(s) {
			return
		}
		id := Identifier(s)
		if !identifierForm.MatchString(id) {
			t.Fatalf("Identifier(%q) = %q", s, id)
		}
		for i := range s {
			for _, c := range "-_aA1" {
				for _, other := range []string{s[:i] + string(c) + s[i+1:], s[:i] + string(c) + s[i:], s[:i] + s[i+1:]} {
					if other != s && Identifier(other) == id {
						t.Fatalf("%q and %q are both %q", s, other, id)
					}
				}
			}
		}
	})
}

// All short names, so that the proof in the comments is also tried out.
func TestShortNamesExhaustively(t *testing.T) {
	const letters = "aA1-_"
	seen := map[string]string{}
	var walk func(s string)
	walk = func(s string) {
		if len(s) > 0 {
			id := Identifier(s)
			if other, ok := seen[id]; ok {
				t.Fatalf("%q and %q are both %q", s, other, id)
			}
			seen[id] = s
		}
		if len(s) < 7 {
			for _, c := range letters {
				walk(s + string(c))
			}
		}
	}
	walk("")
	if len(seen) < 90000 {
		t.Fatalf("only %d names tried", len(seen))
	}
}

func TestCollidingHashesWithholdBoth(t *testing.T) {
	// A collision cannot be made in a test, but two definitions can be given
	// one outward name.
	s := &Server{ID: "a"}
	list := raws(`{"name":"x","inputSchema":{"type":"object"}}`, `{"name":"y","inputSchema":{"type":"object"}}`)
	s.addTools(config.Server{ID: "a"}, list, naming{max: 64}, false, nil)
	if len(s.Tools) != 2 {
		t.Fatalf("tools: %v", s.Tools)
	}
	twin := *s.Tools[0]
	twin.Name = "z"
	kept, withheld := withoutTwins([]listed{{tool: s.Tools[0]}, {tool: &twin}, {tool: s.Tools[1]}})
	if len(kept) != 1 || kept[0].tool.Name != "y" || len(withheld) != 2 {
		t.Errorf("kept %v, withheld %v", kept, withheld)
	}
}

func TestOutwardNameIsInTheDefinition(t *testing.T) {
	for _, tool := range loaded(t, dumps(t), 0).Snapshot().Tools() {
		var d struct{ Name string }
		if err := json.Unmarshal(tool.Outer, &d); err != nil || d.Name != tool.Outward {
			t.Fatalf("%s: %q %v", tool.Outward, d.Name, err)
		}
	}
}
