package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/internal/testlog"
)

// fakePortal answers as a test wants it.
type fakePortal struct {
	URL      string
	t        *testing.T
	sessions atomic.Int32
	mu       sync.Mutex
	known    map[string]bool
	got      []string // method and session of every message
	on       map[string]func(w http.ResponseWriter, r *http.Request, id json.RawMessage)
}

func newFakePortal(t *testing.T) *fakePortal {
	f := &fakePortal{t: t, known: map[string]bool{}, on: map[string]func(http.ResponseWriter, *http.Request, json.RawMessage){}}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	f.URL = s.URL + "/mcp"
	return f
}

func (f *fakePortal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	sid := r.Header.Get("Mcp-Session-Id")
	body, _ := io.ReadAll(r.Body)
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if r.Method == "POST" && json.Unmarshal(body, &m) != nil {
		http.Error(w, "not JSON", 400)
		return
	}
	if m.Method == "" && r.Method == "POST" {
		m.Method = "answer " + string(body)
	}
	f.mu.Lock()
	f.got = append(f.got, strings.TrimSpace(r.Method+" "+m.Method)+" "+sid)
	known := f.known[sid]
	handler := f.on[m.Method]
	if r.Method != "POST" {
		handler = f.on[r.Method]
	}
	if r.Method == "DELETE" {
		delete(f.known, sid)
	}
	f.mu.Unlock()
	switch {
	case m.Method == "initialize" && handler == nil:
		id := fmt.Sprintf("s%d", f.sessions.Add(1))
		f.mu.Lock()
		f.known[id] = true
		f.mu.Unlock()
		w.Header().Set("Mcp-Session-Id", id)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"f","version":"1"}}}`, m.ID)
	case sid != "" && !known && r.Method != "DELETE":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(404)
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"this session is not known here"}}`)
	case handler != nil:
		handler(w, r, m.ID)
	case r.Method == "GET":
		w.WriteHeader(405)
	case r.Method == "DELETE":
		w.WriteHeader(204)
	case m.ID == nil:
		w.WriteHeader(202)
	default:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"did":%q}}`, m.ID, m.Method)
	}
}

func (f *fakePortal) handle(what string, h func(w http.ResponseWriter, r *http.Request, id json.RawMessage)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on[what] = h
}

func (f *fakePortal) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known = map[string]bool{}
}

func (f *fakePortal) count(prefix string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, g := range f.got {
		if strings.HasPrefix(g, prefix) {
			n++
		}
	}
	return n
}

// pipes is the program on pipes, one line at a time.
type pipes struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   io.ReadCloser
	lines chan string
	err   *testlog.Buffer
	ended chan struct{}
}

func startPipes(t *testing.T, env []string, args ...string) *pipes {
	t.Helper()
	p := &pipes{t: t, cmd: exec.Command(binary, append([]string{"stdio"}, args...)...), lines: make(chan string, 1000), err: &testlog.Buffer{}, ended: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), "MCP_PORTAL_TOKEN="), env...)
	p.cmd.Stderr = p.err
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if p.out, err = p.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		r := bufio.NewReader(p.out)
		for {
			line, err := r.ReadString('\n')
			if line != "" {
				p.lines <- line
			}
			if err != nil {
				break
			}
		}
		close(p.lines)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); <-p.ended })
	return p
}

func (p *pipes) send(lines ...string) {
	p.t.Helper()
	for _, l := range lines {
		if _, err := io.WriteString(p.in, l+"\n"); err != nil {
			p.t.Fatal(err)
		}
	}
}

// next is the next line, which must be one JSON-RPC message.
func (p *pipes) next() string {
	p.t.Helper()
	select {
	case l, ok := <-p.lines:
		if !ok {
			p.t.Fatalf("the output ended; standard error: %s", p.err)
		}
		var m struct{ Jsonrpc string }
		if json.Unmarshal([]byte(l), &m) != nil || m.Jsonrpc != "2.0" {
			p.t.Fatalf("standard output is not pure: %q", l)
		}
		return strings.TrimSuffix(l, "\n")
	case <-time.After(90 * time.Second):
		p.t.Fatalf("no line; standard error: %s", p.err)
	}
	return ""
}

func (p *pipes) expect(want ...string) {
	p.t.Helper()
	got := p.next()
	for _, w := range want {
		if !strings.Contains(got, w) {
			p.t.Errorf("got %s, want %s", got, w)
		}
	}
}

func (p *pipes) exit() *os.ProcessState {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(60 * time.Second):
		p.t.Fatal("the program does not end")
	}
	return p.cmd.ProcessState
}

const hello = `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`

func modernLine(id, method, more string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`, id, method, more)
}
