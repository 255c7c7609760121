package upstreams

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// hanging is a tool that ends when it is cancelled, and counts.
type hanging struct {
	begun, ended atomic.Int64
	over         chan struct{} // ends them all after the test
}

func (h *hanging) add(s *mcp.Server) {
	mcp.AddTool(s, &mcp.Tool{Name: "hang"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
		h.begun.Add(1)
		select {
		case <-ctx.Done():
			h.ended.Add(1)
		case <-h.over:
		}
		return nil, nil, ctx.Err()
	})
}

// Calls that are cancelled at any moment, many at once, all end at a server of
// the official SDK, however it is reached.
func TestB014_CancelledUnderLoad(t *testing.T) {
	handlers := map[string]func(s *mcp.Server) http.Handler{
		"/mcp": func(s *mcp.Server) http.Handler {
			return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
		},
		"/json/mcp": func(s *mcp.Server) http.Handler {
			return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{JSONResponse: true})
		},
		"/stateless/mcp": func(s *mcp.Server) http.Handler {
			return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
		},
		"/sse": func(s *mcp.Server) http.Handler {
			return mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return s }, nil)
		},
	}
	for path, handler := range handlers {
		t.Run(path, func(t *testing.T) {
			h := hanging{over: make(chan struct{})}
			s := sdkServer()
			h.add(s)
			r := start(t, one(config.Server{URL: serveHTTP(t, path, handler(s)) + path}), nil)
			t.Cleanup(func() { close(h.over) })
			r.ready()
			u, _ := r.Get("up")
			const sessions = 20
			for i := range sessions {
				call := tool("echo", "")
				call.Session = fmt.Sprint(i)
				r.must(call)
			}
			var calls sync.WaitGroup
			for i := range 600 {
				calls.Go(func() {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					if i < sessions { // at least these reach the server
						go func() {
							defer cancel()
							for h.begun.Load() == 0 && ctx.Err() == nil {
								time.Sleep(time.Millisecond)
							}
						}()
					} else {
						time.AfterFunc(time.Duration(i)*100*time.Microsecond, cancel)
					}
					call := tool("hang", "")
					call.Session = fmt.Sprint(i % sessions)
					_, _ = u.Do(ctx, call)
				})
			}
			calls.Wait()
			// A busy machine may carry a call to the server long after its caller
			// has gone: what counts is that they end, one after the other.
			for last, end := h.begun.Load()-h.ended.Load(), time.Now().Add(30*time.Second); ; time.Sleep(10 * time.Millisecond) {
				n := h.begun.Load()
				time.Sleep(100 * time.Millisecond)
				open := h.begun.Load() - h.ended.Load()
				if open == 0 && n == h.begun.Load() {
					break
				}
				if open != last {
					last, end = open, time.Now().Add(30*time.Second)
				}
				if time.Now().After(end) {
					t.Fatalf("%d of %d calls that began are not cancelled", open, n)
				}
			}
			t.Logf("%d calls began", h.begun.Load())
		})
	}
}

// Over stdio a call and its cancellation go through one pipe, in order.
func TestB014_CancelledUnderLoadOverStdio(t *testing.T) {
	for _, modern := range []bool{false, true} {
		r := start(t, one(upstreamtest.Child{Full: true, Modern: modern}.Server(nil)), nil)
		r.ready()
		r.must(tool("echo", ""))
		u, _ := r.Get("up")
		var calls sync.WaitGroup
		for i := range 600 {
			calls.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Duration(i)*100*time.Microsecond, cancel)
				_, _ = u.Do(ctx, tool("hang", ""))
			})
		}
		calls.Wait()
		until(t, "every call that began was cancelled", func() bool {
			seen := r.must(tool("seen", ""))
			begun := strings.Count(seen, "hangs")
			return begun > 0 && begun == strings.Count(seen, "cancelled")
		})
	}
}

