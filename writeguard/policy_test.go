package writeguard

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/config"
)

var (
	alice = &auth.Principal{ID: "https://idp|alice", Kind: auth.KindUser, Name: "Alice", Email: "alice@example.com", Groups: []string{"ops", "staff"}}
	bob   = &auth.Principal{ID: "https://idp|bob", Kind: auth.KindUser, Name: "Bob", Groups: []string{"staff"}}
	robot = &auth.Principal{ID: "svc:ci", Kind: auth.KindService, Email: "alice@example.com"}
)

// hinted are annotations that make a tool of a trusted server the class.
var hinted = map[Class]string{
	Read:        `{"readOnlyHint":true}`,
	Write:       `{"destructiveHint":false}`,
	Destructive: `{"destructiveHint":true}`,
}

func call(server, tool string, class Class) Call {
	return Call{Principal: alice, Mode: Direct, Server: server, Tool: tool, Annotations: json.RawMessage(hinted[class]), Arguments: json.RawMessage(`{}`)}
}

func guardConfig(preset string, rules ...config.Rule) *config.Config {
	return &config.Config{
		Servers: map[string]config.Server{"dns": {TrustAnnotations: true}, "crm": {TrustAnnotations: true}, "wild": {}},
		Guard:   config.Guard{Preset: preset, Rules: rules},
	}
}

