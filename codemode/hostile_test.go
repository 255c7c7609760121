package codemode

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
)

// residentKB is the memory of this process; 0 where /proc does not exist.
func residentKB() int { return residentOf(os.Getpid()) }

// heapKB is what is in use of the memory of this process's own objects.
func heapKB() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc >> 10)
}

// openFiles is the number of descriptors of this process; 0 where /proc does not
// exist.
func openFiles() int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(list)
}

// TestHostileScripts runs every attack through the real pool while other users
// work. Each ends in time and as it must, and the gateway's process is as it was
// before.
func TestHostileScripts(t *testing.T) {
	const wall, cpu = time.Second, 400 * time.Millisecond
	lag := newLag(t)
	wantValue(t, run(t, lag.pool, nil, "1"), "1")
	eventually(t, "the next worker", func() bool { return lag.pool.Status().Idle == 1 })
	goroutines, files := runtime.NumGoroutine(), openFiles()
	p := testPool(t, func(c *config.Code) {
		c.Workers, c.MaxWorkers, c.RunsPerUser, c.QueuePerUser = 2, 7, 4, 1000
		c.MemoryMB, c.WallTime, c.CPUTime = 128, wall, 20*cpu
		c.MaxCalls = 200 // so that it is reached before the time is over
	})
	host := attackedHost()
	wantValue(t, run(t, p, host, "1"), "1")
	runtime.GC()
	list := attacks(t)
	resident, heap := residentKB(), heapKB()

	stop := make(chan struct{})
	var beside sync.WaitGroup
	var peak, goodRuns atomic.Int64
	beside.Add(1)
	go func() {
		defer beside.Done()
		for {
			select {
			case <-stop:
				return
			default:
			}
			lag.measure()
			peak.Store(max(peak.Load(), int64(residentKB())))
		}
	}()
	// Twenty good executions at any time, from ten users.
	for i := range 20 {
		beside.Add(1)
		go func() {
			defer beside.Done()
			for {
				o, err := p.Run(context.Background(), Request{
					Owner: fmt.Sprintf("good%d", i%10), Code: "const r = await s.t(); return r.n + 1", Tools: tools("s_t"),
					Limits: Limits{Wall: time.Minute, CPU: cpu},
				}, host)
				if err != nil {
					t.Errorf("a good run: %v", err)
					return
				}
				if o.Error != nil {
					t.Errorf("a good run failed: %s: %s", o.Error.Kind, o.Error.Message)
				} else if string(o.Value) != "2" {
					t.Errorf("a good run gave %s", o.Value)
				}
				goodRuns.Add(1)
				select {
				case <-stop:
					return
				case <-time.After(time.Second): // the machine is for the attacks
				}
			}
		}()
	}

	kinds := map[string]int{}
	var latest time.Duration
	var mu sync.Mutex
	next := make(chan attack)
	var evil sync.WaitGroup
	for range 3 {
		evil.Add(1)
		go func() {
			defer evil.Done()
			for a := range next {
				since := lag.mark()
				began := time.Now()
				o, err := p.Run(context.Background(), Request{Owner: "evil", Code: a.code, Tools: attackedTools(), Limits: Limits{CPU: cpu}}, host)
				took := time.Since(began)
				if err != nil {
					t.Errorf("%s: %v", a.name, err)
					continue
				}
				err = a.check(o)
				if err != nil && o.Error != nil && (o.Error.Kind == kindWall || o.Error.Kind == kindCPU) {
					// A machine with more to do is no verdict: with time, it must end as it should.
					again, failed := p.Run(context.Background(), Request{Owner: "evil", Code: a.code, Tools: attackedTools(), Limits: Limits{Wall: time.Minute}}, host)
					if err = failed; err == nil {
						err = a.check(again)
					}
				}
				if err != nil {
					t.Errorf("%s: %v", a.name, err)
				}
				// Its limit and one second, and what this machine made everybody wait
				// meanwhile: it takes a start, an order, a kill and an end.
				if limit := wall + time.Second + 10*lag.since(since); took > limit {
					t.Errorf("%s: answered after %s, want %s at most", a.name, took, limit)
				}
				kind := "ok"
				if o.Error != nil {
					kind = o.Error.Kind
				}
				mu.Lock()
				kinds[kind]++
				latest = max(latest, took)
				mu.Unlock()
				if testing.Verbose() {
					m := string(o.Value)
					if o.Error != nil {
						m = fmt.Sprintf("%s (line %d)", o.Error.Message, o.Error.Line)
					}
					t.Logf("%-50s %6dms %-10s %.110s", a.name, took.Milliseconds(), kind, m)
				}
			}
		}()
	}
	for _, a := range list {
		next <- a
	}
	close(next)
	evil.Wait()
	close(stop)
	beside.Wait()
	t.Logf("%d attacks ended as %v, the latest after %s, beside %d good runs; resident %d KB before, %d KB at most", len(list), kinds, latest, goodRuns.Load(), resident, peak.Load())

	for _, want := range []string{"ok", kindException, kindMemory, kindStack, kindDeadlock} {
		if kinds[want] == 0 {
			t.Errorf("no attack ended as %s: %v", want, kinds)
		}
	}
	if kinds[kindCPU]+kinds[kindWall] == 0 { // which comes first is the machine's choice
		t.Errorf("no attack ran out of time: %v", kinds)
	}
	if goodRuns.Load() < 40 {
		t.Errorf("only %d good runs", goodRuns.Load())
	}
	if !withRace && resident > 0 && peak.Load() > int64(resident)+200<<10 {
		t.Errorf("this process grew from %d to %d KB", resident, peak.Load())
	}
	wantValue(t, run(t, p, host, "1"), "1")
	p.Close()
	eventually(t, "the return to the goroutines of before", func() bool { return runtime.NumGoroutine() <= goroutines })
	defer func() {
		t.Logf("in KB: heap %d before, %d after; resident %d before, %d after", heap, heapKB(), resident, residentKB())
	}()
	eventually(t, "the return to the memory of before", func() bool {
		debug.FreeOSMemory()
		// What this test notes itself, of every moment it took, is a part of it.
		return heapKB() <= heap+4<<10 && (withRace || residentKB() <= resident+32<<10)
	})
	runtime.KeepAlive(list)
	eventually(t, "the return to the open files of before", func() bool { return openFiles() <= files })
}

