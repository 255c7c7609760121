package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sdkServer serves an SDK server over Streamable HTTP and returns its URL.
func sdkServer(t *testing.T, srv *mcp.Server) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hs := &http.Server{Handler: mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, nil)}
	go func() { _ = hs.Serve(ln) }()
	t.Cleanup(func() { _ = hs.Close() })
	return "http://" + ln.Addr().String() + "/mcp"
}

// rawTool adds a read-only tool that answers with exact bytes.
func rawTool(srv *mcp.Server, name string, answer func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error)) {
	srv.AddTool(&mcp.Tool{Name: name, Description: "A test tool.", InputSchema: json.RawMessage(`{"type":"object","properties":{}}`), Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}, answer)
}

func say(s string) (*mcp.CallToolResult, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}, nil
}

func oneServer(url string) string {
	return fmt.Sprintf("listen: 127.0.0.1:0\nauth: {mode: none}\nservers:\n  up:\n    url: %s\n    trust_annotations: true\n", url)
}

// B001: a changed list upstream becomes exactly one list_changed for every
// client whose own list changed, idle or inside a call. B002: a notice without
// a change becomes none.
func TestB001_ListChangedReachesClientsOnce(t *testing.T) {
	srv := mcp.NewServer(&mcp.Implementation{Name: "up", Version: "1"}, nil)
	rawTool(srv, "first", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return say("1") })
	rawTool(srv, "grow", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		rawTool(srv, "inside", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return say("3") })
		return say("grown")
	})
	p := startProcess(t, "serve", "--config", writeConfig(t, oneServer(sdkServer(t, srv))))
	p.waitServers(t, 1)
	type client struct {
		s *mcp.ClientSession
		n atomic.Int32
	}
	var clients []*client
	for _, e := range eras {
		for _, query := range []string{"", "optimize_context=minimize_tools"} {
			c := &client{}
			c.s = connect(t, p, e, query, &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { c.n.Add(1) }})
			clients = append(clients, c)
		}
	}
	quiet := &client{} // its list does not change: two tools
	quiet.s = connect(t, p, legacy, "optimize_context=search_and_execute", &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { quiet.n.Add(1) }})
	eventually(t, "all clients listen", func() error {
		if n, _ := p.status(t)["streams"].(float64); int(n) != len(clients)+1 {
			return fmt.Errorf("%v streams are open", n)
		}
		return nil
	})
	expect := func(want int32, tool string) {
		t.Helper()
		eventually(t, fmt.Sprintf("list_changed number %d", want), func() error {
			for i, c := range clients {
				if got := c.n.Load(); got < want {
					return fmt.Errorf("client %d was told %d times", i, got)
				}
			}
			return nil
		})
		for i, c := range clients {
			if !strings.Contains(strings.Join(names(t, c.s), " "), tool) {
				t.Errorf("client %d does not see %s", i, tool)
			}
		}
	}
	rawTool(srv, "idle", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return say("2") })
	expect(1, "up_idle")
	if got := text(t, call(t, clients[0].s, "up_grow", nil)); got != "grown" {
		t.Fatal(got)
	}
	expect(2, "up_inside")
	// A notice whose list is the same: the tool is replaced by itself.
	rawTool(srv, "first", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return say("1") })
	rawTool(srv, "marker", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return say("4") })
	expect(3, "up_marker")
	for i, c := range clients {
		if got := c.n.Load(); got != 3 {
			t.Errorf("client %d was told %d times of 3 changes", i, got)
		}
	}
	if got := quiet.n.Load(); got != 0 {
		t.Errorf("a client whose list did not change was told %d times", got)
	}
}

