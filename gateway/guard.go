package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/mcp-portal/mcp-portal/audit"
	"github.com/mcp-portal/mcp-portal/upstreams"
	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// facts are what the policy may ask about what happened before a call.
func (g *Gateway) facts(ctx context.Context, p *passage, ev *audit.Event) func() (writeguard.Facts, error) {
	f := p.before
	return func() (writeguard.Facts, error) {
		var err error
		f.Taints, err = g.taints.Of(ctx, p.req.grant)
		ev.Taints = f.Taints.List()
		return f, err
	}
}

// noteDecision puts what the guard says into the audit line, and into the log
// what it would have done while it only observes.
func (g *Gateway) noteDecision(p *passage, d writeguard.Decision, ev *audit.Event) {
	ev.Class, ev.Source, ev.Decision, ev.Rule, ev.Labels = string(d.Class), d.Source, string(d.Action), d.Rule, d.Labels.List()
	if d.Would == "" {
		return
	}
	ev.Would = string(d.Would)
	g.log.Warn("the guard only observes (guard.observe): this call runs although policy says otherwise", "would", d.Would, "rule", d.Rule,
		"server", ev.Server, "tool", ev.Capability, "user", p.req.who.ID, "reason", d.Reason)
}

// filterArguments applies the filters to what would go to a server, before
// anything is judged: what a person approves is what is sent.
func (g *Gateway) filterArguments(p *passage, server, tool string, args json.RawMessage, ev *audit.Event) (json.RawMessage, error) {
	policy := p.req.set.policy
	if !policy.Filters(writeguard.Arguments, server, tool) {
		return args, nil
	}
	f := policy.Filter(writeguard.Arguments, server, tool, args)
	g.noteFiltered(f, ev)
	if ev.Arguments != nil {
		ev.Arguments = f.Data
	}
	if f.Blocked != "" {
		ev.Arguments = nil
		ev.Decision, ev.Rule = string(writeguard.Deny), "filter"
		return nil, &refusal{status: "denied", message: fmt.Sprintf("Refused: the arguments of %s on server %s may not be sent: %s. Nothing was sent. Leave it out, or ask the user.", ev.Capability, server, f.Blocked)}
	}
	return f.Data, nil
}

// filterAnswers is filterArguments for what a 2026-07-28 client answers to a
// server's questions in its retry. What a server asks in the middle of a call
// is looked at where it is asked.
func (g *Gateway) filterAnswers(p *passage, server, tool string, params wire.Object, ev *audit.Event) (wire.Object, error) {
	policy := p.req.set.policy
	if p.responses == nil || isParked(p.state) || !policy.Filters(writeguard.Arguments, server, tool) {
		return params, nil
	}
	f := policy.Filter(writeguard.Arguments, server, tool, p.responses)
	g.noteFiltered(f, ev)
	if f.Blocked != "" {
		ev.Decision, ev.Rule = string(writeguard.Deny), "filter"
		return nil, &refusal{status: "denied", message: fmt.Sprintf("Refused: what was answered to %s on server %s may not be sent: %s. The answer was not sent. Leave it out, or ask the user.", ev.Capability, server, f.Blocked)}
	}
	p.responses = f.Data
	return params.Set("inputResponses", f.Data), nil
}

// screenQuestions puts the filters between a server that asks in the middle of
// a call and the client: the question is something that comes back, the answer
// something that goes out.
func (g *Gateway) screenQuestions(policy *writeguard.Policy, x crossing, tool string) func(asker) asker {
	if !policy.Filters(writeguard.Results, x.server, tool) && !policy.Filters(writeguard.Arguments, x.server, tool) {
		return nil
	}
	return func(ask asker) asker {
		return func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *wire.Error) {
			seen := func(side writeguard.Side, data json.RawMessage, what string) (json.RawMessage, *wire.Error) {
				if !policy.Filters(side, x.server, tool) {
					return data, nil
				}
				f := policy.Filter(side, x.server, tool, data)
				if len(f.Found) > 0 {
					g.log.Info("a filter looked into a question of a server, or its answer", "server", x.server, "capability", x.name, "what", what, "found", f.Found, "only observed", f.Would)
				}
				if f.Blocked != "" {
					return nil, wire.Errorf(wire.CodeInternal, "%s was withheld by the portal: %s", what, f.Blocked)
				}
				return f.Data, nil
			}
			if params == nil {
				params = json.RawMessage("{}")
			}
			params, e := seen(writeguard.Results, params, "the question")
			if e != nil {
				return nil, e
			}
			res, e := ask(ctx, method, params)
			if e != nil || res == nil {
				return res, e
			}
			return seen(writeguard.Arguments, res, "the answer")
		}
	}
}

func (g *Gateway) noteFiltered(f writeguard.Filtered, ev *audit.Event) {
	if len(f.Found) == 0 {
		return
	}
	for _, found := range f.Found {
		if f.Would {
			found += " (only observed)"
		}
		ev.Filters = append(ev.Filters, found)
	}
	if f.Would {
		g.log.Warn("the guard only observes (guard.observe): a filter would have acted", "server", ev.Server, "capability", ev.Capability, "found", f.Found)
	}
}

// countedCall lets a call through that policy allows: it is counted under its rule
// first, and a call that cannot be counted is refused.
func (g *Gateway) countedCall(ctx context.Context, p *passage, d writeguard.Decision, call writeguard.Call) error {
	err := g.budgets.Take(ctx, p.req.who.ID, d.Terms, p.run)
	return g.overBudget(p, d, call, err)
}

// room looks whether the call could be counted now, before a person is asked.
func (g *Gateway) room(ctx context.Context, p *passage, d writeguard.Decision, call writeguard.Call) error {
	return g.overBudget(p, d, call, g.budgets.Room(ctx, p.req.who.ID, d.Terms, p.run))
}

