package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
	"github.com/mcp-portal/mcp-portal/wire"
)

// A query that cannot be read, or that misspells a parameter of the portal, is
// an error and not the ordinary mode.
func TestQueriesThatCannotBeMeant(t *testing.T) {
	p := start(t, "servers: {}\n", nil)
	eachEra(t, func(t *testing.T, e era) {
		for query, hint := range map[string]string{
			"?codemode=%zz":                                  "cannot be read",
			"?codemode=code;x=1":                             "cannot be read",
			"?optimize_context=search_and_execute;a=b":       "cannot be read",
			"?optimise_context=search_and_execute":           "write optimize_context",
			"?optimize-context=search_and_execute":           "write optimize_context",
			"?OPTIMIZE_CONTEXT=search_and_execute":           "write optimize_context",
			"?optimizeContext=minimize_tools":                "write optimize_context",
			"?code_mode=code":                                "write codemode",
			"?codeMode=code":                                 "write codemode",
			"?codemode=code&codemode=code":                   "2 times",
			"?codemode=yes":                                  "search_and_execute",
			"?optimize_context=minimize_tools&codemode=code": "cannot both",
		} {
			c := &client{p: p, era: e, caps: noCaps, query: query}
			if e == legacy {
				c.session = p.client(legacy, "", noCaps, nil).session
			}
			if got := c.do("tools/list", "", nil); got.Status != 400 || got.Error == nil || !strings.Contains(got.text(), hint) {
				t.Errorf("%s: %d %s; want 400 with %q", query, got.Status, got.Raw, hint)
			}
		}
		// Parameters of others are none of the portal's business.
		if got := p.client(e, "?utm_source=x&session=1", noCaps, nil).do("tools/list", "", nil); got.Status != 200 {
			t.Errorf("foreign parameters: %d %s", got.Status, got.Raw)
		}
	})
}

// An id that is null asks for an answer nobody could match.
func TestNullIDIsRefused(t *testing.T) {
	p := start(t, "servers: {}\n", nil)
	c := p.client(legacy, "", noCaps, nil)
	for _, id := range []string{"null", "true", "[]", "{}"} {
		resp, body := p.post("", `{"jsonrpc":"2.0","id":`+id+`,"method":"ping"}`, c.headers("", ""))
		if resp.StatusCode != 400 || !strings.Contains(body, "-32600") {
			t.Errorf("id %s: %d %s", id, resp.StatusCode, body)
		}
		m := &client{p: p, era: modern, caps: noCaps}
		if got := m.doAs(t.Context(), id, "server/discover", "", nil, nil); got.Status != 400 || got.Error == nil || got.Error.Code != -32600 {
			t.Errorf("2026, id %s: %d %s", id, got.Status, got.Raw)
		}
	}
}

