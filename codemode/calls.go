package codemode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/codemode/internal/proto"
)

// Values of CallRecord.Status.
const (
	callOK         = "ok"
	callError      = "error"
	callInFlight   = "in_flight"
	callNotStarted = "not_started"
	callHeld       = "planned"
)

// callList runs the calls of one script: in issue order, a few at once. A slot
// is held until the answer is written, which bounds the answers in memory to
// Parallel times MaxCallResult.
type callList struct {
	e    *execution
	host Host
	ctx  context.Context

	mu      sync.Mutex
	records []CallRecord
	queue   []job
	held    []job  // that can be given a stand-in, in order
	next    uint32 // last number of a call or query
	queries int
	args    int // bytes of unfinished calls
	running int
	closed  bool
	freed   chan struct{} // closed and replaced when a place becomes free

	away      int           // of those running, calls that wait for a person
	returning int           // of those, calls that want their places again
	idle      chan struct{} // closed when the last running call ends after closed
	alarms    *alarms
	tape      *tape
}

type job struct {
	n     int // of the question
	index int // in records; -1 for a query
	name  string
	args  json.RawMessage
	known bool // it was asked before the run was continued, and its answer is not known

	offered bool // the tool is one of the run's
}

func newCallList(e *execution, host Host) *callList {
	c := &callList{e: e, host: host, idle: make(chan struct{}), freed: make(chan struct{}), tape: newTape(e)}
	c.alarms = newAlarms(func(n int) {
		c.tape.answer(Event{Kind: EventAnswer, N: n, Data: json.RawMessage("null"), Time: time.Now().UnixMilli()})
	})
	return c
}

