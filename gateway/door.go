package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/mcp-portal/mcp-portal/audit"
	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/registry"
	"github.com/mcp-portal/mcp-portal/upstreams"
	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// passage is one way through the door: for whom, from where, and how the
// person behind it can be asked.
type passage struct {
	req  *request
	mode writeguard.Mode
	run  string // run id when mode is Code
	// before are the calls of that run before this one.
	before writeguard.Facts
	ask    asker // nil: not during the call
	// wait, in code, waits for a decision while the run is paused.
	wait func(context.Context, *writeguard.Approval) (*writeguard.Approval, error)
	// waitLogin is the same for a sign-in at a server.
	waitLogin func(context.Context, *invitation) error
	// collect, in code, takes a call into the plan of the run, and collecting
	// tells whether there are calls in it already.
	collect    func(writeguard.PlanStep)
	collecting func() bool
	// step, if not nil, is the step of a plan that this call is.
	step *appliedStep
	// sending, in code and for steps, is told just before the call is sent and may forbid it.
	sending func(context.Context) error
	// state and responses of a 2026-07-28 retry.
	state     string
	responses json.RawMessage
	notify    func(method string, params json.RawMessage)
	// screen, if not nil, puts the filters between a server's questions and
	// the client.
	screen func(asker) asker
}

// screened is an asker of a server's questions behind the filters.
func (p *passage) screened(ask asker) asker {
	if p.screen == nil || ask == nil {
		return ask
	}
	return p.screen(ask)
}

// inCode reports whether nobody reads along who could answer a question of the
// server during the call.
func (p *passage) inCode() bool { return p.mode != writeguard.Direct || p.step != nil }

// crossing is one call on its way.
type crossing struct {
	method string // MCP method
	server string
	name   string      // the upstream's own name or URI
	params wire.Object // for the upstream hop
	header http.Header // Mcp-Param-*

	approval string // that let it through; empty: it needed none
}

// callTool is the door for tools: guard, send, record. The tool has been
// resolved from a view, which is the permit; it is checked once more here so
// that no caller can hold a tool it may not see.
func (g *Gateway) callTool(ctx context.Context, p *passage, t *registry.Tool, params wire.Object) (out json.RawMessage, err error) {
	defer g.contain(t.Server, t.Name, &err)
	args := params.Get("arguments")
	if args == nil || string(args) == "null" {
		args = json.RawMessage("{}")
	}
	if in := inwardLinks(args, t.Server); len(in) != len(args) {
		args, params = in, params.Set("arguments", in)
	}
	ev := g.event(p, crossing{method: "tools/call", server: t.Server, name: t.Name}, len(args))
	if p.req.set.cfg.Audit.Arguments {
		ev.Arguments = args
	}
	start := g.now()
	result, err := g.guarded(ctx, p, t, params, args, &ev)
	g.record(ctx, ev, start, result, err)
	if err == nil {
		g.seen.learn(t, p.req.who.ID, result)
	}
	if err == nil {
		result = g.madeTask(ctx, p.req, t.Server, outwardLinks(p.req.view.snap, crossing{method: "tools/call", server: t.Server}, result, ""))
	}
	return asked(result, err)
}

