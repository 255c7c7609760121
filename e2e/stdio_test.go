package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var linkIn = regexp.MustCompile(`/approvals/[A-Za-z0-9-]+`)

// recorder is a proxy before a portal that keeps what passed.
type recorder struct {
	URL  string
	mu   sync.Mutex
	seen []string // HTTP method and session
}

func record(t *testing.T, p *process) *recorder {
	t.Helper()
	target, err := url.Parse(p.base())
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		r.seen = append(r.seen, q.Method+" "+q.Header.Get("Mcp-Session-Id"))
		r.mu.Unlock()
		q.Host = target.Host
		proxy.ServeHTTP(w, q)
	}))
	t.Cleanup(s.Close)
	r.URL = s.URL + "/mcp"
	return r
}

func (r *recorder) has(what string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.seen, func(s string) bool { return strings.HasPrefix(s, what) })
}

// A client that speaks only stdio has everything that others have, in both
// eras, and its session ends with it.
func TestStdioIsAWholeClient(t *testing.T) {
	w := newWorld(t)
	p := startProcess(t, "serve", "--config", writeConfig(t, "listen: 127.0.0.1:0\nauth: {mode: none}\nservers:\n"+w.yaml))
	p.waitServers(t, w.servers)
	r := record(t, p)
	for _, e := range eras {
		t.Run(string(e), func(t *testing.T) {
			wholeClientTest(t, w, client{era: e, pages: p.base, streams: func() int { n, _ := p.status(t)["streams"].(float64); return int(n) },
				connect: func(t *testing.T, query string, opt *mcp.ClientOptions) *mcp.ClientSession {
					cmd := exec.Command(binary, "stdio", "--url", r.URL+"?"+query)
					cmd.Stderr = os.Stderr
					s, err := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, opt).Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, &mcp.ClientSessionOptions{ProtocolVersion: string(e)})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() {
						if err := s.Close(); err != nil || !cmd.ProcessState.Success() {
							t.Errorf("end of the program: %v, %v", err, cmd.ProcessState)
						}
					})
					return s
				}})
		})
		if e == legacy && !r.has("DELETE ") {
			t.Error("the sessions were not ended")
		}
	}
	eventually(t, "no stream is left open", func() error {
		if n, _ := p.status(t)["streams"].(float64); n != 0 {
			return fmt.Errorf("%v are", n)
		}
		return nil
	})
}

// Every byte passes; line breaks between tokens become blanks, since a line is
// a message. Notifications, questions and answers find their way.
func TestStdioPassesEverythingOn(t *testing.T) {
	f := newFakePortal(t)
	f.handle("tools/call", func(w http.ResponseWriter, r *http.Request, id json.RawMessage) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, ": hello\n\nid: 7\ndata:\n\n")
		fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\ndata:  \"params\":{\"n\":1.10}}\n\n")
		fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"elicitation/create\",\"params\":{}}\n\n")
		fmt.Fprint(w, "data: not JSON\n\n")
		fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"id\":999,\"result\":{}}\n\n")
		fmt.Fprintf(w, "data: {\"z\":1e400, \"result\":{\"b\":9007199254740993,\"a\":\"\\u00e9\"},\"jsonrpc\":\"2.0\",\"id\":%s}\n\n", id)
	})
	f.handle("pretty", func(w http.ResponseWriter, r *http.Request, id json.RawMessage) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		fmt.Fprintf(w, "{\r\n  \"jsonrpc\": \"2.0\",\n  \"id\": %s,\n  \"result\": {\"n\": 1.0}\n}\n", id)
	})
	f.handle("GET", func(w http.ResponseWriter, r *http.Request, _ json.RawMessage) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, ": open\n\n")
		_ = http.NewResponseController(w).Flush()
		fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	p := startPipes(t, nil, "--url", f.URL)
	p.send(hello)
	first := []string{p.next(), p.next()} // the stream may be as fast as the answer
	slices.Sort(first)
	if !strings.Contains(first[0], `"id":"i"`) || !strings.Contains(first[1], "list_changed") {
		t.Errorf("got %v", first)
	}
	p.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, `  {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"é"}}  `, ``)
	for _, want := range []string{
		`{"jsonrpc":"2.0","method":"notifications/progress",  "params":{"n":1.10}}`,
		`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}`,
		`{"z":1e400, "result":{"b":9007199254740993,"a":"\u00e9"},"jsonrpc":"2.0","id":1}`,
	} {
		if got := p.next(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	p.send(`{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}`, `{"jsonrpc":"2.0","id":2,"method":"pretty"}`)
	if got, want := p.next(), `{    "jsonrpc": "2.0",   "id": 2,   "result": {"n": 1.0} } `; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	p.send("[]", "{", `{"jsonrpc":"2.0","id":{},"method":"x"}`, `{"jsonrpc":"2.0","id":3,"method":"x"}`)
	p.expect("-32600", "batches", `"id":null`)
	p.expect("-32700")
	p.expect("-32600")
	p.expect(`"did":"x"`)
	eventually(t, "answer and notification reach the portal in the session", func() error {
		if f.count(`POST answer {"jsonrpc":"2.0","id":"q","result":{"action":"accept"}} s1`) != 1 || f.count("POST notifications/initialized s1") != 1 {
			return fmt.Errorf("got %q", f.got)
		}
		return nil
	})
	_ = p.in.Close()
	if st := p.exit(); !st.Success() {
		t.Errorf("exit: %v", st)
	}
	if f.count("DELETE s1") != 1 {
		t.Errorf("the session was not ended: %q", f.got)
	}
	if !strings.Contains(p.err.String(), "not JSON") {
		t.Errorf("what was left out is not in the log: %s", p.err)
	}
}

// Requests of 2026-07-28 carry the headers of their era and no session.
func TestStdioHeadersOfTheEra(t *testing.T) {
	f := newFakePortal(t)
	got := make(chan http.Header, 2)
	f.handle("tools/call", func(w http.ResponseWriter, r *http.Request, id json.RawMessage) {
		got <- r.Header.Clone()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(400)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no","data":{"x":1}}}`, id)
	})
	p := startPipes(t, []string{"MCP_PORTAL_TOKEN=mcpp_st_x_y"}, "--url", f.URL)
	p.send(hello)
	p.expect(`"id":"i"`)
	for _, line := range []string{modernLine("1", "tools/call", `"name":"größe",`), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}`} {
		p.send(line)
		if got := p.next(); got != `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no","data":{"x":1}}}` {
			t.Errorf("got %s", got)
		}
	}
	for i, want := range []map[string]string{
		{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "=?base64?Z3LDtsOfZQ==?=", "Mcp-Session-Id": ""},
		{"Mcp-Protocol-Version": "2025-11-25", "Mcp-Method": "", "Mcp-Name": "", "Mcp-Session-Id": "s1"},
	} {
		h := <-got
		want["Authorization"] = "Bearer mcpp_st_x_y"
		for k, v := range want {
			if h.Get(k) != v {
				t.Errorf("request %d: %s is %q, want %q", i, k, h.Get(k), v)
			}
		}
	}
}

