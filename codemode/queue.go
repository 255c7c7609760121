package codemode

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// turns hands out the places for runs: at most total at once, at most perUser of
// one user, and at most waiting more of that user in the queue. A free place
// goes to the waiting user with the fewest runs, so nobody starves behind a
// user with a long queue.
//
// A run that does nothing but wait for a person lends its place to others, as
// long as fewer than lentMost places are lent in all and lentPerUser of its
// user; beyond that it keeps it. It computes again only when it has a place
// again, and comes before runs that have not begun.
type turns struct {
	total, perUser, waiting int
	lentMost, lentPerUser   int

	mu      sync.Mutex
	running map[string]int // places held, by user
	sum     int            // of running
	lent    map[string]int // places lent to others, by user
	lentSum int
	queue   []*place // runs that have not begun
	back    []*place // runs that want their place back
	resting []*place // runs that would lend theirs, but too many are lent
}

// place is the right of one run to compute. Its fields are guarded by turns.mu.
type place struct {
	t     *turns
	owner string
	state placeState
	rests bool          // the run does nothing but wait for a person
	ready chan struct{} // closed when the place is held
}

type placeState int

const (
	placeWaiting placeState = iota // in turns.queue
	placeHeld
	placeLent
	placeWanted // lent, and in turns.back
	placeGiven
)

func newTurns(total, perUser, waiting, lentMost, lentPerUser int) *turns {
	return &turns{
		total: total, perUser: perUser, waiting: waiting, lentMost: lentMost, lentPerUser: lentPerUser,
		running: map[string]int{}, lent: map[string]int{},
	}
}

// bound changes how many places there are; runs that hold one keep it.
func (t *turns) bound(total, perUser, waiting, lentMost, lentPerUser int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total, t.perUser, t.waiting, t.lentMost, t.lentPerUser = total, perUser, waiting, lentMost, lentPerUser
	t.settle()
}

// busyError says why there is no place; its text is for the model.
type busyError struct{ message string }

func (b *busyError) Error() string { return b.message }

// take waits for a place, at most for patience. The place must be given back.
func (t *turns) take(ctx context.Context, owner string, patience time.Duration) (*place, error) {
	t.mu.Lock()
	queued := count(t.queue, owner)
	if queued >= t.waiting && (t.running[owner] >= t.perUser || t.sum >= t.total) {
		err := t.busy(owner, queued)
		t.mu.Unlock()
		return nil, err
	}
	p := &place{t: t, owner: owner, ready: make(chan struct{})}
	t.queue = append(t.queue, p)
	t.settle()
	t.mu.Unlock()

	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.ready:
		return p, nil
	case <-ctx.Done():
		p.give()
		return nil, ctx.Err()
	case <-timer.C:
		if p.leave() {
			return nil, &busyError{fmt.Sprintf("no place to run became free within %s%s; send this again in a moment", patience, t.why(owner))}
		}
		return p, nil // it was granted in the same instant
	}
}

// busy says why a run of this user may not even queue. The caller holds mu.
func (t *turns) busy(owner string, queued int) error {
	rest := count(t.resting, owner)
	next := "wait for one of them to end, then send this again"
	if rest > 0 {
		next = "have those approvals decided, or wait for a run to end, then send this again"
	}
	return &busyError{fmt.Sprintf("you already have %d runs going%s and %d waiting; %s", t.running[owner], atApprovals(rest), queued, next)}
}

// why adds to a message what holds the places of this user.
func (t *turns) why(owner string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if rest := count(t.resting, owner); rest > 0 {
		return fmt.Sprintf(": you have %d runs going%s", t.running[owner], atApprovals(rest))
	}
	return ""
}

func atApprovals(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d of them at approvals that nobody has decided)", n)
}

func count(list []*place, owner string) (n int) {
	for _, p := range list {
		if p.owner == owner {
			n++
		}
	}
	return n
}

// give returns the place for good, whatever has become of it; further calls do
// nothing.
func (p *place) give() {
	t := p.t
	t.mu.Lock()
	defer t.mu.Unlock()
	switch p.state {
	case placeWaiting:
		t.queue = without(t.queue, p)
	case placeHeld:
		t.free(p)
		t.resting = without(t.resting, p)
	case placeLent:
		t.unlend(p)
	case placeWanted:
		t.back = without(t.back, p)
	case placeGiven:
		return
	}
	p.state = placeGiven
	t.settle()
}

// leave takes a place that was not granted yet out of the queue; false: it is
// held by now.
func (p *place) leave() bool {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	if p.state != placeWaiting {
		return false
	}
	p.t.queue = without(p.t.queue, p)
	p.state = placeGiven
	return true
}

// rest says that the run does nothing but wait for a person: others may have
// its place.
func (p *place) rest() {
	t := p.t
	t.mu.Lock()
	defer t.mu.Unlock()
	p.rests = true
	if p.state == placeHeld {
		t.resting = append(t.resting, p)
	}
	t.settle()
}

// wake says that the run wants to go on. The channel is closed when it may.
func (p *place) wake() <-chan struct{} {
	t := p.t
	t.mu.Lock()
	defer t.mu.Unlock()
	p.rests = false
	t.resting = without(t.resting, p)
	if p.state == placeLent {
		t.unlend(p)
		p.state = placeWanted
		p.ready = make(chan struct{})
		t.back = append(t.back, p)
	}
	t.settle()
	return p.ready
}

// settle lends what can be lent and hands out what is free, until neither is
// possible. The caller holds mu.
func (t *turns) settle() {
	for {
		i := slices.IndexFunc(t.resting, func(p *place) bool { return t.lentSum < t.lentMost && t.lent[p.owner] < t.lentPerUser })
		if i < 0 && t.grant() {
			continue
		}
		if i < 0 {
			return
		}
		p := t.resting[i]
		t.resting = slices.Delete(t.resting, i, i+1)
		t.free(p)
		p.state = placeLent
		t.lent[p.owner]++
		t.lentSum++
	}
}

// grant hands out free places, and tells whether one of them went to a run that
// rests again by now. The caller holds mu.
func (t *turns) grant() (rests bool) {
	for t.sum < t.total {
		p := t.next(t.back)
		if p == nil {
			p = t.next(t.queue)
		}
		if p == nil {
			return rests
		}
		t.back, t.queue = without(t.back, p), without(t.queue, p)
		p.state = placeHeld
		t.sum++
		t.running[p.owner]++
		close(p.ready)
		if p.rests {
			t.resting = append(t.resting, p)
			rests = true
		}
	}
	return rests
}

// next is the place of the user with the fewest runs.
func (t *turns) next(list []*place) (best *place) {
	for _, p := range list {
		n := t.running[p.owner]
		if n < t.perUser && (best == nil || n < t.running[best.owner]) {
			best = p
		}
	}
	return best
}

func (t *turns) free(p *place) {
	t.sum--
	if t.running[p.owner]--; t.running[p.owner] == 0 {
		delete(t.running, p.owner)
	}
}

func (t *turns) unlend(p *place) {
	t.lentSum--
	if t.lent[p.owner]--; t.lent[p.owner] == 0 {
		delete(t.lent, p.owner)
	}
}

func without(list []*place, p *place) []*place {
	if i := slices.Index(list, p); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// counts are the places held and lent, and the runs that wait for one.
func (t *turns) counts() (running, lent, queued int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sum, t.lentSum, len(t.queue) + len(t.back)
}
