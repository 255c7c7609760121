package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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
	gone   chan struct{} // closed when this process has ended it or let it go

	recording *recording
	plan      planning
	guarded   bool // it goes on with stand-ins for answers of planned calls
	before    *run // a guarded run: the one whose stage it makes longer

	mu       sync.Mutex
	pending  map[string]*pendingApproval
	logins   map[string]*pendingLogin // sign-ins that calls wait for, by server
	waiters  int                      // calls that wait for a person; equal ones share an approval
	told     map[string]bool          // approvals that the agent was told of
	together bool                     // it was told of several at once
	waited   bool                     // it has waited: what counts now is the present configuration
	changed  chan struct{}            // closed and replaced when pending or busy changes
	busy     int                      // host calls under way, waiting ones included
	made     []madeCall
	earlier  []madeCall // of lives whose calls have other numbers now
	attached bool
	ending   string    // why it is being ended or let go; nobody may take hold of it then
	left     time.Time // when the last request let go of it
}

// pendingApproval is an approval that n calls of a run wait for.
type pendingApproval struct {
	approval *writeguard.Approval
	n        int
}

func newRuns(g *Gateway) *runs { return &runs{g: g, all: map[string]*run{}} }

// start begins a script. It runs until it ends, is cancelled, or has waited
// for a person too long.
func (s *runs) start(r *request, code string) *run {
	x := s.make("run_"+randomID(), r, newRecording(s.g.runVersion(), code))
	s.begin(x, nil)
	return x
}

// make makes a run that is attached to its request.
func (s *runs) make(id string, r *request, c *recording) *run {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &run{id: id, g: s.g, req: r, ctx: ctx, cancel: cancel, recording: c, done: make(chan struct{}), gone: make(chan struct{}),
		pending: map[string]*pendingApproval{}, logins: map[string]*pendingLogin{}, changed: make(chan struct{}), attached: true}
}

// begin lets it run, from its recording if there is one.
func (s *runs) begin(x *run, replay *codemode.Recording) {
	s.mu.Lock()
	s.all[x.id] = x
	s.mu.Unlock()
	x.plan.repeats(replay)
	head := x.recording.head
	go func() {
		defer func() {
			x.cancel(nil)
			close(x.done)
			x.mu.Lock()
			x.signal()
			x.mu.Unlock()
		}()
		x.out, x.err = s.g.opt.Runner.Run(x.ctx, codemode.Request{ID: x.id, Owner: x.req.who.ID, Code: head.Code, Tools: codeTools(x.req.view), Withheld: s.g.withheld(x.req), Paused: &x.pause, Rests: x.rests, Guarded: x.guarded,
			Journal: x.recording, Replay: replay, Seed: head.Seed, Start: head.Start},
			&counted{host: &host{g: s.g, req: x.req, run: x}, run: x})
	}()
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
	x.callWaits(i, known)
	x.mu.Unlock()
	defer func() {
		x.mu.Lock()
		if x.pending[a.ID].n--; x.pending[a.ID].n == 0 {
			delete(x.pending, a.ID)
		}
		x.callGoesOn(i, known)
		x.mu.Unlock()
	}()
	if _, err := x.g.approvals.Wait(ctx, a.ID); err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	} else if err != nil {
		return nil, fmt.Errorf("wait for approval %s (nothing was sent): %w", a.ID, err)
	}
	decided, err := x.g.settled(context.WithoutCancel(ctx), a)
	if err != nil {
		return nil, err
	}
	// Before the approval is used up: is the run still this process's?
	if err := x.g.keepRecord(context.WithoutCancel(ctx), x, "", true); err != nil {
		return nil, fmt.Errorf("%s was not sent: %w", a.Tool, err)
	}
	return decided, nil
}

// waitAside is waitFor for a call that lets others begin while it waits.
func (x *run) waitAside(c codemode.HostCall) func(context.Context, *writeguard.Approval) (*writeguard.Approval, error) {
	return func(ctx context.Context, a *writeguard.Approval) (*writeguard.Approval, error) {
		back := func(context.Context) error { return nil }
		if c.Aside != nil {
			back = c.Aside()
		}
		decided, err := x.waitFor(ctx, a)
		if berr := back(ctx); err == nil && berr != nil {
			return nil, berr
		}
		return decided, err
	}
}

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

// tell notes that the agent is told of approvals, and reports whether it has
// been told of several, each by itself.
func (x *run) tell(list map[string]*writeguard.Approval) (oneByOne bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.told == nil {
		x.told = map[string]bool{}
	}
	for id := range list {
		x.told[id] = true
	}
	x.together = x.together || len(list) > 1
	for _, p := range x.pending {
		x.together = x.together || p.n > 1 // equal calls
	}
	return !x.together && len(x.told) > 1
}

// untold reports whether the agent has yet to be told of one of the approvals.
func (x *run) untold(list map[string]*writeguard.Approval) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id := range list {
		if x.told != nil && !x.told[id] {
			return true
		}
	}
	return false
}

// request is the request whose view and settings count for the next call: that
// of the start, and after a wait the same under the present configuration.
func (x *run) request(ctx context.Context) *request {
	x.mu.Lock()
	waited := x.waited
	x.mu.Unlock()
	if !waited {
		return x.req
	}
	return x.g.presently(ctx, x.req)
}

