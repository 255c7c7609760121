package codemode

import (
	"fmt"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/codemode/internal/proto"
)

const (
	// What a worker may use while its run rests: a collection under way, and
	// the runtime's own upkeep. More is a script that goes on in secret.
	restSlack = time.Second
	restShare = 20 // one part in so many of the time
)

// clock enforces the wall clock, which stands still while the run rests, the
// processor time of a worker that does not enforce it itself, and that a run
// that rests uses none. The returned function stops it and may be called twice.
func (e *execution) clock() (stop func()) {
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		var rested time.Time // since when the run has been seen to rest; zero: it does not
		var before time.Duration
		for {
			total, resting := e.rest.state()
			left := e.lim.Wall - (time.Since(e.start) - total)
			if left <= 0 && !resting {
				e.expire(kindWall, proto.StopWall, done)
				return
			}
			used, ok := cpuTime(e.w.cmd.Process.Pid)
			switch {
			case !ok:
			case used-e.cpu0 > e.lim.CPU+cpuSlack+total/restShare: // resting costs a process a little, too
				e.expire(kindCPU, proto.StopCPU, done)
				return
			case !resting:
				rested = time.Time{}
			case rested.IsZero():
				rested, before = time.Now(), used
			case used-before > restSlack+time.Since(rested)/restShare:
				e.expose(fmt.Errorf("%w: it computed for %s while its script was to wait", proto.ErrProtocol, used-before))
				return
			}
			pause := min(left, 100*time.Millisecond)
			if resting {
				pause = 100 * time.Millisecond
			}
			t := time.NewTimer(pause)
			select {
			case <-done:
				t.Stop()
				return
			case <-t.C:
			}
		}
	}()
	var once sync.Once
	return func() { once.Do(func() { close(done) }); <-gone }
}

// expose ends a worker that was caught.
func (e *execution) expose(err error) {
	e.caught.Store(&err)
	e.w.kill()
}

// expire orders the worker to stop, so that it can say where the script was,
// and kills it when it does not.
func (e *execution) expire(kind string, order byte, done <-chan struct{}) {
	e.over.Store(&kind)
	e.w.order(order, e.id)
	t := time.NewTimer(killGrace)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		e.w.kill()
	}
}