// lag knows how late this machine is at the moment: how long a worker takes
// to start and to end, and a short sleep beyond its time.
type lag struct {
	pool    *Pool
	mu      sync.Mutex
	samples []time.Duration
}

func newLag(t *testing.T) *lag {
	return &lag{pool: testPool(t, func(c *config.Code) { c.Reuse, c.Workers, c.MaxWorkers = reuseNever, 1, 1 })}
}

func (l *lag) measure() {
	began := time.Now()
	time.Sleep(10 * time.Millisecond)
	late := time.Since(began) - 10*time.Millisecond
	began = time.Now()
	if w, err := l.pool.spawner.start(context.Background()); err == nil {
		w.kill()
		<-w.exited
	}
	late = max(late, time.Since(began))
	l.mu.Lock()
	l.samples = append(l.samples, late)
	l.mu.Unlock()
	time.Sleep(200 * time.Millisecond)
}

func (l *lag) mark() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.samples)
}

// since is the worst since the mark, or just before it.
func (l *lag) since(mark int) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.samples) == 0 {
		return 0
	}
	return slices.Max(l.samples[min(max(mark-1, 0), len(l.samples)-1):])
}

func TestB088_LoopsEndAndTheNextScriptIsFine(t *testing.T) {
	p := testPool(t, nil)
	// Only one of the limits can be met, however much else the machine has to do.
	cpu, wall := Limits{CPU: 500 * time.Millisecond, Wall: 5 * time.Minute}, Limits{Wall: 2 * time.Second}
	for _, c := range []struct {
		code  string
		limit Limits
		kind  string
		line  int
	}{
		{"while (true) {}", cpu, kindCPU, 1},
		{"1\nwhile (true) { Math.abs(1) }", cpu, kindCPU, 2},
		{"1\nwhile (true) { Math.abs(1) }", wall, kindWall, 2},
		{"for (;;) await null", cpu, kindCPU, 1},
		{"\n/(?=a)(a+)+b/.test('a'.repeat(64))", cpu, kindCPU, 2},
		{"[3, 1, 2].sort(() => { for (;;) ; })", cpu, kindCPU, 1},
		{"await new Promise(f => setTimeout(f, 60000))", wall, kindWall, 0},
	} {
		var o *Outcome
		for range 5 {
			var err error
			if o, err = p.Run(context.Background(), Request{Owner: "u", Code: c.code, Limits: c.limit}, nil); err != nil {
				t.Fatal(err)
			}
			// A worker that gets no processor for 0.4 s after the order to stop is
			// killed, and cannot say where it was.
			if o.Error == nil || !strings.Contains(o.Error.Message, "had to be killed") {
				break
			}
		}
		wantError(t, o, c.kind, "limit")
		if o.Error != nil && o.Error.Line != c.line {
			t.Errorf("%q: line %d, want %d: %s", c.code, o.Error.Line, c.line, o.Error.Message)
		}
		wantValue(t, run(t, p, nil, "'fine'"), `"fine"`)
	}
	// Nothing goes on burning the processor: the workers of those runs are gone.
	eventually(t, "the end of the stopped workers", func() bool {
		s := p.Status()
		return s.Running == 0 && s.Live <= 4
	})
}

