package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// holding is what a portal holds, as its status says.
type holding struct {
	Process struct {
		Goroutines int    `json:"goroutines"`
		Files      int    `json:"open_files"`
		Children   int    `json:"children"`
		HeapLive   uint64 `json:"heap_live_bytes"`
		Resident   uint64 `json:"resident_bytes"`
	} `json:"process"`
	Sessions int `json:"sessions"`
	Requests int `json:"requests"`
	Streams  int `json:"streams"`
}

func holds(p *process) (h holding, err error) {
	// A connection of its own: kept ones would count.
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	resp, err := c.Get(p.base() + "/status")
	if err != nil {
		return h, err
	}
	defer resp.Body.Close()
	return h, json.NewDecoder(resp.Body).Decode(&h)
}

// vanisher is one way in which a client goes without a goodbye.
type vanisher struct {
	name string
	run  func(p *process, n int) error
}

// rawConn sends text over a connection of its own and leaves it.
func rawConn(p *process, text string, read bool) (*net.TCPConn, error) {
	c, err := net.Dial("tcp", strings.TrimPrefix(p.base(), "http://"))
	if err != nil {
		return nil, err
	}
	conn := c.(*net.TCPConn)
	if _, err := conn.Write([]byte(text)); err != nil {
		return conn, err
	}
	if read {
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			return conn, err
		}
	}
	return conn, nil
}

// reset closes as a machine does that lost its network: no FIN, a RST at best.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

func httpText(method, header, body string) string {
	return fmt.Sprintf("%s /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n%sContent-Length: %d\r\n\r\n%s", method, header, len(body), body)
}

func newSession(p *process) (string, error) {
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	resp, err := c.Post(p.URL, "application/json", strings.NewReader(hello))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	id := resp.Header.Get("Mcp-Session-Id")
	if id == "" {
		return "", fmt.Errorf("no session: %s", resp.Status)
	}
	return id, nil
}

