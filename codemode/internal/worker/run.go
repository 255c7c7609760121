package worker

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dop251/goja"

	"github.com/mcp-portal/mcp-portal/codemode/internal/proto"
)

// run is one script in one fresh runtime.
type run struct {
	w    *worker
	vm   *goja.Runtime
	id   uint32
	msg  *proto.RunMsg
	src  *source
	cpu0 int64
	why  atomic.Pointer[string]

	errorClass goja.Value // the script may replace the global

	asyncIterator *goja.Symbol
	toolTrap      *goja.Object                   // prototype of tools; see trap
	promised      map[*goja.Object]string        // promises of calls, and of which
	links         map[*goja.Object]pageLinks     // of pages that codemode.paginate has yet to look at
	specs         map[string]goja.Value          // documents that codemode.spec was given, by its arguments
	absentTools   map[*goja.Object]func() string // what stands for a tool that does not exist, and what to say
	tested        map[*goja.Object]bool          // of these, those that the script asked for
	spaces        map[*goja.Object]*namespace    // codemode and the servers
	suspects      []suspect                      // promises taken for values
	sent          []sentCall                     // calls of tools, to find those whose answers nobody awaited
	forEach       bool                           // the script gives forEach an async function
	reads         map[string]bool                // fields that the script reads
	fields        map[string]bool                // fields that results had
	lastLabel     string                         // of the last call that was answered
	lastResult    goja.Value

	names     *names
	next      uint32 // last id given to a call or query
	calls     int    // calls made, of MaxCalls
	spent     bool   // a call or query was refused for want of budget
	prelude   prelude
	standIns  map[*goja.Object]*standIn // of a guarded run
	pending   map[uint32]*pendingCall
	timers    map[uint32]*timer
	cleared   map[uint32]struct{} // timers that the script called off
	waits     int                 // timers that the gateway has not answered
	timerSeq  int64
	begun     []*goja.Promise // callbacks of setTimeout that were not done at once
	now       int64           // the script's clock in Unix milliseconds
	looks     int             // at the clock since it moved
	unhandled map[*goja.Promise]struct{}

	taken  uint32        // answers of the gateway so far
	told   uint32        // how many it was told that were taken, and one more; 0: nothing
	asleep atomic.Bool   // the script waits, and has done so for a while
	awake  chan struct{} // it does not any more

	logLeft int
	logged  int
	logsCut int
}

// sentCall is a call of a tool as the script made it.
type sentCall struct {
	label, at string
	promise   *goja.Object
}

// pendingCall is a call or query without its answer.
type pendingCall struct {
	label  string // as the script wrote it: codemode.crm_list
	at     string // "line:column" of the call, "" if unknown
	raw    bool   // give the answer as it is
	query  bool   // of the portal, no tool
	linked bool   // codemode.paginate wants to know its Link header
	// then, if not nil, takes the answer instead of the promise.
	then            func(data []byte) error
	promise         *goja.Promise
	resolve, reject func(any) error
}

func newRun(w *worker, id uint32, m *proto.RunMsg, vm *goja.Runtime) *run {
	r := &run{
		w: w, vm: vm, id: id, msg: m, cpu0: cpuNanos(), logLeft: m.MaxLogs, now: m.StartMillis,
		names: w.names, errorClass: vm.Get("Error"), pending: map[uint32]*pendingCall{}, unhandled: map[*goja.Promise]struct{}{},
		timers: map[uint32]*timer{}, cleared: map[uint32]struct{}{}, awake: make(chan struct{}, 1),
		standIns: map[*goja.Object]*standIn{}, prelude: w.prelude, promised: map[*goja.Object]string{}, absentTools: map[*goja.Object]func() string{}, spaces: map[*goja.Object]*namespace{},
	}
	if !m.KeepTools || r.names == nil {
		r.names = newNames(m.Tools)
		w.names = r.names
	}
	// Chance and time are given, so that the same answers lead to the same
	// calls when the run is replayed.
	random := rand.New(rand.NewPCG(m.Seed, 0))
	vm.SetRandSource(random.Float64)
	vm.SetTimeSource(r.time)
	return r
}

