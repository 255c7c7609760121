package codemode

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
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
	Time   int64           `json:"t,omitempty"`  // of an answer: Unix milliseconds, the script's clock from then on
	Millis float64         `json:"ms,omitempty"` // of an answer: how long it took
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

	out sync.Mutex // held while an answer is journalled and sent: both are in one order

	// Never held while something is sent: who reads from the worker needs it.
	mu     sync.Mutex
	issued map[int]bool // questions that the script has asked again
	told   int          // answers that it was told again
	held   []Event      // new answers that came before it was told the recorded ones
}

func newTape(e *execution) *tape {
	t := &tape{journal: e.req.Journal, e: e, answered: map[int]Event{}, issued: map[int]bool{}, wake: make(chan struct{}, 1)}
	if e.req.Replay != nil {
		for _, ev := range e.req.Replay.Events {
			if ev.Kind == EventAnswer {
				t.answers = append(t.answers, ev)
				t.answered[ev.N] = ev
			} else {
				t.asked = append(t.asked, ev)
			}
		}
	}
	return t
}

// question notes that the script asked. With an answer it has been asked before
// and will be told that again: nothing is to be done. The error means that the
// script did not repeat itself.
func (t *tape) question(ev Event) (answer Event, again bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
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
	select {
	case t.wake <- struct{}{}:
	default:
	}
	answer, again = t.answered[ev.N]
	return answer, again, nil
}

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
	return errA == nil && errB == nil && reflect.DeepEqual(x, y)
}

// repeat tells the script the recorded answers, each as soon as it has asked
// for it, in their order; then what has come meanwhile.
func (t *tape) repeat(ctx context.Context) {
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
	if t.told < len(t.answers) {
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
	if ev.Failed {
		kind = proto.Error
	}
	head := proto.AnswerHead(ev.Time)
	_ = t.e.w.send(kind, proto.CallID(t.e.id, uint32(ev.N)), head[:], ev.Data)
}
