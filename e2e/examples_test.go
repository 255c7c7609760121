package e2e

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// B100: what the documents and the descriptions of the tools say about code is
// so: every example runs, every name is defined.
func TestB100_ExamplesOfCodeRun(t *testing.T) {
	doc, err := os.ReadFile("../docs/code-mode.md")
	if err != nil {
		t.Fatal(err)
	}
	p := demo(t)
	s := connect(t, p, modern, "optimize_context=search_and_execute", nil)
	code := func(code string) string {
		t.Helper()
		res := call(t, s, "portal_execute", map[string]any{"code": code})
		if res.IsError {
			t.Errorf("%s\n%s", code, text(t, res))
		}
		return text(t, res)
	}
	// An answer to read on.
	large := call(t, s, "portal_execute", map[string]any{"code": "return { data: { rows: (await codemode.paginate(codemode.crm_contacts_search, { limit: 100 })) } }"})
	kept, _ := large.StructuredContent.(map[string]any)["result"].(string)
	if kept == "" {
		t.Fatalf("nothing was kept: %.300s", text(t, large))
	}
	examples := regexp.MustCompile("(?s)```js\n(.*?)```").FindAllStringSubmatch(string(doc), -1)
	if len(examples) < 2 {
		t.Fatalf("%d examples found", len(examples))
	}
	for _, m := range examples {
		code(strings.ReplaceAll(m[1], "res_…", kept))
	}
	// Names in the first column of the table of what a script can use.
	_, table, _ := strings.Cut(string(doc), "## What a script can use")
	table, _, _ = strings.Cut(table, "\n\nNames may")
	checked := 0
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		if len(cells) < 3 {
			continue
		}
		prefix := ""
		for _, m := range regexp.MustCompile("`([A-Za-z.]+)[`(]").FindAllStringSubmatch(cells[1], -1) {
			name := m[1]
			if strings.HasPrefix(name, "console.") {
				prefix = "console."
			} else if prefix != "" {
				name = prefix + name
			}
			if name == "codemode." || strings.HasPrefix(name, "<") {
				continue
			}
			if got := code("return typeof " + name); got != "function" {
				t.Errorf("%s is %s", name, got)
			}
			checked++
		}
	}
	if checked < 25 {
		t.Errorf("only %d names checked", checked)
	}
	// And those of the descriptions.
	list, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	other := connect(t, p, modern, "codemode=search_and_execute", nil)
	more, err := other.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, tool := range append(list.Tools, more.Tools...) {
		for _, m := range regexp.MustCompile(`codemode\.(\w+)`).FindAllStringSubmatch(tool.Description, -1) {
			found[m[1]] = true
		}
		if m := regexp.MustCompile(`return \(await [^:]*$`).FindString(strings.SplitN(tool.Description, ". codemode.search", 2)[0]); m != "" {
			if res := call(t, other, "portal_codemode_search", map[string]any{"code": m}); res.IsError || !json.Valid([]byte(text(t, res))) {
				t.Errorf("%s: %s", m, text(t, res))
			}
		}
	}
	for name := range found {
		if got := code("return typeof codemode." + name); got != "function" {
			t.Errorf("codemode.%s is %s", name, got)
		}
	}
	if len(found) < 4 {
		t.Errorf("found only %v", found)
	}
}
