package codemode

import (
	"time"

	"github.com/mcp-portal/mcp-portal/codemode/internal/proto"
)

type stats struct {
	layers        []proto.Layer
	runs          int
	failures      int
	lastFailure   string
	lastFailureAt time.Time
	ends          map[string]int
}

// Status is the state of a pool for the status page and the doctor command.
type Status struct {
	Live     int `json:"live"`     // worker processes
	Idle     int `json:"idle"`     // of them not in a run
	Starting int `json:"starting"` // not ready yet
	Running  int `json:"running"`  // runs in progress
	Waiting  int `json:"waiting"`  // runs that wait for a person and lend their place meanwhile
	Queued   int `json:"queued"`   // runs waiting for a place
	Runs     int `json:"runs"`     // ended since the start

	// Ends counts runs by the kind of their error; "ok" without one.
	Ends map[string]int `json:"ends"`
	// Layers are the walls around a worker as the newest one reported them;
	// empty until a worker was ready.
	Layers []Layer `json:"layers"`
	// Require are the layers without which nothing runs.
	Require []string `json:"require,omitempty"`
	Limits  Limits   `json:"limits"` // of one run

	Failures      int       `json:"failures"` // starts of workers that failed
	LastFailure   string    `json:"last_failure,omitempty"`
	LastFailureAt time.Time `json:"last_failure_at,omitzero"`
}

// Layer is one wall around a worker.
type Layer struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}

// Status returns the state of the pool now.
func (p *Pool) Status() Status {
	running, lent, queued := p.turns.counts()
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Status{
		Live: len(p.all), Starting: p.starting, Running: running, Waiting: lent, Queued: queued, Runs: p.stats.runs,
		Ends: map[string]int{}, Require: p.code.Load().Require, Limits: p.limits(Limits{}),
		Failures: p.stats.failures, LastFailure: p.stats.lastFailure, LastFailureAt: p.stats.lastFailureAt,
	}
	s.Idle = len(p.warm)
	for _, list := range p.owned {
		s.Idle += len(list)
	}
	for k, n := range p.stats.ends {
		s.Ends[k] = n
	}
	for _, l := range p.stats.layers {
		s.Layers = append(s.Layers, Layer(l))
	}
	return s
}

func (p *Pool) count(o *Outcome) {
	kind := "ok"
	if o.Error != nil {
		kind = o.Error.Kind
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.runs++
	if p.stats.ends == nil {
		p.stats.ends = map[string]int{}
	}
	p.stats.ends[kind]++
}
