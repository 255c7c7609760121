package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

const twins = "const [a, b] = await Promise.all([s.kill({id:'1'}), s.kill({id:'1'})]); return a + ' and ' + b"

// Two equal calls in one script share the question that is open, not its
// answer: the request is answered, and each call has its own yes in the end.
// Here the client cannot be asked, and the person answers on the page.
func TestTwoEqualCallsInOneScriptOnThePage(t *testing.T) {
	eachEra(t, func(t *testing.T, e era) {
		v := serve(t, upstreamtest.Legacy, nil)
		p := start(t, trusted(v), nil)
		c := p.client(e, twoTools, noCaps, nil)
		got := c.code(twins, "", nil)
		run := runID.FindString(got.Raw)
		seen := map[string]bool{}
		for round := 1; round <= 2; round++ {
			ids := got.approvals()
			if len(ids) != 1 || seen[ids[0]] || !strings.HasPrefix(got.text(), "Paused: 1 call") {
				t.Fatalf("round %d: %s %v", round, got.Raw, got.Err)
			}
			if n := len(v.calls()); n != round-1 {
				t.Fatalf("round %d: %d calls arrived", round, n)
			}
			seen[ids[0]] = true
			p.approve(ids[0])
			got = c.resume(run, "", nil)
		}
		if strings.Count(got.text(), "ran kill") < 2 || len(v.calls()) != 2 {
			t.Errorf("%s %q", got.Raw, v.calls())
		}
	})
}

// The same by the client's form, in the way of its era.
func TestTwoEqualCallsInOneScriptByForm(t *testing.T) {
	eachEra(t, func(t *testing.T, e era) {
		v := serve(t, upstreamtest.Legacy, nil)
		p := start(t, trusted(v), nil)
		c := p.client(e, twoTools, formCaps, nil)
		asked := 0
		got := c.code(twins, "", func(q question) { asked++; go q.reply(yes) })
		for e == modern && got.Result.ResultType == "input_required" && asked < 5 {
			if n := len(got.Result.InputRequests); n != 1 {
				t.Errorf("%d questions at once for equal calls: %s", n, got.Raw)
			}
			asked++
			got = c.code(twins, got.sayYes(), nil)
		}
		if asked != 2 || strings.Count(got.text(), "ran kill") < 2 || len(v.calls()) != 2 {
			t.Errorf("asked %d times: %s %v %q", asked, got.Raw, got.Err, v.calls())
		}
	})
}

// A 2026-07-28 client may answer in a resume as well as in a retry.
func TestResumeTakesAnswers(t *testing.T) {
	for _, action := range []string{yes, `{"action":"decline"}`} {
		v := serve(t, upstreamtest.Legacy, nil)
		p := start(t, trusted(v), nil)
		c := p.client(modern, twoTools, formCaps, nil)
		first := c.code("return await s.kill({id:'7'})", "", nil)
		ids, run := first.approvals(), runID.FindString(first.Raw)
		if len(ids) != 1 || first.Result.ResultType != "input_required" {
			t.Fatalf("%s", first.Raw)
		}
		// A form that was closed decides nothing, and does not come back at once.
		closed := c.resume(run, strings.Replace(first.sayYes(), yes, `{"action":"cancel"}`, 1), nil)
		if closed.Result.ResultType == "input_required" || !strings.Contains(closed.text(), "/approvals/"+ids[0]) {
			t.Fatalf("after cancel: %s", closed.Raw)
		}
		// A plain resume asks anew.
		if again := c.resume(run, "", nil); again.Result.ResultType != "input_required" {
			t.Fatalf("plain resume: %s", again.Raw)
		}
		got := c.resume(run, strings.Replace(first.sayYes(), yes, action, 1), nil)
		switch {
		case action == yes && (!strings.Contains(got.text(), "ran kill") || len(v.calls()) != 1):
			t.Errorf("yes: %s %q", got.Raw, v.calls())
		case action != yes && (!strings.Contains(got.text(), "Denied") || len(v.calls()) != 0):
			t.Errorf("no: %s %q", got.Raw, v.calls())
		}
	}
}

