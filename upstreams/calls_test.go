package upstreams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
	"github.com/mcp-portal/mcp-portal/wire"
)

func answerElicitation(_ context.Context, method string, _ json.RawMessage) (json.RawMessage, *wire.Error) {
	if method != "elicitation/create" {
		return nil, wire.Errorf(wire.CodeMethodNotFound, "no %s", method)
	}
	return json.RawMessage(`{"action":"accept","content":{"n":9007199254740993}}`), nil
}

var ourToken = regexp.MustCompile(`,"progressToken":\d+`)

// withoutToken takes out the progress token that every tool call has on this
// hop, so that reports of a long call keep it alive.
func withoutToken(t *testing.T, params string) string {
	t.Helper()
	if n := len(ourToken.FindAllString(params, -1)); n != 1 && !strings.Contains(params, `{"progressToken":1}}`) || n < 1 {
		t.Errorf("%d progress tokens of ours in %s", n, params)
	}
	return ourToken.ReplaceAllString(params, "")
}

const oddResult = `{"content":[{"type":"hologram","n":1.10,"x":null}],  "structuredContent":{"z":9007199254740993,"a":1e400,"b":-0.0,"nested":{"é":"<&>"}},"isError":false,"vendor":{"k":[1e2]}}`

func TestBytesSurvive(t *testing.T) {
	oddTool := `{"vendor":true,"name":"odd","inputSchema":{"properties":{"z":{"maximum":9007199254740993},"a":{}},"type":["object","null"]},"annotations":{"idempotentHint":false,"x":1.0},"execution":{"k":1}}`
	for _, era := range eras {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stream=%v", era, stream), func(t *testing.T) {
				up := upstreamtest.New(t, upstreamtest.Options{Era: era, Stream: stream, Tools: []json.RawMessage{json.RawMessage(oddTool)}})
				up.On("odd", func(c *upstreamtest.Call) { c.Result(oddResult) })
				up.On("fail", func(c *upstreamtest.Call) { c.Error(-31999, "no \u2028 way", `{"big":9007199254740993,"v":1.10}`) })
				r := start(t, one(at(up)), nil)
				r.ready()
				if got := string(r.published("up")[0].Tools[0]); got != oddTool {
					t.Errorf("tool\n%s\nbecame\n%s", oddTool, got)
				}
				args := `{ "z":9007199254740993, "a":1e400,"é":"\u00e9","deep":{"_meta":{"progressToken":1}}}`
				call := tool("odd", args)
				call.Params = json.RawMessage(`{"name":"odd" , "arguments":` + args + `,"_meta":{"vendor/x":1.0},"future":[1.0]}`)
				if got := r.must(call); got != oddResult {
					t.Errorf("result\n%s\nbecame\n%s", oddResult, got)
				}
				var sent string
				for _, q := range up.Requests() {
					if q.Method == "tools/call" {
						sent = withoutToken(t, string(q.Params))
					}
				}
				if era == upstreamtest.Legacy {
					if sent != string(call.Params) {
						t.Errorf("params\n%s\nbecame\n%s", call.Params, sent)
					}
				} else {
					prefix, suffix := `{"name":"odd" , "arguments":`+args+`,"_meta":{"vendor/x":1.0,`, `},"future":[1.0]}`
					if !strings.HasPrefix(sent, prefix) || !strings.HasSuffix(sent, suffix) {
						t.Errorf("params\n%s\nbecame\n%s", call.Params, sent)
					}
				}
				_, err := r.do(tool("fail", ""))
				we, ok := wire.AsError(err)
				if !ok || we.Code != -31999 || we.Message != "no \u2028 way" || string(we.Data) != `{"big":9007199254740993,"v":1.10}` {
					t.Errorf("error became %v %s", err, we.Data)
				}
			})
		}
	}
}

