package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/codemode"
	"github.com/mcp-portal/mcp-portal/wire"
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
	pending  map[string]*writeguard.Approval
	changed  chan struct{} // closed and replaced when pending or busy changes
	busy     int           // host calls under way, waiting ones included
	made     []madeCall
	attached bool
	left     time.Time // when the last request let go of it
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
		pending: map[string]*writeguard.Approval{}, changed: make(chan struct{}), attached: true}
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
	res, err := c.host.Call(ctx, hc)
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
func (x *run) waitFor(ctx context.Context, a *writeguard.Approval) error {
	x.pause.Begin()
	defer x.pause.End()
	x.mu.Lock()
	x.pending[a.ID] = a
	x.signal()
	x.mu.Unlock()
	defer func() {
		x.mu.Lock()
		delete(x.pending, a.ID)
		x.signal()
		x.mu.Unlock()
	}()
	if _, err := x.g.approvals.Wait(ctx, a.ID); err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	} else if err != nil {
		return fmt.Errorf("wait for approval %s: %w", a.ID, err)
	}
	return x.g.settled(context.WithoutCancel(ctx), a)
}

// waits lists what the run waits for and whether it does nothing else.
func (x *run) waits() (list map[string]*writeguard.Approval, idle bool, changed <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	list = make(map[string]*writeguard.Approval, len(x.pending))
	for k, v := range x.pending {
		list[k] = v
	}
	return list, x.busy <= len(x.pending), x.changed
}

// attend answers a request with the end of the run, or with what it waits for.
func (g *Gateway) attend(ctx context.Context, r *request, x *run) (json.RawMessage, *wire.Error) {
	defer g.runs.detach(x)
	form, _ := r.elicits()
	asking := map[string]chan struct{}{}
	for {
		list, idle, changed := x.waits()
		var quiet <-chan time.Time
		switch {
		case len(list) == 0:
		case form && r.ask != nil:
			open := false
			for id, a := range list {
				if asking[id] == nil {
					asking[id] = make(chan struct{})
					go g.askInRun(ctx, r, a, asking[id])
				}
				select {
				case <-asking[id]:
				default:
					open = true
				}
			}
			if !open {
				// Every question was put and none decided: dismissed.
				quiet = time.After(quietFor)
			} else {
				for _, a := range asking {
					select {
					case <-a:
					default:
						changed = either(changed, a)
					}
				}
			}
		case idle:
			quiet = time.After(quietFor)
		}
		select {
		case <-x.done:
			return g.finished(r, x), nil
		case <-changed:
		case <-quiet:
			if again, _, _ := x.waits(); len(again) != len(list) {
				continue
			}
			g.keepRecord(ctx, x)
			if form && r.modern {
				keyed := map[string]*writeguard.Approval{}
				for id, a := range list {
					keyed["approval-"+id] = a
				}
				return askModern(keyed, runPrefix+x.id), nil
			}
			return g.pausedResult(x, list), nil
		case <-ctx.Done():
			x.cancel(context.Cause(ctx))
			<-x.done
			return toolError("The run was cancelled." + x.madeSentence()), nil
		}
	}
}

// either is closed when one of two channels is.
func either(a, b <-chan struct{}) <-chan struct{} {
	out := make(chan struct{})
	go func() {
		defer close(out)
		select {
		case <-a:
		case <-b:
		}
	}()
	return out
}

// askInRun puts one approval to the client of a 2025 session.
func (g *Gateway) askInRun(ctx context.Context, r *request, a *writeguard.Approval, done chan struct{}) {
	defer close(done)
	ctx, cancel := context.WithTimeoutCause(ctx, r.set.cfg.Guard.AskTimeout, errors.New("the person did not answer in time"))
	defer cancel()
	go func() {
		if _, err := g.approvals.Wait(ctx, a.ID); err == nil {
			cancel() // decided on the web page meanwhile
		}
	}()
	message, schema := writeguard.Question(a)
	res, e := r.ask(ctx, "elicitation/create", elicitParams(message, schema))
	if e != nil {
		return
	}
	if err := g.decideByAnswer(context.WithoutCancel(ctx), &passage{req: r}, a, res); err != nil {
		g.log.Warn("a decision could not be recorded", "approval", a.ID, "error", err)
	}
}

// finished is the answer for a run that has ended; the run is then forgotten.
func (g *Gateway) finished(r *request, x *run) json.RawMessage {
	g.runs.forget(x)
	if x.err != nil {
		return toolError(g.errorText(x.err) + x.madeSentence())
	}
	return g.outcomeResult(r, x.madeSentence(), x.out)
}

