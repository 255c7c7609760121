package upstreams

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
	"github.com/mcp-portal/mcp-portal/wire"
)

// badAnswer is one way in which a server fails a call.
type badAnswer struct {
	name   string
	answer func(c *upstreamtest.Call)
	cause  string // in the error
	kind   string // "" for a JSON-RPC error of the server
	sent   bool
}

func badAnswers() []badAnswer {
	status := func(code int, contentType, body string) func(*upstreamtest.Call) {
		return func(c *upstreamtest.Call) { c.Raw(code, contentType, body) }
	}
	rpc := func(code int) func(*upstreamtest.Call) {
		return func(c *upstreamtest.Call) {
			c.Raw(code, wire.TypeJSON, `{"jsonrpc":"2.0","id":`+string(c.ID)+`,"error":{"code":-32050,"message":"no"}}`)
		}
	}
	out := []badAnswer{
		{"wrong id", func(c *upstreamtest.Call) { c.Raw(200, wire.TypeJSON, `{"jsonrpc":"2.0","id":"other","result":{}}`) }, "not that of the request", KindProtocol, true},
		{"wrong id in a stream", func(c *upstreamtest.Call) { c.Event("", `{"jsonrpc":"2.0","id":99999,"result":{}}`) }, "not that of the request", KindProtocol, true},
		{"html with 200", status(200, "text/html", "<html>login"), `content type "text/html"`, KindProtocol, true},
		{"202 to a call", status(202, "", ""), "HTTP 202", KindProtocol, true},
		{"204 to a call", status(204, "", ""), "HTTP 204", KindProtocol, true},
		{"broken JSON", status(200, wire.TypeJSON, `{"jsonrpc":"2.0","id":`), "not JSON-RPC", KindProtocol, true},
		{"empty body", status(200, wire.TypeJSON, ""), "not JSON-RPC", KindProtocol, true},
		{"neither result nor error", func(c *upstreamtest.Call) { c.Raw(200, wire.TypeJSON, `{"jsonrpc":"2.0","id":`+string(c.ID)+`}`) }, "not JSON-RPC", KindProtocol, true},
		{"a request as the answer", status(200, wire.TypeJSON, `{"jsonrpc":"2.0","id":1,"method":"ping"}`), "is a request", KindProtocol, true},
		{"cut body", func(c *upstreamtest.Call) { c.CutBody(`{"jsonrpc":"2.0"`) }, "ended before the answer was complete", KindConnect, true},
		{"dropped connection", func(c *upstreamtest.Call) { c.Drop() }, "connection", KindConnect, true},
		{"too large", func(c *upstreamtest.Call) { c.Text(strings.Repeat("z", 200_000)) }, "too large", KindProtocol, true},
		{"too large event", func(c *upstreamtest.Call) { c.Write("data: " + strings.Repeat("z", 200_000)) }, "too large", KindProtocol, true},
		{"malformed stream", func(c *upstreamtest.Call) { c.Write("what is this\n\n{}\n\n") }, "ended without an answer", KindConnect, true},
		{"bad JSON in an event", func(c *upstreamtest.Call) { c.Event("", `{"jsonrpc":"2.0",`) }, "not JSON-RPC", KindProtocol, true},
		{"stream without an answer", func(c *upstreamtest.Call) { c.Notify("notifications/message", `{}`) }, "ended without an answer", KindConnect, true},
		{"redirect", func(c *upstreamtest.Call) { c.Redirect("https://evil.example/mcp?token=1") }, "redirects to evil.example", KindConnect, false},
		{"401", status(401, "", ""), "HTTP 401", KindAuth, false},
		{"403 with JSON-RPC", rpc(403), "HTTP 403", KindAuth, false},
		{"429", status(429, "text/plain", "slow down"), "too many requests", KindHTTP, false},
		{"500", status(500, "text/html", "<h1>oops"), "HTTP 500", KindHTTP, true},
		{"502", status(502, "text/plain", "bad\x00gate\nway "+strings.Repeat("long ", 1000)), "bad gate way", KindHTTP, true},
		{"503", status(503, "", ""), "HTTP 503", KindHTTP, true},
	}
	for _, code := range []int{400, 404, 422} {
		b := badAnswer{fmt.Sprint(code), status(code, "text/plain", "no"), fmt.Sprintf("HTTP %d", code), KindHTTP, false}
		if code != 404 { // a forgotten session, see TestB025
			out = append(out, b)
		}
		out = append(out, badAnswer{fmt.Sprintf("JSON-RPC error on %d", code), rpc(code), "no (code -32050)", "", false})
	}
	return append(out, badAnswer{"JSON-RPC error on 500", rpc(500), "no (code -32050)", "", false})
}

