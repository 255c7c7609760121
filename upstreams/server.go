package upstreams

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
)

// server is one generation of one configured server: when its connection
// settings change, a new one takes its place and this one drains.
type server struct {
	cfg      config.Server
	opts     *Options
	limits   config.Limits
	peer     *peer
	log      *slog.Logger
	endpoint *endpoint  // nil for stdio
	source   *apiSource // nil: it is an MCP server
	hangUp   func()     // closes idle HTTP connections
	pool     *pool
	changed  func() // wakes whoever waits for a state

	loop     context.Context // of the loop: ends when retired
	stopLoop context.CancelFunc
	loopDone chan struct{}
	nudges   chan struct{} // something may have changed: list soon
	asked    chan struct{} // somebody waits: list now

	mu      sync.Mutex
	status  Status
	main    conn
	route   *target // how it was reached last; nil: not yet
	perUser bool    // calls need a session of their user
	lent    bool    // the list was read with the login of a user
	last    *Catalogue
	waiters []chan listed
	pulse   chan struct{} // closed and replaced at every change
	retired bool
	active  int // calls in flight
	idle    chan struct{}
}

// listed is the outcome of one listing.
type listed struct {
	cat *Catalogue
	err error
}

func newServer(cfg config.Server, opts *Options, changed func()) *server {
	s := &server{
		cfg: cfg, opts: opts, limits: opts.Limits, peer: newPeer(cfg.ID, cfg), changed: changed,
		log:      opts.Log.With("server", cfg.ID),
		loopDone: make(chan struct{}),
		nudges:   make(chan struct{}, 1),
		asked:    make(chan struct{}, 1),
		pulse:    make(chan struct{}),
		status:   Status{Server: cfg.ID, State: Connecting, Since: time.Now()},
		hangUp:   func() {},
	}
	if !cfg.IsEnabled() {
		s.status.State = Disabled
	}
	max := opts.MaxSessions
	if len(cfg.Command) > 0 {
		max = opts.MaxChildren
	} else {
		s.endpoint, s.hangUp = newEndpoint(cfg, s.connectTimeout(), opts.RoundTripper)
	}
	if cfg.OpenAPI != "" {
		s.source = &apiSource{cfg: cfg, e: s.endpoint, peer: s.peer}
	}
	s.pool = newPool(s.peer, max, opts.SessionIdle, opts.BackoffMin, func(ctx context.Context, c *Call) (conn, error) {
		s.mu.Lock()
		known := s.route != nil
		s.mu.Unlock()
		if !known && !s.personal() { // forgotten since the call looked
			return nil, s.peer.fail(c.Name, KindConnect, false, nil, "not connected")
		}
		info := c.ClientInfo
		if info == nil {
			info = opts.ClientInfo
		}
		notify := func(method string, params json.RawMessage) {
			if opts.OnNotification != nil {
				opts.OnNotification(cfg.ID, c.User, s.sessionFor(c), method, params)
			}
		}
		return s.find(ctx, func(t target) (conn, error) {
			return s.dial(ctx, t, info, c.sessionCapabilities(), c.User, true, notify)
		})
	})
	s.loop, s.stopLoop = context.WithCancel(context.Background())
	return s
}

func (s *server) connectTimeout() time.Duration {
	if s.cfg.ConnectTimeout > 0 {
		return s.cfg.ConnectTimeout
	}
	return s.limits.ConnectTimeout
}

// timing are the clocks of calls and lists.
func (s *server) timing() timing {
	t := timing{idle: s.limits.CallTimeout, ceiling: s.limits.CallCeiling}
	if s.cfg.CallTimeout > 0 {
		t.idle = s.cfg.CallTimeout
	}
	if s.cfg.CallCeiling > 0 {
		t.ceiling = s.cfg.CallCeiling
	}
	t.ceiling = max(t.ceiling, t.idle)
	return t
}

