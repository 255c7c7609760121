package e2e

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// What tools/list shows in every mode, in both eras.
func TestModes(t *testing.T) {
	p := demo(t)
	for _, e := range eras {
		for query, want := range map[string][]string{
			"optimize_context=search_and_execute": {"portal_query_tools", "portal_execute"},
			"codemode=search_and_execute":         {"portal_codemode_search", "portal_codemode_execute"},
			"codemode=code":                       {"portal_code"},
		} {
			s := connect(t, p, e, query, nil)
			if got := names(t, s); !slices.Equal(got, want) {
				t.Errorf("era %s, %s: tools are %v, want %v", e, query, got, want)
			}
		}
		for _, query := range []string{"", "codemode=off", "codemode=false"} {
			s := connect(t, p, e, query, nil)
			got := names(t, s)
			if len(got) != 32+3 {
				t.Errorf("era %s, %q: %d tools, want the 32 of the company and 3 of the portal", e, query, len(got))
			}
			for _, n := range []string{"portal_list_servers", "portal_toggle_servers", "portal_toggle_single_server", "dns_zones_list", "tracker_search", "crm_search", "kb_search"} {
				if !slices.Contains(got, n) {
					t.Errorf("era %s, %q: %s is missing", e, query, n)
				}
			}
		}
		s := connect(t, p, e, "optimize_context=minimize_tools", nil)
		list, err := s.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Tools) != 32+1 {
			t.Errorf("era %s, minimize_tools: %d tools, want 33", e, len(list.Tools))
		}
		for _, tool := range list.Tools {
			if tool.Name != "portal_query_tools" && tool.Description != "" {
				t.Errorf("era %s, minimize_tools: %s has a description", e, tool.Name)
			}
		}
	}
}

