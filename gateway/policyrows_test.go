package gateway_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// What is refused is refused under every name that leads to it, and the
// portal's own tools are no way around: not from code, not by call, not in
// another spelling.
func TestB139_ForbiddenUnderEveryName(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v)+"guard:\n  rules:\n    - {name: never, tools: [kill], action: deny}\n", nil)
	eachEra(t, func(t *testing.T, e era) {
		c := p.client(e, twoTools, noCaps, nil)
		for _, name := range []string{"s_kill", "S_KILL", "s.kill", "s/kill", "codemode.s_kill", "S-Kill", " s_kill "} {
			got := c.call("portal_execute", fmt.Sprintf(`{"tool":%q,"arguments":{"id":"1"}}`, name), "", always)
			if strings.HasPrefix(got.text(), "ran") || !strings.Contains(got.Raw, "never") && !strings.Contains(got.Raw, "named") && !strings.Contains(got.Raw, "no tool") {
				t.Errorf("%q: %s", name, got.Raw)
			}
		}
		var tries []string
		for _, expr := range []string{
			"codemode.s_kill", "codemode['s_kill']", "s.kill", "s['kill']", "codemode.S_KILL", "codemode.skill", "codemode.kill", "kill", "globalThis.s.kill", "Reflect.get(codemode, 's_kill')", "Object.assign({}, codemode).s_kill", "s.kill.bind(null)", "codemode.call.bind(codemode, 's_kill')",
			"(a => codemode.call('s_kill', a))", "(a => codemode.call('S_kill', a))", "(a => codemode.call('s.kill', a))", "(a => codemode.call('s/kill', a))", "(a => codemode.raw('s_kill', a))",
			"(a => codemode.call('portal_execute', {tool: 's_kill', arguments: a}))", "(a => codemode.portal_execute({tool: 's_kill', arguments: a}))", "(a => codemode['portal_execute']({code: 'return s.kill({})'}))", "(a => portal_execute({tool: 's_kill', arguments: a}))",
			"(a => codemode.call('Portal_Execute', {tool: 's_kill', arguments: a}))", "(a => codemode.call('portal-execute', {tool: 's_kill', arguments: a}))", "(a => portal.execute({tool: 's_kill', arguments: a}))", "(a => codemode.call('portal_codemode_execute', {code: 'return s.kill({})'}))", "(a => codemode.call('portal_code', {code: 'return s.kill({})'}))",
		} {
			tries = append(tries, "async () => ("+expr+")({id:'1'})")
		}
		got := c.code("const out = []; for (const f of ["+strings.Join(tries, ",")+"]) { try { out.push('RAN ' + JSON.stringify(await f())) } catch (e) { out.push(String(e.name)) } } return out", "", always)
		if got.Err != nil || got.Result.IsError || strings.Contains(got.Raw, "ran kill") || strings.Contains(got.Raw, "RAN") {
			t.Errorf("%s", got.Raw)
		}
		if n := len(v.calls()); n != 0 {
			t.Fatalf("%d calls arrived: %v", n, v.calls())
		}
	})
}

