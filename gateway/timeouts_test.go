package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// call_timeout is an idle deadline: progress resets it. call_ceiling is a hard
// one: nothing does. Both are of one server or of all, and hold for calls of
// both eras, directly and from code; what ran into one has an unknown outcome.
func TestTimeoutsOfCalls(t *testing.T) {
	for _, up := range []upstreamtest.Era{upstreamtest.Legacy, upstreamtest.Modern} {
		t.Run("server "+up.String(), func(t *testing.T) {
			t.Parallel()
			v := serve(t, up, func(c *upstreamtest.Call) bool {
				if c.Method != "tools/call" {
					return false
				}
				if c.Token() == nil {
					t.Error("the portal asks for no progress")
				}
				for i, n := 0, map[string]int{"lively": 25, "chatty": 1 << 20}[string(c.Arguments().Get("id")[1:7])]; i < n; i++ {
					c.Progress(i)
					select {
					case <-time.After(200 * time.Millisecond):
					case <-c.Context().Done():
						return true
					}
				}
				if strings.Contains(string(c.Params), "silent") {
					<-c.Context().Done()
					return true
				}
				c.Text("in the end")
				return true
			})
			// The own limits of a server count, not those of all.
			p := start(t, "limits: {call_timeout: 100ms, call_ceiling: 200ms}\n"+trusted(v)+"    call_timeout: 3s\n    call_ceiling: 9s\n", nil)
			eachEra(t, func(t *testing.T, e era) {
				t.Parallel()
				c := p.client(e, "", noCaps, nil)
				type outcome struct {
					id   string
					a    answer
					took time.Duration
				}
				got := make(chan outcome, 3)
				for _, id := range []string{"lively", "silent", "chatty"} {
					go func() {
						begin := time.Now()
						a := c.call("s_look", fmt.Sprintf(`{"id":%q}`, id), "", nil)
						got <- outcome{id, a, time.Since(begin)}
					}()
				}
				for range 3 {
					o := <-got
					text := o.a.Raw
					switch o.id {
					case "lively": // longer than the idle deadline
						if !strings.Contains(text, "in the end") || o.took < 4*time.Second {
							t.Errorf("a lively call after %v: %s", o.took, text)
						}
					case "silent":
						for _, want := range []string{"server s", "look", "no sign of life for 3s", "call_timeout", "unknown"} {
							if !strings.Contains(text, want) {
								t.Errorf("a silent call does not say %q: %s", want, text)
							}
						}
					case "chatty":
						for _, want := range []string{"server s", "look", "no answer within 9s", "call_ceiling", "unknown"} {
							if !strings.Contains(text, want) {
								t.Errorf("a chatty call does not say %q: %s", want, text)
							}
						}
					}
				}
			})
		})
	}
}
