package codemode

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
)

type attack struct{ name, code string }

func attacks(t testing.TB) []attack {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "hostile-scripts.json"))
	if err != nil {
		t.Fatal(err)
	}
	var list [][2]string
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	var out []attack
	for _, a := range list {
		out = append(out, attack{a[0], a[1]})
	}
	return append(out,
		attack{"repeat returned", "return 'a'.repeat(2**30)"},
		attack{"getter in result", "return {get a() { throw new Error('gotcha') }}"},
		attack{"endless getter in result", "return {get a() { for (;;); }}"},
		attack{"sparse array returned", "const a = []; a[4294967294] = 1; return a"},
		attack{"catastrophic regex", "/(?=a)(a+)+b/.test('a'.repeat(64))"},
		attack{"million deep JSON.parse", "JSON.parse('['.repeat(1e6) + ']'.repeat(1e6))"},
		attack{"never settling", "await new Promise(() => {})"},
		attack{"while true", "while (true) {}"},
		attack{"endless timers", "for (;;) setTimeout(() => {}, 1e9)"},
		attack{"esbuild type arguments", "let x: any = " + strings.Repeat("a<", 20000) + "a"},
		attack{"source of a million parentheses", strings.Repeat("(", 60000) + "1" + strings.Repeat(")", 60000)},
		attack{"blocks", strings.Repeat("{", 20000) + strings.Repeat("}", 20000)},
		attack{"source map", "return 1\n//# sourceMappingURL=file:///dev/zero"},
		attack{"endless console", "for (;;) console.log('x'.repeat(1000))"},
		attack{"endless toJSON", "return {toJSON() { return this.x ??= {toJSON: () => this} }}"},
		attack{"promise tree in the value", "const f = () => ({get p() { return sleep(0).then(f) }}); return f()"},
		attack{"replaced built-ins", "Error = Promise = Object = null; Array.prototype.push = () => { throw 1 }; await s.t()"},
		attack{"stop in finally", "try { for (;;) {} } finally { for (;;) {} }"},
		attack{"thenable server", "crm.then = (f) => f(1); return await crm"},
	)
}

