package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// modes are the queries of all modes.
var modes = []string{"", "?optimize_context=minimize_tools", "?optimize_context=search_and_execute", "?codemode=code", "?codemode=search_and_execute"}

// The portal says itself that its lists change, in every mode, whatever its
// servers say: clients that only listen then would miss a server added later.
func TestB004_ListChangedIsAlwaysDeclared(t *testing.T) {
	quiet := upstreamtest.Options{Caps: `{"tools":{"listChanged":false}}`, NoGET: true, Tools: nil}
	first, second := upstreamtest.New(t, quiet), upstreamtest.New(t, quiet)
	one := "servers:\n  a:\n    url: " + first.URL + "\n"
	p := start(t, one, nil)
	type waiting struct {
		name string
		feed *feed
	}
	var all []waiting
	for _, query := range modes {
		resp, body := p.post(query, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"x","version":"1"},"capabilities":{}}}`, nil)
		if !strings.Contains(body, `"tools":{"listChanged":true}`) {
			t.Errorf("initialize with %q: %d %s", query, resp.StatusCode, body)
		}
		if a := p.client(modern, query, noCaps, nil).do("server/discover", "", nil); !strings.Contains(a.Raw, `"tools":{"listChanged":true}`) {
			t.Errorf("server/discover with %q: %s", query, a.Raw)
		}
		if strings.Contains(query, "codemode=code") {
			continue // its one tool names no server
		}
		for _, e := range []era{legacy, modern} {
			c := p.client(e, query, noCaps, nil)
			f := c.feed(`{"toolsListChanged":true}`)
			if e == modern {
				f.wait(1, "notifications/subscriptions/acknowledged")
			} else {
				p.until("the stream is open", func() bool { return f.opened() })
			}
			all = append(all, waiting{fmt.Sprintf("%s %q", e, query), f})
		}
	}
	p.reload(one + "  b:\n    url: " + second.URL + "\n")
	for _, w := range all {
		w.feed.wait(1, "notifications/tools/list_changed")
	}
}

// A session is one for POST, GET and DELETE, in every mode, also after the
// configuration was read again.
func TestB023_OneSessionForEveryVerb(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v), nil)
	clients := map[string]*client{}
	for _, query := range modes {
		clients[query] = p.client(legacy, query, noCaps, nil)
	}
	check := func(when string) {
		t.Helper()
		for query, c := range clients {
			if a := c.do("tools/list", "", nil); a.Status != http.StatusOK || a.Error != nil {
				t.Errorf("%s, POST with %q: %d %s", when, query, a.Status, a.Raw)
			}
			f := c.feed("") // fails the test unless it is a stream
			p.until("the stream is open", func() bool { return f.opened() })
			f.close()
		}
	}
	check("at first")
	p.reload("limits: {call_timeout: 50s}\n" + trusted(v))
	check("after a reload")
	for query, c := range clients {
		if status := c.end(nil); status/100 != 2 {
			t.Errorf("DELETE with %q: %d", query, status)
		}
		if a := c.do("tools/list", "", nil); a.Status != http.StatusNotFound {
			t.Errorf("after DELETE with %q: %d", query, a.Status)
		}
	}
}

// Whatever the tool that switches servers is given, at once and in any state,
// is answered, and the portal lives on.
func TestB046_OddTogglesAreAnswered(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v), nil)
	odd := []string{`{}`, `null`, `[]`, `{"server_id":null,"action":"untoggle"}`, `{"server_id":"nope","action":"toggle"}`, `{"server_id":"","action":"toggle"}`,
		`{"server_id":"s"}`, `{"action":"toggle"}`, `{"server_id":"s","action":"explode"}`, `{"server_id":7,"action":true}`, `{"server_id":{"a":1},"action":[]}`,
		`{"server_id":"S","action":"toggle"}`, `{"server_id":"` + strings.Repeat("x", 10_000) + `","action":"toggle"}`}
	eachEra(t, func(t *testing.T, e era) {
		c := p.client(e, "", noCaps, nil)
		var all sync.WaitGroup
		for range 4 {
			for _, args := range odd {
				all.Go(func() {
					a := c.call("portal_toggle_single_server", args, "", nil)
					if a.Err != nil || a.Error == nil && !a.Result.IsError || len(a.text()) > 2000 {
						t.Errorf("%.80s: %d %.300s %v", args, a.Status, a.Raw, a.Err)
					}
				})
			}
			for _, action := range []string{"toggle", "untoggle"} {
				all.Go(func() {
					if a := c.call("portal_toggle_single_server", `{"server_id":"s","action":"`+action+`"}`, "", nil); a.Err != nil || a.Error != nil {
						t.Errorf("%s at the same time: %s %v", action, a.Raw, a.Err)
					}
				})
			}
		}
		all.Wait()
		if a := c.call("portal_toggle_single_server", `{"server_id":"s","action":"toggle"}`, "", nil); a.Result.IsError || a.Error != nil {
			t.Errorf("toggled last: %s", a.Raw)
		}
		if a := c.call("s_look", `{"id":"1"}`, "", nil); !strings.HasPrefix(a.text(), "ran look") {
			t.Errorf("the portal goes on: %s", a.Raw)
		}
	})
}

// panicking is a store with a bug in it: approvals cannot be made.
type panicking struct {
	store.Store
	times atomic.Int32
}

func (p *panicking) Create(ctx context.Context, key string, value []byte, ttl time.Duration) (bool, error) {
	if strings.HasPrefix(key, "approval") {
		p.times.Add(1)
		panic("a bug")
	}
	return p.Store.Create(ctx, key, value, ttl)
}

// A bug that shows in one request, or in one call of a script, costs that one.
func TestB046_PanicsAreContained(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	bad := &panicking{}
	p := start(t, trusted(v), func(s store.Store) store.Store { bad.Store = s; return bad })
	eachEra(t, func(t *testing.T, e era) {
		all, two := p.client(e, "", formCaps, nil), p.client(e, twoTools, formCaps, nil)
		before := bad.times.Load()
		for way, a := range map[string]answer{
			"direct":  all.call("s_kill", `{"id":"1"}`, "", always),
			"by name": two.call("portal_execute", `{"tool":"s_kill","arguments":{"id":"1"}}`, "", always),
			"in code": two.code("return await s.kill({id:'1'})", "", always),
		} {
			if !strings.Contains(a.text(), "error inside the portal") || !strings.Contains(a.Raw, `"isError":true`) {
				t.Errorf("%s: %d %s %v", way, a.Status, a.Raw, a.Err)
			}
		}
		if bad.times.Load() == before {
			t.Fatal("the bug did not show")
		}
		if a := all.call("s_look", `{"id":"1"}`, "", nil); !strings.HasPrefix(a.text(), "ran look") {
			t.Errorf("the portal goes on: %s", a.Raw)
		}
	})
	if !strings.Contains(p.log.String(), "a bug") {
		t.Error("the log has nothing of it")
	}
}