func TestB089_MemoryIsTheRunsOwn(t *testing.T) {
	p := testPool(t, func(c *config.Code) { c.MemoryMB = 96; c.CPUTime = 10 * time.Second })
	before := residentKB()
	for _, code := range []string{
		"'x'.repeat(2 ** 40)", "'x'.repeat(2 ** 30).length", "let s = 'xxxxxxxx'; for (;;) s += s",
		"const a = []; for (;;) a.push({a: 1, b: []})", "new Array(1e9).fill(0).length", "new Uint8Array(2 ** 32).fill(1).length",
		"JSON.parse('['.repeat(1e7))",
	} {
		o := run(t, p, nil, code)
		if o.Error == nil {
			t.Errorf("%s: value %.80s", code, o.Value)
		} else if k := o.Error.Kind; k != kindMemory && k != kindException && k != kindCPU && k != kindStack {
			t.Errorf("%s: %s: %s", code, k, o.Error.Message)
		}
		wantValue(t, run(t, p, nil, "1"), "1")
	}
	if after := residentKB(); before > 0 && after > before+150<<10 {
		t.Errorf("this process grew from %d to %d KB", before, after)
	}
}

// TestMemoryIsWhatAScriptHolds: this one holds some 66 MB, grows a stack of 32
// and lets go as much again. What it let go, and gaps between, were counted, so
// that it ended in one run of five or so.
func TestMemoryIsWhatAScriptHolds(t *testing.T) {
	p := testPool(t, func(c *config.Code) { c.MemoryMB, c.WallTime, c.CPUTime = 128, time.Minute, time.Minute })
	for range 25 { // also one after another in the same worker
		wantValue(t, run(t, p, nil, "new RegExp('()'.repeat(1e5)).exec('a').length"), "100001")
	}
}

