package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/dop251/goja"
	"golang.org/x/sys/unix"

	"github.com/mcp-portal/mcp-portal/codemode/internal/confine"
	"github.com/mcp-portal/mcp-portal/codemode/internal/proto"
)

// Exit codes of a worker.
const (
	exitUsage       = 2
	exitLimit       = 3 // a built-in function ignored the stop
	exitGatewayGone = 4
)

// memoryBeside is what the kernel grants a worker beside the script's own memory,
// in MiB. Half of it or so is for stacks: one that doubles to maxStack needs 96 for
// a moment, in one piece. The rest is for Go's runtime, what waits for a
// collection, and the gaps between: the kernel counts addresses, not pages, so
// with less a script ended here while it held half of its limit.
const memoryBeside = 96 + 64

// maxStack ends runaway native recursion in bytes of one Go stack.
const maxStack = 64 << 20

// gcPercent lets the heap of a small script, a few MB, grow by 8 MB before a
// collection: with Go's 4 MB collecting would be a fifth of the work of a short
// run. The memory limit sees to large ones.
const gcPercent = 200

// largeHeap is what a run may leave in bytes without its memory being given back.
const largeHeap = 12 << 20

// Args are the arguments after the command's name, made by the gateway.
func Args(memoryMB int, cpuSeconds int) []string {
	return []string{strconv.Itoa(memoryMB), strconv.Itoa(cpuSeconds)}
}

type worker struct {
	link    *link
	prelude prelude
	names   *names              // of the last run; the next one may have the same tools
	guarded *prelude            // made for the first guarded run
	current atomic.Pointer[run] // the run that orders of the gateway concern
}

// Main is the whole life of a worker process and returns its exit code.
func Main(args []string) int {
	memoryMB, cpuSeconds, err := parseArgs(args)
	if err == nil {
		err = checkDescriptors()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "this command is started by the portal itself, not by hand: %v\n", err)
		return exitUsage
	}
	debug.SetMaxStack(maxStack)
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(int64(memoryMB) << 20)
	time.Local = time.UTC
	time.Sleep(time.Millisecond) // makes the runtime create its poller while it may still open descriptors
	unix.CloseOnExec(fdSocket)
	unix.CloseOnExec(fdControl)

	w := &worker{link: newLink(fdSocket)}
	if err := w.link.openBell(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitUsage
	}
	layers := confine.Apply(confine.Options{
		DataBytes:  uint64(memoryMB+memoryBeside) << 20,
		CPUSeconds: uint64(cpuSeconds),
		Nice:       5,
		Given:      []int{fdSocket, fdControl, w.link.bellOut, w.link.bellIn},
		Env:        []string{"GOMAXPROCS", "GOTRACEBACK", "TZ"},
	})
	go control(fdControl, w.obey)

	w.prelude = compilePrelude()
	w.warm()
	vm := w.prelude.newRuntime()
	// What warming up has used is there for the first run: fresh memory would
	// cost it a fault for each page.
	runtime.GC()
	ready, err := json.Marshal(proto.ReadyMsg{Layers: layers})
	if err != nil {
		fmt.Fprintln(os.Stderr, "encode the first message:", err)
		return exitUsage
	}
	w.link.put(proto.Ready, 0, ready)
	w.link.flush()
	return w.serve(vm)
}

func parseArgs(args []string) (memoryMB, cpuSeconds int, err error) {
	if len(args) != 2 {
		return 0, 0, errors.New("it takes two numbers")
	}
	memoryMB, err = strconv.Atoi(args[0])
	if err == nil {
		cpuSeconds, err = strconv.Atoi(args[1])
	}
	if err == nil && (memoryMB < 1 || cpuSeconds < 1) {
		err = errors.New("the numbers must be positive")
	}
	return memoryMB, cpuSeconds, err
}

// warm runs the paths that every script takes, so that tables and templates
// which goja and esbuild make on first use exist before the first user waits.
func (w *worker) warm() {
	const ts = "const x: number = 1; for await (const y of []) console.log(`${y}`, s.t, codemode.s_t); class A { #p = 1 }; return x"
	const js = "const r = await Promise.all([1, 2].map(async x => x)); const o = {}; for (const k of Object.keys({a: 1})) o[k] = (o[k] ?? 0) + 1;" +
		"class A { #p = 1 }; try { null.x } catch (e) { o.e = String(e) } console.log(o, s.t, codemode.s_t);" +
		"return {o, s: [3, 1].sort((a, b) => a - b).join(), m: /a(b)/.exec('ab')[0], d: new Date(0), t: [...new Map([[1, 2]])]}"
	tools := proto.AppendTool(nil, proto.Tool{Outward: "s_t", Identifier: "s_t", Server: "s", Member: "t"})
	for _, code := range []string{ts, js, js} {
		r := newRun(&worker{link: newLink(-1), prelude: w.prelude}, 0, &proto.RunMsg{
			Code: code, Tools: proto.Tools(tools), CPUMillis: 60_000, MemoryMB: 1 << 20, MaxCalls: 1, MaxArgs: 1 << 10, MaxLogs: 0, MaxValue: 1 << 10, MaxBlocks: 1 << 10,
		}, w.prelude.newRuntime())
		r.do()
	}
}

func (w *worker) obey(why byte, id uint32) {
	r := w.current.Load()
	if r == nil || r.id != id {
		return // the run ended meanwhile
	}
	switch why {
	case proto.StopWall:
		r.stop(kindWall)
	case proto.StopCPU:
		r.stop(kindCPU)
	}
}

func (w *worker) serve(fresh *goja.Runtime) int {
	for {
		f, err := w.link.read()
		if err != nil {
			return 0
		}
		if f.Kind != proto.Run {
			continue // an answer that came too late for its run
		}
		m, err := proto.DecodeRun(f.Data)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return exitUsage
		}
		pre, vm := w.prelude, fresh
		if m.Marker != "" {
			if w.guarded == nil {
				g, err := guardedPrelude()
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					return exitUsage
				}
				w.guarded = &g
			}
			pre, vm = *w.guarded, w.guarded.newRuntime()
		}
		r := newRun(w, f.ID, m, vm)
		r.prelude = pre
		w.current.Store(r)
		stopWatch := r.watch()
		d := r.do()
		stopWatch()
		w.current.Store(nil)
		r.finish(&d)
		fresh = w.prelude.newRuntime() // off the path of the next request
		if heapBytes() > largeHeap {
			debug.FreeOSMemory()
		}
	}
}