// B010: what a client accepts is read leniently.
func TestB010_LenientAccept(t *testing.T) {
	p := demo(t)
	for _, accept := range []string{"application/json", "*/*", "", "application/json;q=0.9, */*;q=0.1", "application/json,text/event-stream"} {
		req, err := http.NewRequest("POST", p.URL, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Del("Accept")
		if accept != "" {
			req.Header.Set("Accept", accept)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var m struct {
			Result struct{ Tools []json.RawMessage }
		}
		err = json.NewDecoder(resp.Body).Decode(&m)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 || len(m.Result.Tools) != 35 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
			t.Errorf("Accept %q: %s %s, %d tools, %v", accept, resp.Status, resp.Header.Get("Content-Type"), len(m.Result.Tools), err)
		}
	}
	// The header folded over two lines, as some proxies do.
	folded, err := http.NewRequest("POST", p.URL, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	if err != nil {
		t.Fatal(err)
	}
	folded.Header["Accept"] = []string{"application/json", "text/event-stream"}
	folded.Header.Set("Content-Type", "application/json")
	if resp, err := http.DefaultClient.Do(folded); err != nil || resp.StatusCode != 200 {
		t.Errorf("folded Accept: %v %v", resp, err)
	}
	// Event streams only: the answer is a stream.
	resp, b := post(t, p.URL, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, map[string]string{"Accept": "text/event-stream"})
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") || !strings.Contains(string(b), `"result":{}`) {
		t.Errorf("stream only: %s %s", resp.Header.Get("Content-Type"), b)
	}
}

// B013: integers beyond 2^53 are exact, through the relay and in code.
func TestB013_ExactIntegers(t *testing.T) {
	big := `{"id":9007199254740993,"list":[12345678901234567890,1.10,1e2]}`
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 10)
	hs := &http.Server{Handler: rawUpstream(func(method string, params json.RawMessage) string {
		switch method {
		case "tools/list":
			return `{"tools":[{"name":"big","inputSchema":{"type":"object","properties":{"id":{"type":"integer"}}},"annotations":{"readOnlyHint":true}}]}`
		case "tools/call":
			got <- string(params)
			return `{"content":[{"type":"text","text":"x"}],"structuredContent":` + big + `}`
		}
		return ""
	})}
	go func() { _ = hs.Serve(ln) }()
	defer hs.Close()
	p := startProcess(t, "serve", "--config", writeConfig(t, oneServer("http://"+ln.Addr().String()+"/mcp")))
	p.waitServers(t, 1)
	_, b := post(t, p.URL+"?optimize_context=minimize_tools", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up_big","arguments":{"id":9007199254740993}}}`, nil)
	if !strings.Contains(string(b), `"structuredContent":`+big) {
		t.Errorf("the relay changed the result: %s", b)
	}
	if params := <-got; !strings.Contains(params, `"id":9007199254740993`) {
		t.Errorf("the relay changed the arguments: %s", params)
	}
	s := connect(t, p, legacy, "optimize_context=search_and_execute", nil)
	res := call(t, s, "portal_execute", map[string]any{"code": "const r = await codemode.up_big({id: 9007199254740993n}); return {same: r.id === 9007199254740993n, id: r.id, next: r.list[0] + 1n}"})
	if want := `{"same":true,"id":9007199254740993,"next":12345678901234567891}`; text(t, res) != want {
		t.Errorf("in code: %s, want %s", text(t, res), want)
	}
	if params := <-got; !strings.Contains(params, `"id":9007199254740993`) {
		t.Errorf("code's arguments: %s", params)
	}
}

// rawUpstream is a 2025 server without sessions that answers with exact bytes;
// an empty answer is "method not found".
func rawUpstream(answer func(method string, params json.RawMessage) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params json.RawMessage
		}
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			http.Error(w, err.Error(), 400)
			return
		}
		if m.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		result := answer(m.Method, m.Params)
		if m.Method == "initialize" {
			result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"raw","version":"1"}}`
		}
		if result == "" {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID)
			return
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	})
}

// B058: the portal's own definitions are plain: what strict clients refuse is
// not there.
func TestB058_OwnToolsAreAcceptedByStrictClients(t *testing.T) {
	p := demo(t)
	for _, query := range []string{"", "?optimize_context=minimize_tools", "?optimize_context=search_and_execute", "?codemode=search_and_execute", "?codemode=code"} {
		_, b := post(t, p.URL+query, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, nil)
		var m struct {
			Result struct {
				Tools []struct {
					Name                      string
					InputSchema, OutputSchema map[string]any
				}
			}
		}
		if err := json.Unmarshal(b, &m); err != nil || len(m.Result.Tools) == 0 {
			t.Fatalf("%s: %v", b, err)
		}
		for _, tool := range m.Result.Tools {
			for _, schema := range []map[string]any{tool.InputSchema, tool.OutputSchema} {
				if schema == nil {
					continue
				}
				if schema["type"] != "object" {
					t.Errorf("%s %s: type is %v", query, tool.Name, schema["type"])
				}
				for _, bad := range []string{"oneOf", "anyOf", "allOf", "not", "if"} {
					if _, ok := schema[bad]; ok && strings.HasPrefix(tool.Name, "portal_") {
						t.Errorf("%s %s: %s at top level", query, tool.Name, bad)
					}
				}
			}
			if tool.InputSchema == nil {
				t.Errorf("%s %s: no inputSchema", query, tool.Name)
			}
			if len(tool.Name) > 64 || strings.ContainsAny(tool.Name, ". /") {
				t.Errorf("%s: name %q", query, tool.Name)
			}
		}
	}
}

// A 2025 session outlives a restart of the portal, and its id is nobody's
// without it.
func TestSessionSurvivesRestart(t *testing.T) {
	_, url := serveCompany(t, companyOptions)
	addr := freePort(t)
	cfg := writeConfig(t, "listen: "+addr+"\nauth: {mode: none}\nservers:\n"+companyServers(url))
	p := startProcess(t, "serve", "--config", cfg)
	p.waitServers(t, 8)
	init := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	resp, _ := post(t, p.URL, init, nil)
	id := resp.Header.Get("Mcp-Session-Id")
	if id == "" {
		t.Fatal("no session id")
	}
	list := `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	off := `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"portal_toggle_single_server","arguments":{"server_id":"dns","action":"untoggle"}}}`
	h := map[string]string{"Mcp-Session-Id": id, "Mcp-Protocol-Version": "2025-06-18"}
	if _, b := post(t, p.URL, off, h); !strings.Contains(string(b), "switched off") {
		t.Fatalf("%s", b)
	}
	p.stop()
	p = startProcess(t, "serve", "--config", cfg)
	p.waitServers(t, 8)
	resp, b := post(t, p.URL, list, h)
	if resp.StatusCode != 200 || strings.Contains(string(b), "dns_zones_list") || !strings.Contains(string(b), "tracker_search") {
		t.Errorf("after a restart: %s, the session's own choice of servers must hold: %.300s", resp.Status, b)
	}
	if resp, _ := post(t, p.URL, list, map[string]string{"Mcp-Session-Id": "nobodys"}); resp.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown session: %s, want 404", resp.Status)
	}
	req, err := http.NewRequest("DELETE", p.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Mcp-Session-Id", id)
	if resp, err := http.DefaultClient.Do(req); err != nil || resp.StatusCode/100 != 2 {
		t.Errorf("DELETE: %v %v", resp, err)
	}
	if resp, _ := post(t, p.URL, list, h); resp.StatusCode != http.StatusNotFound {
		t.Errorf("after DELETE: %s, want 404", resp.Status)
	}
}

