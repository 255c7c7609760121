package codemode

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/internal/speed"
)

// These are the numbers of docs/code-mode.md, "Speed". `make bench` prints them
// as a table. A host that answers at once stands in for the servers.

func BenchmarkMachine(b *testing.B) { speed.ReportMachine(b) }

const (
	javaScript = "const r = await s.t(); return r.n + 1"
	typeScript = "const r: {n: number} = await s.t() as any; return r.n + 1"
)

// BenchmarkFirstCall is from the request to the script's first call, which is
// its first instruction. A worker is used again by its user; the first run of a
// user has one that never ran anything.
func BenchmarkFirstCall(b *testing.B) {
	for _, c := range []struct {
		name, code string
		target     time.Duration
	}{{"js", javaScript, time.Millisecond}, {"ts", typeScript, 4 * time.Millisecond}} {
		for _, many := range []bool{false, true} {
			for _, reuse := range []string{"same-user", "never"} {
				ts, name := tools("s_t"), c.name+"/used"
				if reuse == "never" {
					name = c.name + "/new"
				}
				if many {
					ts, name = append(ts, manyTools(3000)...), name+"/3000_tools"
				}
				b.Run(name, func(b *testing.B) {
					p := testPool(b, func(c *config.Code) { c.Reuse = reuse })
					speed.Report(b, firstCalls(b, p, c.code, ts), c.target)
				})
			}
		}
	}
}

func manyTools(n int) []Tool {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("server%d_the_tool_number_%d", i*40/n, i))
	}
	return tools(names...)
}

func firstCalls(b *testing.B, p *Pool, code string, ts []Tool) (laps speed.Laps) {
	b.Helper()
	at := make(chan time.Time, 1)
	host := &fakeHost{forget: true, call: func(context.Context, HostCall) (json.RawMessage, error) {
		at <- time.Now()
		return json.RawMessage(structured(`{"n":1}`)), nil
	}}
	once := func() time.Duration {
		eventually(b, "a warm worker", func() bool { s := p.Status(); return s.Idle > 0 && s.Starting == 0 })
		start := time.Now()
		wantValue(b, run(b, p, host, code, ts...), "2")
		return (<-at).Sub(start)
	}
	once()
	for b.Loop() {
		laps = append(laps, once())
	}
	return laps
}

// runs measures whole runs of one user after another.
func runs(b *testing.B, code string, host Host, ts []Tool, change func(*config.Code)) (laps speed.Laps) {
	b.Helper()
	p := testPool(b, change)
	once := func() time.Duration {
		start := time.Now()
		o := run(b, p, host, code, ts...)
		took := time.Since(start)
		if o.Error != nil {
			b.Fatal(o.Error)
		}
		return took
	}
	once()
	for b.Loop() {
		laps = append(laps, once())
	}
	return laps
}

func forgetful(result string) *fakeHost {
	return &fakeHost{forget: true, call: func(context.Context, HostCall) (json.RawMessage, error) { return json.RawMessage(result), nil }}
}

// BenchmarkRun is a whole run of one expression.
func BenchmarkRun(b *testing.B) {
	b.Run("js", func(b *testing.B) { speed.Report(b, runs(b, "1 + 1", nil, nil, nil), 0) })
	b.Run("ts", func(b *testing.B) {
		speed.Report(b, runs(b, "const x: number = 1; return x + 1", nil, nil, nil), 0)
	})
	b.Run("js/3000_tools", func(b *testing.B) { speed.Report(b, runs(b, "1 + 1", nil, manyTools(3000), nil), 0) })
}

// BenchmarkHostCall is one call, there and back, of 500 one after another.
func BenchmarkHostCall(b *testing.B) {
	const n = 500
	laps := runs(b, fmt.Sprintf("for (let i = 0; i < %d; i++) await s.t({i})", n), forgetful(structured(`{"ok":true}`)), tools("s_t"), func(c *config.Code) { c.MaxCalls = n })
	for i := range laps {
		laps[i] /= n
	}
	speed.Report(b, laps, 150*time.Microsecond)
}

// BenchmarkParallelCalls makes 1,000 calls at once.
func BenchmarkParallelCalls(b *testing.B) {
	laps := runs(b, "(await Promise.all(Array.from({length: 1000}, (_, i) => s.t({i})))).length", forgetful(structured(`{"ok":true}`)), tools("s_t"), func(c *config.Code) { c.MaxCalls = 1000 })
	speed.Report(b, laps, 60*time.Millisecond)
}

