package upstreams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/mcp-portal/mcp-portal/upstreams/logins"
)

// errList marks a failure of listing on a connection that otherwise stands.
var errList = errors.New("the catalogue could not be listed")

// backoff is the pause between attempts: doubling, with jitter.
type backoff struct {
	min, max time.Duration
	n        int
	lastLoss time.Time
}

func (b *backoff) next() time.Duration {
	d := b.min << min(b.n, 20)
	if d > b.max || d <= 0 {
		d = b.max
	}
	b.n++
	return time.Duration(float64(d) * (0.75 + rand.Float64()/2))
}

func (b *backoff) reset() { b.n = 0 }

// mayHurry reports whether a lost connection may be replaced without a pause:
// not when the one before was lost just now, too.
func (b *backoff) mayHurry() bool {
	hurry := time.Since(b.lastLoss) > 10*b.min
	b.lastLoss = time.Now()
	return hurry
}

// run keeps the server connected and its catalogue fresh until it is retired.
func (s *server) run() {
	defer close(s.loopDone)
	if !s.cfg.IsEnabled() {
		s.log.Info("the server is disabled")
		<-s.loop.Done()
		return
	}
	b := &backoff{min: s.opts.BackoffMin, max: s.opts.BackoffMax}
	for s.loop.Err() == nil {
		waiters := s.takeWaiters()
		c, err := s.connect(s.loop)
		if err == nil {
			s.adopt(c)
			s.putBack(waiters)
			waiters = nil
			began := time.Now()
			err = s.serve(c)
			if time.Since(began) > 10*b.min {
				b.reset()
			}
		}
		if s.loop.Err() != nil {
			answer(waiters, listed{err: errRetired})
			break
		}
		if c != nil && !errors.Is(err, errList) && b.mayHurry() {
			s.log.Info("the connection was lost: connecting again", "reason", err)
			s.setStatus(func(st *Status) { st.State, st.NextTry = Connecting, time.Time{} })
			continue
		}
		answer(waiters, listed{err: err})
		s.pause(s.degrade(err, KindConnect, b.next()))
	}
	answer(s.takeWaiters(), listed{err: errRetired})
}

// degrade records why the server is not well and when it is tried again.
func (s *server) degrade(err error, kind string, delay time.Duration) time.Duration {
	if errors.Is(err, errList) {
		kind = KindList
	}
	p := s.peer.problemOf(err, kind)
	if kind == KindList {
		p.Kind = KindList
	}
	known := s.snapshot()
	state := Degraded
	var need *logins.Needed
	if errors.As(err, &need) {
		// Nothing to mend and nothing to hurry for: a sign-in wakes the loop.
		p.Kind, state = KindLogin, LoginNeeded
		if s.personal() {
			p.Message += ", for a list that all see; or each user signs in there and has a list of their own"
		}
		delay = max(delay, s.opts.BackoffMax)
		s.mu.Lock()
		lent := s.lent
		s.mu.Unlock()
		if lent {
			return delay // listed by the grace of a user
		}
	}
	level := s.log.Warn
	if state == LoginNeeded && s.personal() && s.lastList() == nil {
		level = s.log.Info // users sign in when they need it
	}
	if known.State == state && known.Error != nil && known.Error.Message == p.Message {
		level = s.log.Debug // said before
	}
	level("the server is not ready", "state", state, "problem", p.Message, "kind", p.Kind, "next_try_in", delay.Round(time.Millisecond))
	s.setStatus(func(st *Status) {
		st.State, st.Error, st.NextTry = state, p, time.Now().Add(delay)
	})
	return delay
}

// lastList is the last full listing; nil: there was none.
func (s *server) lastList() *Catalogue {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// pause waits for the next attempt; somebody who asks shortens it.
func (s *server) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.asked:
	case <-s.loop.Done():
	}
}

// connect makes the session that the portal uses itself.
func (s *server) connect(ctx context.Context) (conn, error) {
	notify := func(method string, params json.RawMessage) {
		if s.opts.OnNotification != nil {
			s.opts.OnNotification(s.cfg.ID, "", "", method, params)
		}
	}
	return s.find(ctx, func(t target) (conn, error) {
		return s.dial(ctx, t, s.opts.ClientInfo, s.opts.Capabilities, "", false, notify)
	})
}

