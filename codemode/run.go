package codemode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mcp-portal/mcp-portal/codemode/internal/proto"
)

// Kinds of ScriptError that this side decides; the others come from the worker.
const (
	kindSyntax      = "syntax"
	kindException   = "exception"
	kindWall        = "wall"
	kindCPU         = "cpu"
	kindMemory      = "memory"
	kindStack       = "stack"
	kindCalls       = "calls"
	kindDeadlock    = "deadlock"
	kindCancelled   = "cancelled"
	kindEngine      = "engine"
	kindBusy        = "busy"
	kindUnavailable = "unavailable"
)

const (
	killGrace     = 400 * time.Millisecond // between the order to stop and the kill
	cpuSlack      = 500 * time.Millisecond // beyond which a worker ignores its own limit
	settleFor     = time.Second            // for calls in flight when a script failed
	frameSlack    = 64 << 10               // room for envelopes and notes
	reusableHeap  = 32 << 10               // KiB; a worker with more left is retired
	maxLogLines   = 10_000
	maxTimers     = 10_000
	queuePatience = 30 * time.Second // a run waits at least so long for a place
)

// limits fills in those of the configuration and keeps a request from exceeding
// what the workers were started with.
func (p *Pool) limits(l Limits) Limits {
	c := p.code.Load()
	dur := func(v, d time.Duration) time.Duration {
		if v <= 0 {
			return d
		}
		return v
	}
	num := func(v, d int) int {
		if v <= 0 {
			return d
		}
		return v
	}
	return Limits{
		Wall: dur(l.Wall, c.WallTime), CPU: min(dur(l.CPU, c.CPUTime), c.CPUTime), MemoryMB: min(num(l.MemoryMB, c.MemoryMB), c.MemoryMB),
		MaxCalls: min(num(l.MaxCalls, c.MaxCalls), maxCallsCap), Parallel: num(l.Parallel, c.Parallel), MaxSource: num(l.MaxSource, c.MaxSource),
		MaxCallResult: num(l.MaxCallResult, c.MaxCallResult), MaxLogs: num(l.MaxLogs, c.MaxLogs), MaxArguments: num(l.MaxArguments, c.MaxArguments),
		MaxValue: num(l.MaxValue, c.MaxValue), MaxContent: num(l.MaxContent, c.MaxContent),
	}
}

// argumentsInFlight is how many bytes the arguments of unfinished calls may
// have, all together: twice what can be under way at once.
func (l Limits) argumentsInFlight() int { return 2 * l.Parallel * l.MaxArguments }

