package writeguard

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/config"
)

// Policy is a compiled configuration of the guard. It is immutable and safe
// for concurrent use; a reload compiles another one.
type Policy struct {
	cfg     *config.Config
	rules   []rule
	preset  string
	filters []filter
	known   known
	classes map[[2]string][]classLine // by server and tool
}

type rule struct {
	name     string
	servers  []string
	tools    []string
	classes  []Class
	groups   []string
	users    []string
	modes    []Mode
	external bool // class: [external] is among the classes
	clients  []string
	when     *condition
	action   Action
	reason   string
	terms    *Terms // nil: none
}

// presets say what happens to a call that no rule matches.
var presets = map[string]map[Class]Action{
	"careful":   {Read: Allow, Write: Approve, Destructive: Approve},
	"read-only": {Read: Allow, Write: Deny, Destructive: Deny},
	"open":      {Read: Allow, Write: Allow, Destructive: Approve},
}

// Compile checks the guard's part of a configuration and prepares it. The
// error names every mistake; there is no policy then, and nothing may run.
func Compile(cfg *config.Config) (*Policy, error) {
	if cfg == nil {
		return nil, errors.New("compile the guard: no configuration")
	}
	p := &Policy{cfg: cfg, preset: cfg.Guard.Preset, classes: map[[2]string][]classLine{}}
	if p.preset == "" {
		p.preset = "careful"
	}
	var errs []error
	if presets[p.preset] == nil {
		errs = append(errs, fmt.Errorf("guard.preset: %q is none of careful, read-only, open", p.preset))
	}
	for i, r := range cfg.Guard.Rules {
		c, err := compileRule(i, r)
		if err != nil {
			errs = append(errs, err)
		}
		if r.When != "" {
			if c.when, err = compileCondition(r.When); err != nil {
				errs = append(errs, cfg.Fault(fmt.Sprintf("guard.rules[%d].when", i), "is no condition: %v", err))
			}
		}
		p.rules = append(p.rules, c)
	}
	for i, f := range cfg.Guard.Filters {
		c, err := compileFilter(i, f)
		if err != nil {
			errs = append(errs, err)
		}
		p.filters = append(p.filters, c)
	}
	if _, err := ParseLabels(cfg.Guard.Unlabelled); err != nil {
		errs = append(errs, fmt.Errorf("guard.unlabelled: %w", err))
	}
	for id, s := range cfg.Servers {
		if _, err := ParseLabels(s.Labels); err != nil {
			errs = append(errs, fmt.Errorf("servers.%s.labels: %w", id, err))
		}
		for name, t := range s.Tools {
			if _, err := ParseLabels(t.Labels); err != nil {
				errs = append(errs, fmt.Errorf("servers.%s.tools.%s.labels: %w", id, name, err))
			}
			if lines, at, err := compileClasses(t.Classes); err != nil {
				errs = append(errs, cfg.Fault(fmt.Sprintf("servers.%s.tools.%s.classes[%d]", id, name, at), "%v", err))
			} else if lines != nil {
				p.classes[[2]string{id, name}] = lines
			}
			if t.Preview.With != "" {
				if _, err := compileCompanion(t.Preview, "args"); err != nil {
					errs = append(errs, cfg.Fault(fmt.Sprintf("servers.%s.tools.%s.preview", id, name), "%v", err))
				}
			}
			if t.Undo.With != "" {
				c, err := compileCompanion(t.Undo, "args", "before", "result")
				if err == nil && c.Uses("before") && t.Preview.With == "" {
					err = errors.New("before is what the preview shows, and the tool has none; write preview")
				}
				if err != nil {
					errs = append(errs, cfg.Fault(fmt.Sprintf("servers.%s.tools.%s.undo", id, name), "%v", err))
				}
			}
			if _, ok := parseClass(t.Class); !ok && t.Class != "" {
				errs = append(errs, fmt.Errorf("servers.%s.tools.%s.class: %q is none of read, write, destructive, external", id, name, t.Class))
			}
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return p, nil
}

func compileRule(i int, r config.Rule) (rule, error) {
	c := rule{name: r.Name, groups: r.Groups, users: r.Users, action: Action(r.Action), reason: r.Reason}
	if c.name == "" {
		c.name = fmt.Sprintf("rule %d", i+1)
	}
	var errs []error
	bad := func(format string, a ...any) {
		errs = append(errs, fmt.Errorf("guard.rules[%d] (%s): "+format, append([]any{i, c.name}, a...)...))
	}
	globs := func(key string, patterns []string) []string {
		for _, p := range patterns {
			// config.Match would take these literally, and the rule would
			// quietly match nothing.
			if p == "" || strings.ContainsAny(p, `[]{}\!^`) {
				bad("%s: %q is no pattern; * and ? are the only special characters", key, p)
			}
		}
		return patterns
	}
	c.servers = globs("servers", r.Servers)
	c.tools = globs("tools", r.Tools)
	c.clients = globs("client", r.Client)
	if who := len(r.Approvers.Groups)+len(r.Approvers.Users) > 0; who || r.Budget != (config.Budget{}) || r.Via != "" || r.Grant != 0 {
		c.terms = &Terms{Rule: c.name, Budget: r.Budget, Approvers: r.Approvers, Via: r.Via, Grant: r.Grant}
	}
	switch r.Via {
	case "", "any", "web", "client":
	default:
		bad("via: %q is none of any, web, client", r.Via)
	}
	for _, s := range r.Class {
		if s == classExternal {
			c.external = true
			continue
		}
		k, ok := parseClass(s)
		if !ok {
			bad("class: %q is none of read, write, destructive, external", s)
		}
		c.classes = append(c.classes, k)
	}
	for _, s := range r.Mode {
		m := Mode(s)
		if m != Direct && m != Code {
			bad("mode: %q is none of direct, code", s)
		}
		c.modes = append(c.modes, m)
	}
	switch c.action {
	case Allow, Deny, Approve, ToPlan:
	default:
		bad("action: %q is none of allow, deny, approve, plan", r.Action)
	}
	return c, errors.Join(errs...)
}

// matchesTool reports whether the parts that look at the tool match.
func (r *rule) matchesTool(c *Call, k *Classification) bool {
	return matchAny(r.servers, c.Server) && matchAny(r.tools, c.Tool) &&
		(len(r.classes) == 0 && !r.external || slices.Contains(r.classes, k.Class) || r.external && k.Labels.Has(External))
}

// matchesCaller reports whether the parts that look at who calls, and how,
// match.
func (r *rule) matchesCaller(c *Call) bool {
	return (len(r.modes) == 0 || slices.Contains(r.modes, c.Mode)) &&
		(len(r.groups) == 0 || c.Principal.InGroup(r.groups...)) &&
		(len(r.users) == 0 || isOneOf(r.users, c.Principal)) &&
		matchAny(r.clients, c.Client)
}

// matchAny reports whether one of the patterns matches, or there is none.
func matchAny(patterns []string, name string) bool {
	for _, p := range patterns {
		if config.Match(p, name) {
			return true
		}
	}
	return len(patterns) == 0
}

// isOneOf compares with the principal's id, and with the address of a person.
func isOneOf(users []string, p *auth.Principal) bool {
	for _, u := range users {
		if u == p.ID || p.Email != "" && p.Kind != auth.KindService && strings.EqualFold(u, p.Email) {
			return true
		}
	}
	return false
}

// Observes reports whether the guard only logs what it would do.
func (p *Policy) Observes() bool { return p.cfg.Guard.Observe }

// Classify says what a tool does to the world: see the function of that name.
func (p *Policy) Classify(c Call) Classification { return p.tool(&c).class }

// ServerLabels are the labels of a server, which hold for its prompts and
// resources too.
func (p *Policy) ServerLabels(server string) Labels {
	names := p.cfg.Servers[server].Labels
	if names == nil {
		names = p.cfg.Guard.Unlabelled
	}
	l, err := ParseLabels(names)
	if err != nil {
		return Private | Untrusted | External
	}
	return l
}

// Decide says what happens to a call: the first rule that matches decides,
// else the preset. A call that cannot be judged (no user, no tool, an unknown
// mode, no policy, a condition that fails) is denied. Decide reads nothing but
// its arguments, the call's Facts where a condition or the preset depends on
// them, and the configuration it was compiled from.
func (p *Policy) Decide(c Call) Decision {
	d := p.decide(&c, nil)
	return p.observed(d)
}

// DeniesContent reports whether a rule closes a server for a caller, so that
// prompts and resources of it are refused too: the first rule without tools and
// condition that matches a read of the server and that caller, if it denies.
// Other actions are for tools: by the protocol's definition the rest are reads.
//
// sends tells that the request holds words of the caller's own, such as the
// arguments of a prompt. Where no rule matches, the preset careful refuses these
// to an external server when it would ask about a call: of a request that is no
// call nobody can be asked. c.Tool is empty.
func (p *Policy) DeniesContent(c Call, sends bool) (Decision, bool) {
	if p == nil || c.Principal == nil || c.Principal.ID == "" || c.Server == "" {
		return unjudged("the request has no user or no server"), true
	}
	k := Classification{Class: Read, Source: "default", Why: "prompts and resources are reads", Labels: p.ServerLabels(c.Server)}
	for i := range p.rules {
		r := &p.rules[i]
		if len(r.tools) > 0 || r.when != nil || !r.matchesTool(&c, &k) || !r.matchesCaller(&c) {
			continue
		}
		if r.action != Deny {
			return Decision{}, false
		}
		d := Decision{Action: Deny, Classification: k, Rule: r.name, Reason: r.reason, Terms: r.terms}
		if d.Reason == "" {
			d.Reason = "the server " + Visible(c.Server) + " is closed by " + r.name + ". Nothing was sent. Tell the user, who can ask the portal's administrator for a rule"
		}
		return p.observed(d), true
	}
	if sends && p.preset == "careful" && k.Labels.Has(External) {
		k.ExternalWhy = "servers." + c.Server + ".labels"
		d := Decision{Action: Allow, Classification: k}
		if p.trifecta(&inputs{call: &c, class: k}, &d, false); d.Action != Allow {
			d.Action = Deny
			d.Reason += ". Nothing was sent. Tell the user: a new session may ask, or the portal's administrator can write a rule that allows it"
			return p.observed(d), true
		}
	}
	return Decision{}, false
}

// observed is a decision as it counts while the guard only observes.
func (p *Policy) observed(d Decision) Decision {
	if p != nil && p.cfg.Guard.Observe && d.Action != Allow && d.Rule != failClosed {
		d.Would, d.Action = d.Action, Allow
	}
	return d
}

// decide judges a call. A rule whose condition looks at what is not known is
// handed to open, if that is given, and then counts as not matching; without
// open it denies.
func (p *Policy) decide(c *Call, open func(r *rule, k Classification)) Decision {
	if p == nil {
		return unjudged("there is no policy")
	}
	switch {
	case c.Principal == nil || c.Principal.ID == "":
		return unjudged("the call has no user")
	case c.Server == "" || c.Tool == "":
		return unjudged("the call names no tool of a server")
	case c.Mode != Direct && c.Mode != Code:
		return unjudged(fmt.Sprintf("the call came by an unknown way (%q)", string(c.Mode)))
	}
	return p.decideAs(c, p.tool(c), open)
}

// decideAs judges a call of a tool that is known as t.
func (p *Policy) decideAs(c *Call, t *knownTool, open func(r *rule, k Classification)) Decision {
	d := Decision{Classification: t.class}
	in := inputs{call: c, class: d.Classification}
	for _, r := range t.rules {
		if !r.matchesCaller(c) {
			continue
		}
		if r.when != nil {
			holds, err := r.when.holds(&in)
			if err != nil && open != nil && errors.Is(err, errUnknown) {
				open(r, d.Classification)
				continue
			}
			if err != nil {
				d.Action, d.Rule = Deny, r.name
				d.Reason = fmt.Sprintf("the condition of %s could not be judged (%s), so the call is refused. Nothing was sent. Check the arguments; if they are right, tell the portal's administrator.", r.name, Visible(short(err.Error(), 200)))
				return d
			}
			if !holds {
				continue
			}
		}
		d.Action, d.Rule, d.Reason, d.Terms = r.action, r.name, r.reason, r.terms
		if over := r.terms.over(&in); over != "" {
			d.Action, d.Reason = Deny, over
		}
		break
	}
	if d.Action == "" {
		d.Action, d.Rule = presets[p.preset][d.Class], "preset "+p.preset
		if p.preset == "careful" && d.Action == Allow && d.Labels.Has(External) {
			p.trifecta(&in, &d, open != nil)
		}
	}
	if d.Reason == "" {
		d.Reason = d.sentence(*c)
	}
	return d
}

// over says why a call is beyond what its rule lets through at once; empty: it
// is not, or the arguments are not known.
func (t *Terms) over(in *inputs) string {
	if t == nil || t.Budget.Items == 0 || in.call.Arguments == nil {
		return ""
	}
	args, err := in.arguments()
	if err != nil {
		return fmt.Sprintf("the items of the call could not be counted (%s), so it is refused. Nothing was sent", Visible(short(err.Error(), 200)))
	}
	if n := longestList(args); n > t.Budget.Items {
		return fmt.Sprintf("%s lets a call name at most %d items and this one names %d. Nothing was sent. Send fewer per call", t.Rule, t.Budget.Items, n)
	}
	return ""
}

// trifecta closes the way by which secrets are led out: a session that has
// read private data and the text of strangers, and now sends something out.
func (p *Policy) trifecta(in *inputs, d *Decision, listing bool) {
	facts, err := in.before()
	if err == nil && facts.NoTaints {
		err = fmt.Errorf("what the session has read is %w", errUnknown)
	}
	switch {
	case err != nil && listing && errors.Is(err, errUnknown):
		return
	case err != nil:
		d.Action, d.Rule = Approve, carefulFlow
		d.Reason = "what it sends leaves the company (" + d.ExternalWhy + "), and what this session has read before is not known"
	case facts.Taints.Has(Private | Untrusted):
		d.Action, d.Rule = Approve, carefulFlow
		d.Reason = "what it sends leaves the company (" + d.ExternalWhy + "), and this session has read private data and text that strangers may have written"
	}
}

// Outlook is what can become of a call whose arguments, or what happens before
// it, are not known yet.
type Outlook struct {
	Decision          // if no condition that depends on them holds
	If       []string // names of the rules that can decide otherwise
	Worst    Action   // the strictest of all that can come out
}

// Outlook judges a tool rather than a call: c.Arguments and c.Facts may be nil.
func (p *Policy) Outlook(c Call) Outlook {
	var o Outlook
	strict := map[Action]int{Allow: 0, ToPlan: 1, Approve: 2, Deny: 3}
	var worst Action = Allow
	d := p.decide(&c, func(r *rule, _ Classification) {
		o.If = append(o.If, r.name)
		if strict[r.action] > strict[worst] {
			worst = r.action
		}
	})
	if strict[d.Action] > strict[worst] {
		worst = d.Action
	}
	if p.line(&c) == unknownArgs && d.Rule != failClosed {
		w, differs := p.worstLine(c, func(t *knownTool) Action {
			return p.decideAs(&c, t, func(r *rule, _ Classification) {
				if strict[r.action] > strict[worst] {
					worst = r.action
				}
			}).Action
		})
		if differs {
			o.If = append(o.If, classesOfTool)
		}
		if strict[w] > strict[worst] {
			worst = w
		}
	}
	o.Decision, o.Worst = p.observed(d), worst
	if p.Observes() && d.Rule != failClosed {
		o.Worst = Allow
	}
	return o
}

func short(s string, n int) string {
	if len(s) > n {
		return clip(s, n) + "…"
	}
	return s
}

// sentence tells the agent what was decided and what to do next.
func (d Decision) sentence(c Call) string {
	tool := Visible(c.Server + "/" + c.Tool)
	switch d.Action {
	case Allow:
		return tool + " is " + string(d.Class) + " and allowed by " + d.Rule + "."
	case Approve:
		return fmt.Sprintf("%s is %s: %s asks a person to approve this call before it is sent.", tool, d.Class, d.Rule)
	case ToPlan:
		return fmt.Sprintf("%s is %s: %s wants it planned, reviewed by a person and then applied.", tool, d.Class, d.Rule)
	}
	return fmt.Sprintf("%s is %s and refused by %s. Nothing was sent. Do not try again or another way; "+
		"tell the user, who can ask the portal's administrator for a rule.", tool, d.Class, d.Rule)
}

// classesOfTool stands for a tool's classes where rules are named that depend on
// what is not known yet.
const classesOfTool = "the classes of the tool"

const (
	failClosed  = "fail closed"
	carefulFlow = "preset careful, data flow"
)

func unjudged(why string) Decision {
	return Decision{
		Action:         Deny,
		Classification: Classification{Class: Destructive, Source: "default", Why: "the call could not be judged", Labels: Private | Untrusted | External},
		Rule:           failClosed,
		Reason:         "Refused because " + why + ". Nothing was sent. Tell the portal's administrator.",
	}
}
