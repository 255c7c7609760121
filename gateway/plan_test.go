package gateway_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

const planWrites = "guard: {rules: [{name: planned, class: [write, destructive], action: plan}]}\n"

var planIDs = regexp.MustCompile(`pl-[A-Z2-7]{26}`)

// decidePlan presses a button on the page of a plan, with these steps ticked.
func (p *portal) decidePlan(id, decision string, ticked ...string) {
	p.t.Helper()
	form := "decision=" + decision
	for _, s := range ticked {
		form += "&step=" + s
	}
	if resp, body := p.submit("/plans/"+id, "/plans/"+id, form); resp.StatusCode != http.StatusSeeOther {
		p.t.Fatalf("%s plan %s: %d %.600s", decision, id, resp.StatusCode, body)
	}
}

func (c *client) plan(id string) answer {
	return c.call("portal_execute", `{"plan":"`+id+`"}`, "", nil)
}

// names are the ids that a victim was called with, in order.
func ids(v *victim, tool string) (out []string) {
	for _, c := range v.calls() {
		var p struct {
			Name      string
			Arguments struct{ ID string }
		}
		if json.Unmarshal([]byte(c), &p) == nil && p.Name == tool {
			out = append(out, p.Arguments.ID)
		}
	}
	return out
}

// Reads happen, writes are collected up to where the code needs an answer; what
// a person approved is sent in order, once; the code goes on with the answers.
func TestPlanIsCollectedReviewedAndApplied(t *testing.T) {
	for _, e := range []era{legacy, modern} {
		v := serve(t, upstreamtest.Legacy, nil)
		p := start(t, trusted(v)+planWrites, nil)
		c := p.client(e, twoTools, noCaps, nil)
		const code = `await s.look({id: 'first'});
const done = await Promise.allSettled(Array.from({length: 12}, (_, i) => s.kill({id: 'k' + i})));
return done.map(d => d.status === 'fulfilled' ? d.value : d.reason.code + ': ' + d.reason.message).join('\n')`
		got := c.code(code, "", nil)
		id := planIDs.FindString(got.text())
		if id == "" || !strings.Contains(got.text(), "12 calls") || len(ids(v, "kill")) != 0 || len(ids(v, "look")) != 1 {
			t.Fatalf("%v: %s %q", e, got.Raw, v.calls())
		}
		// Not decided: nothing is applied, by no name.
		if again := c.plan(id); planIDs.FindString(again.text()) != id || len(ids(v, "kill")) != 0 {
			t.Fatalf("undecided: %s", again.Raw)
		}
		run := runID.FindString(got.Raw)
		if again := c.resume(run, "", nil); planIDs.FindString(again.text()) != id || len(ids(v, "kill")) != 0 {
			t.Fatalf("resumed: %s", again.Raw)
		}
		p.decidePlan(id, "approve", "0", "1", "3", "4", "5", "6", "7", "8", "10", "11")
		got = c.plan(id)
		want := []string{"k0", "k1", "k3", "k4", "k5", "k6", "k7", "k8", "k10", "k11"}
		if !slices.Equal(ids(v, "kill"), want) {
			t.Fatalf("sent %q, want %q\n%s", ids(v, "kill"), want, got.Raw)
		}
		if text := got.text(); strings.Count(text, "ran kill") != 10 || strings.Count(text, "removed: kill on server s was removed from the plan") != 2 || !strings.Contains(text, "10 done, 2 removed") {
			t.Errorf("%v: %s", e, text)
		}
		if len(ids(v, "look")) != 1 {
			t.Errorf("a read was repeated: %q", v.calls())
		}
		// Applied is applied.
		if again := c.plan(id); len(ids(v, "kill")) != 10 || !strings.Contains(again.text(), "10 done") {
			t.Errorf("applied again: %s", again.Raw)
		}
		lines, _ := p.auditLines(func(lines []map[string]any) bool {
			n := 0
			for _, l := range lines {
				if l["method"] == "plan/applied" {
					n++
				}
			}
			return n == 1
		})
		made, steps := 0, 0
		for _, l := range lines {
			switch {
			case l["method"] == "plan/made" && l["plan"] == id, l["method"] == "plan/decided" && l["status"] == "approved":
				made++
			case l["method"] == "tools/call" && l["plan"] == id && l["status"] == "ok":
				steps++
			}
		}
		if made != 2 || steps != 10 {
			t.Errorf("audit: %d lines of the plan, %d of its steps", made, steps)
		}
		p.stop()
	}
}