// A cancelled call is cancelled at its server, in both eras.
func TestCancellationReachesTheServer(t *testing.T) {
	srv := mcp.NewServer(&mcp.Implementation{Name: "up", Version: "1"}, nil)
	began, ended := make(chan struct{}, 2), make(chan struct{}, 2)
	rawTool(srv, "wait", func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		began <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return nil, ctx.Err()
	})
	p := startProcess(t, "serve", "--config", writeConfig(t, oneServer(sdkServer(t, srv))))
	p.waitServers(t, 1)
	for _, e := range eras {
		s := connect(t, p, e, "", nil)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = s.CallTool(ctx, &mcp.CallToolParams{Name: "up_wait"}) }()
		<-began
		cancel()
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			t.Errorf("era %s: the server went on", e)
		}
	}
}

// An idle GET stream gives its headers at once.
func TestStreamHeadersAtOnce(t *testing.T) {
	p := demo(t)
	resp, _ := post(t, p.URL, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`, nil)
	req, err := http.NewRequestWithContext(t.Context(), "GET", p.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Mcp-Session-Id", resp.Header.Get("Mcp-Session-Id"))
	got, err := http.DefaultClient.Do(req)
	if err != nil || got.StatusCode != 200 {
		t.Fatalf("%v %v", got, err)
	}
	defer got.Body.Close()
	if line, err := bufio.NewReader(got.Body).ReadString('\n'); err != nil || !strings.HasPrefix(line, ":") {
		t.Errorf("first line %q %v, want a comment", line, err)
	}
}

// A server whose list is not there in time is listed when it is, however late,
// and every client is told; meanwhile the others are served.
func TestB043_LateServerIsAnnounced(t *testing.T) {
	late, quick := mcp.NewServer(&mcp.Implementation{Name: "late", Version: "1"}, nil), mcp.NewServer(&mcp.Implementation{Name: "quick", Version: "1"}, nil)
	rawTool(late, "work", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return say("late") })
	rawTool(quick, "work", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return say("quick") })
	release, tries := make(chan struct{}), make(chan struct{}, 100)
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return late }, nil)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte(`"tools/list"`)) {
			select {
			case tries <- struct{}{}:
			default:
			}
			select {
			case <-release:
			case <-r.Context().Done():
				return
			}
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { front.CloseClientConnections(); front.Close() })
	p := startProcess(t, "serve", "--config", writeConfig(t, oneServer(sdkServer(t, quick))+"  late:\n    url: "+front.URL+"/mcp\n    call_timeout: 1s\n    connect_timeout: 1s\n    trust_annotations: true\n"))
	p.waitServers(t, 1)
	told := make(chan struct{}, 100)
	var clients []*mcp.ClientSession
	for _, e := range eras {
		c := connect(t, p, e, "", &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { told <- struct{}{} }})
		if got := strings.Join(names(t, c), " "); !strings.Contains(got, "up_work") || strings.Contains(got, "late_work") {
			t.Errorf("era %s, before: %s", e, got)
		}
		clients = append(clients, c)
	}
	eventually(t, "all clients listen", func() error {
		if n, _ := p.status(t)["streams"].(float64); int(n) != len(clients) {
			return fmt.Errorf("%v streams are open", n)
		}
		return nil
	})
	for range 3 { // it has been given up before
		soon(t, "the list is tried again", tries)
	}
	eventually(t, "the late server is seen as degraded", func() error {
		if s := p.states(t)["late"]; s != "degraded" {
			return fmt.Errorf("%s", s)
		}
		return nil
	})
	close(release)
	for range clients {
		soon(t, "a client is told", told)
	}
	for _, c := range clients {
		if got := text(t, call(t, c, "late_work", nil)); got != "late" {
			t.Errorf("the late tool: %s", got)
		}
	}
}

// Streams on which nothing happens have a comment now and then, so that no proxy
// takes them for dead: a GET stream, a listen, and calls under way.
func TestB020_IdleStreamsHaveComments(t *testing.T) {
	t.Parallel() // it waits for most of its time
	srv := mcp.NewServer(&mcp.Implementation{Name: "up", Version: "1"}, nil)
	release := make(chan struct{})
	rawTool(srv, "wait", func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return say("waited")
	})
	p := startProcess(t, "serve", "--config", writeConfig(t, oneServer(sdkServer(t, srv))+"    call_timeout: 5m\n"))
	p.waitServers(t, 1)
	id, err := newSession(p)
	if err != nil {
		t.Fatal(err)
	}
	modernHeader := "Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: "
	streams := map[string]string{
		"GET":       httpText("GET", "Mcp-Session-Id: "+id+"\r\n", ""),
		"2025 call": httpText("POST", "Mcp-Session-Id: "+id+"\r\n", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up_wait"}}`),
		"2026 call": httpText("POST", modernHeader+"tools/call\r\nMcp-Name: up_wait\r\n", modernLine("1", "tools/call", `"name":"up_wait",`)),
		"listen":    httpText("POST", modernHeader+"subscriptions/listen\r\n", modernLine("1", "subscriptions/listen", `"notifications":{"toolsListChanged":true},`)),
	}
	var all sync.WaitGroup
	answered := make(chan string, len(streams))
	for name, request := range streams {
		all.Go(func() {
			c, err := rawConn(p, request, false)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			defer c.Close()
			sc := bufio.NewScanner(c)
			_ = c.SetReadDeadline(time.Now().Add(time.Minute)) // a common limit of proxies
			for n := 0; n < 2 && sc.Scan(); {
				if sc.Text() == ": keepalive" {
					n++
					_ = c.SetReadDeadline(time.Now().Add(time.Minute))
				}
			}
			if sc.Err() != nil {
				t.Errorf("%s: no comment within a minute: %v", name, sc.Err())
			}
			answered <- name
			if !strings.HasSuffix(name, "call") {
				return
			}
			for sc.Scan() {
				if strings.Contains(sc.Text(), "waited") {
					return
				}
			}
			t.Errorf("%s: no answer after the comments: %v", name, sc.Err())
		})
	}
	for range streams {
		<-answered
	}
	close(release)
	all.Wait()
}
