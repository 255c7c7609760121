package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-portal/mcp-portal/store/storetest"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
	"github.com/mcp-portal/mcp-portal/wire"
)

// asker is a 2025 server whose tools ask their client; the question has the
// argument "id" in it.
func asker(t *testing.T) *victim {
	t.Helper()
	return serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		a, err := c.Ask("elicitation/create", `{"message":"who?","requestedSchema":{"type":"object","properties":{}},"id":`+string(c.Arguments().Get("id"))+`}`, false)
		if err != nil {
			return true
		}
		if token := c.Token(); token != nil {
			c.Progress(1)
		}
		c.Text("answered " + string(a.Result))
		return true
	})
}

func accept(value string) string { return `{"action":"accept","content":{"v":"` + value + `"}}` }

// retry are the members of params that answer every question of a round.
func (a answer) retry(value string) string {
	o := wire.Object{}
	for k := range a.Result.InputRequests {
		o = append(o, wire.Field{Key: k, Value: json.RawMessage(value)})
	}
	return `"requestState":` + string(wire.Quote(a.Result.RequestState)) + `,"inputResponses":` + string(o.Bytes())
}

// A call that waits for its client goes on once, for the same user, tool and
// arguments; nothing is sent a second time, whatever the retry.
func TestParkedCallIsBound(t *testing.T) {
	v := asker(t)
	p, as := company(t, trusted(v))
	ann, bob := p.client(modern, "", formCaps, as("ann")), p.client(modern, "", formCaps, as("bob"))
	first := ann.call("s_look", `{"id":"1"}`, "", nil)
	if first.Result.ResultType != "input_required" || !strings.HasPrefix(first.Result.RequestState, "portal-") || len(first.Result.InputRequests) != 1 {
		t.Fatalf("%s", first.Raw)
	}
	retry := first.retry(accept("x"))
	for what, got := range map[string]answer{
		"another user":       bob.call("s_look", `{"id":"1"}`, retry, nil),
		"other arguments":    ann.call("s_look", `{"id":"2"}`, retry, nil),
		"another tool":       ann.call("s_kill", `{"id":"1"}`, retry, nil),
		"a state made up":    ann.call("s_look", `{"id":"1"}`, strings.Replace(retry, "portal-call:", "portal-call:A", 1), nil),
		"another kind of it": ann.call("s_look", `{"id":"1"}`, strings.Replace(retry, "portal-call:", "portal-approval:", 1), nil),
	} {
		if what == "another kind of it" { // that is the beginning of a new call
			if got.Result.ResultType != "input_required" || got.Result.RequestState == first.Result.RequestState {
				t.Errorf("%s: %s", what, got.Raw)
			}
			continue
		}
		if got.Result.ResultType == "input_required" || !got.Result.IsError && got.Error == nil || strings.HasPrefix(got.text(), "answered") {
			t.Errorf("%s: %s", what, got.Raw)
		}
	}
	if n := len(v.calls()); n != 2 {
		t.Fatalf("%d calls arrived, want 2: %q", n, v.calls())
	}
	// Of many equal retries one goes on.
	var wg sync.WaitGroup
	var mu sync.Mutex
	went := 0
	for range 8 {
		wg.Go(func() {
			got := ann.call("s_look", `{"id":"1"}`, retry, nil)
			mu.Lock()
			defer mu.Unlock()
			if got.text() == "answered "+accept("x")+"\n" {
				went++
			} else if got.Error == nil || !strings.Contains(got.text(), "outcome of the call is unknown") {
				t.Errorf("a retry too many: %s", got.Raw)
			}
		})
	}
	wg.Wait()
	if went != 1 || len(v.calls()) != 2 {
		t.Errorf("%d retries went on, %d calls arrived", went, len(v.calls()))
	}
}