// What is awaited one by one is planned stage by stage: no answer is invented.
func TestPlanGoesOnStageByStage(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v)+planWrites, nil)
	c := p.client(legacy, twoTools, noCaps, nil)
	got := c.code(`const a = await s.kill({id: 'a'}); if (!a.includes('ran')) throw new Error(a); const b = await s.kill({id: a.length}); return a + b`, "", nil)
	for i, want := range []string{`"a"`, `19`} {
		id := planIDs.FindString(got.text())
		if id == "" || !strings.Contains(got.text(), want) || len(v.calls()) != i {
			t.Fatalf("stage %d: %s", i+1, got.Raw)
		}
		p.decidePlan(id, "approve", "0")
		got = c.plan(id)
	}
	if text := got.text(); !strings.Contains(text, `ran kill {"id":"a"}ran kill {"id":19}`) || len(v.calls()) != 2 {
		t.Errorf("%s %q", got.Raw, v.calls())
	}
}

// The first failure ends a plan; the code does not go on.
func TestPlanStopsAtTheFirstFailure(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
		if strings.Contains(string(c.Params), "bad") {
			c.Result(`{"isError":true,"content":[{"type":"text","text":"no such thing"}]}`)
			return true
		}
		return false
	})
	p := start(t, trusted(v)+planWrites, nil)
	c := p.client(legacy, twoTools, noCaps, nil)
	got := c.code(`await Promise.all(['one', 'bad', 'three'].map(id => s.kill({id})))`, "", nil)
	id := planIDs.FindString(got.text())
	p.decidePlan(id, "approve", "0", "1", "2")
	got = c.plan(id)
	if text := got.text(); !strings.Contains(text, "1 done, 1 failed, 1 not sent") || !strings.Contains(text, "no such thing") || !slices.Equal(ids(v, "kill"), []string{"one", "bad"}) {
		t.Errorf("%s %q", got.Raw, v.calls())
	}
	if again := c.resume(runID.FindString(got.Raw), "", nil); len(v.calls()) != 2 {
		t.Errorf("resumed: %s", again.Raw)
	}
}

// A direct call is a plan of one step; made again after the yes, it is sent once.
func TestPlanOfADirectCall(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v)+planWrites, nil)
	for i, mode := range []string{"", twoTools} {
		c := p.client(legacy, mode, noCaps, nil)
		kill := func(arg string) answer {
			if mode == "" {
				return c.call("s_kill", `{"id":"`+arg+`"}`, "", nil)
			}
			return c.call("portal_execute", `{"tool":"s_kill","arguments":{"id":"`+arg+`"}}`, "", nil)
		}
		arg := "x" + mode
		first := kill(arg)
		id := planIDs.FindString(first.text())
		if id == "" || !strings.Contains(first.text(), "/plans/"+id) || len(v.calls()) != i {
			t.Fatalf("%s", first.Raw)
		}
		if again := kill(arg); planIDs.FindString(again.text()) != id {
			t.Errorf("the same call made another plan: %s", again.Raw)
		}
		p.decidePlan(id, "approve", "0")
		got := kill(arg)
		if mode != "" {
			got = c.plan(id)
		}
		if !strings.Contains(got.text(), "ran kill") || len(v.calls()) != i+1 {
			t.Errorf("%s %q", got.Raw, v.calls())
		}
		if third := kill(arg); strings.Contains(third.text(), "ran kill") || planIDs.FindString(third.text()) == id || len(v.calls()) != i+1 {
			t.Errorf("once more: %s", third.Raw)
		}
	}
}