// guarded is callTool between its start and its audit line.
func (g *Gateway) guarded(ctx context.Context, p *passage, t *registry.Tool, params wire.Object, args json.RawMessage, ev *audit.Event) (json.RawMessage, error) {
	if !p.req.view.sees(t) {
		return nil, wire.Errorf(wire.CodeInvalidParams, "unknown tool %s", t.Outward)
	}
	if _, err := wire.ParseObject(args); err != nil {
		return nil, &refusal{status: "denied", message: fmt.Sprintf("The arguments of %s must be a JSON object. Nothing was sent. See its parameters with portal_query_tools {\"names\":[%q],\"detail\":\"full\"}.", t.Outward, t.Outward)}
	}
	reviewed := args
	args, err := g.filterArguments(p, t.Server, t.Name, args, ev)
	if err != nil {
		return nil, err
	}
	if p.step.asReviewed() && !bytes.Equal(args, reviewed) {
		return nil, &refusal{status: "denied", message: fmt.Sprintf("Refused: a filter would now change the arguments of %s on server %s, which are not those that were reviewed then. Nothing was sent. Make a new plan.", t.Name, t.Server)}
	}
	if params, err = g.filterAnswers(p, t.Server, t.Name, params, ev); err != nil {
		return nil, err
	}
	call := p.call(t, args)
	call.Facts = g.facts(ctx, p, ev)
	d := p.req.set.policy.Decide(call)
	g.noteDecision(p, d, ev)
	out := forwardParams(params, "name", t.Name)
	if params.Get("arguments") != nil {
		// Once, should the client have sent the member twice: what was judged
		// is what is sent, whichever of two its server would have read.
		out = out.Set("arguments", args)
	}
	x := crossing{method: "tools/call", server: t.Server, name: t.Name, params: out, header: SentHeaders(t.ParamHeaders, args)}
	if isParked(p.state) {
		return g.guardedParked(ctx, p, x, d, ev)
	}
	resumed, err := g.continuation(ctx, p, x)
	if err != nil {
		return nil, err
	}
	if resumed != nil && (d.Action == writeguard.Allow || d.Action == writeguard.Approve && resumed.Approval != "") {
		// The call was let through in an earlier round and its server asked
		// for more input: this is the same call going on.
		ev.Approval, x.approval = resumed.Approval, resumed.Approval
		x.params = resumed.params(out, taskSupport(t.Raw))
		return g.release(ctx, p, x, d.Labels, ev)
	}
	action := d.Action
	switch {
	case p.step != nil && (action == writeguard.ToPlan || action == writeguard.Approve):
		if err := p.step.covers(p, d); err != nil {
			return nil, err
		}
		action = writeguard.Allow
	case p.step == nil && action == writeguard.Allow && d.Class != writeguard.Read && p.collecting != nil && p.collecting(),
		p.step == nil && action == writeguard.Approve && d.Class != writeguard.Read && p.collecting != nil && p.collecting():
		// What comes after a call of a plan must not come before it.
		action = writeguard.ToPlan
	}
	switch action {
	case writeguard.ToPlan:
		return g.toPlan(ctx, p, t, call, d, x, ev)
	case writeguard.Allow:
		if isOurState(p.state) {
			x.params = out.Without("requestState", "inputResponses")
		}
		if err := g.countedCall(ctx, p, d, call); err != nil {
			return nil, err
		}
		return g.release(ctx, p, x, d.Labels, ev)
	case writeguard.Approve:
		if p.req.who.Kind == auth.KindService && !d.AskOthers() {
			// Its client would only answer for itself.
			return nil, &refusal{status: "denied", message: fmt.Sprintf("Refused: %s on server %s needs a person's approval (%s), and a service token is no person. Nothing was sent. Ask the administrator for a guard rule that allows it.", t.Name, t.Server, d.Rule)}
		}
		if x.approval, d, err = g.approved(ctx, p, t, call, d, ev); err != nil {
			return nil, err
		}
		x.params = approvedParams(out, taskSupport(t.Raw))
		return g.release(ctx, g.afterWait(ctx, p), x, d.Labels, ev)
	}
	return nil, refusedBy(d)
}

func refusedBy(d writeguard.Decision) error {
	text := fmt.Sprintf("Refused by policy (%s): %s.", d.Rule, trimStop(d.Reason))
	if !strings.Contains(text, "Nothing was sent") {
		text += " Nothing was sent."
	}
	return &refusal{status: "denied", message: text}
}

// call is what the guard judges.
func (p *passage) call(t *registry.Tool, args json.RawMessage) writeguard.Call {
	return writeguard.Call{Principal: p.req.who, Client: p.req.client, Mode: p.mode, Run: p.run, Server: t.Server, Tool: t.Name,
		Description: t.Description, Annotations: t.Annotations, Arguments: args}
}

// afterWait is a passage under the configuration of this moment: what comes back
// is looked at by the filters of now.
func (g *Gateway) afterWait(ctx context.Context, p *passage) *passage {
	now := *p
	now.req = g.presently(ctx, p.req)
	return &now
}

