package upstreams

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
)

// exchange is a call and how long it may take. Internal ones (listing,
// handshakes, listening) are never asked anything and own no notification.
type exchange struct {
	*Call
	idle, ceiling time.Duration
	internal      bool
}

// errWithdrawn ends a question that the server took back.
var errWithdrawn = errors.New("the server took the question back")

// live is one call in flight on one connection.
type live struct {
	x     exchange
	id    string          // of the request on this connection; also our progress token
	token json.RawMessage // the caller's progress token; nil: asked for none
	watch *watch
	sent  atomic.Bool
	heard atomic.Bool // the server has said something of it

	unbind func() bool // from the session's end

	// push takes a message of the server that belongs to this call. A
	// connection that reads for many calls puts it in the call's queue.
	push func(wire.Message)

	notify sync.Mutex // held while Notify runs: one at a time, none after the end
	asking sync.WaitGroup

	mu   sync.Mutex
	done bool
	asks map[string]context.CancelCauseFunc // questions under way, by the server's id
}

// deliver hands a notification to the caller, unless the call has ended.
func (l *live) deliver(method string, params json.RawMessage) {
	l.watch.touch()
	l.notify.Lock()
	defer l.notify.Unlock()
	if l.ended() {
		return
	}
	switch method {
	case "notifications/cancelled": // of a question to us
		l.withdraw(requestID(params))
		return
	case "notifications/progress":
		if l.token == nil || progressToken(params) != l.id {
			return
		}
		p, err := wire.Splice(params, wire.MetaProgressToken, l.token)
		if err != nil {
			return
		}
		params = p
	}
	if l.x.Notify != nil {
		l.x.Notify(method, params)
	}
}

// ask puts a question that came on the call's own stream to the caller, and
// hands the answer to reply.
func (l *live) ask(m wire.Message, reply func(wire.Message)) {
	if !l.put(m, func(res json.RawMessage, e *wire.Error, ended error) {
		if ended != errWithdrawn {
			reply(wire.Message{ID: m.ID, Result: res, Error: e})
		}
	}) {
		reply(wire.Message{ID: m.ID, Error: wire.Errorf(wire.CodeMethodNotFound, "%s is not available during this call", m.Method)})
	}
}

// put puts a question of the server to the caller, in its own goroutine. It
// reports false when there is nobody to ask any more. then gets the answer or the
// error, and what ended the question before that: errWithdrawn, the end of the
// call, or nothing. The idle deadline rests meanwhile.
func (l *live) put(m wire.Message, then func(res json.RawMessage, e *wire.Error, ended error)) bool {
	l.mu.Lock()
	if l.done || l.x.Ask == nil || l.watch.ctx.Err() != nil {
		l.mu.Unlock()
		return false
	}
	ctx, cancel := context.WithCancelCause(l.watch.ctx)
	if l.asks == nil {
		l.asks = map[string]context.CancelCauseFunc{}
	}
	key := string(m.ID)
	l.asks[key] = cancel
	l.asking.Add(1)
	l.mu.Unlock()
	l.watch.hold()
	go func() {
		defer l.asking.Done()
		defer l.watch.release()
		defer cancel(nil)
		res, e := l.x.Ask(ctx, m.Method, m.Params)
		ended := context.Cause(ctx)
		l.mu.Lock()
		delete(l.asks, key)
		l.mu.Unlock()
		if e == nil && res == nil {
			e = wire.Errorf(wire.CodeInternal, "the client gave no answer")
		}
		if e != nil {
			res = nil
		}
		then(res, e, ended)
	}()
	return true
}

// withdraw cancels a question under way.
func (l *live) withdraw(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cancel := l.asks[id]; cancel != nil {
		cancel(errWithdrawn)
	}
}

func (l *live) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done
}

// finish ends the call: no Notify runs after it, questions are withdrawn.
func (l *live) finish() {
	l.mu.Lock()
	l.done = true
	l.mu.Unlock()
	l.unbind()
	l.watch.stop()
	l.asking.Wait() // the caller hears that its questions are void before it gets the result
	l.notify.Lock() // wait for the one that runs
	defer l.notify.Unlock()
}