// A retry without the answers asks again, under another state; progress of the
// round that waits has its own token.
func TestParkedCallAsksAgain(t *testing.T) {
	v := asker(t)
	p := start(t, trusted(v), nil)
	c := p.client(modern, "", formCaps, nil)
	first := c.call("s_look", `{"id":"1"}`, `"_meta":{"progressToken":"one"}`, nil)
	again := c.call("s_look", `{"id":"1"}`, `"requestState":`+string(wire.Quote(first.Result.RequestState)), nil)
	if again.Result.ResultType != "input_required" || again.Result.RequestState == first.Result.RequestState || len(again.Result.InputRequests) != 1 {
		t.Fatalf("%s", again.Raw)
	}
	got := c.call("s_look", `{"id":"1"}`, again.retry(accept("x"))+`,"_meta":{"progressToken":2}`, nil)
	if got.text() != "answered "+accept("x")+"\n" || len(v.calls()) != 1 {
		t.Fatalf("%s, %q", got.Raw, v.calls())
	}
	if len(got.Notes) != 1 || !strings.Contains(got.Notes[0], `"progressToken":2,`) {
		t.Errorf("progress: %q", got.Notes)
	}
}

// A client that does not come back costs the server nothing after the time for
// answers: the call is cancelled there.
func TestParkedCallEnds(t *testing.T) {
	v := asker(t)
	p := start(t, "guard: {ask_timeout: 1s}\n"+trusted(v), nil)
	c := p.client(modern, "", formCaps, nil)
	first := c.call("s_look", `{"id":"1"}`, "", nil)
	p.until("the server hears that the call is cancelled", func() bool { return len(v.Cancelled()) == 1 })
	if got := c.call("s_look", `{"id":"1"}`, first.retry(accept("x")), nil); got.Error == nil || !strings.Contains(got.text(), "not answered in time") || len(v.calls()) != 1 {
		t.Errorf("%s, %q", got.Raw, v.calls())
	}
}

// The calls of one user that wait are bounded; those of others are not
// concerned.
func TestParkedCallsAreBounded(t *testing.T) {
	v := asker(t)
	p, as := company(t, trusted(v))
	ann := p.client(modern, "", formCaps, as("ann"))
	var last answer
	for i := range 32 {
		if last = ann.call("s_look", fmt.Sprintf(`{"id":"%d"}`, i), "", nil); last.Result.ResultType != "input_required" {
			t.Fatalf("%d: %s", i, last.Raw)
		}
	}
	if got := ann.call("s_look", `{"id":"x"}`, "", nil); !got.Result.IsError || !strings.Contains(got.text(), "32 other calls") {
		t.Errorf("one too many: %s", got.Raw)
	}
	if got := p.client(modern, "", formCaps, as("bob")).call("s_look", `{"id":"b"}`, "", nil); got.Result.ResultType != "input_required" {
		t.Errorf("another user: %s", got.Raw)
	}
	if got := ann.call("s_look", `{"id":"31"}`, last.retry(accept("x")), nil); !strings.HasPrefix(got.text(), "answered") {
		t.Errorf("%s", got.Raw)
	}
	if got := ann.call("s_look", `{"id":"y"}`, "", nil); got.Result.ResultType != "input_required" {
		t.Errorf("after one was answered: %s", got.Raw)
	}
}

// What a server asks during an approved call goes to the caller and never
// counts as a yes; and the yes is used once, for all its rounds.
func TestParkedApprovedCall(t *testing.T) {
	v := asker(t)
	p := start(t, trusted(v), nil)
	c := p.client(modern, "", formCaps, nil)
	// An answer to the server's question of a read is no approval of a write.
	look := c.call("s_look", `{"id":"1"}`, "", nil)
	if got := c.call("s_kill", `{"id":"1"}`, look.retry(yes), nil); !strings.Contains(got.text(), "another call") || len(v.calls()) != 1 {
		t.Fatalf("%s, %q", got.Raw, v.calls())
	}
	first := c.call("s_kill", `{"id":"1"}`, "", nil)
	if len(first.approvals()) != 1 || len(v.calls()) != 1 {
		t.Fatalf("%s", first.Raw)
	}
	second := c.call("s_kill", `{"id":"1"}`, first.sayYes(), nil)
	if second.Result.ResultType != "input_required" || len(second.approvals()) != 0 || !strings.Contains(second.Raw, `"who?"`) || len(v.calls()) != 2 {
		t.Fatalf("%s, %q", second.Raw, v.calls())
	}
	third := c.call("s_kill", `{"id":"1"}`, second.retry(yes), nil)
	if third.text() != "answered "+yes+"\n" || len(v.calls()) != 2 {
		t.Fatalf("%s, %q", third.Raw, v.calls())
	}
	if again := c.call("s_kill", `{"id":"1"}`, "", nil); len(again.approvals()) != 1 || again.approvals()[0] == first.approvals()[0] || len(v.calls()) != 2 {
		t.Errorf("the yes was used twice: %s", again.Raw)
	}
	lines, _ := p.auditLines(func(l []map[string]any) bool { return len(l) >= 6 })
	with := 0
	for _, l := range lines {
		if l["approval"] == first.approvals()[0] {
			with++
		}
	}
	if with != 3 { // asked about, sent, went on
		t.Errorf("%d lines with the approval: %v", with, lines)
	}
}

