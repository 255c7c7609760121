package gateway_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// What results looked like is told to whoever writes code next, on any replica
// and after a restart, for tools whose server does not say it.
func TestResultsAreLearned(t *testing.T) {
	declared := json.RawMessage(`{"name":"declared","description":"d","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"n":{"type":"number"}}},"annotations":` + readOnly + `}`)
	v := serveWith(t, upstreamtest.Options{Tools: []json.RawMessage{toolDef("look", readOnly), declared}}, func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		c.Result(`{"content":[{"type":"text","text":"{\"items\":[{\"id\":1,\"title\":\"secret value\",\"open\":true}],\"by_login\":{\"zelda\":3,\"orson\":1}}"}],"structuredContent":{"n":1,"other":true}}`)
		return true
	})
	dir := t.TempDir()
	p := startIn(t, dir, trusted(v), func(s store.Store) store.Store { return s })
	const seen = "Not declared by the server, but seen in"
	c := p.client(modern, twoTools, noCaps, nil)
	about := func(c *client) string { return c.call("portal_query_tools", `{"names":["s_look"]}`, "", nil).text() }
	if got := about(c); strings.Contains(got, seen) || !strings.Contains(got, "Promise<unknown>") {
		t.Errorf("before anything was seen: %s", got)
	}
	for range 3 {
		c.code("return (await s.look({})).n", "", nil)
	}
	p.until("the result is learned", func() bool { return strings.Contains(about(c), "other: boolean") })
	got := about(c)
	if !strings.Contains(got, seen) || !strings.Contains(got, "n: number") || strings.Contains(got, "secret") || !strings.Contains(got, "Promise<s_look_Seen>") {
		t.Errorf("%s", got)
	}
	if got := c.code(`return (await codemode.describe("s_look")).types`, "", nil).text(); !strings.Contains(got, seen) {
		t.Errorf("codemode.describe: %s", got)
	}
	if got := c.call("portal_query_tools", `{"names":["s_declared"]}`, "", nil).text(); strings.Contains(got, seen) || !strings.Contains(got, "n?: number") {
		t.Errorf("a declared result: %s", got)
	}
	p.stop()
	p = startIn(t, dir, trusted(v), nil)
	if got := about(p.client(legacy, twoTools, noCaps, nil)); !strings.Contains(got, seen) {
		t.Errorf("after a restart: %s", got)
	}
}
