package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/upstreams"
)

func tool(name, description string) json.RawMessage {
	b, _ := json.Marshal(map[string]any{"name": name, "description": description, "inputSchema": map[string]any{"type": "object", "properties": map[string]any{}}})
	return b
}

func found(t *testing.T, s *Snapshot, q Query) []string {
	t.Helper()
	r, err := s.Search(q, nil)
	if err != nil {
		t.Fatalf("%+v: %v", q, err)
	}
	var out []string
	for _, h := range r.Hits {
		out = append(out, h.Tool.Outward)
	}
	return out
}

// shop is a small catalogue for rules.
func shop(t testing.TB) *Snapshot {
	decoy := strings.Repeat("This helper can talk about light, rig, three and point in any order. ", 40)
	return loaded(t, map[string]*upstreams.Catalogue{
		"scene": {Tools: []json.RawMessage{tool("light_rig_three_point", "Builds it."), tool("describe_everything", decoy), tool("createSphere", "Adds one."), tool("node_group_list", "Lists them."), tool("ipAddress", "Tells it.")}},
		"chat":  {Tools: []json.RawMessage{tool("CreateMessage", "Posts to a channel."), tool("search", "Finds posts."), tool("delete_channel", "Removes a channel.")}},
		"mail":  {Tools: []json.RawMessage{tool("search", "Finds mail."), tool("search_folder", "Finds a folder.")}},
		"hooks": {Tools: []json.RawMessage{tool("webhook-create", "Makes one."), tool("pull_request_read", "Reads one."), {}, []byte(`{"name":"param","description":"d","inputSchema":{"type":"object","properties":{"zoneName":{"type":"string","description":"name of the hosted territory"}}}}`)}},
	}, 0).Snapshot()
}

func TestSearchRanks(t *testing.T) {
	s := shop(t)
	for _, c := range []struct{ what, text, first string }{
		{"B070: the name beats a long description", "light rig three point", "scene_light_rig_three_point"},
		{"B068: one word of a camelCase name", "sphere", "scene_createSphere"},
		{"B068: one word of a snake_case name", "group", "scene_node_group_list"},
		{"B068: a short word", "ip", "scene_ipAddress"},
		{"other words for the same", "send text", "chat_CreateMessage"},
		{"another verb", "remove channel", "chat_delete_channel"},
		{"endings", "deleting channels", "chat_delete_channel"},
		{"a misspelling", "chanel delete", "chat_delete_channel"},
		{"swapped letters", "shpere", "scene_createSphere"},
		{"the beginning of a word", "addr", "scene_ipAddress"},
		{"two words for one", "web hook", "hooks_webhook-create"},
		{"one word for two", "pullrequest", "hooks_pull_request_read"},
		{"a parameter's name", "zone name", "hooks_param"},
		{"a parameter's description", "territory", "hooks_param"},
		{"the server named in the query", "search in mail", "mail_search"},
		{"the server named in the query", "search in chat", "chat_search"},
		{"an exact name in a sentence", "how do I use webhook-create for the channel?", "hooks_webhook-create"},
	} {
		if got := found(t, s, Query{Text: c.text}); len(got) == 0 || got[0] != c.first {
			t.Errorf("%s: %q finds %v, want %s first", c.what, c.text, got, c.first)
		}
	}
	for _, nothing := range []string{"zzzzqqqq", "the of and", "?!"} {
		if got := found(t, s, Query{Text: nothing}); len(got) != 0 {
			t.Errorf("%q finds %v", nothing, got)
		}
	}
}

