package gateway_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/auth/vault"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
	"github.com/mcp-portal/mcp-portal/writeguard"
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

// All calls of a script that wait for a person are shown together, more than
// may run at once; approved together they are sent, each once, and no more of
// them at once than the limit.
func TestAllThatWaitsIsShownTogether(t *testing.T) {
	var mu sync.Mutex
	now, most := 0, 0
	v := serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		time.Sleep(20 * time.Millisecond)
		mu.Lock()
		now--
		mu.Unlock()
		return false
	})
	p := start(t, trusted(v)+"code: {parallel: 3}\n", nil)
	c := p.client(legacy, twoTools, noCaps, nil)
	got := c.code(`const r = await Promise.allSettled(Array.from({length: 30}, (_, i) => s.kill({id: 'k' + i}))); return r.filter(x => x.status === 'fulfilled').length`, "", nil)
	list := got.approvals()
	if len(list) != 30 || len(v.calls()) != 0 {
		t.Fatalf("%d approvals: %s", len(list), got.Raw)
	}
	for _, id := range list {
		p.approve(id)
	}
	got = c.resume(runID.FindString(got.Raw), "", nil)
	sent := ids(v, "kill")
	slices.Sort(sent)
	if !strings.HasPrefix(got.text(), "30\n") || len(slices.Compact(sent)) != 30 || len(v.calls()) != 30 || most > 3 {
		t.Errorf("%d calls, %d at once: %s", len(v.calls()), most, got.Raw)
	}
}

// A plan that was begun and left by a process that died is gone on with only as
// long as it could have been begun; what was under way is unknown, and nothing
// is sent any more.
func TestPlanIsNotGoneOnWithAfterItsTime(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v)+planWrites+"\n", nil)
	c := p.client(legacy, twoTools, noCaps, nil)
	for name, change := range map[string]func(*writeguard.Progress){
		"expired": func(g *writeguard.Progress) {
			g.Attempt, g.Steps[0].State, g.Expires = "of a dead process", writeguard.StepDone, time.Now().Add(-time.Second)
		},
		"expired while sending": func(g *writeguard.Progress) {
			g.Attempt, g.Steps[0].State, g.Expires = "of a dead process", writeguard.StepSending, time.Now().Add(-time.Second)
		},
	} {
		before := len(v.calls())
		id := planIDs.FindString(c.code(`await Promise.all(['a', 'b'].map(id => s.kill({id})))`, "", nil).text())
		p.decidePlan(id, "approve", "0", "1")
		p.changePlan(id, change)
		got := c.plan(id)
		if len(v.calls()) != before || !strings.Contains(got.text(), "expired before it came to this step") || !got.Result.IsError {
			t.Errorf("%s: %q %s", name, v.calls(), got.Raw)
		}
	}
}

// A direct call whose process died while it was sent as a plan is not "being
// sent" for ever, and not sent again.
func TestPlannedCallOfADeadProcess(t *testing.T) {
	for state, want := range map[writeguard.StepState]string{writeguard.StepSending: "may have been carried out", writeguard.StepApproved: "ran kill"} {
		v := serve(t, upstreamtest.Legacy, nil)
		p := start(t, trusted(v)+planWrites, nil)
		c := p.client(legacy, "", noCaps, nil)
		id := planIDs.FindString(c.call("s_kill", `{"id":"a"}`, "", nil).text())
		p.decidePlan(id, "approve", "0")
		p.changePlan(id, func(g *writeguard.Progress) { g.Attempt, g.Steps[0].State = "of a dead process", state })
		got := c.call("s_kill", `{"id":"a"}`, "", nil)
		if n := len(v.calls()); !strings.Contains(got.text(), want) || (state == writeguard.StepSending) != (n == 0) {
			t.Errorf("%s: %d calls, %s", state, n, got.Raw)
		}
		if again := c.call("s_kill", `{"id":"a"}`, "", nil); planIDs.FindString(again.text()) == "" || strings.Contains(again.text(), id) {
			t.Errorf("once more: %s", again.Raw)
		}
	}
}

// changePlan edits what became of a plan, as another process would have.
func (p *portal) changePlan(id string, change func(*writeguard.Progress)) {
	p.t.Helper()
	box, err := vault.New(vault.Options{Store: p.store})
	p.must(err)
	_, err = writeguard.NewPlans(p.store, box, nil, nil).Change(context.Background(), id, func(_ *writeguard.Plan, g *writeguard.Progress) error {
		change(g)
		return nil
	})
	p.must(err)
}

