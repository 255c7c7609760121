package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// A user whose every call waits for an answer can give it, and call off.
func TestAnswersAreNoLoad(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v)+"limits: {calls_per_user: 2}\n", nil)
	c := p.client(legacy, "", formCaps, nil)
	asked := make(chan question, 2)
	var calls sync.WaitGroup
	for i := range 2 {
		calls.Go(func() {
			got := c.doAs(context.Background(), fmt.Sprint(100+i), "tools/call", fmt.Sprintf(`"name":"s_kill","arguments":{"id":"%d"}`, i), nil, func(q question) { asked <- q })
			if !strings.Contains(got.text(), "ran kill") {
				t.Errorf("call %d: %s", i, got.text())
			}
		})
	}
	first, second := <-asked, <-asked
	if resp, body := p.post("", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, c.headers("", "")); resp.StatusCode != 429 {
		t.Errorf("a third request: HTTP %d %s, want 429", resp.StatusCode, body)
	}
	if resp, body := p.post("", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}`, c.headers("", "")); resp.StatusCode != 202 {
		t.Errorf("a notification: HTTP %d %s", resp.StatusCode, body)
	}
	for _, q := range []question{first, second} {
		if resp := q.reply(yes); resp.StatusCode != 202 {
			t.Errorf("an answer: HTTP %d", resp.StatusCode)
		}
	}
	calls.Wait()
}

// Who cannot be asked cannot answer: neither a client that declared nothing nor
// one that is shown too little of a large call says yes with a retry.
func TestOnlyTheAskedAnswer(t *testing.T) {
	for _, c := range []struct {
		name string
		era  era
		caps string
		id   string
	}{
		{"2025 nothing declared", legacy, noCaps, "7"},
		{"2026 nothing declared", modern, noCaps, "7"},
		{"2025 form declared", legacy, formCaps, strings.Repeat("x", 30_000)},
		{"2026 too large for a form", modern, formCaps, strings.Repeat("x", 30_000)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // some wait for the page for a while
			v := serve(t, upstreamtest.Legacy, nil)
			p := start(t, trusted(v), nil)
			cl := p.client(c.era, twoTools, c.caps, nil)
			first := cl.code("return await s.kill({id:'"+c.id+"'})", "", nil)
			run, ids := runID.FindString(first.Raw), first.approvals()
			if run == "" || len(ids) != 1 {
				t.Fatalf("the code did not wait: %.300s", first.Raw)
			}
			got := cl.resume(run, `"requestState":"portal-run:`+run+`","inputResponses":{"approval-`+ids[0]+`":`+yes+`}`, nil)
			if n := len(v.calls()); n > 0 || !strings.Contains(got.text(), "Paused") {
				t.Errorf("%d calls were sent: %.300s", n, got.text())
			}
		})
	}
}

// A run that is cancelled while its write waits for a person has sent nothing,
// and its client hears nothing more: the stream ends.
func TestCancelledWhileItWaits(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v), nil)
	c := p.client(legacy, twoTools, formCaps, nil)
	for i := range 20 {
		id := fmt.Sprint(1000 + i)
		got := c.doAs(context.Background(), id, "tools/call", `"name":"portal_execute","arguments":{"code":"return await s.kill({id:'`+id+`'})"}`, nil, func(question) {
			go p.post("", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`, c.headers("", ""))
		})
		if got.Raw != "" || !errors.Is(got.Err, io.ErrUnexpectedEOF) {
			t.Errorf("%s %v; want the end of the stream", got.Raw, got.Err)
		}
	}
	if n := len(v.calls()); n > 0 {
		t.Errorf("%d calls were sent", n)
	}
}
