package gateway_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
	"github.com/mcp-portal/mcp-portal/wire"
)

// URIs in results and tools are another only where the plain one would lead to
// another server or to none, and come back as they were.
func TestLinksLeadToTheirServer(t *testing.T) {
	eachEra(t, func(t *testing.T, e era) {
		a, b := upstreamtest.NewFullHTTP(t, false), upstreamtest.NewFullHTTP(t, true)
		one := "servers:\n  a: {url: '" + a.URL + "', trust_annotations: true}\n"
		p := start(t, one, nil)
		c := p.client(e, "", noCaps, nil)
		content := func(server, block string) string {
			raw := `{"content":[{"type":"text", "text":"1.10"},` + block + `],"isError":false}`
			got := c.call(server+"_raw", `{"result":`+string(wire.Quote(raw))+`}`, "", nil)
			var r struct {
				Result struct{ Content []json.RawMessage } `json:"result"`
			}
			if err := json.Unmarshal([]byte(got.Raw), &r); err != nil || len(r.Result.Content) != 2 || string(r.Result.Content[0]) != `{"type":"text", "text":"1.10"}` {
				t.Fatalf("%s %v", got.Raw, err)
			}
			return string(r.Result.Content[1])
		}
		link := func(uri string) string { return `{"type":"resource_link","uri":"` + uri + `","name":"n","size":1.50}` }
		embedded := func(uri string) string {
			return `{"type":"resource","resource":{"uri":"` + uri + `","text":"t","v":1e400}}`
		}
		app := func() string { return c.do("tools/list", "", nil).Raw }
		for _, same := range []string{link("mem://a"), link("mem://t/9"), link("https://example.com/x"), link("ui://app/main.html"), embedded("mem://a"), embedded("nobody://x")} {
			if got := content("a", same); got != same {
				t.Errorf("alone: %s\nwant %s", got, same)
			}
		}
		if got := content("a", link("file:///made/up")); got != link("portal+a:file:///made/up") {
			t.Errorf("nobody else would know it: %s", got)
		}
		if list := app(); !strings.Contains(list, `"_meta":{"ui":{"resourceUri":"ui://app/main.html","visibility":["model"]},"ui/resourceUri":"ui://app/main.html"}`) {
			t.Errorf("%s", list)
		}
		// With a server that has the same URIs they are told apart.
		p.reload(one + "  b: {url: '" + b.URL + "', trust_annotations: true}\n")
		for _, c := range []struct{ got, want string }{
			{content("a", link("mem://a")), link("portal+a:mem://a")},
			{content("b", link("mem://t/9")), link("portal+b:mem://t/9")},
			{content("b", embedded("mem://a")), embedded("portal+b:mem://a")},
			{content("b", embedded("nobody://x")), embedded("nobody://x")},
			{content("a", link("https://example.com/x")), link("https://example.com/x")},
		} {
			if c.got != c.want {
				t.Errorf("%s\nwant %s", c.got, c.want)
			}
		}
		list := app()
		for _, id := range []string{"a", "b"} {
			uri := "portal+" + id + ":ui://app/main.html"
			if !strings.Contains(list, `"_meta":{"ui":{"resourceUri":"`+uri+`","visibility":["model"]},"ui/resourceUri":"`+uri+`"}`) {
				t.Errorf("the app of %s: %s", id, list)
			}
			if got := c.do("resources/read", `"uri":"`+uri+`"`, nil); !strings.Contains(got.Raw, `"contents":[{"uri":"`+uri+`"`) {
				t.Errorf("%s", got.Raw)
			}
		}
		// What the client was given comes back as the server knows it.
		got := c.call("a_echo", `{"uri":"portal+a:file:///made/up","other":"portal+b:mem://a","quoted":"say \"portal+a:x\"","n":1.10}`, "", nil)
		if !strings.Contains(got.Raw, `"arguments":{"uri":"file:///made/up","other":"portal+b:mem://a","quoted":"say \"portal+a:x\"","n":1.10}`) {
			t.Errorf("%s", got.Raw)
		}
		if got := c.do("resources/read", `"uri":"portal+a:file:///made/up"`, nil); !strings.Contains(got.Raw, `"uri":"portal+a:file:///made/up","text":"of full"`) {
			t.Errorf("%s", got.Raw)
		}
	})
}