// Arguments that travel in headers do so although the client has none to send,
// whether it listed the tools or calls one from memory.
func TestStdioAddsParameterHeaders(t *testing.T) {
	srv := mcp.NewServer(&mcp.Implementation{Name: "up", Version: "1"}, nil)
	for _, name := range []string{"find", "look"} {
		srv.AddTool(&mcp.Tool{Name: name, Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true},
			InputSchema: json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`)},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return say("found") })
	}
	p := startProcess(t, "serve", "--config", writeConfig(t, oneServer(sdkServer(t, srv))))
	p.waitServers(t, 1)
	c := startPipes(t, nil, "--url", p.URL)
	find := modernLine("1", "tools/call", `"name":"up_find","arguments":{"region":"größe"},`)
	c.send(find)
	c.expect(`"found"`)
	d := startPipes(t, nil, "--url", p.URL)
	d.send(modernLine("1", "tools/list", ""))
	d.expect("x-mcp-header")
	d.send(find)
	d.expect(`"found"`)
	// Nothing is missing where the portal refuses for another reason.
	d.send(modernLine("2", "tools/call", `"name":"up_nothing","arguments":{},`))
	d.expect("up_nothing", "error")
}

// A forgotten session is begun anew, once, and told what the old one was told.
// The message that found out is sent again; the client is told to list anew.
func TestStdioBeginsAForgottenSessionAnew(t *testing.T) {
	f := newFakePortal(t)
	p := startPipes(t, nil, "--url", f.URL)
	p.send(hello, `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}`)
	p.expect(`"id":"i"`)
	p.expect(`"id":1`)
	f.forget()
	for i := range 5 { // together, so that one of them begins it for all
		p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"a"}}`, 10+i))
	}
	answers, told := 0, 0
	for range 6 {
		switch l := p.next(); {
		case strings.Contains(l, `"did":"tools/call"`):
			answers++
		case strings.Contains(l, "notifications/tools/list_changed"):
			told++
		default:
			t.Errorf("got %s", l)
		}
	}
	if answers != 5 || told != 1 || f.count("POST initialize") != 2 || f.count("POST logging/setLevel s2") != 1 || f.count("POST notifications/initialized s2") != 1 {
		t.Errorf("%d answers, told %d times: %q", answers, told, f.got)
	}
	_ = p.in.Close()
	p.exit()
	if f.count("DELETE s2") != 1 {
		t.Errorf("%q", f.got)
	}
}