// looksPerMilli is how often a script may look at the clock before it moves by
// itself: the clock stands still between answers, and a loop that waits for it
// must come to an end.
const looksPerMilli = 1000

func (r *run) time() time.Time {
	if r.looks++; r.looks%looksPerMilli == 0 {
		r.now++
	}
	return time.UnixMilli(r.now)
}

// do compiles and runs the script and tells how it ended. A failure of the
// engine itself becomes an error of the run.
func (r *run) do() (d proto.DoneMsg) {
	defer func() {
		if p := recover(); p != nil {
			d = r.failure(asError(p))
		}
	}()
	prg, err := r.compile()
	if err != nil {
		return r.failure(err)
	}
	r.vm.SetPromiseRejectionTracker(func(p *goja.Promise, op goja.PromiseRejectionOperation) {
		if op == goja.PromiseRejectionReject {
			r.unhandled[p] = struct{}{}
		} else {
			delete(r.unhandled, p)
		}
	})
	if err := r.install(); err != nil {
		return r.failure(err)
	}
	v, err := r.vm.RunProgram(prg)
	if err != nil {
		return r.failure(err)
	}
	p, ok := v.Export().(*goja.Promise)
	if !ok {
		return r.failure(fmt.Errorf("the wrapped script gave %s instead of a promise", v.ExportType()))
	}
	return r.settle(p)
}

// settle drives the script to its end and serialises what it returned.
func (r *run) settle(main *goja.Promise) (d proto.DoneMsg) {
	if err := r.drive(func() bool { return main.State() != goja.PromiseStatePending }); err != nil {
		return r.failure(err)
	}
	delete(r.unhandled, main)
	if main.State() == goja.PromiseStateRejected {
		return r.failure(&thrown{main.Result()})
	}
	value := main.Result()
	if len(r.standIns) > 0 { // what the value will be is not known
		r.drain()
		return proto.DoneMsg{OK: true}
	}
	if err := r.returnedFunctions(value); err != nil {
		return r.failure(err)
	}
	for {
		s := newWriter(r.vm, r.msg.MaxValue)
		s.blocks, s.blockLeft = []json.RawMessage{}, r.msg.MaxBlocks
		s.absent = newAbsent()
		if err := r.try(func() { s.value(value, 0) }); err != nil {
			return r.failure(&readError{err})
		}
		if s.rejected != nil {
			delete(r.unhandled, s.rejected)
			return r.failure(&thrown{s.rejected.Result()})
		}
		if len(s.unsettled) == 0 || !r.outstanding() {
			d = proto.DoneMsg{OK: true, ValueCut: s.cut, Content: s.blocks}
			r.explainUnawaited(s)
			if !goja.IsUndefined(value) {
				d.Value = s.b
				r.explainAbsent(s.absent)
				r.explainFunctions(s.functions)
				r.explainEmpty(s.b)
			} else {
				r.explainUndefined()
			}
			break
		}
		// A promise inside the value: what it becomes is what was meant.
		waitFor := s.unsettled
		err := r.drive(func() bool {
			return !slices.ContainsFunc(waitFor, func(p *goja.Promise) bool { return p.State() == goja.PromiseStatePending }) || !r.outstanding()
		})
		if err != nil {
			return r.failure(err)
		}
	}
	for _, n := range r.src.notes {
		r.note("%s", n)
	}
	r.drain()
	return d
}

// explainUndefined says why there is no value, unless the script printed some.
func (r *run) explainUndefined() {
	if r.logLeft == r.msg.MaxLogs {
		r.note("the script returned nothing: end with return value, or with an expression%s", r.lastFields())
	}
}

