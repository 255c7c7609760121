package gateway_test

import (
	"fmt"
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