// BenchmarkRunsPerSecond has four users at once, each with runs one after
// another; the replacement of workers after 50 runs is part of it.
func BenchmarkRunsPerSecond(b *testing.B) {
	p := testPool(b, nil)
	var left atomic.Int64
	var work sync.WaitGroup
	const batch = 50
	n, start := 0, time.Now()
	for b.Loop() {
		left.Store(batch)
		for user := range 4 {
			work.Go(func() {
				for left.Add(-1) >= 0 {
					o, err := p.Run(context.Background(), Request{Owner: strconv.Itoa(user), Code: "1 + 1"}, nil)
					if err != nil || o.Error != nil {
						b.Error(err, o.Error)
						return
					}
				}
			})
		}
		work.Wait()
		n += batch
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(n)/time.Since(start).Seconds(), "runs/s")
	b.ReportMetric(400, "target-runs/s")
}

// records is a result of so many bytes, as servers give them.
func records(size int) string {
	var b strings.Builder
	b.WriteString("[")
	for i := 0; ; i++ {
		row := fmt.Sprintf(`{"id":%d,"zone":"example%d.com","type":"A","content":"198.51.100.%d","ttl":300,"proxied":false,"tags":["a","b"]}`, 48213+i, i%50, i%250)
		if b.Len()+len(row)+1 > size {
			break
		}
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString(row)
	}
	return b.String() + "]"
}

// BenchmarkBigResult brings a list of records into a script, which makes sums
// of it. The largest that a script may receive is 4 MB.
func BenchmarkBigResult(b *testing.B) {
	for _, mb := range []int{1, 4} {
		b.Run(fmt.Sprintf("%dMB", mb), func(b *testing.B) {
			const code = "const by = {}; for (const r of await s.t()) by[r.zone] = (by[r.zone] ?? 0) + r.ttl; return by"
			laps := runs(b, code, forgetful(structured(records(mb<<20-200))), tools("s_t"), nil)
			speed.Report(b, laps, 250*time.Millisecond/4*time.Duration(mb))
		})
	}
}

// BenchmarkNewWorker is from the order to start a worker until it is ready,
// which no request waits for as long as there are warm ones.
func BenchmarkNewWorker(b *testing.B) {
	p := testPool(b, nil)
	eventually(b, "a warm worker", func() bool { return p.Status().Idle > 0 })
	var laps speed.Laps
	for b.Loop() {
		start := time.Now()
		w, err := p.spawner.start(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		laps = append(laps, time.Since(start))
		w.kill()
		<-w.exited
	}
	speed.Report(b, laps, 0)
}

// BenchmarkIdleWorker is the memory of a worker that waits: what it has for
// itself, its share of what several have in common, and all that it maps.
func BenchmarkIdleWorker(b *testing.B) {
	if _, err := os.Stat("/proc/self/smaps_rollup"); err != nil {
		b.Skip("the memory of a process is read from /proc/*/smaps_rollup, which this system does not have")
	}
	const n = 3
	p := testPool(b, func(c *config.Code) { c.Workers, c.MaxWorkers = n, n+1 })
	for b.Loop() {
		eventually(b, "idle workers", func() bool { return p.Status().Idle == n })
	}
	b.ReportMetric(0, "ns/op")
	p.mu.Lock()
	defer p.mu.Unlock()
	own, share, all := 0, 0, 0
	for w := range p.all {
		m := memoryOf(b, w.cmd.Process.Pid)
		own, share, all = own+m["Private_Dirty:"]+m["Private_Clean:"], share+m["Pss:"], all+m["Rss:"]
	}
	b.ReportMetric(float64(own)/n/1024, "own-MB")
	b.ReportMetric(float64(share)/n/1024, "share-MB")
	b.ReportMetric(float64(all)/n/1024, "mapped-MB")
	b.ReportMetric(15, "target-MB")
}

// memoryOf reads the sums of a process's maps in KB.
func memoryOf(b *testing.B, pid int) map[string]int {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.Skipf("only root may read the memory of a worker: %v", err)
	}
	out := map[string]int{}
	for line := range bytes.Lines(data) {
		if f := bytes.Fields(line); len(f) > 1 {
			out[string(f[0])], _ = strconv.Atoi(string(f[1]))
		}
	}
	return out
}

// BenchmarkShape cuts a megabyte of records to 6,000 tokens.
func BenchmarkShape(b *testing.B) {
	rows := json.RawMessage(records(1 << 20))
	var laps speed.Laps
	for b.Loop() {
		start := time.Now()
		Shape(rows, 6000)
		laps = append(laps, time.Since(start))
	}
	speed.Report(b, laps, 0)
}