// find finds a way to the server, the one that worked last first.
func (s *server) find(ctx context.Context, dial func(target) (conn, error)) (conn, error) {
	transport := s.cfg.Transport
	switch {
	case len(s.cfg.Command) > 0:
		transport = transportStdio
	case s.source != nil:
		transport = transportOpenAPI
	case transport == "":
		transport = transportAuto
	}
	ts, err := targets(transport, s.cfg.URL)
	if err != nil {
		return nil, s.peer.fail("", KindConfig, false, err, "%v", err)
	}
	s.mu.Lock()
	if s.route != nil {
		ts = []target{*s.route}
	}
	s.mu.Unlock()
	var tried []string
	for _, t := range ts {
		c, err := dial(t)
		if err == nil {
			t.legacy = !c.hello().modern()
			s.mu.Lock()
			s.route, s.perUser = &t, c.hello().perUser
			s.mu.Unlock()
			return c, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		if !elsewhere(err) {
			s.forget(err)
			return nil, err
		}
		tried = append(tried, t.transport+" at "+t.url)
		s.log.Debug("not here", "transport", t.transport, "url", t.url, "error", err)
		if len(ts) == 1 {
			s.forget(err)
			return nil, err
		}
	}
	return nil, s.peer.fail("", KindConnect, false, nil, "no MCP server found: tried %s. Set the url to the server's endpoint", strings.Join(tried, ", "))
}

// forget drops what is known of the way to the server when the failure may
// come from it, so that the next attempt looks afresh.
func (s *server) forget(err error) {
	var ce *CallError
	if errors.As(err, &ce) && (ce.Problem.Kind == KindConnect || ce.Problem.Kind == KindAuth || ce.Problem.Kind == KindLogin || ce.Problem.Kind == KindProcess || ce.Problem.Kind == KindTimeout || ce.Problem.HTTPStatus >= 500) {
		return // it is down, not different
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.route = nil
}

// adopt makes c the main connection; the one before ends when its calls have.
func (s *server) adopt(c conn) {
	s.mu.Lock()
	old := s.main
	s.main = c
	s.mu.Unlock()
	if old != nil {
		go s.closeWhenIdle(old)
	}
	h := c.hello()
	s.setStatus(func(st *Status) { st.Transport, st.Protocol = h.transport, h.version })
}

func (s *server) closeWhenIdle(c conn) {
	end := time.Now().Add(s.timing().ceiling)
	for c.busy() > 0 && c.why() == nil && time.Now().Before(end) {
		time.Sleep(50 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), politeness)
	defer cancel()
	c.close(ctx)
}

// serve lists and waits, over and over, until the connection is of no use.
func (s *server) serve(c conn) error {
	stopListening := s.listen(c)
	defer stopListening()
	b := &backoff{min: s.opts.BackoffMin, max: s.opts.BackoffMax}
	pace := pacer{least: s.opts.Debounce}
	failures := 0
	for {
		waiters := s.takeWaiters()
		cat, err := s.list(s.loop, c)
		if s.loop.Err() != nil {
			answer(waiters, listed{err: errRetired})
			return errRetired
		}
		if err != nil {
			err = fmt.Errorf("%w: %w", errList, err)
			if lost := c.why(); lost != nil {
				s.putBack(waiters)
				return lost
			}
			answer(waiters, listed{err: err})
			if failures++; failures%3 == 0 && c.busy() == 0 {
				return err // the session may be what is wrong
			}
			s.pause(s.degrade(err, KindList, b.next()))
			if s.loop.Err() != nil {
				return errRetired
			}
			if lost := c.why(); lost != nil {
				return lost
			}
			continue
		}
		failures = 0
		b.reset()
		same := s.publish(cat, c)
		answer(waiters, listed{cat: cat})
		pace.listed(same)
		if pace.noticed, err = s.await(c, pace.spacing); err != nil {
			return err
		}
	}
}

// publish makes a listed catalogue known and the server ready.
func (s *server) publish(cat *Catalogue, c conn) (same bool) {
	s.mu.Lock()
	same = sameCatalogue(s.last, cat)
	s.last = cat
	s.mu.Unlock()
	if s.opts.OnCatalogue != nil {
		s.opts.OnCatalogue(s.cfg.ID, cat)
	}
	if s.snapshot().State != Ready {
		s.log.Info("the server is ready", "transport", c.hello().transport, "protocol", c.hello().version,
			"tools", len(cat.Tools), "prompts", len(cat.Prompts), "resources", len(cat.Resources), "templates", len(cat.Templates))
	}
	s.setStatus(func(st *Status) {
		st.State, st.Error, st.NextTry, st.Listed = Ready, nil, time.Time{}, time.Now()
	})
	return same
}

// pacer spaces the listings that notices cause: a server that announces
// changes all the time, without any, is not listed all the time.
type pacer struct {
	least, spacing time.Duration
	noticed        bool // the listing under way was caused by a notice
	last           time.Time
}

func (p *pacer) listed(same bool) {
	now := time.Now()
	if p.noticed && same && now.Sub(p.last) < max(10*time.Second, 4*p.spacing) {
		p.spacing = min(2*p.spacing, 30*time.Second)
	} else {
		p.spacing = p.least
	}
	if p.noticed {
		p.last = now
	}
}

// await waits until the catalogue should be listed again; noticed, because of
// a notice, which is acted on after spacing. An error is the loss of the
// connection.
func (s *server) await(c conn, spacing time.Duration) (noticed bool, err error) {
	poll := time.NewTimer(s.opts.Poll)
	defer poll.Stop()
	sweep := time.NewTicker(max(s.opts.SessionIdle/4, 10*time.Millisecond))
	defer sweep.Stop()
	var soon <-chan time.Time
	for {
		select {
		case <-s.loop.Done():
			return false, errRetired
		case <-c.lost():
			return false, c.why()
		case <-s.asked:
			return false, nil
		case <-poll.C:
			return false, nil
		case <-soon:
			return true, nil
		case <-s.nudges:
			if soon == nil {
				soon = time.After(spacing)
			}
		case now := <-sweep.C:
			s.pool.sweep(now)
		}
	}
}

// nudge asks for a listing soon. announced: the server said that it changed.
func (s *server) nudge(announced bool) {
	if announced && s.opts.OnListChanged != nil {
		s.opts.OnListChanged(s.cfg.ID)
	}
	select {
	case s.nudges <- struct{}{}:
	default:
	}
}

// refresh asks for a listing now and returns the channel with its outcome.
func (s *server) refresh() <-chan listed {
	ch := make(chan listed, 1)
	s.mu.Lock()
	if s.retired || !s.cfg.IsEnabled() {
		ch <- listed{err: s.peer.fail("", KindConfig, false, errRetired, "disabled or removed")}
	} else {
		s.waiters = append(s.waiters, ch)
	}
	s.mu.Unlock()
	select {
	case s.asked <- struct{}{}:
	default:
	}
	return ch
}

func (s *server) takeWaiters() []chan listed {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.waiters
	s.waiters = nil
	return w
}

func (s *server) putBack(w []chan listed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters = append(w, s.waiters...)
}

func answer(waiters []chan listed, l listed) {
	for _, w := range waiters {
		w <- l
	}
}
