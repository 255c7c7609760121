package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// attend answers a request with the end of the run, or with what it waits for.
func (g *Gateway) attend(ctx context.Context, r *request, x *run) (json.RawMessage, *wire.Error) {
	defer g.runs.detach(x)
	// What it says was read by the session that began it.
	defer func() { g.inherit(context.WithoutCancel(ctx), r.grant, x.req.grant) }()
	asking := map[string]chan struct{}{}
	for {
		list, idle, changed := x.waits()
		if x.stageOver() {
			if y := g.longer(ctx, r, x); y != nil {
				return g.attend(ctx, r, y)
			}
			return g.planOf(ctx, r, x)
		}
		logins := x.signIns()
		if x.guarded && len(list)+len(logins) > 0 {
			return g.longerEnded(ctx, r, x)
		}
		form := r.takesForms(list)
		if _, byURL := r.elicits(); len(logins) > 0 && !byURL {
			form = false
		}
		var quiet <-chan time.Time
		switch {
		case len(list) == 0 && len(logins) == 0:
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
			for server, l := range logins {
				key := "sign-in " + server
				if asking[key] == nil {
					asking[key] = make(chan struct{})
					go g.askLoginInRun(ctx, r, x, l, asking[key])
				}
				open = open || !isClosed(asking[key])
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
			if x.guarded {
				return g.longerEnded(ctx, r, x)
			}
			return g.finished(r, x), nil
		case <-changed:
		case <-quiet:
			if again, _, _ := x.waits(); len(again) != len(list) || len(x.signIns()) != len(logins) {
				continue
			}
			if x.settling(list) != nil {
				continue // decided, and on its way to the run: nobody is to be sent to a page for it
			}
			if err := g.keepRecord(ctx, x, "", true); err != nil && !errors.Is(err, errElsewhere) {
				g.log.Warn("a paused run is only in this process", "run", x.id, "error", err)
			}
			if form && r.modern {
				keyed := map[string]*writeguard.Approval{}
				for id, a := range list {
					keyed["approval-"+id] = a
				}
				return withLogins(askModern(keyed, runPrefix+x.id), logins).Bytes(), nil
			}
			return g.pausedResult(x, list, logins), nil
		case <-restarting(g.stopped, len(list)+len(logins) > 0 && idle):
			// Another process goes on with it.
			return g.pausedResult(x, list, logins), nil
		case <-ctx.Done():
			x.cancel(context.Cause(ctx))
			<-x.done
			g.runs.forget(x, "it was cancelled by its client")
			return toolError("The run was cancelled." + x.madeSentence()), nil
		}
	}
}

// restarting is closed when the portal shuts down, for those who can leave.
func restarting(stopped <-chan struct{}, canLeave bool) <-chan struct{} {
	if canLeave {
		return stopped
	}
	return nil
}

// takesForms reports whether the client can put all of the questions.
func (r *request) takesForms(list map[string]*writeguard.Approval) bool {
	for _, a := range list {
		if !r.takesForm(a) {
			return false
		}
	}
	return true
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
	g.runs.forget(x, "it has ended and its result was given")
	if errors.Is(context.Cause(x.ctx), errElsewhere) {
		return toolError("This run went on in another process of the portal. Call this tool again with only {\"resume\":\"" + x.id + "\"} to get what came of it; do not run the code again.")
	}
	if x.err != nil {
		return toolError(g.errorText(x.err) + x.madeSentence())
	}
	return g.outcomeResult(context.WithoutCancel(x.ctx), r, x.calls(), x.out)
}
