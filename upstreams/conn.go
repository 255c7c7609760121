package upstreams

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
)

// conn is one session with a server: a stateless endpoint, a 2025 session, a
// pair of streams or a child process. Its methods may be used at once.
type conn interface {
	// do makes one exchange; errors as Upstream.Do.
	do(ctx context.Context, x exchange) (json.RawMessage, error)
	// hello is what the server said of itself.
	hello() *hello
	// lost is closed when the session is of no use any more; why says why.
	lost() <-chan struct{}
	why() error
	// busy is the number of calls in flight.
	busy() int
	// notice sends a notification of the client.
	notice(ctx context.Context, m wire.Message) error
	// base is what all kinds of conn have in common.
	base() *session
	// close ends the session, politely as far as ctx allows, and returns when
	// nothing of it is left.
	close(ctx context.Context)
}

// hello is the outcome of a handshake.
type hello struct {
	version      string // negotiated protocol version
	transport    string // streamable-http, sse, stdio
	perUser      bool   // users must not share this session
	serverInfo   json.RawMessage
	capabilities json.RawMessage
	instructions string
}

// capability is one capability object of the server, nil if it has none.
func (h *hello) capability(name string) wire.Object {
	o, err := wire.ParseObject(h.capabilities)
	if err != nil {
		return nil
	}
	c, err := wire.ParseObject(o.Get(name))
	if err != nil {
		return nil
	}
	if c == nil {
		c = wire.Object{}
	}
	return c
}

// events is where a session tells what concerns no call of its own.
type events struct {
	listChanged func()
	doubt       func() // notices may have been missed, or the server is gone
	notify      func(method string, params json.RawMessage)
}

// session is what all kinds of conn have in common.
type session struct {
	peer     *peer
	log      *slog.Logger
	max      int64 // bytes of one message
	info     json.RawMessage
	caps     json.RawMessage // of the client that the session was begun for
	personal bool            // begun for one user, by a call that follows
	auth     *authorizer     // nil: the server uses no OAuth
	events   events
	seq      atomic.Int64
	inflight inflight

	life context.Context // ends with the session
	end  context.CancelFunc

	hi *hello

	notices atomic.Int32  // being sent, by nobody who waits
	telling chan struct{} // held by a cancellation on its way

	watchers watchers

	strayMu sync.Mutex
	strays  map[string]*strayQuestion // by the server's id

	levelMu sync.Mutex
	level   string // of messages, as the server was told last; "": never

	lostOnce sync.Once
	lostCh   chan struct{}
	lostErr  error
}

