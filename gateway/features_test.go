package gateway_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
	"github.com/mcp-portal/mcp-portal/wire"
)

// seen is what the server says arrived besides calls.
func (p pair) seen(c *client) []string {
	var list []string
	_ = json.Unmarshal([]byte(strings.TrimSpace(c.call(p.id+"_seen", `{}`, "", nil).text())), &list)
	return list
}

func notesOf(a answer, method string) (out []string) {
	for _, n := range a.Notes {
		if m, err := wire.ParseMessage([]byte(n)); err == nil && m.Method == method {
			out = append(out, string(m.Params))
		}
	}
	return out
}

// Progress comes under the caller's own token, whatever its type, complete and
// in order, before the result.
func TestPairsProgress(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		c := p.client(p.era, "", noCaps, nil)
		for _, token := range []string{`"t-1"`, `7`, `"7"`, `1.50`} {
			got := notesOf(c.call(p.id+"_progress", `{"n":50}`, `"_meta":{"progressToken":`+token+`}`, nil), "notifications/progress")
			if len(got) != 50 {
				t.Errorf("%s: %d of 50 notices", token, len(got))
			}
			for i, n := range got {
				if want := `{"progressToken":` + token + `,"progress":` + string(wire.Encode(i)) + `,"total":1.50,"vendor":{"b":1,"a":2}}`; n != want {
					t.Fatalf("%s\nwant %s", n, want)
				}
			}
		}
		if got := c.call(p.id+"_progress", `{"n":5}`, "", nil); len(got.Notes) != 0 {
			t.Errorf("nobody asked for %q", got.Notes)
		}
	})
}

// The level that the client asked for, by session or by request, reaches the
// server in the way of its era; messages pass byte for byte.
func TestPairsLogging(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		c := p.client(p.era, "", noCaps, nil)
		log := func(level string) []string {
			more := ""
			if p.era == modern && level != "" {
				more = `"_meta":{"io.modelcontextprotocol/logLevel":"` + level + `"}`
			} else if level != "" {
				if got := c.do("logging/setLevel", `"level":"`+level+`"`, nil); got.Error != nil {
					t.Fatalf("%s", got.Raw)
				}
			}
			return notesOf(c.call(p.id+"_log", `{}`, more, nil), "notifications/message")
		}
		if n := len(log("")); p.era == modern && n != 0 || p.era == legacy && !p.modern && n != 8 {
			t.Errorf("no level: %d messages", n)
		}
		for i, level := range []string{"error", "debug"} {
			got := log(level)
			if want := 8 - wire.LogRank(level); len(got) != want {
				t.Errorf("%s: %d messages, want %d: %q", level, len(got), want, got)
				continue
			}
			if want := `{"level":"` + level + `","logger":"full","data":{"z":1.10,"a":12345678901234567890}}`; got[0] != want {
				t.Errorf("%s\nwant %s", got[0], want)
			}
			if seen := p.seen(c); !slices.Contains(seen, `log at "`+level+`"`) {
				t.Errorf("%d: the server saw %q", i, seen)
			}
		}
	})
}

// Notifications that nobody here knows pass, as those that a URL was dealt with
// do, when they belong to a call.
func TestPairsOtherNotifications(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		c := p.client(p.era, "", allCaps, nil)
		if got := notesOf(c.call(p.id+"_vendor", `{}`, "", nil), "notifications/vendor/thing"); !slices.Equal(got, []string{`{"big":1e400,"b":1,"a":2}`}) {
			t.Errorf("%q", got)
		}
		if got := notesOf(c.call(p.id+"_complete", `{"id":"e-9"}`, "", nil), "notifications/elicitation/complete"); !slices.Equal(got, []string{`{"elicitationId":"e-9"}`}) {
			t.Errorf("%q", got)
		}
	})
}

