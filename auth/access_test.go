package auth

import (
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
)

func TestAccess(t *testing.T) {
	a := NewAccess(&config.Config{
		Auth: config.Auth{Admins: []string{"admins"}},
		Servers: map[string]config.Server{
			"wiki": {},
			"code": {Groups: []string{"eng"}, Tools: map[string]config.ServerTool{
				"delete": {Groups: []string{"leads"}},
				"open":   {Groups: []string{}},
			}},
		},
	})
	user := func(groups ...string) *Principal { return &Principal{ID: "i|u", Kind: KindUser, Groups: groups} }
	svc := func(servers, tools []string, groups ...string) *Principal {
		return &Principal{ID: "svc:x", Kind: KindService, Servers: servers, Tools: tools, Groups: groups}
	}
	for _, c := range []struct {
		name         string
		p            *Principal
		server, tool string
		canServer    bool
		canTool      bool
	}{
		{"nobody", nil, "wiki", "read", false, false},
		{"anyone, open server", user(), "wiki", "read", true, true},
		{"unknown server", user("eng", "admins"), "nope", "read", false, false},
		{"not in the group", user("sales"), "code", "list", false, false},
		{"in the group", user("eng"), "code", "list", true, true},
		{"group in other case", user("Eng"), "code", "list", false, false},
		{"tool of another group", user("eng"), "code", "delete", true, false},
		{"tool's group alone does not open the server", user("leads"), "code", "delete", false, false},
		{"both groups", user("eng", "leads"), "code", "delete", true, true},
		{"tool with an empty list", user("eng"), "code", "open", true, true},
		{"tool names are exact", user("eng"), "code", "Delete", true, true},
		{"admins see status, not servers", user("admins"), "code", "list", false, false},
		{"service without limits", svc(nil, nil, "eng"), "code", "list", true, true},
		{"service: limits do not replace groups", svc([]string{"code"}, []string{"code/*"}), "code", "list", false, false},
		{"service: its server", svc([]string{"code"}, nil, "eng"), "code", "list", true, true},
		{"service: another server", svc([]string{"code"}, nil, "eng"), "wiki", "read", false, false},
		{"service: server glob", svc([]string{"wi*"}, nil), "wiki", "read", true, true},
		{"service: empty list is nothing", svc([]string{}, nil), "wiki", "read", false, false},
		{"service: empty tool list is nothing", svc(nil, []string{}), "wiki", "read", false, false},
		{"service: tool glob", svc(nil, []string{"wiki/get_*"}), "wiki", "get_page", true, true},
		{"service: tool glob, other tool", svc(nil, []string{"wiki/get_*"}), "wiki", "put_page", true, false},
		{"service: tool glob, other server", svc(nil, []string{"wiki/*"}, "eng"), "code", "list", false, false},
		{"service: slash in a tool's name", svc(nil, []string{"wiki/*"}), "wiki", "a/b", true, true},
		{"service: a pattern without a slash matches nothing", svc(nil, []string{"*"}), "wiki", "read", false, false},
		{"service: glob must not cross to the tool", svc(nil, []string{"w*ki_get/x"}), "wiki", "x", false, false},
		{"service: groups of the tool hold as well", svc(nil, []string{"code/*"}, "eng"), "code", "delete", true, false},
	} {
		if got := a.CanServer(c.p, c.server); got != c.canServer {
			t.Errorf("%s: CanServer = %v", c.name, got)
		}
		if got := a.CanTool(c.p, c.server, c.tool); got != c.canTool {
			t.Errorf("%s: CanTool = %v", c.name, got)
		}
	}
	if a.IsAdmin(nil) || a.IsAdmin(user("eng")) || !a.IsAdmin(user("eng", "admins")) {
		t.Error("IsAdmin is wrong")
	}
	if NewAccess(&config.Config{}).IsAdmin(user("")) {
		t.Error("without admins somebody is one")
	}
}

func TestAccessDoesNotChangeWithTheConfiguration(t *testing.T) {
	groups := []string{"eng"}
	cfg := &config.Config{Servers: map[string]config.Server{"code": {Groups: groups}}}
	a := NewAccess(cfg)
	groups[0] = "sales"
	delete(cfg.Servers, "code")
	if !a.CanServer(&Principal{Groups: []string{"eng"}}, "code") || a.CanServer(&Principal{Groups: []string{"sales"}}, "code") {
		t.Error("the rules changed after they were built")
	}
}