func requestID(params json.RawMessage) string {
	o, err := wire.ParseObject(params)
	if err != nil {
		return ""
	}
	return string(o.Get("requestId"))
}

func progressToken(params json.RawMessage) string {
	o, err := wire.ParseObject(params)
	if err != nil {
		return ""
	}
	return tokenText(o.Get(wire.MetaProgressToken))
}

// tokenText is a token of ours as servers give it back: a number, or that
// number as a string.
func tokenText(raw json.RawMessage) string { return strings.Trim(string(raw), `"`) }

// inflight are the calls in flight on one connection, oldest first.
type inflight struct {
	mu    sync.Mutex
	calls []*live
}

func (f *inflight) add(l *live) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, l)
}

func (f *inflight) remove(l *live) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, c := range f.calls {
		if c == l {
			f.calls = append(f.calls[:i:i], f.calls[i+1:]...)
			return
		}
	}
}

func (f *inflight) len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.calls)
}

// ofOne are the calls that a message without an address may belong to, oldest
// first. While calls of several users or sessions are in flight nobody can tell,
// and a guess would show a question to whom it is not for: then there are none,
// and mixed is true.
func (f *inflight) ofOne() (found []*live, mixed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.calls {
		if l.x.internal || l.x.Method == methodListen {
			continue
		}
		if found != nil && (found[0].x.User != l.x.User || found[0].x.Session != l.x.Session) {
			return nil, true
		}
		found = append(found, l)
	}
	return found, false
}

// newest is the call that a notification without an address is passed to.
func (f *inflight) newest() *live {
	if calls, _ := f.ofOne(); calls != nil {
		return calls[len(calls)-1]
	}
	return nil
}

// byToken finds the call that a progress token of ours belongs to.
func (f *inflight) byToken(token string) *live {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.calls {
		if l.id == token {
			return l
		}
	}
	return nil
}

// asking finds the call during which the server asked the question id.
func (f *inflight) asking(id string) *live {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.calls {
		l.mu.Lock()
		_, ok := l.asks[id]
		l.mu.Unlock()
		if ok {
			return l
		}
	}
	return nil
}

// request writes the call for one hop: our id, our progress token in place of
// the caller's, and the _meta members of the hop's era. Every other byte of
// the params stays. The second result is the caller's token.
func request(c *Call, id int64, version string, info json.RawMessage) (body []byte, token json.RawMessage, err error) {
	set := map[string]json.RawMessage{}
	num := strconv.AppendInt(nil, id, 10)
	if token = wire.Meta(c.Params, wire.MetaProgressToken); token != nil {
		token = bytes.Clone(token)
		set[wire.MetaProgressToken] = num
	} else if c.Method == "tools/call" {
		// Nobody wants to see it, but it says that a long call lives.
		set[wire.MetaProgressToken] = num
	}
	if wire.Modern(version) {
		if c.ClientInfo != nil {
			info = c.ClientInfo
		}
		caps := c.Capabilities
		if caps == nil {
			caps = json.RawMessage(`{}`)
		}
		set[wire.MetaProtocolVersion] = wire.Quote(version)
		set[wire.MetaClientInfo] = info
		set[wire.MetaClientCapabilities] = caps
		if c.LogLevel != "" {
			set[wire.MetaLogLevel] = wire.Quote(c.LogLevel)
		}
	} else {
		for _, key := range []string{wire.MetaProtocolVersion, wire.MetaClientInfo, wire.MetaClientCapabilities, wire.MetaLogLevel} {
			set[key] = nil // of the client's hop
		}
	}
	params := c.Params
	if params != nil || wire.Modern(version) {
		if params, err = wire.SetMeta(params, set); err != nil {
			return nil, nil, err
		}
	}
	return wire.Message{ID: num, Method: c.Method, Params: params}.Bytes(), token, nil
}
