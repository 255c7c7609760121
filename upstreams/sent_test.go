package upstreams

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

func TestB041_NothingIsSentTwice(t *testing.T) {
	for _, era := range eras {
		for _, how := range []string{"drop", "cut stream", "cut body"} {
			t.Run(era.String()+"/"+how, func(t *testing.T) {
				up := upstreamtest.New(t, upstreamtest.Options{Era: era})
				var counter atomic.Int32
				up.On("increment", func(c *upstreamtest.Call) {
					counter.Add(1)
					switch how {
					case "drop":
						c.Drop()
					case "cut stream":
						c.Write(": hello\n\n")
					case "cut body":
						c.CutBody(`{"jsonrpc":"2.0"`)
					}
				})
				spec := at(up)
				// With this header net/http itself sends a POST again.
				spec.Headers = map[string]config.Secret{"Idempotency-Key": "same"}
				r := start(t, one(spec), nil)
				r.ready()
				for range 5 { // the connection pool is warm: reused ones are where net/http retries
					r.must(tool("echo", ""))
				}
				for n := int32(1); n <= 10; n++ {
					_, err := r.do(tool("increment", ""))
					ce := callError(t, err)
					if !ce.Sent || !strings.Contains(ce.Error(), "outcome is unknown") {
						t.Fatalf("%+v: %v", ce, ce)
					}
					if got := counter.Load(); got != n {
						t.Fatalf("%d calls ran %d times", n, got)
					}
				}
				r.must(tool("echo", ""))
			})
		}
	}
	t.Run("stdio", func(t *testing.T) {
		r := start(t, one(upstreamtest.Child{}.Server(nil)), nil)
		r.ready()
		_, err := r.do(tool("exit", ""))
		if ce := callError(t, err); !ce.Sent || ce.Problem.Kind != KindProcess || !strings.Contains(ce.Error(), "leaving") {
			t.Errorf("%+v: %v", ce, ce)
		}
		r.must(tool("echo", "")) // another child
	})
}

func TestB041_RefusedIsNotSent(t *testing.T) {
	up := upstreamtest.New(t, upstreamtest.Options{Era: upstreamtest.Modern})
	r := start(t, one(at(up)), nil)
	r.ready()
	r.must(tool("echo", ""))
	up.Down()
	until(t, "degraded, and no kept-alive connection is left", func() bool {
		st := r.status("up")
		return st.State == Degraded && strings.Contains(st.Error.Message, "refused")
	})
	_, err := r.do(tool("echo", ""))
	if ce := callError(t, err); ce.Sent || ce.Problem.Kind != KindConnect {
		t.Errorf("%+v: %v", ce, ce)
	}
	up.Up()
	r.ready()
	r.must(tool("echo", ""))
}

func TestB041_HTTP2(t *testing.T) {
	for _, era := range eras {
		t.Run(era.String(), func(t *testing.T) {
			up := upstreamtest.New(t, upstreamtest.Options{Era: era})
			var counter, h2 atomic.Int32
			up.On("increment", func(*upstreamtest.Call) {
				counter.Add(1)
				panic(http.ErrAbortHandler) // resets the stream
			})
			ts := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.ProtoMajor == 2 {
					h2.Add(1)
				}
				up.ServeHTTP(w, r)
			}))
			ts.EnableHTTP2 = true
			ts.StartTLS()
			t.Cleanup(func() { ts.CloseClientConnections(); ts.Close() })
			r := start(t, one(config.Server{URL: ts.URL + "/mcp"}), func(o *Options) {
				o.RoundTripper = func(_ string, base http.RoundTripper) http.RoundTripper {
					base.(*http.Transport).TLSClientConfig = ts.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
					return base
				}
			})
			r.ready()
			r.must(tool("echo", ""))
			for n := int32(1); n <= 5; n++ {
				_, err := r.do(tool("increment", ""))
				if ce := callError(t, err); !ce.Sent || counter.Load() != n {
					t.Fatalf("%d calls ran %d times: %+v", n, counter.Load(), ce)
				}
			}
			r.must(tool("echo", ""))
			if h2.Load() == 0 {
				t.Error("HTTP/2 was not used")
			}
		})
	}
}
