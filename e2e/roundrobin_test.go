package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-portal/mcp-portal/store/storetest"
)

// balancer sends each request to the next replica in turn, whatever session it
// belongs to. A replica that takes no connections is passed over, as every
// balancer does; what breaks after that is the client's to know.
type balancer struct {
	URL string

	hosts []string
	turn  atomic.Int64
	mu    sync.Mutex
	went  map[string]int // requests by replica
	lost  atomic.Int64   // tools/calls that broke at a replica
}

func balance(t *testing.T, hosts ...string) *balancer {
	t.Helper()
	b := &balancer{hosts: hosts, went: map[string]int{}}
	// Without kept connections a dial tells whether a replica is there.
	transport := &http.Transport{DisableKeepAlives: true}
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme = "http" },
		Transport:     roundTripper(func(r *http.Request) (*http.Response, error) { return b.send(transport, r) }),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			b.count(r)
			http.Error(w, "replica lost: "+err.Error(), http.StatusBadGateway)
		},
		ModifyResponse: func(resp *http.Response) error {
			resp.Body = &watched{resp.Body, func() { b.count(resp.Request) }}
			return nil
		},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		r = r.WithContext(context.WithValue(r.Context(), bodyKey{}, body))
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	b.URL = s.URL + "/mcp"
	return b
}

type bodyKey struct{}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (b *balancer) send(next http.RoundTripper, r *http.Request) (resp *http.Response, err error) {
	body, _ := r.Context().Value(bodyKey{}).([]byte)
	from := int(b.turn.Add(1))
	for i := range b.hosts {
		host := b.hosts[(from+i)%len(b.hosts)]
		out := r.Clone(r.Context())
		out.URL.Host, out.Host = host, host
		out.Body = io.NopCloser(bytes.NewReader(body))
		resp, err = next.RoundTrip(out)
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			continue
		}
		b.mu.Lock()
		b.went[host]++
		b.mu.Unlock()
		return resp, err
	}
	return nil, err
}

// count notes a call that its replica took and did not answer.
func (b *balancer) count(r *http.Request) {
	body, _ := r.Context().Value(bodyKey{}).([]byte)
	if r.Context().Err() == nil && bytes.Contains(body, []byte(`"tools/call"`)) {
		b.lost.Add(1)
	}
}

func (b *balancer) requests(host string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.went[host]
}

type watched struct {
	io.ReadCloser
	broke func()
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		w.broke()
	}
	return n, err
}

// pair is two replicas on one Redis behind a balancer.
type pair struct {
	*balancer
	t    *testing.T
	cfg  [2]string
	p    [2]*process
	want int
}

func startPair(t *testing.T, w *world) *pair {
	t.Helper()
	redis := storetest.StartRedis(t)
	hosts := []string{freePort(t), freePort(t)}
	pr := &pair{t: t, want: w.servers, balancer: balance(t, hosts...)}
	for i, h := range hosts {
		pr.cfg[i] = writeConfig(t, fmt.Sprintf("listen: %s\nurl: %s\nauth: {mode: none}\nstore: {redis: %q}\nservers:\n%s", h, strings.TrimSuffix(pr.URL, "/mcp"), redis.URL(), w.yaml))
		pr.start(i)
	}
	return pr
}

func (pr *pair) start(i int) {
	pr.t.Helper()
	pr.p[i] = startProcess(pr.t, "serve", "--config", pr.cfg[i])
	pr.p[i].URL = "http://" + pr.hosts[i] + "/mcp" // url: names the balancer
	pr.p[i].waitServers(pr.t, pr.want)
}

func (pr *pair) streams() int {
	n := 0
	for _, p := range pr.p {
		s, _ := p.status(pr.t)["streams"].(float64)
		n += int(s)
	}
	return n
}

// dial connects the Go SDK's client over HTTP.
func (pr *pair) dial(e era) client {
	// The forms of development mode belong to one process.
	return client{era: e, streams: pr.streams, pages: pr.p[1].base,
		connect: func(t *testing.T, query string, opt *mcp.ClientOptions) *mcp.ClientSession {
			return connect(t, &process{URL: pr.URL}, e, query, opt)
		}}
}