func compiled(t testing.TB, cfg *config.Config) *Policy {
	t.Helper()
	p, err := Compile(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPresets(t *testing.T) {
	for _, tt := range []struct {
		preset             string
		read, write, destr Action
	}{
		{"", Allow, Approve, Approve},
		{"careful", Allow, Approve, Approve},
		{"read-only", Allow, Deny, Deny},
		{"open", Allow, Allow, Approve},
	} {
		p := compiled(t, guardConfig(tt.preset))
		for class, want := range map[Class]Action{Read: tt.read, Write: tt.write, Destructive: tt.destr} {
			d := p.Decide(call("dns", "x", class))
			if d.Action != want || d.Class != class || !strings.HasPrefix(d.Rule, "preset ") || d.Reason == "" {
				t.Errorf("preset %q, %s: %+v, want %s", tt.preset, class, d, want)
			}
		}
		// An unknown tool is never let through as a read.
		if d := p.Decide(Call{Principal: alice, Mode: Direct, Server: "wild", Tool: "get_x"}); d.Class != Write || d.Action != tt.write {
			t.Errorf("preset %q, unknown tool: %+v", tt.preset, d)
		}
	}
}

func TestRules(t *testing.T) {
	allow := func(r config.Rule) config.Rule { r.Action = "allow"; r.Name = "it"; return r }
	with := func(c Call, edit func(*Call)) Call { edit(&c); return c }
	for _, tt := range []struct {
		name string
		rule config.Rule
		call Call
		hit  bool
	}{
		{"empty matches all", config.Rule{}, call("dns", "x", Destructive), true},
		{"server", config.Rule{Servers: []string{"dns"}}, call("dns", "x", Write), true},
		{"other server", config.Rule{Servers: []string{"dns"}}, call("crm", "x", Write), false},
		{"server glob", config.Rule{Servers: []string{"d*"}}, call("dns", "x", Write), true},
		{"one of", config.Rule{Servers: []string{"a", "crm"}}, call("crm", "x", Write), true},
		{"tool glob", config.Rule{Tools: []string{"record_*"}}, call("dns", "record_delete", Write), true},
		{"tool glob is anchored", config.Rule{Tools: []string{"record_*"}}, call("dns", "my_record_delete", Write), false},
		{"question mark", config.Rule{Tools: []string{"a?c"}}, call("dns", "abc", Write), true},
		{"case matters", config.Rule{Tools: []string{"Record"}}, call("dns", "record", Write), false},
		{"star covers a slash", config.Rule{Tools: []string{"*"}}, call("dns", "admin/drop", Write), true},
		{"prefix covers a slash", config.Rule{Tools: []string{"admin*"}}, call("dns", "admin/drop", Write), true},
		{"suffix covers a slash", config.Rule{Tools: []string{"*drop"}}, call("dns", "admin/drop", Write), true},
		{"slash itself", config.Rule{Tools: []string{"adm?n/d*"}}, call("dns", "admin/drop", Write), true},
		{"B148: names that read alike", config.Rule{Tools: []string{"read-only"}}, call("dns", "read_only", Write), false},
		{"class", config.Rule{Class: []string{"write"}}, call("dns", "x", Write), true},
		{"class is exact", config.Rule{Class: []string{"write"}}, call("dns", "x", Destructive), false},
		{"group", config.Rule{Groups: []string{"ops"}}, call("dns", "x", Write), true},
		{"not in group", config.Rule{Groups: []string{"ops"}}, with(call("dns", "x", Write), func(c *Call) { c.Principal = bob }), false},
		{"user id", config.Rule{Users: []string{"https://idp|alice"}}, call("dns", "x", Write), true},
		{"user address", config.Rule{Users: []string{"Alice@Example.com"}}, call("dns", "x", Write), true},
		{"machine with a person's address", config.Rule{Users: []string{"alice@example.com"}}, with(call("dns", "x", Write), func(c *Call) { c.Principal = robot }), false},
		{"machine id", config.Rule{Users: []string{"svc:ci"}}, with(call("dns", "x", Write), func(c *Call) { c.Principal = robot }), true},
		{"no address is no match for none", config.Rule{Users: []string{""}}, with(call("dns", "x", Write), func(c *Call) { c.Principal = bob }), false},
		{"mode", config.Rule{Mode: []string{"code"}}, with(call("dns", "x", Write), func(c *Call) { c.Mode = Code }), true},
		{"other mode", config.Rule{Mode: []string{"code"}}, call("dns", "x", Write), false},
		{"all parts must match", config.Rule{Servers: []string{"dns"}, Groups: []string{"nobody"}}, call("dns", "x", Write), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := compiled(t, guardConfig("read-only", allow(tt.rule))).Decide(tt.call)
			if hit := d.Rule == "it"; hit != tt.hit || (d.Action == Allow) != tt.hit {
				t.Errorf("got %+v, want a match: %v", d, tt.hit)
			}
		})
	}
}

func TestFirstRuleWins(t *testing.T) {
	p := compiled(t, guardConfig("open",
		config.Rule{Tools: []string{"a"}, Action: "deny", Reason: "frozen until Monday"},
		config.Rule{Name: "all", Action: "approve"},
		config.Rule{Tools: []string{"b"}, Action: "allow"}))
	if d := p.Decide(call("dns", "a", Read)); d.Action != Deny || d.Rule != "rule 1" || d.Reason != "frozen until Monday" {
		t.Errorf("a: %+v", d)
	}
	if d := p.Decide(call("dns", "b", Read)); d.Action != Approve || d.Rule != "all" {
		t.Errorf("b: %+v", d)
	}
}

// TestSameVerdictEveryWay is B136 for the guard: the verdict follows from the
// identity of the tool, whatever way the call came and whatever the tool is
// called outward.
func TestSameVerdictEveryWay(t *testing.T) {
	p := compiled(t, guardConfig("careful", config.Rule{Servers: []string{"dns"}, Tools: []string{"record_delete"}, Action: "deny"}))
	for _, mode := range []Mode{Direct, Code} {
		for _, run := range []string{"", "run-1"} {
			c := call("dns", "record_delete", Read)
			c.Mode, c.Run, c.Client = mode, run, "anything/1"
			if d := p.Decide(c); d.Action != Deny || d.Rule != "rule 1" {
				t.Errorf("%s, run %q: %+v", mode, run, d)
			}
		}
	}
	if d := p.Decide(call("dns", "dns_record_delete", Destructive)); d.Rule == "rule 1" {
		t.Errorf("a rule matched an outward name: %+v", d)
	}
}

func TestDecideFailsClosed(t *testing.T) {
	open := compiled(t, guardConfig("open", config.Rule{Action: "allow"}))
	good := call("dns", "x", Read)
	if d := open.Decide(good); d.Action != Allow {
		t.Fatalf("the good call: %+v", d)
	}
	for name, edit := range map[string]func(*Call){
		"no user":      func(c *Call) { c.Principal = nil },
		"nameless":     func(c *Call) { c.Principal = &auth.Principal{} },
		"no server":    func(c *Call) { c.Server = "" },
		"no tool":      func(c *Call) { c.Tool = "" },
		"no mode":      func(c *Call) { c.Mode = "" },
		"unknown mode": func(c *Call) { c.Mode = "backdoor" },
	} {
		c := good
		edit(&c)
		if d := open.Decide(c); d.Action != Deny || d.Reason == "" {
			t.Errorf("%s: %+v", name, d)
		}
	}
	var none *Policy
	if d := none.Decide(good); d.Action != Deny {
		t.Errorf("no policy: %+v", d)
	}
}

func TestCompileNamesEveryMistake(t *testing.T) {
	cfg := guardConfig("carefull",
		config.Rule{Action: "alow"},
		config.Rule{Name: "globs", Servers: []string{"["}, Tools: []string{""}, Action: "deny"},
		config.Rule{Class: []string{"reads"}, Mode: []string{"script"}, Action: "deny"})
	cfg.Servers["dns"] = config.Server{Tools: map[string]config.ServerTool{"t": {Class: "none"}}}
	p, err := Compile(cfg)
	if err == nil || p != nil {
		t.Fatalf("Compile = %v, %v; want an error and no policy", p, err)
	}
	for _, want := range []string{`"carefull"`, `"alow"`, `(globs): servers: "["`, `tools: ""`, `"reads"`, `"script"`, `servers.dns.tools.t.class: "none"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %s:\n%v", want, err)
		}
	}
	if _, err := Compile(nil); err == nil {
		t.Error("Compile(nil) is no error")
	}
}

func TestRefusalTellsTheNextStep(t *testing.T) {
	d := compiled(t, guardConfig("read-only")).Decide(call("dns", "record\u202edelete", Destructive))
	for _, want := range []string{`dns/record\u202edelete`, "destructive", "preset read-only", "Nothing was sent", "administrator"} {
		if !strings.Contains(d.Reason, want) {
			t.Errorf("%q does not say %q", d.Reason, want)
		}
	}
}

func BenchmarkDecide200Rules(b *testing.B) {
	var rules []config.Rule
	for i := range 200 {
		rules = append(rules, config.Rule{Servers: []string{fmt.Sprintf("s%d*", i)}, Tools: []string{"*_delete_*"}, Class: []string{"write"}, Groups: []string{"ops"}, Action: "deny"})
	}
	p := compiled(b, guardConfig("careful", rules...))
	c := Call{Principal: alice, Mode: Code, Server: "wild", Tool: "issue_comment_create",
		Description: strings.Repeat("Creates a comment on an issue and tells everybody. ", 20), Annotations: json.RawMessage(`{"title":"Comment","readOnlyHint":false}`)}
	benchDecide(b, p, c, Approve)
}
