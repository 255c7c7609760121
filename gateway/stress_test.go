package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// Everything at once, for the race detector; and no yes is lost, no call sent
// twice.
func TestEverythingAtOnce(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v), nil)
	stop := make(chan struct{})
	time.AfterFunc(3*time.Second, func() { close(stop) })
	var wg sync.WaitGroup
	loop := func(f func(i int)) {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					f(i)
				}
			}
		})
	}
	all, two := p.client(legacy, "", formCaps, nil), p.client(legacy, twoTools, formCaps, nil)
	page := p.client(modern, twoTools, noCaps, nil)
	ran := func(what string, a answer) {
		if !strings.Contains(a.text(), "ran ") {
			t.Errorf("%s: %.500s %v", what, a.Raw, a.Err)
		}
	}
	loop(func(i int) { ran("read", all.call("s_look", "{}", "", nil)) })
	loop(func(i int) { ran("write", all.call("s_kill", fmt.Sprintf(`{"id":"direct %d"}`, i), "", always)) })
	loop(func(i int) {
		ran("code", two.code(fmt.Sprintf("return await Promise.all([1,2,3,4].map(n => s.kill({id:'code %d '+n})))", i), "", always))
	})
	loop(func(i int) { // approved on the page while the resume already waits
		a := page.code(fmt.Sprintf("return await Promise.all([1,2,3,4].map(n => s.kill({id:'page %d '+n})))", i), "", nil)
		run := runID.FindString(a.Raw)
		var g sync.WaitGroup
		for _, id := range a.approvals() {
			g.Go(func() { p.approve(id) })
		}
		a = page.resume(run, "", nil)
		g.Wait()
		for range 4 { // calls that came after the pause was told
			if ids := a.approvals(); len(ids) > 0 {
				for _, id := range ids {
					p.approve(id)
				}
				a = page.resume(run, "", nil)
			}
		}
		ran("page", a)
	})
	loop(func(i int) {
		all.do("logging/setLevel", `"level":"info"`, nil)
		all.call("portal_toggle_single_server", `{"server_id":"s","action":"toggle"}`, "", nil)
	})
	base := p.cfg
	loop(func(i int) {
		next := *base
		next.Guard.AskTimeout = time.Duration(60+i%5) * time.Second
		if err := p.gateway.SetConfig(&next); err != nil {
			t.Error(err)
		}
		time.Sleep(20 * time.Millisecond)
	})
	loop(func(i int) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/mcp", nil)
		req.Header.Set("Accept", "text/event-stream")
		req.Header.Set("Mcp-Session-Id", all.session)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	})
	loop(func(i int) {
		if status := p.client(legacy, "", noCaps, nil).end(nil); status != http.StatusNoContent {
			t.Errorf("DELETE: %d", status)
		}
		if resp, _ := p.get("/status"); resp.StatusCode != 200 {
			t.Errorf("/status: %d", resp.StatusCode)
		}
		time.Sleep(5 * time.Millisecond)
	})
	wg.Wait()
	seen := map[string]int{}
	for _, c := range v.calls() {
		if strings.Contains(c, `"kill"`) {
			if seen[c]++; seen[c] > 1 {
				t.Errorf("sent twice: %s", c)
			}
		}
	}
	calls := len(v.calls())
	if len(seen) == 0 {
		t.Error("no write came through")
	}
	lines, _ := p.auditLines(func(l []map[string]any) bool {
		n := 0
		for _, m := range l {
			if m["capability"] == "look" || m["capability"] == "kill" {
				n++
			}
		}
		return n >= calls
	})
	used := map[any]bool{}
	for _, l := range lines {
		if l["capability"] != "kill" || l["status"] != "ok" {
			continue
		}
		if used[l["approval"]] || l["approval"] == nil {
			t.Errorf("a write without an approval of its own: %v", l)
		}
		used[l["approval"]] = true
	}
}
