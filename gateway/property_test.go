package gateway_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// modelRule and modelPolicy are the reference: the policy as its document
// describes it, without any of its code.
type modelRule struct{ tool, class, mode, action string } // "" matches everything

type modelPolicy struct {
	preset string
	rules  []modelRule
}

// toolClass is what the tools of the test are, by their trusted annotations.
var toolClass = map[string]string{"look": "read", "set": "write", "kill": "destructive"}

func (m modelPolicy) decide(tool, mode string) string {
	for _, r := range m.rules {
		if (r.tool == "" || r.tool == tool) && (r.class == "" || r.class == toolClass[tool]) && (r.mode == "" || r.mode == mode) {
			return r.action
		}
	}
	switch {
	case toolClass[tool] == "read", m.preset == "open" && toolClass[tool] == "write":
		return "allow"
	case m.preset == "read-only":
		return "deny"
	}
	return "approve"
}

func (m modelPolicy) yaml() string {
	var b strings.Builder
	fmt.Fprintf(&b, "guard:\n  preset: %s\n", m.preset)
	if len(m.rules) > 0 {
		b.WriteString("  rules:\n")
	}
	for _, r := range m.rules {
		fmt.Fprintf(&b, "    - {action: %s", r.action)
		for _, x := range [][2]string{{"tools", r.tool}, {"class", r.class}, {"mode", r.mode}} {
			if x[1] != "" {
				fmt.Fprintf(&b, ", %s: [%s]", x[0], x[1])
			}
		}
		b.WriteString("}\n")
	}
	return b.String()
}

func randomPolicy(r *rand.Rand) modelPolicy {
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	m := modelPolicy{preset: one("careful", "careful", "read-only", "open")}
	for range r.IntN(4) {
		m.rules = append(m.rules, modelRule{one("", "look", "set", "kill"), one("", "", "read", "write", "destructive"), one("", "", "direct", "code"), one("allow", "deny", "approve", "approve")})
	}
	return m
}

// modelCall is one call that was ever tried; id is its argument and tells it
// from all others.
type modelCall struct {
	id, tool string
	approval string // open or given; empty: none
	given    bool
	done     bool // in code: it has an outcome
}

// modelRun is a paused run of code.
type modelRun struct {
	id       string
	parallel bool
	calls    []*modelCall
}

// property is one random sequence.
type property struct {
	t      *testing.T
	r      *rand.Rand
	v      *victim
	dir    string
	p      *portal
	policy modelPolicy
	direct []*modelCall // tried directly
	runs   []*modelRun
	want   map[string]int // how often each call must have reached the server
	next   int
	log    []string
}

func (x *property) say(format string, a ...any) { x.log = append(x.log, fmt.Sprintf(format, a...)) }

func (x *property) fail(format string, a ...any) {
	x.t.Helper()
	x.t.Fatalf(format+"\nsteps:\n%s", append(a, strings.Join(x.log, "\n"))...)
}

func (x *property) yaml() string { return trusted(x.v) + x.policy.yaml() }

func (x *property) newCall() *modelCall {
	x.next++
	return &modelCall{id: fmt.Sprintf("c%dz", x.next), tool: []string{"look", "set", "kill"}[x.r.IntN(3)]}
}

func (x *property) client(query string) *client {
	return x.p.client([]era{legacy, modern}[x.r.IntN(2)], query, noCaps, nil)
}

// send makes a direct call under one of its names.
func (x *property) send(c *modelCall) answer {
	args := `{"id":"` + c.id + `"}`
	switch x.r.IntN(4) {
	case 0:
		return x.client("").call("s_"+c.tool, args, "", nil)
	case 1:
		return x.client("?optimize_context=minimize_tools").call("s_"+c.tool, args, "", nil)
	}
	name := []string{"s_", "s.", "s/", "codemode.s_"}[x.r.IntN(4)] + c.tool
	return x.client(twoTools).call("portal_execute", `{"tool":"`+name+`","arguments":`+args+`}`, "", nil)
}

// tryDirect makes a call, new or again, and holds what came of it against the
// model.
func (x *property) tryDirect(c *modelCall) {
	action := x.policy.decide(c.tool, "direct")
	got := x.send(c)
	x.say("direct %s %s: %s (given %v)", c.tool, c.id, action, c.given)
	ran := strings.HasPrefix(got.text(), "ran "+c.tool)
	switch {
	case action == "allow" || action == "approve" && c.given:
		x.want[c.id]++
		if !ran {
			x.fail("%s must run: %s", c.id, got.Raw)
		}
		if action == "approve" {
			c.approval, c.given = "", false
		}
	case ran:
		x.fail("%s must not run (%s): %s", c.id, action, got.Raw)
	case action == "approve":
		if ids := got.approvals(); len(ids) != 1 || c.approval != "" && ids[0] != c.approval {
			x.fail("%s asks for %v, want %q: %s", c.id, ids, c.approval, got.Raw)
		} else {
			c.approval = ids[0]
		}
	}
}