// Runs that were cancelled hold no place among those that wait.
func TestCancelledRunsDoNotEvictPausedOnes(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v), nil)
	waiting := p.client(legacy, twoTools, noCaps, nil)
	paused := waiting.code("return await s.kill({id:'first'})", "", nil)
	run, ids := runID.FindString(paused.Raw), paused.approvals()
	if run == "" || len(ids) != 1 {
		t.Fatalf("%s", paused.Raw)
	}
	c := p.client(legacy, twoTools, formCaps, nil)
	for i := range 10 { // more than may wait for one user
		id := fmt.Sprintf(`"c%d"`, i)
		got := c.doAs(t.Context(), id, "tools/call", fmt.Sprintf(`"name":"portal_execute","arguments":{"code":"return await s.kill({id:'c%d'})"}`, i), nil, func(q question) {
			go p.post(twoTools, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`, c.headers("", ""))
		})
		if got.Raw != "" || !errors.Is(got.Err, io.ErrUnexpectedEOF) {
			t.Fatalf("a run that only waited: %s %v; want the end of the stream", got.Raw, got.Err)
		}
	}
	p.approve(ids[0])
	if got := waiting.resume(run, "", nil); !strings.Contains(got.text(), "ran kill") {
		t.Errorf("the run that waited: %s", got.Raw)
	}
	if n := len(v.calls()); n != 1 {
		t.Errorf("%d calls arrived: %q", n, v.calls())
	}
}

// allowAll asks nobody.
const allowAll = "guard: {rules: [{action: allow}]}\n"

// A run that made one write, and waits with another.
const halfDone = "const a = await s.put({id:'done'}); return a + await s.kill({id:'waits'})"

// What makes a run too large to be kept outside its process.
const tooMuch = "for (let i = 0; i < 6; i++) await s.look({});"

func withPut(t *testing.T) (*victim, string) {
	t.Helper()
	v := serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" || !strings.Contains(string(c.Params), `"look"`) {
			return false
		}
		c.Text(strings.Repeat("x", 3<<20))
		return true
	})
	v.AddTool(toolDef("put", `{"readOnlyHint":false,"destructiveHint":false}`))
	return v, "guard: {rules: [{tools: [put], action: allow}]}\n" + trusted(v)
}

// lost checks what is said of a run that is gone: what it sent, and nothing of
// what only waited.
func lost(t *testing.T, got answer, why string, sent bool) {
	t.Helper()
	text := got.text()
	if !got.Result.IsError || !strings.Contains(text, why) {
		t.Errorf("%s; want %q", got.Raw, why)
	}
	if strings.Contains(text, "s_kill") {
		t.Errorf("a call that waited is reported as sent: %s", text)
	}
	if strings.Contains(text, "s_put (ok, ") != sent || strings.Contains(text, "already been sent") != sent {
		t.Errorf("what was sent is not told truly: %s", text)
	}
}

// Too many runs wait: those that wait longest leave their process and go on all
// the same, having made each call once.
func TestEvictedRunsGoOn(t *testing.T) {
	v, yaml := withPut(t)
	p := start(t, yaml, nil)
	c := p.client(modern, twoTools, noCaps, nil)
	first := c.code(halfDone, "", nil)
	run, ids := runID.FindString(first.Raw), first.approvals()
	for i := range 9 {
		c.code(fmt.Sprintf("return await s.kill({id:'%d'})", i), "", nil)
	}
	if rec := p.recordOf(run); strings.Contains(rec, `"held":true`) {
		t.Fatalf("the run did not leave: %s", rec)
	}
	p.approve(ids[0])
	if got := c.resume(run, "", nil); !strings.Contains(got.text(), `ran put {"id":"done"}ran kill {"id":"waits"}`) {
		t.Errorf("%s", got.Raw)
	}
	if n := len(v.calls()); n != 2 {
		t.Errorf("%d calls arrived: %q", n, v.calls())
	}
}

// The same for runs whose process has ended, for all ways to answer.
func TestRunsGoOnAfterARestart(t *testing.T) {
	for _, c := range []struct {
		name   string
		era    era
		caps   string
		answer func(p *portal, first answer) (more string, on func(question))
	}{
		{"2025 page", legacy, noCaps, func(p *portal, first answer) (string, func(question)) {
			p.approve(first.approvals()[0])
			return "", nil
		}},
		{"2026 page", modern, noCaps, func(p *portal, first answer) (string, func(question)) {
			p.approve(first.approvals()[0])
			return "", nil
		}},
		{"2026 form shown before", modern, formCaps, func(_ *portal, first answer) (string, func(question)) { return first.sayYes(), nil }},
		{"2025 form", legacy, noCaps, func(*portal, answer) (string, func(question)) { return "", always }},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, yaml := withPut(t)
			dir := t.TempDir()
			p := startIn(t, dir, yaml, nil)
			first := p.client(c.era, twoTools, c.caps, nil).code(halfDone, "", nil)
			run := runID.FindString(first.Raw)
			if run == "" || len(first.approvals()) != 1 {
				t.Fatalf("the run did not pause: %s", first.Raw)
			}
			p.stop()
			p = startIn(t, dir, yaml, nil)
			caps := c.caps
			more, on := c.answer(p, first)
			if on != nil {
				caps = formCaps
			}
			got := p.client(c.era, twoTools, caps, nil).resume(run, more, on)
			if !strings.Contains(got.text(), `ran put {"id":"done"}ran kill {"id":"waits"}`) {
				t.Errorf("%s", got.Raw)
			}
			if n := len(v.calls()); n != 2 {
				t.Errorf("%d calls arrived: %q", n, v.calls())
			}
			if got := p.client(c.era, twoTools, noCaps, nil).resume(run, "", nil); !strings.Contains(got.text(), "its result was given") || !strings.Contains(got.text(), "s_kill (ok, ") {
				t.Errorf("once more: %s", got.Raw)
			}
		})
	}
}

// Too many runs wait and cannot leave: the one that waits longest ends, and its
// user learns why and what it had done.
func TestTextOfAnEvictedRun(t *testing.T) {
	v, yaml := withPut(t)
	p := start(t, yaml, nil)
	c := p.client(modern, twoTools, noCaps, nil)
	first := runID.FindString(c.code(tooMuch+halfDone, "", nil).Raw)
	second := runID.FindString(c.code(tooMuch+"return await s.kill({id:'second'})", "", nil).Raw)
	last := ""
	for i := range 8 {
		last = runID.FindString(c.code(fmt.Sprintf("return await s.kill({id:'%d'})", i), "", nil).Raw)
	}
	lost(t, c.resume(first, "", nil), "more runs wait for approvals than may (8 of a user", true)
	lost(t, c.resume(second, "", nil), "more runs wait for approvals than may (8 of a user", false)
	if n := len(v.calls()); n != 13 {
		t.Errorf("%d calls arrived: %q", n, v.calls())
	}
	// The others wait on.
	if last == "" {
		t.Fatal("the last run did not pause")
	}
	if got := p.client(modern, twoTools, formCaps, nil).resume(last, "", nil); got.Result.ResultType != "input_required" {
		t.Errorf("the last run: %s", got.Raw)
	}
}

// The process is gone, and the run with it.
func TestTextOfARunThatARestartLost(t *testing.T) {
	v, yaml := withPut(t)
	dir := t.TempDir()
	p := startIn(t, dir, yaml, nil)
	c := p.client(modern, twoTools, noCaps, nil)
	half := runID.FindString(c.code(tooMuch+halfDone, "", nil).Raw)
	waits := runID.FindString(c.code(tooMuch+"return await s.kill({id:'1'})", "", nil).Raw)
	if half == "" || waits == "" {
		t.Fatal("the runs did not pause")
	}
	p.stop()
	c = startIn(t, dir, yaml, nil).client(modern, twoTools, noCaps, nil)
	lost(t, c.resume(half, "", nil), "restarted", true)
	lost(t, c.resume(waits, "", nil), "restarted", false)
	lost(t, c.resume("run_AAAAAAAAAAAAAAAAAAAAAAAAAA", "", nil), "There is no paused run", false)
	if n := len(v.calls()); n != 13 {
		t.Errorf("%d calls arrived: %q", n, v.calls())
	}
}

// A run that is cancelled in the middle of a write says so; the write may have
// happened.
func TestTextOfACancelledRun(t *testing.T) {
	arrived := make(chan struct{}, 1)
	v := serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		arrived <- struct{}{}
		<-c.Context().Done()
		return true
	})
	p := start(t, allowAll+trusted(v), nil)
	c := p.client(legacy, twoTools, noCaps, nil)
	go func() {
		<-arrived
		p.post(twoTools, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x"}}`, c.headers("", ""))
	}()
	got := c.doAs(t.Context(), `"x"`, "tools/call", `"name":"portal_execute","arguments":{"code":"return await s.kill({id:'1'})"}`, map[string]string{"Accept": "application/json"}, nil)
	if text := got.text(); !strings.Contains(text, "cancelled") || !strings.Contains(text, "already been sent") || !strings.Contains(text, "s_kill") {
		t.Errorf("%s %v", got.Raw, got.Err)
	}
}

// A write that the server answers with a protocol error may have happened.
func TestProtocolErrorCountsAsSent(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		c.Error(-32603, "lost after the row was deleted", "")
		return true
	})
	p := start(t, allowAll+trusted(v), nil)
	got := p.client(modern, twoTools, noCaps, nil).code("return await s.kill({id:'1'})", "", nil)
	if text := got.text(); !got.Result.IsError || !strings.Contains(text, "already been sent") || !strings.Contains(text, "s_kill") {
		t.Errorf("%s", got.Raw)
	}
}

