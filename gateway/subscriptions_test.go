package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/store/storetest"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
	"github.com/mcp-portal/mcp-portal/wire"
)

// feed is an open stream for what belongs to no call: GET of a 2025 session, or
// subscriptions/listen.
type feed struct {
	t     testing.TB
	close func()

	mu    sync.Mutex
	got   []string
	began bool // something came, a comment at least
	end   bool
}

func (f *feed) opened() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.began
}

// feed opens the stream; filter is what a 2026-07-28 client asks for.
func (c *client) feed(filter string) *feed {
	c.p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f := &feed{t: c.p.t, close: cancel}
	c.p.t.Cleanup(cancel)
	var resp *http.Response
	var err error
	if c.era == legacy {
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, c.p.url+"/mcp"+c.query, nil)
		req.Header.Set("Accept", "text/event-stream")
		for k, v := range c.headers("", "") {
			req.Header.Set(k, v)
		}
		resp, err = http.DefaultClient.Do(req)
	} else {
		body := `{"jsonrpc":"2.0","id":"listen-1","method":"subscriptions/listen","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},"io.modelcontextprotocol/clientCapabilities":` + c.caps + `},"notifications":` + filter + `}}`
		resp, err = c.p.open(ctx, c.query, body, c.headers("subscriptions/listen", ""))
	}
	c.p.must(err)
	if ct := resp.Header.Get("Content-Type"); ct != "text/event-stream" {
		c.p.t.Fatalf("the stream is %d %s", resp.StatusCode, ct)
	}
	go func() {
		defer resp.Body.Close()
		sc := bufio.NewScanner(resp.Body)
		sc.Buffer(nil, 16<<20)
		for sc.Scan() {
			f.mu.Lock()
			f.began = true
			f.mu.Unlock()
			if data, ok := strings.CutPrefix(sc.Text(), "data: "); ok {
				f.mu.Lock()
				f.got = append(f.got, data)
				f.mu.Unlock()
			}
		}
		f.mu.Lock()
		f.end = true
		f.mu.Unlock()
	}()
	return f
}

func (f *feed) all() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.got)
}

// count is how many messages have all of the parts in them.
func (f *feed) count(parts ...string) int {
	n := 0
	for _, m := range f.all() {
		ok := true
		for _, p := range parts {
			ok = ok && strings.Contains(m, p)
		}
		if ok {
			n++
		}
	}
	return n
}

// wait waits until so many messages with the parts have come.
func (f *feed) wait(n int, parts ...string) {
	f.t.Helper()
	for end := time.Now().Add(patience); f.count(parts...) < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatalf("waited in vain for %d messages with %q; got %q", n, parts, f.all())
		}
	}
}

// subscribe opens a stream that hears of resources.
func (c *client) subscribe(uris ...string) *feed {
	c.p.t.Helper()
	f := c.feed(`{"toolsListChanged":true,"resourceSubscriptions":` + string(wire.Encode(uris)) + `}`)
	if c.era == modern {
		f.wait(1, "notifications/subscriptions/acknowledged")
		return f
	}
	for _, uri := range uris {
		if got := c.do("resources/subscribe", `"uri":`+string(wire.Quote(uri)), nil); got.Error != nil {
			c.p.t.Fatalf("subscribe to %s: %s", uri, got.Raw)
		}
	}
	return f
}

// Updates of a resource reach who subscribed to it, under the address they
// used, in both eras before servers of both, over every transport.
func TestPairsSubscriptions(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		c, other := p.client(p.era, "", noCaps, nil), p.client(p.era, "", noCaps, nil)
		uri, quiet := "portal+"+p.id+":mem://t/x", "portal+"+p.id+":mem://t/y"
		f, silent := c.subscribe(uri), other.subscribe(quiet)
		touch := func(by *client, own string) {
			if got := by.call(p.id+"_touch", `{"uri":"`+own+`"}`, "", nil); got.text() != "touched\n" {
				t.Fatalf("%s", got.Raw)
			}
		}
		touch(c, "mem://t/x")
		f.wait(1, "notifications/resources/updated", `"uri":"`+uri+`"`, `"vendor":1.10`)
		if p.era == modern {
			f.wait(1, "resources/updated", `"_meta":{"io.modelcontextprotocol/subscriptionId":"listen-1"}`)
			f.wait(1, "acknowledged", `"resourceSubscriptions":["`+uri+`"]`)
		}
		if n := silent.count("resources/updated"); n != 0 {
			t.Errorf("one who subscribed to something else got %q", silent.all())
		}
		// The end: no update comes any more, and the server has heard of it.
		if p.era == legacy {
			if got := c.do("resources/unsubscribe", `"uri":"`+uri+`"`, nil); got.Error != nil {
				t.Fatalf("%s", got.Raw)
			}
		} else {
			f.close()
		}
		p.until("the server hears that the subscription ended", func() bool {
			return strings.Contains(c.call(p.id+"_seen", `{}`, "", nil).text(), "unsubscribe mem://t/x")
		})
		before := f.count("resources/updated")
		touch(c, "mem://t/x")
		touch(other, "mem://t/y") // a sign for when the first would have come
		silent.wait(1, "resources/updated", quiet)
		if n := f.count("resources/updated"); n != before {
			t.Errorf("updates after the end: %q", f.all())
		}
	})
}

