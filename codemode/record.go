package codemode

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"runtime/debug"
	"sync"

	"github.com/mcp-portal/mcp-portal/codemode/internal/proto"
	"github.com/mcp-portal/mcp-portal/codemode/internal/worker"
)

// A script cannot be frozen and thawed, but it can be run again: given the same
// chance, the same clock and the same answers in the same order it asks the same
// questions. So what a run asked and was told is its state, and a run can go on
// in another process, or long after its own has ended.

// Recording is what a run needs to be run again.
type Recording struct {
	Version string  // of what runs scripts; see Version
	Seed    uint64  // of chance
	Start   int64   // Unix milliseconds
	Events  []Event // in the order in which they happened
	// Loose says that the script need not repeat itself, since not all came about
	// that it was told: what it asks again, in whatever order, is answered as
	// recorded, and the rest is new. The Journal is told everything then.
	Loose bool
}

// Kinds of Event.
const (
	EventCall   = "call"   // the script called a tool
	EventQuery  = "query"  // the script asked the host, or started a timer
	EventAnswer = "answer" // the script was told the answer to either
)

// Event is one thing that a script did or was told.
type Event struct {
	Kind   string          `json:"k"`
	N      int             `json:"n"`              // number of the question, from 1, calls and queries together
	Name   string          `json:"name,omitempty"` // of the tool or query
	Data   json.RawMessage `json:"data,omitempty"` // arguments; of an answer the result, or {code, message}
	Failed bool            `json:"failed,omitempty"`
	Later  bool            `json:"later,omitempty"` // of an answer: a stand-in was given for it
	Time   int64           `json:"t,omitempty"`     // of an answer: Unix milliseconds, the script's clock from then on
	Millis float64         `json:"ms,omitempty"`    // of an answer: how long it took
}

// Journal keeps the events of a run. Add is called in their order, one at a
// time, and must not block.
type Journal interface {
	Add(Event)
}

