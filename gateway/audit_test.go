package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

const private = "PRIVATE-VALUE"

// talkative repeats what it was given, in errors of every kind.
func talkative(t *testing.T) *victim {
	return serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		var p struct{ Arguments struct{ ID, Kind string } }
		_ = json.Unmarshal(c.Params, &p)
		switch p.Arguments.Kind {
		case "protocol":
			c.Error(-32000, "no person named "+p.Arguments.ID, `{"id":"`+p.Arguments.ID+`"}`)
		case "http":
			c.Raw(500, "text/plain", "cannot find "+p.Arguments.ID)
		case "tool":
			c.Result(`{"content":[{"type":"text","text":"no ` + p.Arguments.ID + `"}],"isError":true}`)
		default:
			return false
		}
		return true
	})
}

// Without audit.arguments no line has a value of an argument, whatever the
// server repeats; with it, lines have them.
func TestAuditKeepsNoArgumentsUnlessTold(t *testing.T) {
	for _, on := range []bool{false, true} {
		v := talkative(t)
		dir := t.TempDir()
		p := startIn(t, dir, fmt.Sprintf("audit: {file: %s/audit.jsonl, arguments: %v}\n", dir, on)+trusted(v), nil)
		n := 0
		for _, e := range []era{legacy, modern} {
			all, two := p.client(e, "", noCaps, nil), p.client(e, twoTools, noCaps, nil)
			for _, kind := range []string{"protocol", "http", "tool", "fine"} {
				all.call("s_look", `{"id":"`+private+`","kind":"`+kind+`"}`, "", nil)
				two.code(`try { await s.look({id:'`+private+`',kind:'`+kind+`'}) } catch (e) {} return 1`, "", nil)
				n += 2
			}
			all.call("s_kill", `{"id":"`+private+string(e)+`"}`, "", nil)   // pending
			all.call("s_look", `["`+private+`"]`, "", nil)                  // no object
			two.code(`await s.kill({id:'`+private+`in code'})`, "", nil)    // paused: its line comes when it ends
			two.call("portal_execute", `{"code":"`+private+`(("}`, "", nil) // no line at all
			n += 2
		}
		lines, raw := p.auditLines(func(l []map[string]any) bool { return len(l) >= n })
		if got := strings.Contains(raw, private); got != on {
			t.Errorf("audit.arguments %v, values in the audit: %v\n%s", on, got, raw)
		}
		kinds := map[string]bool{}
		for _, l := range lines {
			kinds[fmt.Sprint(l["status"])] = true
			if l["error"] == nil && (l["status"] == "error" || l["status"] == "unknown") {
				t.Errorf("a line of a failed call does not say how it failed: %v", l)
			}
		}
		for _, want := range []string{"ok", "tool_error", "error", "pending", "denied"} {
			if !kinds[want] {
				t.Errorf("no line has status %q: %v", want, kinds)
			}
		}
	}
}

// Who tries names that he may not use leaves a line each.
func TestAuditHasRefusedNames(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v)+"    tools: {kill: {groups: [others]}}\n", nil)
	var want []string
	for _, e := range []era{legacy, modern} {
		all, two := p.client(e, "", noCaps, nil), p.client(e, twoTools, noCaps, nil)
		name := func(s string) string { want = append(want, s+string(e)); return s + string(e) }
		all.call(name("s_guess"), "{}", "", nil)
		all.do("prompts/get", `"name":"`+name("prompt")+`"`, nil)
		all.do("resources/read", `"uri":"`+name("doc://x/")+`"`, nil)
		two.call("portal_execute", `{"tool":"`+name("s_other")+`"}`, "", nil)
		all.call("s_kill", `{"id":"1"}`, "", nil)
		want = append(want, "s_kill")
	}
	lines, raw := p.auditLines(func(l []map[string]any) bool { return len(l) >= len(want) })
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), raw)
	}
	for i, l := range lines {
		if l["capability"] != want[i] || l["status"] != "denied" || l["decision"] != "deny" || l["user"] == "" {
			t.Errorf("line %d: %v, want a refusal of %s", i, l, want[i])
		}
	}
	if n := len(v.calls()); n != 0 {
		t.Errorf("%d calls arrived", n)
	}
}

// One line per call, with the approval that released it.
func TestAuditNamesTheApproval(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v), nil)
	got := p.client(legacy, "", formCaps, nil).call("s_kill", `{"id":"1"}`, "", always)
	if !strings.HasPrefix(got.text(), "ran kill") {
		t.Fatalf("%s", got.Raw)
	}
	lines, raw := p.auditLines(func(l []map[string]any) bool { return len(l) >= 1 })
	if len(lines) != 1 || lines[0]["status"] != "ok" || !approvalID.MatchString(fmt.Sprint(lines[0]["approval"])) || lines[0]["class"] != "destructive" || lines[0]["session"] == nil {
		t.Errorf("%s", raw)
	}
}
