package gateway_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// What a run did is told whatever became of it. B086: a script that returns
// nothing loses no id; B095: what tools answered is not repeated; B097: nothing
// advises to run code again that may have changed something.
func TestWhatARunDidIsTold(t *testing.T) {
	release := make(chan struct{})
	v := serveWith(t, upstreamtest.Options{Tools: []json.RawMessage{toolDef("look", readOnly), toolDef("put", `{"readOnlyHint":false,"destructiveHint":false}`)}}, func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		var id string
		_ = json.Unmarshal(c.Arguments().Get("id"), &id)
		switch id {
		case "hang":
			select {
			case <-release:
			case <-c.Context().Done():
			}
			return true
		case "big":
			c.Result(`{"content":[{"type":"text","text":"` + strings.Repeat("tool text ", 20_000) + `"}]}`)
			return true
		case "refused":
			c.Result(`{"content":[{"type":"text","text":"quota exceeded"}],"isError":true}`)
			return true
		}
		c.Result(`{"content":[{"type":"text","text":"{\"number\":17,\"title\":\"x\",\"big_id\":9007199254740993,\"url\":\"https://t.example/17\"}"}]}`)
		return true
	})
	defer close(release)
	p := start(t, trusted(v)+"guard: {preset: open}\ncode: {wall_time: 3s, cpu_time: 3s, parallel: 1}\n", nil)
	declared := map[string]bool{}
	eachEra(t, func(t *testing.T, e era) {
		c := p.client(e, twoTools, noCaps, nil)
		var list struct {
			Result struct {
				Tools []struct {
					Name         string
					OutputSchema struct {
						Properties map[string]json.RawMessage
					}
				}
			}
		}
		if err := json.Unmarshal([]byte(c.do("tools/list", "", nil).Raw), &list); err != nil {
			t.Fatal(err)
		}
		for _, tool := range list.Result.Tools {
			for k := range tool.OutputSchema.Properties {
				declared[k] = true
			}
		}
		check := func(name string, got answer, want ...string) {
			t.Helper()
			for _, w := range want {
				if !regexp.MustCompile(w).MatchString(got.text()) {
					t.Errorf("%s: lacks %q: %.1500s", name, w, got.text())
				}
			}
			var m struct {
				Result struct {
					StructuredContent map[string]json.RawMessage
				}
			}
			if err := json.Unmarshal([]byte(got.Raw), &m); err != nil || len(m.Result.StructuredContent) == 0 {
				t.Errorf("%s: no structured content: %v", name, err)
			}
			for k := range m.Result.StructuredContent {
				if !declared[k] {
					t.Errorf("%s: %s is not in the outputSchema", name, k)
				}
			}
			text := strings.ReplaceAll(got.text(), "Do not run the code again", "")
			if regexp.MustCompile(`(?i)\bretry|\bagain\b`).MatchString(text) {
				t.Errorf("%s: advises to do it again: %s", name, got.text())
			}
		}
		got := c.code("await s.put({id: 'a'}); await s.look({id: 'big'}); return", "", nil)
		check("nothing returned", got, `^undefined`, `changed: s_put → number 17, url https://t.example/17, big_id 9007199254740993`, `calls:\ns_put: ok, \d+ ms, \d+ B\ns_look: ok, \d+ ms, 200 KB`)
		if strings.Contains(got.Raw, "tool text") {
			t.Error("what a tool answered is in the answer")
		}
		if s := structuredOf(t, got); s.Status != "ok" || len(s.Calls) != 2 || s.Calls[1].Bytes < 200_000 || s.Calls[0].Outcome != "ok" || s.Calls[0].IDs != "number 17, url https://t.example/17, big_id 9007199254740993" || s.Calls[1].IDs != "" || !slices.Contains(s.Changed, "s_put → number 17, url https://t.example/17, big_id 9007199254740993") {
			t.Errorf("%+v", s)
		}
		got = c.code("const a = 1\nawait s.put({id: 'a'})\nawait s.look({id: 'refused'})", "", nil)
		check("an error after a change", got, `^Error: quota exceeded \(line 3, column \d+ of your code\)`, `s_put \(ok, number 17`, `Do not run the code again unless the user wants it done twice`, `s_look: failed \[quota exceeded\], \d+ ms`)
		if s := structuredOf(t, got); !got.Result.IsError || s.Status != "error" || s.Error.Kind != "exception" || s.Error.Name != "Error" || s.Calls[1].Outcome != "failed" || s.Calls[1].Error != "quota exceeded" {
			t.Errorf("%+v", s)
		}
		got = c.code("await s.put({id: 'a'}); await Promise.all([s.put({id: 'hang'}), s.look({id: 'x'}), s.look({id: 'y'})])", "", nil)
		check("a limit with calls under way", got, `time limit of 3 s`, `s_put \((?:in_flight|outcome_unknown)\)`, `Do not run the code again`, `s_put: ok, \d+ ms, \d+ B\ns_put: in flight \(outcome unknown\)[^\n]*\ns_look: not started, [^\n]*\ns_look: not started`)
		if s := structuredOf(t, got); s.Error.Kind != "wall" || len(s.Calls) != 4 || s.Calls[1].Outcome != "in_flight" || s.Calls[3].Outcome != "not_started" {
			t.Errorf("%+v", s)
		}
		// Beyond a bound there is a row for each tool.
		got = c.code("for (let i = 0; i < 20; i++) await s.put({id: 'a'}); await s.look({id: 'refused'}).catch(() => 0); return 1", "", nil)
		check("many calls", got, `calls:\ns_put ×20: 20 ok, \d+ ms, \d+ (KB|B)\ns_look ×1: 1 failed \[quota exceeded\]`, `changed: s_put → number 17[^;\n]* ×20`)
		if s := structuredOf(t, got); len(s.Calls) != 2 || s.Calls[0].Calls != 20 || s.Calls[0].OK != 20 || s.Calls[1].Failed != 1 || len(s.Changed) != 1 {
			t.Errorf("%+v", s)
		}
		check("only looked", c.code("await s.look({id: 'a'}); throw new Error('mine')", "", nil), `^Error: mine`)
	})
}