// dial makes one session: with the server as a whole (info and caps of the
// portal) or for one user. ctx bounds the making only.
func (s *server) dial(ctx context.Context, t target, info, caps json.RawMessage, user string, personal bool, notify func(string, json.RawMessage)) (conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.connectTimeout(), lateConnect(s.connectTimeout()))
	defer cancel()
	auth, peer := s.authorizer(user), s.peer
	if auth != nil {
		if auth.from == nil {
			return nil, s.peer.fail("", KindConfig, false, nil, "it uses OAuth, which this portal was not set up for")
		}
		own := *s.peer
		own.live, peer = auth.tokens, &own
	}
	sess := newSession(peer, s.log, s.limits.Message, info, events{
		listChanged: func() { s.nudge(true) },
		doubt:       func() { s.nudge(false) },
		notify:      notify,
	})
	sess.caps, sess.personal, sess.auth = caps, personal, auth
	finish := func(c interface {
		conn
		negotiator
	}) (conn, error) {
		h, err := handshake(ctx, c, t, min(s.opts.DiscoverTimeout, s.connectTimeout()/2), t.transport == transportStdio, info, caps)
		if err != nil {
			patience := politeness
			if errors.Is(context.Cause(ctx), context.Canceled) {
				patience = 100 * time.Millisecond // a reload waits for this
			}
			bg, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
			defer cancel()
			if lost := c.why(); lost != nil {
				err = lost // a child that ended says more than a cut pipe
			}
			c.close(bg)
			return nil, err
		}
		h.transport = t.transport
		h.perUser = t.transport != transportStreamable
		if sc, ok := c.(*streamable); ok {
			h.perUser = sc.sid != ""
		}
		sess.setHello(h)
		return c, nil
	}
	switch t.transport {
	case transportStdio:
		p, err := startChild(sess, s.cfg, s.opts.Grace, s.opts.spawn)
		if err != nil {
			return nil, err
		}
		return finish(p)
	case transportOpenAPI:
		return dialAPI(ctx, sess, s.source)
	case transportSSE:
		t.legacy = true // the transport belongs to that era
		p, err := dialSSE(ctx, sess, s.endpoint, t.url)
		if err != nil {
			return nil, err
		}
		return finish(p)
	}
	return finish(&streamable{session: sess, endpoint: s.endpoint, url: t.url})
}

// call makes one exchange on the session that the caller must use.
func (s *server) call(ctx context.Context, c *Call) (json.RawMessage, error) {
	t := s.timing()
	x := exchange{Call: c, idle: t.idle, ceiling: t.ceiling}
	switch c.Method {
	case methodListen:
		x.idle, x.ceiling = 0, 0
	case "tasks/result": // waits for the end of the task
		x.idle = 0
	}
	for try := 0; ; try++ {
		cn, release, err := s.connFor(ctx, c)
		if err != nil {
			return nil, err
		}
		s.setLevel(ctx, cn, c.LogLevel)
		res, err := cn.do(ctx, x)
		release()
		ce, failed := err.(*CallError)
		if !failed {
			return res, err
		}
		// The server did not look at the request: a new session may carry it,
		// once. Whoever shares the lost session shares the new one.
		if ce.Err == errGone && !ce.Sent && try == 0 {
			s.log.Info("the session was forgotten by the server: beginning another")
			s.nudge(false)
			continue
		}
		if ce.Problem.Kind == KindConnect || ce.Problem.HTTPStatus >= http.StatusInternalServerError {
			s.nudge(false) // the state may be out of date
		}
		return nil, ce
	}
}

// connFor finds the session for a call, waiting while the first connection is
// being made.
func (s *server) connFor(ctx context.Context, c *Call) (conn, func(), error) {
	limit := time.NewTimer(s.connectTimeout())
	defer limit.Stop()
	for {
		s.mu.Lock()
		st, main, route, perUser, pulse, retired := s.status, s.main, s.route, s.perUser, s.pulse, s.retired
		s.mu.Unlock()
		switch {
		case st.State == Disabled:
			return nil, nil, s.peer.fail(c.Name, KindConfig, false, nil, "the server is disabled in the configuration")
		case s.personal() && c.User != "":
			return s.acquireAs(ctx, c)
		case route != nil && perUser && s.cfg.Sessions != "shared":
			return s.acquireAs(ctx, c)
		case main != nil && main.why() == nil:
			return main, func() {}, nil
		case retired:
			return nil, nil, s.peer.fail(c.Name, KindConfig, false, errRetired, "%v", errRetired)
		case st.State == Degraded, st.State == LoginNeeded:
			e := s.peer.fail(c.Name, KindConnect, false, nil, "not connected")
			if st.Error != nil {
				e.Problem = *st.Error
				e.Problem.Message = s.peer.clean("not connected: " + trimServer(e.Problem.Message, s.cfg.ID))
			}
			if wait := time.Until(st.NextTry); wait > 0 {
				e.Problem.Message += ". Next attempt in " + wait.Round(100*time.Millisecond).String()
			}
			return nil, nil, e
		}
		select {
		case <-pulse:
		case <-limit.C:
			return nil, nil, s.peer.fail(c.Name, KindTimeout, false, nil, "%v", lateConnect(s.connectTimeout()))
		case <-ctx.Done():
			return nil, nil, s.peer.network(ctx, c.Name, false, ctx.Err())
		}
	}
}

