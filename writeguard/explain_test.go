package writeguard

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
)

// An explanation names each rule that was tried and why it did not decide.
func TestExplain(t *testing.T) {
	p := compiled(t, withLabels(guardConfig("careful",
		config.Rule{Name: "other server", Servers: []string{"crm"}, Action: "deny"},
		config.Rule{Name: "other tool", Tools: []string{"zone_*"}, Action: "deny"},
		config.Rule{Name: "reads", Class: []string{"read"}, Action: "deny"},
		config.Rule{Name: "scripts", Mode: []string{"code"}, Action: "deny"},
		config.Rule{Name: "ops", Groups: []string{"strangers"}, Action: "deny"},
		config.Rule{Name: "bob", Users: []string{"bob"}, Action: "deny"},
		config.Rule{Name: "editors", Client: []string{"editor/*"}, Action: "deny"},
		config.Rule{Name: "big", When: "args.n > 5", Action: "deny"},
		config.Rule{Name: "four eyes", Class: []string{"write"}, Action: "approve", Via: "web", Grant: 5, Budget: config.Budget{PerHour: 9, Items: 3}, Approvers: config.Approvers{Groups: []string{"leads"}}},
		config.Rule{Name: "never reached", Action: "allow"})))
	c := call("dns", "record_create", Write)
	c.Arguments, c.Facts = nil, nil
	e := p.Explain(c)
	var got []string
	for _, s := range e.Steps {
		got = append(got, s.Rule+": "+s.Says)
	}
	for i, want := range []string{"other server: is for other servers: crm", "other tool: is for other tools: zone_*", "reads: is for other classes than write", "scripts: is not for mode direct",
		"ops: the user is in none of its groups: strangers", "bob: is for other users", "editors: is for other clients", "big: may decide", "four eyes: decides"} {
		if i >= len(got) || !strings.HasPrefix(got[i], want) {
			t.Errorf("step %d is not %q in %q", i, want, got)
		}
	}
	if len(got) != 9 || e.Action != Approve || e.Worst != Deny || fmt.Sprint(e.If) != "[big]" || e.Class != Write || e.Source != "annotations" {
		t.Errorf("%+v", e)
	}
	if s := strings.Join(e.Terms, "; "); s != "lets through at most 9 calls of a user in any hour, 3 items per call; answered by group leads, on the portal's page; answered on the portal's page only; an approver may release up to 5 calls of the tool in one run" {
		t.Error(s)
	}
	c.Arguments = json.RawMessage(`{"n":6}`)
	if e := p.Explain(c); e.Rule != "big" || e.Action != Deny || e.Steps[len(e.Steps)-1].Says != "decides" {
		t.Errorf("%+v", e)
	}
	c.Arguments = json.RawMessage(`{"n":"x"}`) // cannot be judged: refused by the rule
	if e := p.Explain(c); e.Rule != "big" || e.Action != Deny {
		t.Errorf("%+v", e)
	}
	// What is external depends on what was read before.
	c = call("dns", "fetch_url", Read)
	c.Facts = nil
	if e := compiled(t, withLabels(guardConfig("careful"))).Explain(c); e.Action != Allow || e.Worst != Approve || fmt.Sprint(e.If) != "[preset careful, data flow]" {
		t.Errorf("%+v", e)
	}
}

// A suggestion is a configuration, whatever a server calls its tools.
func TestSuggestPolicyIsAConfiguration(t *testing.T) {
	hostile := []Call{
		{Server: "s", Tool: "x\": {class: none}\n\"y", Description: "a\n# b"},
		{Server: "s", Tool: "list_things", Annotations: json.RawMessage(`{"readOnlyHint":true}`)},
		{Server: "s", Tool: "delete_thing", Annotations: json.RawMessage(`{"readOnlyHint":true}`)},
		{Server: "s", Tool: "update_thing", Annotations: json.RawMessage(`{"readOnlyHint":true}`)},
		{Server: "s", Tool: "send_mail"}, {Server: "s", Tool: "ünï.côde/💥"},
	}
	text := SuggestPolicy("s", hostile, nil)
	cfg, err := config.Parse("portal.yaml", []byte(text), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if _, err := Compile(cfg); err != nil {
		t.Fatal(err)
	}
	tools := cfg.Servers["s"].Tools
	for _, c := range hostile {
		want := map[string]string{"list_things": "read", "delete_thing": "destructive"}[c.Tool]
		if want == "" {
			want = "write"
		}
		if tools[c.Tool].Class != want {
			t.Errorf("%q is %q, want %s\n%s", c.Tool, tools[c.Tool].Class, want, text)
		}
	}
	if len(tools) != len(hostile) || fmt.Sprint(tools["send_mail"].Labels) != "[private untrusted external]" || !strings.Contains(text, `look twice`) {
		t.Errorf("%v\n%s", tools, text)
	}
}

// Every real tool list gives a policy that loads.
func TestSuggestPolicyOfRealServers(t *testing.T) {
	by := map[string][]Call{}
	for _, x := range corpus(t) {
		by[x.server] = append(by[x.server], Call{Server: x.server, Tool: x.Name, Description: x.Description, Annotations: x.Annotations})
	}
	for server, tools := range by {
		cfg, err := config.Parse("portal.yaml", []byte(SuggestPolicy(server, tools, nil)), func(string) (string, bool) { return "", false })
		if err != nil {
			t.Errorf("%s: %v", server, err)
		} else if n := len(cfg.Servers[server].Tools); n != len(tools) {
			t.Errorf("%s: %d of %d tools", server, n, len(tools))
		}
	}
}