// Nobody but those whom the rules name decides on a plan, and nobody else's
// plan can be applied or seen.
func TestPlanIsDecidedByThoseNamed(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v)+"guard: {rules: [{name: four eyes, class: [destructive], action: plan, approvers: {users: [boss@example.com]}}, {name: own, tools: [look], action: plan}]}\n", nil)
	c := p.client(legacy, twoTools, noCaps, nil)
	got := c.code(`await s.kill({id: 'a'})`, "", nil)
	id := planIDs.FindString(got.text())
	if !strings.Contains(got.text(), "boss@example.com") {
		t.Errorf("the agent is not told whom to ask: %s", got.Raw)
	}
	_, body := p.get("/plans/" + id)
	if strings.Contains(body, `name="decision"`) || !strings.Contains(body, "boss@example.com") {
		t.Errorf("the user is offered a decision: %s", body)
	}
	own := planIDs.FindString(c.call("portal_execute", `{"tool":"s_look"}`, "", nil).text())
	resp, body := p.submit("/plans/"+own, "/plans/"+id, "decision=approve&step=0")
	if resp.StatusCode == http.StatusSeeOther {
		t.Errorf("the user decided: %s", body)
	}
	if again := c.plan(id); len(v.calls()) != 0 {
		t.Errorf("%s", again.Raw)
	}
	if other := c.plan("pl-" + strings.Repeat("A", 26)); !other.Result.IsError {
		t.Errorf("%s", other.Raw)
	}
}

// A read that asks again for what a step changes waits for the plan.
func TestPlanReadsThatLookBackWait(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v)+planWrites, nil)
	c := p.client(legacy, twoTools, noCaps, nil)
	got := c.code(`const list = await s.look({id: 'list'}); s.kill({id: 'a'}).catch(() => {}); await new Promise(r => setTimeout(r, 20)); const other = await s.look({id: 'b'}); const after = await s.look({id: 'a'}); return [list, other, after]`, "", nil)
	id := planIDs.FindString(got.text())
	if id == "" || !strings.Contains(got.text(), "looks again") || !slices.Equal(ids(v, "look"), []string{"list", "b"}) {
		t.Fatalf("%s %q", got.Raw, v.calls())
	}
	p.decidePlan(id, "approve", "0")
	got = c.plan(id)
	if !slices.Equal(ids(v, "look"), []string{"list", "b", "a"}) || !slices.Equal(ids(v, "kill"), []string{"a"}) {
		t.Errorf("%s %q", got.Raw, v.calls())
	}
}

// What is made can be used by the next call before it is made.
func TestPlanUsesAnswersThatComeLater(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v)+planWrites, nil)
	c := p.client(legacy, twoTools, noCaps, nil)
	got := c.code(`const out = [];
for (const name of ['a', 'b']) { const made = await s.kill({id: name}); out.push(await s.kill({id: made})); }
return out`, "", nil)
	id := planIDs.FindString(got.text())
	if id == "" || !strings.Contains(got.text(), "4 calls") || strings.Contains(got.text(), "ends here") || !strings.Contains(got.text(), "⟨answer of step 1⟩") {
		t.Fatalf("%s\n%s", got.Raw, p.log.String())
	}
	p.decidePlan(id, "approve", "0", "1", "2", "3")
	got = c.plan(id)
	want := []string{"a", `ran kill {"id":"a"}`, "b", `ran kill {"id":"b"}`}
	if !slices.Equal(ids(v, "kill"), want) || !strings.Contains(got.text(), "4 done") || !strings.Contains(got.text(), `ran kill {\"id\":\"ran kill`) {
		t.Errorf("%q\n%s", ids(v, "kill"), got.Raw)
	}
}

