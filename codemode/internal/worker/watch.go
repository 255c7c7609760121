package worker

import (
	"os"
	"runtime"
	"runtime/metrics"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcp-portal/mcp-portal/codemode/internal/proto"
)

// Kinds of ends that this package tells apart; see codemode.ScriptError.
const (
	kindSyntax    = "syntax"
	kindException = "exception"
	kindWall      = "wall"
	kindCPU       = "cpu"
	kindMemory    = "memory"
	kindStack     = "stack"
	kindDeadlock  = "deadlock"
	kindCalls     = "calls" // also the code of the rejection
	kindEngine    = "engine"
)

const (
	watchEvery = 5 * time.Millisecond
	// stubborn is how long a built-in function may go on after the interrupt
	// before the process ends itself with a last message.
	stubborn = 150 * time.Millisecond
)

func cpuNanos() int64 {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		return 0
	}
	return ru.Utime.Nano() + ru.Stime.Nano()
}

// heapBytes is what objects and stacks use; reading it stops nothing.
func heapBytes() int64 {
	s := [2]metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(s[:])
	return int64(s[0].Value.Uint64() + s[1].Value.Uint64())
}

// overMemory tells whether what a script holds is more than limit bytes. What it
// let go, and what the run before left, counts as used until a collection has
// seen it: how much that is depends on the moment, and an end must not. So the
// first time in a run the heap is collected before it counts; a script that
// lives at its limit would otherwise do nothing but collect.
func overMemory(limit int64, collected *bool) bool {
	if heapBytes() <= limit {
		return false
	}
	if !*collected {
		*collected = true
		runtime.GC()
	}
	return heapBytes() > limit
}

// stop asks the script to end; the first reason counts.
func (r *run) stop(kind string) {
	if r.why.CompareAndSwap(nil, &kind) {
		r.vm.Interrupt(kind)
		r.w.link.ring()
	}
}

// stopped returns why the run must end, or "".
func (r *run) stopped() string {
	if p := r.why.Load(); p != nil {
		return *p
	}
	return ""
}

// watch measures the run from another goroutine until the returned function is
// called. The wall clock is the gateway's: it knows how long a person was asked.
// While the script sleeps nothing is measured: looking costs processor time too.
func (r *run) watch() (stop func()) {
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		t := time.NewTicker(watchEvery)
		defer t.Stop()
		var since time.Time
		collected := false
		for {
			select {
			case <-done:
				return
			case now := <-t.C:
				if r.asleep.Load() {
					t.Stop()
					select {
					case <-done:
						return
					case <-r.awake:
					}
					t.Reset(watchEvery)
					continue
				}
				if (cpuNanos()-r.cpu0)/1e6 > int64(r.msg.CPUMillis) {
					r.stop(kindCPU)
				}
				if r.stopped() == "" && overMemory(int64(r.msg.MemoryMB)<<20, &collected) {
					r.stop(kindMemory)
				}
				if r.stopped() == "" {
					r.w.link.flush() // console lines must survive a crash
					continue
				}
				if since.IsZero() {
					since = now
				}
				if now.Sub(since) > stubborn {
					r.lastWords()
				}
			}
		}
	}()
	return func() { close(done); <-gone }
}

// lastWords reports a run that ignores its interrupt, and ends the process. The
// script's goroutine sits in native code and cannot be stopped otherwise.
func (r *run) lastWords() {
	kind := r.stopped()
	d := proto.DoneMsg{Kind: kind, Name: "LimitError", Message: r.limitText(kind)}
	func() {
		// The other goroutine owns this data; a torn read can only cost the
		// details of this message.
		defer func() { _ = recover() }()
		st := r.vm.CaptureCallStack(0, nil)
		if len(st) > 0 && st[0].FuncName() != "" {
			d.Message = r.limitText(kind) + " inside " + st[0].FuncName() + "()"
		}
		r.position(&d, st)
	}()
	d.CPUMicros = (cpuNanos() - r.cpu0) / 1000
	if b, err := proto.EncodeDone(&d); err == nil {
		r.w.link.put(proto.Done, r.id, b)
		r.w.link.flush()
	}
	os.Exit(exitLimit)
}