// Reads through the one tool that runs everything ask nobody, and its hints
// say what it can do; only what is guarded inside asks.
func TestB146_ReadsInCodeAskNobody(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v), nil)
	eachEra(t, func(t *testing.T, e era) {
		before := len(v.calls())
		c := p.client(e, twoTools, formCaps, nil)
		asked := 0
		on := func(q question) { asked++; go q.reply(yes) }
		for i := range 10 {
			id := fmt.Sprint(i)
			for _, got := range []answer{c.code("return await s.look({id:'"+id+"'})", "", on), c.call("portal_execute", `{"tool":"s_look","arguments":{"id":"`+id+`"}}`, "", on)} {
				if !strings.Contains(got.text(), "ran look") || got.Result.ResultType == "input_required" {
					t.Fatalf("%s", got.Raw)
				}
			}
		}
		if asked != 0 {
			t.Errorf("20 reads asked %d times", asked)
		}
		got := c.code("await s.look({id:'a'}); return await s.kill({id:'1'})", "", on)
		if e == legacy && asked != 1 || e == modern && got.Result.ResultType != "input_required" && len(got.approvals()) != 1 {
			t.Errorf("the one guarded call asked %d times: %s", asked, got.Raw)
		}
		if n := len(v.calls()) - before; n < 21 {
			t.Errorf("%d calls arrived", n)
		}
		var list struct {
			Result struct {
				Tools []struct {
					Name        string
					Annotations struct{ ReadOnlyHint, DestructiveHint *bool }
				}
			}
		}
		if err := json.Unmarshal([]byte(c.do("tools/list", "", nil).Raw), &list); err != nil || len(list.Result.Tools) < 2 {
			t.Fatalf("%d tools: %v", len(list.Result.Tools), err)
		}
		for _, tool := range list.Result.Tools {
			a := tool.Annotations
			if tool.Name == "portal_execute" && (a.ReadOnlyHint == nil || *a.ReadOnlyHint) || tool.Name == "portal_query_tools" && (a.ReadOnlyHint == nil || !*a.ReadOnlyHint) {
				t.Errorf("the hints of %s are not honest: %+v", tool.Name, a)
			}
		}
	})
}

// Tools whose names read alike are other tools: a rule, and a yes, is for one
// of them.
func TestB148_NamesThatReadAlike(t *testing.T) {
	defs := []json.RawMessage{toolDef("read-only", destructive), toolDef("read_only", destructive), toolDef("Read_Only", destructive)}
	v := serveWith(t, upstreamtest.Options{Era: upstreamtest.Legacy, Tools: defs}, nil)
	p := start(t, trusted(v)+"guard:\n  rules:\n    - {tools: [read-only], action: allow}\n", nil)
	own := map[string]string{} // outward by original name
	for _, tool := range p.registry.Snapshot().Server("s").Tools {
		own[tool.Name] = tool.Outward
	}
	if len(own) != 3 {
		t.Fatalf("%v", own)
	}
	c := p.client(modern, "", noCaps, nil)
	if got := c.call(own["read-only"], `{"id":"1"}`, "", nil); !strings.HasPrefix(got.text(), "ran read-only") {
		t.Fatalf("%s", got.Raw)
	}
	got := c.call(own["read_only"], `{"id":"1"}`, "", nil)
	ids := got.approvals()
	if len(ids) != 1 {
		t.Fatalf("%s", got.Raw)
	}
	p.approve(ids[0])
	if got := c.call(own["Read_Only"], `{"id":"1"}`, "", nil); strings.HasPrefix(got.text(), "ran") {
		t.Errorf("a yes for another tool released it: %s", got.Raw)
	}
	if got := c.call(own["read_only"], `{"id":"1"}`, "", nil); !strings.HasPrefix(got.text(), "ran read_only") {
		t.Errorf("%s", got.Raw)
	}
	if n := len(v.calls()); n != 2 {
		t.Errorf("%d calls arrived: %v", n, v.calls())
	}
}

// A hint never makes the portal send a call again: a write whose answer was
// lost is sent once, and its outcome is called unknown.
func TestB149_IdempotentHintSendsNothingTwice(t *testing.T) {
	defs := []json.RawMessage{toolDef("set", `{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":true}`), toolDef("get", `{"readOnlyHint":true,"idempotentHint":true}`)}
	for _, e := range []upstreamtest.Era{upstreamtest.Legacy, upstreamtest.Modern} {
		v := serveWith(t, upstreamtest.Options{Era: e, Tools: defs}, func(c *upstreamtest.Call) bool {
			if c.Method != "tools/call" {
				return false
			}
			c.Drop()
			return true
		})
		p := start(t, trusted(v)+"guard: {preset: open}\n", nil)
		direct, code := p.client(modern, "", noCaps, nil), p.client(legacy, twoTools, noCaps, nil)
		for n, send := range []func() answer{func() answer { return direct.call("s_set", `{"id":"1"}`, "", nil) }, func() answer { return code.code("return await s.set({id:'2'})", "", nil) }} {
			got := send()
			if !strings.Contains(got.Raw, "unknown") && !strings.Contains(got.Raw, "may have been") {
				t.Errorf("%s", got.Raw)
			}
			if calls := v.calls(); len(calls) != n+1 {
				t.Errorf("a lost answer led to %d calls: %v", len(calls), calls)
			}
		}
	}
}

