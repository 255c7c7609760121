package policytest

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// The table of tests in the document is about the configuration in the
// document, and holds.
func TestDocumentedTable(t *testing.T) {
	doc, err := os.ReadFile("../../docs/writeguard.md")
	if err != nil {
		t.Fatal(err)
	}
	var cfg *config.Config
	tables := 0
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(doc, -1) {
		if strings.HasPrefix(string(m[1]), "url:") {
			if cfg, err = config.Parse("portal.yaml", m[1], func(string) (string, bool) { return "", false }); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if !strings.HasPrefix(string(m[1]), "config:") {
			continue
		}
		tables++
		f, err := Parse("docs/writeguard.md", m[1])
		if err != nil {
			t.Fatal(err)
		}
		policy, err := writeguard.Compile(cfg)
		if err != nil {
			t.Fatal(err)
		}
		failed, calls := f.Run(cfg, policy)
		for _, x := range failed {
			t.Error(x)
		}
		if calls < 4 {
			t.Errorf("%d calls", calls)
		}
	}
	if tables != 1 {
		t.Errorf("%d tables of tests", tables)
	}
}

// No file makes the reader fail in another way than by an error.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "tests: [{}]", "tests:\n  - {server: a, tool: b, expect: allow}\n", "tests: {a: b}", "tests: [[]]", "tests:\n- &a {name: *a}", "users: {x: {groups: 3}}\ntests: [{}]", "tests: [{mode: [direct, [code]]}]", "tests: [{arguments: {1: 2, null: [.inf, .nan]}}]", "\xff", "a: b: c"} {
		f.Add([]byte(s))
	}
	cfg := &config.Config{Servers: map[string]config.Server{"a": {}}}
	policy, err := writeguard.Compile(cfg)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse("x.yaml", data)
		if err != nil {
			return
		}
		if _, calls := file.Run(cfg, policy); calls == 0 && len(file.Tests) > 0 && len(file.Tests[0].Mode) == 0 {
			t.Error("a test was not run")
		}
	})
}
