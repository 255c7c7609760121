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
	cfg    *config.Config
	rules  []rule
	preset string
}

type rule struct {
	name    string
	servers []string
	tools   []string
	classes []Class
	groups  []string
	users   []string
	modes   []Mode
	action  Action
	reason  string
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
	p := &Policy{cfg: cfg, preset: cfg.Guard.Preset}
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
		p.rules = append(p.rules, c)
	}
	for id, s := range cfg.Servers {
		for name, t := range s.Tools {
			if _, ok := parseClass(t.Class); !ok && t.Class != "" {
				errs = append(errs, fmt.Errorf("servers.%s.tools.%s.class: %q is none of read, write, destructive", id, name, t.Class))
			}
		}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("compile the guard: %w", errors.Join(errs...))
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
	for _, s := range r.Class {
		k, ok := parseClass(s)
		if !ok {
			bad("class: %q is none of read, write, destructive", s)
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
	case Allow, Deny, Approve:
	default:
		bad("action: %q is none of allow, deny, approve", r.Action)
	}
	return c, errors.Join(errs...)
}

func (r *rule) matches(c *Call, class Class) bool {
	return matchAny(r.servers, c.Server) && matchAny(r.tools, c.Tool) &&
		(len(r.classes) == 0 || slices.Contains(r.classes, class)) &&
		(len(r.modes) == 0 || slices.Contains(r.modes, c.Mode)) &&
		(len(r.groups) == 0 || c.Principal.InGroup(r.groups...)) &&
		(len(r.users) == 0 || r.hasUser(c.Principal))
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

// hasUser compares with the principal's id, and with the address of a person.
func (r *rule) hasUser(p *auth.Principal) bool {
	for _, u := range r.users {
		if u == p.ID || p.Email != "" && p.Kind != auth.KindService && strings.EqualFold(u, p.Email) {
			return true
		}
	}
	return false
}

// Decide says what happens to a call: the first rule that matches decides,
// else the preset. A call that cannot be judged (no user, no tool, an unknown
// mode, no policy) is denied. Decide reads nothing but its arguments and the
// configuration it was compiled from, and takes microseconds.
func (p *Policy) Decide(c Call) Decision {
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
	d := Decision{Classification: Classify(c, p.cfg)}
	for i := range p.rules {
		if r := &p.rules[i]; r.matches(&c, d.Class) {
			d.Action, d.Rule, d.Reason = r.action, r.name, r.reason
			break
		}
	}
	if d.Action == "" {
		d.Action, d.Rule = presets[p.preset][d.Class], "preset "+p.preset
	}
	if d.Reason == "" {
		d.Reason = d.sentence(c)
	}
	return d
}

// sentence tells the agent what was decided and what to do next.
func (d Decision) sentence(c Call) string {
	tool := Visible(c.Server + "/" + c.Tool)
	switch d.Action {
	case Allow:
		return fmt.Sprintf("%s is %s and allowed by %s.", tool, d.Class, d.Rule)
	case Approve:
		return fmt.Sprintf("%s is %s: %s asks a person to approve this call before it is sent.", tool, d.Class, d.Rule)
	}
	return fmt.Sprintf("%s is %s and refused by %s. Nothing was sent. Do not try again or another way; "+
		"tell the user, who can ask the portal's administrator for a rule.", tool, d.Class, d.Rule)
}

func unjudged(why string) Decision {
	return Decision{
		Action:         Deny,
		Classification: Classification{Destructive, "default", "the call could not be judged"},
		Rule:           "fail closed",
		Reason:         "Refused because " + why + ". Nothing was sent. Tell the portal's administrator.",
	}
}