// Runs that wait hold no place of those that work.
func TestPausedRunsBlockNobody(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, "code: {max_workers: 2, runs_per_user: 2, workers: 1}\n"+trusted(v), nil)
	c := p.client(modern, twoTools, noCaps, nil)
	for i := range 5 {
		if got := c.code(fmt.Sprintf("return await s.kill({id:'%d'})", i), "", nil); !strings.HasPrefix(got.text(), "Paused") {
			t.Fatalf("%d: %s", i, got.Raw)
		}
	}
	if got := c.code("return 40 + 2", "", nil); !strings.HasPrefix(got.text(), "42\n") {
		t.Errorf("%s", got.Raw)
	}
}

// One request at a time goes on with a run.
func TestResumeByTwoAtOnce(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v), nil)
	c := p.client(legacy, twoTools, formCaps, nil)
	asked := make(chan question, 2)
	first := make(chan answer, 1)
	go func() { first <- c.code("return await s.kill({id:'1'})", "", func(q question) { asked <- q }) }()
	q := <-asked
	_, page := p.get("/approvals/" + approvalID.FindString(func() string { _, b := p.get("/approvals"); return b }()))
	run := runID.FindString(page + string(q.Params))
	if run == "" {
		t.Fatalf("neither the form nor the page names the run: %s", q.Params)
	}
	if got := c.resume(run, "", nil); !strings.Contains(got.text(), "already waiting") {
		t.Errorf("%s", got.Raw)
	}
	q.reply(yes)
	if got := <-first; !strings.Contains(got.text(), "ran kill") {
		t.Errorf("%s %v", got.Raw, got.Err)
	}
}

