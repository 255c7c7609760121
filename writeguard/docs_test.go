package writeguard

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/config"
)

// TestDocumentation runs the examples of docs/writeguard.md: the configuration
// loads, and decides what its table says. So do the presets.
func TestDocumentation(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "docs", "writeguard.md"))
	if err != nil {
		t.Fatal(err)
	}
	doc := string(raw)
	_, rest, ok := strings.Cut(doc, "```yaml\n")
	block, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("no YAML block")
	}
	cfg, err := config.Parse("portal.yaml", []byte(block), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	p := compiled(t, cfg)
	rows := table(doc, "| server | tool |")
	if len(rows) < 10 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, r := range rows {
		c := Call{Principal: &auth.Principal{ID: "x", Groups: []string{r[3]}}, Server: r[0], Tool: r[1], Mode: Mode(r[4])}
		if a := strings.Trim(r[2], "`"); a != "" {
			c.Annotations = json.RawMessage(a)
		}
		d := p.Decide(c)
		if string(d.Class) != r[5] || string(d.Action) != r[6] || d.Rule != r[7] {
			t.Errorf("%v is %s %s by %s", r, d.Class, d.Action, d.Rule)
		}
	}
	conditions := 0
	for line := range strings.Lines(doc) {
		if when, ok := strings.CutPrefix(line, "    when: "); ok {
			conditions++
			if _, err := compileCondition(strings.TrimSpace(when)); err != nil {
				t.Errorf("%s%v", line, err)
			}
		}
	}
	for _, v := range conditionVariables() {
		if !strings.Contains(doc, "`"+v+"`") {
			t.Errorf("%s is not documented", v)
		}
	}
	if conditions < 3 {
		t.Errorf("%d conditions", conditions)
	}
	rows = table(doc, "| preset | read |")
	if len(rows) != len(presets) {
		t.Errorf("%d presets are documented", len(rows))
	}
	for _, r := range rows {
		p := compiled(t, guardConfig(strings.Trim(strings.Fields(r[0])[0], "`")))
		for i, class := range []Class{Read, Write, Destructive} {
			if d := p.Decide(call("dns", "x", class)); string(d.Action) != r[i+1] {
				t.Errorf("%s, %s: %s", r[0], class, d.Action)
			}
		}
	}
}

// table returns the cells of the rows of a Markdown table.
func table(doc, head string) (rows [][]string) {
	_, rest, _ := strings.Cut(doc, head)
	lines := strings.Split(rest, "\n")
	for _, line := range lines[min(2, len(lines)):] {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows
}