// race makes the same call twice at once: one yes releases one of them.
func (x *property) race(c *modelCall) {
	action := x.policy.decide(c.tool, "direct")
	a, b := x.client(""), x.client("")
	args := `{"id":"` + c.id + `"}`
	var one, two answer
	var wg sync.WaitGroup
	wg.Go(func() { one = a.call("s_"+c.tool, args, "", nil) })
	wg.Go(func() { two = b.call("s_"+c.tool, args, "", nil) })
	wg.Wait()
	x.say("race %s %s: %s (given %v)", c.tool, c.id, action, c.given)
	switch {
	case action == "allow":
		x.want[c.id] += 2
	case action == "approve" && c.given:
		x.want[c.id]++
		c.given = false
		fallthrough
	case action == "approve":
		ids := append(one.approvals(), two.approvals()...)
		if slices.Sort(ids); len(slices.Compact(ids)) != 1 {
			x.fail("%s asks for %v: %s %s", c.id, ids, one.Raw, two.Raw)
		}
		c.approval = ids[0]
	}
}

// script runs calls in code, one after another or all at once, under various
// names.
func (x *property) script() {
	run := &modelRun{parallel: x.r.IntN(3) == 0}
	var lines []string
	for range 1 + x.r.IntN(4) {
		c := x.newCall()
		run.calls = append(run.calls, c)
		f := []string{"s.%s", "s['%s']", "codemode.s_%s", "codemode['s_%s']", "(a => codemode.call('s_%s', a))", "(a => codemode.call('s.%s', a))", "(({s_%[1]s: f}) => f)(codemode)"}[x.r.IntN(7)]
		lines = append(lines, fmt.Sprintf("t("+f+", '%s')", c.tool, c.id))
	}
	src := "const t = async (f, id) => { try { await f({id}); return id + ' ok' } catch (e) { return id + ' no' } }; "
	if run.parallel {
		src += "return await Promise.all([" + strings.Join(lines, ", ") + "])"
	} else {
		src += "const out = []; "
		for _, l := range lines {
			src += "out.push(await " + l + "); "
		}
		src += "return out"
	}
	x.say("code %v: %s", run.parallel, strings.Join(lines, ", "))
	x.progress(run, x.client(twoTools).code(src, "", nil))
}

var callID = regexp.MustCompile(`c[0-9]+z`)

// progress takes a run as far as the model says that it gets, and holds its
// answer against that.
func (x *property) progress(run *modelRun, got answer) {
	x.t.Helper()
	waits := map[string]bool{}
	for _, c := range run.calls {
		if c.done {
			continue
		}
		switch action := x.policy.decide(c.tool, "code"); {
		case action == "allow", action == "approve" && c.given:
			x.want[c.id]++
			c.done = true
		case action == "deny":
			c.done = true
		default:
			waits[c.id] = true
		}
		if waits[c.id] && !run.parallel {
			break
		}
	}
	ids := got.approvals()
	if len(waits) == 0 {
		var b strings.Builder
		for _, c := range run.calls {
			word := "no"
			if x.want[c.id] > 0 {
				word = "ok"
			}
			fmt.Fprintf(&b, "%q,", c.id+" "+word)
		}
		if want := "[" + strings.TrimSuffix(b.String(), ",") + "]"; !strings.HasPrefix(got.text(), want) {
			x.fail("the run ends with %s, want %s", got.Raw, want)
		}
		x.runs = slices.DeleteFunc(x.runs, func(r *modelRun) bool { return r == run })
		return
	}
	if run.id == "" {
		run.id = runID.FindString(got.Raw)
		x.runs = append(x.runs, run)
	}
	asked := map[string]string{}
	for _, id := range ids {
		_, page := x.p.get("/approvals/" + id)
		asked[callID.FindString(page)] = id
	}
	if run.id == "" || !slices.Equal(slices.Sorted(maps.Keys(asked)), slices.Sorted(maps.Keys(waits))) {
		x.fail("run %q asks about %v, want %v: %s", run.id, asked, waits, got.Raw)
	}
	for _, c := range run.calls {
		if waits[c.id] {
			c.approval = asked[c.id]
		}
	}
}

