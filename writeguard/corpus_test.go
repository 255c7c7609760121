package writeguard

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/internal/corpora"
)

type corpusTool struct {
	server      string
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Annotations json.RawMessage `json:"annotations"`
}

// corpus loads the real tool lists that lie beside the checkout.
func corpus(t testing.TB) []corpusTool {
	files, err := filepath.Glob(corpora.Path(t, "mcp-tools", "*", "tools-list.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tool lists in ../shared/corpora/mcp-tools (%v)", err)
	}
	var out []corpusTool
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var list struct {
			Tools []corpusTool `json:"tools"`
		}
		if err := json.Unmarshal(raw, &list); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		for _, tool := range list.Tools {
			tool.server = filepath.Base(filepath.Dir(f))
			out = append(out, tool)
		}
	}
	return out
}

// label is what a server itself says, without the protocol's defaults.
func label(raw json.RawMessage) string {
	var a struct{ ReadOnlyHint, DestructiveHint *bool }
	_ = json.Unmarshal(raw, &a) // absent annotations label nothing
	switch {
	case a.DestructiveHint != nil && *a.DestructiveHint && (a.ReadOnlyHint == nil || !*a.ReadOnlyHint):
		return "destructive"
	case a.ReadOnlyHint != nil && *a.ReadOnlyHint:
		return "read"
	case a.DestructiveHint != nil:
		return "write"
	}
	return "none"
}

// TestCorpus classifies real tools as of a trusted and of an untrusted server
// and prints the confusion tables (go test -run TestCorpus -v).
func TestCorpus(t *testing.T) {
	tools := corpus(t)
	for _, trust := range []bool{false, true} {
		table := map[string]map[Class]int{}
		var loud []string
		for _, tool := range tools {
			cfg := &config.Config{Servers: map[string]config.Server{tool.server: {TrustAnnotations: trust}}}
			got := Classify(Call{Server: tool.server, Tool: tool.Name, Description: tool.Description, Annotations: tool.Annotations}, cfg)
			want := label(tool.Annotations)
			if table[want] == nil {
				table[want] = map[Class]int{}
			}
			table[want][got.Class]++
			switch {
			case !trust && got.Class == Read:
				t.Errorf("%s/%s is read without anybody's trust: %+v", tool.server, tool.Name, got)
			case want == "destructive" && got.Class != Destructive:
				t.Errorf("%s/%s says destructiveHint: true and is %+v", tool.server, tool.Name, got)
			case trust && want == "read" && got.Class != Read, trust && want == "write" && got.Class != Write:
				t.Errorf("%s/%s is trusted as %s and is %+v", tool.server, tool.Name, want, got)
			case trust && want == "none" && got.Class == Read:
				t.Errorf("%s/%s says nothing and is %+v", tool.server, tool.Name, got)
			case !trust && want == "read" && got.Class == Destructive:
				loud = append(loud, fmt.Sprintf("%s/%s: %s", tool.server, tool.Name, got.Why))
			}
		}
		t.Logf("%d tools, trusted: %v\n%s", len(tools), trust, confusion(table))
		if len(loud) > 0 {
			t.Logf("tightened although annotated as reads:\n%s", strings.Join(loud, "\n"))
		}
	}
}

// TestCorpusVerbs measures what the words alone would find, had the servers
// not annotated their tools: it guards the lists against edits that hurt.
func TestCorpusVerbs(t *testing.T) {
	table := map[string]map[Class]int{}
	var missed []string
	for _, tool := range corpus(t) {
		got := Classify(Call{Server: tool.server, Tool: tool.Name, Description: tool.Description}, nil)
		want := label(tool.Annotations)
		if table[want] == nil {
			table[want] = map[Class]int{}
		}
		table[want][got.Class]++
		if tokens := nameTokens(tool.Name); want == "destructive" && got.Class != Destructive {
			for _, v := range tokens {
				if v == "delete" || v == "remove" || v == "drop" || v == "kill" || v == "terminate" {
					missed = append(missed, tool.server+"/"+tool.Name)
				}
			}
		}
	}
	t.Logf("names and descriptions only\n%s", confusion(table))
	if len(missed) > 0 {
		t.Errorf("plain destructive names missed: %v", missed)
	}
	read := table["read"]
	if n := read[Destructive]; n*50 > n+read[Write] {
		t.Errorf("%d of %d reading tools are taken for destructive, more than 2 %%", n, n+read[Write])
	}
}

