package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
	"github.com/mcp-portal/mcp-portal/wire"
)

// badAnswer is one way in which a server fails a call, and what its caller
// reads of it.
type badAnswer struct {
	name    string
	answer  func(c *upstreamtest.Call)
	cause   string
	unknown bool // the call may have been done
}

func badAnswers() []badAnswer {
	raw := func(code int, contentType, body string) func(*upstreamtest.Call) {
		return func(c *upstreamtest.Call) { c.Raw(code, contentType, body) }
	}
	out := []badAnswer{
		{"wrong id", raw(200, wire.TypeJSON, `{"jsonrpc":"2.0","id":"other","result":{}}`), "not that of the request", true},
		{"wrong id in a stream", func(c *upstreamtest.Call) { c.Event("", `{"jsonrpc":"2.0","id":99999,"result":{}}`) }, "not that of the request", true},
		{"html with 200", raw(200, "text/html", "<html>login"), "text/html", true},
		{"202 to a call", raw(202, "", ""), "HTTP 202", true},
		{"broken JSON", raw(200, wire.TypeJSON, `{"jsonrpc":"2.0","id":`), "not JSON-RPC", true},
		{"compressed", func(c *upstreamtest.Call) {
			c.Coding("gzip")
			c.Raw(200, wire.TypeJSON, "\x1f\x8b\x08")
		}, "compressed (\"gzip\")", true},
		{"cut body", func(c *upstreamtest.Call) { c.CutBody(`{"jsonrpc":"2.0"`) }, "ended before the answer was complete", true},
		{"dropped connection", func(c *upstreamtest.Call) { c.Drop() }, "connection", true},
		{"too large", func(c *upstreamtest.Call) { c.Text(strings.Repeat("z", 200_000)) }, "limits.message", true},
		{"too large event", func(c *upstreamtest.Call) { c.Write("data: " + strings.Repeat("z", 200_000)) }, "limits.message", true},
		{"malformed stream", func(c *upstreamtest.Call) { c.Write("what is this\n\n{}\n\n") }, "ended without an answer", true},
		{"bad JSON in an event", func(c *upstreamtest.Call) { c.Event("", `{"jsonrpc":"2.0",`) }, "not JSON-RPC", true},
		{"stream without an answer", func(c *upstreamtest.Call) { c.Notify("notifications/message", `{}`) }, "ended without an answer", true},
		{"redirect", func(c *upstreamtest.Call) { c.Redirect("https://evil.example/mcp?token=1") }, "evil.example", false},
		{"403 with JSON-RPC", func(c *upstreamtest.Call) {
			c.Raw(403, wire.TypeJSON, `{"jsonrpc":"2.0","id":`+string(c.ID)+`,"error":{"code":-32050,"message":"no"}}`)
		}, "HTTP 403", false},
	}
	for _, code := range []int{400, 401, 422, 429} {
		out = append(out, badAnswer{fmt.Sprint(code), raw(code, "text/plain", "no"), map[int]string{429: "too many requests"}[code], false})
		if code != 429 {
			out[len(out)-1].cause = fmt.Sprintf("HTTP %d", code)
		}
	}
	for _, code := range []int{500, 502, 503, 504} {
		out = append(out, badAnswer{fmt.Sprint(code), raw(code, "text/plain", "oops"), fmt.Sprintf("HTTP %d", code), true})
	}
	return out
}