// An allow-list of a server is for everything it offers: who may not use it, or
// only some of its tools, or whom a rule keeps out, reads nothing else of it.
func TestB152_AccessIsForEveryCapability(t *testing.T) {
	sum := sha256.Sum256([]byte(machine))
	token := map[string]string{"Authorization": "Bearer " + machine}
	for name, how := range map[string]struct {
		limits string // of a service token
		server string // of the server p26
		guard  string
		tool   bool // its tool can still be called
		listed bool // what it offers beside tools is still listed
	}{
		"not in its groups":     {server: "    groups: [nobody]\n"},
		"other servers only":    {limits: ", servers: [h25, h26]"},
		"one tool only":         {limits: ", tools: ['p26/echo', 'h25/*']", tool: true},
		"no tool":               {limits: ", tools: ['h25/*', 'h26/*']"},
		"a rule denies it":      {guard: "guard: {rules: [{servers: [p26], action: deny}]}\n", listed: true},
		"a rule for its groups": {guard: "guard: {rules: [{servers: [h25], action: allow}, {servers: ['p*'], class: [read], users: ['svc:ci'], action: deny}]}\n", listed: true},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := full(t, how.server+how.guard+"url: ORIGIN\nauth:\n  mode: oidc\n  issuer: http://127.0.0.1:1/\n  client_id: x\n  service_tokens:\n    - {id: ci, hash: 'sha256:"+hex.EncodeToString(sum[:])+"'"+how.limits+"}\n")
			for _, e := range []era{legacy, modern} {
				for _, mode := range []string{"", twoTools} {
					c := p.client(e, mode, noCaps, token)
					for method, params := range map[string]string{
						"prompts/get":         `"name":"p26_ask"`,
						"resources/read":      `"uri":"portal+p26:mem://ask"`,
						"completion/complete": `"ref":{"type":"ref/prompt","name":"p26_ask"},"argument":{"name":"x","value":""}`,
					} {
						if got := c.do(method, params, nil); got.Error == nil {
							t.Errorf("%s %s %s: %s", e, mode, method, got.Raw)
						}
					}
					if e == legacy {
						if got := c.do("resources/subscribe", `"uri":"portal+p26:mem://ask"`, nil); got.Error == nil {
							t.Errorf("%s: subscribed: %s", mode, got.Raw)
						}
					}
					got := c.call("p26_echo", `{}`, "", nil)
					if mode == "" && (got.Error == nil && !got.Result.IsError) != how.tool {
						t.Errorf("%s: the tool: %s", e, got.Raw)
					}
					for _, method := range []string{"prompts/list", "resources/list", "resources/templates/list"} {
						if got := c.do(method, "", nil); strings.Contains(got.Raw, "p26") != how.listed {
							t.Errorf("%s %s %s: %s", e, mode, method, got.Raw)
						}
					}
				}
			}
		})
	}
}

// Rules are enforced unless the configuration says in so many words that they
// are not.
func TestB154_DenialsAreEnforcedByDefault(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	for guard, want := range map[string]string{
		"guard: {rules: [{tools: [look], action: deny}]}\n":                       "Refused by policy",
		"guard: {observe: false, rules: [{tools: [look], action: deny}]}\n":       "Refused by policy",
		"guard: {preset: open, rules: [{class: [read], action: deny}]}\n":         "Refused by policy",
		"guard: {observe: true, rules: [{tools: [look], action: deny}]}\n":        "ran look",
		"guard: {rules: [{tools: [look], when: args.nope > 1, action: allow}]}\n": "could not be judged",
	} {
		p := start(t, trusted(v)+guard, nil)
		before := len(v.calls())
		got := p.client(modern, "", noCaps, nil).call("s_look", `{"id":"1"}`, "", nil)
		ran := len(v.calls()) - before
		if !strings.Contains(got.text(), want) || (ran == 1) != (want == "ran look") {
			t.Errorf("%s: %d calls arrived: %s", guard, ran, got.Raw)
		}
		if loud := strings.Contains(p.log.String(), "THE GUARD ONLY OBSERVES"); loud != (want == "ran look") {
			t.Errorf("%s: said loudly that it only observes: %v", guard, loud)
		}
	}
}

