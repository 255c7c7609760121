package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// victims are destructive tools: one that says so, and one that claims to be
// read-only.
var victims = []struct{ tool, args, alias string }{
	{"billing_invoice_void", `{"id":"in_1b2904c80dc5"}`, "billing.invoice_void"},
	{"crm_contact_delete", `{"id":"53025"}`, "crm.contact_delete"},
}

// alive reads the victims back.
func alive(t *testing.T, p *process) {
	t.Helper()
	s := connect(t, p, legacy, "", nil)
	if got := text(t, call(t, s, "billing_invoice_get", map[string]any{"id": "in_1b2904c80dc5"})); !strings.Contains(got, `"open"`) {
		t.Fatalf("the invoice was changed: %s", got)
	}
	if got := call(t, s, "crm_contact_get", map[string]any{"id": "53025"}); got.IsError || !strings.Contains(text(t, got), "53025") {
		t.Fatalf("the contact was deleted: %s", text(t, got))
	}
}

// A destructive call is refused without approval in every mode, under every
// name, in both eras, by a client that cannot be asked and by one that says
// anything but yes.
func TestDestructiveIsRefusedEverywhere(t *testing.T) {
	p := demo(t)
	answers := map[string]func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error){
		"cannot be asked": nil,
		"declines": func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "decline"}, nil
		},
		"cancels": func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "cancel"}, nil
		},
		"says deny": func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "deny"}}, nil
		},
		"fails": func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return nil, fmt.Errorf("no")
		},
	}
	for _, e := range eras {
		for what, answer := range answers {
			opt := &mcp.ClientOptions{}
			if answer != nil {
				opt.ElicitationHandler = answer
			}
			for _, v := range victims {
				ways := []struct {
					query, tool string
					args        any
				}{
					{"", v.tool, json.RawMessage(v.args)},
					{"optimize_context=minimize_tools", v.tool, json.RawMessage(v.args)},
					{"optimize_context=search_and_execute", "portal_execute", map[string]any{"tool": v.tool, "arguments": json.RawMessage(v.args)}},
					{"optimize_context=search_and_execute", "portal_execute", map[string]any{"tool": v.alias, "arguments": json.RawMessage(v.args)}},
					{"optimize_context=search_and_execute", "portal_execute", map[string]any{"code": "return await codemode." + v.tool + "(" + v.args + ")"}},
					{"optimize_context=search_and_execute", "portal_execute", map[string]any{"code": "return await " + v.alias + "(" + v.args + ")"}},
					{"optimize_context=search_and_execute", "portal_execute", map[string]any{"code": "return await codemode.call('" + v.tool + "', " + v.args + ")"}},
					{"codemode=search_and_execute", "portal_codemode_execute", map[string]any{"code": "return await " + v.alias + "(" + v.args + ")"}},
					{"codemode=code", "portal_code", map[string]any{"code": "return await " + v.alias + "(" + v.args + ")"}},
				}
				for _, w := range ways {
					s := connect(t, p, e, w.query, opt)
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					res, err := s.CallTool(ctx, &mcp.CallToolParams{Name: w.tool, Arguments: w.args})
					cancel()
					if err != nil {
						continue // refused with a protocol error (the client failed to answer)
					}
					if got := text(t, res); !strings.Contains(got, "pproval") && !strings.Contains(got, "Denied") {
						t.Errorf("era %s, client %s, %q %s %v: %s", e, what, w.query, w.tool, w.args, got)
					}
					_ = s.Close()
				}
			}
		}
	}
	for _, v := range victims {
		out, err := exec.Command(binary, "call", "--url", p.URL, v.tool, v.args).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "pproval") && !strings.Contains(string(out), "Denied") {
			t.Errorf("mcp-portal call %s: %v %s", v.tool, err, out)
		}
	}
	alive(t, p)
}

