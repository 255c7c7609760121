package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-portal/mcp-portal/examples/company"
	"github.com/mcp-portal/mcp-portal/store/storetest"
)

// load calls a read tool over and over from several sessions until stopped,
// and counts the failures.
type load struct {
	stop   context.CancelFunc
	wg     sync.WaitGroup
	done   atomic.Int64
	failed atomic.Int64
	first  atomic.Pointer[string]
}

func startLoad(t *testing.T, p *process, n int, tool string, args any) *load {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &load{stop: stop}
	for i := range n {
		s := connect(t, p, eras[i%2], "", nil)
		l.wg.Go(func() {
			for ctx.Err() == nil {
				res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
				if err == nil && res.IsError {
					err = fmt.Errorf("tool error: %s", mustJSON(res.Content))
				}
				if err != nil {
					l.failed.Add(1)
					text := err.Error()
					l.first.CompareAndSwap(nil, &text)
				}
				l.done.Add(1)
			}
		})
	}
	return l
}

// mark waits for n more calls.
func (l *load) mark(t *testing.T, n int64) {
	t.Helper()
	from := l.done.Load()
	eventually(t, fmt.Sprintf("%d more calls", n), func() error {
		if got := l.done.Load() - from; got < n {
			return fmt.Errorf("only %d", got)
		}
		return nil
	})
}

func (l *load) end(t *testing.T, what string) {
	t.Helper()
	l.stop()
	l.wg.Wait()
	if f := l.failed.Load(); f > 0 {
		t.Errorf("%s: %d of %d calls failed, first: %s", what, f, l.done.Load(), *l.first.Load())
	}
	if l.done.Load() == 0 {
		t.Errorf("%s: no call was made", what)
	}
}

// Redis is killed and restarted under load: no call fails, and status and log
// show both.
func TestRedisRestartUnderLoad(t *testing.T) {
	redis := storetest.StartRedis(t)
	_, url := serveCompany(t, company.Options{})
	cfg := writeConfig(t, fmt.Sprintf("listen: 127.0.0.1:0\nauth: {mode: none}\nstore: {redis: redis://%s/0}\nservers:\n%s", redis.Addr, companyServers(url)))
	p := startProcess(t, "serve", "--config", cfg)
	p.waitServers(t, 8)
	l := startLoad(t, p, 4, "dns_zones_list", map[string]any{"per_page": 2})
	l.mark(t, 50)
	redis.Stop()
	eventually(t, "the status says that the store is degraded", func() error { return storeDegraded(t, p, true) })
	l.mark(t, 200)
	// New clients come and work while the store is away.
	for _, e := range eras {
		s := connect(t, p, e, "", nil)
		if res := call(t, s, "dns_zones_list", map[string]any{}); res.IsError {
			t.Errorf("era %s: a new client while Redis is away: %s", e, text(t, res))
		}
	}
	redis.Restart()
	eventually(t, "the status says that the store is well", func() error { return storeDegraded(t, p, false) })
	l.mark(t, 100)
	l.end(t, "Redis restart")
	out := p.output()
	for _, want := range []string{"level=WARN", "redis"} {
		if !strings.Contains(out, want) {
			t.Errorf("the log lacks %q", want)
		}
	}
}

func storeDegraded(t *testing.T, p *process, want bool) error {
	t.Helper()
	st, _ := p.status(t)["store"].(map[string]any)
	if st["backend"] != "redis" || st["degraded"] != want {
		return fmt.Errorf("store is %v", st)
	}
	return nil
}

