package codemode

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/codemode/internal/proto"
)

// rest knows when a run does nothing but wait for people: every call under way
// waits for one, the worker has said that its script can do nothing without an
// answer, and no answer is on its way to it. Then the wall clock stands still
// and the place is lent to others. An answer that ends the rest reaches the
// worker once the run has its place back.
type rest struct {
	place *place
	tell  func(bool) // of a rest that begins or ends; may be nil

	mu     sync.Mutex
	calls  int    // under way
	people int    // of them waiting for a person
	held   int    // left without an answer
	give   func() // gives one of those a stand-in; nil: none are given
	left   int    // that can be given one
	giving bool   // one is on its way
	sent   uint32 // answers to the worker
	taken  uint32 // of them, when the worker last said that it is idle
	idle   bool   // it said so, and nothing came since
	now    bool   // the run rests
	back   <-chan struct{}
	since  time.Time     // of a rest whose end is not accounted for; zero: none
	total  time.Duration // of the rests before
}

func newRest(p *place, tell func(bool)) *rest { return &rest{place: p, tell: tell} }

// update decides anew. The caller holds mu.
func (r *rest) update() {
	now := r.idle && r.taken == r.sent && r.calls+r.held > 0 && r.people >= r.calls
	if now && r.give != nil && (r.left > 0 || r.giving) {
		if !r.giving {
			r.giving = true
			r.left--
			r.held--
			go r.give()
		}
		now = false
	}
	switch {
	case now && !r.now:
		if r.account(); r.since.IsZero() {
			r.since = time.Now()
		}
		r.place.rest()
	case !now && r.now:
		r.back = r.place.wake()
	}
	if now != r.now && r.tell != nil {
		r.tell(now)
	}
	r.now = now
}

// account adds a rest that is over to the total. The caller holds mu.
func (r *rest) account() {
	if r.since.IsZero() || r.now {
		return
	}
	select {
	case <-r.back:
		r.total += time.Since(r.since)
		r.since = time.Time{}
	default:
	}
}

// waiting is told how many calls wait for a person.
func (r *rest) waiting(people int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.people = people
	r.update()
}

// call counts calls under way, d more.
func (r *rest) call(d int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls += d
	r.update()
}

// hold turns a call under way into one that is left without an answer.
func (r *rest) hold(standIn bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls--
	r.held++
	if standIn {
		r.left++
	}
	r.update()
}

// answer waits for the place, if the run does not have it, and counts an answer
// that is about to be sent. It fails only when ctx ends.
func (r *rest) answer(ctx context.Context) error {
	r.mu.Lock()
	r.sent++
	r.giving = false
	r.update()
	back := r.back
	r.mu.Unlock()
	if back == nil {
		return nil
	}
	select {
	case <-back:
		r.mu.Lock()
		r.account()
		r.mu.Unlock()
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// acts takes a sign of life. While the worker has said that its script waits,
// and nothing was sent to it, the script can make no call; the worker itself may
// still find that a limit is exceeded.
func (r *rest) acts(k proto.Kind) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k != proto.Log && r.idle && r.taken == r.sent {
		return fmt.Errorf("%w: a call of a script that was to wait", proto.ErrProtocol)
	}
	r.idle = false
	r.update()
	return nil
}

// idles takes an Idle frame.
func (r *rest) idles(data []byte) error {
	n, err := proto.DecodeIdle(data)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n > r.sent || n < r.taken || r.idle && n == r.taken {
		return fmt.Errorf("%w: idle after %d answers of %d", proto.ErrProtocol, n, r.sent)
	}
	r.idle, r.taken = true, n
	r.update()
	return nil
}

// state returns how long the run has rested so far and whether it does now or
// waits to go on.
func (r *rest) state() (total time.Duration, now bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.account()
	if r.since.IsZero() {
		return r.total, false
	}
	return r.total + time.Since(r.since), true
}