// A step that was removed throws in the code that was told of its success; what
// was carried out is not sent again, whichever way the code goes then.
func TestPlanWithoutAStepGoesOn(t *testing.T) {
	for what, code := range map[string]string{
		"ends":      `for (const id of ['a', 'b', 'c', 'd']) await s.kill({id}); return 'all'`,
		"skips":     `const out = []; for (const id of ['a', 'b', 'c', 'd']) { try { await s.kill({id}); out.push(id) } catch (e) { out.push(e.code) } } return out.join()`,
		"looks on":  `const out = []; for (const id of ['a', 'b', 'c', 'd']) { try { await s.kill({id}); out.push(id) } catch (e) { out.push((await s.look({id})).length) } } return out.join()`,
		"builds on": `let r; try { r = await s.kill({id: 'b'}) } catch {} const out = []; for (const id of ['a', 'b', 'c']) { try { await s.kill({id, on: id === 'c' ? r : 0}); out.push(id) } catch (e) { out.push(e.code) } } return out.join()`,
	} {
		v := serve(t, upstreamtest.Legacy, nil)
		p := start(t, trusted(v)+planWrites, nil)
		c := p.client(legacy, twoTools, noCaps, nil)
		got := c.code(code, "", nil)
		id := planIDs.FindString(got.text())
		if !strings.Contains(got.text(), "4 calls") {
			t.Fatalf("%s: %s\n%s", what, got.Raw, p.log.String())
		}
		if what == "builds on" {
			p.decidePlan(id, "approve", "1", "2", "3")
		} else {
			p.decidePlan(id, "approve", "0", "2", "3")
		}
		got = c.plan(id)
		want, value := []string{"a", "c", "d"}, map[string]string{"ends": "was removed from the plan", "skips": "a,removed,c,d\n", "looks on": "a,19,c,d\n"}[what]
		if what == "builds on" {
			// The code now builds c on nothing: that is another call, and planned anew.
			want, value = []string{"a", "b"}, `"id":"c"`
		}
		if !slices.Equal(ids(v, "kill"), want) || !strings.Contains(got.text(), value) || !strings.Contains(got.text(), "removed") {
			t.Errorf("%s: sent %q\n%s", what, ids(v, "kill"), got.text())
		}
		p.stop()
	}
}

// shelf is a server of things: get reads one, put changes it, drop removes it.
func shelf(t *testing.T) (*victim, *sync.Map) {
	things := &sync.Map{}
	for _, id := range []string{"a", "b", "c"} {
		things.Store(id, "old "+id)
	}
	v := serveWith(t, upstreamtest.Options{Era: upstreamtest.Legacy, Tools: []json.RawMessage{toolDef("get", readOnly), toolDef("put", `{"destructiveHint":false}`), toolDef("drop", destructive)}}, func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		id, text := c.Arguments().String("id"), c.Arguments().String("text")
		was, there := things.Load(id)
		switch {
		case text == "bad", !there && c.Name() != "put":
			c.Result(`{"isError":true,"content":[{"type":"text","text":"no such thing"}]}`)
			return true
		case c.Name() == "put":
			things.Store(id, text)
		case c.Name() == "drop":
			things.Delete(id)
		}
		thing, _ := json.Marshal(map[string]any{"id": id, "text": was})
		c.Result(`{"content":[],"structuredContent":` + string(thing) + `}`)
		return true
	})
	return v, things
}

const shelfTools = `    tools:
      put: {preview: {with: get, args: {id: args.id}}, undo: {with: put, args: {id: args.id, text: before.text}}}
      drop: {preview: {with: get, args: {id: args.id}}, undo: {with: put, args: {id: args.id, text: result.text}}}
`

// A reviewer sees what is there and what it becomes; what changed meanwhile
// stops the plan before anything is sent.
func TestPlanShowsWhatItChangesAndIsRefusedWhenThatChanged(t *testing.T) {
	v, things := shelf(t)
	p := start(t, trusted(v)+shelfTools+planWrites, nil)
	c := p.client(legacy, twoTools, noCaps, nil)
	const code = `await s.put({id: 'a', text: 'new a'}); await s.drop({id: 'b'}); return 'done'`
	id := planIDs.FindString(c.code(code, "", nil).text())
	_, page := p.get("/plans/" + id)
	for _, want := range []string{"<del>&#34;old a&#34;</del>", "<ins>&#34;new a&#34;</ins>", "old b"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not show %s:\n%s", want, page[strings.Index(page, "<main"):])
		}
	}
	p.decidePlan(id, "approve", "0", "1")
	things.Store("b", "somebody else's b")
	got := c.plan(id)
	if text := got.text(); !strings.Contains(text, "what step 2 changes is not what it was") || !strings.Contains(text, "somebody else's b") || !strings.Contains(text, "2 not sent") {
		t.Errorf("%s", got.Raw)
	}
	if again := c.plan(id); !again.Result.IsError {
		t.Errorf("refused, and then: %s", again.Raw)
	}
	if a, _ := things.Load("a"); a != "old a" {
		t.Errorf("a is %v", a)
	}
	id = planIDs.FindString(c.code(code, "", nil).text())
	p.decidePlan(id, "approve", "0", "1")
	if got = c.plan(id); !strings.Contains(got.text(), "2 done") {
		t.Errorf("%s", got.Raw)
	}
}