// add takes one Call or Query frame.
func (c *callList) add(f proto.Frame) error {
	name, args, err := proto.DecodeCall(f.Data)
	if err != nil {
		return err
	}
	if most := c.e.lim.MaxArguments; len(args) > most || !json.Valid(args) {
		return fmt.Errorf("%w: the arguments of a call are no JSON of at most %d bytes", proto.ErrProtocol, most)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	if f.ID != proto.CallID(c.e.id, c.next) {
		return fmt.Errorf("%w: call %d out of order", proto.ErrProtocol, f.ID)
	}
	c.args += len(args)
	if most := c.e.lim.argumentsInFlight(); c.args > most {
		return &limitReached{kindCalls, fmt.Sprintf("the arguments of the calls in flight add up to more than the limit of %d bytes: await calls before making more", most)}
	}
	ev := Event{Kind: EventCall, N: int(c.next), Name: name, Data: args}
	if f.Kind == proto.Query {
		ev.Kind = EventQuery
	}
	known := c.tape.knows(ev.N)
	answer, answered, err := c.tape.question(ev)
	if err != nil {
		return err
	}
	j := job{n: ev.N, index: -1, name: name, args: args, known: known}
	if f.Kind == proto.Query && name == proto.TimerQuery {
		c.args -= len(args)
		if answered {
			return nil
		}
		return c.timer(j)
	}
	if f.Kind == proto.Query {
		if c.queries++; c.queries > 8*c.e.lim.MaxCalls {
			return fmt.Errorf("%w: more queries than allowed", proto.ErrProtocol)
		}
	} else {
		if len(c.records) >= c.e.lim.MaxCalls {
			return fmt.Errorf("%w: more than %d calls", proto.ErrProtocol, c.e.lim.MaxCalls)
		}
		j.index, j.offered = len(c.records), c.e.w.offered.has(name)
		c.records = append(c.records, CallRecord{Seq: j.index + 1, Tool: cutText(name, 200), Status: callNotStarted})
	}
	if answered {
		c.args -= len(args)
		if j.index >= 0 {
			c.records[j.index].ended(answer)
		}
		return nil
	}
	c.queue = append(c.queue, j)
	c.startLocked()
	return nil
}

// timer answers after a while. Timers take no place of a call.
func (c *callList) timer(j job) error {
	ms, err := strconv.Atoi(string(j.args))
	if err != nil || ms < 0 || ms > proto.MaxTimerMillis || !c.alarms.add(j.n, time.Duration(ms)*time.Millisecond, maxTimers+1) {
		return fmt.Errorf("%w: timer %.40q, or too many", proto.ErrProtocol, j.args)
	}
	return nil
}

func (c *callList) startLocked() {
	for c.running-c.away+c.returning < c.e.lim.Parallel && len(c.queue) > 0 && !c.closed {
		j := c.queue[0]
		c.queue = c.queue[1:]
		c.running++
		c.e.rest.call(1)
		if j.index >= 0 {
			c.records[j.index].Status = callInFlight
		}
		go c.do(j)
	}
}

func (c *callList) do(j job) {
	began := time.Now()
	result, err := c.ask(j)
	var held *Held
	if errors.As(err, &held) {
		c.hold(j, held.StandIn)
		return
	}
	ev := c.event(j, result, err, time.Since(began))

	c.mu.Lock()
	if j.index >= 0 && c.ctx.Err() == nil {
		r := &c.records[j.index]
		r.ended(ev)
		if err == nil {
			r.BytesOut = len(result)
		}
	}
	c.mu.Unlock()

	if c.ctx.Err() == nil {
		c.tape.answer(ev)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.args -= len(j.args)
	c.running--
	c.freedLocked()
	c.e.rest.call(-1)
	c.startLocked()
	if c.closed && c.running == 0 {
		close(c.idle)
	}
}

// hold leaves a call without an answer. It takes no place among those that run
// at once: a plan can have many.
func (c *callList) hold(j job, standIn bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if j.index >= 0 {
		c.records[j.index].Status = callHeld
	}
	c.args -= len(j.args)
	c.running--
	c.freedLocked()
	if standIn {
		i := len(c.held)
		for i > 0 && c.held[i-1].n > j.n {
			i--
		}
		c.held = slices.Insert(c.held, i, j)
	}
	c.e.rest.hold(standIn)
	c.startLocked()
	if c.closed && c.running == 0 {
		close(c.idle)
	}
}

// ended notes how a call came out.
func (r *CallRecord) ended(answer Event) {
	r.Millis = answer.Millis
	if !answer.Failed {
		r.Status, r.BytesOut = callOK, len(answer.Data)
		if text, failed := Failure(answer.Data); failed {
			r.Status, r.Error = callError, cutText(text, 500)
		}
		return
	}
	r.Status = callError
	var m proto.ErrorMsg
	if json.Unmarshal(answer.Data, &m) == nil {
		r.Error = cutText(m.Message, 500)
	}
}

func (c *callList) ask(j job) (json.RawMessage, error) {
	if j.index < 0 {
		return c.host.Query(c.ctx, j.name, j.args)
	}
	if !j.offered {
		return nil, &HostError{Code: "unknown_tool", Message: fmt.Sprintf("there is no tool %.80q in this run", j.name)}
	}
	return c.host.Call(c.ctx, HostCall{Seq: j.index + 1, Question: j.n, Tool: j.name, Arguments: j.args, Known: j.known, Aside: c.aside})
}

// event is the answer to a question as the script is told.
func (c *callList) event(j job, result json.RawMessage, err error, took time.Duration) Event {
	ev := Event{Kind: EventAnswer, N: j.n, Data: result, Time: time.Now().UnixMilli(), Millis: float64(took.Microseconds()) / 1000}
	if err == nil && len(result) > c.e.lim.MaxCallResult {
		err = &HostError{Code: "too_large", Message: fmt.Sprintf("the call was made, but its result of %d bytes is more than the %d a script may receive; ask for fewer rows or fields", len(result), c.e.lim.MaxCallResult)}
	}
	if err == nil {
		if len(result) == 0 {
			ev.Data = json.RawMessage("null")
		}
		return ev
	}
	ev.Failed = true
	m := proto.ErrorMsg{Code: "error", Message: err.Error()}
	var h *HostError
	if errors.As(err, &h) {
		m = proto.ErrorMsg{Code: h.Code, Message: h.Message}
	}
	if ev.Data, err = json.Marshal(m); err != nil {
		ev.Data = json.RawMessage(`{"code":"error","message":"the error could not be encoded"}`)
	}
	return ev
}

// Failure tells whether the result of a tool is marked as an error, and what it says.
func Failure(result json.RawMessage) (text string, failed bool) {
	if !bytes.Contains(result, []byte(`"isError"`)) {
		return "", false
	}
	var r struct {
		IsError bool `json:"isError"`
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	if json.Unmarshal(result, &r) != nil || !r.IsError {
		return "", false
	}
	text = "the tool reported an error"
	if len(r.Content) > 0 && r.Content[0].Text != "" {
		text = r.Content[0].Text
	}
	return text, true
}

// settle starts no more calls and gives those in flight a moment to end: what
// they did matters more than the time.
func (c *callList) settle(most time.Duration) {
	c.mu.Lock()
	c.alarms.stop()
	if c.closed || c.running == 0 {
		c.closed = true
		c.mu.Unlock()
		return
	}
	c.closed = true
	c.mu.Unlock()
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-c.idle:
	case <-c.ctx.Done():
	case <-t.C:
	}
}

// snapshot returns the records as they are now.
func (c *callList) snapshot() []CallRecord {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alarms.stop()
	if !c.closed {
		c.closed = true
		if c.running == 0 {
			close(c.idle)
		}
	}
	return slices.Clone(c.records)
}
