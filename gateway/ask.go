package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// answers are the questions of this replica that wait for a client's answer.
type answers struct {
	mu      sync.Mutex
	waiting map[string]waiting // by request id of ours
}

type waiting struct {
	session string
	got     chan wire.Message
}

// deliver gives an answer to whoever asked. It reports false when the question
// is not of this replica, or not of this session.
func (a *answers) deliver(session string, m wire.Message) bool {
	var id string
	if json.Unmarshal(m.ID, &id) != nil {
		return false
	}
	a.mu.Lock()
	w, ok := a.waiting[id]
	if ok && w.session == session {
		delete(a.waiting, id)
	}
	a.mu.Unlock()
	if !ok || w.session != session {
		return false
	}
	w.got <- m
	return true
}

// askOn asks the client of a 2025 session on the stream of one POST. Only what
// the client has declared that it answers is asked.
func (g *Gateway) askOn(s *stream, r *request) asker {
	session := r.sess.key
	return func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *wire.Error) {
		if !r.mayBeAsked(method, params) {
			return nil, notAnswered(method)
		}
		id := "portal-" + randomID() // unguessable: only the client that was asked can answer
		got := make(chan wire.Message, 1)
		g.answers.mu.Lock()
		if g.answers.waiting == nil {
			g.answers.waiting = map[string]waiting{}
		}
		g.answers.waiting[id] = waiting{session, got}
		g.answers.mu.Unlock()
		defer func() {
			g.answers.mu.Lock()
			delete(g.answers.waiting, id)
			g.answers.mu.Unlock()
		}()
		if err := s.send(wire.Message{ID: wire.Quote(id), Method: method, Params: params}); err != nil {
			return nil, wire.Errorf(wire.CodeInternal, "the client could not be asked: %v", err)
		}
		select {
		case m := <-got:
			if m.Error != nil {
				return nil, m.Error
			}
			return m.Result, nil
		case <-ctx.Done():
			s.notify("notifications/cancelled", wire.Encode(map[string]string{"requestId": id, "reason": "no longer needed"}))
			return nil, wire.Errorf(wire.CodeInternal, "the client did not answer: %v", context.Cause(ctx))
		}
	}
}

// notAnswered refuses a question that the client did not declare to answer.
func notAnswered(method string) *wire.Error {
	return wire.Errorf(wire.CodeMethodNotFound, "this client does not answer %q of this kind", bounded(method, 60))
}

// refusal is why the door did not let a call through. Nothing was sent.
type refusal struct {
	status   string // "denied", "pending"
	message  string // complete, with the next step
	approval *writeguard.Approval
}

func (r *refusal) Error() string { return r.message }

// needInput means that a 2026-07-28 client is to be asked by input_required.
type needInput struct{ approval *writeguard.Approval }

func (n *needInput) Error() string { return "approval needed" }

// errAskAgain means that the approval is gone: an equal call used it, or it
// expired. The call needs one of its own.
var errAskAgain = errors.New("the approval was used or has expired")

// obtain gets a person's yes for a pending approval, or says why there is
// none. It returns the record as it is now, and without an error only if that
// says approved.
func (g *Gateway) obtain(ctx context.Context, p *passage, a *writeguard.Approval) (*writeguard.Approval, error) {
	switch a.State {
	case writeguard.Approved:
		return a, nil
	case writeguard.Denied:
		return nil, g.denied(a)
	}
	form := p.req.takesForm(a)
	if a.From == "client" && !form {
		return nil, &refusal{status: "denied", approval: a, message: fmt.Sprintf("Refused: %s on server %s is approved in the client only (%s), and this client cannot ask its user: it does not declare elicitation, or the arguments are too long for a form. Nothing was sent.", a.Tool, a.Server, a.Rule)}
	}
	if p.req.modern && form && p.mode == writeguard.Direct {
		return g.obtainModern(ctx, p, a)
	}
	if p.wait != nil {
		return p.wait(ctx, a)
	}
	if form && p.ask != nil {
		return g.obtainLegacy(ctx, p, a)
	}
	return nil, g.pending(a)
}

// takesForm reports whether the client can show the whole question, and its
// user may answer it there. What does not fit into a form is only asked on the
// page, which shows all of it.
func (r *request) takesForm(a *writeguard.Approval) bool {
	form, _ := r.elicits()
	return form && writeguard.Fits(a) && a.From != "web" && a.OwnedBy(r.who) && a.MayDecide(r.who)
}

