package codemode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
)

// pid returns the process of the only idle worker of an owner.
func pidOf(t *testing.T, p *Pool, owner string) int {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.owned[owner]) != 1 {
		t.Fatalf("%s owns %d idle workers", owner, len(p.owned[owner]))
	}
	return p.owned[owner][0].cmd.Process.Pid
}

func runAs(t *testing.T, p *Pool, owner, code string) *Outcome {
	t.Helper()
	o, err := p.Run(context.Background(), Request{Owner: owner, Code: code}, &fakeHost{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestReuseIsForTheSameOwnerWithAFreshRealm(t *testing.T) {
	p := testPool(t, nil)
	runAs(t, p, "ann", "Object.prototype.admin = true; globalThis.left = 1; Array.prototype.map = null; 1")
	first := pidOf(t, p, "ann")
	wantValue(t, runAs(t, p, "ann", "[typeof left, ({}).admin === undefined, typeof [].map]"), `["undefined",true,"function"]`)
	if pidOf(t, p, "ann") != first {
		t.Error("the worker was not reused for its owner")
	}
	wantValue(t, runAs(t, p, "bob", "1"), "1")
	if pidOf(t, p, "bob") == first {
		t.Error("bob got ann's worker")
	}
	// An exception keeps the worker, a limit does not.
	runAs(t, p, "ann", "throw 1")
	if pidOf(t, p, "ann") != first {
		t.Error("the worker was retired after an exception")
	}
	o, err := p.Run(context.Background(), Request{Owner: "ann", Code: "for (;;) ;", Limits: Limits{CPU: 100 * time.Millisecond}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, o, kindCPU, "0.1 s")
	runAs(t, p, "ann", "1")
	if pidOf(t, p, "ann") == first {
		t.Error("the worker survived a limit")
	}
	second := pidOf(t, p, "ann")
	for range maxUses {
		runAs(t, p, "ann", "1")
	}
	if pidOf(t, p, "ann") == second {
		t.Errorf("the worker served more than %d runs", maxUses)
	}
}

// A user whose worker has had its runs waits for the start that is under way:
// nobody else's worker ends for it.
func TestAWornOutWorkerCostsNobodyElseTheirs(t *testing.T) {
	p := testPool(t, func(c *config.Code) { c.Workers, c.MaxWorkers = 1, 2 })
	runAs(t, p, "bob", "1")
	runAs(t, p, "ann", "1")
	bobs := pidOf(t, p, "bob")
	for range 3 {
		p.mu.Lock()
		p.owned["ann"][0].uses = maxUses - 1
		p.mu.Unlock()
		runAs(t, p, "ann", "1") // the last of that worker
		runAs(t, p, "ann", "1")
		if now := pidOf(t, p, "bob"); now != bobs {
			t.Fatal("bob's idle worker was ended for ann")
		}
	}
}

// After any end that a limit, the kernel or a broken engine made, the worker is
// gone; its owner's next run is on another.
func TestNoWorkerIsUsedAfterALimit(t *testing.T) {
	p := testPool(t, func(c *config.Code) { c.MemoryMB = 96 })
	hung := &fakeHost{call: func(ctx context.Context, _ HostCall) (json.RawMessage, error) { <-ctx.Done(); return nil, ctx.Err() }}
	for _, c := range []struct {
		code   string
		limits Limits
		kinds  []string // memory may run out in several ways
		kept   bool
	}{
		{code: "throw 1", kinds: []string{kindException}, kept: true},
		{code: "const = 1", kinds: []string{kindSyntax}, kept: true},
		{code: "await new Promise(() => {})", kinds: []string{kindDeadlock}, kept: true},
		{code: "for (;;) ;", limits: Limits{CPU: 100 * time.Millisecond}, kinds: []string{kindCPU}},
		{code: "await sleep(1e6)", limits: Limits{Wall: 100 * time.Millisecond}, kinds: []string{kindWall}},
		{code: "s.t(); 1", limits: Limits{Wall: 100 * time.Millisecond}, kinds: []string{""}}, // a value, but at the limit
		{code: "const a = []; for (;;) a.push('x'.repeat(1e6) + a.length)", kinds: []string{kindMemory, kindException, kindEngine}},
		{code: "const a = []; a.push(a); a.flat(Infinity)", kinds: []string{kindStack, kindMemory}}, // a stack that doubles to 64 MB is 96 MB for a moment
		{code: "const f = () => f(); f()", kinds: []string{kindStack}},
		{code: "Object.keys(new Proxy({}, {ownKeys() { return {length: 2 ** 32 - 1} }}))", kinds: []string{kindEngine}},
		{code: "globalThis.big = Array.from({length: 1.3e5}, (_, i) => ({i})); 1", kinds: []string{""}}, // within limits, but it leaves too much
	} {
		runAs(t, p, "ann", "1")
		before := pidOf(t, p, "ann")
		o, err := p.Run(context.Background(), Request{Owner: "ann", Code: c.code, Tools: tools("s_t"), Limits: c.limits}, hung)
		if err != nil {
			t.Fatal(err)
		}
		kind := ""
		if o.Error != nil {
			kind = o.Error.Kind
		}
		if !slices.Contains(c.kinds, kind) {
			t.Errorf("%s: ended as %q, want %q: %v", c.code, kind, c.kinds, o.Error)
		}
		wantValue(t, runAs(t, p, "ann", "1"), "1")
		if kept := pidOf(t, p, "ann") == before; kept != c.kept {
			t.Errorf("%s (%s): the worker was kept: %v", c.code, kind, kept)
		}
	}
}

func TestReuseNever(t *testing.T) {
	p := testPool(t, func(c *config.Code) { c.Reuse = "never" })
	for range 3 {
		wantValue(t, runAs(t, p, "ann", "1"), "1")
		p.mu.Lock()
		n := len(p.owned)
		p.mu.Unlock()
		if n != 0 {
			t.Fatal("a worker was kept")
		}
	}
}

func TestIdleWorkersMakeWayForOtherUsers(t *testing.T) {
	p := testPool(t, func(c *config.Code) { c.Workers, c.MaxWorkers = 1, 2 })
	for i := range 6 {
		wantValue(t, runAs(t, p, fmt.Sprintf("user%d", i), "1"), "1")
		if s := p.Status(); s.Live+s.Starting > 2 {
			t.Fatalf("%d workers, %d starting", s.Live, s.Starting)
		}
	}
}

func TestPlacesAreBoundedPerUser(t *testing.T) {
	p := testPool(t, func(c *config.Code) { c.MaxWorkers, c.RunsPerUser, c.QueuePerUser = 3, 2, 1 })
	release := make(chan struct{})
	var entered atomic.Int32
	host := &fakeHost{call: func(ctx context.Context, _ HostCall) (json.RawMessage, error) {
		entered.Add(1)
		select {
		case <-release:
		case <-ctx.Done():
		}
		return json.RawMessage(structured("1")), nil
	}}
	var wg sync.WaitGroup
	start := func() {
		wg.Add(1)
		go func() {
			defer wg.Done()
			o, err := p.Run(context.Background(), Request{Owner: "ann", Code: "await s.t()", Tools: tools("s_t")}, host)
			if err != nil || o.Error != nil {
				t.Errorf("%v %v", err, o.Error)
			}
		}()
	}
	start()
	start()
	eventually(t, "two runs", func() bool { return entered.Load() == 2 })
	start()
	eventually(t, "one waiting", func() bool { return p.Status().Queued == 1 })
	wantError(t, runAs(t, p, "ann", "1"), kindBusy, "2 runs going and 1 waiting")
	wantValue(t, runAs(t, p, "bob", "1"), "1") // the third place is not ann's
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if o, err := p.Run(ctx, Request{Owner: "ann", Code: "1"}, nil); err == nil && o.Error == nil {
		t.Error("a cancelled caller got a place")
	}
	close(release)
	wg.Wait()
}

func TestTurnsAreFair(t *testing.T) {
	turns := newTurns(2, 2, 10, 2, 2)
	ctx := context.Background()
	var first []*place
	for range 2 {
		p, err := turns.take(ctx, "greedy", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		first = append(first, p)
	}
	order := make(chan string, 4)
	wait := func(owner string) {
		_, _, before := turns.counts()
		go func() {
			if _, err := turns.take(ctx, owner, time.Minute); err == nil {
				order <- owner
			}
		}()
		eventually(t, "the queue", func() bool { _, _, n := turns.counts(); return n == before+1 })
	}
	wait("greedy")
	wait("greedy")
	wait("modest")
	first[0].give()
	if got := <-order; got != "modest" {
		t.Errorf("%s came first", got)
	}
	first[1].give()
	first[1].give() // once is enough
	if got := <-order; got != "greedy" {
		t.Errorf("%s came second", got)
	}
	if _, err := turns.take(ctx, "late", time.Millisecond); err == nil {
		t.Error("a place out of nothing")
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := turns.take(cancelled, "late", time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestCancelKillsTheRunAndItsCalls(t *testing.T) {
	p := testPool(t, nil)
	entered, ended := make(chan struct{}), make(chan struct{})
	host := &fakeHost{call: func(ctx context.Context, _ HostCall) (json.RawMessage, error) {
		close(entered)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	}}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-entered; cancel() }()
	o, err := p.Run(ctx, Request{Owner: "u", Code: "await s.t()", Tools: tools("s_t")}, host)
	if !errors.Is(err, context.Canceled) || o == nil || o.Error == nil || o.Error.Kind != kindCancelled {
		t.Fatalf("error %v, outcome %+v", err, o)
	}
	if len(o.Calls) != 1 || o.Calls[0].Status != callInFlight {
		t.Errorf("calls %+v", o.Calls)
	}
	<-ended
	wantValue(t, run(t, p, nil, "1"), "1")
}

func TestTheWallClockStandsStillWhileAPersonIsAsked(t *testing.T) {
	p := testPool(t, nil)
	pause := &Pause{}
	host := &fakeHost{call: func(context.Context, HostCall) (json.RawMessage, error) {
		pause.Begin()
		time.Sleep(3 * time.Second) // longer than the limit
		pause.End()
		return json.RawMessage(structured("1")), nil
	}}
	o, err := p.Run(context.Background(), Request{Owner: "u", Code: "await s.t(); for (let i = 0; i < 3; i++) await sleep(10); 'approved'", Tools: tools("s_t"), Limits: Limits{Wall: 2 * time.Second}, Paused: pause}, host)
	if err != nil {
		t.Fatal(err)
	}
	wantValue(t, o, `"approved"`)
	o, err = p.Run(context.Background(), Request{Owner: "u", Code: "await s.t(); await sleep(60000)", Tools: tools("s_t"), Limits: Limits{Wall: 500 * time.Millisecond}, Paused: pause}, host)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, o, kindWall, "0.5 s")
}

func TestCloseEndsEverything(t *testing.T) {
	before := runtime.NumGoroutine()
	p, err := NewPool(context.Background(), PoolOptions{Executable: workerProgram, Code: config.Defaults().Code, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	entered := make(chan struct{})
	host := &fakeHost{call: func(ctx context.Context, _ HostCall) (json.RawMessage, error) {
		close(entered)
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	done := make(chan error, 1)
	go func() {
		_, err := p.Run(context.Background(), Request{Owner: "u", Code: "await s.t()", Tools: tools("s_t")}, host)
		done <- err
	}()
	<-entered
	p.Close()
	if err := <-done; err == nil {
		t.Error("the run did not notice")
	}
	if _, err := p.Run(context.Background(), Request{Owner: "u", Code: "1"}, nil); err == nil {
		t.Error("a closed pool ran something")
	}
	p.Close() // again is harmless
	eventually(t, "the end of all goroutines", func() bool { return runtime.NumGoroutine() <= before })

	ctx, cancel := context.WithCancel(context.Background())
	q, err := NewPool(ctx, PoolOptions{Executable: workerProgram, Code: config.Defaults().Code, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a warm worker", func() bool { return q.Status().Live > 0 })
	cancel()
	q.Close()
	if s := q.Status(); s.Running != 0 {
		t.Errorf("status %+v", s)
	}
}

func TestWorkersDieWithTheirControlPipe(t *testing.T) {
	p := testPool(t, nil)
	runAs(t, p, "u", "1")
	p.mu.Lock()
	w := p.owned["u"][0]
	p.mu.Unlock()
	w.control.Close() // what the kernel does when the gateway is gone
	<-w.exited
	wantValue(t, runAs(t, p, "u", "1"), "1") // and a dead one is replaced
}

func TestRequirements(t *testing.T) {
	if _, err := NewPool(context.Background(), PoolOptions{Code: config.Code{Require: []string{"moat"}}}); err == nil || !strings.Contains(err.Error(), "moat") {
		t.Errorf("error %v", err)
	}
	if _, err := NewPool(context.Background(), PoolOptions{Code: config.Code{Reuse: "always"}}); err == nil {
		t.Error("an unknown reuse was accepted")
	}
	if !platformLayers {
		return
	}
	// A worker without the layers is refused: this one reports seccomp only.
	p := evilPool(t, "silence", func(c *config.Code) { c.Require = []string{"seccomp", "landlock"} })
	o := run(t, p, nil, "1")
	wantError(t, o, kindUnavailable, "landlock (not reported)")
	if strings.Contains(o.Error.Message, "seccomp (") {
		t.Error(o.Error.Message)
	}
}

func TestTheStartCostsNothing(t *testing.T) {
	began := time.Now()
	p := evilPool(t, "mute", nil)
	if d := time.Since(began); d > readyWithin/2 { // it waited for its worker
		t.Errorf("NewPool took %s", d)
	}
	if s := p.Status(); s.Live != 0 || len(s.Layers) != 0 {
		t.Errorf("status %+v", s)
	}
}

func TestTooMuchSource(t *testing.T) {
	p := testPool(t, nil)
	wantError(t, run(t, p, nil, "1;"+strings.Repeat(" ", 200_000)), kindSyntax, "at most 131072")
}

func TestStartedByHand(t *testing.T) {
	// Without its descriptors a worker says what it is and ends.
	proc, err := os.StartProcess(workerProgram, []string{"portal", WorkerCommand, "192", "60"}, &os.ProcAttr{Files: []*os.File{nil, nil, nil}})
	if err != nil {
		t.Fatal(err)
	}
	state, err := proc.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if code := state.ExitCode(); code != 2 {
		t.Errorf("exit code %d", code)
	}
}

// TestWorkersDieWithTheGateway kills a gateway without warning.
func TestWorkersDieWithTheGateway(t *testing.T) {
	if os.Getenv("CODEMODE_TEST_GATEWAY") == "1" { // the gateway to be killed
		p, err := NewPool(context.Background(), PoolOptions{Executable: workerProgram, Code: config.Defaults().Code, Log: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "two workers", func() bool { return p.Status().Live == 2 })
		p.mu.Lock()
		for w := range p.all {
			fmt.Println("worker", w.cmd.Process.Pid)
		}
		p.mu.Unlock()
		fmt.Println("ready")
		time.Sleep(time.Minute)
		return
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	proc, err := os.StartProcess(self, []string{self, "-test.run=^TestWorkersDieWithTheGateway$"}, &os.ProcAttr{
		Env: append(os.Environ(), "CODEMODE_TEST_GATEWAY=1"), Files: []*os.File{nil, w, os.Stderr}, Dir: ".",
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	var pids []int
	for {
		var word string
		var pid int
		if _, err := fmt.Fscan(r, &word); err != nil {
			t.Fatalf("the gateway ended early: %v", err)
		}
		if word == "ready" {
			break
		}
		if _, err := fmt.Fscan(r, &pid); err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	if len(pids) != 2 {
		t.Fatalf("workers %v", pids)
	}
	if err := proc.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := proc.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		eventually(t, fmt.Sprintf("the end of worker %d", pid), func() bool {
			if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
				return true
			}
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err == nil && strings.Contains(string(stat), ") Z ") // dead, and nobody has asked yet
		})
	}
}

// B091: many scripts at once, each with many calls at once; under the race
// detector, and every answer where it belongs.
func TestB091_ManyRunsWithManyCalls(t *testing.T) {
	p := testPool(t, func(c *config.Code) { c.MaxWorkers, c.RunsPerUser, c.QueuePerUser = 4, 4, 200 })
	host := &fakeHost{call: func(_ context.Context, c HostCall) (json.RawMessage, error) {
		return json.RawMessage(`{"structuredContent":` + string(c.Arguments) + `}`), nil
	}}
	var ts []Tool
	for i := range 20 {
		ts = append(ts, tools(fmt.Sprintf("s_t%d", i))...)
	}
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			o, err := p.Run(context.Background(), Request{Owner: fmt.Sprint("u", i%4), Tools: ts,
				Code: fmt.Sprintf("const r = await Promise.all(Array.from({length: 20}, (_, k) => codemode['s_t' + k]({ run: %d, k }))); return r.every((x, k) => x.run === %d && x.k === k)", i, i)}, host)
			if err != nil || o.Error != nil || string(o.Value) != "true" {
				t.Errorf("run %d: %v %+v", i, err, o)
			}
		})
	}
	wg.Wait()
}