// TestOneBadAnswerFailsOneCall is the failure matrix: whatever a server
// answers to one call, a call under way at the same time and the next one are
// not touched, and the session goes on.
func TestOneBadAnswerFailsOneCall(t *testing.T) {
	for _, era := range eras {
		up := upstreamtest.New(t, upstreamtest.Options{Era: era})
		entered, release := make(chan struct{}), make(chan struct{})
		up.On("slow", func(c *upstreamtest.Call) {
			entered <- struct{}{}
			select {
			case <-release:
				c.Text("slow done")
			case <-c.Context().Done():
			}
		})
		r := start(t, one(at(up)), func(o *Options) { o.Limits.Message = 100_000 })
		r.ready()
		for _, bad := range badAnswers() {
			t.Run(era.String()+"/"+bad.name, func(t *testing.T) {
				up.On("bad", bad.answer)
				slow := make(chan error, 1)
				go func() {
					res, err := r.do(tool("slow", ""))
					if err == nil && !strings.Contains(string(res), "slow done") {
						err = fmt.Errorf("answer %s", res)
					}
					slow <- err
				}()
				<-entered
				before := up.Count("tools/call bad")
				_, err := r.do(tool("bad", ""))
				switch {
				case err == nil:
					t.Fatal("a bad answer passes for a result")
				case bad.kind == "":
					if _, ok := wire.AsError(err); !ok || !strings.Contains(err.Error(), bad.cause) {
						t.Errorf("got %v, want the server's own error", err)
					}
				default:
					ce := callError(t, err)
					text := ce.Error()
					if ce.Problem.Kind != bad.kind || ce.Sent != bad.sent || !strings.Contains(text, bad.cause) {
						t.Errorf("kind %s sent %v: %s", ce.Problem.Kind, ce.Sent, text)
					}
					if !strings.HasPrefix(text, "server up, bad: ") || len(text) > 600 || strings.ContainsAny(text, "\n\x00") {
						t.Errorf("text %q", text)
					}
				}
				if got := up.Count("tools/call bad") - before; got != 1 {
					t.Errorf("sent %d times", got)
				}
				r.must(tool("echo", ""))
				release <- struct{}{}
				if err := <-slow; err != nil {
					t.Errorf("the call under way at the same time: %v", err)
				}
			})
		}
		if era == upstreamtest.Legacy && up.Count("initialize") != 2 {
			t.Errorf("%d sessions were begun, want 2", up.Count("initialize"))
		}
	}
}

func TestOneBadLineFailsOneCall(t *testing.T) {
	r := start(t, one(upstreamtest.Child{}.Server(nil)), func(o *Options) { o.Limits.Message = 1 << 20 })
	r.ready()
	r.must(tool("garbage", "")) // lines that are not JSON-RPC are skipped
	if !strings.Contains(r.logs.String(), "this is not JSON") {
		t.Error("the skipped line is not in the log")
	}
	for _, name := range []string{"big", "idfirst"} { // the id comes last, or first
		slow := make(chan error, 1)
		go func() { _, err := r.do(tool("sleep", `{"ms":300}`)); slow <- err }()
		_, err := r.do(tool(name, `{"bytes":3000000}`))
		ce := callError(t, err)
		if ce.Problem.Kind != KindProtocol || !ce.Sent || !strings.Contains(ce.Error(), "limits.message") {
			t.Errorf("%s: %+v", name, ce)
		}
		if err := <-slow; err != nil {
			t.Errorf("%s: the call under way: %v", name, err)
		}
		if got := r.must(tool(name, `{"bytes":900000}`)); len(got) < 900_000 {
			t.Errorf("%s: %d bytes", name, len(got))
		}
	}
}

func TestLongLines(t *testing.T) {
	r := start(t, one(upstreamtest.Child{}.Server(nil)), nil)
	r.ready()
	if got := r.must(tool("big", `{"bytes":20000000}`)); len(got) < 20_000_000 {
		t.Errorf("%d bytes", len(got))
	}
	call := tool("echo", `{"x":"`+strings.Repeat("w", 2_000_000)+`"}`)
	call.Params = json.RawMessage(strings.Replace(string(call.Params), `,"arguments"`, ",\n\r \"arguments\"", 1)) // line breaks would split it
	if got := r.must(call); len(got) < 2_000_000 {
		t.Errorf("%d bytes", len(got))
	}
}
