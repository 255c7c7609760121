package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// The page and the form answer at the same time: a yes is a yes, whichever was
// first.
func TestPageAndFormRace(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v), nil)
	c := p.client(legacy, "", formCaps, nil)
	const n = 12
	for i := range n {
		var wg sync.WaitGroup
		got := c.call("s_kill", fmt.Sprintf(`{"id":"%d"}`, i), "", func(q question) {
			_, page := p.get("/approvals")
			id := approvalID.FindString(page)
			wg.Go(func() { p.approve(id) })
			wg.Go(func() { q.reply(yes) })
		})
		wg.Wait()
		if want := fmt.Sprintf("ran kill {\"id\":\"%d\"}\n", i); got.text() != want {
			t.Errorf("%d: %s %v", i, got.Raw, got.Err)
		}
	}
	if got := len(v.calls()); got != n {
		t.Errorf("%d calls arrived, want %d", got, n)
	}
}

// The same for a 2026-07-28 client, whose retry brings the answer.
func TestPageAndRetryRace(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v), nil)
	c := p.client(modern, "", formCaps, nil)
	const n = 12
	for i := range n {
		args := fmt.Sprintf(`{"id":"%d"}`, i)
		first := c.call("s_kill", args, "", nil)
		ids := first.approvals()
		if len(ids) != 1 {
			t.Fatalf("%s", first.Raw)
		}
		var wg sync.WaitGroup
		wg.Go(func() { p.approve(ids[0]) })
		got := c.call("s_kill", args, first.sayYes(), nil)
		wg.Wait()
		if got.text() != "ran kill "+args+"\n" {
			t.Errorf("%d: %s", i, got.Raw)
		}
	}
	if got := len(v.calls()); got != n {
		t.Errorf("%d calls arrived, want %d", got, n)
	}
}

// Equal calls at the same time share a question but not its answer: each that
// ran had a yes of its own, and none ends in an error for a yes.
func TestParallelEqualCalls(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v), nil)
	c := p.client(legacy, "", formCaps, nil)
	const rounds, twins = 6, 3
	for r := range rounds {
		args := fmt.Sprintf(`{"id":"%d"}`, r)
		var wg sync.WaitGroup
		for range twins {
			wg.Go(func() {
				if got := c.call("s_kill", args, "", always); got.text() != "ran kill "+args+"\n" {
					t.Errorf("%s %v", got.Raw, got.Err)
				}
			})
		}
		wg.Wait()
	}
	if got := len(v.calls()); got != rounds*twins {
		t.Errorf("%d calls arrived, want %d", got, rounds*twins)
	}
	lines, _ := p.auditLines(func(l []map[string]any) bool { return len(l) >= rounds*twins })
	used := map[string]int{}
	for _, l := range lines {
		used[fmt.Sprint(l["approval"])]++
	}
	if len(used) != rounds*twins {
		t.Errorf("%d calls went out with %d approvals: %v", rounds*twins, len(used), used)
	}
}

// An approval that another call has used up is answered with a new question,
// not with "pending" on one that can never come true.
func TestUsedApprovalIsAskedAnew(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v), nil)
	c := p.client(modern, "", formCaps, nil)
	first := c.call("s_kill", `{"id":"1"}`, "", nil)
	answer := first.sayYes()
	if got := c.call("s_kill", `{"id":"1"}`, answer, nil); !strings.HasPrefix(got.text(), "ran kill") {
		t.Fatalf("%s", got.Raw)
	}
	again := c.call("s_kill", `{"id":"1"}`, answer, nil)
	if len(again.approvals()) == 0 || again.Result.ResultType != "input_required" {
		t.Fatalf("%s", again.Raw)
	}
	if again.Result.RequestState == first.Result.RequestState {
		t.Errorf("the used approval is asked about again: %s", again.Raw)
	}
	if n := len(v.calls()); n != 1 {
		t.Fatalf("one yes released %d calls", n)
	}
	if got := c.call("s_kill", `{"id":"1"}`, again.sayYes(), nil); !strings.HasPrefix(got.text(), "ran kill") {
		t.Errorf("%s", got.Raw)
	}
}