// The rules of the moment count for a call that waits: what has become
// forbidden does not go on, and is cancelled at its server.
func TestParkedCallAfterReload(t *testing.T) {
	v := asker(t)
	p := start(t, trusted(v), nil)
	c := p.client(modern, "", formCaps, nil)
	first := c.call("s_look", `{"id":"1"}`, "", nil)
	p.reload("guard: {rules: [{name: no, servers: [s], tools: [look], action: deny}]}\n" + trusted(v))
	got := c.call("s_look", `{"id":"1"}`, first.retry(accept("x")), nil)
	if !got.Result.IsError || !strings.Contains(got.text(), "changed the rules") || len(v.calls()) != 1 {
		t.Errorf("%s", got.Raw)
	}
	p.until("the server hears of it", func() bool { return len(v.Cancelled()) == 1 })
}

// A client that leaves while its retry is under way cancels the call.
func TestParkedCallLeftBehind(t *testing.T) {
	asked := make(chan struct{})
	v := serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		if _, err := c.Ask("elicitation/create", `{"message":"who?"}`, false); err == nil {
			close(asked)
			<-c.Context().Done()
		}
		return true
	})
	p := start(t, trusted(v), nil)
	c := p.client(modern, "", formCaps, nil)
	first := c.call("s_look", `{"id":"1"}`, "", nil)
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-asked
		leave()
	}()
	c.doAs(ctx, "9", "tools/call", `"name":"s_look","arguments":{"id":"1"},`+first.retry(accept("x")), nil, nil)
	p.until("the server hears that the call is cancelled", func() bool { return len(v.Cancelled()) == 1 })
}

// A retry may reach another replica than the one that holds the call.
func TestParkedCallOnAnyReplica(t *testing.T) {
	redis := storetest.StartRedis(t)
	v := asker(t)
	yaml := "store: {redis: " + redis.URL() + "}\n" + trusted(v)
	a, b := start(t, yaml, nil), start(t, yaml, nil)
	ca, cb := a.client(modern, "", formCaps, nil), b.client(modern, "", formCaps, nil)
	first := ca.call("s_look", `{"id":"1"}`, `"_meta":{"progressToken":"one"}`, nil)
	if first.Result.ResultType != "input_required" {
		t.Fatalf("%s", first.Raw)
	}
	if got := cb.call("s_look", `{"id":"2"}`, first.retry(accept("x")), nil); !strings.Contains(got.text(), "another call") {
		t.Errorf("other arguments: %s", got.Raw)
	}
	again := cb.call("s_look", `{"id":"1"}`, `"requestState":`+string(wire.Quote(first.Result.RequestState)), nil)
	if again.Result.ResultType != "input_required" || again.Result.RequestState == first.Result.RequestState {
		t.Fatalf("without answers: %s", again.Raw)
	}
	got := cb.call("s_look", `{"id":"1"}`, again.retry(accept("x"))+`,"_meta":{"progressToken":2}`, nil)
	if got.text() != "answered "+accept("x")+"\n" || len(v.calls()) != 1 {
		t.Fatalf("%s %v, %q", got.Raw, got.Err, v.calls())
	}
	if len(got.Notes) != 1 || !strings.Contains(got.Notes[0], `"progressToken":2,`) {
		t.Errorf("progress: %q", got.Notes)
	}
	if got := ca.call("s_look", `{"id":"1"}`, again.retry(accept("x")), nil); !strings.Contains(got.text(), "outcome of the call is unknown") || len(v.calls()) != 1 {
		t.Errorf("used: %s", got.Raw)
	}
	// The holder goes away: its calls are cancelled and their retries told so.
	last := ca.call("s_look", `{"id":"3"}`, "", nil)
	a.stop()
	if got := cb.call("s_look", `{"id":"3"}`, last.retry(accept("x")), nil); !strings.Contains(got.text(), "outcome of the call is unknown") || len(v.calls()) != 2 {
		t.Errorf("after the holder's end: %s, %q", got.Raw, v.calls())
	}
}

