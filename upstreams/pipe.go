package upstreams

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
)

// maxQueued bounds what waits for one caller, in messages.
const maxQueued = 20000

// pipe is a session in which messages go both ways over one connection and
// answers are found by their id: stdio and legacy HTTP+SSE.
type pipe struct {
	*session
	version string

	// write sends one message; sent reports whether any of it may have left.
	write func(ctx context.Context, b []byte) (sent bool, err error)
	// shut ends the connection and waits until nothing of it is left.
	shut func(ctx context.Context)

	mu      sync.Mutex
	waiting map[string]*queue
}

// queue holds what came for one call, in order, so that a caller who is slow
// to take notifications does not hold up the others.
type queue struct {
	mu     sync.Mutex
	items  []wire.Message
	bytes  int64
	failed error
	wake   chan struct{}
}

func (q *queue) put(m wire.Message, max int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	size := int64(len(m.Params) + len(m.Result))
	if !m.IsResponse() && (len(q.items) >= maxQueued || q.bytes+size > 2*max) {
		q.failed = errors.New("the caller does not take notifications as fast as the server sends them")
	} else {
		q.items = append(q.items, m)
		q.bytes += size
	}
	q.signal()
}

func (q *queue) fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.failed == nil {
		q.failed = err
	}
	q.signal()
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns the next message; the failure comes after all of them.
func (q *queue) take() (m wire.Message, ok bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) > 0 {
		m, q.items = q.items[0], q.items[1:]
		q.bytes -= int64(len(m.Params) + len(m.Result))
		return m, true, nil
	}
	return m, false, q.failed
}

// do makes one exchange.
func (p *pipe) do(ctx context.Context, x exchange) (json.RawMessage, error) {
	if err := p.why(); err != nil {
		return nil, p.ended(x.Name, false, err)
	}
	q := &queue{wake: make(chan struct{}, 1)}
	l, body, err := p.begin(ctx, x, p.version, func(l *live, m wire.Message) {
		l.watch.touch()
		q.put(m, p.max)
	})
	if err != nil {
		return nil, err
	}
	defer p.finish(l)
	p.mu.Lock()
	p.waiting[l.id] = q
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.waiting, l.id)
		p.mu.Unlock()
	}()
	if err := p.why(); err != nil { // lost between the first look and now
		return nil, p.ended(x.Name, false, err)
	}

	sent, err := p.write(l.watch.ctx, body)
	l.sent.Store(sent)
	if err != nil {
		if lost := p.why(); lost != nil && l.watch.ctx.Err() == nil {
			return nil, p.ended(x.Name, sent, lost)
		}
		var ce *CallError
		if errors.As(err, &ce) {
			out := *ce
			out.Tool, out.Sent = p.peer.clean(x.Name), sent
			return nil, &out
		}
		var u *underWay
		if errors.As(err, &u) {
			p.cancelled(l, u.landed)
		}
		return nil, p.peer.network(l.watch.ctx, x.Name, sent, err)
	}
	for {
		m, ok, err := q.take()
		switch {
		case err != nil:
			return nil, p.ended(x.Name, true, err)
		case ok && m.IsResponse():
			return p.result(l, m)
		case ok:
			p.own(l, m, p.reply)
			continue
		}
		select {
		case <-q.wake:
		case <-l.watch.ctx.Done():
			p.cancelled(l, nil)
			return nil, p.peer.network(l.watch.ctx, x.Name, true, l.watch.ctx.Err())
		}
	}
}

// ended is the error of a call whose connection, or whose answer, was lost.
func (p *pipe) ended(tool string, sent bool, err error) *CallError {
	var ce *CallError
	if errors.As(err, &ce) {
		out := *ce
		out.Tool, out.Sent = p.peer.clean(tool), sent
		return &out
	}
	return p.peer.fail(tool, KindProtocol, sent, err, "%v", err)
}

