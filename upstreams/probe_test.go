package upstreams

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestTargets(t *testing.T) {
	for _, tc := range []struct{ transport, url, want string }{
		{"auto", "http://h/mcp", "streamable-http http://h/mcp"},
		{"auto", "http://h/x/mcp/?k=1", "streamable-http http://h/x/mcp/?k=1"},
		{"auto", "http://h/sse", "sse http://h/sse"},
		{"auto", "http://h/api?k=1", "streamable-http http://h/api?k=1|sse http://h/api?k=1|streamable-http http://h/api/mcp?k=1|sse http://h/api/sse?k=1"},
		{"auto", "https://h", "streamable-http https://h|sse https://h|streamable-http https://h/mcp|sse https://h/sse"},
		{"streamable-http", "http://h/sse", "streamable-http http://h/sse"},
		{"sse", "http://h/mcp", "sse http://h/mcp"},
		{"stdio", "", "stdio "},
	} {
		ts, err := targets(tc.transport, tc.url)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, x := range ts {
			got = append(got, x.transport+" "+x.url)
		}
		if strings.Join(got, "|") != tc.want {
			t.Errorf("%s %s: %s, want %s", tc.transport, tc.url, strings.Join(got, "|"), tc.want)
		}
	}
	for _, bad := range []string{"", "/mcp", "ftp://h/mcp", "http://", "://"} {
		if _, err := targets("auto", bad); err == nil {
			t.Errorf("%q is taken for a URL", bad)
		}
	}
}

func TestProbing(t *testing.T) {
	sdk := sdkServer()
	streamable := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return sdk }, nil)
	sse := mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return sdk }, nil)
	for _, tc := range []struct {
		name, path string
		h          http.Handler
		ask        string
		want       string
	}{
		{"streamable at the url", "/x", streamable, "/x", "streamable-http"},
		{"sse at the url", "/x", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && r.URL.Query().Get("sessionid") == "" {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			sse.ServeHTTP(w, r)
		}), "/x", "sse"},
		{"streamable below", "/x/mcp", streamable, "/x", "streamable-http"},
		{"sse below", "/x/sse", sse, "/x", "sse"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := start(t, one(config.Server{URL: serveHTTP(t, tc.path, tc.h) + tc.ask}), nil)
			r.ready()
			if st := r.status("up"); st.Transport != tc.want {
				t.Errorf("%+v", st)
			}
			r.must(tool("echo", ""))
		})
	}
	t.Run("nothing there", func(t *testing.T) {
		r := start(t, one(config.Server{URL: serveHTTP(t, "/y", streamable) + "/x"}), nil)
		until(t, "degraded", func() bool { return r.status("up").State == Degraded })
		if p := r.status("up").Error; !strings.Contains(p.Message, "no MCP server found") || !strings.Contains(p.Message, "/x/sse") {
			t.Errorf("%+v", p)
		}
	})
	t.Run("another error stops", func(t *testing.T) {
		var mu sync.Mutex
		var paths []string
		url := serveHTTP(t, "/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			paths = append(paths, r.URL.Path)
			http.Error(w, "no", http.StatusForbidden)
		}))
		r := start(t, one(config.Server{URL: url + "/x"}), nil)
		until(t, "degraded", func() bool { return r.status("up").State == Degraded })
		if p := r.status("up").Error; p.Kind != KindAuth || p.HTTPStatus != 403 {
			t.Errorf("%+v", p)
		}
		mu.Lock()
		defer mu.Unlock()
		if slices.ContainsFunc(paths, func(p string) bool { return p != "/x" }) {
			t.Errorf("tried %v", paths)
		}
	})
}

