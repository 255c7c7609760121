package gateway_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// listed is the whole list of tools of a client, as bytes and as names.
func listed(t *testing.T, c *client) (bytes int, names []string) {
	t.Helper()
	cursor := ""
	for {
		got := c.do("tools/list", cursor, nil)
		var page struct {
			Result struct {
				Tools      []json.RawMessage
				NextCursor string
			}
		}
		if err := json.Unmarshal([]byte(got.Raw), &page); err != nil || got.Error != nil {
			t.Fatalf("%v: %.300s", err, got.Raw)
		}
		for _, raw := range page.Result.Tools {
			var tool struct{ Name string }
			if err := json.Unmarshal(raw, &tool); err != nil {
				t.Fatal(err)
			}
			bytes, names = bytes+len(raw), append(names, tool.Name)
		}
		if page.Result.NextCursor == "" {
			return bytes, names
		}
		cursor = `"cursor":` + string(mustQuote(page.Result.NextCursor))
	}
}

func mustQuote(s string) []byte {
	b, _ := json.Marshal(s) // a string always encodes
	return b
}

// What a model has to read before it begins: a line for each of many tools with
// minimize_tools, and the same few kilobytes for any number with two tools.
func TestB182_ListsStayWithinTheirBudget(t *testing.T) {
	p := many(t)
	eachEra(t, func(t *testing.T, e era) {
		all, names := listed(t, p.client(e, "", noCaps, nil))
		if len(names) < 150 || all < 200_000 {
			t.Fatalf("%d tools with %d bytes are no catalogue to make small", len(names), all)
		}
		if small, names := listed(t, p.client(e, "?optimize_context=minimize_tools", noCaps, nil)); len(names) < 151 || small > 150*len(names) {
			t.Errorf("minimize_tools: %d bytes for %d tools, more than 150 for each", small, len(names))
		}
		if two, names := listed(t, p.client(e, twoTools, noCaps, nil)); len(names) != 2 || two > 4000 {
			t.Errorf("search_and_execute: %d bytes, tools %q", two, names)
		}
	})
}

// A call is one request to its server: nothing is listed before it.
func TestB181_ACallIsOneRequest(t *testing.T) {
	for _, era := range []upstreamtest.Era{upstreamtest.Legacy, upstreamtest.Modern} {
		v := serve(t, era, nil)
		p := start(t, trusted(v), nil)
		c := p.client(modern, "", noCaps, nil)
		c.call("s_look", `{"id":"first"}`, "", nil) // makes the session of this user
		before := len(v.Requests())
		const calls = 100
		for range calls {
			if got := c.call("s_look", `{"id":"1"}`, "", nil); got.Error != nil || got.Result.IsError {
				t.Fatal(got.Raw)
			}
		}
		var more []string
		for _, r := range v.Requests()[before:] {
			if r.Method != "tools/call" {
				more = append(more, r.HTTPMethod+" "+r.Method)
			}
		}
		if n := len(v.Requests()) - before; n != calls {
			t.Errorf("era %v: %d requests for %d calls, besides the calls %q", era, n, calls, more)
		}
	}
}

// A pattern of a caller costs them an answer, not the portal: the engine is
// linear, its programs are bounded, and mistakes are said.
func TestB073_HostilePatterns(t *testing.T) {
	p := many(t) // with a text of 200 kB in it
	c := p.client(modern, twoTools, noCaps, nil)
	for pattern, want := range map[string]string{
		`^(?:[\s\S]*)*\x00`:          "no tool matches",
		`(a+)+$`:                     "",
		`(y|y|y)*z`:                  "no tool matches",
		`(((y{30}){30}){30}){30}`:    "pattern",
		`[`:                          "pattern",
		`(?=y)`:                      "pattern",
		strings.Repeat("(y*)*", 150): "",
		strings.Repeat("y?", 400) + strings.Repeat("y", 100): "",
		strings.Repeat("y", 1<<20):                           "1000 characters",
	} {
		got := c.call("portal_query_tools", `{"pattern":`+string(mustQuote(pattern))+`}`, "", nil)
		if got.Error != nil || !strings.Contains(got.text(), want) || got.text() == "" {
			t.Errorf("%.40s: %.300s, want %q in it", pattern, got.Raw, want)
		}
	}
}

// The documents name tools of the portal that it has.
func TestB190_DocumentsNameToolsThatExist(t *testing.T) {
	p := start(t, trusted(serve(t, upstreamtest.Modern, nil)), nil)
	have := []string{}
	for _, mode := range modes {
		_, names := listed(t, p.client(modern, mode, noCaps, nil))
		have = append(have, names...)
	}
	files, err := filepath.Glob("../docs/*.md")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d documents: %v", len(files), err)
	}
	found := 0
	for _, file := range append(files, "../README.md", "../deploy/portal.example.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile("`(portal_[a-z_]+)`").FindAllStringSubmatch(string(text), -1) {
			if found++; !slices.Contains(have, name[1]) {
				t.Errorf("%s names the tool %s; the portal has none of that name", file, name[1])
			}
		}
	}
	if found < 5 {
		t.Errorf("only %d names found", found)
	}
}
