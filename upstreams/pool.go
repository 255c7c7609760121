package upstreams

import (
	"context"
	"errors"
	"sync"
	"time"
)

// slotKey says whose session it is. A user is part of every key.
type slotKey struct {
	user, session string
	caps          string // of the client, as the server was told
	login         string // id of the login that authorizes it; "": none does
}

// pool keeps the sessions that must not be shared between users: one per key,
// made by the first call that needs it while the others wait for it.
type pool struct {
	dial  func(ctx context.Context, c *Call) (conn, error)
	peer  *peer
	max   int
	idle  time.Duration
	pause time.Duration // after a failed attempt

	ctx    context.Context // of creations: ends when the pool is retired
	cancel context.CancelFunc

	mu      sync.Mutex
	slots   map[slotKey]*slot
	retired bool
	ending  sync.WaitGroup // sessions being closed
}

type slot struct {
	ready chan struct{} // closed when c or err is set
	c     conn
	err   error
	since time.Time // of the failure
	used  time.Time
	users int // calls that hold it
	drop  bool
}

func newPool(p *peer, max int, idle, pause time.Duration, dial func(ctx context.Context, c *Call) (conn, error)) *pool {
	ctx, cancel := context.WithCancel(context.Background())
	return &pool{dial: dial, peer: p, max: max, idle: idle, pause: pause, ctx: ctx, cancel: cancel, slots: map[slotKey]*slot{}}
}

// acquire returns the session of the key, making it if need be. release must
// be called when the call is over.
func (p *pool) acquire(ctx context.Context, key slotKey, c *Call) (conn, func(), error) {
	p.mu.Lock()
	if p.retired {
		p.mu.Unlock()
		return nil, nil, p.peer.fail(c.Name, KindConfig, false, errRetired, "%v", errRetired)
	}
	s := p.slots[key]
	if s != nil && p.stale(s) {
		p.removeLocked(key, s)
		s = nil
	}
	if s == nil {
		if err := p.roomLocked(c); err != nil {
			p.mu.Unlock()
			return nil, nil, err
		}
		s = &slot{ready: make(chan struct{})}
		p.slots[key] = s
		go p.create(s, c)
	}
	s.users++
	p.mu.Unlock()

	release := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		s.users--
		s.used = time.Now()
		if s.users == 0 && s.drop {
			p.endLocked(s)
		}
	}
	select {
	case <-s.ready:
	case <-ctx.Done():
		release()
		return nil, nil, p.peer.network(ctx, c.Name, false, ctx.Err())
	}
	if s.err != nil {
		release()
		var ce *CallError
		if errors.As(s.err, &ce) {
			out := *ce
			out.Tool, out.Sent = p.peer.clean(c.Name), false
			return nil, nil, &out
		}
		return nil, nil, p.peer.fail(c.Name, KindConnect, false, s.err, "no session for this user: %v", s.err)
	}
	p.mu.Lock()
	cn := s.c
	p.mu.Unlock()
	if cn == nil { // closed for good in between
		release()
		return nil, nil, p.peer.fail(c.Name, KindConfig, false, errRetired, "%v", errRetired)
	}
	return cn, release, nil
}

// stale reports whether a slot must be made anew.
func (p *pool) stale(s *slot) bool {
	select {
	case <-s.ready:
	default:
		return false // under way: join it
	}
	if s.err != nil {
		return time.Since(s.since) >= p.pause
	}
	return s.c == nil || s.c.why() != nil
}

// create makes the session. Its clock is not the first caller's: others wait
// for it too.
func (p *pool) create(s *slot, c *Call) {
	cn, err := p.dial(p.ctx, c)
	p.mu.Lock()
	defer p.mu.Unlock()
	s.used = time.Now()
	if err == nil && p.retired { // made for a configuration that is gone
		err = p.peer.fail("", KindConfig, false, errRetired, "%v", errRetired)
		p.goClose(cn)
		cn = nil
	} else if err != nil && p.retired {
		err = p.peer.fail("", KindConfig, false, errRetired, "%v", errRetired)
	}
	s.c, s.err = cn, err
	if err != nil {
		s.since = time.Now()
	}
	close(s.ready)
	if s.drop && s.users == 0 { // closed while it was being made
		p.endLocked(s)
	}
}

// roomLocked makes room for one more session by ending the one idle longest.
func (p *pool) roomLocked(c *Call) error {
	if len(p.slots) < p.max {
		return nil
	}
	var oldest *slot
	var at slotKey
	for k, s := range p.slots {
		select {
		case <-s.ready:
		default:
			continue
		}
		if s.users == 0 && (oldest == nil || s.used.Before(oldest.used)) {
			oldest, at = s, k
		}
	}
	if oldest == nil {
		return p.peer.fail(c.Name, KindConfig, false, nil, "all %d sessions with this server are in use: try again later", p.max)
	}
	p.removeLocked(at, oldest)
	return nil
}

// removeLocked takes a slot out; its session ends when its calls have.
func (p *pool) removeLocked(key slotKey, s *slot) {
	if p.slots[key] == s {
		delete(p.slots, key)
	}
	s.drop = true
	if s.users == 0 {
		p.endLocked(s)
	}
}

func (p *pool) endLocked(s *slot) {
	if s.c != nil {
		p.goClose(s.c)
		s.c = nil
	}
}

func (p *pool) goClose(c conn) {
	p.ending.Add(1)
	go func() {
		defer p.ending.Done()
		ctx, cancel := context.WithTimeout(context.Background(), politeness)
		defer cancel()
		c.close(ctx)
	}()
}

// closeSession ends what belongs to a portal session that is over.
func (p *pool) closeSession(user, session string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, s := range p.slots {
		if k.user == user && k.session == session {
			p.removeLocked(k, s)
		}
	}
}

// closeLogins ends the sessions that were begun with another login than the
// present one ("": there is none), of one user or, where one login serves all,
// of everybody. Calls in flight end first.
func (p *pool) closeLogins(user, present string, all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, s := range p.slots {
		if (all || k.user == user) && k.login != "" && k.login != present {
			if s.c != nil {
				s.c.base().lose(errGone) // what listens on it, too
			}
			p.removeLocked(k, s)
		}
	}
}

// sweep ends sessions that were idle for long or are lost.
func (p *pool) sweep(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, s := range p.slots {
		if s.users == 0 && (now.Sub(s.used) > p.idle || p.stale(s)) {
			p.removeReadyLocked(k, s)
		}
	}
}

// removeReadyLocked is removeLocked for slots that are not under way.
func (p *pool) removeReadyLocked(k slotKey, s *slot) {
	select {
	case <-s.ready:
		p.removeLocked(k, s)
	default:
	}
}

// retire lets nothing new begin and gives up what is being made.
func (p *pool) retire() {
	p.mu.Lock()
	p.retired = true
	p.mu.Unlock()
	p.cancel()
}

// closeAll ends every session, also those in use, and waits.
func (p *pool) closeAll() {
	p.retire()
	p.mu.Lock()
	var making []*slot
	for k, s := range p.slots {
		delete(p.slots, k)
		select {
		case <-s.ready:
			p.endLocked(s)
		default:
			making = append(making, s)
		}
	}
	p.mu.Unlock()
	for _, s := range making {
		<-s.ready
	}
	p.ending.Wait()
}