// The failure matrix as a client of the portal sees it: kind of bad answer ×
// era of the server × era of the client, with a call under way at the same time
// and one after it. The bad call fails alone and is not sent again; its error
// names server, tool and cause, and says when the outcome is unknown. A
// JSON-RPC error of the server is none of the portal's and passes as it is.
func TestOneBadAnswerFailsOneCallOfTheClient(t *testing.T) {
	for _, up := range []upstreamtest.Era{upstreamtest.Legacy, upstreamtest.Modern} {
		tools := []json.RawMessage{toolDef("look", readOnly), toolDef("slow", readOnly), toolDef("bad", readOnly)}
		s := upstreamtest.New(t, upstreamtest.Options{Era: up, Tools: tools})
		entered, release := make(chan struct{}), make(chan struct{})
		s.On("slow", func(c *upstreamtest.Call) {
			entered <- struct{}{}
			select {
			case <-release:
				c.Text("slow done")
			case <-c.Context().Done():
			}
		})
		s.On("look", func(c *upstreamtest.Call) { c.Text("looked") })
		p := start(t, "limits: {message: 100000}\nservers:\n  s:\n    url: "+s.URL+"\n    trust_annotations: true\n", nil)
		eachEra(t, func(t *testing.T, e era) {
			c := p.client(e, "", noCaps, nil)
			begun := s.Count("initialize")
			beside := func(t *testing.T, bad func()) {
				t.Helper()
				slow := make(chan answer, 1)
				go func() { slow <- c.call("s_slow", `{}`, "", nil) }()
				<-entered
				before := s.Count("tools/call bad")
				bad()
				if got := s.Count("tools/call bad") - before; got != 1 {
					t.Errorf("sent %d times", got)
				}
				if a := c.call("s_look", `{}`, "", nil); said(a) != "looked" {
					t.Errorf("the next call: %+v", a)
				}
				release <- struct{}{}
				if a := <-slow; said(a) != "slow done" {
					t.Errorf("the call under way at the same time: %+v", a)
				}
			}
			for _, bad := range badAnswers() {
				t.Run("server "+up.String()+"/"+bad.name, func(t *testing.T) {
					s.On("bad", bad.answer)
					beside(t, func() {
						a := c.call("s_bad", `{}`, "", nil)
						if a.Err != nil || a.Error != nil || !strings.Contains(a.Raw, `"isError":true`) {
							t.Fatalf("no error of the tool: %+v", a)
						}
						text := a.text()
						if !strings.HasPrefix(text, "server s, bad: ") || !strings.Contains(text, bad.cause) {
							t.Errorf("server, tool and cause (%s) are not in %q", bad.cause, text)
						}
						if got := strings.Contains(strings.ToLower(text), "outcome") && strings.Contains(text, "unknown"); got != bad.unknown {
							t.Errorf("outcome unknown: %v, want %v: %q", got, bad.unknown, text)
						}
					})
				})
			}
			for _, own := range []struct {
				status int
				id     string
			}{{200, ""}, {400, ""}, {404, ""}, {500, ""}, {200, "null"}, {400, "null"}} {
				t.Run(fmt.Sprintf("server %s/its own error on %d %s", up, own.status, own.id), func(t *testing.T) {
					s.On("bad", func(c *upstreamtest.Call) {
						id := own.id
						if id == "" {
							id = string(c.ID)
						}
						c.Raw(own.status, wire.TypeJSON, `{"jsonrpc":"2.0","id":`+id+`,"error":{"code":-32050,"message":"no","data":{"n":1.10}}}`)
					})
					beside(t, func() {
						a := c.call("s_bad", `{}`, "", nil)
						if a.Error == nil || a.Error.Code != -32050 || a.Error.Message != "no" || string(a.Error.Data) != `{"n":1.10}` {
							t.Errorf("got %s", a.Raw)
						}
					})
				})
			}
			// One session of the client's own at most.
			if got := s.Count("initialize") - begun; got > 1 {
				t.Errorf("%d sessions were begun", got)
			}
		})
	}
}

// Over stdio a call's message can be too long, or its lines no messages.
func TestOneBadLineFailsOneCallOfTheClient(t *testing.T) {
	srv := upstreamtest.Child{}.Server(nil)
	yaml := "limits: {message: 1048576}\nservers:\n  s:\n    command: [" + string(wire.Quote(srv.Command[0])) + ", " + string(wire.Quote(srv.Command[1])) + "]\n    env:\n"
	for k, v := range srv.Env {
		yaml += "      " + k + ": " + string(wire.Quote(v.Reveal())) + "\n"
	}
	for _, tool := range []string{"big", "idfirst", "sleep", "garbage", "echo"} {
		yaml += map[bool]string{true: "    tools:\n"}[tool == "big"] + "      " + tool + ": {class: read}\n"
	}
	p := start(t, yaml, nil)
	eachEra(t, func(t *testing.T, e era) {
		c := p.client(e, "", noCaps, nil)
		if a := c.call("s_garbage", `{}`, "", nil); said(a) != "done" {
			t.Errorf("lines that are no messages: %+v", a)
		}
		for _, tool := range []string{"big", "idfirst"} {
			slow := make(chan answer, 1)
			go func() { slow <- c.call("s_sleep", `{"ms":300}`, "", nil) }()
			a := c.call("s_"+tool, `{"bytes":3000000}`, "", nil)
			if text := a.text(); !strings.HasPrefix(text, "server s, "+tool+": ") || !strings.Contains(text, "limits.message") || !strings.Contains(text, "unknown") {
				t.Errorf("%s: %q %+v", tool, text, a.Error)
			}
			if a := <-slow; said(a) != "slept" {
				t.Errorf("%s: the call under way: %+v", tool, a)
			}
			if a := c.call("s_echo", `{}`, "", nil); a.Error != nil || a.Err != nil || strings.Contains(a.Raw, `"isError":true`) {
				t.Errorf("%s: the next call: %+v", tool, a)
			}
		}
	})
}

// said is the text of a result without the end of its last line.
func said(a answer) string { return strings.TrimSpace(a.text()) }
