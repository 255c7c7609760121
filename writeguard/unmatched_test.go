package writeguard

import (
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
)

// A pattern that matches no tool of the servers it is about is told, and only
// where all of these are known.
func TestUnmatched(t *testing.T) {
	off := false
	cfg := guardConfig("careful")
	cfg.Servers = map[string]config.Server{"dns": {Tools: map[string]config.ServerTool{"gone": {Class: "read"}, "list": {Class: "read"}}}, "crm": {}, "off": {Enabled: &off}}
	cfg.Guard.Rules = []config.Rule{
		{Name: "slip", Servers: []string{"dns"}, Tools: []string{"record_delet", "record_*"}, Action: "deny"},
		{Name: "anywhere", Tools: []string{"contact_get", "nothing*"}, Action: "deny"},
		{Name: "all", Tools: []string{"*"}, Action: "allow"},
		{Name: "switched off", Servers: []string{"off"}, Tools: []string{"x"}, Action: "deny"},
	}
	cfg.Guard.Filters = []config.Filter{{Name: "f", Servers: []string{"crm"}, Tools: []string{"List"}, Detect: []string{"keys"}, Action: "block"}}
	p := compiled(t, cfg)
	dns := []string{"record_delete", "list"}
	for _, tt := range []struct {
		tools map[string][]string
		want  []string
	}{
		{map[string][]string{"dns": dns, "crm": {"contact_get", "list"}}, []string{`"record_delet"`, `"nothing*"`, `"List"`, `"gone"`}},
		{map[string][]string{"dns": dns}, []string{`"record_delet"`, `"gone"`}}, // crm is not known
		{nil, nil},
	} {
		got := p.Unmatched(tt.tools)
		if len(got) != len(tt.want) {
			t.Fatalf("%v: %q", tt.tools, got)
		}
		for i, w := range tt.want {
			if !strings.Contains(got[i], w) {
				t.Errorf("%q, want %s", got[i], w)
			}
		}
	}
}
