package gateway_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

var keptID = regexp.MustCompile(`res_[A-Za-z0-9_-]+`)

// structuredOf is the structured content of an answer.
func structuredOf(t *testing.T, got answer) (s struct {
	Status  string
	Value   json.RawMessage
	Cut     string
	Result  string
	Error   struct{ Kind, Name, Message string }
	Logs    []string
	Changed []string
	Calls   []struct {
		Tool       string
		Outcome    string
		IDs        string
		Error      string
		Calls, OK  int
		Failed     int
		InFlight   int `json:"in_flight"`
		NotStarted int `json:"not_started"`
		Bytes      int
		Ms         float64
		Errors     []string
	}
}) {
	t.Helper()
	var m struct {
		Result struct {
			StructuredContent json.RawMessage `json:"structuredContent"`
		} `json:"result"`
	}
	if err := json.Unmarshal([]byte(got.Raw), &m); err != nil {
		t.Fatalf("%v: %.400s", err, got.Raw)
	}
	if err := json.Unmarshal(m.Result.StructuredContent, &s); err != nil {
		t.Fatalf("%v: %.400s", err, got.Raw)
	}
	return s
}

// head is the first line of an answer: the value.
func head(a answer) string {
	line, _, _ := strings.Cut(a.text(), "\n")
	return line
}

// What does not fit into an answer is cut, said, and read by later code, on any
// replica. B184: a large result is usable in every mode that runs code.
func TestLargeValuesAreKept(t *testing.T) {
	var rows []string
	for i := range 3000 {
		rows = append(rows, fmt.Sprintf(`{"n":%d,"name":"row number %d"}`, i, i))
	}
	list := "[" + strings.Join(rows, ",") + "]"
	v := serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		var kind string
		_ = json.Unmarshal(c.Arguments().Get("id"), &kind)
		switch kind {
		case "structured":
			c.Result(`{"content":[{"type":"text","text":"see structured"}],"structuredContent":{"rows":` + list + `}}`)
		case "huge":
			c.Result(`{"content":[],"structuredContent":{"rows":["` + strings.Repeat(`0123456789","`, 400_000) + `"]}}`)
		case "small":
			c.Result(`{"content":[{"type":"text","text":"small"}],"structuredContent":{"a":1}}`)
		case "failed":
			c.Result(`{"content":[{"type":"text","text":"no"}],"structuredContent":{"why":"quota"},"isError":true}`)
		default:
			text, _ := json.Marshal(list)
			c.Result(`{"content":[{"type":"text","text":` + string(text) + `}]}`)
		}
		return true
	})
	var shared store.Store
	p := start(t, trusted(v), func(s store.Store) store.Store { shared = s; return s })
	other := start(t, trusted(v), func(own store.Store) store.Store { _ = own.Close(); return shared })
	eachEra(t, func(t *testing.T, e era) {
		c, there := p.client(e, twoTools, noCaps, nil), other.client(e, twoTools, noCaps, nil)
		for name, got := range map[string]answer{
			"code":                       c.code("return await s.look({id:'text'})", "", nil),
			"code, structured":           c.code("return (await s.look({id:'structured'})).rows", "", nil),
			"a tool":                     c.call("portal_execute", `{"tool":"s_look","arguments":{"id":"text"}}`, "", nil),
			"a tool, structured content": c.call("portal_execute", `{"tool":"s_look","arguments":{"id":"structured"}}`, "", nil),
		} {
			s := structuredOf(t, got)
			id := keptID.FindString(got.text())
			if s.Status != "ok" || id == "" || s.Result != id || !strings.Contains(s.Cut, "list items are left out") || len(got.Raw) > 100_000 || !json.Valid(s.Value) {
				t.Errorf("%s: %d bytes, %+.300v, %.300s", name, len(got.Raw), s.Cut, got.text())
				continue
			}
			for which, c := range map[string]*client{"here": c, "on the other replica": there} {
				got := c.code(fmt.Sprintf(`const v = await codemode.result(%q); const rows = v.rows ?? v; const last = (await codemode.result(%q, {path: %q, from: 2999}))[0]; return [rows.length, rows[2999].n, last.n]`, id, id, map[bool]string{true: "rows"}[strings.HasPrefix(name, "a tool, s")]), "", nil)
				if head(got) != "[3000,2999,2999]" {
					t.Errorf("%s, read %s: %s", name, which, got.text())
				}
			}
		}
		// A result that no script may receive whole.
		got := c.code("return await s.look({id:'huge'})", "", nil)
		id := keptID.FindString(got.text())
		if !got.Result.IsError || !strings.Contains(got.text(), "The call was made") || id == "" {
			t.Errorf("%.600s", got.text())
		}
		if got := c.code(fmt.Sprintf(`return [await codemode.result(%q, {path: "rows", from: 2, to: 4}), await codemode.result(%q).catch(e => e.code)]`, id, id), "", nil); head(got) != `[["0123456789","0123456789"],"too_large"]` {
			t.Errorf("%.600s", got.text())
		}
		// Small results of one tool are as the server made them.
		small := c.call("portal_execute", `{"tool":"s_look","arguments":{"id":"small"}}`, "", nil)
		if s := structuredOf(t, small); head(small) != "small" || string(s.Value) != `{"a":1}` || s.Status != "ok" || s.Cut != "" {
			t.Errorf("%s", small.Raw)
		}
		failed := c.call("portal_execute", `{"tool":"s_look","arguments":{"id":"failed"}}`, "", nil)
		if s := structuredOf(t, failed); !failed.Result.IsError || head(failed) != "no" || string(s.Value) != `{"why":"quota"}` || s.Status != "error" {
			t.Errorf("%s", failed.Raw)
		}
		// The portal's own command line asks for the whole.
		whole := c.do("tools/call", `"name":"portal_execute","arguments":{"tool":"s_look","arguments":{"id":"text"}},"_meta":{"mcp-portal/whole":true}`, nil)
		if len(head(whole)) != len(list) {
			t.Errorf("%d bytes of %d", len(whole.text()), len(list))
		}
		for _, params := range v.calls() {
			if strings.Contains(params, "mcp-portal/whole") {
				t.Error("the portal's own mark reached a server")
			}
		}
	})
}
