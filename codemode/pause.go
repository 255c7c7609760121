package codemode

import (
	"sync"
	"time"
)

// Pause measures how long a run waits for a person. While at least one Begin
// is without its End, the wall clock of the run stands still.
type Pause struct {
	mu    sync.Mutex
	n     int
	since time.Time
	total time.Duration
	watch func(waiting bool)
}

// Begin starts waiting; it nests.
func (p *Pause) Begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n == 0 {
		p.since = time.Now()
		p.tell(true)
	}
	p.n++
}

// End ends one Begin.
func (p *Pause) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n--; p.n == 0 {
		p.total += time.Since(p.since)
		p.tell(false)
	}
}

func (p *Pause) tell(waiting bool) {
	if p.watch != nil {
		p.watch(waiting)
	}
}

// follow has f called at every change from now on, once at once if it waits
// already. The returned function ends it.
func (p *Pause) follow(f func(waiting bool)) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watch = f
	if p.n > 0 {
		f(true)
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.watch = nil
	}
}

// State returns the time spent waiting so far and whether it waits now.
func (p *Pause) State() (total time.Duration, waiting bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	total = p.total
	if p.n > 0 {
		total += time.Since(p.since)
	}
	return total, p.n > 0
}