func (g *Gateway) overBudget(p *passage, d writeguard.Decision, call writeguard.Call, err error) error {
	switch {
	case err == nil:
		return nil
	case p.req.set.policy.Observes():
		g.log.Warn("the guard only observes (guard.observe): a budget would have stopped this call", "server", call.Server, "tool", call.Tool, "user", p.req.who.ID, "error", err)
		return nil
	case errors.Is(err, writeguard.ErrBudget):
		return &refusal{status: "denied", message: fmt.Sprintf("Refused: %s on server %s: %s. Nothing was sent.", call.Tool, call.Server, trimStop(err.Error()))}
	}
	return fmt.Errorf("%s on server %s was not sent, because it could not be counted under %s: %w", call.Tool, call.Server, d.Rule, err)
}

// release makes the exchange of a call that may be made. Before it, the
// session is marked with what it is about to read; after it, the filters look
// at what came back, in whatever form.
func (g *Gateway) release(ctx context.Context, p *passage, x crossing, labels writeguard.Labels, ev *audit.Event) (json.RawMessage, error) {
	g.taints.Add(ctx, p.req.grant, labels)
	tool := ""
	switch {
	case x.method == "tools/call":
		tool = x.name
	case strings.HasPrefix(x.method, "tasks/"):
		tool = writeguard.AnyTool
	}
	policy := p.req.set.policy
	watched := *p
	watched.screen = g.screenQuestions(policy, x, tool)
	if !policy.Filters(writeguard.Results, x.server, tool) {
		return g.exchange(ctx, &watched, x)
	}
	if p.notify != nil {
		watched.notify = func(method string, params json.RawMessage) {
			f := policy.Filter(writeguard.Results, x.server, tool, params)
			if f.Blocked != "" {
				g.log.Warn("a notification of a server was held back by a filter", "server", x.server, "method", method, "why", f.Blocked)
				return
			}
			p.notify(method, f.Data)
		}
	}
	result, err := g.exchange(ctx, &watched, x)
	if err != nil {
		return nil, g.filterError(policy, x.server, tool, err, ev)
	}
	// The state of a call under way is not for anybody to read, and would be
	// useless when changed.
	held, rest := json.RawMessage(nil), result
	if o, perr := wire.ParseObject(result); perr == nil && o.Get("requestState") != nil {
		held, rest = o.Get("requestState"), o.Without("requestState").Bytes()
	}
	f := policy.Filter(writeguard.Results, x.server, tool, rest)
	g.noteFiltered(f, ev)
	switch {
	case f.Blocked != "":
		text := fmt.Sprintf("%s on server %s was called, and its result is withheld: %s. Do not repeat the call; ask the user how to go on.", x.name, x.server, f.Blocked)
		if x.method != "tools/call" {
			return nil, wire.Errorf(wire.CodeInternal, "%s", text)
		}
		return toolError(text), nil
	case len(f.Found) == 0:
		return result, nil
	case held == nil:
		return f.Data, nil
	}
	o, perr := wire.ParseObject(f.Data)
	if perr != nil {
		return nil, perr
	}
	return o.Set("requestState", held).Bytes(), nil
}

// filterError applies the filters to the words of a server in an error.
func (g *Gateway) filterError(policy *writeguard.Policy, server, tool string, err error, ev *audit.Event) error {
	clean := func(s string) string {
		s, f := policy.FilterText(writeguard.Results, server, tool, s)
		g.noteFiltered(f, ev)
		return s
	}
	var call *upstreams.CallError
	if errors.As(err, &call) {
		if text := clean(call.Problem.Message); text != call.Problem.Message {
			own := *call
			own.Problem.Message, own.Err = text, nil
			return &own
		}
		return err
	}
	if e, ok := wire.AsError(err); ok {
		own := *e
		own.Message = clean(e.Message)
		if e.Data != nil {
			f := policy.Filter(writeguard.Results, server, tool, e.Data)
			g.noteFiltered(f, ev)
			if own.Data = f.Data; f.Blocked != "" {
				own.Data = nil
			}
		}
		return &own
	}
	return err
}

// labels are those of a server, for what is no tool of it.
func (p *passage) labels(server string) writeguard.Labels {
	return p.req.set.policy.ServerLabels(server)
}

// whoIsAsked begins a sentence to an agent about who is to open an address.
func whoIsAsked(a *writeguard.Approval) string {
	if a.Approvers == nil {
		return "Ask the user to open"
	}
	return "The user cannot approve it alone: ask " + a.Who() + " to open"
}

// guardStatus is the guard's part of the status.
func (g *Gateway) guardStatus(set *settings) map[string]any {
	mode := "enforcing"
	if set.policy.Observes() {
		mode = "only observing: every call runs (guard.observe)"
	}
	return map[string]any{"mode": mode, "preset": set.cfg.Guard.Preset, "rules": len(set.cfg.Guard.Rules), "filters": len(set.cfg.Guard.Filters), "unmatched": set.policy.Unmatched(g.toolNames()), "webhook": g.hook.Status()}
}

// toolNames are the names that servers gave their tools, of the servers that are
// ready and have told all of them.
func (g *Gateway) toolNames() map[string][]string {
	out := map[string][]string{}
	for _, s := range g.opt.Registry.Snapshot().Servers {
		if s.State != upstreams.Ready || s.FromCache || len(s.Warnings) > 0 {
			continue
		}
		names := []string{}
		for _, t := range s.Tools {
			names = append(names, t.Name)
		}
		for _, t := range s.Disabled {
			names = append(names, t.Tool)
		}
		for _, t := range s.Pending {
			if t.Tool != "" { // the server itself is no tool
				names = append(names, t.Tool)
			}
		}
		out[s.ID] = names
	}
	return out
}