// A 2026-07-28 client cancels by closing its connection: nothing is sent later
// in its name without a decision, and the portal lets go of the run.
func TestClosedConnectionEndsACallInFlight(t *testing.T) {
	gone, arrived := make(chan struct{}), make(chan struct{}, 1)
	v := serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		arrived <- struct{}{}
		<-c.Context().Done()
		close(gone)
		return true
	})
	p := start(t, trusted(v), nil)
	c := p.client(modern, "", noCaps, nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	if got := c.doAs(ctx, "1", "tools/call", `"name":"s_look"`, nil, nil); got.Err == nil {
		t.Errorf("%s", got.Raw)
	}
	select {
	case <-gone:
	case <-time.After(patience):
		t.Fatal("the server still works for a client that is gone")
	}
}

// A run that went on after its approval while nobody waited for it is not
// forgotten when nobody comes for long: its result is told all the same.
func TestFinishedWhileNobodyWaited(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v)+"code: {paused_for: 1s}\n", nil)
	c := p.client(legacy, twoTools, noCaps, nil)
	first := c.code("return await s.kill({id:'7'})", "", nil)
	run, ids := runID.FindString(first.Raw), first.approvals()
	if run == "" || len(ids) != 1 {
		t.Fatalf("the code did not wait: %s", first.Raw)
	}
	p.approve(ids[0])
	p.until("the call arrives", func() bool { return len(v.calls()) == 1 })
	p.until("the run leaves its process", func() bool { return !strings.Contains(p.recordOf(run), `"held":true`) })
	if got := c.resume(run, "", nil); !strings.Contains(got.text(), "ran kill") {
		t.Errorf("%s", got.text())
	}
	if n := len(v.calls()); n != 1 {
		t.Errorf("%d calls arrived: %q", n, v.calls())
	}
}