// A direct call takes the yes that a paused run waits for. The run then asks
// anew; both calls run in the end, each with an approval of its own.
func TestDirectCallTakesTheYesOfARun(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v), nil)
	c := p.client(modern, twoTools, formCaps, nil)
	paused := c.code("return await s.kill({id:'1'})", "", nil)
	ids, run := paused.approvals(), runID.FindString(paused.Raw)
	if len(ids) != 1 {
		t.Fatalf("%s", paused.Raw)
	}
	direct := p.client(modern, "", formCaps, nil)
	got := direct.call("s_kill", `{"id":"1"}`, `"requestState":"portal-approval:`+ids[0]+`","inputResponses":{"approval":`+yes+`}`, nil)
	for range 3 {
		if got.Result.ResultType == "input_required" { // the run was faster
			if got.approvals()[0] == ids[0] {
				t.Fatalf("asked about a used approval: %s", got.Raw)
			}
			got = direct.call("s_kill", `{"id":"1"}`, got.sayYes(), nil)
		}
	}
	if !strings.HasPrefix(got.text(), "ran kill") {
		t.Fatalf("%s", got.Raw)
	}
	rest := c.resume(run, "", nil)
	if rest.Result.ResultType == "input_required" {
		rest = c.resume(run, rest.sayYes(), nil)
	}
	if !strings.Contains(rest.text(), "ran kill") {
		t.Errorf("%s", rest.Raw)
	}
	if n := len(v.calls()); n != 2 {
		t.Errorf("%d calls arrived, want 2", n)
	}
}

// Whatever a client says instead of yes, nothing is sent, in both eras.
func TestNoAnswerIsNoYes(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v), nil)
	answers := []string{`{"action":"decline"}`, `{"action":"cancel"}`, `{"action":"accept"}`, `{"action":"accept","content":{"decision":"deny"}}`,
		`{"action":"accept","content":{"Decision":"approve"}}`, `{"Action":"accept","content":{"decision":"approve"}}`, `{"action":"ACCEPT","content":{"decision":"approve"}}`,
		`{"action":"accept","content":{"decision":["approve"]}}`, `{"action":"accept","content":"approve"}`, `{}`}
	eachEra(t, func(t *testing.T, e era) {
		c := p.client(e, "", formCaps, nil)
		for i, no := range answers {
			args := fmt.Sprintf(`{"id":"%s-%d"}`, e, i)
			got := c.call("s_kill", args, "", func(q question) { go q.reply(no) })
			if e == modern {
				state := got.Result.RequestState
				got = c.call("s_kill", args, `"requestState":"`+state+`","inputResponses":{"approval":`+no+`}`, nil)
			}
			if text := got.text(); !strings.Contains(text, "Denied") && !strings.Contains(text, "Approval needed") {
				t.Errorf("%s: %s", no, got.Raw)
			}
		}
	})
	if n := len(v.calls()); n != 0 {
		t.Errorf("%d calls arrived: %q", n, v.calls())
	}
}

// An upstream's own requestState that looks like one of a portal (it is one
// behind another) is wrapped, and given back to it; the two are never confused.
func TestChainedPortalKeepsItsState(t *testing.T) {
	const theirs = "portal-approval:ap-AAAAAAAAAAAAAAAAAAAAAAAAAA"
	v := serve(t, upstreamtest.Modern, func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" || strings.Contains(string(c.Params), `"requestState":"`+theirs+`"`) {
			return false
		}
		c.Result(`{"resultType":"input_required","inputRequests":{"approval":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}},"requestState":"` + theirs + `"}`)
		return true
	})
	p := start(t, trusted(v), nil)
	c := p.client(modern, "", formCaps, nil)
	first := c.call("s_look", `{"id":"1"}`, "", nil)
	if s := first.Result.RequestState; s == "" || s == theirs || len(first.Result.InputRequests) != 1 {
		t.Fatalf("%s", first.Raw)
	}
	if got := c.call("s_look", `{"id":"1"}`, first.sayYes(), nil); got.text() != "ran look {\"id\":\"1\"}\n" {
		t.Fatalf("%s", got.Raw)
	}
	if last := v.calls()[1]; !strings.Contains(last, `"inputResponses":{"approval":{"action":"accept"`) {
		t.Errorf("the answer did not arrive: %s", last)
	}
	// Once: the same state again begins anew, and so does a fresh one with
	// other arguments.
	again := c.call("s_look", `{"id":"1"}`, first.sayYes(), nil)
	if again.Result.ResultType != "input_required" {
		t.Errorf("the same state again: %s", again.Raw)
	}
	if got := c.call("s_look", `{"id":"2"}`, again.sayYes(), nil); got.Result.ResultType != "input_required" {
		t.Errorf("the state of a call with other arguments: %s", got.Raw)
	}
	// A client that makes such a state up reaches nobody with it.
	if got := c.call("s_look", `{"id":"3"}`, `"requestState":"`+theirs+`","inputResponses":{"approval":`+yes+`}`, nil); got.Result.ResultType != "input_required" {
		t.Errorf("%s", got.Raw)
	}
	// An approved call goes on in the same way: one yes of the portal's own,
	// then the server's question.
	kill := c.call("s_kill", `{"id":"1"}`, "", nil)
	second := c.call("s_kill", `{"id":"1"}`, kill.sayYes(), nil)
	if s := second.Result.RequestState; s == kill.Result.RequestState || second.Result.ResultType != "input_required" {
		t.Fatalf("%s", second.Raw)
	}
	if got := c.call("s_kill", `{"id":"1"}`, second.sayYes(), nil); got.text() != "ran kill {\"id\":\"1\"}\n" {
		t.Errorf("%s", got.Raw)
	}
}

