package writeguard

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/mcp-portal/mcp-portal/audit"
	"github.com/mcp-portal/mcp-portal/auth"
)

// Replay runs a policy over past decisions, event by event in the order of the
// audit log, and collects what it would decide otherwise. It is for one
// goroutine.
type Replay struct {
	policy *Policy
	runs   map[string]*Facts // by run; by run and tool
	groups map[string]*ReplayGroup

	Same   int // decisions that stay
	Passed int // calls that never came before the rules: unknown tools, filters, what is no tool
	Masked int // calls judged by arguments in which credentials are masked
}

// ReplayGroup is calls for which the same holds.
type ReplayGroup struct {
	Server, Tool string
	Old          Action
	OldRule      string
	New          []Action // all that can come out now, the likeliest first
	NewRule      string
	Unknown      string // why it cannot be told whether it differs; empty: it does
	Calls        int
	Last         time.Time
	LastUser     string // email address or principal id of the last of them
}

// NewReplay replays under a policy.
func NewReplay(p *Policy) *Replay {
	return &Replay{policy: p, runs: map[string]*Facts{}, groups: map[string]*ReplayGroup{}}
}

// Add judges one event again.
func (r *Replay) Add(e audit.Event) {
	if e.Method != "tools/call" || e.Decision == "" || e.Rule == "" || e.Rule == "filter" || e.Rule == failClosed || e.Class == "" {
		r.Passed++
		return
	}
	c := r.call(e)
	k, unsure := r.policy.recordedClass(&c, e)
	old := Action(cmp.Or(e.Would, e.Decision))
	var can []Action // what may come out besides, and why that is not known
	var why []string
	d := r.policy.decideAs(&c, r.policy.classed(&c, k), func(rule *rule, _ Classification) {
		missing := "what the session had read"
		if rule.when.args && c.Arguments == nil {
			missing = "arguments"
		}
		can, why = append(can, rule.action), append(why, fmt.Sprintf("rule %s looks at %s, which the log does not hold", rule.name, missing))
	})
	if d.Rule == "preset careful" && d.Action == Allow && d.Labels.Has(External) && e.Rule != d.Rule {
		can, why = append(can, Approve), append(why, "the preset looks at what the session had read, which the log does not hold")
	}
	can = append([]Action{d.Action}, slices.DeleteFunc(can, func(a Action) bool { return a == d.Action })...)
	slices.Sort(can[1:])
	can = slices.Compact(can)
	switch {
	case unsure != "":
	case !slices.Contains(can, old): // whatever is not known, it is another decision
	case len(can) == 1:
		r.Same++
		return
	default:
		unsure = strings.Join(why, "; ")
	}
	g := ReplayGroup{Server: e.Server, Tool: e.Capability, Old: old, OldRule: e.Rule, New: can, NewRule: d.Rule, Unknown: unsure}
	key := fmt.Sprint(g)
	if r.groups[key] == nil {
		r.groups[key] = &g
	}
	have := r.groups[key]
	have.Calls++
	have.Last, have.LastUser = e.Time, cmp.Or(e.Email, e.User)
}

// call is what the guard judged then, as far as the log has it.
func (r *Replay) call(e audit.Event) Call {
	p := &auth.Principal{ID: e.User, Kind: auth.KindUser, Name: e.User, Email: e.Email, Groups: e.Groups}
	if strings.HasPrefix(e.User, "svc:") {
		p.Kind = auth.KindService
	}
	c := Call{Principal: p, Client: e.Client, Mode: Mode(e.Mode), Run: e.Run, Server: e.Server, Tool: e.Capability}
	if a := bytes.TrimSpace(e.Arguments); len(a) > 0 && a[0] == '{' {
		c.Arguments = e.Arguments
		if bytes.Contains(a, []byte(audit.Mask)) {
			r.Masked++
		}
	}
	f := Facts{NoTaints: len(e.Taints) == 0}
	f.Taints, _ = ParseLabels(e.Taints) // what is none of them was written by another version
	if e.Run != "" {
		all, own := r.count(e.Run), r.count(e.Run+"\x00"+e.Server+"\x00"+e.Capability)
		f.Calls, f.ToolCalls = all.Calls, own.Calls
		all.Calls++
		own.Calls++
	}
	c.Facts = func() (Facts, error) { return f, nil }
	return c
}