// approved gets a person's yes for a call and uses it up; the id is that of the
// approval, the decision the one of now. Nothing was sent when it returns an
// error.
func (g *Gateway) approved(ctx context.Context, p *passage, t *registry.Tool, call writeguard.Call, d writeguard.Decision, ev *audit.Event) (string, writeguard.Decision, error) {
	if err := g.room(ctx, p, d, call); err != nil {
		return "", d, err
	}
	switch id, err := g.approvals.UseGrant(ctx, call, d); {
	case err != nil:
		return "", d, fmt.Errorf("%s on server %s (nothing was sent): %w", call.Tool, call.Server, err)
	case id != "":
		ev.Approval = id
		return id, d, g.countedCall(ctx, p, d, call)
	}
	for try := 1; ; try++ {
		a, err := g.approvals.Request(ctx, call, d)
		if err != nil {
			return "", d, fmt.Errorf("ask for approval of %s on server %s (nothing was sent): %w", call.Tool, call.Server, err)
		}
		ev.Approval = a.ID
		now := d
		if a, err = g.obtain(ctx, p, a); err == nil {
			if now, err = g.stillHolds(ctx, p, t, call, d, a.SameTerms); err != nil {
				return "", d, err
			}
			if err = g.countedCall(ctx, p, now, call); err != nil {
				return "", d, err
			}
			if err = g.approvals.Consume(ctx, a); err == nil {
				return a.ID, now, nil
			}
			// Whoever was faster counts; this one is not sent.
			if berr := g.budgets.GiveBack(context.WithoutCancel(ctx), p.req.who.ID, now.Terms, p.run); berr != nil {
				g.log.Warn("a call that was not sent counts in its budget", "server", call.Server, "tool", call.Tool, "error", berr)
			}
		}
		// An equal call beside this one was faster: this one needs its own yes.
		if !errors.Is(err, errAskAgain) && !errors.Is(err, writeguard.ErrUnusable) {
			return "", d, err
		}
		if try == 5 {
			return "", d, fmt.Errorf("use approval %s for %s on server %s (nothing was sent): %w", ev.Approval, call.Tool, call.Server, err)
		}
	}
}

// stillHolds judges a call again under the configuration of this moment: the
// person may have taken their time, and what the administrator has changed
// meanwhile counts. asked tells whether those whom the rule names now are those
// who were asked. It returns the decision of now; d is the one of before.
func (g *Gateway) stillHolds(ctx context.Context, p *passage, t *registry.Tool, call writeguard.Call, d writeguard.Decision, asked func(*writeguard.Terms) bool) (writeguard.Decision, error) {
	now := g.settings()
	if now == p.req.set {
		return d, nil
	}
	changed := &refusal{status: "denied", message: fmt.Sprintf("Refused: the administrator changed what %s on server %s is, or who may use it, while the approval was open. Nothing was sent. Look the tool up again.", t.Name, t.Server)}
	if slices.Contains(config.Diff(p.req.set.cfg, now.cfg).Reconnect, t.Server) {
		return d, changed
	}
	v := g.newView(ctx, now, p.req.who, p.req.grant)
	present := v.snap.ToolByIdentity(t.Server, t.Name)
	if present == nil || !v.sees(present) {
		return d, changed
	}
	f := now.policy.Filter(writeguard.Arguments, call.Server, call.Tool, call.Arguments)
	if !f.Would && (f.Blocked != "" || len(f.Found) > 0) {
		return d, &refusal{status: "denied", message: fmt.Sprintf("Refused: a filter that the administrator set while the approval of %s on server %s was open looks for something in its arguments. Nothing was sent. Make the call again: the filter says what it finds.", t.Name, t.Server)}
	}
	call.Description, call.Annotations = present.Description, present.Annotations
	switch d = now.policy.Decide(call); {
	case d.Action == writeguard.Deny:
		return d, refusedBy(d)
	case d.Action != writeguard.Allow && !asked(d.Terms):
		return d, &refusal{status: "denied", message: fmt.Sprintf("Refused: the administrator changed who approves %s on server %s while the approval was open. Nothing was sent. Make the same call again to ask those who may.", t.Name, t.Server)}
	}
	return d, nil
}