// residentKB is the memory of this process; 0 where /proc does not exist.
func residentKB() int {
	data, err := os.ReadFile("/proc/self/status")
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

// TestHostileScripts runs every attack through the real pool while other users
// work. Each ends in time, with an error or a harmless value, and the gateway's
// process is as it was before.
func TestHostileScripts(t *testing.T) {
	const wall, cpu = 1500 * time.Millisecond, 500 * time.Millisecond
	p := testPool(t, func(c *config.Code) {
		c.Workers, c.MaxWorkers, c.RunsPerUser, c.QueuePerUser = 2, 6, 3, 1000
		c.MemoryMB, c.WallTime, c.CPUTime = 128, wall, cpu
	})
	host := answers(map[string]string{"s_t": structured(`{"n":1}`)})
	wantValue(t, run(t, p, host, "1"), "1")
	runtime.GC()
	goroutines, resident := runtime.NumGoroutine(), residentKB()

	var peak atomic.Int64
	stop := make(chan struct{})
	var good, bystanders sync.WaitGroup
	var goodRuns atomic.Int64
	bystanders.Add(1)
	go func() {
		defer bystanders.Done()
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				peak.Store(max(peak.Load(), int64(residentKB())))
			}
		}
	}()
	// Twenty good executions at any time, from ten users.
	for i := range 20 {
		good.Add(1)
		go func() {
			defer good.Done()
			for {
				select {
				case <-stop:
					return
				default:
				}
				o, err := p.Run(context.Background(), Request{
					Owner: fmt.Sprintf("good%d", i%10), Code: "const r = await s.t(); return r.n + 1", Tools: tools("s_t"),
					Limits: Limits{Wall: time.Minute},
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
				time.Sleep(100 * time.Millisecond) // the machine is for the attacks
			}
		}()
	}

	kinds := map[string]int{}
	var mu sync.Mutex
	list := attacks(t)
	next := make(chan attack)
	var evil sync.WaitGroup
	for range 2 {
		evil.Add(1)
		go func() {
			defer evil.Done()
			for a := range next {
				o, err := p.Run(context.Background(), Request{Owner: "evil", Code: a.code, Tools: tools("s_t", "crm_list")}, host)
				if err != nil {
					t.Errorf("%s: %v", a.name, err)
					continue
				}
				kind := "ok"
				if o.Error != nil {
					kind = o.Error.Kind
					if o.Error.Message == "" || len(o.Error.Message) > 16<<10 {
						t.Errorf("%s: message of %d bytes", a.name, len(o.Error.Message))
					}
					if kind == kindBusy || kind == kindUnavailable || kind == kindCancelled {
						t.Errorf("%s: %s: %s", a.name, kind, o.Error.Message)
					}
				} else if len(o.Value) > 2*defaultValue {
					t.Errorf("%s: value of %d bytes", a.name, len(o.Value))
				}
				// The wall limit, the grace before the kill, and the time a loaded
				// machine needs to notice.
				if limit := wall + killGrace + 10*time.Second; o.Wall > limit {
					t.Errorf("%s: took %s", a.name, o.Wall)
				}
				mu.Lock()
				kinds[kind]++
				mu.Unlock()
				if testing.Verbose() {
					m := string(o.Value)
					if o.Error != nil {
						m = fmt.Sprintf("%s (line %d)", o.Error.Message, o.Error.Line)
					}
					t.Logf("%-50s %6dms %-10s %.110s", a.name, o.Wall.Milliseconds(), kind, m)
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
	good.Wait()
	bystanders.Wait()
	t.Logf("%d attacks ended as %v beside %d good runs; resident %d KB before, %d KB at most", len(list), kinds, goodRuns.Load(), resident, peak.Load())

	for _, want := range []string{"ok", kindException, kindMemory, kindStack, kindDeadlock} {
		if kinds[want] == 0 {
			t.Errorf("no attack ended as %s: %v", want, kinds)
		}
	}
	if kinds[kindCPU]+kinds[kindWall] == 0 { // which comes first is the machine's choice
		t.Errorf("no attack ran out of time: %v", kinds)
	}
	if goodRuns.Load() < 20 {
		t.Errorf("only %d good runs", goodRuns.Load())
	}
	if resident > 0 && peak.Load() > int64(resident)+200<<10 {
		t.Errorf("this process grew from %d to %d KB", resident, peak.Load())
	}
	wantValue(t, run(t, p, host, "1"), "1")
	eventually(t, "the return to the goroutines of before", func() bool { return runtime.NumGoroutine() <= goroutines+3*6 })
}

func TestB088_LoopsEndAndTheNextScriptIsFine(t *testing.T) {
	p := testPool(t, nil)
	cpu, wall := Limits{CPU: 500 * time.Millisecond}, Limits{Wall: 2 * time.Second}
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
		o, err := p.Run(context.Background(), Request{Owner: "u", Code: c.code, Limits: c.limit}, nil)
		if err != nil {
			t.Fatal(err)
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

func TestB094_NothingIsUnbounded(t *testing.T) {
	p := testPool(t, nil)
	o := run(t, p, nil, "return 'x'.repeat(3e6)")
	if o.Error != nil || len(o.Value) > defaultValue+1000 || !o.ValueCut || !json.Valid(o.Value) || !strings.Contains(string(o.Value), "more characters") {
		t.Errorf("error %v, %d bytes, cut %v", o.Error, len(o.Value), o.ValueCut)
	}
	o = run(t, p, nil, "return Array.from({length: 1e5}, (_, i) => ({i}))")
	if o.Error != nil || len(o.Value) > defaultValue+1000 || !o.ValueCut || !json.Valid(o.Value) || !strings.Contains(string(o.Value), "more items") {
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
