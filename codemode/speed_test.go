package codemode

import (
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
)

// What costs what, in proportion: the least processor time of a worker in many
// runs against the least of another kind in the same process, with room for
// at least twice of what is usual. Neither the machine nor its load decides.
func TestCostsStayInProportion(t *testing.T) {
	p := testPool(t, func(c *config.Code) { c.MaxCalls, c.CPUTime, c.WallTime = 500, time.Minute, 5*time.Minute })
	if _, ok := cpuTime(1); !ok {
		t.Skip("the processor time of another process cannot be read on this system; CI is Linux")
	}
	least := func(n int, code string, host Host, ts []Tool) (cpu time.Duration) {
		t.Helper()
		for i := range n {
			o := run(t, p, host, code, ts...)
			if o.Error != nil {
				t.Fatal(o.Error)
			}
			if i == 0 || o.CPU < cpu {
				cpu = o.CPU
			}
		}
		return cpu
	}
	ok := forgetful(structured(`{"n":1}`))
	const plain, typed = "const x = [1, 2, 3]; return x.map(n => n * 2)", "const x: number[] = [1, 2, 3]; return x.map((n: number) => n * 2)"
	one, few, many := tools("s_t"), append(tools("s_t"), manyTools(40)...), append(tools("s_t"), manyTools(60_000)...) // of as many servers
	big := func(mb int) Host { return forgetful(structured(records(mb<<20 - 200))) }
	for _, c := range []struct {
		what  string
		less  time.Duration
		more  time.Duration
		times float64 // of more
	}{
		{"JavaScript does not pay for the compiler of TypeScript", least(40, plain, ok, one), least(40, typed, ok, one), .7},
		{"a run does not pay for the tools that it had before", least(40, "await s.t()", ok, many), least(40, "await s.t()", ok, few), 8},
		{"ten times as many calls at once cost ten times as much", least(8, "await Promise.all(Array.from({length: 500}, () => s.t()))", ok, one), least(8, "await Promise.all(Array.from({length: 50}, () => s.t()))", ok, one), 25},
		{"a result costs in proportion to its size", least(4, "(await s.t()).length", big(4), one), least(4, "(await s.t()).length", big(1), one), 8},
		{"a whole run costs less than a hundred thousand turns of a loop", least(40, plain, ok, one), least(8, "for (let i = 0; i < 1e5; i++) ;", ok, one), .2},
	} {
		t.Logf("%s: %v, %v: %.2f, at most %.2f", c.what, c.less, c.more, float64(c.less)/float64(c.more), c.times)
		if float64(c.less) > c.times*float64(c.more) {
			t.Errorf("%s: %v against %v", c.what, c.less, c.more)
		}
	}
}