// An upstream is killed and restarted on its address: the others do not
// notice; it heals by itself; the status shows why.
func TestUpstreamRestart(t *testing.T) {
	_, url := serveCompany(t, company.Options{})
	addr := freePort(t)
	other := company.New(company.Options{})
	serve := func() context.CancelFunc {
		var ln net.Listener
		eventually(t, "listen again on "+addr, func() (err error) { ln, err = net.Listen("tcp", addr); return err })
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = other.Serve(ctx, ln) }()
		return func() { stop(); <-done }
	}
	stop := serve()
	yaml := "listen: 127.0.0.1:0\nauth: {mode: none}\nservers:\n" + companyServers(url) +
		"  second:\n    url: http://" + addr + "/dns/mcp\n    trust_annotations: true\n"
	p := startProcess(t, "serve", "--config", writeConfig(t, yaml))
	p.waitServers(t, 9)
	l := startLoad(t, p, 4, "dns_zones_list", map[string]any{"per_page": 2})
	l.mark(t, 20)
	s := connect(t, p, legacy, "", nil)
	if res := call(t, s, "second_zones_list", map[string]any{}); res.IsError {
		t.Fatalf("before: %s", text(t, res))
	}
	stop()
	eventually(t, "the status says why the server is degraded", func() error {
		// A call, so that the loss is noticed whatever the transport keeps open.
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if res, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "second_zones_list"}); err == nil && !res.IsError {
			return fmt.Errorf("a call to a dead server succeeded")
		} else if err == nil && !strings.Contains(text(t, res), "second") {
			return fmt.Errorf("the error does not name the server: %s", text(t, res))
		}
		if got := p.states(t)["second"]; got != "degraded" {
			return fmt.Errorf("state is %s", got)
		}
		return nil
	})
	l.mark(t, 100)
	stop = serve()
	defer stop()
	eventually(t, "the server is ready again", func() error {
		if got := p.states(t)["second"]; got != "ready" {
			return fmt.Errorf("state is %s", got)
		}
		return nil
	})
	if res := call(t, s, "second_zones_list", map[string]any{}); res.IsError {
		t.Errorf("after: %s", text(t, res))
	}
	l.end(t, "upstream restart")
	if out := p.output(); !strings.Contains(out, "second") {
		t.Error("the log does not mention the server")
	}
}

