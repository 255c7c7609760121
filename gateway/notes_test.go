package gateway_test

import (
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// What a server says of the use of its tools reaches the model where it meets
// them, in every mode: page sizes and the like often stand nowhere else.
func TestInstructionsOfServersReachTheModel(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v), nil)
	const said = "Server s says: test"
	two := p.client(modern, twoTools, noCaps, nil)
	for args, want := range map[string]bool{
		`{"query":"look"}`:                     true,
		`{"names":["s_look"]}`:                 true,
		`{"servers":["s"]}`:                    true,
		`{"servers":["s"],"detail":"names"}`:   false,
		`{"query":"look","detail":"full"}`:     true,
		`{"query":"nothing fits these words"}`: false,
	} {
		if got := two.call("portal_query_tools", args, "", nil); strings.Count(got.text(), said) != map[bool]int{true: 1}[want] {
			t.Errorf("%s: %s", args, got.text())
		}
	}
	for mode, want := range map[string]bool{"": true, twoTools: false, "?codemode=code": false} {
		if got := p.client(modern, mode, noCaps, nil).do("server/discover", "", nil); strings.Contains(got.Raw, said) != want {
			t.Errorf("mode %q: %s", mode, got.Raw)
		}
	}
	for code, want := range map[string]string{
		`return (await codemode.describe("s_look")).notes`:                           "test",
		`return (await codemode.servers())[0].notes`:                                 "test",
		`return (await codemode.describe(s.look)).notes`:                             "test", // the tool itself
		`try { await codemode.describe(["s_look"]) } catch (e) { return e.message }`: "codemode.describe takes the name of one tool as text, for example",
	} {
		if got := two.code(code, "", nil); !strings.HasPrefix(got.text(), want) {
			t.Errorf("%s: %s", code, got.Raw)
		}
	}
}
