package upstreams

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
	"github.com/mcp-portal/mcp-portal/wire"
)

// Each hop has the version that was negotiated on it: a server that knows one
// revision, and checks the header, is never shown another.
func TestB008_EachHopHasItsOwnVersion(t *testing.T) {
	const only = "2025-06-18"
	up := upstreamtest.New(t, upstreamtest.Options{Handle: func(c *upstreamtest.Call) bool {
		switch v := c.Header.Get(wire.HeaderProtocolVersion); {
		case c.Method == "initialize":
			c.Begin(`{"protocolVersion":"` + only + `","capabilities":{"tools":{}},"serverInfo":{"name":"strict","version":"1"}}`)
		case v != only:
			c.Raw(http.StatusBadRequest, "text/plain", "unsupported protocol version "+v)
		default:
			return false
		}
		return true
	}})
	r := start(t, one(at(up)), nil)
	r.ready()
	for _, newest := range []string{wire.Version20251125, wire.Version20260728} {
		call := tool("echo", "")
		call.ProtocolVersion, call.Session = newest, newest
		r.must(call)
	}
	if st := r.status("up"); st.Protocol != only {
		t.Errorf("negotiated %s", st.Protocol)
	}
	begun := false
	for _, q := range up.Requests() {
		if begun = begun || q.Method == "initialize"; !begun || q.Method == "initialize" {
			continue // server/discover asks for another era
		}
		if v := q.Header.Get(wire.HeaderProtocolVersion); v != only {
			t.Errorf("%s %s with version %q", q.HTTPMethod, q.Method, v)
		}
	}
}

// A server without a stream for notices is asked for one once. Nothing is
// listed again for it, and the others notice nothing.
func TestB031_NoStreamIsAskedForOnce(t *testing.T) {
	poor, rich := upstreamtest.New(t, upstreamtest.Options{NoGET: true}), upstreamtest.New(t, upstreamtest.Options{})
	r := start(t, map[string]config.Server{"up": at(poor), "rich": at(rich)}, nil)
	r.ready()
	until(t, "asked once", func() bool { return poor.Count("GET") == 1 })
	until(t, "the other has its stream", func() bool { return rich.Listeners() == 1 })
	lists, others := poor.Count("tools/list"), rich.Count("tools/list")
	for _, user := range []string{"ann", "bob", "eve"} {
		r.must(as(user, tool("echo", "")))
	}
	time.Sleep(20 * r.opts.BackoffMin) // a loop would have gone round many times
	if got := poor.Count("GET"); got != 1 {
		t.Errorf("%d attempts at a stream", got)
	}
	if poor.Count("tools/list") != lists || rich.Count("tools/list") != others || len(r.published("up")) != 1 || len(r.published("rich")) != 1 {
		t.Errorf("listed again: %d and %d times, published %d and %d", poor.Count("tools/list")-lists, rich.Count("tools/list")-others, len(r.published("up")), len(r.published("rich")))
	}
	if st := r.status("up"); st.State != Ready {
		t.Errorf("%+v", st)
	}
}

// Sessions that call at once have a child each, or share one, and no more; and
// each that ends is reaped.
func TestB038_ChildrenAreReusedAndReaped(t *testing.T) {
	for sessions, want := range map[string]int{"session": 11, "user": 2, "shared": 1} { // the catalogue's is one of them
		t.Run(sessions, func(t *testing.T) {
			starts := filepath.Join(t.TempDir(), "starts")
			spec := upstreamtest.Child{Starts: starts}.Server(nil)
			spec.Sessions = sessions
			r := start(t, one(spec), nil)
			r.ready()
			var all sync.WaitGroup
			for i := range 10 {
				for range 20 {
					all.Go(func() {
						call := tool("echo", "")
						call.Session = fmt.Sprint("s", i)
						r.must(call)
					})
				}
			}
			all.Wait()
			pids := lines(t, starts)
			if len(pids) != want {
				t.Errorf("200 calls of 10 sessions started %d children, want %d", len(pids), want)
			}
			r.Close(deadline(t))
			for _, pid := range pids {
				// Gone altogether: what was not waited for would be there, dead.
				if _, err := os.Stat("/proc/" + pid); err == nil {
					state, _ := os.ReadFile("/proc/" + pid + "/stat")
					t.Errorf("child %s is still there: %s", pid, state)
				}
			}
		})
	}
}

// connect_timeout is the only limit on a server that takes its time to connect,
// in every step, over every transport.
func TestB047_OneLimitForConnecting(t *testing.T) {
	const late = politeness + time.Second
	for _, step := range []string{"server/discover", "initialize", "notifications/initialized"} {
		for _, era := range eras {
			if era == upstreamtest.Modern && step != "server/discover" {
				continue
			}
			t.Run(era.String()+" "+step, func(t *testing.T) {
				t.Parallel()
				var once sync.Once
				up := upstreamtest.New(t, upstreamtest.Options{Era: era})
				srv := serveHTTP(t, "/mcp", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if step == r.Header.Get(wire.HeaderMethod) || step != "server/discover" && bodyHas(r, `"`+step+`"`) {
						once.Do(func() { time.Sleep(late) })
					}
					up.ServeHTTP(w, r)
				}))
				r := start(t, one(config.Server{URL: srv + "/mcp", ConnectTimeout: 25 * time.Second}), nil)
				r.ready()
				r.noFailures()
			})
		}
	}
	for _, modern := range []bool{false, true} {
		t.Run(fmt.Sprintf("stdio modern=%v", modern), func(t *testing.T) {
			t.Parallel()
			spec := upstreamtest.Child{Modern: modern, DelayStart: int(late.Milliseconds())}.Server(nil)
			spec.ConnectTimeout = 25 * time.Second
			r := start(t, one(spec), nil)
			r.ready()
			r.noFailures()
		})
	}
	t.Run("and it holds", func(t *testing.T) {
		t.Parallel()
		spec := upstreamtest.Child{DelayStart: 60_000}.Server(nil)
		spec.ConnectTimeout = time.Second
		r := start(t, one(spec), nil)
		until(t, "given up", func() bool { return r.status("up").State == Degraded })
		if p := r.status("up").Error; !strings.Contains(p.Message, "connect_timeout") {
			t.Errorf("%+v", p)
		}
	})
}

// bodyHas reads the body of a request and leaves it to be read again.
func bodyHas(r *http.Request, text string) bool {
	b, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(b))
	return bytes.Contains(b, []byte(text))
}

// noFailures fails the test if a server was degraded at any time.
func (r *rig) noFailures() {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.statuses {
		if s.State == Degraded {
			r.t.Errorf("failed on the way: %s", s.Error.Message)
		}
	}
}