// A change of one section alone is enforced from the next call on, also for a
// client that was there before.
func TestB167_EachSectionIsEnforcedOnReload(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	base := "    groups: [staff]\nauth: {mode: none, dev_user: dev@localhost, dev_groups: [staff]}\n"
	for what, change := range map[string]string{
		"a rule":                     base + "guard: {rules: [{tools: [look], action: deny}]}\n",
		"the preset and a class":     "    tools: {look: {class: write}}\n" + base + "guard: {preset: read-only}\n",
		"a filter":                   base + "guard: {filters: [{pattern: 'x1', in: [arguments], action: block}]}\n",
		"a condition":                base + "guard: {rules: [{when: args.id == 'x1', action: deny}]}\n",
		"a budget":                   base + "guard: {rules: [{when: args.id != '', action: allow, budget: {items: 1, per_hour: 1}}]}\n",
		"the groups of the server":   "    groups: [bosses]\nauth: {mode: none, dev_user: dev@localhost, dev_groups: [staff]}\n",
		"the groups of the user":     "    groups: [staff]\nauth: {mode: none, dev_user: dev@localhost, dev_groups: [guests]}\n",
		"the groups of the tool":     "    tools: {look: {groups: [bosses]}}\n" + base,
		"the tool is switched off":   "    tools: {look: {enabled: false}}\n" + base,
		"the server's trust is gone": base,
	} {
		t.Run(what, func(t *testing.T) {
			p := start(t, trusted(v)+base, nil)
			direct, code := p.client(legacy, "", noCaps, nil), p.client(modern, twoTools, noCaps, nil)
			for _, got := range []answer{direct.call("s_look", `{"id":"x1"}`, "", nil), code.code("return await s.look({id:'x1'})", "", nil)} {
				if !strings.Contains(got.text(), "ran look") {
					t.Fatalf("before: %s", got.Raw)
				}
			}
			next := trusted(v) + change
			if what == "the server's trust is gone" {
				next = strings.Replace(next, "    trust_annotations: true\n", "", 1)
			}
			p.reload(next)
			if what == "a budget" { // the first call is within it
				direct.call("s_look", `{"id":"x1"}`, "", nil)
			}
			before := len(v.calls())
			for _, got := range []answer{direct.call("s_look", `{"id":"x1"}`, "", nil), code.code("return await s.look({id:'x1'})", "", nil)} {
				if strings.Contains(got.text(), "ran look") {
					t.Errorf("after: %s", got.Raw)
				}
			}
			if n := len(v.calls()) - before; n != 0 {
				t.Errorf("%d calls arrived", n)
			}
		})
	}
}

