package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/codemode"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

const (
	runPrefix = "portal-run:" // of a requestState that belongs to a run
	// A run that waits for people is shown to them once it has been quiet so
	// long: parallel writes then appear together.
	quietFor = 250 * time.Millisecond
	// portal_execute {resume} waits so long for a decision before it answers
	// that there is none yet.
	resumeWait = 15 * time.Second
	// Runs that wait with nobody attached, each with a sandbox process of its
	// own: beyond these the one waiting longest is ended.
	pausedPerUser = 8
	pausedInAll   = 32
)

// runs are the scripts under way in this process. A run that waits for a
// person outlives the request that began it.
type runs struct {
	g *Gateway

	mu  sync.Mutex
	all map[string]*run
}

// run is one script: started by one request, perhaps resumed by others of the
// same user.
type run struct {
	id     string
	g      *Gateway
	req    *request // of the start: its view and settings hold to the end
	ctx    context.Context
	cancel context.CancelCauseFunc
	pause  codemode.Pause
	done   chan struct{} // closed when out and err are set
	out    *codemode.Outcome
	err    error

	mu       sync.Mutex
	pending  map[string]*pendingApproval
	waiters  int           // calls that wait for a person; equal ones share an approval
	waited   bool          // it has waited: what counts now is the present configuration
	changed  chan struct{} // closed and replaced when pending or busy changes
	busy     int           // host calls under way, waiting ones included
	made     []madeCall
	attached bool
	left     time.Time // when the last request let go of it
}

// pendingApproval is an approval that n calls of a run wait for.
type pendingApproval struct {
	approval *writeguard.Approval
	n        int
}

// madeCall is a call that a run made, for reports that must survive it.
type madeCall struct {
	Tool   string           `json:"tool"`
	Class  writeguard.Class `json:"class"`
	Status string           `json:"status"`
}

func newRuns(g *Gateway) *runs { return &runs{g: g, all: map[string]*run{}} }

// start begins a script. It runs until it ends, is cancelled, or has waited
// for a person too long.
func (s *runs) start(r *request, code string) *run {
	ctx, cancel := context.WithCancelCause(context.Background())
	x := &run{id: "run_" + randomID(), g: s.g, req: r, ctx: ctx, cancel: cancel, done: make(chan struct{}),
		pending: map[string]*pendingApproval{}, changed: make(chan struct{}), attached: true}
	s.mu.Lock()
	s.all[x.id] = x
	s.mu.Unlock()
	go func() {
		defer func() {
			cancel(nil)
			close(x.done)
			x.mu.Lock()
			x.signal()
			x.mu.Unlock()
		}()
		x.out, x.err = s.g.opt.Runner.Run(ctx, codemode.Request{ID: x.id, Owner: r.who.ID, Code: code, Tools: codeTools(r.view), Paused: &x.pause},
			&counted{host: &host{g: s.g, req: r, run: x}, run: x})
	}()
	return x
}

// counted lets the run know which calls are under way.
type counted struct {
	*host
	run *run
}

func (c *counted) Call(ctx context.Context, hc codemode.HostCall) (json.RawMessage, error) {
	x := c.run
	m := madeCall{Tool: hc.Tool, Class: writeguard.Write, Status: "in_flight"}
	if t, ok := c.req.view.tool(hc.Tool); ok {
		m.Class = c.req.set.policy.Decide(writeguard.Call{Principal: c.req.who, Client: c.req.client, Mode: writeguard.Code, Run: x.id, Server: t.Server, Tool: t.Name,
			Description: t.Description, Annotations: t.Annotations, Arguments: hc.Arguments}).Class
	}
	x.mu.Lock()
	x.busy++
	i := len(x.made)
	x.made = append(x.made, m)
	x.mu.Unlock()
	h := &host{g: c.g, req: x.request(ctx), run: x}
	res, err := h.Call(context.WithValue(ctx, madeKey{}, i), hc)
	x.mu.Lock()
	x.busy--
	x.made[i].Status = outcome(ctx, res, err)
	var he *codemode.HostError
	if errors.As(err, &he) {
		x.made[i].Status = he.Code
	}
	x.signal()
	x.mu.Unlock()
	return res, err
}

// signal wakes whoever watches the run. The caller holds mu.
func (x *run) signal() {
	close(x.changed)
	x.changed = make(chan struct{})
}

