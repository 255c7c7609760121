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
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-portal/mcp-portal/internal/testprogram"
)

// binary is the program under test, built once without cgo, as it is released.
var binary string

func TestMain(m *testing.M) {
	if portal := os.Getenv(chainPortal); portal != "" {
		os.Exit(chain(portal, os.Args[len(os.Args)-1]))
	}
	os.Exit(testprogram.Main(m.Run, func(dir string) { binary = filepath.Join(dir, "mcp-portal") }, "../cmd/mcp-portal"))
}

// process is a running program whose output is kept.
type process struct {
	cmd  *exec.Cmd
	URL  string // of the MCP endpoint, without query
	mu   sync.Mutex
	out  bytes.Buffer
	done chan struct{}
}

var readyLine = regexp.MustCompile(`ready: (http\S+/mcp)`)

// startProcess runs the program and waits for its line with the URL.
func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	testprogram.Depend(t)
	p := &process{cmd: exec.Command(binary, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), "MCP_PORTAL_TOKEN=")
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = writer{p}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %v: %v", args, err)
	}
	ready := make(chan string, 1)
	go func() {
		defer close(p.done)
		sc := bufio.NewScanner(stdout)
		for sc.Scan() {
			_, _ = writer{p}.Write(append(sc.Bytes(), '\n'))
			if m := readyLine.FindStringSubmatch(sc.Text()); m != nil {
				ready <- m[1]
			}
		}
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("output of %v:\n%s", args, p.output())
		}
	})
	select {
	case p.URL = <-ready:
	case <-p.done:
		t.Fatalf("%v ended before it was ready:\n%s", args, p.output())
	case <-time.After(60 * time.Second):
		t.Fatalf("%v was not ready within a minute:\n%s", args, p.output())
	}
	return p
}

func (p *process) stop() {
	select {
	case <-p.done:
		return
	default:
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// kill ends the program without any goodbye.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

type writer struct{ p *process }

func (w writer) Write(b []byte) (int, error) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	return w.p.out.Write(b)
}

// demo starts the portal with the example company on a free port and waits
// until its eight servers are listed.
func demo(t *testing.T, args ...string) *process {
	t.Helper()
	p := startProcess(t, append([]string{"demo", "--listen", "127.0.0.1:0"}, args...)...)
	p.waitServers(t, 8)
	return p
}

func (p *process) base() string { return strings.TrimSuffix(p.URL, "/mcp") }

// status reads /status.
func (p *process) status(t *testing.T) map[string]any {
	t.Helper()
	resp, err := http.Get(p.base() + "/status")
	if err != nil {
		t.Fatalf("GET /status: %v", err)
	}
	defer resp.Body.Close()
	var s map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		t.Fatalf("GET /status answered %s: %v", resp.Status, err)
	}
	return s
}

// states are the states of the servers by id.
func (p *process) states(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	list, _ := p.status(t)["servers"].([]any)
	for _, s := range list {
		m := s.(map[string]any)
		out[m["server"].(string)] = m["state"].(string)
	}
	return out
}

// waitServers waits until n servers are ready.
func (p *process) waitServers(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d servers ready", n), func() error {
		ready := 0
		states := p.states(t)
		for _, s := range states {
			if s == "ready" {
				ready++
			}
		}
		if ready < n {
			return fmt.Errorf("states are %v", states)
		}
		return nil
	})
}

// eventually waits for a condition with a generous deadline.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("never: %s: %v", what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// era is a protocol era as the Go SDK's client is told to speak it.
type era string

const (
	legacy era = "2025-11-25"
	modern era = "2026-07-28"
)

var eras = []era{legacy, modern}

// connect makes a session of the Go SDK's client in an era and mode.
func connect(t *testing.T, p *process, e era, query string, opt *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	url := p.URL
	if query != "" {
		url += "?" + query
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, opt)
	s, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: string(e)})
	if err != nil {
		t.Fatalf("connect in era %s with %q: %v", e, query, err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if got := s.InitializeResult().ProtocolVersion; got != string(e) {
		t.Fatalf("negotiated %s, want %s", got, e)
	}
	return s
}

func call(t *testing.T, s *mcp.ClientSession, tool string, args any) *mcp.CallToolResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	res, err := s.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("call %s: %v", tool, err)
	}
	return res
}

// text is the first text block of a result.
func text(t *testing.T, res *mcp.CallToolResult) string {
	t.Helper()
	if len(res.Content) == 0 {
		t.Fatalf("result has no content")
	}
	c, ok := res.Content[0].(*mcp.TextContent)
	if !ok {
		t.Fatalf("first block is %T", res.Content[0])
	}
	return c.Text
}

// names lists the tools of a session, all pages.
func names(t *testing.T, s *mcp.ClientSession) []string {
	t.Helper()
	var out []string
	for tool, err := range s.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatalf("tools/list: %v", err)
		}
		out = append(out, tool.Name)
	}
	return out
}

// post sends one raw JSON-RPC message.
func post(t *testing.T, url, body string, header map[string]string) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("POST %s: %v", url, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read the answer of %s: %v", url, err)
	}
	return resp, b
}

// freePort is a loopback address nobody listens on now.
func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// writeConfig writes portal.yaml into a fresh directory.
func writeConfig(t *testing.T, yaml string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "portal.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