// cancelled tells the server that nobody waits any more. On a pipe it is a
// message in both eras. initialize must not be cancelled. What cancels a call
// that may be under way waits until it has landed, since a server ignores what
// comes first; one that takes its time with that is told before and after, and
// one of which nobody knows is told again and again.
func (p *pipe) cancelled(l *live, landed <-chan bool) {
	if l.x.Method == "initialize" {
		return
	}
	line := wire.Message{Method: "notifications/cancelled", Params: json.RawMessage(`{"requestId":` + l.id + `}`)}.Bytes()
	tell := func() bool {
		select {
		case p.telling <- struct{}{}:
		case <-p.life.Done():
			return false
		}
		defer func() { <-p.telling }()
		ctx, cancel := context.WithTimeout(p.life, politeness)
		defer cancel()
		_, err := p.write(ctx, line)
		if err != nil {
			p.log.Debug("the cancellation did not reach the server", "error", err)
		}
		return err == nil
	}
	p.notices.Add(1)
	go func() {
		done := sync.OnceFunc(func() { p.notices.Add(-1) }) // who ends the session waits for the first only
		defer done()
		times := 1
		if landed != nil {
			known := true
			select {
			case known = <-landed:
			case <-time.After(landing):
				tell()
				done()
				select {
				case known = <-landed:
				case <-p.life.Done():
					return
				}
			case <-p.life.Done():
				return
			}
			if !known {
				times = persistence
			}
		}
		pause, end := firstPause, time.Now().Add(persistenceTime)
		for told := 0; p.life.Err() == nil && p.why() == nil; pause = min(3*pause, longestPause) {
			if tell() {
				told++
			}
			done()
			if told >= times || time.Now().After(end) {
				return
			}
			select {
			case <-time.After(pause):
			case <-p.life.Done():
			}
		}
	}()
}

// landing is how long a cancellation waits for its call to have landed.
const landing = 500 * time.Millisecond

// reply answers a question of the server.
func (p *pipe) reply(m wire.Message) {
	go func() {
		ctx, cancel := context.WithTimeout(p.life, politeness)
		defer cancel()
		if _, err := p.write(ctx, m.Bytes()); err != nil {
			p.log.Warn("an answer did not reach the server", "error", err)
		}
	}()
}

func (p *pipe) setVersion(v string) { p.version = v }

func (p *pipe) initialized(ctx context.Context) error {
	_, err := p.write(ctx, wire.Message{Method: "notifications/initialized"}.Bytes())
	return err
}

// receive takes what the connection read: one message or a batch. An error
// says that it is neither.
func (p *pipe) receive(b []byte) error {
	parts, err := wire.SplitBatch(b)
	if err != nil {
		return err
	}
	for _, part := range parts {
		m, err := wire.ParseMessage(part)
		if err != nil {
			if id := looseID(part); id != "" && p.failOne(id, fmt.Errorf("the answer is not JSON-RPC: %w", err)) {
				continue
			}
			return err
		}
		if !m.IsResponse() {
			p.stray(m, p.reply)
			continue
		}
		p.mu.Lock()
		q := p.waiting[string(m.ID)]
		p.mu.Unlock()
		if q == nil {
			p.unmatched(m)
			continue
		}
		q.put(m, p.max)
	}
	return nil
}

// unmatched takes an answer with an id that no call waits for. One of ours is
// late: its caller has gone. A foreign one was meant for some call: when just
// one waits it is told, otherwise the idle deadline finds it.
func (p *pipe) unmatched(m wire.Message) {
	id := "null"
	if m.ID != nil {
		id = string(m.ID)
		if n, err := strconv.ParseInt(id, 10, 64); err == nil && n > 0 && n <= p.seq.Load() {
			p.log.Debug("late answer", "id", n)
			return
		}
	}
	p.log.Warn("the server sent an answer with an id that no call has", "id", p.peer.clean(id))
	p.failOnly(fmt.Errorf("the answer has the id %s, not that of the request", id))
}

// failOnly ends the call that waits, if there is just one: what came cannot
// have been meant for another.
func (p *pipe) failOnly(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 1 {
		for _, q := range p.waiting {
			q.fail(err)
		}
	}
}

// failOne ends the call with the id; false if there is none.
func (p *pipe) failOne(id string, err error) bool {
	p.mu.Lock()
	q := p.waiting[id]
	p.mu.Unlock()
	if q == nil {
		return false
	}
	q.fail(err)
	return true
}

// failAll ends every call that waits.
func (p *pipe) failAll(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range p.waiting {
		q.fail(err)
	}
}

// broken ends the session because the connection did.
func (p *pipe) broken(err error) {
	p.lose(err)
	p.failAll(err)
}

func (p *pipe) close(ctx context.Context) {
	p.flush(ctx)
	p.broken(p.peer.fail("", KindConfig, false, errRetired, "%v", errRetired))
	p.end()
	p.shut(ctx)
}

// looseID finds the id of a message that is JSON but not JSON-RPC.
func looseID(b []byte) string {
	o, err := wire.ParseObject(b)
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(o.Get("id")))
}

var _ conn = (*pipe)(nil)