// A yes in the client releases exactly the call that was asked about, once.
func TestApproveByElicitation(t *testing.T) {
	for _, e := range eras {
		p := demo(t)
		asked := 0
		opt := &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			asked++
			for _, want := range []string{"billing", "invoice_void", "in_1b2904c80dc5"} {
				if !strings.Contains(r.Params.Message, want) {
					t.Errorf("era %s: the question does not show %s: %s", e, want, r.Params.Message)
				}
			}
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "approve"}}, nil
		}}
		s := connect(t, p, e, "", opt)
		for i := 1; i <= 2; i++ {
			res := call(t, s, "billing_invoice_void", map[string]any{"id": "in_1b2904c80dc5"})
			if asked != i {
				t.Errorf("era %s: asked %d times for %d calls: one approval must release one call", e, asked, i)
			}
			if i == 1 && (res.IsError || !strings.Contains(text(t, res), "void")) {
				t.Errorf("era %s: the approved call failed: %s", e, text(t, res))
			}
		}
		code := connect(t, p, e, "optimize_context=search_and_execute", &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "approve"}}, nil
		}})
		res := call(t, code, "portal_execute", map[string]any{"code": "const a = await chat.message_post({channel_id: 'C000', text: 'one'}); const b = await chat.message_post({channel_id: 'C000', text: 'two'}); return [a, b].length"})
		if res.IsError || text(t, res) != "2" {
			t.Errorf("era %s: approved calls inside code: %s", e, text(t, res))
		}
	}
}

// browser is a person at the portal's pages.
type browser struct {
	t *testing.T
	c *http.Client
}

func newBrowser(t *testing.T) *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &browser{t, &http.Client{Jar: jar}}
}

func (b *browser) get(u string) (int, string) {
	b.t.Helper()
	resp, err := b.c.Get(u)
	if err != nil {
		b.t.Fatalf("GET %s: %v", u, err)
	}
	defer resp.Body.Close()
	var sb strings.Builder
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		sb.Write(buf[:n])
		if err != nil {
			break
		}
	}
	return resp.StatusCode, sb.String()
}

var csrfField = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// decide opens an approval page and presses a button.
func (b *browser) decide(u, decision string) (int, string) {
	b.t.Helper()
	status, page := b.get(u)
	m := csrfField.FindStringSubmatch(page)
	if status != 200 || m == nil {
		b.t.Fatalf("the approval page %s answered %d and has no form:\n%s", u, status, page)
	}
	resp, err := b.c.PostForm(u, url.Values{"csrf": {m[1]}, "decision": {decision}})
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, ""
}

var approvalURL = regexp.MustCompile(`http://[^ "]+/approvals/[A-Za-z0-9_-]+`)

// A client that cannot be asked gets an address; after the yes on the page the
// same call goes through, once; other arguments need another yes.
func TestApproveOnThePage(t *testing.T) {
	p := demo(t)
	for _, e := range eras {
		s := connect(t, p, e, "", nil)
		args := map[string]any{"channel_id": "C000", "text": "hello from " + string(e)}
		res := call(t, s, "chat_message_post", args)
		u := approvalURL.FindString(text(t, res))
		if u == "" || !res.IsError {
			t.Fatalf("era %s: no address in: %s", e, text(t, res))
		}
		b := newBrowser(t)
		_, page := b.get(u)
		for _, want := range []string{"chat", "message_post", "hello from " + string(e)} {
			if !strings.Contains(page, want) {
				t.Errorf("era %s: the page does not show %q", e, want)
			}
		}
		if resp, err := b.c.PostForm(u, url.Values{"decision": {"approve"}}); err != nil || resp.StatusCode != 403 {
			t.Errorf("era %s: a form without CSRF token was answered %v %v", e, resp.Status, err)
		}
		if again := call(t, s, "chat_message_post", args); !again.IsError {
			t.Fatalf("era %s: ran without approval", e)
		}
		b.decide(u, "approve")
		if other := call(t, s, "chat_message_post", map[string]any{"channel_id": "C001", "text": "hello from " + string(e)}); !other.IsError {
			t.Errorf("era %s: an approval released a call with other arguments", e)
		}
		if done := call(t, s, "chat_message_post", args); done.IsError {
			t.Errorf("era %s: the approved call failed: %s", e, text(t, done))
		}
		if twice := call(t, s, "chat_message_post", args); !twice.IsError {
			t.Errorf("era %s: one approval released two calls", e)
		}
	}
}

