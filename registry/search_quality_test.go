package registry

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams"
)

// wanted is a query with the tools that answer it: one group of alternatives,
// or several groups of which each must be hit.
type wanted struct {
	ID     string     `json:"id"`
	Query  string     `json:"query"`
	Style  string     `json:"style"`
	AnyOf  []string   `json:"gold_any_of"`
	AllOf  [][]string `json:"gold_all_of"`
	Server string     `json:"server"`
}

func (w wanted) groups() [][]string {
	if w.AllOf != nil {
		return w.AllOf
	}
	return [][]string{w.AnyOf}
}

// recall is the mean share of groups with a hit among the first k.
type recall struct {
	at   map[int]float64
	ndcg float64
	n    int
}

func (r recall) String() string {
	return fmt.Sprintf("recall@1 %.3f  @5 %.3f  @10 %.3f  nDCG@10 %.3f  (%d queries)", r.at[1], r.at[5], r.at[10], r.ndcg, r.n)
}

func measure(t testing.TB, s *Snapshot, queries []wanted) recall {
	t.Helper()
	r := recall{at: map[int]float64{}}
	for _, q := range queries {
		groups := q.groups()
		if len(groups) == 0 || len(groups[0]) == 0 {
			continue
		}
		res, err := s.Search(Query{Text: q.Query, Limit: 50}, nil)
		if err != nil {
			t.Fatalf("%s: %v", q.ID, err)
		}
		rank := map[string]int{}
		for i, h := range res.Hits {
			rank[h.Tool.Server+"/"+h.Tool.Name] = i
		}
		seen := map[int]bool{}
		r.n++
		for _, g := range groups {
			pos := math.MaxInt
			for _, id := range g {
				if p, ok := rank[id]; ok {
					pos = min(pos, p)
				}
			}
			for _, k := range []int{1, 5, 10} {
				if pos < k {
					r.at[k] += 1 / float64(len(groups))
				}
			}
			if pos < 10 {
				seen[pos] = true
			}
		}
		ideal, got := 0.0, 0.0
		for i := range min(10, len(groups)) {
			ideal += 1 / math.Log2(float64(i)+2)
		}
		for p := range seen {
			got += 1 / math.Log2(float64(p)+2)
		}
		r.ndcg += got / ideal
	}
	for k := range r.at {
		r.at[k] /= float64(r.n)
	}
	r.ndcg /= float64(r.n)
	return r
}

func portalQueries(t testing.TB) []wanted {
	var f struct{ Queries []wanted }
	readJSON(t, "retrieval/portal-queries-dev.json", &f)
	return f.Queries
}

// liveMCP is another catalogue with tasks and single steps over it.
func liveMCP(t testing.TB) (catalogue map[string]*upstreams.Catalogue, tasks, steps []wanted) {
	var c struct {
		Tools []struct {
			Server, Name, Description string
			InputSchema               json.RawMessage `json:"inputSchema"`
		}
	}
	readJSON(t, "retrieval/livemcpbench-catalogue.json", &c)
	catalogue = map[string]*upstreams.Catalogue{}
	for _, tool := range c.Tools {
		if catalogue[tool.Server] == nil {
			catalogue[tool.Server] = &upstreams.Catalogue{}
		}
		b, err := json.Marshal(map[string]any{"name": tool.Name, "description": tool.Description, "inputSchema": tool.InputSchema})
		if err != nil {
			t.Fatal(err)
		}
		catalogue[tool.Server].Tools = append(catalogue[tool.Server].Tools, b)
	}
	var q struct {
		Queries []wanted `json:"queries"`
		Steps   []wanted `json:"step_queries"`
	}
	readJSON(t, "retrieval/livemcpbench-queries-dev.json", &q)
	return catalogue, q.Queries, q.Steps
}

// The floors are the best lexical baseline measured on the same queries, BM25
// over weighted fields. Text queries are one annotator's: other right answers
// exist, so the numbers compare searchers and are no absolute quality.
func TestSearchFindsAtLeastWhatTheBaselineFinds(t *testing.T) {
	portal := loadedAtOnce(t, dumps(t), 0).Snapshot()
	catalogue, tasks, steps := liveMCP(t)
	live := loadedAtOnce(t, catalogue, 0).Snapshot()
	queries := portalQueries(t)
	byStyle := map[string][]wanted{}
	for _, q := range queries {
		byStyle[q.Style] = append(byStyle[q.Style], q)
	}
	for _, c := range []struct {
		name     string
		snapshot *Snapshot
		queries  []wanted
		floor    float64 // recall@5
	}{
		{"portal", portal, queries, 0.761},
		{"portal, keywords", portal, byStyle["kw"], 1},
		{"portal, intent", portal, byStyle["intent"], 0.865},
		{"portal, other words", portal, byStyle["syn"], 0.489},
		{"LiveMCPBench tasks", live, tasks, 0.368},
		{"LiveMCPBench steps", live, steps, 0.720},
	} {
		r := measure(t, c.snapshot, c.queries)
		t.Logf("%-20s %s", c.name, r)
		if r.at[5] < c.floor {
			t.Errorf("%s: recall@5 is %.3f, the baseline has %.3f", c.name, r.at[5], c.floor)
		}
	}
}
