package codemode

import (
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/codemode/internal/proto"
)

// clock enforces the wall clock, which stands still while a person is asked,
// and the processor time of a worker that does not enforce it itself. The
// returned function stops it and may be called twice.
func (e *execution) clock() (stop func()) {
	done, gone := make(chan struct{}), make(chan struct{})
	pausedBefore, _ := e.paused()
	go func() {
		defer close(gone)
		for {
			total, waiting := e.paused()
			left := e.lim.Wall - (time.Since(e.start) - (total - pausedBefore))
			if left <= 0 && !waiting {
				e.expire(kindWall, proto.StopWall, done)
				return
			}
			// Waiting costs a process a little, too.
			allowed := e.lim.CPU + cpuSlack + (total-pausedBefore)/50
			if used, ok := cpuTime(e.w.cmd.Process.Pid); ok && used-e.cpu0 > allowed {
				e.expire(kindCPU, proto.StopCPU, done)
				return
			}
			pause := min(left, 100*time.Millisecond)
			if waiting {
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

func (e *execution) paused() (time.Duration, bool) {
	if e.req.Paused == nil {
		return 0, false
	}
	return e.req.Paused.State()
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