// Versions, methods and cursors that are not known have each their own error.
func TestWhatIsNotKnownIsSaid(t *testing.T) {
	p := start(t, "servers: {}\n", nil)
	m, l := p.client(modern, "", noCaps, nil), p.client(legacy, "", noCaps, nil)
	with := func(c *client, method, params string, header map[string]string) answer {
		return c.doAs(t.Context(), "1", method, params, header, nil)
	}
	for _, c := range []struct {
		what   string
		got    answer
		status int
		code   int
	}{
		{"a version of the future", with(m, "tools/list", "", map[string]string{"Mcp-Protocol-Version": "2027-01-01"}), 400, -32022},
		{"no version at all", with(m, "tools/list", "", map[string]string{"Mcp-Protocol-Version": "zzz"}), 400, -32022},
		{"the future without _meta", with(&client{p: p, era: legacy}, "tools/list", "", map[string]string{"Mcp-Protocol-Version": "2027-01-01", "Mcp-Session-Id": ""}), 400, -32022},
		{"a version that never was", with(l, "tools/list", "", map[string]string{"Mcp-Protocol-Version": "2025-01-01"}), 400, -32600},
		{"initialize in 2026", m.do("initialize", `"protocolVersion":"2026-07-28","capabilities":{},"clientInfo":{"name":"x","version":"1"}`, nil), 404, -32601},
		{"an unknown method in 2026", m.do("tools/guess", "", nil), 404, -32601},
		{"an unknown method in 2025", l.do("tools/guess", "", nil), 200, -32601},
		{"another method in the header", with(m, "tools/list", "", map[string]string{"Mcp-Method": "tools/call"}), 400, -32020},
		{"no method in the header", with(m, "tools/list", "", map[string]string{"Mcp-Method": ""}), 400, -32020},
		{"another name in the header", with(m, "tools/call", `"name":"portal_list_servers"`, map[string]string{"Mcp-Name": "other"}), 400, -32020},
	} {
		if c.got.Status != c.status || c.got.Error == nil || c.got.Error.Code != c.code {
			t.Errorf("%s: %d %s; want %d, %d", c.what, c.got.Status, c.got.Raw, c.status, c.code)
		}
	}
	eachEra(t, func(t *testing.T, e era) {
		for _, list := range []string{"tools/list", "prompts/list", "resources/list", "resources/templates/list"} {
			got := p.client(e, "", noCaps, nil).do(list, `"cursor":"zzz"`, nil)
			if got.Error == nil || got.Error.Code != -32602 || e == modern && got.Status != 400 {
				t.Errorf("%s with an unknown cursor: %d %s", list, got.Status, got.Raw)
			}
		}
	})
}

// Headers that say what a request is are there once: of two, a proxy may read
// one and the portal the other.
func TestHeadersSentTwice(t *testing.T) {
	p := start(t, "servers: {}\n", nil)
	m, l := p.client(modern, "", noCaps, nil), p.client(legacy, "", noCaps, nil)
	const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"portal_list_servers","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
	for _, c := range []struct {
		c      *client
		header string
		second string
		code   int // 0: it is served
	}{
		{m, "", "", 0},
		{m, "Mcp-Name", "portal_list_servers", -32020},
		{m, "Mcp-Name", "other", -32020},
		{m, "Mcp-Method", "tools/call", -32020},
		{m, "Mcp-Method", "tools/list", -32020},
		{m, "Mcp-Protocol-Version", "2025-11-25", -32020},
		{l, "Mcp-Protocol-Version", "2025-06-18", -32600},
		{l, "Mcp-Protocol-Version", "2026-07-28", -32020},
		{l, "Mcp-Session-Id", "other", -32600},
		{l, "Mcp-Name", "a proxy's own", 0},
	} {
		req, err := http.NewRequest(http.MethodPost, p.url+"/mcp", strings.NewReader(body))
		p.must(err)
		if c.c == l {
			req.Body = io.NopCloser(strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
			req.ContentLength = -1
		}
		for k, v := range c.c.headers("tools/call", "portal_list_servers") {
			req.Header.Set(k, v)
		}
		req.Header.Set("Accept", "application/json")
		if c.header == wire.HeaderProtocolVersion && c.c == l {
			req.Header.Set(c.header, "2025-11-25")
		}
		if c.header != "" {
			req.Header.Add(c.header, c.second)
		}
		resp, err := http.DefaultClient.Do(req)
		p.must(err)
		var got struct{ Error struct{ Code int } }
		err = json.NewDecoder(resp.Body).Decode(&got)
		resp.Body.Close()
		if want := map[bool]int{true: 200, false: 400}[c.code == 0]; err != nil || resp.StatusCode != want || got.Error.Code != c.code {
			t.Errorf("%s: %s a second time: %d %d %v; want %d %d", c.c.era, c.header, resp.StatusCode, got.Error.Code, err, want, c.code)
		}
	}
}

// A client that declines event streams gets none, even where one would begin.
func TestDeclinedStream(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		c.Notify("notifications/message", `{"level":"error","data":"on the way"}`)
		c.Text("done")
		return true
	})
	p := start(t, trusted(v), nil)
	c := p.client(legacy, "", noCaps, nil)
	for accept, want := range map[string]string{
		"application/json, text/event-stream":         "text/event-stream", // so that the others can fail
		"application/json, text/event-stream;q=0":     "application/json",
		"application/json, text/event-stream; q=0.00": "application/json",
		"application/json":                            "application/json",
	} {
		got := c.doAs(t.Context(), `"`+accept+`"`, "tools/call", `"name":"s_look"`, map[string]string{"Accept": accept}, nil)
		if got.Type != want || got.text() != "done\n" {
			t.Errorf("Accept %s: %s %s %v", accept, got.Type, got.Raw, got.Err)
		}
	}
}