// Giving up reaches the server in the way of its era and transport.
func TestPairsCancellation(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		c := p.client(p.era, "", formCaps, nil)
		count := func(what string) (n int) {
			for _, s := range p.seen(c) {
				if s == what {
					n++
				}
			}
			return n
		}
		hangs, cancelled := count("hangs"), count("cancelled")
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		done := make(chan answer, 1)
		go func() { done <- c.doAs(ctx, "77", "tools/call", `"name":"`+p.id+`_hang","arguments":{}`, nil, nil) }()
		p.until("the call hangs", func() bool { return count("hangs") == hangs+1 })
		if p.era == modern {
			leave()
		} else {
			resp, body := p.post("", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77,"reason":"enough"}}`, c.headers("", ""))
			if resp.StatusCode != 202 {
				t.Fatalf("%d %s", resp.StatusCode, body)
			}
		}
		p.until("the server hears that the call is cancelled", func() bool { return count("cancelled") == cancelled+1 })
		if got := <-done; got.Raw != "" || got.Err == nil {
			t.Errorf("%s: a cancelled call has no answer", got.Raw)
		}
	})
}

// A question that the server takes back disappears at the client; the call goes
// on, and nobody answers what was taken back.
func TestPairsWithdrawnQuestion(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		if p.modern {
			return // there are no questions in mid-call
		}
		c := p.client(p.era, "", formCaps, nil)
		var asked []string
		got := c.do("tools/call", `"name":"`+p.id+`_withdraw","arguments":{}`, func(q question) { asked = append(asked, string(q.ID)) })
		for got.Result.ResultType == "input_required" { // asked before it was taken back; it is not answered
			got = c.do("tools/call", `"name":"`+p.id+`_withdraw","arguments":{},"requestState":`+string(wire.Quote(got.Result.RequestState)), nil)
		}
		if got.text() != "withdrawn\n" {
			t.Fatalf("%s", got.Raw)
		}
		if p.era == legacy && len(asked) == 1 {
			if notes := notesOf(got, "notifications/cancelled"); len(notes) != 1 || !strings.Contains(notes[0], `"requestId":`+asked[0]) {
				t.Errorf("asked %q, then told %q", asked, notes)
			}
		}
		for range 5 { // an answer would come beside the calls, in its own time
			if seen := p.seen(c); strings.Contains(strings.Join(seen, " "), "stray answer") {
				t.Fatalf("%q", seen)
			}
		}
	})
}

// What only passes: _meta, trace context, capabilities and name of the client,
// ttlMs and cacheScope, completions under the server's own names.
func TestPairsPassing(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		c := p.client(p.era, "", allCaps, nil)
		const meta = `"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","vendor/x":{"z":1.10,"a":1e400}`
		got := c.call(p.id+"_echo", `{"b":1.10,"a":12345678901234567890}`, `"_meta":{`+meta+`},"vendor":[1e400]`, nil)
		for _, part := range []string{`"arguments":{"b":1.10,"a":12345678901234567890}`, meta, `"vendor":[1e400]`, `"name":"echo"`} {
			if !strings.Contains(got.Raw, part) {
				t.Errorf("%s is not in %s", part, got.Raw)
			}
		}
		if got := c.call(p.id+"_caps", `{}`, "", nil); !strings.Contains(got.Raw, `{"caps":`+allCaps+`,"info":{"name":"test","version":"1"}}`) {
			t.Errorf("%s", got.Raw)
		}
		read := c.do("resources/read", `"uri":"portal+`+p.id+`:mem://t/1"`, nil)
		for _, part := range []string{`"ttlMs":60000,"cacheScope":"private"`, `"size":1.50`} {
			if !strings.Contains(read.Raw, part) {
				t.Errorf("%s is not in %s", part, read.Raw)
			}
		}
		for ref, want := range map[string]string{
			`{"type":"ref/prompt","name":"` + p.id + `_hello"}`:               `"ref":{"type":"ref/prompt","name":"hello"}`,
			`{"type":"ref/resource","uri":"portal+` + p.id + `:mem://t/{x}"}`: `"ref":{"type":"ref/resource","uri":"mem://t/{x}"}`,
		} {
			got := c.do("completion/complete", `"ref":`+ref+`,"argument":{"name":"x","value":"v"},"context":{"arguments":{"y":"1"}}`, nil)
			if !strings.Contains(got.Raw, want) || !strings.Contains(got.Raw, `"context":{"arguments":{"y":"1"}}`) {
				t.Errorf("%s: %s", ref, got.Raw)
			}
		}
		if got := c.do("prompts/get", `"name":"`+p.id+`_hello","arguments":{"who":"me"}`, nil); !strings.Contains(got.Raw, `"name":"hello","arguments":{"who":"me"}`) {
			t.Errorf("%s", got.Raw)
		}
	})
}

// Changed lists are announced in both eras, and roots that changed are passed
// to the servers that know roots.
func TestPairsChanges(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		c := p.client(p.era, "", allCaps, nil)
		f := c.feed(`{"toolsListChanged":true}`)
		if p.era == modern {
			f.wait(1, "acknowledged")
		}
		if p.full != nil { // a child of the user's own is not the one that is listed
			before := f.count("notifications/tools/list_changed")
			c.call(p.id+"_grow", `{}`, "", nil)
			f.wait(before+1, "notifications/tools/list_changed")
		}
		if p.era == modern {
			return
		}
		c.call(p.id+"_echo", `{}`, "", nil) // so that there is a session
		if resp, body := p.post("", `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`, c.headers("", "")); resp.StatusCode != 202 {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
		if !p.modern {
			p.until("the server hears that the roots changed", func() bool { return slices.Contains(p.seen(c), "roots/list_changed") })
		}
	})
}

// What a 2025 server says outside calls reaches the stream of the session that
// it says it to, at the level of that; that a URL was dealt with only the client
// that was sent there.
func TestSaidOutsideCalls(t *testing.T) {
	h := upstreamtest.NewFullHTTP(t, false)
	p := start(t, "servers: {h: {url: '"+h.URL+"', trust_annotations: true}}\n", nil)
	ann, bob := p.client(legacy, "", allCaps, nil), p.client(legacy, "", allCaps, nil)
	fa, fb := ann.feed(""), bob.feed("")
	if got := bob.do("logging/setLevel", `"level":"error"`, nil); got.Error != nil {
		t.Fatal(got.Raw)
	}
	ann.asks("tools/call", `"name":"h_ask","arguments":{"asks":[`+askURL+`]}`, replyAll)
	bob.call("h_echo", `{}`, "", nil)
	p.until("both hear messages", func() bool {
		h.Broadcast("notifications/message", `{"level":"error","data":1e400}`)
		return fa.count(`"params":{"level":"error","data":1e400}`) > 0 && fb.count(`"params":{"level":"error","data":1e400}`) > 0
	})
	h.Broadcast("notifications/message", `{"level":"info","data":"quiet"}`)
	h.Broadcast("notifications/elicitation/complete", `{"elicitationId":"e-1"}`)
	h.Broadcast("notifications/elicitation/complete", `{"elicitationId":"e-2"}`)
	h.Broadcast("notifications/message", `{"level":"emergency","data":"end"}`)
	fa.wait(1, `"elicitationId":"e-1"`)
	fa.wait(1, `"quiet"`)
	fa.wait(1, `"end"`)
	fb.wait(1, `"end"`)
	for _, part := range []string{"elicitation/complete", "quiet"} {
		if fb.count(part) != 0 {
			t.Errorf("the other client got %q", fb.all())
		}
	}
	if fa.count("e-2") != 0 || fa.count("e-1") != 1 {
		t.Errorf("%q", fa.all())
	}
}

// The portal declares the extensions of its servers that work through it, and
// no others.
func TestExtensionsAreDeclared(t *testing.T) {
	for _, c := range []struct {
		modern bool
		legacy string // what a 2025 client reads
		now    string // what a 2026-07-28 client reads
	}{
		{false, `"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`, ``},
		{true, `"extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/ui":{}}`, `"extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/ui":{}}`},
	} {
		h := upstreamtest.NewFullHTTP(t, c.modern)
		p := start(t, "servers: {h: {url: '"+h.URL+"'}}\n", nil)
		_, body := p.post("", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`, nil)
		if !strings.Contains(body, c.legacy) || strings.Contains(body, "vendor/x") {
			t.Errorf("2025: %s", body)
		}
		got := p.client(modern, "", noCaps, nil).do("server/discover", "", nil)
		if !strings.Contains(got.Raw, c.now) || strings.Contains(got.Raw, `"list":{}`) || !strings.Contains(got.Raw, `"supportedVersions":["2026-07-28"`) {
			t.Errorf("2026: %s", got.Raw)
		}
	}
}