// explainAbsent says which fields of the value are not in it.
func (r *run) explainAbsent(a *absent) {
	if names := a.never(); len(names) > 0 {
		more := ""
		if n := len(names) - 8; n > 0 {
			names, more = names[:8], fmt.Sprintf(" and %d more", n)
		}
		for i := range names {
			names[i] = clip(names[i], 60)
		}
		r.note("undefined everywhere, so not in the value: %s%s%s", strings.Join(names, ", "), more, r.lastFields())
	}
	if a.lists > 0 {
		r.note("%s only undefined, written as null: does the callback return something?%s", plural(a.lists, "list of the value holds", "lists of the value hold"), r.lastFields())
	}
}

// explainFunctions names functions inside the value: somebody forgot to call
// them.
func (r *run) explainFunctions(names []string) {
	if n := len(names); n > 0 {
		more := ""
		if n > 5 {
			names, more = names[:5], fmt.Sprintf(" and %d more", n-5)
		}
		r.note("the value holds functions that were not called (%s%s): return what they give, as in await f()", strings.Join(names, ", "), more)
	}
}

func (r *run) forEachAdvice() string {
	if !r.forEach {
		return ""
	}
	return ". forEach does not wait for async functions: what comes after it runs first. Write for (const x of list) { await … }, or await Promise.all(list.map(async x => …))"
}

// try runs Go code that can run script code.
func (r *run) try(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = asError(p)
		}
	}()
	if ex := r.vm.Try(f); ex != nil {
		return ex
	}
	return nil
}

func (r *run) outstanding() bool { return len(r.pending) > 0 || len(r.timers) > 0 }

// drive feeds answers to the script until done says so.
func (r *run) drive(done func() bool) error {
	for !done() {
		if !r.outstanding() {
			return errDeadlock
		}
		if err := r.wait(); err != nil {
			return err
		}
	}
	return nil
}

// drain waits for calls nobody awaited: they may have written, and the caller
// must not be told the end before their outcome is known.
func (r *run) drain() {
	lookedAt := 0
	for _, p := range r.pending {
		if p.promise != nil && awaited(p.promise) {
			lookedAt++
		}
	}
	if lookedAt > 0 && lookedAt == len(r.pending) && !r.forEach { // as after Promise.race
		r.note("%s still under way at the end (%s); waited for the answer", plural(lookedAt, "call was", "calls were"), r.waitingFor())
	} else if n := len(r.pending); n > 0 {
		r.note("%s not awaited (%s); waited for the answer%s", plural(n, "call was", "calls were"), r.waitingFor(), r.forEachAdvice())
	}
	for len(r.pending) > 0 {
		if err := r.wait(); err != nil {
			if k := r.stopped(); k != "" {
				r.note("%s before %s answered: %s", r.limitText(k), plural(len(r.pending), "call had", "calls had"), r.waitingFor())
			} else {
				d := r.failure(err)
				r.note("after the end of the script: %s", oneLine(d.Name, d.Message, d.Line))
			}
			break
		}
	}
	r.explainTimers()
	said := 0
	for p := range r.unhandled {
		if said++; said > 3 {
			r.note("%d more promises failed with nobody to see it", len(r.unhandled)-3)
			break
		}
		d := r.failure(&thrown{p.Result()})
		r.note("a promise that was not awaited failed: %s", oneLine(d.Name, d.Message, d.Line))
	}
}

// finish sends the last message of the run.
func (r *run) finish(d *proto.DoneMsg) {
	d.LogsCut = r.logsCut
	d.CPUMicros = (cpuNanos() - r.cpu0) / 1000
	d.HeapKB = heapBytes() / 1024
	b, err := proto.EncodeDone(d)
	if err != nil {
		b, _ = proto.EncodeDone(&proto.DoneMsg{Kind: kindEngine, Name: "EngineError", Message: "the value could not be encoded: " + err.Error()})
	}
	r.w.link.put(proto.Done, r.id, b)
	r.w.link.flush()
}