// presently is a request under the configuration of this moment, after a person
// has been waited for.
func (g *Gateway) presently(ctx context.Context, r *request) *request {
	set := g.settings()
	if set == r.set {
		return r
	}
	now := *r
	now.set = set
	now.view = g.newView(ctx, set, r.who, r.grant)
	return &now
}

// forget drops a run that has ended and was answered for. One that was paused
// leaves word, for a client that sends its resume again.
func (s *runs) forget(x *run, why string) {
	s.mu.Lock()
	delete(s.all, x.id)
	s.mu.Unlock()
	x.mu.Lock()
	waited := x.waited
	x.mu.Unlock()
	if waited {
		s.leaveWord(x, why)
	}
}

// leaveWord notes for whoever asks later why a run is over.
func (s *runs) leaveWord(x *run, why string) {
	if err := s.g.keepRecord(context.Background(), x, why, false); err != nil && !errors.Is(err, errElsewhere) {
		s.g.log.Warn("that a run is over could not be noted in the store", "run", x.id, "error", err)
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
	if x.ending != "" {
		x.mu.Unlock()
		<-x.gone // its record then says all, or lets it go on
		return nil, nil
	}
	defer x.mu.Unlock()
	if x.attached {
		return nil, errors.New("another request is already waiting for this run: wait for its answer")
	}
	x.attached = true
	return x, nil
}

// detach lets go of a run. It then counts among those that nobody attends to,
// of which there may only be so many.
func (s *runs) detach(x *run) {
	x.mu.Lock()
	x.attached, x.left = false, s.g.now()
	x.mu.Unlock()
	s.mu.Lock()
	victims := s.beyond(x.req.who.ID)
	s.mu.Unlock()
	for _, v := range victims {
		s.end(v)
	}
}

// beyond marks the runs that wait with nobody attached, each with a sandbox
// process of its own, and are too many: those that wait longest, those of the
// user first. The caller holds mu.
func (s *runs) beyond(user string) []*run {
	code := s.g.settings().cfg.Code
	var own, all []*run
	for _, y := range s.all {
		y.mu.Lock()
		if !y.attached && y.ending == "" {
			all = append(all, y)
			if y.req.who.ID == user {
				own = append(own, y)
			}
		}
		y.mu.Unlock()
	}
	var victims []*run
	mark := func(list []*run, most int) {
		slices.SortFunc(list, func(a, b *run) int { return a.leftAt().Compare(b.leftAt()) })
		for _, y := range list[:max(0, len(list)-most)] {
			if y.mark(fmt.Sprintf("the run was ended: more runs wait for approvals than may (%d of a user, %d in all); have those that wait decided first", code.PausedPerUser, code.PausedInAll)) {
				victims = append(victims, y)
			}
		}
	}
	mark(own, code.PausedPerUser)
	all = slices.DeleteFunc(all, func(y *run) bool { return slices.Contains(victims, y) })
	mark(all, code.PausedInAll)
	return victims
}

func (x *run) leftAt() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.left
}

// mark decides that a run nobody attends to is to be ended; false: somebody
// took hold of it, or it is being ended.
func (x *run) mark(why string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.attached || x.ending != "" {
		return false
	}
	if x.ending = why; isClosed(x.done) {
		x.ending = "it had ended, and nobody came for its result in time"
	}
	return true
}

// end lets go of a run that was marked, so that it can go on from its
// recording, or, if there is none, ends it and leaves word why.
func (s *runs) end(x *run) {
	defer close(x.gone)
	defer func() {
		s.mu.Lock()
		delete(s.all, x.id)
		s.mu.Unlock()
	}()
	if s.letGo(context.Background(), x) {
		return
	}
	s.leaveWord(x, x.ending)
	x.cancel(errors.New(x.ending))
}

// letGo keeps a run in the store only. It reports false for one that is in the
// middle of something or has no recording.
func (s *runs) letGo(ctx context.Context, x *run) bool {
	_, idle, _ := x.waits()
	if s.g.opt.Vault == nil || !x.recording.whole() || !isClosed(x.done) && !idle {
		return false
	}
	if err := s.g.keepRecord(ctx, x, "", false); err != nil {
		return errors.Is(err, errElsewhere)
	}
	x.cancel(errLetGo)
	return true
}

// atRest reports whether a run is over or only waits for people.
func (x *run) atRest() bool {
	list, idle, _ := x.waits()
	return isClosed(x.done) || len(list)+len(x.signIns()) > 0 && idle
}

// sweep lets go of runs that nobody came back for.
func (s *runs) sweep() {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.all))
	s.mu.Unlock()
	patience := s.g.settings().cfg.Code.PausedFor
	for _, x := range all {
		if s.g.now().Sub(x.leftAt()) > patience && x.atRest() && x.mark("the run waited too long and was ended") {
			s.end(x)
		}
	}
}

// close ends all runs, those that wait so that another process can go on.
func (s *runs) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.all))
	s.mu.Unlock()
	for _, x := range all {
		if !x.atRest() || !s.letGo(ctx, x) {
			x.cancel(errors.New("the portal is shutting down"))
		}
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