func TestEras(t *testing.T) {
	answer := func(f func(c *upstreamtest.Call, tries int32) bool) func(*upstreamtest.Call) bool {
		var n atomic.Int32
		return func(c *upstreamtest.Call) bool {
			return c.Method == "server/discover" && f(c, n.Add(1))
		}
	}
	for _, tc := range []struct {
		name   string
		era    upstreamtest.Era
		handle func(*upstreamtest.Call) bool
		want   string
	}{
		{"2026", upstreamtest.Modern, nil, wire.Version20260728},
		{"2025", upstreamtest.Legacy, nil, wire.Version20251125},
		{"unsupported version, then supported", upstreamtest.Modern, answer(func(c *upstreamtest.Call, n int32) bool {
			if n > 1 {
				return false
			}
			c.Raw(400, wire.TypeJSON, `{"jsonrpc":"2.0","id":`+string(c.ID)+`,"error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"],"requested":"2026-07-28"}}}`)
			return true
		}), wire.Version20260728},
		{"unsupported version", upstreamtest.Legacy, answer(func(c *upstreamtest.Call, _ int32) bool {
			c.Raw(400, wire.TypeJSON, `{"jsonrpc":"2.0","id":`+string(c.ID)+`,"error":{"code":-32022,"message":"no","data":{"supported":["2025-11-25"]}}}`)
			return true
		}), wire.Version20251125},
		{"400 without JSON", upstreamtest.Legacy, answer(func(c *upstreamtest.Call, _ int32) bool { c.Raw(400, "text/plain", "no session"); return true }), wire.Version20251125},
		{"202", upstreamtest.Legacy, answer(func(c *upstreamtest.Call, _ int32) bool { c.Raw(202, "", ""); return true }), wire.Version20251125},
		{"never answers", upstreamtest.Legacy, answer(func(c *upstreamtest.Call, _ int32) bool { <-c.Context().Done(); return true }), wire.Version20251125},
	} {
		t.Run(tc.name, func(t *testing.T) {
			up := upstreamtest.New(t, upstreamtest.Options{Era: tc.era, Handle: tc.handle})
			r := start(t, one(at(up)), func(o *Options) { o.DiscoverTimeout = 300 * time.Millisecond })
			r.ready()
			if st := r.status("up"); st.Protocol != tc.want {
				t.Errorf("%+v", st)
			}
			r.must(tool("echo", ""))
			discovers := up.Count("server/discover")
			up.Down()
			up.ForgetSessions()
			up.Up()
			until(t, "calls go through again", func() bool { _, err := r.do(tool("echo", "")); return err == nil })
			if tc.era == upstreamtest.Legacy && up.Count("server/discover") != discovers {
				t.Error("the era is not remembered")
			}
		})
	}
}

func TestUnknownVersion(t *testing.T) {
	up := upstreamtest.New(t, upstreamtest.Options{Handle: func(c *upstreamtest.Call) bool {
		if c.Method == "initialize" {
			c.Result(`{"protocolVersion":"2031-01-01","capabilities":{}}`)
			return true
		}
		return false
	}})
	r := start(t, one(at(up)), nil)
	until(t, "degraded", func() bool { return r.status("up").State == Degraded })
	if p := r.status("up").Error; !strings.Contains(p.Message, `"2031-01-01"`) {
		t.Errorf("%+v", p)
	}
}

func TestOptionalListThatIsMissing(t *testing.T) {
	missing := func(method string) func(c *upstreamtest.Call) bool {
		return func(c *upstreamtest.Call) bool {
			if c.Method == method {
				c.Error(wire.CodeMethodNotFound, "unknown", "")
				return true
			}
			return false
		}
	}
	up := upstreamtest.New(t, upstreamtest.Options{Handle: missing("prompts/list")})
	r := start(t, one(at(up)), nil)
	r.ready()
	if w := r.published("up")[0].Warnings; len(w) != 1 || !strings.Contains(w[0], "prompts/list") {
		t.Errorf("warnings %q", w)
	}
	up = upstreamtest.New(t, upstreamtest.Options{Handle: missing("tools/list")})
	r = start(t, one(at(up)), nil)
	until(t, "tools that cannot be listed are a failure", func() bool { return r.status("up").State == Degraded })
	if p := r.status("up").Error; p.Kind != KindList || p.Code != wire.CodeMethodNotFound {
		t.Errorf("%+v", p)
	}
}