func newSession(p *peer, log *slog.Logger, max int64, info json.RawMessage, ev events) *session {
	s := &session{peer: p, log: log, max: max, info: info, events: ev, lostCh: make(chan struct{}), telling: make(chan struct{}, tellers)}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

func (s *session) hello() *hello         { return s.hi }
func (s *session) setHello(h *hello)     { s.hi = h }
func (s *session) lost() <-chan struct{} { return s.lostCh }
func (s *session) busy() int             { return s.inflight.len() }
func (s *session) base() *session        { return s }

func (s *session) why() error {
	select {
	case <-s.lostCh:
		return s.lostErr
	default:
		return nil
	}
}

// lose marks the session as of no use; the first reason counts.
func (s *session) lose(err error) {
	s.lostOnce.Do(func() {
		s.lostErr = err
		close(s.lostCh)
	})
}

// begin writes the request of a call and starts its clocks. push takes messages
// for it that came outside its own stream.
func (s *session) begin(ctx context.Context, x exchange, version string, push func(*live, wire.Message)) (*live, []byte, error) {
	id := s.seq.Add(1)
	if x.internal {
		own := *x.Call
		own.Capabilities = s.caps
		x.Call = &own
	}
	body, token, err := request(x.Call, id, version, s.info)
	if err != nil {
		return nil, nil, s.peer.fail(x.Name, KindProtocol, false, err, "the params of %s cannot be sent: %v", x.Method, err)
	}
	l := &live{x: x, id: requestNumber(id), token: token, watch: newWatch(ctx, x.idle, x.ceiling)}
	l.push = func(m wire.Message) { push(l, m) }
	l.unbind = context.AfterFunc(s.life, func() { // cut off with the session
		l.watch.cancel(s.peer.fail("", KindConfig, false, errRetired, "%v", errRetired))
	})
	s.inflight.add(l)
	return l, body, nil
}

func (s *session) finish(l *live) {
	s.inflight.remove(l)
	l.finish()
}

// own takes a message that came on the stream of the call l.
func (s *session) own(l *live, m wire.Message, reply func(wire.Message)) {
	switch {
	case m.IsRequest() && m.Method == "ping":
		reply(wire.Message{ID: m.ID, Result: json.RawMessage(`{}`)})
	case m.IsRequest():
		l.ask(m, reply)
	case global(m.Method):
		l.watch.touch()
		if l.x.Method != methodListen || l.x.internal || strings.HasSuffix(m.Method, "/list_changed") {
			s.tell(m)
		}
		if l.x.Method == methodListen && !l.x.internal {
			l.deliver(m.Method, m.Params)
		}
	default:
		l.deliver(m.Method, m.Params)
	}
}

// stray takes a message that came outside the stream of a call.
func (s *session) stray(m wire.Message, reply func(wire.Message)) {
	switch {
	case m.IsResponse():
		s.log.Debug("answer to no call in flight", "id", s.peer.clean(string(m.ID)))
	case m.IsRequest() && m.Method == "ping":
		reply(wire.Message{ID: m.ID, Result: json.RawMessage(`{}`)})
	case m.IsRequest():
		switch calls, mixed := s.inflight.ofOne(); {
		case mixed:
			s.nobodys(m, reply)
		case calls != nil:
			s.putStray(m, calls, reply)
		default:
			go s.orphan(m, reply)
		}
	case s.listening(m) != nil: // on a pipe, the notices of a listen request
		s.listening(m).push(m)
	case global(m.Method):
		s.tell(m)
	case m.Method == "notifications/progress":
		if l := s.inflight.byToken(progressToken(m.Params)); l != nil {
			l.push(m)
		}
	case m.Method == "notifications/cancelled":
		id := requestID(m.Params)
		if l := s.inflight.asking(id); !s.withdrawStray(id) && l != nil {
			l.withdraw(id)
		}
	default:
		if l := s.inflight.newest(); l != nil {
			l.push(m)
			return
		}
		s.tell(m)
	}
}

// listening is the listen request that a notice says it belongs to.
func (s *session) listening(m wire.Message) *live {
	id := wire.Meta(m.Params, wire.MetaSubscriptionID)
	if id == nil {
		return nil
	}
	if l := s.inflight.byToken(tokenText(id)); l != nil && l.x.Method == methodListen {
		return l
	}
	return nil
}

// tell reports what concerns no call.
func (s *session) tell(m wire.Message) {
	switch {
	case strings.HasSuffix(m.Method, "/list_changed"):
		s.events.listChanged()
	case m.Method == "notifications/subscriptions/acknowledged":
	default:
		if m.Method == "notifications/resources/updated" {
			s.watchers.updated(m.Params)
		}
		if s.events.notify != nil {
			s.events.notify(m.Method, m.Params)
		}
	}
}

// methodListen opens a stream of notices (2026-07-28). A caller's own one has no
// deadline, and its notices go to the caller.
const methodListen = "subscriptions/listen"

// global reports whether a notification concerns the server, not a call, even
// when it comes on a call's stream.
func global(method string) bool {
	return strings.HasSuffix(method, "/list_changed") ||
		method == "notifications/resources/updated" ||
		method == "notifications/tasks/status" ||
		method == "notifications/subscriptions/acknowledged"
}

// flush waits for notices under way, so that a server hears that a call was
// given up before it hears that the session is over.
func (s *session) flush(ctx context.Context) {
	for s.notices.Load() > 0 && ctx.Err() == nil {
		time.Sleep(2 * time.Millisecond)
	}
}

// timing are the clocks of one kind of exchange.
type timing struct{ idle, ceiling time.Duration }

// internal makes an exchange of the portal's own.
func internal(method string, params json.RawMessage, t timing) exchange {
	return exchange{Call: &Call{Method: method, Params: params}, idle: t.idle, ceiling: t.ceiling, internal: true}
}
