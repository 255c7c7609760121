package gateway_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-portal/mcp-portal/auth/webhook"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// An approval is announced once when it is asked for and once when it is
// decided, signed and without the arguments, and whatever the receiver does, the
// call goes its way.
func TestApprovalsAreAnnounced(t *testing.T) {
	var mu sync.Mutex
	var got []map[string]any
	raw := ""
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var m map[string]any
		if err != nil || json.Unmarshal(body, &m) != nil || r.Header.Get(webhook.HeaderSignature) != webhook.Sign("0123456789abcdef", r.Header.Get(webhook.HeaderTimestamp), body) {
			t.Errorf("%v %s", r.Header, body)
		}
		mu.Lock()
		defer mu.Unlock()
		got, raw = append(got, m), raw+string(body)
	}))
	defer hook.Close()
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v)+"guard: {webhook: {url: '"+hook.URL+"/hooks/TOKEN', secret: 0123456789abcdef}}\n", nil)
	c := p.client(modern, "", noCaps, nil)
	ids := c.call("s_kill", `{"id":"the-argument"}`, "", nil).approvals()
	if len(ids) != 1 {
		t.Fatalf("%v", ids)
	}
	c.call("s_kill", `{"id":"the-argument"}`, "", nil) // the same question
	p.approve(ids[0])
	if a := c.call("s_kill", `{"id":"the-argument"}`, "", nil); !strings.HasPrefix(a.text(), "ran kill") {
		t.Fatalf("%s", a.Raw)
	}
	p.until("both messages arrived", func() bool { mu.Lock(); defer mu.Unlock(); return len(got) >= 2 })
	mu.Lock()
	defer mu.Unlock()
	if len(got) != 2 || got[0]["event"] != "approval.requested" || got[1]["event"] != "approval.decided" || got[1]["state"] != "approved" || got[0]["approval"] != ids[0] ||
		!strings.Contains(got[0]["text"].(string), p.url+"/approvals/"+ids[0]) || !strings.Contains(got[0]["text"].(string), "s/kill") {
		t.Errorf("%v", got)
	}
	if strings.Contains(raw, "the-argument") {
		t.Errorf("the message has the arguments: %s", raw)
	}
	if _, status := p.get("/status"); !strings.Contains(status, `"sent": 2`) || strings.Contains(status+p.log.String(), "TOKEN") {
		t.Errorf("%s", status)
	}
	// A receiver that is gone holds nothing up, and reload switches it off.
	hook.CloseClientConnections()
	p.reload(trusted(v) + "guard: {webhook: {url: 'http://127.0.0.1:1/', secret: 0123456789abcdef}}\n")
	if ids := c.call("s_kill", `{"id":"2"}`, "", nil).approvals(); len(ids) != 1 {
		t.Errorf("%v", ids)
	}
}