// Run runs one script. Whatever the script does is in Outcome.Error; so are a
// full queue ("busy") and a sandbox that cannot start ("unavailable"). The
// returned error is non-nil only when ctx was cancelled or the pool is closed,
// and then the Outcome, if there is one, tells what had happened by then.
func (p *Pool) Run(ctx context.Context, req Request, host Host) (*Outcome, error) {
	lim := p.limits(req.Limits)
	if len(req.Code) > lim.MaxSource {
		return p.refused(kindSyntax, fmt.Sprintf("the code has %d bytes, at most %d are allowed; split the work into several runs", len(req.Code), lim.MaxSource)), nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()

	var busy *busyError
	place, err := p.turns.take(ctx, req.Owner, max(lim.Wall, queuePatience))
	if errors.As(err, &busy) {
		return p.refused(kindBusy, busy.message), nil
	} else if err != nil {
		return p.interrupted(nil, err)
	}
	defer place.give()

	w, err := p.acquire(ctx, req.Owner)
	if errors.Is(err, errClosed) || ctx.Err() != nil {
		if err == nil {
			p.release(w, true)
		}
		return p.interrupted(nil, ctx.Err())
	}
	if err != nil {
		return p.refused(kindUnavailable, "code cannot be run now: "+err.Error()+"; call the tools one by one instead, and tell the administrator"), nil
	}
	e := newExecution(p, w, req, p.limits(req.Limits), host, place) // of now: the worker was started for them
	out, reusable := e.run(ctx)
	p.release(w, reusable)
	p.count(out)
	if ctx.Err() != nil {
		return p.interrupted(out, ctx.Err())
	}
	return out, nil
}

func (p *Pool) refused(kind, message string) *Outcome {
	o := &Outcome{Error: &ScriptError{Kind: kind, Name: errorNames[kind], Message: message}}
	p.count(o)
	return o
}

func (p *Pool) interrupted(o *Outcome, err error) (*Outcome, error) {
	if o == nil {
		o = &Outcome{}
	}
	if p.ctx.Err() != nil {
		err = errClosed
	}
	o.Value, o.Content = nil, nil
	o.Error = &ScriptError{Kind: kindCancelled, Name: errorNames[kindCancelled], Message: "the run was cancelled"}
	if err == errClosed {
		o.Error.Message = "the portal is shutting down; send this again in a moment"
	}
	return o, err
}

var errorNames = map[string]string{
	kindSyntax: "SyntaxError", kindException: "Error", kindWall: "LimitError", kindCPU: "LimitError", kindMemory: "LimitError",
	kindStack: "RangeError", kindCalls: "LimitError", kindDeadlock: "DeadlockError", kindCancelled: "CancelledError",
	kindEngine: "EngineError", kindBusy: "BusyError", kindUnavailable: "UnavailableError",
}

// execution is one run on one worker.
type execution struct {
	pool  *Pool
	w     *process
	req   Request
	lim   Limits
	id    uint32
	calls *callList
	rest  *rest
	start time.Time
	cpu0  time.Duration

	keepTools bool // the worker has them

	over     atomic.Pointer[string] // limit that this side found exceeded
	caught   atomic.Pointer[error]  // what the worker did that it must not
	logs     []string
	logBytes int
}

func newExecution(p *Pool, w *process, req Request, lim Limits, host Host, place *place) *execution {
	w.uses++
	e := &execution{pool: p, w: w, req: req, lim: lim, id: uint32(w.uses), start: time.Now(), rest: newRest(place, req.Rests)}
	e.cpu0, _ = cpuTime(w.cmd.Process.Pid)
	e.keepTools = w.offer(req.Tools)
	e.calls = newCallList(e, host)
	if req.Guarded {
		e.rest.give = e.calls.standIn
	}
	return e
}

// run supervises the worker until the run has ended one way or another.
func (e *execution) run(ctx context.Context) (*Outcome, bool) {
	callCtx, cancel := context.WithCancel(ctx)
	defer cancel() // ends calls that are still in flight
	e.calls.ctx = callCtx
	defer context.AfterFunc(ctx, e.w.kill)()

	msg := &proto.RunMsg{
		Code: e.req.Code, CPUMillis: int(e.lim.CPU / time.Millisecond), WallMillis: int(e.lim.Wall / time.Millisecond),
		MemoryMB: e.lim.MemoryMB, MaxCalls: e.lim.MaxCalls, MaxArgs: e.lim.MaxArguments, MaxLogs: e.lim.MaxLogs, MaxValue: e.lim.MaxValue, MaxBlocks: e.lim.MaxContent,
		Seed: e.req.Seed, StartMillis: e.req.Start,
	}
	if r := e.req.Replay; r != nil {
		msg.Seed, msg.StartMillis = r.Seed, r.Start
	}
	if msg.StartMillis == 0 {
		msg.Seed, msg.StartMillis = rand.Uint64(), time.Now().UnixMilli()
	}
	if msg.KeepTools = e.keepTools; !msg.KeepTools {
		msg.Tools = e.w.offered.list
	}
	msg.Withheld = e.req.Withheld
	if e.req.Guarded {
		msg.Marker = Marker(msg.Seed)
	}
	data, err := proto.EncodeRun(msg)
	if err != nil {
		e.w.offered = nil // it was not told
		return e.outcome(nil, &ScriptError{Kind: kindEngine, Message: err.Error()}), true
	}
	go e.calls.tape.repeat(callCtx)
	if e.req.Paused != nil {
		defer e.req.Paused.follow(e.rest.waiting)()
	}
	stopClock := e.clock()
	defer stopClock()
	// The worker reads before it does anything else, so this write ends.
	if err := e.w.send(proto.Run, e.id, data); err != nil {
		return e.outcome(nil, e.ended(err)), false
	}
	done, err := e.listen()
	stopClock()
	var look *Looked
	if errors.As(err, &look) {
		e.w.kill() // it waits for that
		out := e.outcome(nil, &ScriptError{Kind: kindEngine, Message: look.Error()})
		out.Looked = look
		return out, false
	}
	if err != nil {
		failure := e.ended(err)
		return e.outcome(nil, failure), false
	}
	if !done.OK {
		e.calls.settle(settleFor)
		failure := scriptError(done)
		reusable := failure.Kind == kindSyntax || failure.Kind == kindException || failure.Kind == kindCalls || failure.Kind == kindDeadlock
		return e.outcome(done, failure), reusable && e.over.Load() == nil && done.HeapKB < reusableHeap
	}
	return e.outcome(done, nil), e.over.Load() == nil && done.HeapKB < reusableHeap
}

// limit is the largest payload of each kind of frame.
func (e *execution) limit(k proto.Kind) int {
	switch k {
	case proto.Call, proto.Query:
		return e.lim.MaxArguments + frameSlack
	case proto.Log:
		return e.lim.MaxLogs + frameSlack
	case proto.Idle:
		return 4
	case proto.Look:
		if e.req.Guarded {
			return 256
		}
	case proto.Done:
		return e.lim.MaxValue + e.lim.MaxContent + 2*frameSlack
	}
	return -1
}

// listen takes frames until the run is done. The worker may be hostile: every
// frame is counted, measured and checked.
func (e *execution) listen() (*proto.DoneMsg, error) {
	for {
		f, err := proto.Read(e.w.br, e.limit)
		if err != nil {
			return nil, err
		}
		switch f.Kind {
		case proto.Log, proto.Call, proto.Query:
			if err := e.rest.acts(f.Kind); err != nil {
				return nil, err
			}
		}
		switch f.Kind {
		case proto.Idle:
			if f.ID != e.id {
				return nil, fmt.Errorf("%w: run %d waits during run %d", proto.ErrProtocol, f.ID, e.id)
			}
			if err := e.rest.idles(f.Data); err != nil {
				return nil, err
			}
		case proto.Look:
			return nil, looked(f.Data)
		case proto.Log:
			if err := e.log(f.Data); err != nil {
				return nil, err
			}
		case proto.Call, proto.Query:
			if err := e.calls.add(f); err != nil {
				return nil, err
			}
		case proto.Done:
			if f.ID != e.id {
				return nil, fmt.Errorf("%w: the end of run %d during run %d", proto.ErrProtocol, f.ID, e.id)
			}
			return e.done(f.Data)
		}
	}
}

func (e *execution) log(line []byte) error {
	e.logBytes += len(line) + 1
	if e.logBytes > e.lim.MaxLogs+frameSlack || len(e.logs) >= maxLogLines {
		return fmt.Errorf("%w: more console output than allowed", proto.ErrProtocol)
	}
	e.logs = append(e.logs, strings.ToValidUTF8(string(line), "\ufffd"))
	return nil
}

func (e *execution) done(data []byte) (*proto.DoneMsg, error) {
	var d proto.DoneMsg
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fmt.Errorf("%w: the last message: %v", proto.ErrProtocol, err)
	}
	if len(d.Value) > e.lim.MaxValue+frameSlack {
		return nil, fmt.Errorf("%w: the value has %d bytes, at most %d are allowed", proto.ErrProtocol, len(d.Value), e.lim.MaxValue)
	}
	n := 0
	for _, c := range d.Content {
		if n += len(c); n > e.lim.MaxContent+frameSlack {
			return nil, fmt.Errorf("%w: more content than allowed", proto.ErrProtocol)
		}
	}
	if !d.OK && errorNames[d.Kind] == "" {
		return nil, fmt.Errorf("%w: unknown end %.40q", proto.ErrProtocol, d.Kind)
	}
	return &d, nil
}

