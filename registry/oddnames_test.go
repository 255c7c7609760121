package registry

import (
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/upstreams"
)

// Row 12 of the table "Code mode" in docs/cases.md. Names that are no
// identifiers get one that no other name can get (theirs loses letters, so that
// a-b and a_b meet), and each stays callable.
func TestOddNamesHaveIdentifiersOfTheirOwn(t *testing.T) {
	names := []string{"get-weather", "get_weather", "api.v2.search", "api_v2_search", "3drender", "_3drender", "class", "delete", "hello world!", "hello_world", "@#$", "$", "_"}
	r := New(Options{Log: quiet()})
	r.SetServers(map[string]config.Server{"s": {URL: "https://s.example"}})
	r.Update("s", &upstreams.Catalogue{Tools: named(names...).Tools})
	byMember, byName := map[string]string{}, map[string]*Tool{}
	for _, tool := range r.Snapshot().Tools() {
		if other, taken := byMember[tool.Member]; taken || !identifierForm.MatchString(tool.Member) || !identifierForm.MatchString(tool.Identifier) {
			t.Errorf("%q has the member %q and the identifier %q (of %q, too: %v)", tool.Name, tool.Member, tool.Identifier, other, taken)
		}
		byMember[tool.Member] = tool.Name
		byName[tool.Name] = tool
		if got := r.Snapshot().Tool(tool.Outward); got == nil || got.Name != tool.Name {
			t.Errorf("%q is called by %s, which leads to %+v", tool.Name, tool.Outward, got)
		}
	}
	if len(byName) != len(names) {
		t.Fatalf("%d of %d tools are there", len(byName), len(names))
	}
	for name, member := range map[string]string{"get_weather": "get_weather", "get-weather": "get_weather$", "3drender": "$3drender", "class": "class", "delete": "delete", "_": "_"} {
		if byName[name].Member != member {
			t.Errorf("%q has the member %s, want %s", name, byName[name].Member, member)
		}
	}
}
