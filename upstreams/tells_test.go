package upstreams

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
	"github.com/mcp-portal/mcp-portal/wire"
)

func TestListenOfACaller(t *testing.T) {
	up := upstreamtest.New(t, upstreamtest.Options{Era: upstreamtest.Modern, Handle: func(c *upstreamtest.Call) bool {
		if c.Method != methodListen || !strings.Contains(string(c.Params), "mem://x") {
			return false
		}
		for range 3 {
			time.Sleep(100 * time.Millisecond) // beyond the idle deadline in all
		}
		c.Notify("notifications/resources/updated", `{"uri":"mem://x"}`)
		c.Result(`{"resultType":"complete"}`)
		return true
	}})
	var mine, global atomic.Int32
	r := start(t, one(config.Server{URL: up.URL, CallTimeout: 200 * time.Millisecond}), func(o *Options) {
		o.OnNotification = func(string, string, string, string, json.RawMessage) { global.Add(1) }
	})
	r.ready()
	r.must(&Call{Method: methodListen, Params: json.RawMessage(`{"notifications":{"resourceSubscriptions":["mem://x"]}}`), User: "ann",
		Notify: func(method string, _ json.RawMessage) {
			if method == "notifications/resources/updated" {
				mine.Add(1)
			}
		}})
	if mine.Load() != 1 || global.Load() != 0 {
		t.Errorf("%d notices to the caller, %d to everybody", mine.Load(), global.Load())
	}
}

func TestNotificationsOfNoCall(t *testing.T) {
	up := upstreamtest.New(t, upstreamtest.Options{})
	up.On("touch", func(c *upstreamtest.Call) {
		c.Notify("notifications/resources/updated", `{"uri":"mem://x"}`)
		c.Notify("notifications/message", `{"level":"info","data":1.10}`)
		c.Text("ok")
	})
	got := make(chan string, 10)
	r := start(t, one(at(up)), func(o *Options) {
		o.OnNotification = func(server, user, session, method string, p json.RawMessage) {
			got <- strings.Join([]string{server, user, session, method, string(p)}, " ")
		}
	})
	r.ready()
	var log []string
	c := tool("touch", "")
	c.Notify = func(method string, p json.RawMessage) { log = append(log, method+" "+string(p)) }
	r.must(c)
	if g := <-got; g != `up ann s1 notifications/resources/updated {"uri":"mem://x"}` {
		t.Errorf("%s", g)
	}
	if strings.Join(log, "|") != `notifications/message {"level":"info","data":1.10}` {
		t.Errorf("%q", log)
	}
}

func TestCapabilitiesDecideWhatIsListed(t *testing.T) {
	for _, era := range eras {
		t.Run(era.String(), func(t *testing.T) {
			up := upstreamtest.New(t, upstreamtest.Options{Era: era, Handle: func(c *upstreamtest.Call) bool {
				asks := strings.Contains(string(wire.Meta(c.Params, wire.MetaClientCapabilities)), "elicitation")
				if era == upstreamtest.Legacy {
					// The session of the catalogue is the first.
					asks = c.Session == "session-1"
				}
				if c.Method != "tools/list" {
					return false
				}
				if asks {
					c.Result(`{"tools":[{"name":"asking"}]}`)
				} else {
					c.Result(`{"tools":[]}`)
				}
				return true
			}})
			r := start(t, one(at(up)), nil)
			r.ready()
			if got := names(r.published("up")[0].Tools); got != "asking" {
				t.Errorf("listed %q", got)
			}
			for _, q := range up.Requests() {
				if q.Method == "initialize" && !strings.Contains(string(q.Params), `"elicitation":{"form":{}`) {
					t.Errorf("%s", q.Params)
				}
			}
		})
	}
}

func TestServerThatAsksAtOnce(t *testing.T) {
	answers := make(chan string, 4)
	up := upstreamtest.New(t, upstreamtest.Options{})
	up.OnStream(func(session string) { // as soon as the session's own stream is open
		go func() {
			m, err := up.AskSession(session, "roots/list", `{}`)
			if err != nil {
				answers <- session + " " + err.Error()
				return
			}
			answers <- session + " " + string(m.Bytes())
		}()
	})
	r := start(t, one(at(up)), nil)
	r.ready()
	if got := <-answers; !strings.Contains(got, "session-1") || !strings.Contains(got, "-32601") { // nobody's session
		t.Errorf("%s", got)
	}
	hold := make(chan struct{})
	up.On("hold", func(c *upstreamtest.Call) { <-hold; c.Text("ok") })
	c := tool("hold", "")
	c.Ask = func(_ context.Context, method string, _ json.RawMessage) (json.RawMessage, *wire.Error) {
		return json.RawMessage(`{"roots":[{"uri":"file:///x"}]}`), nil
	}
	done := make(chan error, 1)
	go func() { _, err := r.do(c); done <- err }()
	if got := <-answers; !strings.Contains(got, "file:///x") {
		t.Errorf("%s", got)
	}
	close(hold)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		uri, whole string
		want       bool
	}{
		{"mem://a", "mem://a", true}, {"mem://a/b", "mem://a", true}, {"mem://a?x", "mem://a", true}, {"mem://a#x", "mem://a", true},
		{"mem://a/b", "mem://a/", true}, {"mem://ab", "mem://a", false}, {"mem://a", "mem://a/b", false}, {"mem://b", "mem://a", false}, {"", "mem://a", false},
	} {
		if got := within(c.uri, c.whole); got != c.want {
			t.Errorf("%q within %q: %v", c.uri, c.whole, got)
		}
	}
}
