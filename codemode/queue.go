package codemode

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// turns hands out the places for runs: at most total at once, at most perUser of
// one user, and at most waiting more of that user in the queue. A free place
// goes to the waiting user with the fewest runs, so nobody starves behind a
// user with a long queue.
type turns struct {
	total, perUser, waiting int

	mu      sync.Mutex
	running map[string]int
	sum     int
	queue   []*ticket
}

type ticket struct {
	owner string
	ready chan struct{}
}

func newTurns(total, perUser, waiting int) *turns {
	return &turns{total: total, perUser: perUser, waiting: waiting, running: map[string]int{}}
}

// busyError says why there is no place; its text is for the model.
type busyError struct{ message string }

func (b *busyError) Error() string { return b.message }

// take waits for a place, at most for patience. The place must be given back.
func (t *turns) take(ctx context.Context, owner string, patience time.Duration) error {
	t.mu.Lock()
	queued := 0
	for _, w := range t.queue {
		if w.owner == owner {
			queued++
		}
	}
	if queued >= t.waiting && (t.running[owner] >= t.perUser || t.sum >= t.total) {
		n := t.running[owner]
		t.mu.Unlock()
		return &busyError{fmt.Sprintf("you already have %d runs going and %d waiting; wait for one of them to end, then send this again", n, queued)}
	}
	w := &ticket{owner: owner, ready: make(chan struct{})}
	t.queue = append(t.queue, w)
	t.grant()
	t.mu.Unlock()

	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		if t.leave(w) {
			return ctx.Err()
		}
		t.give(owner)
		return ctx.Err()
	case <-timer.C:
		if t.leave(w) {
			return &busyError{fmt.Sprintf("no place to run became free within %s; send this again in a moment", patience)}
		}
		return nil // it was granted in the same instant
	}
}

// give returns a place.
func (t *turns) give(owner string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum--
	if t.running[owner]--; t.running[owner] == 0 {
		delete(t.running, owner)
	}
	t.grant()
}

// retake takes a place back that was given away while its run waited for a
// person. It does not wait: the run is alive and goes on, for a moment beyond
// the total.
func (t *turns) retake(owner string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum++
	t.running[owner]++
}

// leave takes a ticket out of the queue; false: it already has its place.
func (t *turns) leave(w *ticket) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, q := range t.queue {
		if q == w {
			t.queue = append(t.queue[:i], t.queue[i+1:]...)
			return true
		}
	}
	return false
}

func (t *turns) grant() {
	for t.sum < t.total {
		best := -1
		for i, w := range t.queue {
			n := t.running[w.owner]
			if n < t.perUser && (best < 0 || n < t.running[t.queue[best].owner]) {
				best = i
			}
		}
		if best < 0 {
			return
		}
		w := t.queue[best]
		t.queue = append(t.queue[:best], t.queue[best+1:]...)
		t.sum++
		t.running[w.owner]++
		close(w.ready)
	}
}

func (t *turns) counts() (running, queued int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sum, len(t.queue)
}