// What goes wrong is said in the answer, with the next step; a call that may
// have reached the portal is not sent twice, what only reads is.
func TestStdioSaysWhatIsWrong(t *testing.T) {
	f := newFakePortal(t)
	drop := func(w http.ResponseWriter, r *http.Request, _ json.RawMessage) { panic(http.ErrAbortHandler) }
	status := func(code int, header, body string) func(http.ResponseWriter, *http.Request, json.RawMessage) {
		return func(w http.ResponseWriter, r *http.Request, _ json.RawMessage) {
			if k, v, ok := strings.Cut(header, ": "); ok {
				w.Header().Set(k, v)
			}
			w.WriteHeader(code)
			fmt.Fprint(w, body)
		}
	}
	var busy atomic.Int32
	for name, c := range map[string]struct {
		method string
		h      func(http.ResponseWriter, *http.Request, json.RawMessage)
		want   []string
		times  int
	}{
		"dropped call":    {"tools/call", drop, []string{"outcome unknown"}, 1},
		"dropped reading": {"tools/list", drop, []string{"outcome unknown"}, 2},
		"cut stream": {"tools/call", func(w http.ResponseWriter, r *http.Request, _ json.RawMessage) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, ": x\n\n")
		}, []string{"outcome unknown", "without the result"}, 1},
		"bad gateway":      {"tools/call", status(502, "", "<h1>bad gateway"), []string{"outcome unknown", "HTTP 502"}, 1},
		"html":             {"tools/call", status(200, "Content-Type: text/html", "<html>sign in"), []string{"text/html", "/mcp"}, 1},
		"202 to a call":    {"tools/call", status(202, "", ""), []string{"outcome unknown", "HTTP 202"}, 1},
		"redirect":         {"tools/call", status(308, "Location: https://other.example/mcp", ""), []string{"redirects", "https://other.example/mcp"}, 1},
		"wrong address":    {"tools/call", status(405, "", "no"), []string{"HTTP 405", "/mcp"}, 1},
		"no token":         {"tools/call", status(401, "", `{"error":"unauthorized","error_description":"sign in","next_step":"x"}`), []string{"MCP_PORTAL_TOKEN", "mcp-portal token"}, 1},
		"may not come in":  {"tools/call", status(403, "", `{"error":"denied","error_description":"in none of the groups","next_step":"ask the admin"}`), []string{"in none of the groups", "ask the admin"}, 1},
		"refused for good": {"tools/call", status(413, "Content-Type: application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"too large"}}`), []string{`"id":5`, "too large"}, 1},
		"busy for a moment": {"tools/call", func(w http.ResponseWriter, r *http.Request, id json.RawMessage) {
			w.Header().Set("Content-Type", "application/json")
			if busy.Add(1) == 1 {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(503)
				fmt.Fprint(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"shutting down"}}`)
				return
			}
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"came":"through"}}`, id)
		}, []string{`"came":"through"`}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f.handle("tools/call", nil)
			f.handle("tools/list", nil)
			p := startPipes(t, nil, "--url", f.URL)
			p.send(hello)
			p.expect(`"id":"i"`)
			f.handle(c.method, c.h)
			before := f.count("POST " + c.method)
			p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":5,"method":%q,"params":{"name":"a"}}`, c.method))
			p.expect(append(c.want, `"id":5`)...)
			if got := f.count("POST "+c.method) - before; got != c.times {
				t.Errorf("sent %d times, want %d", got, c.times)
			}
			f.handle(c.method, nil)
			p.send(`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"a"}}`)
			p.expect(`"did":"tools/call"`)
		})
	}
	p := startPipes(t, nil, "--url", "http://"+freePort(t))
	p.send(hello)
	p.expect("no portal answers", "nothing was sent", "--url")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"stdio", "--url", "portal.example.com"}, "not an address"},
		{[]string{"stdio", "--url", "http://127.0.0.1:1/mcp?codemode=off", "--codemode", "code"}, "disagree about codemode"},
		{[]string{"stdio", "--log", "loud"}, "debug, info, warn or error"},
	} {
		if out, code := run(t, c.args...); code != 1 || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit code %d: %s", c.args, code, out)
		}
	}
}