func TestB094_NothingIsUnbounded(t *testing.T) {
	p := testPool(t, nil)
	o := run(t, p, nil, "return 'x'.repeat(6e6)")
	if o.Error != nil || len(o.Value) > config.Defaults().Code.MaxValue+1000 || !o.ValueCut || !json.Valid(o.Value) || !strings.Contains(string(o.Value), "more characters") {
		t.Errorf("error %v, %d bytes, cut %v", o.Error, len(o.Value), o.ValueCut)
	}
	o = run(t, p, nil, "return Array.from({length: 1e5}, (_, i) => 'x'.repeat(60) + i)")
	if o.Error != nil || len(o.Value) > config.Defaults().Code.MaxValue+1000 || !o.ValueCut || !json.Valid(o.Value) || !strings.Contains(string(o.Value), "more items") {
		t.Errorf("error %v, %d bytes, cut %v", o.Error, len(o.Value), o.ValueCut)
	}
	for _, code := range []string{"throw 'x'.repeat(3e6)", "throw new Error('x'.repeat(3e6))", "throw {a: 'x'.repeat(3e6)}"} {
		o = run(t, p, nil, code)
		wantError(t, o, kindException, "more characters")
		if o.Error != nil && len(o.Error.Message) > 10_000 {
			t.Errorf("%s: message of %d bytes", code, len(o.Error.Message))
		}
	}
	for _, route := range []string{
		"eval('1')", "(0, eval)('1')", "globalThis.eval('1')", "new Function('return 1')()", "Function('return 1')()",
		"(function () {}).constructor('return 1')()", "(() => 1).constructor('return 1')()",
		"(async () => 1).constructor('return 1')()", "(function* () {}).constructor('yield 1')()",
		"Object.getPrototypeOf(async function () {}).constructor('return 1')()", "Reflect.construct(Function, ['return 1'])()",
		"[].map.constructor('return 1')()", "(class {}).constructor('return 1')()", "Function.prototype.constructor('return 1')()",
		"codemode.call.constructor('return 1')()", "Reflect.getPrototypeOf(function* () {}).constructor('yield 1')()",
		"console.log.bind().constructor('return 1')()", "Reflect.construct(Object.getPrototypeOf(function(){}).constructor, ['return 1'], Array)()",
		"delete Function.prototype.constructor; (function () {}).constructor('return 1')()",
		"Object.defineProperty(Function.prototype, 'constructor', {value: 1})",
		"setTimeout('1', 1)",
	} {
		o := run(t, p, nil, "return "+strings.Replace(route, "delete Function.prototype.constructor; ", "", 1))
		if o.Error == nil || o.Error.Name != "EvalError" && o.Error.Name != "TypeError" {
			t.Errorf("%s: value %s, error %v", route, o.Value, o.Error)
		}
	}
}

func TestB101_FaultsStayInTheWorker(t *testing.T) {
	p := testPool(t, func(c *config.Code) { c.CPUTime = time.Second })
	for _, c := range []struct{ code, kind string }{
		{"\nfunction f() { f() }\nf()", kindStack},
		{"const a = []; a.push(a); a.flat(Infinity)", kindStack},
		{"JSON.parse('['.repeat(1e6) + ']'.repeat(1e6)); 1", ""},
		{"new RegExp('(?=a)' + '('.repeat(1e6) + 'a' + ')'.repeat(1e6)); 1", ""},
		{"let p = {}; for (let i = 0; i < 1e6; i++) p = new Proxy(p, {}); p.x", ""},
		{"const a = []; for (let i = 0; i < 1000; i++) a.push(i); a.sort(() => { a.length = 0; a.push(1); return 1 }); 1", ""},
		{"Object.keys(new Proxy({}, {ownKeys() { return {length: 2 ** 32 - 1} }}))", ""},
	} {
		o := run(t, p, nil, c.code)
		if c.kind != "" {
			wantError(t, o, c.kind, "recursion")
		}
		wantValue(t, run(t, p, nil, "1"), "1")
	}
	// A call nobody answers has its own clock.
	hung := &fakeHost{call: func(ctx context.Context, _ HostCall) (json.RawMessage, error) { <-ctx.Done(); return nil, ctx.Err() }}
	o, err := p.Run(context.Background(), Request{Owner: "u", Code: "await s.t()", Tools: tools("s_t"), Limits: Limits{Wall: 2 * time.Second}}, hung)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, o, kindWall, "waiting for s.t")
	if !strings.Contains(o.Error.Message, "1 in flight") || len(o.Calls) != 1 || o.Calls[0].Status != callInFlight {
		t.Errorf("%s; calls %+v", o.Error.Message, o.Calls)
	}
}
