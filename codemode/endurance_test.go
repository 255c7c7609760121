package codemode

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
)

// Ten thousand executions leave the memory of the portal's process and of its
// workers, its goroutines and its files as they were after the first thousands.
func TestTenThousandRunsLeaveNothing(t *testing.T) {
	p := testPool(t, func(c *config.Code) { c.Workers, c.MaxWorkers, c.RunsPerUser = 1, 4, 4 })
	host := attackedHost()
	scripts := []string{
		"1 + 1",
		"const r = await s.t({a: 'x'}); console.log(r); return r.n",
		"const x: number[] = [1, 2]; return x.map(n => n * 2)",
		"throw new TypeError('no')",
		"return await Promise.all([s.t(), s.t(), codemode.tools()])",
		"globalThis.kept = Array.from({length: 10000}, (_, i) => ({i})); return kept.length",
		"return {a: 'x'.repeat(100000)}",
		"const = 1",
		"s.t(); await sleep(1); return crypto.randomUUID().length",
	}
	type state struct{ heap, resident, workers, goroutines, files int }
	var done, next atomic.Int64
	rounds := func(n int64) state {
		until := done.Load() + n
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				for {
					k := next.Add(1)
					if k > until {
						next.Add(-1)
						return
					}
					o, err := p.Run(context.Background(), Request{Owner: fmt.Sprint("user", i), Code: scripts[k%int64(len(scripts))], Tools: attackedTools()}, host)
					if err != nil {
						t.Error(err)
						return
					}
					if o.Error != nil && o.Error.Kind != kindException && o.Error.Kind != kindSyntax {
						t.Errorf("run %d: %v", k, o.Error)
						return
					}
					done.Add(1)
				}
			})
		}
		wg.Wait()
		// What is still on its way (a worker being replaced) has an end.
		eventually(t, "the end of starts", func() bool { s := p.Status(); return s.Running == 0 && s.Starting == 0 })
		debug.FreeOSMemory()
		s := state{heap: heapKB(), resident: residentKB(), goroutines: runtime.NumGoroutine(), files: openFiles()}
		p.mu.Lock()
		defer p.mu.Unlock()
		for w := range p.all {
			s.workers = max(s.workers, residentOf(w.cmd.Process.Pid))
		}
		return s
	}
	first := rounds(2000)
	last := rounds(8000)
	if t.Failed() {
		return
	}
	if done.Load() != 10_000 || p.Status().Runs != 10_000 {
		t.Fatalf("%d runs, the pool counts %d", done.Load(), p.Status().Runs)
	}
	t.Logf("in KB: %+v after 2,000 runs, %+v after 10,000", first, last)
	// A leak of 200 bytes a run would be 1.6 MB.
	if last.heap > first.heap+1500 {
		t.Errorf("the heap grew from %d to %d KB", first.heap, last.heap)
	}
	if !withRace && last.resident > first.resident+16<<10 {
		t.Errorf("the process grew from %d to %d KB", first.resident, last.resident)
	}
	// The worker that served most runs so far may hold what a run may leave.
	if last.workers > first.workers+2*reusableHeap {
		t.Errorf("workers grew from %d to %d KB", first.workers, last.workers)
	}
	const perWorker = 4 // goroutines and files of a worker more or fewer
	if last.goroutines > first.goroutines+4*perWorker {
		t.Errorf("%d goroutines, before %d", last.goroutines, first.goroutines)
	}
	if last.files > first.files+4*perWorker {
		t.Errorf("%d open files, before %d", last.files, first.files)
	}
}

// residentOf is the memory of a process in KB; 0 if it cannot be read.
func residentOf(pid int) int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(data) {
		if f := bytes.Fields(line); len(f) > 1 && string(f[0]) == "VmRSS:" {
			n, _ := strconv.Atoi(string(f[1]))
			return n
		}
	}
	return 0
}