// The report of a long plan that stopped early says so in a line, not in hundreds.
func TestReportOfALongPlanIsBounded(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
		if strings.Contains(string(c.Params), `"k2"`) {
			c.Result(`{"isError":true,"content":[{"type":"text","text":"no such thing"}]}`)
			return true
		}
		return false
	})
	p := start(t, trusted(v)+planWrites, nil)
	c := p.client(legacy, twoTools, noCaps, nil)
	got := c.code(`await Promise.allSettled(Array.from({length: 200}, (_, i) => s.kill({id: 'k' + i})))`, "", nil)
	id := planIDs.FindString(got.text())
	all := make([]string, 200)
	for i := range all {
		all[i] = strconv.Itoa(i)
	}
	if !strings.Contains(got.text(), "200 calls") {
		t.Fatalf("%s", got.Raw)
	}
	p.decidePlan(id, "approve", all...)
	got = c.plan(id)
	if !strings.Contains(got.text(), "2 done, 1 failed, 197 not sent") || !strings.Contains(got.text(), "4 to 200: not sent") || len(got.Raw) > 4000 {
		t.Errorf("%d bytes: %s", len(got.Raw), got.Raw)
	}
}

// A plan is announced when it is made and with each decision, without arguments,
// and counted in the navigation of those whom it waits for.
func TestPlansAreAnnounced(t *testing.T) {
	var mu sync.Mutex
	var got []map[string]any
	raw := ""
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m map[string]any
		_ = json.Unmarshal(body, &m)
		mu.Lock()
		defer mu.Unlock()
		got, raw = append(got, m), raw+string(body)
	}))
	defer hook.Close()
	const waits = `title="waiting for you"`
	for way, mode := range map[string]string{"script": twoTools, "call": ""} {
		got, raw = nil, ""
		v := serve(t, upstreamtest.Legacy, nil)
		p := start(t, trusted(v)+planWrites[:len(planWrites)-2]+", webhook: {url: '"+hook.URL+"', secret: 0123456789abcdef}}\n", nil)
		if _, page := p.get("/"); strings.Contains(page, waits) {
			t.Errorf("something waits: %s", page)
		}
		c := p.client(legacy, mode, noCaps, nil)
		var a answer
		if way == "script" {
			a = c.code(`await s.kill({id: 'the-argument'})`, "", nil)
		} else {
			a = c.call("s_kill", `{"id":"the-argument"}`, "", nil)
		}
		id := planIDs.FindString(a.text())
		if _, page := p.get("/"); !strings.Contains(page, waits+`>1<`) {
			t.Errorf("%s: the plan is not counted: %s", way, page)
		}
		p.decidePlan(id, "approve", "0")
		p.until("both messages arrived", func() bool { mu.Lock(); defer mu.Unlock(); return len(got) >= 2 })
		mu.Lock()
		if got[0]["event"] != "plan.requested" || got[1]["event"] != "plan.decided" || got[1]["state"] != "ready" || got[0]["plan"] != id || got[0]["class"] != "destructive" ||
			!strings.Contains(got[0]["text"].(string), p.url+"/plans/"+id) || strings.Contains(raw, "the-argument") || len(got) != 2 {
			t.Errorf("%s: %v", way, got)
		}
		mu.Unlock()
		if _, page := p.get("/"); strings.Contains(page, waits) {
			t.Errorf("%s: still something waits", way)
		}
	}
}