// A subscription that its server, or nobody, takes is refused in the words of
// the era.
func TestSubscriptionsThatCannotBe(t *testing.T) {
	p, peers := full(t, "")
	for _, s := range peers {
		refused := "portal+" + s.id + ":mem://t/refused"
		c := p.client(legacy, "", noCaps, nil)
		for _, open := range []bool{false, true} {
			if open {
				c.feed("")
			}
			if got := c.do("resources/subscribe", `"uri":"`+refused+`"`, nil); got.Error == nil {
				t.Errorf("%s, stream open: %v: %s", s.id, open, got.Raw)
			}
			if got := c.do("resources/subscribe", `"uri":"mem://nowhere"`, nil); got.Error == nil || got.Error.Code != wire.CodeResourceNotFound {
				t.Errorf("%s, unknown: %s", s.id, got.Raw)
			}
		}
		f := p.client(modern, "", noCaps, nil).subscribe(refused, "portal+"+s.id+":mem://t/ok", "mem://nowhere")
		if f.count("acknowledged", `"resourceSubscriptions":["portal+`+s.id+`:mem://t/ok"]`) != 1 {
			t.Errorf("%s: %q", s.id, f.all())
		}
	}
	if got := p.client(modern, "", noCaps, nil).do("resources/subscribe", `"uri":"mem://t/x"`, nil); got.Status != 404 || got.Error == nil || got.Error.Code != wire.CodeMethodNotFound {
		t.Errorf("resources/subscribe in 2026: %d %s", got.Status, got.Raw)
	}
}

// A server that forgets its sessions, or a stream that is opened anew, does not
// end a subscription.
func TestSubscriptionsOutliveConnections(t *testing.T) {
	h := upstreamtest.NewFullHTTP(t, false)
	p := start(t, "servers: {h: {url: '"+h.URL+"', trust_annotations: true}}\n", nil)
	c := p.client(legacy, "", noCaps, nil)
	f := c.subscribe("mem://a")
	h.Forget()
	subscribes := func() int {
		n := 0
		for _, s := range h.Seen() {
			if s == "subscribe mem://a" {
				n++
			}
		}
		return n
	}
	p.until("the portal has subscribed again", func() bool { return subscribes() == 2 })
	f.wait(1, "resources/updated", "mem://a") // something may have been missed meanwhile
	before := f.count("resources/updated")
	p.until("updates come again", func() bool {
		c.call("h_touch", `{"uri":"mem://a"}`, "", nil)
		return f.count("resources/updated") > before
	})
	f.close()
	p.until("the subscription ends with the stream", func() bool { return slices.Contains(h.Seen(), "unsubscribe mem://a") })
	again := c.feed("")
	p.until("updates come on the new stream", func() bool {
		c.call("h_touch", `{"uri":"mem://a"}`, "", nil)
		return again.count("resources/updated", "mem://a") > 0
	})
}

// The stream of a session may be on another replica than the one that takes
// its requests.
func TestSubscriptionsOnAnyReplica(t *testing.T) {
	redis := storetest.StartRedis(t)
	h := upstreamtest.NewFullHTTP(t, false)
	yaml := "store: {redis: " + redis.URL() + "}\nservers: {h: {url: '" + h.URL + "', trust_annotations: true}}\n"
	a, b := start(t, yaml, nil), start(t, yaml, nil)
	ca := a.client(legacy, "", noCaps, nil)
	cb := &client{p: b, era: legacy, session: ca.session}
	f := cb.feed("")
	if got := ca.do("resources/subscribe", `"uri":"mem://a"`, nil); got.Error != nil {
		t.Fatalf("%s", got.Raw)
	}
	b.until("updates reach the other replica's stream", func() bool {
		ca.call("h_touch", `{"uri":"mem://a"}`, "", nil)
		return f.count("resources/updated", "mem://a") > 0
	})
	// The replica with the stream goes: the session's next stream, here, has it.
	b.stop()
	again := ca.feed("")
	a.until("updates reach the new stream", func() bool {
		ca.call("h_touch", `{"uri":"mem://a"}`, "", nil)
		return again.count("resources/updated", "mem://a") > 0
	})
	if got := ca.do("resources/unsubscribe", `"uri":"mem://a"`, nil); got.Error != nil {
		t.Fatalf("%s", got.Raw)
	}
}