// slowSessions takes its time to store a session.
type slowSessions struct {
	store.Store
	by time.Duration
}

func (s slowSessions) Set(ctx context.Context, key string, v []byte, ttl time.Duration) error {
	if strings.HasPrefix(key, "mcp-session:") {
		time.Sleep(s.by)
	}
	return s.Store.Set(ctx, key, v, ttl)
}

// However long the store takes, initialize answers with the session id: its
// headers must not go out before it is known. The times are around the one
// after which other answers become streams.
func TestSlowStoreKeepsTheSession(t *testing.T) {
	for _, by := range []time.Duration{299 * time.Millisecond, 300 * time.Millisecond, 500 * time.Millisecond} {
		p := start(t, "servers: {}\n", func(s store.Store) store.Store { return slowSessions{s, by} })
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				resp, err := p.open(t.Context(), "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"c","version":"1"},"capabilities":{}}}`, nil)
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				id := resp.Header.Get("Mcp-Session-Id")
				if id == "" {
					t.Errorf("store slow by %v: no session id, %s", by, resp.Header.Get("Content-Type"))
					return
				}
				c := &client{p: p, era: legacy, session: id}
				if got := c.do("ping", "", nil); got.Status != 200 || got.Error != nil {
					t.Errorf("the session is not known: %d %s", got.Status, got.Raw)
				}
			})
		}
		wg.Wait()
	}
}

// DELETE ends what the session still does: a call that waits for its person,
// and one that waits for its server.
func TestDeleteEndsWaitingCalls(t *testing.T) {
	gone := make(chan struct{})
	arrived := make(chan struct{}, 1)
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
	asked := make(chan question, 1)
	c := p.client(legacy, "", formCaps, nil)
	ended := make(chan answer, 2)
	go func() { ended <- c.call("s_kill", `{"id":"1"}`, "", func(q question) { asked <- q }) }()
	q := <-asked
	go func() { ended <- c.call("s_look", `{"id":"1"}`, "", nil) }()
	<-arrived
	if status := c.end(nil); status != http.StatusNoContent {
		t.Fatalf("DELETE: %d", status)
	}
	for range 2 {
		select {
		case a := <-ended:
			if a.Err != nil || strings.Contains(a.text(), "ran ") {
				t.Errorf("a call of an ended session: %s %v", a.Raw, a.Err)
			}
		case <-time.After(patience):
			t.Fatal("a call outlives its session")
		}
	}
	select {
	case <-gone:
	case <-time.After(patience):
		t.Fatal("the server still works for an ended session")
	}
	if resp := q.reply(yes); resp.StatusCode != http.StatusNotFound {
		t.Errorf("an answer after the end: %d", resp.StatusCode)
	}
	if got := c.do("ping", "", nil); got.Status != http.StatusNotFound {
		t.Errorf("the session after its end: %d %s", got.Status, got.Raw)
	}
	if n := len(v.calls()); n != 1 {
		t.Errorf("%d calls arrived: %q", n, v.calls())
	}
}