func TestMetaOfTheHop(t *testing.T) {
	for _, era := range eras {
		t.Run(era.String(), func(t *testing.T) {
			up := upstreamtest.New(t, upstreamtest.Options{Era: era})
			r := start(t, one(at(up)), nil)
			r.ready()
			call := tool("echo", "")
			call.ProtocolVersion = wire.Version20260728
			call.ClientInfo = json.RawMessage(`{"name":"client","version":"7"}`)
			call.Capabilities = json.RawMessage(`{"elicitation":{}}`)
			call.Header = map[string][]string{"Mcp-Param-Zone": {"x"}, "Authorization": {"Bearer of-the-client"}, "mcp-session-id": {"evil"}}
			call.Params = json.RawMessage(`{"name":"echo","_meta":{"io.modelcontextprotocol/protocolVersion":"1999-01-01","io.modelcontextprotocol/clientInfo":{"name":"fake"},"io.modelcontextprotocol/logLevel":"debug","keep":1}}`)
			r.must(call)
			for _, q := range up.Requests() {
				if q.Method == "initialize" && q.Session == "" && strings.Contains(string(q.Params), `"client"`) &&
					!strings.Contains(string(q.Params), `"capabilities":{"elicitation":{}}`) {
					t.Errorf("the session is begun with %s", q.Params)
				}
				if q.Method != "tools/call" {
					continue
				}
				meta, _ := wire.ParseObject(q.Params)
				got := withoutToken(t, string(meta.Get("_meta")))
				want := `{"keep":1}`
				if era == upstreamtest.Modern {
					want = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"client","version":"7"},"io.modelcontextprotocol/logLevel":"debug","keep":1,"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}`
				}
				if got != want {
					t.Errorf("_meta\n%s, want\n%s", got, want)
				}
				if q.Header.Get("Mcp-Param-Zone") != "x" || q.Header.Get("Authorization") != "" || strings.Contains(q.Session, "evil") {
					t.Errorf("headers %v", q.Header)
				}
			}
		})
	}
}

func TestNamesOutsideASCII(t *testing.T) {
	up := upstreamtest.New(t, upstreamtest.Options{Era: upstreamtest.Modern})
	r := start(t, one(at(up)), nil)
	r.ready()
	for _, name := range []string{"größe", " lead", "a b"} {
		r.must(tool(name, ""))
	}
	// A server that compares the header without decoding refuses once.
	literal := upstreamtest.New(t, upstreamtest.Options{Era: upstreamtest.Modern, Handle: func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		if c.Header.Get(wire.HeaderName) != c.Name() {
			c.Raw(400, wire.TypeJSON, `{"jsonrpc":"2.0","id":`+string(c.ID)+`,"error":{"code":-32020,"message":"header mismatch"}}`)
			return true
		}
		c.Text("ok")
		return true
	}})
	r = start(t, one(at(literal)), nil)
	r.ready()
	r.must(tool("größe", ""))
	r.must(tool("größe", ""))
	if got := literal.Count("tools/call"); got != 3 {
		t.Errorf("%d requests for 2 calls, want one more", got)
	}
}

func TestProgressInOrder(t *testing.T) {
	const n = 1500
	burst := func(c *upstreamtest.Call) {
		for i := range n {
			c.Progress(i)
		}
		c.Text("done")
	}
	for name, spec := range map[string]func(t *testing.T) config.Server{
		"2025": func(t *testing.T) config.Server {
			up := upstreamtest.New(t, upstreamtest.Options{})
			up.On("progress", burst)
			return at(up)
		},
		"2026": func(t *testing.T) config.Server {
			up := upstreamtest.New(t, upstreamtest.Options{Era: upstreamtest.Modern})
			up.On("progress", burst)
			return at(up)
		},
		"stdio":      func(*testing.T) config.Server { return upstreamtest.Child{}.Server(nil) },
		"stdio 2026": func(*testing.T) config.Server { return upstreamtest.Child{Modern: true}.Server(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, one(spec(t)), nil)
			r.ready()
			var wg sync.WaitGroup
			for k := range 3 { // at once, on one connection, with tokens that look alike
				wg.Go(func() {
					token := fmt.Sprintf(`"t%d"`, k)
					call := tool("progress", "")
					call.Params = json.RawMessage(fmt.Sprintf(`{"name":"progress","arguments":{"n":%d},"_meta":{"progressToken":%s}}`, n, token))
					next, over := 0, false
					call.Notify = func(method string, p json.RawMessage) {
						want := fmt.Sprintf(`{"progressToken":%s,"progress":%d}`, token, next)
						if over || method != "notifications/progress" || string(p) != want {
							t.Errorf("got %s %s, want %s", method, p, want)
						}
						next++
					}
					if _, err := r.do(call); err != nil {
						t.Error(err)
					}
					over = true
					if next != n {
						t.Errorf("%d of %d progress notifications before the result", next, n)
					}
				})
			}
			wg.Wait()
		})
	}
}