func (x *property) decide(c *modelCall, decision string) {
	x.say("answer %s: %s", c.id, decision)
	resp, body := x.p.submit("/approvals/"+c.approval, "/approvals/"+c.approval, "decision="+decision)
	if resp.StatusCode != 303 {
		x.fail("%s %s: %d %.300s", decision, c.id, resp.StatusCode, body)
	}
}

// goOn answers what a run waits for and resumes it, perhaps after a change of
// the policy or a restart. They come before the answers: from a yes on the run
// goes on by itself, and which of the two is first nobody could say.
func (x *property) goOn(run *modelRun) {
	switch x.r.IntN(6) {
	case 0:
		x.reload()
	case 1:
		x.restart()
	}
	for _, c := range run.calls {
		if c.approval == "" || c.done {
			continue
		}
		// A no to what the policy allows by now would be of no consequence for a
		// run that begins anew, which asks nobody.
		if x.r.IntN(4) == 0 && x.policy.decide(c.tool, "code") == "approve" {
			x.decide(c, "deny")
			c.done = true
			continue
		}
		x.decide(c, "approve")
		c.given = true
	}
	x.say("resume %s", run.id)
	c := x.client(twoTools)
	x.progress(run, c.resume(run.id, "", nil))
	if !slices.Contains(x.runs, run) {
		if got := c.resume(run.id, "", nil); !got.Result.IsError && got.Error == nil {
			x.fail("a run that has ended was resumed: %s", got.Raw)
		}
	}
}

func (x *property) reload() {
	x.policy = randomPolicy(x.r)
	x.say("reload: %s", strings.Join(strings.Fields(x.policy.yaml()), " "))
	x.p.reload(x.yaml())
}

func (x *property) restart() {
	x.say("restart")
	x.p.stop()
	x.p = startIn(x.t, x.dir, x.yaml(), nil)
}

// check compares what reached the server with the model, call by call.
func (x *property) check() {
	got := map[string]int{}
	for _, params := range x.v.calls() {
		got[callID.FindString(params)]++
	}
	for id, n := range x.want {
		if n == 0 {
			delete(x.want, id)
		}
	}
	if !maps.Equal(got, x.want) {
		for id := range got {
			if got[id] != x.want[id] {
				x.fail("%s reached the server %d times, the model says %d", id, got[id], x.want[id])
			}
		}
		x.fail("calls that never arrived: %v, want %v", got, x.want)
	}
}

// Random sequences of direct calls, code, names, answers, resumes, restarts and
// changes of the configuration against a model of the policy: no forbidden call
// ever reaches a server, and each allowed one does exactly once. A failure names
// its seed; PORTAL_PROPERTY=<seed>:<steps> runs that sequence, or a longer one.
func TestPolicyHoldsForRandomSequences(t *testing.T) {
	seeds, steps := []uint64{1, 2, 3}, 40
	if s, n, ok := strings.Cut(os.Getenv("PORTAL_PROPERTY"), ":"); ok {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if steps, err = strconv.Atoi(n); err != nil {
			t.Fatal(err)
		}
		seeds = []uint64{seed}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Logf("seed %d, %d steps", seed, steps)
			x := &property{t: t, r: rand.New(rand.NewPCG(seed, 0)), dir: t.TempDir(), want: map[string]int{}, policy: modelPolicy{preset: "careful"}}
			x.v = serveWith(t, upstreamtest.Options{Era: []upstreamtest.Era{upstreamtest.Legacy, upstreamtest.Modern}[x.r.IntN(2)],
				Tools: []json.RawMessage{toolDef("look", readOnly), toolDef("set", `{"readOnlyHint":false,"destructiveHint":false}`), toolDef("kill", destructive)}}, nil)
			x.p = startIn(t, x.dir, x.yaml(), nil)
			for range steps {
				known := func(f func(*modelCall)) {
					if len(x.direct) > 0 {
						f(x.direct[x.r.IntN(len(x.direct))])
					}
				}
				switch x.r.IntN(12) {
				case 0, 1:
					c := x.newCall()
					x.direct = append(x.direct, c)
					x.tryDirect(c)
				case 2, 3:
					known(x.tryDirect)
				case 4:
					known(x.race)
				case 5, 6:
					known(func(c *modelCall) {
						if c.approval != "" && !c.given {
							x.decide(c, "approve")
							c.given = true
						}
					})
				case 7, 8:
					if len(x.runs) < 6 {
						x.script()
					}
				case 9, 10:
					if len(x.runs) > 0 {
						x.goOn(x.runs[x.r.IntN(len(x.runs))])
					}
				case 11:
					x.reload()
				}
				x.check()
			}
		})
	}
}
