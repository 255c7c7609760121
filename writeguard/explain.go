package writeguard

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mcp-portal/mcp-portal/config"
)

// Explanation says what the guard would do with a call, and why: for the
// administrator who writes a policy and for the user who meets it.
type Explanation struct {
	Server      string   `json:"server"`
	Tool        string   `json:"tool"` // original name
	Class       Class    `json:"class"`
	Source      string   `json:"source"` // of the class: config, annotations, name, description, default
	Why         string   `json:"why"`    // one line: what said so
	Labels      []string `json:"labels"`
	ExternalWhy string   `json:"external_why,omitempty"`

	Action  Action   `json:"decision"`
	Rule    string   `json:"rule"` // that decides
	Reason  string   `json:"reason"`
	Would   Action   `json:"would,omitempty"`   // what Action had been, if the guard did not only observe
	If      []string `json:"if,omitempty"`      // rules that may decide otherwise: they look at what is not given
	Worst   Action   `json:"worst"`             // the strictest that can come of it
	Terms   []string `json:"terms,omitempty"`   // what the rule that decides says besides, a sentence each
	Filters []string `json:"filters,omitempty"` // names of those that look into the call or its result
	Blocked string   `json:"blocked,omitempty"` // why a filter would refuse these arguments
	Steps   []Step   `json:"steps"`             // the rules up to the one that decides, in order
}

// Step is one rule that was tried.
type Step struct {
	Rule string `json:"rule"`
	Says string `json:"says"` // "decides", or why it does not
	Tool bool   `json:"tool"` // its servers and tools match: it is about this tool
}

// Explain judges a call, or a tool if c.Arguments or c.Facts are nil, and says
// how it came to that.
func (p *Policy) Explain(c Call) Explanation {
	o := p.Outlook(c)
	e := Explanation{Server: c.Server, Tool: c.Tool, Class: o.Class, Source: o.Source, Why: o.Why, Labels: o.Labels.List(), ExternalWhy: o.ExternalWhy,
		Action: o.Action, Rule: o.Rule, Reason: o.Reason, Would: o.Would, If: o.If, Worst: o.Worst, Terms: o.Terms.sentences(), Steps: []Step{}}
	if o.Rule == failClosed {
		return e
	}
	if o.Rule == "preset careful" && o.Action == Allow && o.Labels.Has(External) && c.Facts == nil {
		e.If, e.Worst = append(e.If, carefulFlow), Approve
	}
	in := inputs{call: &c, class: o.Classification}
	for i := range p.rules {
		r := &p.rules[i]
		s := Step{Rule: r.name, Says: r.mismatch(&in), Tool: matchAny(r.servers, c.Server) && matchAny(r.tools, c.Tool)}
		if s.Says == "" {
			s.Says = "decides"
		}
		e.Steps = append(e.Steps, s)
		if r.name == o.Rule {
			break
		}
	}
	for i := range p.filters {
		if f := &p.filters[i]; f.applies(Arguments, c.Server, c.Tool) || f.applies(Results, c.Server, c.Tool) {
			e.Filters = append(e.Filters, f.name)
		}
	}
	if c.Arguments != nil {
		e.Blocked = p.Filter(Arguments, c.Server, c.Tool, c.Arguments).Blocked
	}
	return e
}

// mismatch says why a rule does not match; empty: it does.
func (r *rule) mismatch(in *inputs) string {
	c, k := in.call, in.class
	for _, part := range []struct {
		holds bool
		says  string
	}{
		{matchAny(r.servers, c.Server), "is for other servers: " + list(r.servers)},
		{matchAny(r.tools, c.Tool), "is for other tools: " + list(r.tools)},
		{r.matchesTool(c, &k), "is for other classes than " + k.Word()},
		{len(r.modes) == 0 || slices.Contains(r.modes, c.Mode), "is not for mode " + string(c.Mode)},
		{len(r.groups) == 0 || c.Principal.InGroup(r.groups...), "the user is in none of its groups: " + list(r.groups)},
		{len(r.users) == 0 || isOneOf(r.users, c.Principal), "is for other users"},
		{matchAny(r.clients, c.Client), "is for other clients: " + list(r.clients)},
	} {
		if !part.holds {
			return part.says
		}
	}
	if r.when == nil {
		return ""
	}
	switch holds, err := r.when.holds(in); {
	case errors.Is(err, errUnknown):
		return "may decide: its condition looks at what is not given (" + r.when.text + ")"
	case err != nil:
		return "" // it decides: the call is refused
	case !holds:
		return "its condition is false: " + r.when.text
	}
	return ""
}

func list(names []string) string { return Visible(short(strings.Join(names, ", "), 200)) }

// sentences are the terms for people.
func (t *Terms) sentences() (out []string) {
	if t == nil {
		return nil
	}
	if b := t.Budget; b != (config.Budget{}) {
		var parts []string
		for _, x := range []struct {
			n    int
			what string
		}{{b.PerMinute, "calls of a user in any minute"}, {b.PerHour, "calls of a user in any hour"}, {b.PerRun, "calls of one run"}, {b.Items, "items per call"}} {
			if x.n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", x.n, x.what))
			}
		}
		out = append(out, "lets through at most "+strings.Join(parts, ", "))
	}
	if a := t.Approvers; len(a.Groups)+len(a.Users) > 0 {
		who := append(prefixed("group ", a.Groups), a.Users...)
		if a.Requester {
			who = append(who, "the user whose agent asks")
		}
		out = append(out, "answered by "+list(who)+", on the portal's page")
	}
	switch t.Via {
	case "web":
		out = append(out, "answered on the portal's page only")
	case "client":
		out = append(out, "answered in the client's form only")
	}
	if t.Grant > 1 {
		out = append(out, fmt.Sprintf("an approver may release up to %d calls of the tool in one run", t.Grant))
	}
	return out
}

func prefixed(prefix string, names []string) (out []string) {
	for _, n := range names {
		out = append(out, prefix+n)
	}
	return out
}
