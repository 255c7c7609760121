package writeguard

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/audit"
	"github.com/mcp-portal/mcp-portal/config"
)

// past is a call as the audit log has it.
func past(edit func(*audit.Event)) audit.Event {
	e := audit.Event{User: "i|alice", Email: "alice@example.com", Groups: []string{"staff"}, Mode: "direct", Method: "tools/call", Server: "dns", Capability: "record_create",
		Class: "write", Source: "annotations", Decision: "approve", Rule: "preset careful"}
	if edit != nil {
		edit(&e)
	}
	return e
}

// What of the past can be judged again is, and what cannot is said.
func TestReplay(t *testing.T) {
	rule := func(r config.Rule) []config.Rule { return []config.Rule{r} }
	for name, tt := range map[string]struct {
		event  func(*audit.Event)
		rules  []config.Rule
		cfg    func(*config.Config)
		differ string // "old new …"; empty: it does not
		says   string // why it cannot be told; empty: it can
	}{
		"nothing changed":                {},
		"a new rule denies":              {rules: rule(config.Rule{Name: "no", Class: []string{"write"}, Action: "deny"}), differ: "approve deny"},
		"of another group":               {rules: rule(config.Rule{Groups: []string{"ops"}, Action: "deny"})},
		"by email address":               {rules: rule(config.Rule{Users: []string{"Alice@example.com"}, Action: "allow"}), differ: "approve allow"},
		"arguments not kept":             {rules: rule(config.Rule{Name: "big", When: "args.n > 5", Action: "deny"}), says: "rule big looks at arguments"},
		"whatever the arguments":         {rules: rule(config.Rule{Name: "big", When: "args.n > 5", Action: "approve"})},
		"differs whatever the arguments": {event: func(e *audit.Event) { e.Decision = "allow" }, rules: rule(config.Rule{When: "args.n > 5", Action: "deny"}), differ: "allow approve deny"},
		"arguments kept":                 {event: func(e *audit.Event) { e.Arguments = json.RawMessage(`{"n":6}`) }, rules: rule(config.Rule{When: "args.n > 5", Action: "deny"}), differ: "approve deny"},
		"arguments too large to keep":    {event: func(e *audit.Event) { e.Arguments = json.RawMessage(`"[9 bytes]"`) }, rules: rule(config.Rule{When: "args.n > 5", Action: "deny"}), says: "arguments"},
		"what was read":                  {rules: rule(config.Rule{Name: "t", When: `"private" in run.taints`, Action: "deny"}), says: "rule t looks at what the session had read"},
		"what was read is in the log": {event: func(e *audit.Event) { e.Taints = []string{"private"} }, rules: rule(config.Rule{When: `"private" in run.taints`, Action: "deny"}),
			differ: "approve deny"},
		"class given now":         {cfg: func(c *config.Config) { set(c, "record_create", "read") }, differ: "approve allow"},
		"class given then":        {event: func(e *audit.Event) { e.Source = "config" }, says: "its class was given by the configuration then"},
		"trust taken away":        {cfg: func(c *config.Config) { c.Servers["dns"] = config.Server{} }, says: "trust_annotations, which changed"},
		"trust given":             {event: func(e *audit.Event) { e.Server, e.Source = "wild", "default" }, cfg: func(c *config.Config) { c.Servers["wild"] = config.Server{TrustAnnotations: true} }, says: "trust_annotations, which changed"},
		"untrusted as before":     {event: func(e *audit.Event) { e.Server, e.Source = "wild", "default" }},
		"destructive stays":       {event: func(e *audit.Event) { e.Class = "destructive" }, cfg: func(c *config.Config) { c.Servers["dns"] = config.Server{} }},
		"only observed":           {event: func(e *audit.Event) { e.Decision, e.Would = "allow", "approve" }},
		"observed and now denied": {event: func(e *audit.Event) { e.Decision, e.Would = "allow", "approve" }, rules: rule(config.Rule{Action: "deny"}), differ: "approve deny"},
		"a machine":               {event: func(e *audit.Event) { e.User, e.Email = "svc:ci", "" }, rules: rule(config.Rule{When: `user.kind == "service"`, Action: "deny"}), differ: "approve deny"},
		"external, label from words": {event: func(e *audit.Event) {
			e.Capability, e.Class, e.Decision, e.Rule = "fetch_url", "read", "approve", "rule 1"
		}, says: "the preset looks at what the session had read"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := withLabels(guardConfig("careful", tt.rules...))
			if tt.cfg != nil {
				tt.cfg(cfg)
			}
			r := NewReplay(compiled(t, cfg))
			r.Add(past(tt.event))
			differ, unknown := r.Groups()
			var got []string
			for _, g := range differ {
				got = append(got, fmt.Sprint(append([]Action{g.Old}, g.New...)))
			}
			want := ""
			if tt.differ != "" {
				want = "[" + tt.differ + "]"
			}
			if strings.Join(got, ",") != want {
				t.Errorf("differ: %v, want %q", got, want)
			}
			if (len(unknown) > 0) != (tt.says != "") || len(unknown) > 0 && !strings.Contains(unknown[0].Unknown, tt.says) {
				t.Errorf("unknown: %+v, want %q", unknown, tt.says)
			}
			if same := r.Same == 1; same != (tt.differ == "" && tt.says == "") {
				t.Errorf("%d stay", r.Same)
			}
		})
	}
}

func set(c *config.Config, tool, class string) {
	s := c.Servers["dns"]
	s.Tools = map[string]config.ServerTool{tool: {Class: class}}
	c.Servers["dns"] = s
}

// The calls of a run are counted as they stand in the log, and equal
// differences are one line.
func TestReplayCountsCallsOfRuns(t *testing.T) {
	r := NewReplay(compiled(t, withLabels(guardConfig("careful", config.Rule{Name: "late", When: "run.tool_calls >= 2", Action: "deny"}))))
	for i := range 5 {
		r.Add(past(func(e *audit.Event) { e.Mode, e.Run = "code", "run_1" }))
		r.Add(past(func(e *audit.Event) { e.Mode, e.Run, e.Capability = "code", "run_1", fmt.Sprint("x", i) }))
	}
	r.Add(past(func(e *audit.Event) { e.Method = "resources/read" }))
	var out strings.Builder
	r.Print(&out)
	for _, want := range []string{"10 decisions: 7 stay, 3 would differ, 0 cannot be told", "3× dns/record_create: approve (preset careful) → deny (late)", "by alice@example.com", "not judged: 1 lines"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}
