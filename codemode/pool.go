package codemode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
)

const (
	maxUses       = 50              // runs of one worker
	maxAge        = 5 * time.Minute // of a worker that was used
	maxIdle       = time.Minute     // of a worker that waits for its owner
	sweepEvery    = 10 * time.Second
	reuseNever    = "never"
	reuseSameUser = "same-user"
	retryFirst    = 100 * time.Millisecond
	retryMost     = 5 * time.Second
	maxCallsCap   = 100_000 // the numbering of calls has room for more
)

var errClosed = errors.New("the sandbox is shut down")

// PoolOptions configure a Pool.
type PoolOptions struct {
	// Executable is the program that runs WorkerMain when its first argument is
	// WorkerCommand; "" means this program.
	Executable string
	// Code holds the limits, all of them, as config.Parse or config.Defaults
	// give them.
	Code config.Code
	// Log receives starts that fail and ends that look like attacks; nil: slog.Default.
	Log *slog.Logger
}

// Pool keeps sandbox workers and runs scripts on them. It is safe for
// concurrent use.
type Pool struct {
	code    atomic.Pointer[config.Code] // replaced by SetConfig while mu is held
	log     *slog.Logger
	turns   *turns
	spawner *spawner
	ctx     context.Context
	cancel  context.CancelFunc
	work    sync.WaitGroup

	mu       sync.Mutex
	all      map[*process]struct{} // started and not yet retired
	warm     []*process            // ready, never used
	owned    map[string][]*process // idle, each usable by its owner only
	starting int
	waiters  []chan spawned
	streak   int // failed starts in a row
	retryAt  time.Time
	retrying bool
	stats    stats
}