// B067: exact names always come, ahead of everything ranked.
func TestExactNamesComeFirst(t *testing.T) {
	c := &upstreams.Catalogue{}
	var want []string
	for i := range 120 {
		name := fmt.Sprintf("record_item_%d", i)
		c.Tools = append(c.Tools, tool(name, "record item item record"))
		if i%20 == 7 {
			want = append(want, "s_"+name)
		}
	}
	s := loaded(t, map[string]*upstreams.Catalogue{"s": c, "t": named("record_item_7", "a-b")}, 0).Snapshot()
	for _, q := range []Query{{Names: want}, {Text: strings.Join(want, ", ")}, {Text: "record item " + strings.Join(want, " "), Limit: 6}, {Names: want, Text: "item"}} {
		if got := found(t, s, q); len(got) < 6 || !slices.Equal(got[:6], want) {
			t.Errorf("%+v finds %v", q, got)
		}
	}
	r, err := s.Search(Query{Names: []string{"s/record_item_1", "record_item_7", "codemode.t_a_b$", "t.a_b$", "t_a-b", "nope", "S_RECORD_ITEM_1"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, h := range r.Hits {
		if !h.Exact {
			t.Errorf("%s is not marked exact", h.Tool.Outward)
		}
		got = append(got, h.Tool.Outward)
	}
	if !slices.Equal(got, []string{"s_record_item_1", "s_record_item_7", "t_record_item_7", "t_a-b"}) || r.Total != 4 {
		t.Errorf("hits %v", got)
	}
	if !slices.Equal(r.Unknown, []string{"nope", "S_RECORD_ITEM_1"}) {
		t.Errorf("unknown %v", r.Unknown)
	}
}

func TestSearchFilters(t *testing.T) {
	s := shop(t)
	for _, c := range []struct {
		q    Query
		want string
	}{
		{Query{Pattern: `^search$`}, "chat_search mail_search"},
		{Query{Pattern: `SEARCH`, Servers: []string{"mail"}}, "mail_search mail_search_folder"},
		{Query{Pattern: `hosted\s+territory`}, "hooks_param"},
		{Query{Pattern: `^chat$`}, "chat_CreateMessage chat_delete_channel chat_search"},
		{Query{Servers: []string{"mail", "chat"}, Limit: 2, Offset: 1}, "chat_delete_channel chat_search"},
		{Query{Servers: []string{"mail"}, Offset: 5}, ""},
		{Query{Text: "search", Pattern: "folder"}, "mail_search_folder"},
		{Query{Names: []string{"search"}, Servers: []string{"mail"}}, "mail_search"},
	} {
		if got := strings.Join(found(t, s, c.q), " "); got != c.want {
			t.Errorf("%+v: %s, want %s", c.q, got, c.want)
		}
	}
	r, _ := s.Search(Query{Servers: []string{"chat"}, Limit: 1}, nil)
	if r.Total != 3 || len(r.Hits) != 1 {
		t.Errorf("total %d, hits %d", r.Total, len(r.Hits))
	}
	all, _ := s.Search(Query{}, nil)
	if all.Total != len(s.Tools()) {
		t.Errorf("an empty query gives %d of %d", all.Total, len(s.Tools()))
	}
}

func TestSearchShowsOnlyWhatIsVisible(t *testing.T) {
	s := shop(t)
	noChat := func(t *Tool) bool { return t.Server != "chat" && t.Name != "createSphere" }
	for _, q := range []Query{{Text: "create message channel sphere"}, {Names: []string{"CreateMessage", "chat/search", "createSphere"}}, {Pattern: "."}, {}} {
		r, err := s.Search(q, noChat)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range r.Hits {
			if !noChat(h.Tool) {
				t.Errorf("%+v shows %s", q, h.Tool.Outward)
			}
		}
		if r.Total != len(r.Hits) || len(q.Names) != len(r.Unknown) {
			t.Errorf("%+v: total %d of %d hits, unknown %v", q, r.Total, len(r.Hits), r.Unknown)
		}
	}
	_, err := s.Search(Query{Text: "x", Servers: []string{"chat"}}, noChat)
	var unknown *UnknownServerError
	if !errors.As(err, &unknown) || slices.Contains(unknown.Nearest, "chat") {
		t.Errorf("an invisible server is %v", err)
	}
}

func TestSearchErrors(t *testing.T) {
	s := shop(t)
	var unknown *UnknownServerError
	if _, err := s.Search(Query{Servers: []string{"mial"}}, nil); !errors.As(err, &unknown) || len(unknown.Nearest) == 0 || unknown.Nearest[0] != "mail" || !strings.Contains(err.Error(), "mail") {
		t.Errorf("unknown server: %v", err)
	}
	// B073: patterns that hurt backtracking engines, or this one.
	for pattern, want := range map[string]string{
		"ab[":                     "character 3",
		"a(?=b)":                  "RE2",
		"(x":                      "missing closing )",
		strings.Repeat("a", 5000): "more than 1000",
		strings.Repeat("x{900}", 5) + "(y{30}){30}": "too large",
	} {
		var bad *PatternError
		if _, err := s.Search(Query{Pattern: pattern}, nil); !errors.As(err, &bad) || !strings.Contains(err.Error(), want) || len(err.Error()) > 300 {
			t.Errorf("%.20q: %v, want %q", pattern, err, want)
		}
	}
	for _, pattern := range []string{`^(?:[\s\S]*)*\x00`, `(a+)+$`, `(.*)*(.*)*x$`} {
		if _, err := s.Search(Query{Pattern: pattern}, nil); err != nil {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}

func TestSearchIsDeterministic(t *testing.T) {
	catalogues := map[string]*upstreams.Catalogue{"b": named("same_thing"), "a": named("same_thing"), "c": named("same_thing", "other_thing")}
	var before []string
	for range 5 {
		got := found(t, loaded(t, catalogues, 0).Snapshot(), Query{Text: "same thing"})
		if before != nil && !slices.Equal(got, before) {
			t.Fatalf("%v, then %v", before, got)
		}
		before = got
	}
	if !slices.Equal(before[:3], []string{"a_same_thing", "b_same_thing", "c_same_thing"}) {
		t.Errorf("ties are %v", before)
	}
}

func TestWords(t *testing.T) {
	for in, want := range map[string]string{
		"TwilioApiV2010--CreateMessage": "twilio api v 2010 create message",
		"getHTTPServerURL2":             "get http server url 2",
		"list_dns.records/all-of":       "list dns records all of",
		"Größe ÄNDERN":                  "größe ändern",
		"搜索ab":                          "搜 索 ab",
		"a\xffb":                        "a b",
		"":                              "",
	} {
		var got []string
		words(in, func(w string) { got = append(got, w) })
		if strings.Join(got, " ") != want {
			t.Errorf("words(%q) = %v, want %s", in, got, want)
		}
	}
	for _, family := range []string{"create creates created creating creation", "repository repositories", "deploy deploys deployed deployment deployments", "message messages messaging", "box boxes", "process processes processing processed", "stop stopped stopping", "notify notifies"} {
		list := strings.Fields(family)
		for _, w := range list[1:] {
			if stem(w) != stem(list[0]) {
				t.Errorf("%s is %s, %s is %s", w, stem(w), list[0], stem(list[0]))
			}
		}
	}
	for a, b := range map[string]string{"user": "use", "order": "ord", "status": "stat", "comment": "com", "action": "active", "station": "state", "folder": "fold"} {
		if stem(a) == stem(b) {
			t.Errorf("%s and %s are one word", a, b)
		}
	}
	for _, c := range []struct {
		a, b string
		want bool
	}{{"channel", "chanel", true}, {"sphere", "shpere", true}, {"sphere", "spheres", true}, {"abcde", "abxde", true}, {"abcde", "abcde", true}, {"abcde", "xbcdy", false}, {"abc", "abcde", false}, {"", "a", true}} {
		if oneEdit(c.a, c.b) != c.want || oneEdit(c.b, c.a) != c.want {
			t.Errorf("oneEdit(%q, %q) is not %v", c.a, c.b, c.want)
		}
	}
}

func FuzzSearch(f *testing.F) {
	f.Add("send text message", "^a", "x")
	f.Add("搜索 web\xffhook", "[", "codemode.")
	s := shop(f)
	f.Fuzz(func(t *testing.T, text, pattern, name string) {
		r, err := s.Search(Query{Text: text, Pattern: pattern, Names: []string{name}}, nil)
		if err == nil && r.Total != len(r.Hits) {
			t.Fatalf("total %d, hits %d", r.Total, len(r.Hits))
		}
		for i := 1; i < len(r.Hits); i++ {
			if a, b := r.Hits[i-1], r.Hits[i]; !a.Exact && (b.Exact || a.Score < b.Score) {
				t.Fatalf("%v before %v", a, b)
			}
		}
	})
}

// B071: one index for everyone who searches a snapshot.
func TestIndexIsBuiltOnce(t *testing.T) {
	r := loaded(t, dumps(t), 0)
	s := r.Snapshot()
	var wg sync.WaitGroup
	results := make([][]string, 50)
	for i := range results {
		wg.Go(func() {
			res, err := s.Search(Query{Text: "create dns record", Limit: 10}, nil)
			if err != nil {
				t.Error(err)
			}
			for _, h := range res.Hits {
				results[i] = append(results[i], h.Tool.Outward)
			}
		})
	}
	wg.Wait()
	for _, got := range results {
		if len(got) != 10 || !slices.Equal(got, results[0]) {
			t.Fatalf("%v and %v", got, results[0])
		}
	}
	x := s.index
	r.SetStatus(upstreams.Status{Server: "github", State: upstreams.Degraded})
	if r.Snapshot().index != x {
		t.Error("a change of state costs a new index")
	}
	r.Update("everything", named("new_one"))
	if got := found(t, r.Snapshot(), Query{Text: "new one", Limit: 1}); got[0] != "everything_new_one" {
		t.Errorf("a new tool is not found: %v", got)
	}
}

// With 10,000 tools around them, the tools wanted are still found about as
// often as the baseline finds them (.61 with all 53 servers).
func TestSearchWithManyDistractors(t *testing.T) {
	all := crawl(t)
	for id, c := range dumps(t) {
		delete(all, id)
		all[id] = c
	}
	s := loadedAtOnce(t, all, 0).Snapshot()
	r := measure(t, s, portalQueries(t))
	t.Logf("%d tools: %s", len(s.Tools()), r)
	if r.at[5] < 0.61 {
		t.Errorf("recall@5 is %.3f", r.at[5])
	}
}

// loadedAtOnce is loaded with one snapshot for all: with hundreds of servers,
// making one for each is what would take the time.
func loadedAtOnce(t testing.TB, catalogues map[string]*upstreams.Catalogue, nameMax int) *Registry {
	servers := map[string]config.Server{}
	for id := range catalogues {
		servers[id] = config.Server{ID: id, URL: "https://" + id + ".example/mcp"}
	}
	r := New(Options{Log: quiet(), Catalog: config.Catalog{NameMax: nameMax}})
	t.Cleanup(r.Close)
	r.SetServers(servers)
	r.change(func() bool {
		for id, e := range r.servers {
			e.catalogue = catalogues[id]
			e.build(r.nameMax)
		}
		return true
	})
	return r
}

func BenchmarkSearch(b *testing.B) {
	large := crawl(b)
	for _, c := range []struct {
		name string
		s    *Snapshot
	}{{"dumps", loaded(b, dumps(b), 0).Snapshot()}, {"crawl", loadedAtOnce(b, large, 0).Snapshot()}} {
		for _, q := range []Query{{Text: "create dns record", Limit: 10}, {Text: "give the customer their money back", Limit: 10}, {Text: "misspeled querry", Limit: 10}, {Pattern: "list.*issue", Limit: 10}} {
			b.Run(fmt.Sprintf("%s-%d/%s%s", c.name, len(c.s.Tools()), q.Text, q.Pattern), func(b *testing.B) {
				c.s.searchIndex()
				b.ReportAllocs()
				for b.Loop() {
					if _, err := c.s.Search(q, nil); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		b.Run(c.name+"/index", func(b *testing.B) {
			for b.Loop() {
				(&index{}).build(c.s.Servers)
			}
		})
	}
	b.Run("quality", func(b *testing.B) {
		s, queries := loaded(b, dumps(b), 0).Snapshot(), portalQueries(b)
		var r recall
		start := time.Now()
		n := 0
		for b.Loop() {
			r = measure(b, s, queries)
			n++
		}
		b.ReportMetric(r.at[1], "recall@1")
		b.ReportMetric(r.at[5], "recall@5")
		b.ReportMetric(r.at[10], "recall@10")
		b.ReportMetric(float64(time.Since(start).Microseconds())/float64(n*r.n), "µs/query")
	})
}

// BenchmarkBuild is one server's whole catalogue taken in: outward forms,
// names and words, but not the index.
func BenchmarkBuild(b *testing.B) {
	c := dumps(b)["github"]
	b.ReportAllocs()
	for b.Loop() {
		buildServer(config.Server{ID: "github"}, c, 64, nil)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(c.Tools)), "µs/tool")
}

// Where a query does not say what to do, looking comes first; where it asks for
// a change, the change does.
func TestLookingComesFirst(t *testing.T) {
	s := loaded(t, map[string]*upstreams.Catalogue{"dns": {Tools: []json.RawMessage{
		tool("record_delete", "Delete a DNS record"), tool("record_create", "Create a DNS record"), tool("records_list", "List DNS records of a zone"), tool("zone_delete", "Delete a zone")}}}, 0).Snapshot()
	for query, want := range map[string]string{"dns records": "dns_records_list", "delete dns record": "dns_record_delete", "create a record": "dns_record_create"} {
		r, err := s.Search(Query{Text: query}, nil)
		if err != nil || len(r.Hits) == 0 || r.Hits[0].Tool.Outward != want {
			t.Errorf("%q: first is %v (%v), want %s", query, r.Hits, err, want)
		}
	}
}