// guardedParked goes on with a call that its client was asked about. It was let
// through when it began; what the rules say now counts once more.
func (g *Gateway) guardedParked(ctx context.Context, p *passage, x crossing, d writeguard.Decision, ev *audit.Event) (json.RawMessage, error) {
	approval, err := g.parked.approvalOf(ctx, p, x)
	if err != nil {
		return nil, err
	}
	ev.Approval, x.approval = approval, approval
	if d.Action == writeguard.Allow || d.Action == writeguard.Approve && approval != "" {
		return g.release(ctx, p, x, d.Labels, ev)
	}
	g.parked.drop(ctx, p, x, errors.New("policy does not allow the call any more"))
	return nil, &upstreams.CallError{Server: x.server, Tool: x.name, Sent: true, Problem: upstreams.Problem{Kind: upstreams.KindCancelled,
		Message: fmt.Sprintf("the administrator changed the rules while the server waited for the client (%s: %s), so the call was cancelled at its server", d.Rule, trimStop(d.Reason))}}
}

// send makes the exchange. It is the only caller of Upstream.Do on behalf of a
// client.
func (g *Gateway) send(ctx context.Context, p *passage, x crossing) (json.RawMessage, error) {
	up, ok := g.opt.Upstreams.Get(x.server)
	if !ok {
		return nil, &upstreams.CallError{Server: x.server, Tool: x.name, Problem: upstreams.Problem{Kind: "connect", Message: "the server was removed or switched off by the administrator; look for another with portal_query_tools"}}
	}
	c := &upstreams.Call{Method: x.method, Name: x.name, Params: x.params.Bytes(), User: p.req.who.ID, Session: p.req.upstreamSession(),
		Header: x.header, ProtocolVersion: p.req.version, ClientInfo: p.req.clientInfo, Notify: p.notify, SessionCapabilities: p.req.caps}
	do := func(ctx context.Context) (json.RawMessage, error) { return up.Do(ctx, c) }
	if p.sending != nil {
		if err := p.sending(ctx); err != nil {
			return nil, err
		}
	}
	if p.inCode() {
		c.Ask = askInCode
		return do(ctx)
	}
	c.LogLevel = p.req.level
	switch {
	case p.req.modern && inRounds(x.method) && p.req.answersAny() && !wire.Modern(up.Status().Protocol):
		c.Capabilities = p.req.caps
		return g.parked.begin(ctx, p, x, func(ctx context.Context, notify func(string, json.RawMessage), ask asker) (json.RawMessage, error) {
			c.Notify, c.Ask = taskTerms(c.User, x.server, notify, p.screened(ask))
			return do(ctx)
		})
	case p.req.modern:
		c.Capabilities = p.req.caps
	case p.ask != nil:
		c.Ask, c.Capabilities = g.noting(x.server, p.req.sessionKey(), p.screened(p.ask)), p.req.caps
	}
	c.Notify, c.Ask = taskTerms(c.User, x.server, c.Notify, c.Ask)
	result, err := do(ctx)
	g.urls.refused(x.server, p.req.sessionKey(), err)
	return result, err
}

// relay is the door for what is no tool: prompts, resources, completions. They
// are reads by the protocol's definition.
func (g *Gateway) relay(ctx context.Context, p *passage, x crossing) (json.RawMessage, error) {
	ev := g.event(p, x, len(x.params.Bytes()))
	ev.Class, ev.Decision, ev.Rule = string(writeguard.Read), string(writeguard.Allow), "protocol"
	start := g.now()
	var result json.RawMessage
	var err error
	may := p.req.view.content
	if strings.HasPrefix(x.method, "tasks/") {
		may = p.req.view.shows // of a call that was let through
	}
	if !may(x.server) {
		err = wire.Errorf(wire.CodeInvalidParams, "unknown: %s", bounded(x.name, 120))
	} else {
		result, err = g.relayRounds(ctx, p, x, &ev)
	}
	g.record(ctx, ev, start, result, err)
	if err == nil {
		result = outwardLinks(p.req.view.snap, x, result, p.req.params.String("uri"))
	}
	return asked(result, err)
}

// sends reports whether a request that calls no tool has words of the caller's
// own in it: what is only named by its server's own list has none.
func (p *passage) sends(x crossing) bool {
	switch x.method {
	case "resources/read":
		return !p.req.view.snap.Names(x.server, x.name)
	case "prompts/get":
		args, err := wire.ParseObject(x.params.Get("arguments"))
		return x.params.Get("arguments") != nil && (err != nil || len(args) > 0)
	}
	return true
}