// A step whose outcome is unknown stops a plan until a person says what became
// of it: what happened is not sent again, what did not is sent once more, and
// the rest goes on, each call once.
func TestPersonSettlesAnUnknownStep(t *testing.T) {
	for _, said := range []string{"happened", "not"} {
		for _, way := range []string{"plan", "resume"} {
			t.Run(said+" "+way, func(t *testing.T) {
				cut := true
				var mu sync.Mutex
				v := serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
					mu.Lock()
					defer mu.Unlock()
					if cut && strings.Contains(string(c.Params), `"b"`) {
						cut = false
						c.Drop()
						return true
					}
					return false
				})
				p := start(t, trusted(v)+planWrites, nil)
				c := p.client(legacy, twoTools, noCaps, nil)
				got := c.code(`const r = await Promise.allSettled(['a', 'b', 'c', 'd'].map(id => s.kill({id}))); return r.map(x => x.value || x.reason.code).join()`, "", nil)
				id, run := planIDs.FindString(got.text()), runID.FindString(got.Raw)
				p.decidePlan(id, "approve", "0", "1", "2")
				got = c.plan(id)
				if !slices.Equal(ids(v, "kill"), []string{"a", "b"}) || !strings.Contains(got.text(), "say there whether it happened") {
					t.Fatalf("%q %s", ids(v, "kill"), got.Raw)
				}
				// By itself nothing goes on.
				if got = c.plan(id); len(v.calls()) != 2 {
					t.Fatalf("%q %s", v.calls(), got.Raw)
				}
				// Of a step whose outcome is known nothing can be said, and nothing twice.
				p.submit("/plans/"+id, "/plans/"+id+"/settle", "step=0&decision=not")
				var all sync.WaitGroup
				send := p.fill("/plans/" + id)
				for range 4 {
					all.Go(func() { send("/plans/"+id+"/settle", "step=1&decision="+said) })
				}
				all.Wait()
				results := make([]answer, 3)
				for i := range results {
					all.Go(func() {
						if way == "resume" {
							results[i] = p.client(legacy, twoTools, noCaps, nil).resume(run, "", nil)
							return
						}
						results[i] = p.client(legacy, twoTools, noCaps, nil).plan(id)
					})
				}
				all.Wait()
				want, text := []string{"a", "b", "c"}, `ran kill {"id":"a"},answer_lost,ran kill {"id":"c"},removed`
				if said == "not" {
					want, text = []string{"a", "b", "b", "c"}, `ran kill {"id":"a"},ran kill {"id":"b"},ran kill {"id":"c"},removed`
				}
				if !slices.Equal(ids(v, "kill"), want) || !slices.ContainsFunc(results, func(a answer) bool { return strings.Contains(a.text(), text) }) {
					t.Errorf("%q, %s", ids(v, "kill"), results[0].Raw+results[1].Raw+results[2].Raw)
				}
			})
		}
	}
}

// Who may not decide on a step says nothing of its outcome either, and what takes
// something from a lost answer is not sent.
func TestSettlingIsForThoseWhoDecide(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v)+planWrites, nil)
	c := p.client(legacy, twoTools, noCaps, nil)
	id := planIDs.FindString(c.code(`const made = await s.kill({id: 'a'}); await s.kill({id: made}); await s.kill({id: 'c'})`, "", nil).text())
	p.decidePlan(id, "approve", "0", "1", "2")
	p.changePlan(id, func(g *writeguard.Progress) {
		g.Attempt, g.Over, g.Steps[0].State, g.Steps[1].State, g.Steps[2].State = "x", true, writeguard.StepUnknown, writeguard.StepNotSent, writeguard.StepNotSent
	})
	if resp, page := p.submit("/plans/"+id, "/plans/"+id+"/settle", "step=0&decision=happened"); resp.StatusCode != http.StatusSeeOther {
		t.Fatalf("%d %s", resp.StatusCode, page)
	}
	got := c.plan(id)
	if !slices.Equal(ids(v, "kill"), []string{"c"}) || !strings.Contains(got.text(), "which is lost") {
		t.Errorf("%q %s", ids(v, "kill"), got.Raw)
	}
}

// A tool with many actions flows, asks or is refused by what a call does, by
// every way, and its listing says that it depends.
func TestClassOfACallAtTheDoor(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, "servers:\n  s:\n    url: "+v.URL+"\n    tools: {kill: {class: destructive, classes: [{class: read, when: 'args.id == \"get\"'}]}}\nguard: {preset: read-only}\n", nil)
	for _, e := range []era{legacy, modern} {
		direct, code := p.client(e, "", noCaps, nil), p.client(e, twoTools, noCaps, nil)
		ways := map[string]func(args string) answer{
			"direct": func(args string) answer { return direct.call("s_kill", args, "", nil) },
			"tool": func(args string) answer {
				return code.call("portal_execute", `{"tool":"s_kill","arguments":`+args+`}`, "", nil)
			},
			"code": func(args string) answer { return code.code(`return await s.kill(`+args+`)`, "", nil) },
		}
		for way, call := range ways {
			before := len(v.calls())
			if got := call(`{"id":"get"}`); len(v.calls()) != before+1 {
				t.Errorf("%s: a read did not flow: %s", way, got.Raw)
			}
			for _, args := range []string{`{"id":"kill"}`, `{"id":"GET"}`, `{"id":"get","ID":"kill"}`, `{"ID":"get"}`, `{}`} {
				if got := call(args); len(v.calls()) != before+1 {
					t.Errorf("%s %s: sent: %s", way, args, got.Raw)
				}
			}
		}
		if got := code.call("portal_query_tools", `{"query":"kill"}`, "", nil); !strings.Contains(got.text(), "depends on the arguments") {
			t.Errorf("%s", got.Raw)
		}
	}
}