// handLabels are those of tools whose servers annotate nothing.
func handLabels(t testing.TB) map[string]Class {
	raw, err := os.ReadFile("testdata/labels.txt")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]Class{}
	for _, line := range strings.Split(string(raw), "\n") {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] == "#" {
			continue
		}
		k, ok := parseClass(f[2])
		if !ok {
			t.Fatalf("labels.txt: %q is no class", line)
		}
		out[f[0]+" "+f[1]] = k
	}
	return out
}

// labelled corpus: every tool with the class that its server or a person gave
// it; tools of neither are left out.
func labelledCorpus(t testing.TB) (tools []corpusTool, want []string) {
	hand := handLabels(t)
	used := map[string]bool{}
	for _, tool := range corpus(t) {
		l, key := label(tool.Annotations), tool.server+" "+tool.Name
		if k, ok := hand[key]; ok {
			if l != "none" {
				t.Errorf("%s has a label of its server and one by hand", key)
			}
			l, used[key] = "hand: "+string(k), true
		}
		if l != "none" {
			tools, want = append(tools, tool), append(want, l)
		}
	}
	if len(used) != len(hand) || len(hand) < 400 {
		t.Errorf("%d of %d labels by hand are of tools that exist", len(used), len(hand))
	}
	return tools, want
}

// ways are how a class comes about.
var ways = []struct {
	name  string
	trust bool // the server is marked trust_annotations
	blind bool // as if its server had annotated nothing
	class func(Call, *config.Config) Class
}{
	{"decided, server not trusted", false, false, func(c Call, cfg *config.Config) Class { return Classify(c, cfg).Class }},
	{"decided, server trusted", true, false, func(c Call, cfg *config.Config) Class { return Classify(c, cfg).Class }},
	{"decided, by words alone", false, true, func(c Call, cfg *config.Config) Class { return Classify(c, cfg).Class }},
	{"suggested for review", false, false, func(c Call, _ *config.Config) Class { return Suggest(c).Class }},
	{"suggested for review, by words alone", false, true, func(c Call, _ *config.Config) Class { return Suggest(c).Class }},
}

// measure classifies the labelled tools in one of the ways.
func measure(t testing.TB, way int) (table map[string]map[Class]int, right, all int, wrong []string) {
	w := ways[way]
	table = map[string]map[Class]int{}
	tools, labels := labelledCorpus(t)
	for i, tool := range tools {
		c := Call{Server: tool.server, Tool: tool.Name, Description: tool.Description, Annotations: tool.Annotations}
		if w.blind {
			c.Annotations = nil
		}
		got := w.class(c, &config.Config{Servers: map[string]config.Server{tool.server: {TrustAnnotations: w.trust}}})
		if table[labels[i]] == nil {
			table[labels[i]] = map[Class]int{}
		}
		table[labels[i]][got]++
		want := strings.TrimPrefix(labels[i], "hand: ")
		all++
		if string(got) == want {
			right++
		}
		if want == string(Destructive) && got == Read {
			wrong = append(wrong, tool.server+"/"+tool.Name)
		}
	}
	return table, right, all, wrong
}

// However a class comes about, no tool that its server or a person calls
// destructive is a read.
func TestNoDestructiveToolIsARead(t *testing.T) {
	for i, w := range ways {
		if _, _, _, wrong := measure(t, i); len(wrong) > 0 {
			t.Errorf("%s: %v", w.name, wrong)
		}
	}
}

// BenchmarkClassification prints how often each way gives the labelled class,
// with its table.
func BenchmarkClassification(b *testing.B) {
	for i, w := range ways {
		b.Run(strings.ReplaceAll(w.name, " ", "_"), func(b *testing.B) {
			for range b.N {
				table, right, all, wrong := measure(b, i)
				b.ReportMetric(100*float64(right)/float64(all), "%right")
				b.ReportMetric(float64(len(wrong)), "destructive-as-read")
				b.Logf("%s: %d of %d\n%s", w.name, right, all, confusion(table))
			}
		})
	}
}

func confusion(table map[string]map[Class]int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-18s %8s %8s %12s\n", "label", "read", "write", "destructive")
	for _, want := range []string{"read", "write", "destructive", "none", "hand: read", "hand: write", "hand: destructive"} {
		r := table[want]
		if r == nil {
			continue
		}
		fmt.Fprintf(&b, "%-18s %8d %8d %12d\n", want, r[Read], r[Write], r[Destructive])
	}
	return b.String()
}
