package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// world is what a client meets behind a portal: the example company, and a
// server of the test with tools that report, ask and hang.
type world struct {
	yaml      string // of the servers
	servers   int
	up        *mcp.Server
	reported  chan float64  // the client got this progress
	hanging   chan struct{} // a call to "hang" is at the server
	cancelled chan struct{} // and was cancelled there
	grown     atomic.Int32
}

func newWorld(t *testing.T) *world {
	t.Helper()
	_, url := serveCompany(t, companyOptions)
	w := &world{servers: 9, up: mcp.NewServer(&mcp.Implementation{Name: "up", Version: "1"}, nil),
		reported: make(chan float64, 100), hanging: make(chan struct{}, 10), cancelled: make(chan struct{}, 10)}
	// Each report waits until the client has the one before: what is lost on
	// the way is seen, and no clock decides.
	rawTool(w.up, "report", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := 1; i <= 5; i++ {
			if err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: float64(i)}); err != nil {
				return nil, err
			}
			select {
			case got := <-w.reported:
				if got != float64(i) {
					return nil, fmt.Errorf("the client got %v, not %d", got, i)
				}
			case <-time.After(60 * time.Second):
				return nil, fmt.Errorf("progress %d never reached the client", i)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return say("reported")
	})
	rawTool(w.up, "ask", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		res, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: "which colour?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"decision":{"type":"string"}}}`)})
		if err != nil {
			return nil, err
		}
		return say(fmt.Sprint(res.Content["decision"]))
	})
	rawTool(w.up, "hang", func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		w.hanging <- struct{}{}
		select {
		case <-ctx.Done():
			w.cancelled <- struct{}{}
			return nil, ctx.Err()
		case <-time.After(5 * time.Minute):
			return say("nobody cancelled")
		}
	})
	w.yaml = companyServers(url) + "  up:\n    url: " + sdkServer(t, w.up) + "\n    trust_annotations: true\n"
	return w
}

func (w *world) grow() string {
	name := fmt.Sprintf("grown%d", w.grown.Add(1))
	rawTool(w.up, name, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return say(name) })
	return "up_" + name
}

// client is one way to reach a portal.
type client struct {
	era     era
	connect func(t *testing.T, query string, opt *mcp.ClientOptions) *mcp.ClientSession
	pages   func() string // origin of the pages
	streams func() int    // open streams of all replicas
}

func soon(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(90 * time.Second):
		t.Fatalf("never: %s", what)
	}
}

// wholeClientTest goes through everything that a client does.
func wholeClientTest(t *testing.T, w *world, c client) {
	changed := make(chan struct{}, 100)
	asked := make(chan string, 100)
	opt := &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			w.reported <- r.Params.Progress
		},
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			asked <- r.Params.Message
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "approve"}}, nil
		},
	}
	s := c.connect(t, "", opt)
	listed := func(tool string) bool {
		for _, n := range names(t, s) {
			if n == tool {
				return true
			}
		}
		return false
	}
	t.Run("list and call", func(t *testing.T) {
		if got := len(names(t, s)); got < 38 {
			t.Errorf("%d tools are listed", got)
		}
		for range 6 { // whatever replica it reaches
			if res := call(t, s, "dns_zones_list", map[string]any{"per_page": 2}); res.IsError {
				t.Errorf("call: %s", text(t, res))
			}
		}
		if _, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "no_such_tool"}); err == nil {
			t.Error("an unknown tool was called")
		}
	})
	t.Run("progress", func(t *testing.T) {
		params := &mcp.CallToolParams{Name: "up_report"}
		params.SetProgressToken("token-1")
		res, err := s.CallTool(t.Context(), params)
		if err != nil || res.IsError || text(t, res) != "reported" {
			t.Errorf("%v %v", res, err)
		}
	})
	t.Run("list_changed", func(t *testing.T) {
		eventually(t, "the client's stream is open", func() error {
			if c.streams() == 0 {
				return fmt.Errorf("no stream is open")
			}
			return nil
		})
		tool := w.grow()
		soon(t, "the client is told that its list changed", changed)
		if !listed(tool) {
			t.Errorf("%s is not listed", tool)
		}
	})
	t.Run("elicitation", func(t *testing.T) {
		if c.era == legacy {
			if res := call(t, s, "up_ask", nil); res.IsError || text(t, res) != "approve" {
				t.Errorf("a server's question: %s", text(t, res))
			}
			if got := <-asked; got != "which colour?" {
				t.Errorf("asked %q", got)
			}
		}
		// An approval is a question of the portal.
		if res := call(t, s, "chat_message_post", map[string]any{"channel_id": "C000", "text": "hello"}); res.IsError {
			t.Errorf("an approved call: %s", text(t, res))
		}
		if len(asked) != 1 {
			t.Errorf("asked %d times", len(asked))
		}
	})
	t.Run("approval on the page", func(t *testing.T) {
		mute := c.connect(t, "", &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
		args := map[string]any{"channel_id": "C001", "text": string("by page " + c.era)}
		res := call(t, mute, "chat_message_post", args)
		link := linkIn.FindString(text(t, res))
		if !res.IsError || link == "" {
			t.Fatalf("what needs approval: %s", text(t, res))
		}
		if status, page := newBrowser(t).decide(c.pages()+link, "approve"); status != 200 {
			t.Fatalf("the form: %d %s", status, page)
		}
		if res = call(t, mute, "chat_message_post", args); res.IsError {
			t.Errorf("the approved call: %s", text(t, res))
		}
	})
	t.Run("execute, pause, resume", func(t *testing.T) {
		mute := c.connect(t, "optimize_context=search_and_execute", &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
		res := call(t, mute, "portal_execute", map[string]any{"code": "const p = await chat.message_post({channel_id: 'C002', text: 'paused " + string(c.era) + "'}); return {posted: !!p, zones: (await dns.zones_list({})).result_info.total_count}"})
		var paused struct {
			Status, Run string
			Approvals   []struct{ URL string }
		}
		if err := json.Unmarshal(mustJSON(res.StructuredContent), &paused); err != nil || paused.Status != "paused" || len(paused.Approvals) != 1 {
			t.Fatalf("%s", text(t, res))
		}
		newBrowser(t).decide(c.pages()+linkIn.FindString(paused.Approvals[0].URL), "approve")
		for i := 0; ; i++ { // a resume reaches any replica
			res = call(t, mute, "portal_execute", map[string]any{"resume": paused.Run})
			if state, ok := res.StructuredContent.(map[string]any); !ok || state["status"] != "paused" || i == 10 {
				break
			}
		}
		if res.IsError || text(t, res) != `{"posted":true,"zones":55}` {
			t.Errorf("resumed: %s", text(t, res))
		}
	})
	t.Run("cancellation", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "up_hang"})
			gone <- err
		}()
		soon(t, "the call is at the server", w.hanging)
		cancel()
		soon(t, "the call is cancelled at the server", w.cancelled)
		if err := <-gone; err == nil {
			t.Error("a cancelled call has a result")
		}
	})
	t.Run("switches", func(t *testing.T) {
		for _, action := range []string{"untoggle", "toggle"} {
			if res := call(t, s, "portal_toggle_single_server", map[string]any{"server_id": "dns", "action": action}); res.IsError {
				t.Fatalf("%s: %s", action, text(t, res))
			}
			eventually(t, "the choice holds wherever the client asks", func() error {
				for range 4 {
					if listed("dns_zones_list") != (action == "toggle") {
						return fmt.Errorf("after %s dns is listed: %v", action, action == "untoggle")
					}
				}
				return nil
			})
		}
	})
}