// A call may be slower on its way than its cancellation, which a server ignores
// when it comes first. It is told again when the call is there.
func TestB014_CancellationThatOvertakesItsCall(t *testing.T) {
	http1 := upstreamtest.NewFullHTTP(t, false)
	http2 := upstreamtest.NewFullHTTP(t, false)
	sse, overSSE := upstreamtest.NewFullSSE(t)
	sse2, overSSE2 := upstreamtest.NewFullSSE(t)
	for _, tc := range []struct {
		name string
		full *upstreamtest.Full
		at   config.Server
		// overtakes: what comes first does so without waiting for the call.
		overtakes bool
		// cut: its sender's connection breaks meanwhile, so that nothing says
		// what became of it.
		cut bool
	}{
		{"streamable", http1.Full, http1.Server(), true, false},
		{"sse", sse, overSSE, false, false},
		{"streamable cut", http2.Full, http2.Server(), true, true},
		{"sse cut", sse2, overSSE2, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			entered, gone, release := make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
			target, err := url.Parse(tc.at.URL)
			if err != nil {
				t.Fatal(err)
			}
			proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
				r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host
			}}
			slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
				if bytes.Contains(body, []byte(`"hang"`)) {
					entered <- struct{}{}
					r = r.WithContext(context.WithoutCancel(r.Context())) // it is on its way, whatever its sender does
					if tc.cut {
						<-gone
						go func() {
							<-release
							proxy.ServeHTTP(httptest.NewRecorder(), r)
						}()
						panic(http.ErrAbortHandler)
					}
					<-release
				}
				proxy.ServeHTTP(w, r)
			}))
			t.Cleanup(func() { slow.CloseClientConnections(); slow.Close() })
			spec := tc.at
			spec.URL = slow.URL + target.Path
			r := start(t, one(spec), nil)
			r.ready()
			r.must(tool("echo", ""))
			u, _ := r.Get("up")
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { _, err := u.Do(ctx, tool("hang", "")); done <- err }()
			<-entered
			cancel()
			if ce := callError(t, <-done); ce.Problem.Kind != KindCancelled || !ce.Sent {
				t.Errorf("%+v", ce)
			}
			close(gone)
			if tc.overtakes {
				until(t, "the cancellation is there before its call", func() bool { return slices.Contains(tc.full.Seen(), "cancelled") })
			}
			close(release)
			until(t, "the call is cancelled after it began", func() bool {
				seen := tc.full.Seen()
				slices.Reverse(seen)
				last := slices.Index(seen, "cancelled")
				return last >= 0 && last < slices.Index(seen, "hangs")
			})
			r.must(tool("echo", ""))
		})
	}
}

// A caller who goes while a line is half written costs nobody else anything.
func TestCancelledInTheMiddleOfALine(t *testing.T) {
	r := start(t, one(upstreamtest.Child{}.Server(nil)), nil)
	r.ready()
	pid := r.must(tool("pid", ""))
	slow := make(chan error, 1)
	go func() { _, err := r.do(tool("sleep", `{"ms":1000}`)); slow <- err }()
	r.must(tool("deaf", `{"ms":1500}`))
	u, _ := r.Get("up")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := u.Do(ctx, tool("echo", `{"x":"`+strings.Repeat("w", 1<<20)+`"}`)); err == nil {
		t.Error("a child that reads nothing answers")
	}
	if err := <-slow; err != nil {
		t.Errorf("the call under way: %v", err)
	}
	if got := r.must(tool("pid", "")); got != pid {
		t.Errorf("the child was started again: %s, was %s", got, pid)
	}
}

// Either the body of a request leaves or its caller gives up, never both.
func TestGateLetsTheBodyOutOrNot(t *testing.T) {
	for range 1000 {
		var door gate
		read := make(chan error)
		go func() {
			_, err := gated{&door, strings.NewReader("x")}.Read(make([]byte, 1))
			read <- err
		}()
		shut := door.shut()
		if err := <-read; shut != (err == errShut) {
			t.Fatalf("shut: %v, and reading said %v", shut, err)
		}
		if door.shut() != shut || door.pass() == shut {
			t.Fatal("the gate changed its mind")
		}
	}
}
