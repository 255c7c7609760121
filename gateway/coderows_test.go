package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// arrived counts the calls of a tool that reached the server.
func (v *victim) arrived(tool string) int {
	n := 0
	for _, c := range v.calls() {
		if strings.Contains(c, `"`+tool+`"`) {
			n++
		}
	}
	return n
}

// decide answers an approval on its page and returns the status and the page.
func (p *portal) decide(id, decision string) (int, string) {
	p.t.Helper()
	resp, body := p.submit("/approvals/"+id, "/approvals/"+id, "decision="+decision)
	return resp.StatusCode, body
}

// TestRowsOfPausedRuns is rows 45 to 52 of the table "Code mode" of
// docs/cases.md, as a client meets them.
func TestRowsOfPausedRuns(t *testing.T) {
	paused := func(t *testing.T, got answer) (run, approval string) {
		t.Helper()
		run = runID.FindString(got.Raw)
		if ids := got.approvals(); run == "" || len(ids) != 1 {
			t.Fatalf("it did not pause: %s", got.Raw)
		} else {
			approval = ids[0]
		}
		return run, approval
	}

	t.Run("45 read then gated write then read", func(t *testing.T) {
		v := serve(t, upstreamtest.Legacy, nil)
		p := start(t, trusted(v), nil)
		c := p.client(modern, twoTools, noCaps, nil)
		first := c.code("const a = await s.look({id: 'one'}); const b = await s.kill({id: 'it'}); const c = await s.look({id: 'two'}); return [a, b, c]", "", nil)
		run, id := paused(t, first)
		if !strings.Contains(first.text(), `{"id":"it"}`) || v.arrived("look") != 1 || v.arrived("kill") != 0 {
			t.Errorf("paused: %s %q", first.text(), v.calls())
		}
		p.approve(id)
		got := c.resume(run, "", nil)
		if head(got) != `["ran look {\"id\":\"one\"}","ran kill {\"id\":\"it\"}","ran look {\"id\":\"two\"}"]` {
			t.Errorf("%s", got.Raw)
		}
		if v.arrived("look") != 2 || v.arrived("kill") != 1 {
			t.Errorf("%q", v.calls())
		}
	})

	t.Run("46 the code catches what keeps it from going on", func(t *testing.T) {
		v := serve(t, upstreamtest.Legacy, nil)
		p := start(t, trusted(v), nil)
		c := p.client(modern, twoTools, noCaps, nil)
		// Waiting is nothing that code can catch; a no is, and only what the code
		// asks for then is judged, by itself.
		first := c.code("try { await s.kill({id: 'a'}) } catch (e) { console.log(e.code) }\ntry { await s.kill({id: 'b'}) } catch (e) { console.log(e.code) }\nreturn 'went on'", "", nil)
		run, id := paused(t, first)
		if n := v.arrived("kill"); n != 0 {
			t.Fatalf("%d calls arrived", n)
		}
		p.decide(id, "deny")
		second := c.resume(run, "", nil)
		run, other := paused(t, second)
		if other == id || !strings.Contains(second.text(), `{"id":"b"}`) {
			t.Errorf("%s", second.text())
		}
		p.decide(other, "deny")
		got := c.resume(run, "", nil)
		if head(got) != "went on" || strings.Count(got.text(), "denied") < 2 || v.arrived("kill") != 0 {
			t.Errorf("%s %q", got.text(), v.calls())
		}
	})

	t.Run("47 a decision is final", func(t *testing.T) {
		v := serve(t, upstreamtest.Legacy, nil)
		p := start(t, trusted(v), nil)
		c := p.client(modern, twoTools, noCaps, nil)
		run, id := paused(t, c.code("return await s.kill({id: 'a'})", "", nil))
		if status, body := p.decide(id, "deny"); status != http.StatusSeeOther {
			t.Fatalf("deny: %d %.300s", status, body)
		}
		// Its page has no form any more; that of another approval does.
		_, other := paused(t, c.code("return await s.kill({id: 'other'})", "", nil))
		if resp, body := p.submit("/approvals/"+other, "/approvals/"+id, "decision=approve"); resp.StatusCode == http.StatusSeeOther || !strings.Contains(body, "already answered") {
			t.Errorf("approve after deny: %d %.300s", resp.StatusCode, body)
		}
		if got := c.resume(run, "", nil); !got.Result.IsError || !strings.Contains(got.text(), "Denied") || v.arrived("kill") != 0 {
			t.Errorf("%s %q", got.text(), v.calls())
		}
	})

	t.Run("49 the server is gone when the run goes on", func(t *testing.T) {
		v, other := serve(t, upstreamtest.Legacy, nil), serve(t, upstreamtest.Legacy, nil)
		p := start(t, trusted(v), nil)
		c := p.client(modern, twoTools, noCaps, nil)
		run, id := paused(t, c.code("await s.look({}); return await s.kill({id: 'a'})", "", nil))
		p.approve(id)
		p.reload("servers:\n  t:\n    url: " + other.URL + "\n")
		got := c.resume(run, "", nil)
		if !got.Result.IsError || v.arrived("kill") != 0 || other.arrived("kill") != 0 || !strings.Contains(got.text(), "s_kill") {
			t.Errorf("%s %q", got.text(), v.calls())
		}
	})

	t.Run("52 runs that end do not push out one that waits", func(t *testing.T) {
		v := serve(t, upstreamtest.Legacy, nil)
		p := start(t, trusted(v), nil)
		c := p.client(modern, twoTools, noCaps, nil)
		run, id := paused(t, c.code("return await s.kill({id: 'old'})", "", nil))
		for i := range 51 {
			if got := c.code(fmt.Sprintf("return (await s.look({id: '%d'})).length > 0", i), "", nil); head(got) != "true" {
				t.Fatalf("%s", got.Raw)
			}
		}
		p.approve(id)
		if got := c.resume(run, "", nil); !strings.Contains(got.text(), `ran kill {"id":"old"}`) {
			t.Errorf("%s", got.text())
		}
	})
}