// 5,000 clients that vanish in every way, and stdio clients that are killed,
// leave nothing behind: what the portal holds goes back to where it was.
// PORTAL_SOAK=20m goes on for so long, with 500 stdio clients.
func TestVanishedClientsLeaveNothing(t *testing.T) {
	soak, err := time.ParseDuration(os.Getenv("PORTAL_SOAK"))
	stdio := 500
	if err != nil {
		soak, stdio = 0, 40
	}
	w := newWorld(t)
	w.hanging, w.cancelled = make(chan struct{}, 1<<20), make(chan struct{}, 1<<20)
	p := startProcess(t, "serve", "--config", writeConfig(t, "listen: 127.0.0.1:0\nauth: {mode: none}\nlimits: {session_idle: 3s, sessions: 1000000, calls_per_user: 1000000}\nservers:\n"+w.yaml+
		"  child: {command: ["+strconv.Quote(binary)+", stdio, --url, "+strconv.Quote(sdkServer(t, w.up))+"], trust_annotations: true}\n"))
	p.waitServers(t, w.servers+1)

	var mu sync.Mutex
	var silent []*net.TCPConn
	hangUp := func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range silent {
			_ = c.Close()
		}
		silent = nil
	}
	t.Cleanup(hangUp)
	kinds := []vanisher{
		{"half a request, then silence", func(p *process, n int) error {
			c, err := rawConn(p, "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-", false)
			if c != nil {
				mu.Lock()
				silent = append(silent, c) // it stays open on this side
				mu.Unlock()
			}
			return err
		}},
		{"an abandoned session", func(p *process, n int) error {
			_, err := newSession(p)
			return err
		}},
		{"an abandoned stream", func(p *process, n int) error {
			id, err := newSession(p)
			if err != nil {
				return err
			}
			c, err := rawConn(p, httpText("GET", "Mcp-Session-Id: "+id+"\r\n", ""), true)
			if c != nil {
				reset(c)
			}
			return err
		}},
		{"an abandoned listen", func(p *process, n int) error {
			c, err := rawConn(p, httpText("POST", "Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\n",
				modernLine("1", "subscriptions/listen", `"notifications":{"toolsListChanged":true},`)), true)
			if c != nil {
				reset(c)
			}
			return err
		}},
		{"an aborted call", func(p *process, n int) error {
			tool := []string{"up_hang", "child_hang", "dns_zones_list", "tracker_issue_list"}[n%4]
			c, err := rawConn(p, httpText("POST", "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`"}}`), n%4 < 2)
			if c != nil {
				reset(c)
			}
			return err
		}},
	}
	round := func(t *testing.T, n int) {
		t.Helper()
		for _, k := range kinds {
			var wg sync.WaitGroup
			places := make(chan struct{}, 50)
			failed := make(chan error, n)
			for i := range n {
				places <- struct{}{}
				wg.Go(func() {
					defer func() { <-places }()
					if err := k.run(p, i); err != nil {
						failed <- err
					}
				})
			}
			wg.Wait()
			if len(failed) > 0 {
				t.Fatalf("%s: %d of %d, first: %v", k.name, len(failed), n, <-failed)
			}
		}
	}
	stdioClients := func(t *testing.T, n int) {
		t.Helper()
		var wg sync.WaitGroup
		places := make(chan struct{}, 8)
		failed := make(chan error, n)
		for i := range n {
			places <- struct{}{}
			wg.Go(func() {
				defer func() { <-places }()
				cmd := exec.Command(binary, "stdio", "--url", p.URL)
				s, err := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, &mcp.ClientSessionOptions{ProtocolVersion: string(eras[i%2])})
				if err == nil {
					_, err = s.CallTool(t.Context(), &mcp.CallToolParams{Name: "dns_zones_list", Arguments: map[string]any{"per_page": 1}})
					if i%4 < 2 {
						_ = cmd.Process.Kill()
					}
					_ = s.Close()
				}
				if err != nil {
					failed <- err
				}
			})
		}
		wg.Wait()
		if len(failed) > 0 {
			t.Fatalf("stdio: %d of %d, first: %v", len(failed), n, <-failed)
		}
	}
	settle := func(t *testing.T, what string, ok func(h holding) error) (h holding) {
		t.Helper()
		eventually(t, what, func() error {
			var err error
			if h, err = holds(p); err != nil {
				return err
			}
			if h.Sessions+h.Streams+h.Requests > 0 {
				return fmt.Errorf("%+v", h)
			}
			return ok(h)
		})
		return h
	}
	// Once through everything first: what is made once and kept is no leak.
	round(t, 50)
	stdioClients(t, 4)
	time.Sleep(12 * time.Second) // half requests end after ten seconds
	base := settle(t, "nothing is held before", func(holding) error { return nil })
	t.Logf("before: %+v", base)
	begin := time.Now()
	for rounds := 0; rounds == 0 || time.Since(begin) < soak; rounds++ {
		round(t, 1000)
		stdioClients(t, stdio)
		stdio = min(stdio, 40) // once is enough
		h := settle(t, "everything is given back", func(h holding) error {
			switch {
			case h.Process.Goroutines > base.Process.Goroutines+25:
				return fmt.Errorf("goroutines: %d, were %d", h.Process.Goroutines, base.Process.Goroutines)
			case h.Process.Files > base.Process.Files+25:
				return fmt.Errorf("open files: %d, were %d", h.Process.Files, base.Process.Files)
			case h.Process.Children > base.Process.Children:
				return fmt.Errorf("children: %d, were %d", h.Process.Children, base.Process.Children)
			case len(w.hanging) != len(w.cancelled):
				return fmt.Errorf("%d calls reached their server, %d were cancelled there", len(w.hanging), len(w.cancelled))
			}
			return nil
		})
		hangUp()
		t.Logf("after round %d, %v: %+v; %d calls hung at their server and were cancelled there", rounds+1, time.Since(begin).Round(time.Second), h, len(w.hanging))
	}
	// Memory: what the last collection left, which calls that go well bring about.
	s := connect(t, p, legacy, "", nil)
	defer func() {
		if h, err := holds(p); err == nil {
			t.Logf("in the end: %+v", h)
		}
	}()
	eventually(t, "memory is given back", func() error {
		for range 20 {
			if _, err := s.ListTools(t.Context(), nil); err != nil {
				return err
			}
		}
		h, err := holds(p)
		if err == nil && h.Process.HeapLive > base.Process.HeapLive+(24<<20) {
			err = fmt.Errorf("%d MB live, were %d", h.Process.HeapLive>>20, base.Process.HeapLive>>20)
		}
		return err
	})
}