// Cancelling the request that runs code cancels the run and every call it has
// in flight, in the way of each era: a closed connection, or the notification
// of 2025. Calls that had not begun are never sent.
func TestCancellingCodeCancelsEveryCall(t *testing.T) {
	for _, w := range []struct {
		name   string
		era    era
		notify bool
	}{{"2025 closed", legacy, false}, {"2025 notified", legacy, true}, {"2026 closed", modern, false}} {
		t.Run(w.name, func(t *testing.T) {
			arrived, gone := make(chan struct{}, 20), make(chan struct{}, 20)
			v := serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
				if c.Method != "tools/call" {
					return false
				}
				arrived <- struct{}{}
				<-c.Context().Done()
				gone <- struct{}{}
				return true
			})
			p := start(t, trusted(v)+"code: {parallel: 3, wall_time: 10m}\nlimits: {call_timeout: 10m}\n", nil)
			c := p.client(w.era, twoTools, noCaps, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan answer, 1)
			go func() {
				ended <- c.doAs(ctx, `"run"`, "tools/call", `"name":"portal_execute","arguments":{"code":"return await Promise.all([1, 2, 3, 4, 5].map(id => s.look({id: String(id)})))"}`, nil, nil)
			}()
			await := func(what string, from chan struct{}) {
				t.Helper()
				for i := range 3 {
					select {
					case <-from:
					case <-time.After(patience):
						t.Fatalf("%d of 3 calls %s", i, what)
					}
				}
			}
			await("arrived", arrived)
			if w.notify {
				p.post("", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"run"}}`, c.headers("notifications/cancelled", ""))
			} else {
				cancel()
			}
			await("were cancelled at the server", gone)
			if w.notify {
				cancel() // a cancelled request has no answer
			}
			<-ended
			p.until("the sandbox is free", func() bool { s := p.pool.Status(); return s.Running == 0 && s.Queued == 0 })
			if n := len(v.calls()); n != 3 {
				t.Errorf("%d calls were sent, 3 were in flight at the cancellation", n)
			}
		})
	}
}