func (r *run) waitingFor() string {
	ids := make([]uint32, 0, len(r.pending))
	for id := range r.pending {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	var names []string
	for i, id := range ids {
		if i == 5 {
			names = append(names, fmt.Sprintf("%d more", len(ids)-5))
			break
		}
		names = append(names, r.pending[id].label)
	}
	return strings.Join(names, ", ")
}

// wait takes one answer and lets the script go on.
func (r *run) wait() error {
	r.w.link.flush()
	defer r.wake()
	for patience := shortWait; ; {
		if k := r.stopped(); k != "" {
			return &limitError{kind: k, waiting: r.waitingFor()}
		}
		if !r.w.link.ready(patience) {
			r.sleeps()
			patience = -1
			continue
		}
		f, err := r.w.link.read()
		if err != nil {
			return fmt.Errorf("the gateway went away: %w", err)
		}
		now, data, err := proto.DecodeAnswer(f.Data)
		if err != nil {
			return err
		}
		f.Data = data
		p, t := r.pending[f.ID], r.timers[f.ID]
		if _, called := r.cleared[f.ID]; called {
			delete(r.cleared, f.ID)
			r.waits--
		}
		if proto.OfRun(f.ID, r.id) {
			r.taken++
		}
		if p == nil && t == nil {
			continue // of an earlier run, or called off
		}
		r.wake()
		if now > r.now {
			r.now, r.looks = now, 0
		}
		if t != nil {
			delete(r.timers, f.ID)
			r.waits--
			_, err := t.fire()
			return err
		}
		delete(r.pending, f.ID)
		return r.answer(p, f)
	}
}

// shortWait is how many milliseconds an answer may take before the wait for it
// is a sleep.
const shortWait = 5

// sleeps says that the script waits: to the watch, and, unless it has been told
// that, to the gateway if nothing but an answer to a call can make it go on.
func (r *run) sleeps() {
	r.asleep.Store(true)
	if len(r.timers) == 0 && r.told != r.taken+1 {
		r.told = r.taken + 1
		r.w.link.put(proto.Idle, r.id, proto.EncodeIdle(r.taken))
		r.w.link.flush()
	}
}

// wake ends a sleep.
func (r *run) wake() {
	if r.asleep.Swap(false) {
		select {
		case r.awake <- struct{}{}:
		default:
		}
	}
}

// answer settles the promise of one call.
func (r *run) answer(p *pendingCall, f proto.Frame) error {
	if f.Kind == proto.Later {
		o, err := r.standInFor(proto.Ref{Question: int(proto.CallNumber(f.ID)), Raw: p.raw})
		if err != nil {
			return err
		}
		return p.resolve(o)
	}
	if f.Kind == proto.Error {
		var m proto.ErrorMsg
		if err := json.Unmarshal(f.Data, &m); err != nil {
			return fmt.Errorf("error from the gateway: %w", err)
		}
		return p.reject(r.callError(p, m.Code, m.Message))
	}
	if p.then != nil {
		return p.then(f.Data)
	}
	var v goja.Value
	var failed *toolError
	err := r.try(func() {
		var err error
		if p.raw {
			v, err = parseJSON(r.vm, f.Data)
		} else {
			v, err = unwrap(r.vm, f.Data, func(what string) {
				r.note("the result of %s is malformed: %s; the rest of it is what the code got. codemode.raw(…) gives it as it came", p.label, what)
			})
		}
		if err != nil {
			failed = asToolError(err)
		}
	})
	if err != nil {
		return err
	}
	if failed != nil {
		e := r.callError(p, failed.code, failed.text)
		if failed.data != nil {
			if err := e.Set("data", failed.data); err != nil {
				return err
			}
		}
		return p.reject(e)
	}
	if !p.query {
		r.lastLabel, r.lastResult = p.label, v
		if len(r.reads) > 0 {
			if err := r.try(func() { r.sees(v, 0) }); err != nil {
				return err
			}
		}
	}
	if o, ok := v.(*goja.Object); ok && p.linked {
		r.noteLinks(o, f.Data)
	}
	return p.resolve(v)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
