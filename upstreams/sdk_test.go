package upstreams

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sdkServer is a real server of the official SDK with a few tools.
func sdkServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, nil)
	type in struct {
		Ms int `json:"ms,omitempty"`
		N  int `json:"n,omitempty"`
	}
	text := func(s string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
	}
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(context.Context, *mcp.CallToolRequest, in) (*mcp.CallToolResult, any, error) {
		return text("hello"), nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "sleep"}, func(ctx context.Context, _ *mcp.CallToolRequest, i in) (*mcp.CallToolResult, any, error) {
		select {
		case <-time.After(time.Duration(i.Ms) * time.Millisecond):
		case <-ctx.Done():
		}
		return text("slept"), nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "progress"}, func(ctx context.Context, r *mcp.CallToolRequest, i in) (*mcp.CallToolResult, any, error) {
		for n := range i.N {
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: float64(n)}); err != nil {
				return nil, nil, err
			}
		}
		return text("done"), nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "ask"}, func(ctx context.Context, r *mcp.CallToolRequest, _ in) (*mcp.CallToolResult, any, error) {
		res, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "sure?"})
		if err != nil {
			return nil, nil, err
		}
		return text("answer " + res.Action), nil, nil
	})
	s.AddPrompt(&mcp.Prompt{Name: "greet"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{}, nil
	})
	s.AddResource(&mcp.Resource{URI: "mem://x", Name: "x"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "mem://x", Text: "x"}}}, nil
	})
	return s
}

func serveHTTP(t *testing.T, path string, h http.Handler) string {
	mux := http.NewServeMux()
	mux.Handle(path, h)
	ts := httptest.NewServer(mux)
	t.Cleanup(func() { ts.CloseClientConnections(); ts.Close() })
	return ts.URL
}

func sdkSSE(t *testing.T) string {
	s := sdkServer()
	return serveHTTP(t, "/sse", mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return s }, nil)) + "/sse"
}

func TestOfficialServers(t *testing.T) {
	for _, tc := range []struct {
		name, protocol, transport string
		asks                      bool
		url                       func(t *testing.T, s *mcp.Server) string
	}{
		{"streamable stateful", "2025-11-25", "streamable-http", true, func(t *testing.T, s *mcp.Server) string {
			return serveHTTP(t, "/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
		}},
		{"streamable stateful json", "2025-11-25", "streamable-http", false, func(t *testing.T, s *mcp.Server) string {
			return serveHTTP(t, "/", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{JSONResponse: true}))
		}},
		{"streamable stateless", "2026-07-28", "streamable-http", false, func(t *testing.T, s *mcp.Server) string {
			return serveHTTP(t, "/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true}))
		}},
		{"sse", "", "sse", true, func(t *testing.T, s *mcp.Server) string {
			return serveHTTP(t, "/sse", mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return s }, nil))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sdk := sdkServer()
			r := start(t, one(config.Server{URL: tc.url(t, sdk)}), nil)
			r.ready()
			st := r.status("up")
			if st.Transport != tc.transport || tc.protocol != "" && st.Protocol != tc.protocol {
				t.Fatalf("status %+v", st)
			}
			c := r.published("up")[0]
			if names(c.Tools) != "ask,echo,progress,sleep" || names(c.Prompts) != "greet" || !strings.Contains(string(c.Resources[0]), "mem://x") {
				t.Fatalf("tools %s prompts %s resources %s", names(c.Tools), names(c.Prompts), c.Resources)
			}
			if !strings.Contains(string(c.ServerInfo), `"sdk"`) {
				t.Errorf("serverInfo %s", c.ServerInfo)
			}
			if got := r.must(tool("echo", "")); !strings.Contains(got, "hello") {
				t.Errorf("%s", got)
			}

			if tc.name != "streamable stateful json" {
				var seen []string
				call := tool("progress", `{"n":50}`)
				call.Params = json.RawMessage(`{"name":"progress","arguments":{"n":50},"_meta":{"progressToken":"mine"}}`)
				call.Notify = func(_ string, p json.RawMessage) {
					if !strings.Contains(string(p), `"mine"`) {
						t.Errorf("token of the caller is missing: %s", p)
					}
					seen = append(seen, string(p))
				}
				r.must(call)
				if len(seen) != 50 {
					t.Errorf("%d of 50 progress notifications", len(seen))
				}
			}
			if tc.asks {
				call := tool("ask", "")
				call.Capabilities = json.RawMessage(`{"elicitation":{"form":{}}}`)
				call.Session = "asking"
				call.Ask = answerElicitation
				if got := r.must(call); !strings.Contains(got, "answer accept") {
					t.Errorf("%s", got)
				}
			}
			listed := len(r.published("up"))
			var more atomic.Int32
			until(t, "list_changed of the SDK server is followed", func() bool {
				// A stream for notices may still be opening: announce again.
				mcp.AddTool(sdk, &mcp.Tool{Name: fmt.Sprintf("late%d", more.Add(1))}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
					return &mcp.CallToolResult{}, nil, nil
				})
				time.Sleep(30 * time.Millisecond)
				all := r.published("up")
				return len(all) > listed && strings.Contains(names(all[len(all)-1].Tools), "late")
			})
		})
	}
}