func TestOddLists(t *testing.T) {
	for name, body := range map[string]string{
		"no array":  `{"things":[]}`,
		"null":      `{"tools":null}`,
		"object":    `{"tools":{}}`,
		"no object": `[]`,
	} {
		t.Run(name, func(t *testing.T) {
			up := upstreamtest.New(t, upstreamtest.Options{Handle: func(c *upstreamtest.Call) bool {
				if c.Method == "tools/list" {
					c.Result(body)
					return true
				}
				return false
			}})
			r := start(t, one(at(up)), nil)
			until(t, "degraded", func() bool { return r.status("up").State == Degraded })
			if p := r.status("up").Error; p.Kind != KindList {
				t.Errorf("%+v", p)
			}
		})
	}
}

func TestNoGETIsRemembered(t *testing.T) {
	up := upstreamtest.New(t, upstreamtest.Options{NoGET: true})
	r := start(t, one(at(up)), nil)
	r.ready()
	until(t, "asked once", func() bool { return up.Count("GET") == 1 })
	for _, user := range []string{"ann", "bob", "eve"} {
		r.must(as(user, tool("echo", "")))
	}
	if _, err := r.List(deadline(t), "up"); err != nil {
		t.Fatal(err)
	}
	if got := up.Count("GET"); got != 1 {
		t.Errorf("%d GETs", got)
	}
}

func TestCredentials(t *testing.T) {
	const secret = "s3cret-token-value"
	var leaked atomic.Int32
	evil := serveHTTP(t, "/", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { leaked.Add(1) }))
	up := upstreamtest.New(t, upstreamtest.Options{})
	up.On("redirect", func(c *upstreamtest.Call) { c.Redirect(evil + "/mcp") })
	up.On("tell", func(c *upstreamtest.Call) {
		c.Raw(500, "text/plain", "bad token "+secret+" "+strings.Repeat("x", 5000))
	})
	r := start(t, one(config.Server{URL: up.URL, Bearer: secret, Headers: map[string]config.Secret{"X-Key": "another-secret"}}), nil)
	r.ready()
	for _, name := range []string{"redirect", "tell"} {
		_, err := r.do(tool(name, ""))
		ce := callError(t, err)
		if strings.Contains(ce.Error(), secret) || len(ce.Problem.Message) > 500 {
			t.Errorf("%s", ce)
		}
	}
	if leaked.Load() != 0 {
		t.Error("a redirect was followed")
	}
	if strings.Contains(r.logs.String(), secret) {
		t.Error("the log has the credential")
	}
	for _, q := range up.Requests() {
		if q.Header.Get("Authorization") != "Bearer "+secret || q.Header.Get("X-Key") != "another-secret" {
			t.Fatalf("%s %s without the credentials", q.HTTPMethod, q.Method)
		}
	}
	b, err := json.Marshal(r.Statuses())
	if err != nil || strings.Contains(string(b), secret) {
		t.Errorf("%s %v", b, err)
	}
}

func TestSSEToAnotherOrigin(t *testing.T) {
	url := serveHTTP(t, "/sse", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("event: endpoint\ndata: https://evil.example/messages\n\n"))
	})) + "/sse"
	r := start(t, one(config.Server{URL: url}), nil)
	until(t, "degraded", func() bool { return r.status("up").State == Degraded })
	if p := r.status("up").Error; p.Kind != KindProtocol || !strings.Contains(p.Message, "another origin") {
		t.Errorf("%+v", p)
	}
}

// Servers may send any coding to those who name none, and the portal reads none.
func TestNoCodingIsAskedFor(t *testing.T) {
	for _, era := range []upstreamtest.Era{upstreamtest.Legacy, upstreamtest.Modern} {
		up := upstreamtest.New(t, upstreamtest.Options{Era: era})
		r := start(t, one(at(up)), nil)
		r.ready()
		for _, seen := range up.Requests() {
			if got := seen.Header.Values("Accept-Encoding"); !slices.Equal(got, []string{"identity"}) {
				t.Errorf("%s %s: Accept-Encoding %q", seen.HTTPMethod, seen.Method, got)
			}
		}
	}
}
