package e2e

import (
	"encoding/json"
	"os"
	"sort"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tiktoken-go/tokenizer"
)

// tokens counts as the o200k_base vocabulary does.
func tokens(t *testing.T, v any) int {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	enc, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	n, err := enc.Count(string(b))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The first job, task T02 of the corpus: which DNS records in any zone still
// point at 198.51.100.7. Solved with the two tools, and the classic way, with
// the tokens of each.
func TestFirstJob(t *testing.T) {
	raw, err := os.ReadFile("../examples/company/testdata/tasks.json")
	if err != nil {
		t.Fatal(err)
	}
	var corpus struct {
		Tasks []struct {
			ID     string          `json:"id"`
			Answer json.RawMessage `json:"answer"`
		} `json:"tasks"`
	}
	if err := json.Unmarshal(raw, &corpus); err != nil {
		t.Fatal(err)
	}
	var want [][]string
	for _, task := range corpus.Tasks {
		if task.ID == "T02" {
			if err := json.Unmarshal(task.Answer, &want); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(want) < 100 {
		t.Fatalf("the corpus has %d records for T02", len(want))
	}
	p := demo(t)
	for _, e := range eras {
		s := connect(t, p, e, "optimize_context=search_and_execute", nil)
		list, err := s.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		used := tokens(t, list.Tools)

		find := map[string]any{"query": "list dns zones and their records", "detail": "full", "limit": 3}
		found := call(t, s, "portal_query_tools", find)
		used += tokens(t, find) + tokens(t, found.Content)
		for _, name := range []string{"dns_zones_list", "dns_records_list"} {
			if !strings.Contains(text(t, found), name) {
				t.Fatalf("era %s: the search does not find %s:\n%s", e, name, text(t, found))
			}
		}
		run := map[string]any{"code": `
			const all = async (fetchPage) => { const out = []; for (let page = 1; ; page++) { const r = await fetchPage(page); out.push(...r.result); if (page >= r.result_info.total_pages) return out; } };
			const zones = await all(page => codemode.dns_zones_list({page, per_page: 50}));
			const hits = await Promise.all(zones.map(async z => (await all(page => codemode.dns_records_list({zone_id: z.id, page}))).filter(r => r.content === '198.51.100.7').map(r => [z.name, r.name, r.type])));
			return hits.flat();`}
		res := call(t, s, "portal_execute", run)
		used += tokens(t, run) + tokens(t, res.Content)
		var got [][]string
		if err := json.Unmarshal([]byte(text(t, res)), &got); err != nil {
			t.Fatalf("era %s: %v in %s", e, err, text(t, res))
		}
		sortRows(got)
		sortRows(want)
		if a, b := string(mustJSON(got)), string(mustJSON(want)); a != b {
			t.Errorf("era %s: %d records, want %d\n%s", e, len(got), len(want), a)
		}
		classic := classicTokens(t, connect(t, p, e, "", nil), want)
		t.Logf("era %s: two tools %d tokens, all tools and every page through the model %d tokens, %.1f times as many (o200k_base)", e, used, classic, float64(classic)/float64(used))
		if used*5 > classic {
			t.Errorf("era %s: the two tools cost %d tokens, the classic way %d: less than a fifth was expected", e, used, classic)
		}
	}
}

// classicTokens does the job call by call, as a model would, and counts what
// passes through it once: the list of tools, every call, every result.
func classicTokens(t *testing.T, s *mcp.ClientSession, want [][]string) int {
	t.Helper()
	list, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	n := tokens(t, list.Tools)
	type pageOf struct {
		Result []struct {
			ID, Name, Type, Content string
		} `json:"result"`
		Info struct {
			TotalPages int `json:"total_pages"`
		} `json:"result_info"`
	}
	pages := func(tool string, args map[string]any) (out []struct{ ID, Name, Type, Content string }) {
		for page := 1; ; page++ {
			args["page"] = page
			res := call(t, s, tool, args)
			n += tokens(t, args) + tokens(t, res.Content)
			var p pageOf
			if err := json.Unmarshal([]byte(text(t, res)), &p); err != nil {
				t.Fatal(err)
			}
			out = append(out, p.Result...)
			if page >= p.Info.TotalPages {
				return out
			}
		}
	}
	var got [][]string
	for _, z := range pages("dns_zones_list", map[string]any{"per_page": 50}) {
		for _, r := range pages("dns_records_list", map[string]any{"zone_id": z.ID}) {
			if r.Content == "198.51.100.7" {
				got = append(got, []string{z.Name, r.Name, r.Type})
			}
		}
	}
	sortRows(got)
	if string(mustJSON(got)) != string(mustJSON(want)) {
		t.Fatalf("the classic way found %d records, want %d", len(got), len(want))
	}
	return n
}

func sortRows(rows [][]string) {
	sort.Slice(rows, func(i, j int) bool { return strings.Join(rows[i], "\x00") < strings.Join(rows[j], "\x00") })
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// The two tools cost the model little, with few servers and with many.
func TestTwoToolsAreSmall(t *testing.T) {
	p := demo(t)
	s := connect(t, p, legacy, "optimize_context=search_and_execute", nil)
	list, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	n := tokens(t, list.Tools)
	t.Logf("definitions of the two tools: %d tokens (o200k_base)", n)
	if n > 900 {
		t.Errorf("the two definitions cost %d tokens", n)
	}
	for _, tool := range list.Tools {
		if len(tool.Description) > 2000 {
			t.Errorf("%s: some clients cut descriptions at 2,000 characters; this one has %d", tool.Name, len(tool.Description))
		}
	}
}