func TestProgressKeepsACallAlive(t *testing.T) {
	for _, era := range eras {
		t.Run(era.String(), func(t *testing.T) {
			up := upstreamtest.New(t, upstreamtest.Options{Era: era})
			up.On("slow", func(c *upstreamtest.Call) {
				for i := range 30 {
					time.Sleep(50 * time.Millisecond)
					c.Progress(i)
				}
				c.Text("done")
			})
			up.On("endless", func(c *upstreamtest.Call) {
				for i := 0; c.Context().Err() == nil; i++ {
					time.Sleep(20 * time.Millisecond)
					c.Progress(i)
				}
			})
			spec := config.Server{URL: up.URL, CallTimeout: time.Second}
			r := start(t, one(spec), nil)
			r.ready()
			with := func(name string) *Call {
				c := tool(name, "")
				c.Params = json.RawMessage(`{"name":"` + name + `","_meta":{"progressToken":5}}`)
				return c
			}
			r.must(with("slow")) // longer in all than the idle deadline
			r = start(t, one(spec), func(o *Options) { o.Limits.CallCeiling = time.Second })
			r.ready()
			_, err := r.do(with("endless"))
			if ce := callError(t, err); ce.Problem.Kind != KindTimeout || !strings.Contains(ce.Error(), "call_ceiling") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestCancellation(t *testing.T) {
	for _, era := range eras {
		t.Run(era.String(), func(t *testing.T) {
			up := upstreamtest.New(t, upstreamtest.Options{Era: era})
			began, ended := make(chan string, 1), make(chan struct{}, 1)
			up.On("hang", func(c *upstreamtest.Call) {
				began <- string(c.ID)
				<-c.Context().Done()
				ended <- struct{}{}
			})
			r := start(t, one(at(up)), nil)
			r.ready()
			u, _ := r.Get("up")
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { _, err := u.Do(ctx, tool("hang", "")); done <- err }()
			id := <-began
			cancel()
			err := <-done
			if ce := callError(t, err); ce.Problem.Kind != KindCancelled || !errors.Is(err, context.Canceled) || !ce.Sent {
				t.Errorf("%+v", ce)
			}
			<-ended
			if era == upstreamtest.Legacy {
				until(t, "the server is told, with its own id", func() bool { return slices.Contains(up.Cancelled(), id) })
				for _, told := range up.Cancelled() { // again and again, since it may be ahead of the call
					if told != id {
						t.Errorf("another call was cancelled: %s", told)
					}
				}
			} else if len(up.Cancelled()) != 0 {
				t.Error("2026-07-28 has no message for it")
			}
			r.must(tool("echo", ""))
		})
	}
}

// Progress is passed on to who asked for it, of the call that it names.
func TestProgressOfNobody(t *testing.T) {
	for _, era := range []upstreamtest.Era{upstreamtest.Legacy, upstreamtest.Modern} {
		up := upstreamtest.New(t, upstreamtest.Options{Era: era})
		up.On("work", func(c *upstreamtest.Call) {
			c.Notify("notifications/progress", `{"progressToken":99999,"progress":1}`)
			c.Notify("notifications/progress", `{"progress":2}`)
			c.Notify("notifications/progress", `{"progressToken":`+string(c.Token())+`,"progress":3}`)
			c.Text("done")
		})
		r := start(t, one(at(up)), nil)
		r.ready()
		for meta, want := range map[string]string{`{}`: "[]", `{"progressToken":"mine"}`: `[{"progressToken":"mine","progress":3}]`} {
			got := []string{}
			call := tool("work", "")
			call.Params = json.RawMessage(`{"name":"work","_meta":` + meta + `}`)
			call.Notify = func(_ string, params json.RawMessage) { got = append(got, string(params)) }
			if r.must(call); fmt.Sprint(got) != want {
				t.Errorf("%s, %s: %v, want %s", era, meta, got, want)
			}
		}
	}
}

func TestQuestionsDuringACall(t *testing.T) {
	for _, standalone := range []bool{false, true} {
		t.Run(fmt.Sprintf("standalone=%v", standalone), func(t *testing.T) {
			up := upstreamtest.New(t, upstreamtest.Options{})
			up.On("ask", func(c *upstreamtest.Call) {
				m, err := c.Ask("elicitation/create", `{"message":"sure?"}`, standalone)
				if err != nil {
					return
				}
				c.Result(`{"content":[],"structuredContent":` + string(m.Bytes()) + `}`)
			})
			r := start(t, one(config.Server{URL: up.URL, CallTimeout: time.Second}), nil)
			r.ready()
			r.must(tool("echo", ""))
			if standalone {
				until(t, "the standalone streams are open", func() bool { return up.Listeners() == 2 })
			}
			call := tool("ask", "")
			call.Ask = func(ctx context.Context, method string, p json.RawMessage) (json.RawMessage, *wire.Error) {
				time.Sleep(1500 * time.Millisecond) // a person takes longer than the idle deadline
				return answerElicitation(ctx, method, p)
			}
			if got := r.must(call); !strings.Contains(got, `"result":{"action":"accept","content":{"n":9007199254740993}}`) {
				t.Errorf("%s", got)
			}
			if got := r.must(tool("ask", "")); !strings.Contains(got, `-32601`) { // nobody to ask
				t.Errorf("%s", got)
			}
		})
	}
}

func TestQuestionIsNotShownToAnotherUser(t *testing.T) {
	up := upstreamtest.New(t, upstreamtest.Options{})
	waiting := make(chan struct{}, 1)
	release := make(chan struct{})
	up.On("hang", func(c *upstreamtest.Call) {
		waiting <- struct{}{}
		select {
		case <-release:
		case <-c.Context().Done():
		}
		c.Text("ok")
	})
	up.On("ask", func(c *upstreamtest.Call) {
		m, _ := c.Ask("elicitation/create", `{}`, true)
		c.Result(`{"structuredContent":` + string(m.Bytes()) + `}`)
	})
	spec := at(up)
	spec.Sessions = "shared"
	r := start(t, one(spec), nil)
	r.ready()
	until(t, "the standalone stream is open", func() bool { return up.Listeners() == 1 })
	var asked atomic.Int32
	ask := func(context.Context, string, json.RawMessage) (json.RawMessage, *wire.Error) {
		asked.Add(1)
		return json.RawMessage(`{"action":"accept"}`), nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c := tool("hang", "")
		c.User, c.Ask = "bob", ask
		if _, err := r.do(c); err != nil {
			t.Error(err)
		}
	}()
	<-waiting
	c := tool("ask", "")
	c.Ask = ask
	if got := r.must(c); !strings.Contains(got, "cannot be tied to a call") || asked.Load() != 0 {
		t.Errorf("%s; %d questions were put", got, asked.Load())
	}
	close(release)
	<-done
	if got := r.must(c); !strings.Contains(got, "accept") { // alone, it is clear whose it is
		t.Errorf("%s", got)
	}
	if up.Count("initialize") != 1 {
		t.Errorf("%d sessions, want the shared one", up.Count("initialize"))
	}
}

func TestResume(t *testing.T) {
	up := upstreamtest.New(t, upstreamtest.Options{Handle: func(c *upstreamtest.Call) bool {
		if c.Method == "GET" { // with Last-Event-ID
			if string(c.Params) == `"resume-1"` {
				c.Event("resume-2", "")
				return true // cut again
			}
			c.Event("", `{"jsonrpc":"2.0","id":`+c.Header.Get("X-Call")+`,"result":{"resumed":1.0}}`)
			return true
		}
		return false
	}})
	up.On("cut", func(c *upstreamtest.Call) {
		c.Write("retry: 10\n")
		c.Event("resume-1", "")
	})
	var id atomic.Value
	id.Store("0")
	spec := at(up)
	spec.Headers = map[string]config.Secret{"X-Call": "2"} // the second request of Ann's session, after initialize
	r := start(t, one(spec), nil)
	r.ready()
	if got := r.must(tool("cut", "")); got != `{"resumed":1.0}` {
		t.Errorf("%s", got)
	}
	if got := up.Count("tools/call"); got != 1 {
		t.Errorf("sent %d times", got)
	}
}

func TestLiteralServerInfoAndDisabled(t *testing.T) {
	up := upstreamtest.New(t, upstreamtest.Options{Era: upstreamtest.Modern})
	no := false
	r := start(t, map[string]config.Server{"up": at(up), "off": {URL: up.URL, Enabled: &no}}, nil)
	r.ready()
	c, ok := r.Catalogue("up")
	if !ok || string(c.ServerInfo) != `{"name":"fake","version":"1.0"}` || c.Instructions != "test" || c.ProtocolVersion != wire.Version20260728 {
		t.Errorf("%+v", c)
	}
	u, _ := r.Get("off")
	if st := u.Status(); st.State != Disabled {
		t.Errorf("%+v", st)
	}
	_, err := u.Do(deadline(t), tool("echo", ""))
	if ce := callError(t, err); ce.Sent || ce.Problem.Kind != KindConfig {
		t.Errorf("%v", ce)
	}
	if _, err := r.List(deadline(t), "off"); err == nil {
		t.Error("a disabled server was listed")
	}
}
