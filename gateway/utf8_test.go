package gateway_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// What a client sends must be UTF-8: each server would read something else, and
// many end the connection, which may be another's too.
func TestRequestsThatAreNoUTF8ReachNoServer(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, "servers:\n  s: {url: "+v.URL+", trust_annotations: true}\n", nil)
	eachEra(t, func(t *testing.T, e era) {
		c := p.client(e, "", noCaps, nil)
		for _, bad := range []string{"\xff", "\xc3", "\xed\xa0\x80", "\xc0\xaf"} {
			got := c.call("s_look", `{"id":"a`+bad+`"}`, "", nil)
			if got.Status != 400 || got.Error == nil || got.Error.Code != -32700 || !strings.Contains(got.Error.Message, "UTF-8") {
				t.Errorf("%q: %d %s", bad, got.Status, got.Raw)
			}
		}
		if n := v.Count("tools/call look"); n != 0 {
			t.Errorf("%d calls reached the server", n)
		}
	})
}

// What a server says is readable whatever it was: one odd byte in a description
// would make the list of all servers unreadable for strict clients, and one in a
// result the connection of a client that speaks stdio.
func TestWhatServersSayIsUTF8(t *testing.T) {
	odd := json.RawMessage("{\"name\":\"odd\",\"description\":\"caf\xe9 \\ud83d\",\"inputSchema\":{\"type\":\"object\"},\"annotations\":" + readOnly + "}")
	for _, up := range []upstreamtest.Era{upstreamtest.Legacy, upstreamtest.Modern} {
		s := upstreamtest.New(t, upstreamtest.Options{Era: up, Tools: []json.RawMessage{odd}})
		p := start(t, "servers:\n  s: {url: "+s.URL+", trust_annotations: true}\n", nil)
		eachEra(t, func(t *testing.T, e era) {
			c := p.client(e, "", noCaps, nil)
			if got := c.do("tools/list", "", nil); !utf8.ValidString(got.Raw) || !strings.Contains(got.Raw, "caf\ufffd") || strings.Contains(got.Raw, `\ud83d`) {
				t.Errorf("the list: %q", got.Raw)
			}
			for how, answer := range map[string]func(*upstreamtest.Call){
				"JSON": func(c *upstreamtest.Call) { c.Result("{\"content\":[{\"type\":\"text\",\"text\":\"a\xff\xfeb\"}]}") },
				"stream": func(c *upstreamtest.Call) {
					c.Notify("notifications/message", "{\"level\":\"error\",\"data\":\"\xff\"}")
					c.Text("a\ufffdb")
				},
				"half a pair": func(c *upstreamtest.Call) {
					c.Result(`{"content":[{"type":"text","text":"\ud83d` + "a\ufffdb" + `"}],"structuredContent":{"\ude00":1}}`)
				},
				"error": func(c *upstreamtest.Call) { c.Error(-32050, "a\ufffdb", "\"\xff\"") },
			} {
				s.On("odd", answer)
				if got := c.call("s_odd", `{}`, "", nil); !utf8.ValidString(got.Raw) || !strings.Contains(got.Raw, "a\ufffdb") || strings.Contains(got.Raw, `\ud`) {
					t.Errorf("%s: %q", how, got.Raw)
				}
			}
		})
	}
}
