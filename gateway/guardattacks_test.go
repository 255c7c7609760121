package gateway_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// While a person decides, an administrator may change the policy. What counts
// is the policy of the moment in which the call would be sent: a new rule that
// plans, and names others, or a new filter, holds for calls that waited.
func TestRulesThatComeWhileAnApprovalIsOpen(t *testing.T) {
	const approve = "guard: {rules: [{name: asks, class: [destructive], action: approve}]}\n"
	for name, next := range map[string]string{
		"planned by others":  "guard: {rules: [{name: asks, class: [destructive], action: plan, approvers: {users: [boss@example.com]}}]}\n",
		"approved by others": "guard: {rules: [{name: asks, class: [destructive], action: approve, approvers: {users: [boss@example.com]}}]}\n",
		"blocked":            approve[:len(approve)-2] + ", filters: [{name: no cards, detect: [cards], action: block}]}\n",
		"redacted":           approve[:len(approve)-2] + ", filters: [{name: no cards, detect: [cards], action: redact}]}\n",
	} {
		for _, how := range []string{"form", "script"} {
			t.Run(name+" "+how, func(t *testing.T) {
				v := serve(t, upstreamtest.Legacy, nil)
				p := start(t, trusted(v)+approve, nil)
				var got answer
				if how == "form" {
					c := p.client(legacy, "", formCaps, nil)
					got = c.call("s_kill", `{"id":"4111 1111 1111 1111"}`, "", func(q question) {
						p.reload(trusted(v) + next)
						go q.reply(yes)
					})
				} else {
					c := p.client(modern, twoTools, noCaps, nil)
					got = c.code(`return await s.kill({id: "4111 1111 1111 1111"})`, "", nil)
					p.reload(trusted(v) + next)
					p.approve(got.approvals()[0])
					got = c.resume(runID.FindString(got.Raw), "", nil)
				}
				if n := len(v.calls()); n != 0 || strings.Contains(got.text(), "ran kill") {
					t.Errorf("%d calls arrived: %s", n, got.Raw)
				}
			})
		}
	}
}

// The same for a plan that is decided in the client's form.
func TestRulesThatComeWhileAPlanIsDecidedInTheClient(t *testing.T) {
	for name, next := range map[string]string{
		"denied":             "guard: {rules: [{name: planned, class: [destructive], action: deny}]}\n",
		"planned by others":  "guard: {rules: [{name: planned, class: [write, destructive], action: plan, approvers: {users: [boss@example.com]}}]}\n",
		"approved by others": "guard: {rules: [{name: planned, class: [write, destructive], action: approve, via: web}]}\n",
		"blocked":            planWrites[:len(planWrites)-2] + ", filters: [{name: no cards, detect: [cards], action: block}]}\n",
		"redacted":           planWrites[:len(planWrites)-2] + ", filters: [{name: no cards, detect: [cards], action: redact}]}\n",
	} {
		for _, how := range []string{"call", "script"} {
			t.Run(name+" "+how, func(t *testing.T) {
				v := serve(t, upstreamtest.Legacy, nil)
				p := start(t, trusted(v)+planWrites, nil)
				c := p.client(legacy, map[string]string{"call": "", "script": twoTools}[how], formCaps, nil)
				on := func(q question) {
					p.reload(trusted(v) + next)
					go q.reply(yes)
				}
				var got answer
				if how == "call" {
					got = c.call("s_kill", `{"id":"4111 1111 1111 1111"}`, "", on)
				} else {
					got = c.code(`return await s.kill({id: "4111 1111 1111 1111"})`, "", on)
				}
				if n := len(v.calls()); n != 0 {
					t.Errorf("%d calls arrived: %s", n, got.Raw)
				}
			})
		}
	}
}

// What was released for a run by some is not released once the rule names
// others, and never more than the rule says now.
func TestGrantsEndWithTheTermsTheyWereGivenUnder(t *testing.T) {
	const rule = "guard: {rules: [{name: few, class: [destructive], action: approve, grant: 50}]}\n"
	for name, c := range map[string]struct {
		next string
		want int
	}{
		"others approve": {strings.Replace(rule, "grant: 50", "grant: 50, approvers: {users: [boss@example.com]}", 1), 1},
		"fewer":          {strings.Replace(rule, "grant: 50", "grant: 3", 1), 3},
		"planned":        {strings.Replace(rule, "action: approve, grant: 50", "action: plan", 1), 1},
	} {
		t.Run(name, func(t *testing.T) {
			gate := func() {}
			v := serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
				if strings.Contains(string(c.Params), "gate") {
					gate()
				}
				return false
			})
			p := start(t, trusted(v)+rule, nil)
			cl := p.client(modern, twoTools, noCaps, nil)
			got := cl.code(`const out = []; await s.kill({id: 'a'}); await s.look({id: 'gate'}); for (const id of ['b', 'c', 'd', 'e']) out.push(await s.kill({id}).catch(e => e.code)); return out`, "", nil)
			ap := got.approvals()[0]
			gate = func() { p.reload(trusted(v) + c.next) }
			if resp, body := p.submit("/approvals/"+ap, "/approvals/"+ap, "decision=grant&calls=50"); resp.StatusCode != http.StatusSeeOther {
				t.Fatalf("%d %s", resp.StatusCode, body)
			}
			got = cl.resume(runID.FindString(got.Raw), "", nil)
			if n := len(ids(v, "kill")); n != c.want {
				t.Errorf("%d calls arrived, want %d: %s", n, c.want, got.Raw)
			}
		})
	}
}