// An edit of the YAML that switches one server off and on does not disturb a
// running call to another; a broken edit changes nothing and is reported.
func TestToggleByEdit(t *testing.T) {
	_, url := serveCompany(t, company.Options{})
	hold := make(chan struct{})
	slow, started := slowServer(t, hold)
	yaml := func(enabled bool) string {
		return fmt.Sprintf("listen: 127.0.0.1:0\nauth: {mode: none}\nservers:\n%s  slow:\n    url: %s\n    trust_annotations: true\n  second:\n    url: %s/dns/mcp\n    trust_annotations: true\n    enabled: %v\n",
			companyServers(url), slow, url, enabled)
	}
	cfg := writeConfig(t, yaml(true))
	p := startProcess(t, "serve", "--config", cfg)
	p.waitServers(t, 10)
	changed := make(chan struct{}, 100)
	s := connect(t, p, legacy, "", &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} }})
	l := startLoad(t, p, 2, "dns_zones_list", map[string]any{"per_page": 2})
	result := make(chan error, 1)
	go func() {
		res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "slow_wait"})
		if err == nil && res.IsError {
			err = fmt.Errorf("%s", mustJSON(res.Content))
		}
		result <- err
	}()
	<-started
	write := func(text string) {
		if err := os.WriteFile(cfg+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(cfg+".new", cfg); err != nil {
			t.Fatal(err)
		}
	}
	has := func(want bool) func() error {
		return func() error {
			got := false
			for _, n := range names(t, connect(t, p, modern, "", nil)) {
				got = got || n == "second_zones_list"
			}
			if got != want {
				return fmt.Errorf("second is listed: %v", got)
			}
			return nil
		}
	}
	write(yaml(false))
	eventually(t, "the server is off", has(false))
	select {
	case <-changed:
	case <-time.After(60 * time.Second):
		t.Error("the client was not told that its list changed")
	}
	write("listen: 127.0.0.1:0\nauth: {mode: none}\nservrs: {}\n")
	eventually(t, "the broken edit is reported", func() error {
		if !strings.Contains(p.output(), "servrs") {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	if err := has(false)(); err != nil {
		t.Errorf("after the broken edit: %v", err)
	}
	write(yaml(true))
	eventually(t, "the server is on", has(true))
	// Listed and routed from the same snapshot: callable at once.
	if res := call(t, connect(t, p, modern, "", nil), "second_zones_list", map[string]any{}); res.IsError {
		t.Errorf("a server just switched on: %s", text(t, res))
	}
	close(hold)
	if err := <-result; err != nil {
		t.Errorf("the call that ran through the edits: %v", err)
	}
	l.end(t, "edits")
}

// slowServer has one tool that answers when hold is closed.
func slowServer(t *testing.T, hold <-chan struct{}) (url string, started <-chan struct{}) {
	t.Helper()
	began := make(chan struct{}, 10)
	srv := mcp.NewServer(&mcp.Implementation{Name: "slow", Version: "1"}, nil)
	srv.AddTool(&mcp.Tool{Name: "wait", InputSchema: json.RawMessage(`{"type":"object"}`), Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			began <- struct{}{}
			select {
			case <-hold:
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hs := &http.Server{Handler: mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, nil)}
	go func() { _ = hs.Serve(ln) }()
	t.Cleanup(func() { _ = hs.Close() })
	return "http://" + ln.Addr().String() + "/mcp", began
}

// The portal is ready within 2 seconds of its start with every upstream, the
// store and the identity provider dead or hanging; and after a restart it
// serves the lists it knew while the upstreams are still away.
func TestReadyWhateverIsDown(t *testing.T) {
	hang, err := net.Listen("tcp", "127.0.0.1:0") // accepts, never answers
	if err != nil {
		t.Fatal(err)
	}
	defer hang.Close()
	dead := freePort(t)
	yaml := fmt.Sprintf(`
listen: 127.0.0.1:0
auth: {mode: none}
store: {redis: "redis://%s/0"}
servers:
  hangs: {url: "http://%s/mcp", connect_timeout: 10m} # who waited for it would not be back in time
  dead: {url: "http://%s/mcp"}
  missing: {command: [/no/such/program]}
  silent: {command: [sleep, "1000"]}
`, freePort(t), hang.Addr(), dead)
	begin := time.Now()
	p := startProcess(t, "serve", "--config", writeConfig(t, yaml))
	took := time.Since(begin)
	t.Logf("ready after %v", took)
	resp, err := http.Get(p.base() + "/healthz")
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("healthz: %v", err)
	}
	if took > 10*time.Second { // 2 seconds is the promise; CI machines get slack
		t.Errorf("ready after %v", took)
	}
	for _, e := range eras {
		if got := names(t, connect(t, p, e, "", nil)); len(got) != 3 {
			t.Errorf("era %s: tools are %v, want the portal's own three", e, got)
		}
	}
	eventually(t, "reasons are shown", func() error {
		body := fmt.Sprint(p.status(t)["servers"])
		for _, want := range []string{"/no/such/program", "degraded"} {
			if !strings.Contains(body, want) {
				return fmt.Errorf("%q is not in %s", want, body)
			}
		}
		return nil
	})

	// A warm restart with the upstreams away.
	c := company.New(company.Options{})
	addr := freePort(t)
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() { defer close(gone); _ = c.Serve(ctx, ln) }()
	cfg := writeConfig(t, "listen: 127.0.0.1:0\nauth: {mode: none}\nservers:\n"+companyServers("http://"+addr))
	q := startProcess(t, "serve", "--config", cfg)
	q.waitServers(t, 8)
	q.stop()
	stop()
	<-gone
	q = startProcess(t, "serve", "--config", cfg)
	if got := names(t, connect(t, q, legacy, "", nil)); len(got) != 35 {
		t.Errorf("after a restart with the upstreams away %d tools are listed, want 35 from the cache", len(got))
	}
	if got := q.states(t)["dns"]; got == "ready" {
		t.Error("a server that is away is called ready")
	}
}