// obtainLegacy asks by elicitation while the call waits. The web page may
// decide meanwhile; the first decision counts.
func (g *Gateway) obtainLegacy(ctx context.Context, p *passage, a *writeguard.Approval) (*writeguard.Approval, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.req.set.cfg.Guard.AskTimeout, errors.New("the person did not answer in time"))
	defer cancel()
	decided := make(chan struct{})
	go func() {
		defer close(decided)
		if _, err := g.approvals.Wait(ctx, a.ID); err == nil {
			cancel() // ends the question in the client
		}
	}()
	message, schema := writeguard.Question(a)
	res, e := p.ask(ctx, "elicitation/create", elicitParams(message, schema))
	if e == nil {
		if err := g.decideByAnswer(context.WithoutCancel(ctx), p, a, res); err != nil {
			return nil, err
		}
	}
	cancel()
	<-decided
	return g.settled(context.WithoutCancel(ctx), a)
}

func elicitParams(message string, schema json.RawMessage) json.RawMessage {
	return wire.Object{
		{Key: "mode", Value: json.RawMessage(`"form"`)},
		{Key: "message", Value: wire.Quote(message)},
		{Key: "requestedSchema", Value: schema},
	}.Bytes()
}

// obtainModern reads the answer that came with a retry, or asks for one.
func (g *Gateway) obtainModern(ctx context.Context, p *passage, a *writeguard.Approval) (*writeguard.Approval, error) {
	if p.state != approvalState(a.ID) {
		return nil, &needInput{a}
	}
	responses, err := wire.ParseObject(p.responses)
	if err != nil || responses.Get("approval") == nil {
		return nil, &needInput{a}
	}
	if err := g.decideByAnswer(ctx, p, a, responses.Get("approval")); err != nil {
		return nil, err
	}
	return g.settled(ctx, a)
}

func approvalState(id string) string { return "portal-approval:" + id }

// decideByAnswer records what an elicitation result says. A dismissed question
// decides nothing: the approval stays open on the web page.
func (g *Gateway) decideByAnswer(ctx context.Context, p *passage, a *writeguard.Approval, res json.RawMessage) error {
	o, err := wire.ParseObject(res)
	if err != nil {
		return nil
	}
	action := o.String("action")
	yes, reason := writeguard.ParseAnswer(action, o.Get("content"))
	if !yes && action != "decline" && action != "accept" {
		return nil
	}
	// Somebody else may have been a moment faster, on the page or in an equal
	// call: then the record says what counts.
	if err := g.approvals.Decide(ctx, a.ID, writeguard.Answer{By: p.req.who, Approve: yes, Via: writeguard.ViaElicitation, Note: reason}); err != nil && !errors.Is(err, writeguard.ErrClosed) {
		return fmt.Errorf("record the decision on approval %s: %w", a.ID, err)
	}
	return nil
}

// settled reads the record again: it alone decides.
func (g *Gateway) settled(ctx context.Context, a *writeguard.Approval) (*writeguard.Approval, error) {
	now, err := g.approvals.Get(ctx, a.ID)
	if err != nil {
		return nil, fmt.Errorf("read approval %s (nothing was sent): %w", a.ID, err)
	}
	switch now.State {
	case writeguard.Approved:
		return now, nil
	case writeguard.Denied:
		return nil, g.denied(now)
	case writeguard.Pending:
		return nil, g.pending(now)
	}
	return nil, errAskAgain
}

func (g *Gateway) approvalURL(a *writeguard.Approval) string {
	return strings.TrimSuffix(g.baseURL(), "/") + "/approvals/" + a.ID
}

func (g *Gateway) denied(a *writeguard.Approval) error {
	who := "the user"
	if a.DecidedBy != a.User {
		who = writeguard.Visible(bounded(a.DeciderName, 100))
	}
	text := fmt.Sprintf("Denied: %s said no to %s on server %s at %s. Nothing was changed.", who, a.Tool, a.Server, a.DecidedAt.UTC().Format("15:04 MST"))
	if a.Note != "" {
		text += " Their reason: " + bounded(a.Note, 300) + "."
	}
	return &refusal{status: "denied", approval: a, message: text + " Do not try the same call again; ask the user how to go on."}
}

func (g *Gateway) pending(a *writeguard.Approval) error {
	return &refusal{status: "pending", approval: a, message: fmt.Sprintf(
		"Approval needed: %s on server %s is %s and was not run. %s %s and approve it (before %s). Then make exactly the same call again.",
		a.Tool, a.Server, describeClass(a.Class), whoIsAsked(a), g.approvalURL(a), a.Expires.UTC().Format("15:04 MST"))}
}

func describeClass(c writeguard.Class) string {
	switch c {
	case writeguard.Destructive:
		return "a destructive call"
	case writeguard.Write:
		return "a call that changes something"
	}
	return "a call that policy wants approved"
}