// personal reports whether every user needs sessions with a login of their own,
// however things stand with the portal's.
func (s *server) personal() bool { return s.cfg.Auth.PerUser() && s.opts.Credentials != nil }

// acquireAs gives the session of a user, begun with the login that authorizes
// the user now.
func (s *server) acquireAs(ctx context.Context, c *Call) (conn, func(), error) {
	// Whoever shares a session was told of to the server once, with what its
	// client can be asked: clients that differ in that do not share one.
	key := slotKey{user: c.User, session: s.sessionFor(c), caps: string(c.sessionCapabilities())}
	if s.cfg.Auth.Used() && s.opts.Credentials != nil {
		cred, err := s.opts.Credentials.Current(ctx, s.cfg.ID, c.User)
		if err != nil {
			e := s.peer.unauthorized(err)
			e.Tool = s.peer.clean(c.Name)
			return nil, nil, e
		}
		key.login = cred.Login
	}
	return s.pool.acquire(ctx, key, c)
}

// loginChanged ends what was begun with another login than the present one.
func (s *server) loginChanged(user, present string) {
	s.pool.closeLogins(user, present, user == "" && !s.personal())
	if user != "" {
		return
	}
	s.mu.Lock()
	main := s.main
	s.mu.Unlock()
	if main != nil && main.base().auth != nil && main.base().auth.other(present) {
		main.base().lose(errGone)
	}
	select {
	case s.asked <- struct{}{}:
	default:
	}
}

// listAs lists with the login of a user, where the portal has none of its own.
// publish makes the list that of the server.
func (s *server) listAs(ctx context.Context, user string, publish bool) (*Catalogue, error) {
	c := &Call{Method: "tools/list", User: user, Session: "portal:catalogue", ClientInfo: s.opts.ClientInfo, SessionCapabilities: s.opts.Capabilities}
	cn, release, err := s.connFor(ctx, c)
	if err != nil {
		return nil, err
	}
	defer release()
	cat, err := s.list(ctx, cn)
	if err != nil {
		return nil, err
	}
	if publish {
		s.mu.Lock()
		s.lent = true
		s.mu.Unlock()
		h := cn.hello()
		s.setStatus(func(st *Status) { st.Transport, st.Protocol = h.transport, h.version })
		s.publish(cat, cn)
	}
	return cat, nil
}

func trimServer(msg, id string) string {
	return strings.TrimPrefix(msg, "server "+id+": ")
}

// sessionFor is the portal session that the call's session with the server is
// for, since the server may remember what happens in it. It is "", which stands
// for all sessions of the user, where the admin says so, and with a child that
// speaks 2026-07-28 and so knows no sessions.
func (s *server) sessionFor(c *Call) string {
	if s.cfg.Sessions == "user" {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.route != nil && s.route.transport == transportStdio && !s.route.legacy {
		return ""
	}
	return c.Session
}

// enter counts a call in; false when this generation takes no more.
func (s *server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired {
		return false
	}
	s.active++
	return true
}

func (s *server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active--; s.active == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// retire stops everything that could begin something new, and returns when it
// has stopped. Calls in flight go on.
func (s *server) retire() {
	s.mu.Lock()
	s.retired = true
	s.pulseLocked()
	s.mu.Unlock()
	s.stopLoop()
	s.pool.retire()
	<-s.loopDone
}

// drain waits for the calls in flight, as long as ctx allows, and closes
// everything.
func (s *server) drain(ctx context.Context) {
	s.mu.Lock()
	var idle chan struct{}
	if s.active > 0 {
		if s.idle == nil {
			s.idle = make(chan struct{})
		}
		idle = s.idle
	}
	s.mu.Unlock()
	if idle != nil {
		select {
		case <-idle:
		case <-ctx.Done():
			s.log.Warn("calls in flight were cut off")
		}
	}
	s.mu.Lock()
	main := s.main
	s.main = nil
	s.mu.Unlock()
	if main != nil {
		bg, cancel := context.WithTimeout(context.Background(), politeness)
		main.close(bg)
		cancel()
	}
	s.pool.closeAll()
	s.hangUp()
}

func (s *server) pulseLocked() {
	close(s.pulse)
	s.pulse = make(chan struct{})
}

func (s *server) snapshot() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// setStatus changes the status and tells everybody.
func (s *server) setStatus(change func(*Status)) {
	s.mu.Lock()
	before := s.status.State
	change(&s.status)
	if s.status.State != before {
		s.status.Since = time.Now()
	}
	st := s.status
	s.pulseLocked()
	s.mu.Unlock()
	s.changed()
	if s.opts.OnStatus != nil {
		s.opts.OnStatus(st)
	}
}