// Code pauses at a call that needs a yes and goes on after it.
func TestPausedCodeGoesOn(t *testing.T) {
	p := demo(t)
	for _, e := range eras {
		s := connect(t, p, e, "optimize_context=search_and_execute", nil)
		res := call(t, s, "portal_execute", map[string]any{"code": `
			const before = (await codemode.dns_zones_list({})).result_info.total_count;
			const posted = await chat.message_post({channel_id: 'C000', text: 'from code ` + string(e) + `'});
			return {before, posted: !!posted};`})
		var paused struct {
			Status    string
			Run       string
			Approvals []struct{ URL, Server, Tool string }
		}
		b, _ := json.Marshal(res.StructuredContent)
		if err := json.Unmarshal(b, &paused); err != nil || paused.Status != "paused" || len(paused.Approvals) != 1 {
			t.Fatalf("era %s: %s %s", e, text(t, res), b)
		}
		newBrowser(t).decide(paused.Approvals[0].URL, "approve")
		res = call(t, s, "portal_execute", map[string]any{"resume": paused.Run})
		if res.IsError || text(t, res) != `{"before":55,"posted":true}` {
			t.Errorf("era %s: resumed run answered %s", e, text(t, res))
		}
		if res = call(t, s, "portal_execute", map[string]any{"resume": paused.Run}); !res.IsError {
			t.Errorf("era %s: a finished run was resumed", e)
		}

		res = call(t, s, "portal_execute", map[string]any{"code": `
			try { await chat.message_post({channel_id: 'C000', text: 'no ` + string(e) + `'}); return 'posted' } catch (e) { return e.code }`})
		b, _ = json.Marshal(res.StructuredContent)
		if err := json.Unmarshal(b, &paused); err != nil || paused.Status != "paused" {
			t.Fatalf("era %s: %s", e, text(t, res))
		}
		newBrowser(t).decide(paused.Approvals[0].URL, "deny")
		if res = call(t, s, "portal_execute", map[string]any{"resume": paused.Run}); text(t, res) != "denied" {
			t.Errorf("era %s: a denied call gave the code %q", e, text(t, res))
		}
	}
}

// Of a member that is sent twice, the one that was judged is the one that is
// sent.
func TestDuplicateArgumentsCannotSlipThrough(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	hs := &http.Server{Handler: rawUpstream(func(method string, params json.RawMessage) string {
		switch method {
		case "tools/list":
			return `{"tools":[{"name":"read","inputSchema":{"type":"object","properties":{}},"annotations":{"readOnlyHint":true}},{"name":"write","inputSchema":{"type":"object","properties":{}}}]}`
		case "tools/call":
			got <- string(params)
			return `{"content":[]}`
		}
		return ""
	})}
	go func() { _ = hs.Serve(ln) }()
	defer hs.Close()
	p := startProcess(t, "serve", "--config", writeConfig(t, oneServer("http://"+ln.Addr().String()+"/mcp")))
	p.waitServers(t, 1)
	_, b := post(t, p.URL, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up_write","arguments":{"a":1},"name":"up_read","arguments":{"b":2}}}`, nil)
	params := <-got
	if strings.Count(params, `"arguments"`) != 1 || strings.Count(params, `"name"`) != 1 || !strings.Contains(params, `"b":2`) || !strings.Contains(params, `"read"`) {
		t.Errorf("sent %s, answered %s", params, b)
	}
}