// waitFor waits until a person has decided, with the run's clock stopped.
func (x *run) waitFor(ctx context.Context, a *writeguard.Approval) (*writeguard.Approval, error) {
	x.pause.Begin()
	defer x.pause.End()
	i, known := ctx.Value(madeKey{}).(int)
	x.mu.Lock()
	if x.pending[a.ID] == nil {
		x.pending[a.ID] = &pendingApproval{approval: a}
	}
	x.pending[a.ID].n++
	x.waiters++
	x.waited = true
	if known {
		x.made[i].Status = "pending"
	}
	x.signal()
	x.mu.Unlock()
	defer func() {
		x.mu.Lock()
		if x.pending[a.ID].n--; x.pending[a.ID].n == 0 {
			delete(x.pending, a.ID)
		}
		x.waiters--
		if known {
			x.made[i].Status = "in_flight"
		}
		x.signal()
		x.mu.Unlock()
	}()
	if _, err := x.g.approvals.Wait(ctx, a.ID); err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	} else if err != nil {
		return nil, fmt.Errorf("wait for approval %s (nothing was sent): %w", a.ID, err)
	}
	return x.g.settled(context.WithoutCancel(ctx), a)
}

// madeKey is the context key of a call's place in run.made.
type madeKey struct{}

// waits lists what the run waits for and whether it does nothing else.
func (x *run) waits() (list map[string]*writeguard.Approval, idle bool, changed <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	list = make(map[string]*writeguard.Approval, len(x.pending))
	for k, v := range x.pending {
		list[k] = v.approval
	}
	return list, x.busy <= x.waiters, x.changed
}

// request is the request whose view and settings count for the next call: that
// of the start, and after a wait the same under the present configuration.
func (x *run) request(ctx context.Context) *request {
	x.mu.Lock()
	waited := x.waited
	x.mu.Unlock()
	set := x.g.settings()
	if !waited || set == x.req.set {
		return x.req
	}
	r := *x.req
	r.set = set
	r.view = x.g.newView(ctx, set, r.who, r.grant)
	return &r
}

// forget drops a run that has ended and was answered for. One that was paused
// leaves word, for a client that sends its resume again.
func (s *runs) forget(x *run) {
	s.mu.Lock()
	delete(s.all, x.id)
	s.mu.Unlock()
	x.mu.Lock()
	waited := x.waited
	x.mu.Unlock()
	if waited {
		s.g.keepRecord(context.Background(), x, "it has ended and its result was given")
	}
}

// attach takes hold of a paused run for another request.
func (s *runs) attach(owner, id string) (*run, error) {
	s.mu.Lock()
	x := s.all[id]
	s.mu.Unlock()
	if x == nil || x.req.who.ID != owner {
		return nil, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.attached {
		return nil, errors.New("another request is already waiting for this run: wait for its answer")
	}
	x.attached = true
	return x, nil
}

// detach lets go of a run. If it goes on waiting it counts among the paused
// ones, of which there may only be so many.
func (s *runs) detach(x *run) {
	x.mu.Lock()
	x.attached, x.left = false, s.g.now()
	x.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		var oldest, oldestOwn *run
		all, own := 0, 0
		for _, y := range s.all {
			y.mu.Lock()
			attached, left := y.attached, y.left
			y.mu.Unlock()
			if attached || isClosed(y.done) {
				continue
			}
			all++
			if oldest == nil || left.Before(oldest.left) {
				oldest = y
			}
			if y.req.who.ID == x.req.who.ID {
				own++
				if oldestOwn == nil || left.Before(oldestOwn.left) {
					oldestOwn = y
				}
			}
		}
		victim := oldest
		if own > pausedPerUser {
			victim = oldestOwn
		} else if all <= pausedInAll {
			return
		}
		s.endLocked(victim, "the run was ended: too many runs wait for approvals")
	}
}

// endLocked ends a run that waits and leaves word why. The caller holds mu.
func (s *runs) endLocked(x *run, why string) {
	delete(s.all, x.id)
	if isClosed(x.done) {
		return
	}
	s.g.keepRecord(context.Background(), x, why)
	x.cancel(errors.New(why))
}

// sweep ends runs that nobody came back for.
func (s *runs) sweep() {
	s.mu.Lock()
	all := make([]*run, 0, len(s.all))
	for _, x := range s.all {
		all = append(all, x)
	}
	s.mu.Unlock()
	for _, x := range all {
		x.mu.Lock()
		old := !x.attached && s.g.now().Sub(x.left) > s.g.settings().cfg.Code.PausedFor
		x.mu.Unlock()
		if old {
			s.mu.Lock()
			s.endLocked(x, "the run waited too long and was ended")
			s.mu.Unlock()
		}
	}
}

// close ends all runs.
func (s *runs) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.all {
		x.cancel(errors.New("the portal is shutting down"))
	}
}

// count is the number of runs, and of those that wait for nobody present.
func (s *runs) count() (all, paused int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.all {
		all++
		x.mu.Lock()
		if !x.attached {
			paused++
		}
		x.mu.Unlock()
	}
	return all, paused
}
