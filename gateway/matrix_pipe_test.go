package gateway_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
	"github.com/mcp-portal/mcp-portal/wire"
)

// badMessage is one way in which a server fails a call on a connection that
// carries them all.
type badMessage struct {
	name, tool, args string
	cause            string // "" for the server's own error
	unknown          bool
}

// silent is what a call ends with that no message can be tied to, while others
// are under way.
const silent = "no sign of life"

func badLine(name, line, cause string) badMessage {
	return badMessage{name, "raw", `{"lines":[` + string(wire.Quote(line)) + `]}`, cause, true}
}

func badMessages() []badMessage {
	return []badMessage{
		badLine("wrong id", `{"jsonrpc":"2.0","id":"other","result":{}}`, silent),
		badLine("an id of later", `{"jsonrpc":"2.0","id":99999,"result":{}}`, silent),
		badLine("no id", `{"jsonrpc":"2.0","result":{}}`, silent),
		badLine("broken JSON", `{"jsonrpc":"2.0","id":$ID,"result":{`, silent),
		badLine("no JSON", `what is this`, silent),
		badLine("JSON, but no message", `[1,"two",{}]`, silent),
		badLine("neither result nor error", `{"jsonrpc":"2.0","id":$ID}`, "not JSON-RPC"),
		badLine("an error that is none", `{"jsonrpc":"2.0","id":$ID,"error":"no"}`, "not JSON-RPC"),
		badLine("a request as the answer", `{"jsonrpc":"2.0","id":$ID,"method":"ping"}`, silent),
		badLine("a notice as the answer", `{"jsonrpc":"2.0","method":"notifications/message","params":{}}`, silent),
		badLine("too large, id last", `{"jsonrpc":"2.0","result":{"content":[{"type":"text","text":"$LONG"}]},"id":$ID}`, "limits.message"),
		badLine("too large, id first", `{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"$LONG"}]}}`, "limits.message"),
		badLine("too large, id hidden", `{"jsonrpc":"2.0","result":{"content":[]},"id":$ID,"vendor":"$LONG"}`, silent),
		{"nothing", "raw", `{"lines":[]}`, silent, true},
		badLine("its own error", `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32050,"message":"no","data":{"n":1.10}}}`, ""),
	}
}

// Over SSE a message can be refused by its POST, too, and frames can be odd.
func badPosts() []badMessage {
	frames := func(name, text string) badMessage {
		return badMessage{name, "frames", `{"text":` + string(wire.Quote(text)) + `}`, silent, true}
	}
	out := []badMessage{frames("malformed frames", "what is this\n\n{}\n\n"), frames("another event", "event: other\ndata: {}\n\n"), frames("no data", "id: 7\n\n"),
		frames("too large in many lines", strings.Repeat("data: "+strings.Repeat("z", 1000)+"\n", 300)+"\n")}
	status := func(code int, cause string, unknown bool) {
		out = append(out, badMessage{fmt.Sprint(code), "status", fmt.Sprintf(`{"code":%d,"type":"text/plain","body":"oops"}`, code), cause, unknown})
	}
	for _, code := range []int{400, 401, 403, 422} {
		status(code, fmt.Sprintf("HTTP %d", code), false)
	}
	status(429, "too many requests", false)
	status(307, "evil.example", false)
	for _, code := range []int{500, 502, 503} {
		status(code, fmt.Sprintf("HTTP %d", code), true)
	}
	status(200, silent, true) // accepted, and nothing comes
	return out
}

// serverYAML is the configuration of a server as text.
func serverYAML(id string, s config.Server) string {
	out := "  " + id + ":\n    trust_annotations: true\n"
	if s.URL != "" {
		return out + "    url: " + s.URL + "\n    transport: " + s.Transport + "\n"
	}
	var env, args []string
	for k, v := range s.Env {
		env = append(env, k+": "+string(wire.Quote(v.Reveal())))
	}
	slices.Sort(env)
	for _, a := range s.Command {
		args = append(args, string(wire.Quote(a)))
	}
	return out + "    command: [" + strings.Join(args, ", ") + "]\n    env: {" + strings.Join(env, ", ") + "}\n"
}

// The failure matrix where all calls share one connection: the bad ones at the
// same time, one call under way beside them, and one after. What cannot be tied
// to a call costs only the call that is not answered, at its deadline.
func TestOneBadMessageFailsOneCallOfTheClient(t *testing.T) {
	servers := []struct {
		name string
		at   config.Server
		bad  []badMessage
	}{
		{"sse", upstreamtest.NewChildSSE(t), append(badMessages(), badPosts()...)},
		{"stdio 2025", upstreamtest.Child{}.Server(nil), badMessages()},
		{"stdio 2026", upstreamtest.Child{Modern: true}.Server(nil), badMessages()},
	}
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			yaml := serverYAML("s", s.at) + "    call_timeout: 3s\n    tools:\n"
			for _, tool := range []string{"raw", "status", "frames", "lively", "release", "echo", "count"} {
				yaml += "      " + tool + ": {class: read}\n"
			}
			p := start(t, "limits: {message: 100000}\nservers:\n"+yaml, nil)
			eachEra(t, func(t *testing.T, e era) {
				c := p.client(e, "", noCaps, nil)
				count := func() (bad, lively int) {
					_, _ = fmt.Sscan(said(c.call("s_count", `{}`, "", nil)), &bad, &lively)
					return bad, lively
				}
				was, lively := count()
				beside := make(chan answer, 1)
				go func() { beside <- c.call("s_lively", `{}`, "", nil) }()
				p.until("a call is under way beside the bad ones", func() bool { _, n := count(); return n > lively })
				var all sync.WaitGroup
				for _, bad := range s.bad {
					all.Go(func() {
						a := c.call("s_"+bad.tool, bad.args, "", nil)
						text := a.text()
						switch {
						case bad.cause == "":
							if a.Error == nil || a.Error.Code != -32050 || string(a.Error.Data) != `{"n":1.10}` {
								t.Errorf("%s: %s", bad.name, a.Raw)
							}
						case a.Err != nil || a.Error != nil || !a.Result.IsError:
							t.Errorf("%s: no error of the tool: %+v", bad.name, a)
						case !strings.HasPrefix(text, "server s, "+bad.tool+": ") || !strings.Contains(text, bad.cause):
							t.Errorf("%s: server, tool and cause (%s) are not in %q", bad.name, bad.cause, text)
						case strings.Contains(text, "unknown") != bad.unknown:
							t.Errorf("%s: outcome unknown: want %v: %q", bad.name, bad.unknown, text)
						}
					})
				}
				all.Wait()
				if a := c.call("s_echo", `{}`, "", nil); a.Error != nil || a.Err != nil || a.Result.IsError {
					t.Errorf("the next call: %s %v", a.Raw, a.Err)
				}
				if is, _ := count(); is-was != len(s.bad) {
					t.Errorf("%d bad calls were sent %d times, or the connection was lost", len(s.bad), is-was)
				}
				if a := c.call("s_release", `{}`, "", nil); said(a) != "released" {
					t.Errorf("release: %s", a.Raw)
				}
				if a := <-beside; said(a) != "lived" {
					t.Errorf("the call under way at the same time: %+v", a)
				}
			})
		})
	}
}