// A server that the user switches off, or may not use any more, is not heard
// of.
func TestSubscriptionsFollowTheView(t *testing.T) {
	eachEra(t, func(t *testing.T, e era) {
		h := upstreamtest.NewFullHTTP(t, false)
		yaml := "servers: {h: {url: '" + h.URL + "', trust_annotations: true}}\n"
		p := start(t, yaml, nil)
		c := p.client(e, "", noCaps, nil)
		f := c.subscribe("mem://a")
		c.call("h_touch", `{"uri":"mem://a"}`, "", nil)
		f.wait(1, "resources/updated")
		if got := c.call("portal_toggle_single_server", `{"server_id":"h","action":"untoggle"}`, "", nil); got.Result.IsError {
			t.Fatalf("%s", got.Raw)
		}
		p.until("the subscription ends", func() bool { return slices.Contains(h.Seen(), "unsubscribe mem://a") })
		c.call("portal_toggle_single_server", `{"server_id":"h","action":"toggle"}`, "", nil)
		p.until("and comes back", func() bool {
			c.call("h_touch", `{"uri":"mem://a"}`, "", nil)
			return f.count("resources/updated") > 1
		})
	})
}

// A reload that closes a server by a rule, or takes it from the user, ends the
// subscriptions of streams that are open; the way back begins them again.
func TestReloadEndsSubscriptions(t *testing.T) {
	for _, change := range []string{"a rule closes it", "its groups", "removed"} {
		t.Run(change, func(t *testing.T) {
			eachEra(t, func(t *testing.T, e era) {
				h := upstreamtest.NewFullHTTP(t, false)
				server := func(more string) string {
					return "servers: {h: {url: '" + h.URL + "', trust_annotations: true" + more + "}}\n"
				}
				after := map[string]string{
					"a rule closes it": server("") + "guard: {rules: [{servers: [h], class: [read], action: deny}]}\n",
					"its groups":       server(", groups: [others]"),
					"removed":          "servers: {}\n",
				}[change]
				p := start(t, server(""), nil)
				c := p.client(e, "", noCaps, nil)
				f := c.subscribe("mem://a")
				c.call("h_touch", `{"uri":"mem://a"}`, "", nil)
				f.wait(1, "resources/updated")
				p.reload(after)
				if change != "removed" { // then the session at the server ends as well
					p.until("the subscription ends", func() bool { return slices.Contains(h.Seen(), "unsubscribe mem://a") })
				}
				n := f.count("resources/updated")
				p.reload(server(""))
				p.until("and comes back", func() bool {
					c.call("h_touch", `{"uri":"mem://a"}`, "", nil)
					return f.count("resources/updated") > n
				})
			})
		})
	}
}

// More subscriptions than a stream may have are refused.
func TestSubscriptionsAreBounded(t *testing.T) {
	h := upstreamtest.NewFullHTTP(t, false)
	p := start(t, "servers: {h: {url: '"+h.URL+"'}}\n", nil)
	c := p.client(legacy, "", noCaps, nil)
	for i := range 200 {
		if got := c.do("resources/subscribe", fmt.Sprintf(`"uri":"mem://t/%d"`, i), nil); got.Error != nil {
			t.Fatalf("%d: %s", i, got.Raw)
		}
	}
	if got := c.do("resources/subscribe", `"uri":"mem://t/more"`, nil); got.Error == nil || !strings.Contains(got.Error.Message, "200 subscriptions") {
		t.Errorf("%s", got.Raw)
	}
	var many []string
	for i := range 201 {
		many = append(many, fmt.Sprintf("mem://t/%d", i))
	}
	m := p.client(modern, "", noCaps, nil)
	if got := m.do("subscriptions/listen", `"notifications":{"resourceSubscriptions":`+string(wire.Encode(many))+`}`, nil); got.Status != 400 || got.Error == nil {
		t.Errorf("%d %s", got.Status, got.Raw)
	}
	var caps struct {
		Result struct {
			Capabilities struct {
				Resources struct {
					Subscribe bool `json:"subscribe"`
				} `json:"resources"`
			} `json:"capabilities"`
		} `json:"result"`
	}
	if got := m.do("server/discover", "", nil); json.Unmarshal([]byte(got.Raw), &caps) != nil || !caps.Result.Capabilities.Resources.Subscribe {
		t.Errorf("%s", got.Raw)
	}
}
