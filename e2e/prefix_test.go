package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// prefix: false offers the only server's names as they are, from one reload to
// the next and to sessions that are open: their clients are told, call by the
// new names, and scripts go on with theirs. With a second server the file is
// refused and nothing changes.
func TestPrefixIsSwitchedLive(t *testing.T) {
	srv := mcp.NewServer(&mcp.Implementation{Name: "up", Version: "1"}, nil)
	rawTool(srv, "hello", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return say("hello to you") })
	srv.AddPrompt(&mcp.Prompt{Name: "greet"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "greetings"}}}}, nil
	})
	prefixed := oneServer(sdkServer(t, srv))
	bare := prefixed + "    prefix: false\n"
	path := writeConfig(t, prefixed)
	p := startProcess(t, "serve", "--config", path)
	p.waitServers(t, 1)

	told := make(chan struct{}, 100)
	opt := &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { told <- struct{}{} }}
	var sessions []*mcp.ClientSession
	for _, e := range eras {
		sessions = append(sessions, connect(t, p, e, "", opt))
	}
	code := connect(t, p, legacy, "optimize_context=search_and_execute", nil)
	eventually(t, "all clients listen", func() error {
		if n, _ := p.status(t)["streams"].(float64); int(n) < len(sessions) {
			return fmt.Errorf("%v streams are open", n)
		}
		return nil
	})
	check := func(yaml, tool, gone, prompt string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		for range sessions {
			<-told // the test's own deadline is the only one
		}
		for _, s := range sessions {
			if list := names(t, s); !slices.Contains(list, tool) || slices.Contains(list, gone) {
				t.Errorf("listed: %q, want %s without %s", list, tool, gone)
			}
			if got := text(t, call(t, s, tool, nil)); got != "hello to you" {
				t.Errorf("%s answered %q", tool, got)
			}
			res, err := s.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: prompt})
			if err != nil || len(res.Messages) != 1 {
				t.Errorf("prompt %s: %v", prompt, err)
			}
			if _, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: gone}); err == nil || !strings.Contains(err.Error(), tool) {
				t.Errorf("calling %s: %v, want an error that names %s", gone, err, tool)
			}
		}
		script := map[string]any{"code": "return [await codemode.up_hello({}), await up.hello({}), await codemode.call('" + tool + "', {})]"}
		if got := text(t, call(t, code, "portal_execute", script)); strings.Count(got, "hello to you") != 3 {
			t.Errorf("a script got %q", got)
		}
	}
	check(bare, "hello", "up_hello", "greet")
	check(prefixed, "up_hello", "hello", "up_greet")
	check(bare, "hello", "up_hello", "greet")

	if err := os.WriteFile(path, []byte(bare+"  other: {url: http://127.0.0.1:1/mcp}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the file is refused", func() error {
		if out := p.output(); !strings.Contains(out, "servers.up.prefix") || !strings.Contains(out, "remove prefix") {
			return fmt.Errorf("the log does not say so")
		}
		return nil
	})
	if got := text(t, call(t, sessions[0], "hello", nil)); got != "hello to you" {
		t.Errorf("after a refused file: %q", got)
	}
}