func (r *Replay) count(key string) *Facts {
	if r.runs[key] == nil {
		r.runs[key] = &Facts{}
	}
	return r.runs[key]
}

// recordedClass is the class of a past call under this policy. The log has the
// class of then and its source, not what the server said: where another source
// counts now, unsure says so.
func (p *Policy) recordedClass(c *Call, e audit.Event) (k Classification, unsure string) {
	k.Labels, k.ExternalWhy = labelled(c, p.cfg)
	server := p.cfg.Servers[c.Server]
	if server.Tools[c.Tool].Class != "" {
		now := classify(*c, p.cfg)
		now.Labels, now.ExternalWhy = k.Labels, k.ExternalWhy
		return now, ""
	}
	k.Class, k.Source, k.Why = Class(e.Class), e.Source, "as the log says"
	trusted := e.Source == "annotations" && k.Class != Destructive
	switch {
	case e.Source == "config":
		unsure = "its class was given by the configuration then and is not now; what its server says is not in the log"
	case e.Source == "annotations" && k.Class == Destructive, e.Source == "":
	case trusted != server.TrustAnnotations:
		unsure = "its class depends on trust_annotations, which changed; what its server says is not in the log"
	}
	return k, unsure
}

// Groups are the calls that would differ and those of which it cannot be told,
// the most frequent first.
func (r *Replay) Groups() (differ, unknown []*ReplayGroup) {
	for _, g := range r.groups {
		if g.Unknown == "" {
			differ = append(differ, g)
		} else {
			unknown = append(unknown, g)
		}
	}
	for _, list := range [][]*ReplayGroup{differ, unknown} {
		slices.SortFunc(list, func(a, b *ReplayGroup) int {
			return cmp.Or(cmp.Compare(b.Calls, a.Calls), strings.Compare(a.Server+"/"+a.Tool, b.Server+"/"+b.Tool), strings.Compare(a.OldRule, b.OldRule), strings.Compare(a.NewRule, b.NewRule))
		})
	}
	return differ, unknown
}

// Print writes what came out for a person, and what the log could not tell.
func (r *Replay) Print(w io.Writer) {
	differ, unknown := r.Groups()
	total := func(list []*ReplayGroup) (n int) {
		for _, g := range list {
			n += g.Calls
		}
		return n
	}
	d, u := total(differ), total(unknown)
	fmt.Fprintf(w, "%d decisions: %d stay, %d would differ, %d cannot be told\n", r.Same+d+u, r.Same, d, u)
	for _, part := range []struct {
		head string
		list []*ReplayGroup
	}{{"would differ:", differ}, {"cannot be told:", unknown}} {
		if len(part.list) > 0 {
			fmt.Fprintln(w, part.head)
		}
		for _, g := range part.list {
			var now []string
			for _, a := range g.New {
				now = append(now, string(a))
			}
			fmt.Fprintf(w, "  %d× %s/%s: %s (%s) → %s (%s); last %s by %s\n", g.Calls, Visible(g.Server), Visible(g.Tool), g.Old, Visible(g.OldRule),
				strings.Join(now, " or "), Visible(g.NewRule), g.Last.UTC().Format(time.RFC3339), Visible(g.LastUser))
			if g.Unknown != "" {
				fmt.Fprintf(w, "      %s\n", Visible(g.Unknown))
			}
		}
	}
	if r.Passed > 0 {
		fmt.Fprintf(w, "not judged: %d lines of calls that never came before the rules (no tool, unknown, filtered)\n", r.Passed)
	}
	if r.Masked > 0 {
		fmt.Fprintf(w, "%d calls were judged by arguments in which the log masks credentials\n", r.Masked)
	}
	fmt.Fprintln(w, "not in the log, so not looked at: budgets and filters, what people answered, and arguments unless audit.arguments is on")
}