// Each of many users at once is asked about its own call and nobody else's.
func TestQuestionsDoNotMix(t *testing.T) {
	v := asker(t)
	p, as := company(t, trusted(v))
	var wg sync.WaitGroup
	for _, user := range []string{"ann", "bob", "cem"} {
		for _, e := range []era{legacy, modern} {
			c := p.client(e, "", formCaps, as(user))
			for i := range 8 {
				wg.Go(func() {
					id := fmt.Sprintf("%s-%s-%d", user, e, i)
					got, questions := c.asks("tools/call", `"name":"s_look","arguments":{"id":"`+id+`"}`, func(_ string, q json.RawMessage) string {
						if !strings.Contains(string(q), `"id":"`+id+`"`) {
							t.Errorf("%s was asked %s", id, q)
						}
						return accept(id)
					})
					if len(questions) != 1 || got.text() != "answered "+accept(id)+"\n" {
						t.Errorf("%s: asked %q, got %s", id, questions, got.Raw)
					}
				})
			}
		}
	}
	wg.Wait()
}

// An approved call before a 2026-07-28 server keeps its yes through the rounds
// that its server wants, and a server's state that looks like the portal's own
// (another portal's) is given back to it.
func TestRoundsOfModernServers(t *testing.T) {
	const its = "portal-call:of-another-portal"
	ask := `{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}},"requestState":"` + its + `"}`
	v := serveWith(t, upstreamtest.Options{Era: upstreamtest.Modern, Tools: []json.RawMessage{toolDef("kill", destructive)}, Prompts: []json.RawMessage{json.RawMessage(`{"name":"p"}`)}}, func(c *upstreamtest.Call) bool {
		switch {
		case c.Method != "tools/call" && c.Method != "prompts/get":
			return false
		case !strings.Contains(string(c.Params), `"requestState":"`+its+`"`):
			c.Result(ask)
		case c.Method == "tools/call":
			c.Text("ran " + string(c.Params))
		default:
			c.Result(`{"resultType":"complete","messages":[],"params":` + string(c.Params) + `}`)
		}
		return true
	})
	p := start(t, trusted(v), nil)
	c := p.client(modern, "", formCaps, nil)
	first := c.call("s_kill", `{"id":"1"}`, "", nil)
	second := c.call("s_kill", `{"id":"1"}`, first.sayYes(), nil)
	if second.Result.ResultType != "input_required" || second.Result.RequestState == its || len(v.calls()) != 1 {
		t.Fatalf("%s", second.Raw)
	}
	third := c.call("s_kill", `{"id":"1"}`, second.retry(accept("x")), nil)
	if !strings.HasPrefix(third.text(), "ran ") || !strings.Contains(third.text(), `"inputResponses":{"q":`+accept("x")) {
		t.Errorf("%s", third.Raw)
	}
	prompt := c.do("prompts/get", `"name":"s_p"`, nil)
	if prompt.Result.ResultType != "input_required" || prompt.Result.RequestState == its {
		t.Fatalf("%s", prompt.Raw)
	}
	if got := c.do("prompts/get", `"name":"s_p",`+prompt.retry(accept("y")), nil); got.Result.ResultType != "complete" || !strings.Contains(got.Raw, `"inputResponses":{"q":`+accept("y")) {
		t.Errorf("%s", got.Raw)
	}
}