// Streams of notices that break are opened again, and the client lists anew
// what may have changed meanwhile. It is not told twice that it listens.
func TestStdioReopensBrokenStreams(t *testing.T) {
	f := newFakePortal(t)
	var gets, listens atomic.Int32
	f.handle("GET", func(w http.ResponseWriter, r *http.Request, _ json.RawMessage) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "retry: 1\ndata:\n\n")
		_ = http.NewResponseController(w).Flush()
		if gets.Add(1) > 1 {
			<-r.Context().Done()
		}
	})
	f.handle("subscriptions/listen", func(w http.ResponseWriter, r *http.Request, id json.RawMessage) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":%s},\"notifications\":{\"toolsListChanged\":true}}}\n\n", id)
		_ = http.NewResponseController(w).Flush()
		if listens.Add(1) == 1 {
			panic(http.ErrAbortHandler)
		}
		<-r.Context().Done()
	})
	p := startPipes(t, nil, "--url", f.URL)
	p.send(hello)
	p.expect(`"id":"i"`)
	if got, want := p.next(), `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	p.send(modernLine("7", "subscriptions/listen", `"notifications":{"toolsListChanged":true},`))
	p.expect("acknowledged", `"io.modelcontextprotocol/subscriptionId":7`)
	if got, want := p.next(), `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":7}}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	p.send(`{"jsonrpc":"2.0","id":8,"method":"ping"}`)
	p.expect(`"id":8`)
	_ = p.in.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	p.exit()
}

// However the client goes, the program ends and its session with it.
func TestStdioEndsWithItsClient(t *testing.T) {
	f := newFakePortal(t)
	began := make(chan struct{}, 10)
	f.handle("tools/call", func(w http.ResponseWriter, r *http.Request, _ json.RawMessage) {
		began <- struct{}{}
		<-r.Context().Done()
	})
	f.handle("many", func(w http.ResponseWriter, r *http.Request, id json.RawMessage) {
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			if _, err := fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"data\":%q}}\n\n", strings.Repeat("x", 10000)); err != nil {
				return
			}
		}
	})
	for i, how := range []struct {
		name string
		end  func(p *pipes)
	}{
		{"signal during a call", func(p *pipes) { _ = p.cmd.Process.Signal(syscall.SIGTERM) }},
		{"output closed", func(p *pipes) {
			_ = p.out.Close()
			p.send(`{"jsonrpc":"2.0","id":3,"method":"many"}`)
		}},
		{"input closed during a call, then a signal", func(p *pipes) {
			_ = p.in.Close()
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
		}},
	} {
		t.Run(how.name, func(t *testing.T) {
			p := startPipes(t, nil, "--url", f.URL)
			p.send(hello)
			p.expect(`"id":"i"`)
			p.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a"}}`)
			soon(t, "the call is at the portal", began)
			how.end(p)
			p.exit()
			if f.count(fmt.Sprintf("DELETE s%d", i+1)) != 1 {
				t.Errorf("the session was not ended: %s", p.err)
			}
		})
	}
}

// With --config the program is its own portal, which no other program of the
// machine can use: only the address of an approval opens.
func TestStdioWithAConfiguration(t *testing.T) {
	_, u := serveCompany(t, companyOptions)
	cfg := writeConfig(t, "listen: 127.0.0.1:0\nauth: {mode: none}\nservers:\n"+companyServers(u))
	tmp := t.TempDir()
	p := startPipes(t, []string{"TMPDIR=" + tmp}, "--config", cfg, "--user", "anna@example.com")
	p.send(hello, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"chat_message_post","arguments":{"channel_id":"C000","text":"x"}}}`)
	p.expect(`"id":"i"`)
	answer := p.next()
	link := regexp.MustCompile(`http://127\.0\.0\.1:\d+/approvals/[A-Za-z0-9-]+`).FindString(answer)
	if link == "" {
		t.Fatalf("no address in %s", answer)
	}
	base, _, _ := strings.Cut(link, "/approvals/")
	for _, path := range []string{"/mcp", "/", "/approvals", "/approvals/", "/servers", "/status", "/approvals/../status"} {
		resp, err := http.Post(base+path, "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 404 || strings.Contains(string(b), "dns") {
			t.Errorf("POST %s by another program: %s %s", path, resp.Status, b)
		}
	}
	newBrowser(t).decide(link, "approve")
	p.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"chat_message_post","arguments":{"channel_id":"C000","text":"x"}}}`)
	if got := p.next(); strings.Contains(got, `"isError":true`) {
		t.Errorf("the approved call: %s", got)
	}
	_ = p.in.Close()
	if st := p.exit(); !st.Success() {
		t.Errorf("exit: %v, %s", st, p.err)
	}
	if left, _ := filepath.Glob(filepath.Join(tmp, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	// Nor is anything left when the start fails.
	bad := writeConfig(t, "listen: 127.0.0.1:0\nauth: {mode: none}\naudit: {file: /no/such/dir/audit.jsonl}\nservers:\n"+companyServers(u))
	q := startPipes(t, []string{"TMPDIR=" + tmp}, "--config", bad)
	if st := q.exit(); st.ExitCode() != 1 {
		t.Errorf("exit: %v %s", st, q.err)
	}
	if left, _ := filepath.Glob(filepath.Join(tmp, "*")); len(left) > 0 {
		t.Errorf("left behind by a failed start: %v", left)
	}
}