// A plan is taken back only where the rule for the inverse call lets the same
// person decide.
func TestUndoIsDecidedByThoseWhomTheInverseNames(t *testing.T) {
	for _, action := range []string{"approve", "plan"} {
		v, things := shelf(t)
		rules := "guard: {rules: [{name: back, tools: [put], action: " + action + ", approvers: {users: [boss@example.com]}}, {name: planned, class: [write, destructive], action: plan}]}\n"
		tools := "    tools:\n      drop: {undo: {with: put, args: {id: args.id, text: \"'x'\"}}}\n"
		p := start(t, trusted(v)+tools+rules, nil)
		c := p.client(legacy, twoTools, noCaps, nil)
		things.Store("a", "1")
		id := planIDs.FindString(c.code(`await s.drop({id: 'a'})`, "", nil).text())
		p.decidePlan(id, "approve", "0")
		if got := c.plan(id); !strings.Contains(got.text(), "1 done") {
			t.Fatalf("%s", got.Raw)
		}
		p.submit("/plans/"+id, "/plans/"+id+"/undo", "decision=undo")
		if slices.ContainsFunc(v.calls(), func(s string) bool { return strings.Contains(s, `"name":"put"`) }) {
			t.Errorf("%s: the user alone made a call that others decide on: %q", action, v.calls())
		}
	}
}

// What was read stays read: a session that gets it by going on with a run, by
// applying a plan, or from a kept value of another session has the taints of
// whoever read it.
func TestTaintsFollowWhatWasRead(t *testing.T) {
	tools := []json.RawMessage{toolDef("look", readOnly), toolDef("kill", destructive), toolDef("web_search", readOnly)}
	const search = `const r = await s.web_search({id: 'x'}).catch(e => e.code + e.message); return r`
	for _, way := range []string{"resume", "resume after a restart", "plan", "kept", "kept by the catalogue's code", "answer of a run", "answer of a planned call"} {
		t.Run(way, func(t *testing.T) {
			v := serveWith(t, upstreamtest.Options{Era: upstreamtest.Legacy, Tools: tools}, nil)
			rules := ""
			if way == "plan" || way == "answer of a planned call" {
				rules = planWrites
			}
			kill := "kill: {labels: []}, "
			if way == "answer of a planned call" {
				kill = ""
			}
			yaml := trusted(v) + "    tools: {" + kill + "web_search: {labels: [external]}}\n" + rules
			dir := t.TempDir()
			p := startIn(t, dir, yaml, nil)
			reader := p.client(legacy, twoTools, noCaps, nil)
			fresh := func() *client { return p.client(legacy, twoTools, noCaps, nil) }
			asked := func(got answer) {
				t.Helper()
				for _, c := range ids(v, "web_search") {
					t.Errorf("web_search %q went out without a person: %s", c, got.Raw)
				}
			}
			switch way {
			case "resume", "resume after a restart":
				got := reader.code(`const secret = await s.look({id: '1'}); await s.kill({id: 'a'}); await s.web_search({id: secret}); return secret`, "", nil)
				if way != "resume" {
					p.stop()
					p = startIn(t, dir, yaml, nil)
				}
				p.approve(got.approvals()[0])
				asked(fresh().resume(runID.FindString(got.Raw), "", nil))
			case "answer of a run":
				got := reader.code(`const secret = await s.look({id: '1'}); await s.kill({id: 'a'}); return secret`, "", nil)
				p.approve(got.approvals()[0])
				c := fresh()
				if got = c.resume(runID.FindString(got.Raw), "", nil); !strings.Contains(got.text(), "ran look") {
					t.Fatalf("%s", got.Raw)
				}
				asked(c.code(search, "", nil))
			case "plan":
				got := reader.code(`const secret = await s.look({id: '1'}); await s.kill({id: 'a'}); await s.web_search({id: secret}); return secret`, "", nil)
				id := planIDs.FindString(got.text())
				p.decidePlan(id, "approve", "0")
				asked(fresh().plan(id))
			case "answer of a planned call":
				got := reader.call("portal_execute", `{"tool":"s_kill","arguments":{"id":"a"}}`, "", nil)
				id := planIDs.FindString(got.text())
				p.decidePlan(id, "approve", "0")
				if got = reader.plan(id); !strings.Contains(got.text(), "ran kill") {
					t.Fatalf("%s", got.Raw)
				}
				c := fresh()
				if got = c.plan(id); !strings.Contains(got.text(), "ran kill") {
					t.Fatalf("%s", got.Raw)
				}
				asked(c.code(search, "", nil))
			default:
				got := reader.code(`const secret = await s.look({id: '1'}); return Array.from({length: 20000}, () => secret)`, "", nil)
				kept := keptID.FindString(got.Raw)
				if kept == "" {
					t.Fatalf("nothing was kept: %.500s", got.Raw)
				}
				c := fresh()
				if way == "kept" {
					got = c.code(`const r = await codemode.result("`+kept+`", {from: 0, to: 1}); return [r, await s.web_search({id: r[0]}).catch(e => e.message)]`, "", nil)
				} else {
					c = p.client(legacy, "?codemode=search_and_execute", noCaps, nil)
					got = c.call("portal_codemode_search", `{"code":"return await codemode.result('`+kept+`', {from: 0, to: 1})"}`, "", nil)
					if !strings.Contains(got.Raw, "ran look") {
						t.Fatalf("%s", got.Raw)
					}
					got = c.call("portal_codemode_execute", `{"code":"return await s.web_search({id: 'x'})"}`, "", nil)
				}
				asked(got)
			}
		})
	}
}