// What a server asks for and the client never said it answers, or what cannot
// be read, ends the call at once. The client is not bothered.
func TestOddInputRequestsAreRefused(t *testing.T) {
	odd := map[string]string{
		`{"a":{"params":{}}}`: "", `{"a":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":5}}}`: "sampling/createMessage",
		`{"a":{"method":"tools/call","params":{}}}`: "tools/call", `{"a":{"method":"notifications/cancelled","params":{}}}`: "notifications/cancelled",
		`{"a":{"method":"roots/list"}}`: "roots/list", `{"a":{"method":"elicitation/create","params":{"message":"m"}}}`: "elicitation/create",
		`{"a":5}`: "cannot be read", `[]`: "cannot be read", `null`: "", `"x"`: "cannot be read",
	}
	var asks string
	v := serve(t, upstreamtest.Modern, func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		c.Result(`{"resultType":"input_required","inputRequests":` + asks + `,"requestState":"x"}`)
		return true
	})
	p := start(t, trusted(v), nil)
	c := p.client(legacy, "", noCaps, nil)
	for q, hint := range odd {
		asks = q
		before := len(v.calls())
		got := c.call("s_look", `{"id":"1"}`, "", func(q question) {
			t.Errorf("the client was asked %s", q.Method)
			go q.reply(`{}`)
		})
		if got.Err != nil || got.Error == nil && !got.Result.IsError || !strings.Contains(got.text(), hint) {
			t.Errorf("%s: %s %v", q, got.Raw, got.Err)
		}
		if n := len(v.calls()) - before; n != 1 {
			t.Errorf("%s: %d rounds, want 1", q, n)
		}
	}
}

// The same for a 2025 server that asks on the stream of the call.
func TestUndeclaredQuestionsAreRefused(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		m, err := c.Ask("sampling/createMessage", `{"messages":[],"maxTokens":5}`, false)
		b, _ := json.Marshal(map[string]any{"error": m.Error != nil, "result": string(m.Result), "ended": err != nil})
		c.Text(string(b))
		return true
	})
	p := start(t, trusted(v), nil)
	for caps, want := range map[string]string{noCaps: `"error":true`, formCaps: `"error":true`, `{"sampling":{}}`: `"error":false`} {
		c := p.client(legacy, "", caps, nil)
		got := c.call("s_look", `{"id":"1"}`, "", func(q question) {
			if caps != `{"sampling":{}}` {
				t.Errorf("capabilities %s: the client was asked %s", caps, q.Method)
			}
			go q.reply(`{"role":"assistant","content":{"type":"text","text":"hi"},"model":"m"}`)
		})
		if !strings.Contains(got.text(), want) || strings.Contains(got.text(), `"ended":true`) {
			t.Errorf("capabilities %s: %s %v", caps, got.Raw, got.Err)
		}
	}
}

// A question is answered by the session that was asked, not by another one of
// the same user.
func TestAnswerOfAnotherSession(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v), nil)
	asked, other := p.client(legacy, "", formCaps, nil), p.client(legacy, "", formCaps, nil)
	got := asked.call("s_kill", `{"id":"1"}`, "", func(q question) {
		(question{c: other, ID: q.ID}).reply(yes)
		go q.reply(`{"action":"decline"}`)
	})
	if !strings.Contains(got.text(), "Denied") || len(v.calls()) != 0 {
		t.Errorf("%s %v %q", got.Raw, got.Err, v.calls())
	}
}