// relayRounds is the part of guarded that relay needs, too.
func (g *Gateway) relayRounds(ctx context.Context, p *passage, x crossing, ev *audit.Event) (json.RawMessage, error) {
	tool := ""
	if strings.HasPrefix(x.method, "tasks/") {
		tool = writeguard.AnyTool
	}
	params, err := g.filterArguments(p, x.server, tool, x.params.Bytes(), ev)
	if err != nil {
		ev.Capability, _ = p.req.set.policy.FilterText(writeguard.Arguments, x.server, tool, ev.Capability)
		return nil, err
	}
	if x.params, err = wire.ParseObject(params); err != nil {
		return nil, err
	}
	if m := wire.NameMember(x.method); m != "" && x.params.String(m) != x.name {
		x.name = x.params.String(m) // which goes into a header, too
		ev.Capability = x.name
	}
	if tool == "" {
		call := p.call(&registry.Tool{Server: x.server}, nil)
		call.Facts = g.facts(ctx, p, ev)
		d, denied := p.req.set.policy.DeniesContent(call, p.sends(x))
		if denied {
			g.noteDecision(p, d, ev)
		}
		if d.Action == writeguard.Deny {
			return nil, refusedBy(d)
		}
	}
	if !inRounds(x.method) {
		return g.release(ctx, p, x, p.labels(x.server), ev)
	}
	resumed, err := g.continuation(ctx, p, x)
	switch {
	case err != nil:
		return nil, err
	case resumed != nil:
		x.params = resumed.params(x.params, false)
	case isOurState(p.state):
		x.params = x.params.Without("requestState", "inputResponses")
	}
	return g.release(ctx, p, x, p.labels(x.server), ev)
}

// watch is the door for what a caller wants to hear outside its calls: updated
// resources and tasks. It lasts until ctx ends; the audit has when it began.
func (g *Gateway) watch(ctx context.Context, r *request, server string, w upstreams.Watch) {
	p := &passage{req: r, mode: writeguard.Direct}
	ev := g.event(p, crossing{method: "subscriptions/listen", server: server, name: bounded(strings.Join(append(append([]string(nil), w.Resources...), w.Tasks...), " "), 200)}, 0)
	ev.Class, ev.Decision, ev.Rule = string(writeguard.Read), string(writeguard.Allow), "protocol"
	start, ready := g.now(), w.Ready
	w.Ready = func(resources, tasks []string, err error) {
		g.record(ctx, ev, start, nil, err)
		ready(resources, tasks, err)
	}
	up, ok := g.opt.Upstreams.Get(server)
	if !ok || !r.view.shows(server) || len(w.Resources) > 0 && !r.view.content(server) {
		w.Ready(nil, nil, wire.Errorf(wire.CodeInvalidParams, "unknown server %s", bounded(server, 60)))
		return
	}
	if d, denied := g.closedToWatch(ctx, p, server, w.Resources, &ev); denied {
		if g.noteDecision(p, d, &ev); d.Action == writeguard.Deny {
			w.Ready(nil, nil, refusedBy(d))
			return
		}
	}
	up.Watch(ctx, &upstreams.Call{User: r.who.ID, Session: r.upstreamSession(), ProtocolVersion: r.version, ClientInfo: r.clientInfo, Capabilities: r.caps}, w)
}

// closedToWatch is what a rule says against a subscription to resources.
func (g *Gateway) closedToWatch(ctx context.Context, p *passage, server string, resources []string, ev *audit.Event) (writeguard.Decision, bool) {
	if len(resources) == 0 {
		return writeguard.Decision{}, false
	}
	call := p.call(&registry.Tool{Server: server}, nil)
	call.Facts = g.facts(ctx, p, ev)
	made := slices.ContainsFunc(resources, func(uri string) bool { return !p.req.view.snap.Names(server, uri) })
	return p.req.set.policy.DeniesContent(call, made)
}

func trimStop(s string) string {
	for len(s) > 0 && (s[len(s)-1] == '.' || s[len(s)-1] == ' ') {
		s = s[:len(s)-1]
	}
	return s
}
