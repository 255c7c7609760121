package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
)

// pendingLogin is a sign-in that n calls of a run wait for.
type pendingLogin struct {
	*invitation
	n        int
	declined chan struct{} // closed when the person will not
}

// waitForLogin waits until the user has signed in at a server, with the run's
// clock stopped. Calls that need the same login wait for one invitation.
func (x *run) waitForLogin(ctx context.Context, v *invitation) error {
	x.pause.Begin()
	defer x.pause.End()
	i, known := ctx.Value(madeKey{}).(int)
	x.mu.Lock()
	l := x.logins[v.need.Server]
	if l == nil || len(v.need.Scopes) > len(l.need.Scopes) {
		l = &pendingLogin{invitation: v, declined: make(chan struct{})}
		x.logins[v.need.Server] = l
	}
	l.n++
	x.callWaits(i, known)
	x.mu.Unlock()
	defer func() {
		x.mu.Lock()
		if l.n--; l.n == 0 && x.logins[v.need.Server] == l {
			delete(x.logins, v.need.Server)
		}
		x.callGoesOn(i, known)
		x.mu.Unlock()
	}()
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	signed := make(chan error, 1)
	go func() { signed <- l.wait(wait, x.g) }()
	select {
	case err := <-signed:
		if err != nil {
			return context.Cause(ctx)
		}
		return nil
	case <-l.declined:
		return v.declined(crossing{method: "the call"})
	}
}

// signIns lists the sign-ins that the run waits for.
func (x *run) signIns() map[string]*pendingLogin {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.logins)
}

// decline ends the wait for a sign-in that the person will not make.
func (l *pendingLogin) decline(x *run) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !isClosed(l.declined) {
		close(l.declined)
	}
}

// askLoginInRun puts one sign-in to the client of a 2025 session.
func (g *Gateway) askLoginInRun(ctx context.Context, r *request, x *run, l *pendingLogin, done chan struct{}) {
	defer close(done)
	ctx, cancel := context.WithTimeoutCause(ctx, r.set.cfg.Guard.AskTimeout, errNotSignedIn)
	defer cancel()
	notify := g.passageOf(r).notify
	err := g.askSignIn(ctx, l.invitation, crossing{method: "the call"}, r.ask, notify)
	var ref *refusal
	if errors.As(err, &ref) && ref.status == "denied" {
		l.decline(x)
	}
}

// withLogins adds the questions for sign-ins to an input_required result.
func withLogins(result wire.Object, logins map[string]*pendingLogin) wire.Object {
	reqs, err := wire.ParseObject(result.Get("inputRequests"))
	if err != nil {
		reqs = nil
	}
	for _, server := range slices.Sorted(maps.Keys(logins)) {
		q := wire.Object{{Key: "method", Value: wire.Quote("elicitation/create")}, {Key: "params", Value: logins[server].params(false)}}
		reqs = append(reqs, wire.Field{Key: signInKey + "-" + server, Value: q.Bytes()})
	}
	return result.Set("inputRequests", reqs.Bytes())
}

// loginAnswers reads what the person did about the sign-ins that a client was
// asked for, and waits for those that were begun.
func (g *Gateway) loginAnswers(ctx context.Context, x *run, responses wire.Object) {
	deadline := time.NewTimer(signInWait)
	defer deadline.Stop()
	begun := map[string]bool{}
	for server, l := range x.signIns() {
		o, err := wire.ParseObject(responses.Get(signInKey + "-" + server))
		switch {
		case err != nil || o == nil:
		case o.String("action") == "accept":
			begun[server] = true
		default:
			l.decline(x)
		}
	}
	for {
		_, _, changed := x.waits()
		open := false
		for server := range x.signIns() {
			open = open || begun[server]
		}
		if !open {
			return
		}
		select {
		case <-changed:
		case <-x.done:
			return
		case <-deadline.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// loginLines tells the agent which sign-ins a paused run waits for.
func loginLines(logins map[string]*pendingLogin) (text string, rows []map[string]string) {
	var b strings.Builder
	for _, server := range slices.Sorted(maps.Keys(logins)) {
		l := logins[server]
		fmt.Fprintf(&b, "- server %s needs its user signed in (%s): %s\n", server, l.need.Reason, l.url)
		rows = append(rows, map[string]string{"server": server, "url": l.url, "reason": l.need.Reason})
	}
	return b.String(), rows
}
