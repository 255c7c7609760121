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
}

// Begin starts waiting; it nests.
func (p *Pause) Begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n == 0 {
		p.since = time.Now()
	}
	p.n++
}

// End ends one Begin.
func (p *Pause) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n--; p.n == 0 {
		p.total += time.Since(p.since)
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
