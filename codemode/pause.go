package codemode

import "sync"

// Pause counts the calls of a run that wait for a person. A call begins at most
// once at a time. While every unfinished call of the run waits and the script
// can do nothing without an answer, the wall clock of the run stands still and
// others have its place.
type Pause struct {
	mu    sync.Mutex
	n     int
	watch func(n int)
}

// Begin says that one more call waits.
func (p *Pause) Begin() { p.add(1) }

// End ends one Begin.
func (p *Pause) End() { p.add(-1) }

func (p *Pause) add(d int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n += d
	if p.watch != nil {
		p.watch(p.n)
	}
}

// follow has f called at every change from now on, and once at once. The
// returned function ends it.
func (p *Pause) follow(f func(n int)) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watch = f
	f(p.n)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.watch = nil
	}
}