// B137: whatever way a denied call takes, and however often, it gets the same
// refusal and an equal line in the audit, and its server hears nothing.
func TestB137_SameRefusalAndAuditEveryWay(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v)+"guard:\n  rules:\n    - {name: never, tools: [kill], action: deny, reason: frozen for the audit}\n", nil)
	const args = `{"id":"1"}`
	n := 0
	eachEra(t, func(t *testing.T, e era) {
		for way, send := range map[string]func() answer{
			"direct":    func() answer { return p.client(e, "", formCaps, nil).call("s_kill", args, "", always) },
			"minimised": func() answer { return p.client(e, modes[1], formCaps, nil).call("s_kill", args, "", always) },
			"by name": func() answer {
				return p.client(e, twoTools, formCaps, nil).call("portal_execute", `{"tool":"s_kill","arguments":`+args+`}`, "", always)
			},
			"in code": func() answer {
				return p.client(e, twoTools, formCaps, nil).code("return await s.kill("+args+")", "", always)
			},
			"one tool": func() answer {
				return p.client(e, modes[3], formCaps, nil).call("portal_code", `{"code":"return await s.kill({id:'1'})"}`, "", always)
			},
			"second mode": func() answer {
				return p.client(e, modes[4], formCaps, nil).call("portal_codemode_execute", `{"code":"return await s.kill({id:'1'})"}`, "", always)
			},
		} {
			for range 2 { // also when it is tried again
				got := send()
				if !got.Result.IsError || got.Result.ResultType == "input_required" || !strings.Contains(got.text(), "never") || !strings.Contains(got.text(), "frozen for the audit") {
					t.Errorf("%s: %s", way, got.Raw)
				}
				n++
			}
		}
	})
	// A batch, which no revision since 2025-06-18 has, is no way around.
	resp, body := p.post("", `[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s_kill","arguments":`+args+`}}]`, nil)
	if resp.StatusCode != 400 {
		t.Errorf("a batch: %d %s", resp.StatusCode, body)
	}
	lines, raw := p.auditLines(func(l []map[string]any) bool { return len(l) >= n })
	denied := 0
	for _, l := range lines {
		if l["server"] != "s" {
			continue // the line of the tool that ran the code
		}
		denied++
		if l["capability"] != "kill" || l["decision"] != "deny" || l["status"] != "denied" || l["rule"] != "never" || l["class"] != "destructive" {
			t.Errorf("%v", l)
		}
	}
	if denied != n {
		t.Errorf("%d lines of %d refusals:\n%s", denied, n, raw)
	}
	if got := v.calls(); len(got) != 0 {
		t.Errorf("arrived: %q", got)
	}
}

// B151: one yes in a script releases one call, not the loop it stands in; each
// call of the loop has its line.
func TestB151_OneYesIsNotForTheLoop(t *testing.T) {
	const loop = "let done = 0; for (let i = 0; i < 6; i++) { try { await s.kill({id: String(i)}); done++ } catch (e) {} } return {done}"
	t.Run("in the client", func(t *testing.T) {
		v := serve(t, upstreamtest.Legacy, nil)
		p := start(t, trusted(v), nil)
		asked := 0
		got := p.client(legacy, twoTools, formCaps, nil).code(loop, "", func(q question) {
			asked++
			if asked == 1 {
				go q.reply(yes)
			} else {
				go q.reply(`{"action":"decline"}`)
			}
		})
		if head(got) != `{"done":1}` || asked != 6 || len(v.calls()) != 1 {
			t.Errorf("asked %d times, %q arrived: %s", asked, v.calls(), got.Raw)
		}
		kinds := map[any]int{}
		p.auditLines(func(l []map[string]any) bool {
			clear(kinds)
			for _, line := range l {
				if line["capability"] == "kill" {
					kinds[line["status"]]++
				}
			}
			return kinds["ok"]+kinds["denied"] == 6
		})
		if kinds["ok"] != 1 || kinds["denied"] != 5 {
			t.Errorf("the audit has %v", kinds)
		}
	})
	t.Run("on the page", func(t *testing.T) {
		v := serve(t, upstreamtest.Legacy, nil)
		p := start(t, trusted(v), nil)
		c := p.client(modern, twoTools, noCaps, nil)
		got := c.code(loop, "", nil)
		seen := map[string]bool{}
		for n := range 6 {
			ids, run := got.approvals(), runID.FindString(got.Raw)
			if len(ids) != 1 || run == "" || seen[ids[0]] || len(v.calls()) != n {
				t.Fatalf("call %d: %q arrived: %s", n, v.calls(), got.Raw)
			}
			seen[ids[0]] = true
			p.approve(ids[0])
			got = c.resume(run, "", nil)
		}
		if head(got) != `{"done":6}` || len(v.calls()) != 6 {
			t.Errorf("%q arrived: %s", v.calls(), got.Raw)
		}
	})
}