func (e *execution) outcome(d *proto.DoneMsg, failure *ScriptError) *Outcome {
	o := &Outcome{Logs: e.logs, Error: failure, Wall: time.Since(e.start)}
	o.Calls = e.calls.snapshot()
	if failure != nil {
		if failure.Name == "" {
			failure.Name = errorNames[failure.Kind]
		}
		if isLimit(failure.Kind) {
			failure.Message += callsSoFar(o.Calls)
		}
	}
	if d != nil {
		o.LogsCut = max(d.LogsCut, 0)
		o.CPU = time.Duration(d.CPUMicros) * time.Microsecond
		if failure == nil {
			o.Value, o.ValueCut, o.Content = d.Value, d.ValueCut, d.Content
		}
	}
	if used, ok := cpuTime(e.w.cmd.Process.Pid); ok && used >= e.cpu0 {
		o.CPU = used - e.cpu0
	}
	return o
}

func isLimit(kind string) bool {
	return kind == kindWall || kind == kindCPU || kind == kindMemory || kind == kindStack || kind == kindEngine
}

// callsSoFar tells which calls happened: without it a retry would repeat writes.
func callsSoFar(calls []CallRecord) string {
	if len(calls) == 0 {
		return ""
	}
	n := map[string]int{}
	for _, c := range calls {
		n[c.Status]++
	}
	return fmt.Sprintf(" (calls: %d done, %d failed, %d in flight with unknown outcome, %d not started)", n[callOK], n[callError], n[callInFlight], n[callNotStarted])
}

func scriptError(d *proto.DoneMsg) *ScriptError {
	const most = 8 << 10
	return &ScriptError{Kind: d.Kind, Name: cutText(d.Name, 200), Message: cutText(d.Message, most), Line: max(d.Line, 0), Column: max(d.Column, 0), Code: cutText(d.Code, 200)}
}

func cutText(s string, n int) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "") + "…"
	}
	return s
}
