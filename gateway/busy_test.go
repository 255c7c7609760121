package gateway_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// session_idle counts from the last request, and a session that waits for a call
// or has its stream open is in use.
func TestSessionInUseOutlivesTheIdleTime(t *testing.T) {
	entered, release := make(chan struct{}, 1), make(chan struct{})
	v := serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		entered <- struct{}{}
		<-release
		c.Text("at last")
		return true
	})
	p := start(t, "limits: {session_idle: 3s}\nservers:\n  s: {url: "+v.URL+", trust_annotations: true}\n", nil)
	caller, listener := p.client(legacy, "", noCaps, nil), p.client(legacy, "", noCaps, nil)
	f := listener.feed("")
	got := make(chan answer, 1)
	go func() { got <- caller.call("s_look", `{}`, "", nil) }()
	<-entered
	p.client(legacy, "", noCaps, nil) // does nothing more
	sessions := func() (n int) {
		_, body := p.get("/status")
		var s struct{ Sessions int }
		p.must(json.Unmarshal([]byte(body), &s))
		return s.Sessions
	}
	p.until("the idle session is over", func() bool { return sessions() <= 2 })
	time.Sleep(3 * time.Second) // and those in use have had every chance to end
	if n := sessions(); n != 2 {
		t.Errorf("%d sessions, want the two in use", n)
	}
	close(release)
	if a := <-got; said(a) != "at last" {
		t.Errorf("%+v", a)
	}
	f.close()
	p.until("all sessions are over", func() bool { return sessions() == 0 })
}