// Questions that a server puts at once reach the client at once, also when they
// come on the stream of the session. They are on their way together; should the
// machine hold one up the client gets it in another round, so most tries count.
func TestQuestionsAtOnce(t *testing.T) {
	const questions, tries = 8, 7
	for _, standalone := range []bool{false, true} {
		v := serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
			if c.Method != "tools/call" {
				return false
			}
			c.Write(": open\n\n")
			var wg sync.WaitGroup
			var mu sync.Mutex
			said := 0
			for i := range questions {
				wg.Go(func() {
					a, err := c.Ask("elicitation/create", fmt.Sprintf(`{"message":"%d"}`, i), standalone)
					mu.Lock()
					defer mu.Unlock()
					if err == nil && string(a.Result) == accept(fmt.Sprint(i)) {
						said++
					}
				})
			}
			wg.Wait()
			c.Text(fmt.Sprint("answered ", said))
			return true
		})
		p := start(t, trusted(v), nil)
		c := p.client(modern, "", formCaps, nil)
		var together []int
		whole := 0
		for range tries {
			a := c.call("s_look", `{}`, "", nil)
			together = append(together, len(a.Result.InputRequests))
			if len(a.Result.InputRequests) == questions {
				whole++
			}
			for a.Result.ResultType == "input_required" {
				o := wire.Object{}
				for k, q := range a.Result.InputRequests {
					var r struct{ Params struct{ Message string } }
					_ = json.Unmarshal(q, &r)
					o = append(o, wire.Field{Key: k, Value: json.RawMessage(accept(r.Params.Message))})
				}
				a = c.call("s_look", `{}`, `"requestState":`+string(wire.Quote(a.Result.RequestState))+`,"inputResponses":`+string(o.Bytes()), nil)
			}
			if a.text() != fmt.Sprintf("answered %d\n", questions) {
				t.Errorf("standalone %v: %s", standalone, a.Raw)
			}
		}
		if whole < tries/2+1 {
			t.Errorf("standalone %v: of %d questions put at once came at first %v", standalone, questions, together)
		}
	}
}

// What a server asks at once is one round, and a 2025 server that answers with
// questions without calling its result input_required is understood.
func TestRoundsOfLegacyServers(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		if strings.Contains(string(c.Params), "requestState") {
			c.Text("got " + string(c.Params))
			return true
		}
		var all sync.WaitGroup
		answers := make([]string, 3)
		for i := range answers {
			all.Go(func() {
				m, err := c.Ask("elicitation/create", fmt.Sprintf(`{"message":"%d?","requestedSchema":{"type":"object","properties":{}}}`, i), false)
				if err == nil {
					answers[i] = string(m.Result)
				}
			})
		}
		all.Wait()
		if strings.Count(strings.Join(answers, ""), `"v":"one"`) != 3 {
			c.Text("answers: " + strings.Join(answers, " "))
			return true
		}
		c.Result(`{"content":[],"requestState":"second","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"more?","requestedSchema":{"type":"object","properties":{}}}}}}`)
		return true
	})
	p := start(t, trusted(v), nil)
	ann := p.client(modern, "", formCaps, nil)
	first := ann.call("s_look", `{"id":"1"}`, "", nil)
	if len(first.Result.InputRequests) != 3 {
		t.Fatalf("the first round has %d questions: %s", len(first.Result.InputRequests), first.Raw)
	}
	second := ann.call("s_look", `{"id":"1"}`, first.retry(accept("one")), nil)
	if second.Result.ResultType != "input_required" || second.Result.RequestState != "second" || len(second.Result.InputRequests) != 1 {
		t.Fatalf("the second round: %s", second.Raw)
	}
	last := ann.call("s_look", `{"id":"1"}`, second.retry(accept("two")), nil)
	if got := last.text(); !strings.Contains(got, `"requestState":"second"`) || !strings.Contains(got, `"v":"two"`) {
		t.Errorf("the end: %s", last.Raw)
	}
}

// A server may ask for roots without params; the Go SDK does not read a
// question that has none, and then the whole call failed.
func TestQuestionWithoutParams(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		m, err := c.Ask("roots/list", "", false)
		if err != nil {
			c.Text(err.Error())
			return true
		}
		c.Text("roots " + string(m.Result))
		return true
	})
	p := start(t, trusted(v), nil)
	ann := p.client(modern, "", allCaps, nil)
	first := ann.call("s_look", `{"id":"1"}`, "", nil)
	var sdk struct{ Result mcp.CallToolResult }
	if err := json.Unmarshal([]byte(first.Raw), &sdk); err != nil || len(sdk.Result.InputRequests) != 1 {
		t.Fatalf("the SDK reads %d questions, error %v, in %s", len(sdk.Result.InputRequests), err, first.Raw)
	}
	if last := ann.call("s_look", `{"id":"1"}`, first.retry(everything["roots/list"]), nil); !strings.Contains(last.text(), "file:///root") {
		t.Errorf("the end: %s", last.Raw)
	}
	lines, _ := p.auditLines(func(l []map[string]any) bool { return len(l) >= 2 })
	if lines[0]["status"] != "pending" || lines[0]["error"] != "the server waits for the client's answers" {
		t.Errorf("the audit says %v, %v", lines[0]["status"], lines[0]["error"])
	}
}