// Version names what a recording depends on besides its events: the engine and
// its built-ins. A recording of another version must not be replayed.
func Version() string {
	h := sha256.New()
	h.Write([]byte(worker.PreludeSource()))
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, m := range b.Deps {
			if m.Path == "github.com/dop251/goja" || m.Path == "github.com/evanw/esbuild" {
				fmt.Fprintln(h, m.Path, m.Version, m.Sum)
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// tape is the recording of a run under way: it repeats what was recorded and
// adds what is new.
type tape struct {
	journal Journal // nil: nobody keeps it
	e       *execution

	asked    []Event       // recorded questions, in order
	answers  []Event       // recorded answers, in order
	answered map[int]Event // the same by question
	wake     chan struct{} // something was asked again
	loose    bool          // see Recording
	taken    []bool        // of a loose one: questions that were asked again

	out sync.Mutex // held while an answer is journalled and sent: both are in one order

	// Never held while something is sent: who reads from the worker needs it.
	mu     sync.Mutex
	issued map[int]bool // questions that the script has asked again
	told   int          // answers that it was told again
	ready  []Event      // of a loose recording: answers to what was asked again
	held   []Event      // new answers that came before it was told the recorded ones
}

func newTape(e *execution) *tape {
	t := &tape{journal: e.req.Journal, e: e, answered: map[int]Event{}, issued: map[int]bool{}, wake: make(chan struct{}, 1)}
	if e.req.Replay != nil {
		t.loose = e.req.Replay.Loose
		for _, ev := range e.req.Replay.Events {
			if ev.Kind == EventAnswer {
				t.answers = append(t.answers, ev)
				t.answered[ev.N] = ev
			} else {
				t.asked = append(t.asked, ev)
			}
		}
	}
	t.taken = make([]bool, len(t.asked))
	return t
}

// question notes that the script asked. With an answer it has been asked before
// and will be told that again: nothing is to be done. The error means that the
// script did not repeat itself.
func (t *tape) question(ev Event) (answer Event, again bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.loose {
		if t.journal != nil {
			t.journal.Add(ev)
		}
		answer, again = t.match(ev)
		if again {
			t.ready = append(t.ready, answer)
			t.nudge()
		}
		return answer, again, nil
	}
	if ev.N > len(t.asked) {
		if t.journal != nil {
			t.journal.Add(ev)
		}
		return Event{}, false, nil
	}
	was := t.asked[ev.N-1]
	if was.N != ev.N || was.Kind != ev.Kind || was.Name != ev.Name || !sameJSON(was.Data, ev.Data) {
		return Event{}, false, &limitReached{kindEngine, fmt.Sprintf("the code did not repeat itself when it was continued: question %d was %s with %.200s, now it is %s with %.200s. Nothing more was sent", ev.N, was.Name, was.Data, ev.Name, ev.Data)}
	}
	t.issued[ev.N] = true
	t.nudge()
	answer, again = t.answered[ev.N]
	return answer, again, nil
}

// nudge says that something was asked again.
func (t *tape) nudge() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// match finds the recorded answer of a question that a loose recording has, as
// the answer to this one. The caller holds mu.
func (t *tape) match(ev Event) (Event, bool) {
	for i, was := range t.asked {
		if t.taken[i] || was.Kind != ev.Kind || was.Name != ev.Name || !sameJSON(was.Data, ev.Data) {
			continue
		}
		t.taken[i] = true
		answer, ok := t.answered[was.N]
		answer.N = ev.N
		return answer, ok
	}
	return Event{}, false
}

// repeatLoosely answers what is asked again as it is asked.
func (t *tape) repeatLoosely(ctx context.Context) {
	for {
		t.mu.Lock()
		ready := t.ready
		t.ready = nil
		t.mu.Unlock()
		for _, ev := range ready {
			t.answer(ev)
		}
		select {
		case <-t.wake:
		case <-ctx.Done():
			return
		}
	}
}

// knows tells whether a question was asked before the run was continued.
func (t *tape) knows(n int) bool { return !t.loose && len(t.asked) >= n }

// sameJSON compares what may have been written anew on its way through a store:
// compacted, with other escapes.
func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	read := func(data []byte) (v any, err error) {
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber() // every digit counts
		err = d.Decode(&v)
		return v, err
	}
	x, errA := read(a)
	y, errB := read(b)
	return errA == nil && errB == nil && sameValue(x, y)
}

// sameValue compares decoded JSON. A number that came from a result and one that
// a script wrote again can differ in how they are written: 1.0 and 1.
func sameValue(a, b any) bool {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k, v := range x {
			if w, ok := y[k]; !ok || !sameValue(v, w) {
				return false
			}
		}
		return true
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !sameValue(x[i], y[i]) {
				return false
			}
		}
		return true
	case json.Number:
		y, ok := b.(json.Number)
		if !ok || x == y {
			return ok
		}
		if _, whole := new(big.Int).SetString(string(x), 10); whole {
			if _, whole := new(big.Int).SetString(string(y), 10); whole {
				return false // every digit counts
			}
		}
		f, errX := x.Float64()
		h, errY := y.Float64()
		return errX == nil && errY == nil && f == h
	}
	return a == b
}

// repeat tells the script the recorded answers, each as soon as it has asked
// for it, in their order; then what has come meanwhile.
func (t *tape) repeat(ctx context.Context) {
	if t.loose {
		t.repeatLoosely(ctx)
		return
	}
	for t.told < len(t.answers) { // nobody else changes it
		next := t.answers[t.told]
		t.mu.Lock()
		ready := t.issued[next.N]
		t.mu.Unlock()
		if !ready {
			select {
			case <-t.wake:
			case <-ctx.Done():
				return
			}
			continue
		}
		t.out.Lock()
		t.send(next)
		t.mu.Lock()
		t.told++
		var late []Event
		if t.told == len(t.answers) {
			late, t.held = t.held, nil
		}
		t.mu.Unlock()
		for _, ev := range late {
			t.add(ev)
			t.send(ev)
		}
		t.out.Unlock()
	}
}

// answer tells the script something new and keeps it.
func (t *tape) answer(ev Event) {
	t.out.Lock()
	defer t.out.Unlock()
	t.mu.Lock()
	if !t.loose && t.told < len(t.answers) {
		t.held = append(t.held, ev)
		t.mu.Unlock()
		return
	}
	t.mu.Unlock()
	t.add(ev)
	t.send(ev)
}

func (t *tape) add(ev Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.journal != nil {
		t.journal.Add(ev)
	}
}

// send hands an answer to the worker, once the run has a place. A broken
// connection ends the run in listen.
func (t *tape) send(ev Event) {
	if t.e.rest.answer(t.e.calls.ctx) != nil {
		return
	}
	kind := proto.Result
	switch {
	case ev.Later:
		kind = proto.Later
	case ev.Failed:
		kind = proto.Error
	}
	head := proto.AnswerHead(ev.Time)
	_ = t.e.w.send(kind, proto.CallID(t.e.id, uint32(ev.N)), head[:], ev.Data)
}
