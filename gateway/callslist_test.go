package gateway_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// What a script changed is listed with the ids of it; what is equal, once.
func TestChangesAreListedOnce(t *testing.T) {
	_, yaml := withPut(t)
	c := start(t, yaml, nil).client(modern, twoTools, noCaps, nil)
	got := c.code(`for (let i = 0; i < 30; i++) await s.put({id: 'same'}); for (let i = 0; i < 25; i++) await s.put({id: 'n' + i})`, "", nil)
	for _, want := range []string{`changed: s_put → ran put {"id":"same"} ×30; s_put → ran put {"id":"n0"}; `, `{"id":"n18"}; and 6 more`} {
		if !strings.Contains(got.text(), want) {
			t.Errorf("%q is not in %s", want, got.text())
		}
	}
}

// What a batch refused is not among what it changed.
func TestChangesAreNotWhatFailed(t *testing.T) {
	v := serveWith(t, upstreamtest.Options{Era: upstreamtest.Legacy, Tools: []json.RawMessage{toolDef("put", `{"readOnlyHint":false,"destructiveHint":false}`)}}, func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		c.Text(`{"errors":[{"id":"51","code":"LOCKED"}],"failed":[{"id":"52"}],"results":[{"id":"7"},{"id":"8"}],"updated":2}`)
		return true
	})
	c := start(t, "guard: {preset: open}\n"+trusted(v), nil).client(modern, twoTools, noCaps, nil)
	if got := c.code(`await s.put({})`, "", nil).text(); !strings.Contains(got, "changed: s_put → results: id 7, id 8") {
		t.Error(got)
	}
}

// More calls than wait at once: the number is not all of them, and that is said.
func TestMoreCallsThanWaitAtOnce(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	c := start(t, trusted(v), nil).client(modern, twoTools, noCaps, nil)
	const more = "Further calls that the code has started are asked for when these are decided."
	if got := c.code(`await Promise.all(Array.from({length: 100}, (_, i) => s.kill({id: 'k' + i})))`, "", nil).text(); !strings.Contains(got, more) {
		t.Error(got)
	}
	if got := c.code(`await Promise.all([s.kill({id: 'a'}), s.kill({id: 'b'})])`, "", nil).text(); strings.Contains(got, more) {
		t.Error(got)
	}
}