// B017: clients that never send the session id back are still served with what
// needs none.
func TestB017_NoSessionIDIsServed(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v), nil)
	c := &client{p: p, era: legacy}
	none := map[string]string{"Mcp-Session-Id": ""}
	if got := c.doAs(t.Context(), "1", "tools/list", "", none, nil); !strings.Contains(got.Raw, `"s_look"`) {
		t.Errorf("tools/list: %d %s", got.Status, got.Raw)
	}
	if got := c.doAs(t.Context(), "2", "tools/call", `"name":"s_look","arguments":{"id":"1"}`, none, nil); got.text() != "ran look {\"id\":\"1\"}\n" {
		t.Errorf("tools/call: %d %s", got.Status, got.Raw)
	}
	if got := c.doAs(t.Context(), "3", "tools/call", `"name":"s_kill","arguments":{"id":"1"}`, none, nil); !strings.Contains(got.text(), "Approval needed") || len(v.calls()) != 1 {
		t.Errorf("a destructive call: %d %s", got.Status, got.Raw)
	}
	resp, body := p.post("", `{"jsonrpc":"2.0","id":1,"result":{}}`, none)
	if resp.StatusCode != 400 || !strings.Contains(body, "Mcp-Session-Id") {
		t.Errorf("an answer without a session: %d %s", resp.StatusCode, body)
	}
}

// Two requests with one id in one session could not be told apart.
func TestSameIDTwiceIsRefused(t *testing.T) {
	release := make(chan struct{})
	arrived := make(chan struct{})
	v := serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
		if c.Method == "tools/call" {
			close(arrived)
			<-release
		}
		return false
	})
	p := start(t, trusted(v), nil)
	c := p.client(legacy, "", noCaps, nil)
	first := make(chan answer)
	go func() { first <- c.doAs(context.Background(), "77", "tools/call", `"name":"s_look"`, nil, nil) }()
	<-arrived
	if got := c.doAs(t.Context(), "77", "ping", "", nil, nil); got.Status != 400 {
		t.Errorf("the same id again: %d %s", got.Status, got.Raw)
	}
	if got := p.client(legacy, "", noCaps, nil).doAs(t.Context(), "77", "ping", "", nil, nil); got.Status != 200 {
		t.Errorf("the same id in another session: %d %s", got.Status, got.Raw)
	}
	close(release)
	if got := <-first; got.Err != nil || got.Error != nil {
		t.Errorf("the first: %s", fmt.Sprint(got.Raw, got.Err))
	}
}

// 2026-07-28 has no handshake, ping, level or subscriptions by session, and
// demands the client's capabilities with every request.
func TestRemovedFromModern(t *testing.T) {
	p := start(t, "servers: {}\n", nil)
	for _, method := range []string{"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"} {
		got := p.client(modern, "", noCaps, nil).do(method, `"level":"info","protocolVersion":"2025-11-25","uri":"x://y"`, nil)
		if got.Status != 404 || got.Error == nil || got.Error.Code != -32601 {
			t.Errorf("%s: %d %s; want 404, -32601", method, got.Status, got.Raw)
		}
	}
	for _, method := range []string{"server/discover", "tools/list", "subscriptions/listen"} {
		resp, body := p.post("", `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{"notifications":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"}}}}`,
			map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": method})
		if resp.StatusCode != 400 || !strings.Contains(body, "-32602") || !strings.Contains(body, "clientCapabilities") {
			t.Errorf("%s without capabilities: %d %s; want 400, -32602", method, resp.StatusCode, body)
		}
	}
}

// A body beyond limits.body is refused, and the answer says what to do.
func TestLargeBodiesAreRefused(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, "limits: {body: 100000}\n"+trusted(v), nil)
	eachEra(t, func(t *testing.T, e era) {
		c := p.client(e, "", noCaps, nil)
		before := len(v.calls())
		a := c.call("s_look", `{"id":"`+strings.Repeat("x", 200_000)+`"}`, "", nil)
		if a.Status != http.StatusRequestEntityTooLarge || a.Error == nil || !strings.Contains(a.Error.Message, "limits.body") || len(v.calls()) != before {
			t.Errorf("%d %.300s %v", a.Status, a.Raw, a.Err)
		}
		if a := c.call("s_look", `{"id":"`+strings.Repeat("x", 50_000)+`"}`, "", nil); a.Result.IsError || len(v.calls()) != before+1 {
			t.Errorf("within the limit: %d %.300s", a.Status, a.Raw)
		}
	})
}
