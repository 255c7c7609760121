package gateway_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// Code that changes things one after another asks for each by itself. Who goes
// on with it is told of the next call, and, from the second on, how code has
// them decided together.
func TestCodeThatAsksOneByOne(t *testing.T) {
	eachEra(t, func(t *testing.T, e era) {
		v := serve(t, upstreamtest.Legacy, nil)
		p := start(t, trusted(v), nil)
		c := p.client(e, twoTools, noCaps, nil)
		const hint = "start such calls together with Promise.all"
		got := c.code("for (const id of ['1', '2', '3']) await s.kill({id}); return 'done'", "", nil)
		run := runID.FindString(got.Raw)
		for n := 1; n <= 3; n++ {
			ids := got.approvals()
			if len(ids) != 1 || !strings.Contains(got.text(), fmt.Sprintf(`{"id":"%d"}`, n)) {
				t.Fatalf("call %d: %s", n, got.Raw)
			}
			if strings.Contains(got.text(), hint) != (n > 1) {
				t.Errorf("call %d: %s", n, got.text())
			}
			p.approve(ids[0])
			got = c.resume(run, "", nil)
		}
		if !strings.HasPrefix(got.text(), "done") || len(v.calls()) != 3 {
			t.Errorf("%d calls: %s", len(v.calls()), got.Raw)
		}
	})
}

// Who asks for an approval sees all arguments however long one is, whether
// another run waits with an equal call, and when a person said no.
func TestWhatIsSaidOfWaitingCalls(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v), nil)
	c := p.client(modern, twoTools, noCaps, nil)
	code := `await s.kill({body: "` + strings.Repeat("ü", 500) + `", id: "the title", n: 7})`
	first := c.code(code, "", nil)
	if got := first.text(); !strings.Contains(got, `… (500 characters)","id":"the title","n":7}`) {
		t.Errorf("%s", got)
	}
	run := runID.FindString(first.Raw)
	second := c.code(code, "", nil)
	// Of two calls of such a run, one page decides, whoever asked first.
	c.code(`await s.kill({id: "b"})`, "", nil)
	third := c.code(`await Promise.all([s.kill({id: "b"}), s.kill({id: "c"})])`, "", nil)
	page := regexp.MustCompile(`/approvals/run/run_[A-Z2-7]+`).FindString(third.Raw)
	if status, body := p.visit(p.browser(), http.MethodGet, p.url+page, nil); page == "" || status != http.StatusOK || strings.Count(body, `name="shown"`) != 2 {
		t.Errorf("%s: %d %.2000s\n%s", page, status, body, third.Raw)
	}
	if want := run + " waits with an equal call"; strings.Contains(first.text(), "equal call") || !strings.Contains(second.text(), want) {
		t.Errorf("%s\n%s, want %q", first.text(), second.text(), want)
	}
	id := first.approvals()[0]
	if resp, body := p.submit("/approvals/"+id, "/approvals/"+id, "decision=deny"); resp.StatusCode != http.StatusSeeOther {
		t.Fatalf("%d %.300s", resp.StatusCode, body)
	}
	if got := c.code(code, "", nil).text(); !regexp.MustCompile(`said no to kill on server s at \d\d:\d\d UTC`).MatchString(got) {
		t.Errorf("%s", got)
	}
}
