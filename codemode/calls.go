package codemode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
)

// callList runs the calls of one script: in issue order, a few at once. A slot
// is held until the answer is written, which bounds the answers in memory to
// Parallel times MaxCallResult.
type callList struct {
	e    *execution
	host Host
	ctx  context.Context

	mu      sync.Mutex
	known   map[string]bool // outward names the script may call
	records []CallRecord
	queue   []job
	next    uint32 // last number of a call or query
	queries int
	args    int // bytes of unfinished calls
	running int
	closed  bool
	idle    chan struct{} // closed when the last running call ends after closed
}

type job struct {
	id    uint32
	index int // in records; -1 for a query
	name  string
	args  json.RawMessage
}

func newCallList(e *execution, host Host) *callList {
	c := &callList{e: e, host: host, known: make(map[string]bool, len(e.req.Tools)), idle: make(chan struct{})}
	for _, t := range e.req.Tools {
		c.known[t.Outward] = true
	}
	return c
}

// add takes one Call or Query frame.
func (c *callList) add(f proto.Frame) error {
	name, args, err := proto.DecodeCall(f.Data)
	if err != nil {
		return err
	}
	if len(args) > maxArgs || !json.Valid(args) {
		return fmt.Errorf("%w: the arguments of a call are no JSON of at most %d bytes", proto.ErrProtocol, maxArgs)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	if f.ID != proto.CallID(c.e.id, c.next) {
		return fmt.Errorf("%w: call %d out of order", proto.ErrProtocol, f.ID)
	}
	c.args += len(args)
	if c.args > maxArgsFlight {
		return &limitReached{kindCalls, fmt.Sprintf("the arguments of the calls in flight add up to more than %d MB; await calls before making more", maxArgsFlight>>20)}
	}
	j := job{id: f.ID, index: -1, name: name, args: args}
	if f.Kind == proto.Query {
		if c.queries++; c.queries > 8*c.e.lim.MaxCalls {
			return fmt.Errorf("%w: more queries than allowed", proto.ErrProtocol)
		}
	} else {
		if len(c.records) >= c.e.lim.MaxCalls {
			return fmt.Errorf("%w: more than %d calls", proto.ErrProtocol, c.e.lim.MaxCalls)
		}
		j.index = len(c.records)
		c.records = append(c.records, CallRecord{Seq: j.index + 1, Tool: cutText(name, 200), Status: callNotStarted})
	}
	c.queue = append(c.queue, j)
	c.startLocked()
	return nil
}

func (c *callList) startLocked() {
	for c.running < c.e.lim.Parallel && len(c.queue) > 0 && !c.closed {
		j := c.queue[0]
		c.queue = c.queue[1:]
		c.running++
		if j.index >= 0 {
			c.records[j.index].Status = callInFlight
		}
		go c.do(j)
	}
}

func (c *callList) do(j job) {
	began := time.Now()
	result, err := c.ask(j)
	took := time.Since(began)

	c.mu.Lock()
	if j.index >= 0 && c.ctx.Err() == nil {
		r := &c.records[j.index]
		r.Millis = float64(took.Microseconds()) / 1000
		r.BytesOut = len(result)
		r.Status = callOK
		if err != nil {
			r.Status, r.Error = callError, cutText(err.Error(), 500)
		} else if text, failed := toolFailure(result); failed {
			r.Status, r.Error = callError, cutText(text, 500)
		}
	}
	c.mu.Unlock()

	if c.ctx.Err() == nil {
		c.deliver(j, result, err)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.args -= len(j.args)
	c.running--
	c.startLocked()
	if c.closed && c.running == 0 {
		close(c.idle)
	}
}

func (c *callList) ask(j job) (json.RawMessage, error) {
	if j.index < 0 {
		return c.host.Query(c.ctx, j.name, j.args)
	}
	if !c.known[j.name] {
		return nil, &HostError{Code: "unknown_tool", Message: fmt.Sprintf("there is no tool %.80q in this run", j.name)}
	}
	return c.host.Call(c.ctx, HostCall{Seq: j.index + 1, Tool: j.name, Arguments: j.args})
}

// deliver sends the answer. Numbers of calls are unique in a worker's life, so
// one that comes after its run has ended concerns nobody.
func (c *callList) deliver(j job, result json.RawMessage, err error) {
	if err == nil && len(result) > c.e.lim.MaxCallResult {
		err = &HostError{Code: "too_large", Message: fmt.Sprintf("the call was made, but its result of %d bytes is more than the %d a script may receive; ask for fewer rows or fields", len(result), c.e.lim.MaxCallResult)}
	}
	if err == nil && len(result) == 0 {
		result = json.RawMessage("null")
	}
	if err == nil {
		_ = c.e.w.send(proto.Result, j.id, result) // a broken connection ends the run in listen
		return
	}
	m := proto.ErrorMsg{Code: "error", Message: err.Error()}
	var h *HostError
	if errors.As(err, &h) {
		m = proto.ErrorMsg{Code: h.Code, Message: h.Message}
	}
	data, err := json.Marshal(m)
	if err != nil {
		data = []byte(`{"code":"error","message":"the error could not be encoded"}`)
	}
	_ = c.e.w.send(proto.Error, j.id, data)
}

// toolFailure tells whether a result is marked as an error.
func toolFailure(result json.RawMessage) (text string, failed bool) {
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
	if !c.closed {
		c.closed = true
		if c.running == 0 {
			close(c.idle)
		}
	}
	return slices.Clone(c.records)
}