// What a plan did is taken back last first, all of it is tried, and the page
// says what came of it (row 50).
func TestUndoTriesAllInReverse(t *testing.T) {
	v, things := shelf(t)
	p := start(t, trusted(v)+shelfTools+planWrites, nil)
	c := p.client(legacy, twoTools, noCaps, nil)
	things.Store("b", "bad") // which cannot be put back
	id := planIDs.FindString(c.code(`await s.put({id: 'a', text: '1'}); await s.drop({id: 'b'}); await s.put({id: 'c', text: '3'})`, "", nil).text())
	if _, page := p.get("/plans/" + id); strings.Contains(page, "Take back") {
		t.Error("what was not done can be taken back")
	}
	p.decidePlan(id, "approve", "0", "1", "2")
	if got := c.plan(id); !strings.Contains(got.text(), "3 done") {
		t.Fatalf("%s", got.Raw)
	}
	before := len(v.calls())
	if resp, body := p.submit("/plans/"+id, "/plans/"+id+"/undo", "decision=undo"); resp.StatusCode != http.StatusSeeOther {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	var order []string
	for _, call := range v.calls()[before:] {
		order = append(order, regexp.MustCompile(`"id":"(.)"`).FindStringSubmatch(call)[1])
	}
	a, _ := things.Load("a")
	k, _ := things.Load("c")
	if !slices.Equal(order, []string{"c", "b", "a"}) || a != "old a" || k != "old c" {
		t.Errorf("taken back %q: a is %v, c is %v", order, a, k)
	}
	_, page := p.get("/plans/" + id)
	if !strings.Contains(page, "2 taken back, 1 could not be") || !strings.Contains(page, "no such thing") {
		t.Errorf("%s", page[strings.Index(page, "<main"):])
	}
	// Once more, only what failed.
	before = len(v.calls())
	p.submit("/plans/"+id, "/plans/"+id+"/undo", "decision=undo")
	if n := len(v.calls()) - before; n != 1 {
		t.Errorf("%d calls were made the second time", n)
	}
}

// A client that can be asked decides on the whole plan in its form, in both eras,
// for code and for one call; not where the rule says that only the page counts.
func TestPlanIsDecidedInTheClient(t *testing.T) {
	for _, e := range []era{legacy, modern} {
		for said, want := range map[string]string{yes: "ran kill", `{"action":"accept","content":{"decision":"deny"}}`: "removed", `{"action":"cancel"}`: "/plans/pl-"} {
			for _, way := range []string{"code", "call"} {
				v := serve(t, upstreamtest.Legacy, nil)
				p := start(t, trusted(v)+planWrites, nil)
				c := p.client(e, map[string]string{"code": twoTools, "call": ""}[way], formCaps, nil)
				do := func(more string) answer {
					on := func(q question) {
						if !strings.Contains(string(q.Params), "kill") || !strings.Contains(string(q.Params), "Apply this plan") {
							t.Errorf("asked %s", q.Params)
						}
						go q.reply(said)
					}
					if way == "call" {
						return c.call("s_kill", `{"id":"a"}`, more, on)
					}
					return c.code(`const r = await s.kill({id: 'a'}).catch(e => e.code); return r`, more, on)
				}
				got := do("")
				if e == modern {
					if got.Result.ResultType != "input_required" || len(v.calls()) != 0 {
						t.Fatalf("%s: %s", way, got.Raw)
					}
					got = do(strings.ReplaceAll(got.sayYes(), yes, said))
				}
				if want == "removed" && way == "call" {
					want = "said no"
				}
				n := 0
				if said == yes {
					n = 1
				}
				if !strings.Contains(got.text(), want) || len(v.calls()) != n {
					t.Errorf("%v, %s, %s: %d calls, %s", e, way, said, len(v.calls()), got.Raw)
				}
				p.stop()
			}
		}
	}
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v)+"guard: {rules: [{name: planned, class: [destructive], action: plan, via: web}]}\n", nil)
	c := p.client(legacy, twoTools, formCaps, nil)
	got := c.code(`return await s.kill({id: 'a'})`, "", func(q question) { t.Errorf("asked %s", q.Params); go q.reply(yes) })
	if planIDs.FindString(got.text()) == "" || len(v.calls()) != 0 {
		t.Errorf("%s", got.Raw)
	}
}