// dialStdio connects it through mcp-portal stdio.
func (pr *pair) dialStdio(e era) client {
	c := pr.dial(e)
	c.connect = func(t *testing.T, query string, opt *mcp.ClientOptions) *mcp.ClientSession {
		s, err := mcp.NewClient(&mcp.Implementation{Name: "e2e-stdio", Version: "1"}, opt).Connect(t.Context(),
			&mcp.CommandTransport{Command: exec.Command(binary, "stdio", "--url", pr.URL+"?"+query)}, &mcp.ClientSessionOptions{ProtocolVersion: string(e)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	return c
}

// Two replicas behind a balancer without affinity are one portal to a client
// of either era; also while one of them is killed and started again: then only
// the calls fail that were under way on it, and say so.
func TestRoundRobin(t *testing.T) {
	w := newWorld(t)
	pr := startPair(t, w)
	for _, e := range eras {
		t.Run(string(e), func(t *testing.T) { wholeClientTest(t, w, pr.dial(e)) })
	}
	for _, h := range pr.hosts {
		if n := pr.requests(h); n < 20 {
			t.Fatalf("only %d requests went to %s: this is no round robin", n, h)
		}
	}
	t.Run("one is killed and restarted", func(t *testing.T) { killOne(t, w, pr) })
	for _, e := range eras {
		t.Run(string(e)+" after the restart", func(t *testing.T) { wholeClientTest(t, w, pr.dial(e)) })
	}
}

func killOne(t *testing.T, w *world, pr *pair) {
	// Sessions and an approval from before.
	told := map[string]*atomic.Int32{}
	sessions := map[string]*mcp.ClientSession{}
	for _, e := range eras {
		for how, c := range map[string]client{"http": pr.dial(e), "stdio": pr.dialStdio(e)} {
			name := how + " " + string(e)
			n := &atomic.Int32{}
			told[name] = n
			sessions[name] = c.connect(t, "", &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{},
				ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { n.Add(1) }})
		}
	}
	ask := func(s *mcp.ClientSession) *mcp.CallToolResult {
		return call(t, s, "chat_message_post", map[string]any{"channel_id": "C003", "text": "asked before, answered after"})
	}
	link := linkIn.FindString(text(t, ask(sessions["http 2025-11-25"])))
	if link == "" {
		t.Fatal("no address of an approval")
	}
	eventually(t, "all listen", func() error {
		if n := pr.streams(); n < len(sessions) {
			return fmt.Errorf("%d streams", n)
		}
		return nil
	})

	// Calls all the while, over every session.
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	var done, failed, bad atomic.Int64
	var first atomic.Pointer[string]
	before := pr.lost.Load()
	for name, s := range sessions {
		for range 2 {
			wg.Go(func() {
				for ctx.Err() == nil {
					callCtx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
					res, err := s.CallTool(callCtx, &mcp.CallToolParams{Name: "dns_zones_list", Arguments: map[string]any{"per_page": 1}})
					cancel()
					done.Add(1)
					if err == nil && !res.IsError {
						continue
					}
					failed.Add(1)
					said := fmt.Sprintf("%s: %v", name, err)
					if err == nil {
						said = name + ": " + text(t, res)
					}
					// The balancer says it, or the program that noticed.
					if !strings.Contains(said, "Bad Gateway") && !strings.Contains(said, "outcome unknown") && !strings.Contains(said, "EOF") {
						bad.Add(1)
						first.CompareAndSwap(nil, &said)
					}
				}
			})
		}
	}
	mark := func(n int64) {
		t.Helper()
		from := done.Load()
		eventually(t, fmt.Sprintf("%d more calls", n), func() error {
			if got := done.Load() - from; got < n {
				return fmt.Errorf("only %d", got)
			}
			return nil
		})
	}
	mark(100)
	pr.p[0].kill()
	mark(200)
	settled := failed.Load()
	mark(100)
	if got := failed.Load(); got != settled {
		t.Errorf("%d calls failed after those that were under way", got-settled)
	}
	// One alone serves everything: what was asked before is answered now.
	newBrowser(t).decide(pr.p[1].base()+link, "approve")
	if res := ask(sessions["http 2025-11-25"]); res.IsError {
		t.Errorf("approved while one replica was dead: %s", text(t, res))
	}
	pr.start(0)
	mark(200)
	stop()
	wg.Wait()
	lost := pr.lost.Load() - before
	t.Logf("%d calls, %d failed, %d were under way on the killed replica", done.Load(), failed.Load(), lost)
	if failed.Load() > lost {
		t.Errorf("%d calls failed, though only %d were under way on the killed replica", failed.Load(), lost)
	}
	if bad.Load() > 0 {
		t.Errorf("%d failures do not say what happened, first: %s", bad.Load(), *first.Load())
	}
	if pr.requests(pr.hosts[0]) == 0 {
		t.Error("the restarted replica got nothing")
	}

	// Every session goes on at both, and is told of changes. The SDK's client
	// does not open subscriptions/listen again, which mcp-portal stdio does.
	t.Logf("%d streams", pr.streams())
	tool := w.grow()
	for name, s := range sessions {
		for range 4 {
			if res := call(t, s, "dns_zones_list", map[string]any{"per_page": 1}); res.IsError {
				t.Errorf("%s after the restart: %s", name, text(t, res))
			}
		}
		if name == "http 2026-07-28" {
			continue
		}
		eventually(t, name+" is told of a change", func() error {
			if told[name].Load() == 0 {
				return errors.New("not told")
			}
			if !strings.Contains(strings.Join(names(t, s), " "), tool) {
				return errors.New("not listed")
			}
			return nil
		})
	}
	// A session ended at one is ended at both.
	s := sessions["http 2025-11-25"]
	id := s.ID()
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	for i, p := range pr.p {
		eventually(t, "the session has ended at both", func() error {
			if resp, _ := post(t, p.URL, `{"jsonrpc":"2.0","id":4,"method":"ping"}`, map[string]string{"Mcp-Session-Id": id}); resp.StatusCode != 404 {
				return fmt.Errorf("replica %d: %s", i, resp.Status)
			}
			return nil
		})
	}
}