// NewPool makes a pool and starts its warm workers in the background: it never
// waits for a process. It refuses requirements that this platform cannot meet;
// those the kernel turns out not to meet are refused by every Run. The pool
// ends with ctx or with Close.
func NewPool(ctx context.Context, o PoolOptions) (*Pool, error) {
	code := o.Code
	if err := usable(code); err != nil {
		return nil, err
	}
	executable := o.Executable
	if executable == "" {
		var err error
		if executable, err = defaultExecutable(); err != nil {
			return nil, fmt.Errorf("find this program for the sandbox workers: %w", err)
		}
	}
	log := o.Log
	if log == nil {
		log = slog.Default()
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &Pool{
		log: log, ctx: ctx, cancel: cancel,
		turns: newTurns(code.MaxWorkers, code.RunsPerUser, code.QueuePerUser, code.PausedInAll, code.PausedPerUser),
		spawner: &spawner{
			executable: executable,
			orders:     make(chan chan<- spawned), done: ctx.Done(),
		},
		all: map[*process]struct{}{}, owned: map[string][]*process{},
	}
	p.code.Store(&code)
	p.work.Add(2)
	go func() { defer p.work.Done(); p.spawner.loop(p.workerArgs) }()
	go func() { defer p.work.Done(); p.sweep() }()
	p.mu.Lock()
	p.replenish()
	p.mu.Unlock()
	return p, nil
}

// Close ends every worker and waits until they are gone. Runs in progress end
// with an error.
func (p *Pool) Close() {
	p.cancel()
	p.mu.Lock()
	all := make([]*process, 0, len(p.all))
	for w := range p.all {
		all = append(all, w)
		w.kill()
	}
	p.mu.Unlock()
	for _, w := range all {
		<-w.exited
	}
	p.work.Wait()
}

// acquire returns a worker for owner: one it used before, a warm one, or a new
// one. The caller has a place, so there is room once idle workers make way.
func (p *Pool) acquire(ctx context.Context, owner string) (*process, error) {
	p.mu.Lock()
	if err := p.ctx.Err(); err != nil {
		p.mu.Unlock()
		return nil, errClosed
	}
	for mine := p.owned[owner]; len(mine) > 0; mine = p.owned[owner] {
		w := mine[len(mine)-1]
		p.setOwned(owner, mine[:len(mine)-1])
		if !w.dead() && time.Since(w.born) < maxAge && p.fits(w) {
			p.mu.Unlock()
			return w, nil
		}
		p.retireLocked(w)
	}
	for len(p.warm) > 0 {
		w := p.warm[0]
		p.warm = p.warm[1:]
		if !w.dead() && p.fits(w) {
			w.owner = owner
			p.mu.Unlock()
			return w, nil
		}
		p.retireLocked(w)
	}
	// A start that nobody waits for yet is this caller's: another one, and an
	// idle worker of somebody else ended for it, would be paid for by a start more.
	if p.starting <= len(p.waiters) {
		for p.liveLocked() >= p.code.Load().MaxWorkers && p.evictLocked() {
		}
		p.startLocked()
	}
	reply := make(chan spawned, 1)
	p.waiters = append(p.waiters, reply)
	p.mu.Unlock()
	select {
	case got := <-reply:
		if got.err == nil {
			got.p.owner = owner
		}
		return got.p, got.err
	case <-ctx.Done():
		p.abandon(reply)
		return nil, ctx.Err()
	case <-p.ctx.Done():
		p.abandon(reply)
		return nil, errClosed
	}
}

// abandon gives back a worker that arrives for a caller who left.
func (p *Pool) abandon(reply chan spawned) {
	p.mu.Lock()
	i := slices.Index(p.waiters, reply)
	if i >= 0 {
		p.waiters = slices.Delete(p.waiters, i, i+1)
	}
	p.mu.Unlock()
	if i < 0 {
		if got := <-reply; got.err == nil {
			p.mu.Lock()
			p.keepWarm(got.p)
			p.mu.Unlock()
		}
	}
}

func (p *Pool) setOwned(owner string, list []*process) {
	if len(list) == 0 {
		delete(p.owned, owner)
		return
	}
	p.owned[owner] = list
}

// evictLocked retires the worker that has been idle longest.
func (p *Pool) evictLocked() bool {
	var oldest *process
	for _, list := range p.owned {
		if oldest == nil || list[0].idle.Before(oldest.idle) {
			oldest = list[0]
		}
	}
	if oldest == nil {
		return false
	}
	p.setOwned(oldest.owner, p.owned[oldest.owner][1:])
	p.retireLocked(oldest)
	return true
}

// release takes a worker back after a run.
func (p *Pool) release(w *process, reusable bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	code := p.code.Load()
	if reusable && code.Reuse != reuseNever && p.ctx.Err() == nil && !w.dead() && w.uses < maxUses && time.Since(w.born) < maxAge && p.fits(w) &&
		p.liveLocked() <= code.MaxWorkers { // there are more when runs got back the places they had lent
		w.idle = time.Now()
		p.owned[w.owner] = append(p.owned[w.owner], w)
	} else {
		p.retireLocked(w)
	}
	p.replenish() // after the run: a start would have competed with it for the processor
}

// liveLocked is the number of workers that count: those of runs that wait for a
// person have limits of their own.
func (p *Pool) liveLocked() int {
	_, lent, _ := p.turns.counts()
	return len(p.all) + p.starting - lent
}

func (p *Pool) retireLocked(w *process) {
	w.kill()
	delete(p.all, w)
}

// replenish starts warm workers as far as there is room.
func (p *Pool) replenish() {
	if p.ctx.Err() != nil {
		return
	}
	code := p.code.Load()
	for len(p.warm)+p.starting-len(p.waiters) < code.Workers && p.liveLocked() < code.MaxWorkers {
		if wait := time.Until(p.retryAt); wait > 0 {
			if !p.retrying {
				p.retrying = true
				time.AfterFunc(wait, func() {
					p.mu.Lock()
					defer p.mu.Unlock()
					p.retrying = false
					p.replenish()
				})
			}
			return
		}
		p.startLocked()
	}
}

func (p *Pool) startLocked() {
	p.starting++
	p.work.Add(1)
	go func() {
		defer p.work.Done()
		w, err := p.spawner.start(p.ctx)
		if err == nil {
			if lost := w.missing(p.code.Load().Require); len(lost) > 0 {
				w.kill()
				err = fmt.Errorf("code.require asks for sandbox layers that do not hold here: %s", strings.Join(lost, "; "))
			}
		}
		p.arrived(w, err)
	}()
}

func (p *Pool) arrived(w *process, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starting--
	if err == nil && p.ctx.Err() != nil {
		w.kill()
		err = errClosed
	}
	if err != nil {
		p.failed(err)
	} else {
		p.streak = 0
		p.retryAt = time.Time{}
		if p.stats.layers == nil {
			p.reportLayers(w)
		}
		p.stats.layers = w.layers
		p.all[w] = struct{}{}
	}
	if err == nil && len(p.waiters) > 0 && !p.fits(w) {
		p.retireLocked(w) // the limits changed while it started
		p.startLocked()
		return
	}
	if len(p.waiters) > 0 {
		first := p.waiters[0]
		p.waiters = p.waiters[1:]
		first <- spawned{w, err}
	} else if err == nil {
		p.keepWarm(w)
	}
	p.replenish()
}

// reportLayers says once which walls hold, and which do not although nothing
// required them.
func (p *Pool) reportLayers(w *process) {
	var hold []string
	for _, l := range w.layers {
		if l.OK {
			hold = append(hold, l.Name)
		} else {
			p.log.Warn("a layer of the sandbox does not hold here; scripts run without it", "layer", l.Name, "reason", l.Detail)
		}
	}
	p.log.Info("the sandbox is ready", "layers", strings.Join(hold, " "))
}

func (p *Pool) keepWarm(w *process) {
	if p.ctx.Err() != nil || len(p.warm) >= p.code.Load().Workers || !p.fits(w) {
		p.retireLocked(w)
		return
	}
	p.warm = append(p.warm, w)
}

func (p *Pool) failed(err error) {
	if errors.Is(err, errClosed) || errors.Is(err, context.Canceled) || p.ctx.Err() != nil {
		return // the pool is closing: its end is no failure
	}
	p.streak++
	p.stats.failures++
	p.stats.lastFailure = err.Error()
	p.stats.lastFailureAt = time.Now()
	p.retryAt = time.Now().Add(min(retryMost, retryFirst<<min(p.streak-1, 10)))
	p.log.Error("a sandbox worker could not be started", "error", err, "in_a_row", p.streak)
}

// sweep retires workers that nobody came back for.
func (p *Pool) sweep() {
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	for {
		select {
		case <-p.ctx.Done():
			p.killAll() // the context ended without Close
			return
		case <-t.C:
		}
		p.mu.Lock()
		for owner, list := range p.owned {
			p.setOwned(owner, slices.DeleteFunc(list, func(w *process) bool {
				old := w.dead() || time.Since(w.idle) > maxIdle || time.Since(w.born) > maxAge
				if old {
					p.retireLocked(w)
				}
				return old
			}))
		}
		p.warm = slices.DeleteFunc(p.warm, func(w *process) bool {
			dead := w.dead()
			if dead {
				p.retireLocked(w)
				p.failed(fmt.Errorf("an idle sandbox worker ended: %s %s", exitText(w), w.stderr))
			}
			return dead
		})
		p.replenish()
		p.mu.Unlock()
	}
}

func (p *Pool) killAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.all {
		w.kill()
	}
}

func exitText(w *process) string {
	select {
	case <-w.exited:
		return w.state.String()
	default:
		return "killed"
	}
}