func (s *runs) forget(x *run) {
	s.mu.Lock()
	delete(s.all, x.id)
	s.mu.Unlock()
	_ = s.g.opt.Store.Delete(context.Background(), "run:"+x.id) // expires by itself otherwise
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
			if attached {
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
		victim.cancel(errors.New("the run was ended: too many runs of this portal wait for approvals"))
		delete(s.all, victim.id)
	}
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
			x.cancel(errors.New("the run waited too long and was ended (code.paused_for)"))
			s.mu.Lock()
			delete(s.all, x.id)
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

// runRecord is what the store keeps of a paused run, so that its user learns
// what had happened should the process go away.
type runRecord struct {
	User string     `json:"user"`
	Made []madeCall `json:"made"`
}

func (g *Gateway) keepRecord(ctx context.Context, x *run) {
	x.mu.Lock()
	rec := runRecord{User: x.req.who.ID, Made: append([]madeCall(nil), x.made...)}
	x.mu.Unlock()
	if err := g.opt.Store.Set(ctx, "run:"+x.id, wire.Encode(rec), 24*time.Hour); err != nil {
		g.log.Warn("a paused run could not be noted in the store", "run", x.id, "error", err)
	}
}

// resume goes on with a paused run.
func (g *Gateway) resume(ctx context.Context, r *request, id string) (json.RawMessage, *wire.Error) {
	x, err := g.runs.attach(r.who.ID, id)
	if err != nil {
		return toolError(err.Error()), nil
	}
	if x == nil {
		return toolError(g.lostRun(ctx, r, id)), nil
	}
	// A moment for the person who is just approving.
	deadline := time.NewTimer(resumeWait)
	defer deadline.Stop()
	for {
		list, _, changed := x.waits()
		if form, _ := r.elicits(); len(list) == 0 || form && (r.ask != nil || r.modern) {
			break
		}
		select {
		case <-changed:
			continue
		case <-x.done:
		case <-ctx.Done():
		case <-deadline.C:
		}
		break
	}
	return g.attend(ctx, r, x)
}

// resumeWithAnswers goes on with a run after a 2026-07-28 client has asked its
// user.
func (g *Gateway) resumeWithAnswers(ctx context.Context, r *request, id string) (json.RawMessage, *wire.Error) {
	x, err := g.runs.attach(r.who.ID, id)
	if err != nil {
		return toolError(err.Error()), nil
	}
	if x == nil {
		return toolError(g.lostRun(ctx, r, id)), nil
	}
	responses, err := wire.ParseObject(r.params.Get("inputResponses"))
	if err != nil {
		responses = nil
	}
	list, _, _ := x.waits()
	dismissed := 0
	for aid, a := range list {
		res := responses.Get("approval-" + aid)
		if err := g.decideByAnswer(ctx, &passage{req: r}, a, res); err != nil {
			g.log.Warn("a decision could not be recorded", "approval", aid, "error", err)
		}
		if now, err := g.approvals.Get(ctx, aid); err == nil && now.State == writeguard.Pending {
			dismissed++
		}
	}
	if dismissed > 0 && dismissed == len(list) {
		// The user closed the form without a choice. Asking again at once
		// would only annoy; the web page still takes the decision.
		g.runs.detach(x)
		return g.pausedResult(x, list), nil
	}
	// Let the decisions reach the run before looking at what it waits for.
	for changed := x.settling(list); changed != nil; changed = x.settling(list) {
		select {
		case <-changed:
		case <-x.done:
		case <-ctx.Done():
		case <-time.After(resumeWait):
		}
		if ctx.Err() != nil || isClosed(x.done) {
			break
		}
	}
	return g.attend(ctx, r, x)
}

// settling returns a channel to wait on while approvals that are decided by
// now still stand among those the run waits for, else nil.
func (x *run) settling(before map[string]*writeguard.Approval) <-chan struct{} {
	list, _, changed := x.waits()
	for id := range list {
		if _, was := before[id]; !was {
			continue
		}
		if now, err := x.g.approvals.Get(x.ctx, id); err == nil && now.State != writeguard.Pending {
			return changed
		}
	}
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// lostRun explains a run id that is not here.
func (g *Gateway) lostRun(ctx context.Context, r *request, id string) string {
	raw, ok, err := g.opt.Store.Get(ctx, "run:"+id)
	var rec runRecord
	if err != nil {
		return "The run could not be looked up, the store cannot be reached: try again shortly."
	}
	if !ok || json.Unmarshal(raw, &rec) != nil || rec.User != r.who.ID {
		return fmt.Sprintf("There is no paused run %q: it has ended, or waited too long. Run the code again.", bounded(id, 60))
	}
	return "The run is gone: the portal process that held it was restarted, or another process of this portal holds it." + madeSentence(rec.Made) +
		" Approvals already given stay valid for exactly the same calls until they expire."
}

func (x *run) madeSentence() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return madeSentence(x.made)
}

// madeSentence lists the calls that may have changed something. It never
// advises a blind retry once one was sent.
func madeSentence(made []madeCall) string {
	var writes []string
	for _, m := range made {
		if m.Class != writeguard.Read && (m.Status == "ok" || m.Status == "tool_error" || m.Status == "unknown" || m.Status == "outcome_unknown" || m.Status == "in_flight" || m.Status == "cancelled") {
			writes = append(writes, m.Tool+" ("+m.Status+")")
		}
	}
	if len(writes) == 0 {
		return ""
	}
	more := ""
	if n := len(writes) - 20; n > 0 {
		writes, more = writes[:20], fmt.Sprintf(" and %d more", n)
	}
	return " These calls had already been sent and may have changed something: " + strings.Join(writes, ", ") + more + ". Check their effect before you run the code again."
}
