package codemode

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mcp-portal/mcp-portal/codemode/internal/confine"
	"github.com/mcp-portal/mcp-portal/config"
)

// usable says what keeps a configuration from being used at all.
func usable(code config.Code) error {
	known := confine.Layers()
	for _, name := range code.Require {
		if !slices.Contains(known, name) {
			return fmt.Errorf("code.require names the unknown sandbox layer %q; known are %s", name, strings.Join(known, ", "))
		}
		if !platformLayers && name != confine.LayerUser {
			return fmt.Errorf("code.require asks for the sandbox layer %q, which exists on Linux only; remove it or run the portal on Linux", name)
		}
	}
	if code.Reuse != reuseSameUser && code.Reuse != reuseNever {
		return fmt.Errorf("code.reuse is %q; it must be %q or %q", code.Reuse, reuseSameUser, reuseNever)
	}
	if code.MaxWorkers < 1 || code.RunsPerUser < 1 || code.WallTime <= 0 || code.CPUTime <= 0 || code.MemoryMB < 1 || code.Parallel < 1 {
		return errors.New("the limits of code are not complete; start from config.Defaults")
	}
	return nil
}

// SetConfig has runs that begin from now on obey other limits; those under way
// keep theirs. Workers that were started for other limits are let go.
func (p *Pool) SetConfig(code config.Code) error {
	if err := usable(code); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.code.Store(&code)
	p.turns.bound(code.MaxWorkers, code.RunsPerUser, code.QueuePerUser, code.PausedInAll, code.PausedPerUser)
	unfit := func(w *process) bool {
		if p.fits(w) {
			return false
		}
		p.retireLocked(w)
		return true
	}
	p.warm = slices.DeleteFunc(p.warm, unfit)
	for owner, list := range p.owned {
		p.setOwned(owner, slices.DeleteFunc(list, unfit))
	}
	for len(p.warm) > code.Workers {
		p.retireLocked(p.warm[0])
		p.warm = p.warm[1:]
	}
	for p.liveLocked() > code.MaxWorkers && p.evictLocked() {
	}
	p.replenish()
	return nil
}

// fits tells whether a worker was started for the limits of now.
func (p *Pool) fits(w *process) bool {
	return slices.Equal(w.args, p.workerArgs()) && len(w.missing(p.code.Load().Require)) == 0
}

func (p *Pool) workerArgs() []string {
	code := p.code.Load()
	return workerArgs(code.MemoryMB, code.CPUTime, maxUses)
}