// An unknown value is an error that names the known ones, never a fallback.
func TestUnknownModeIsAnError(t *testing.T) {
	p := demo(t)
	init := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`
	for _, query := range []string{"optimize_context=serach", "optimize_context=", "codemode=on", "codemode=Off", "optimize_context=minimize_tools&optimize_context=minimize_tools", "optimize_context=minimize_tools&codemode=code"} {
		for _, body := range []string{init, list} {
			resp, b := post(t, p.URL+"?"+query, body, nil)
			var m struct {
				Error *struct {
					Message string `json:"message"`
				} `json:"error"`
			}
			if err := json.Unmarshal(b, &m); err != nil || m.Error == nil || resp.StatusCode != http.StatusBadRequest {
				t.Fatalf("%s: status %d, %s", query, resp.StatusCode, b)
			}
			key, _, _ := strings.Cut(query, "=")
			if !strings.Contains(m.Error.Message, key) {
				t.Errorf("%s: the error does not name %s: %s", query, key, m.Error.Message)
			}
		}
	}
}

// A tool is called under its outward name in every mode that lists it.
func TestCallInEveryMode(t *testing.T) {
	p := demo(t)
	for _, e := range eras {
		for _, query := range []string{"", "optimize_context=minimize_tools"} {
			s := connect(t, p, e, query, nil)
			res := call(t, s, "dns_zones_list", map[string]any{"per_page": 3})
			var v struct {
				Result []json.RawMessage `json:"result"`
			}
			if err := json.Unmarshal([]byte(text(t, res)), &v); err != nil || len(v.Result) != 3 {
				t.Errorf("era %s, %q: %s", e, query, text(t, res))
			}
		}
		s := connect(t, p, e, "optimize_context=search_and_execute", nil)
		res := call(t, s, "portal_execute", map[string]any{"tool": "dns_zones_list", "arguments": map[string]any{"per_page": 3}})
		if res.IsError || !strings.Contains(text(t, res), `"per_page":3`) {
			t.Errorf("era %s, portal_execute with a tool: %s", e, text(t, res))
		}
		for query, tool := range map[string]string{"optimize_context=search_and_execute": "portal_execute", "codemode=search_and_execute": "portal_codemode_execute", "codemode=code": "portal_code"} {
			s := connect(t, p, e, query, nil)
			for _, code := range []string{
				"const r = await codemode.dns_zones_list({per_page: 3}); return r.result_info.total_count",
				"return (await dns.zones_list({per_page: 3})).result_info.total_count",
				"async () => (await codemode.call('dns_zones_list', {})).result_info.total_count",
			} {
				res := call(t, s, tool, map[string]any{"code": code})
				if res.IsError || text(t, res) != "55" {
					t.Errorf("era %s, %s: %s answered %q", e, query, code, text(t, res))
				}
			}
		}
		s = connect(t, p, e, "codemode=search_and_execute", nil)
		res = call(t, s, "portal_codemode_search", map[string]any{"code": "return (await codemode.tools()).filter(t => t.server === 'dns').length"})
		if text(t, res) != "5" {
			t.Errorf("era %s, portal_codemode_search: %s", e, text(t, res))
		}
	}
}

// Prompts and resources of the servers pass through under their names.
func TestPromptsAndResources(t *testing.T) {
	p := demo(t)
	for _, e := range eras {
		s := connect(t, p, e, "", nil)
		prompts := 0
		for pr, err := range s.Prompts(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			if pr.Name == "tracker_triage_issue" {
				prompts++
			}
		}
		if prompts != 1 {
			t.Errorf("era %s: tracker_triage_issue is listed %d times", e, prompts)
		}
		got, err := s.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "tracker_triage_issue", Arguments: map[string]string{"repo": "portal", "number": "1"}})
		if err != nil || len(got.Messages) == 0 {
			t.Errorf("era %s: prompts/get: %v", e, err)
		}
		docs := 0
		for r, err := range s.Resources(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(r.URI, "doc://") {
				docs++
			}
		}
		if docs != 34 {
			t.Errorf("era %s: %d documents are listed as resources, want 34 (the server pages them by 10)", e, docs)
		}
		read, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "doc://doc_000"})
		if err != nil || len(read.Contents) == 0 || !strings.Contains(read.Contents[0].Text, "Replica rollback") {
			t.Errorf("era %s: resources/read: %v", e, err)
		}
		if _, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "doc://nothing"}); err == nil {
			t.Errorf("era %s: an unknown resource was read", e)
		}
	}
}

// The home page of a fresh portal answers without sign-in in development mode.
func TestHomePage(t *testing.T) {
	p := demo(t)
	resp, err := http.Get(p.base() + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") {
		t.Fatalf("GET /: %s %s", resp.Status, resp.Header.Get("Content-Type"))
	}
}

// One flag puts the example company back to its beginning.
func TestDemoReset(t *testing.T) {
	addr := freePort(t)
	p := demo(t, "--company", addr, "--guard", "open")
	s := connect(t, p, legacy, "", nil)
	count := func() string {
		return text(t, call(t, s, "kb_articles_list", nil))
	}
	before := count()
	if res := call(t, s, "kb_article_create", map[string]any{"title": "T", "body": "B"}); res.IsError || count() == before {
		t.Fatalf("nothing was created: %s", text(t, res))
	}
	if out, err := exec.Command(binary, "demo", "--company", addr, "--reset").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if count() != before {
		t.Error("the state was not reset")
	}
	for _, args := range [][]string{{"--reset"}, {"--listen", "0.0.0.0:0"}, {"--company", "0.0.0.0:0"}} {
		out, err := exec.Command(binary, append([]string{"demo"}, args...)...).CombinedOutput()
		if err == nil || len(out) == 0 {
			t.Errorf("demo %v: accepted: %s", args, out)
		}
	}
}

// The demo has an HTTP API with an OpenAPI document, if wanted: its operations
// are tools like others, its writes are asked for.
func TestDemoWithAnAPI(t *testing.T) {
	p := startProcess(t, "demo", "--listen", "127.0.0.1:0", "--api")
	p.waitServers(t, 9)
	s := connect(t, p, modern, "", nil)
	if got := text(t, call(t, s, "warehouse_items_list", map[string]any{"below": 1})); !strings.Contains(got, "headset-n") || strings.Contains(got, "dock-12") {
		t.Errorf("items: %s", got)
	}
	book := map[string]any{"sku": "dock-12", "body": map[string]any{"quantity": 4, "note": "delivery"}}
	asked := call(t, s, "warehouse_movement_create", book)
	url := approvalURL.FindString(text(t, asked))
	if !asked.IsError || url == "" {
		t.Fatalf("a booking was not asked for: %s", text(t, asked))
	}
	newBrowser(t).decide(url, "approve")
	if res := call(t, s, "warehouse_movement_create", book); res.IsError {
		t.Errorf("after the approval: %s", text(t, res))
	}
	if got := text(t, call(t, s, "warehouse_item_get", map[string]any{"sku": "dock-12"})); !strings.Contains(got, `"in_stock":7`) {
		t.Errorf("after the booking: %s", got)
	}
}
