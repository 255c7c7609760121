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

func confusion(table map[string]map[Class]int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-14s %8s %8s %12s\n", "server says", "read", "write", "destructive")
	for _, want := range []string{"read", "write", "destructive", "none"} {
		r := table[want]
		fmt.Fprintf(&b, "%-14s %8d %8d %12d\n", want, r[Read], r[Write], r[Destructive])
	}
	return b.String()
}
