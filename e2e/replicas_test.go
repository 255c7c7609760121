package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/store/storetest"
)

// Two replicas on one Redis, without affinity: sessions, choices of servers,
// approvals and paused runs are the same on both.
func TestTwoReplicas(t *testing.T) {
	redis := storetest.StartRedis(t)
	_, url := serveCompany(t, companyOptions)
	yaml := fmt.Sprintf("listen: 127.0.0.1:0\nauth: {mode: none}\nstore: {redis: %q}\nservers:\n%s", redis.URL(), companyServers(url))
	a := startProcess(t, "serve", "--config", writeConfig(t, yaml))
	b := startProcess(t, "serve", "--config", writeConfig(t, yaml))
	a.waitServers(t, 8)
	b.waitServers(t, 8)

	// A 2025 session of one is a session of the other, with its choices.
	resp, _ := post(t, a.URL, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`, nil)
	h := map[string]string{"Mcp-Session-Id": resp.Header.Get("Mcp-Session-Id"), "Mcp-Protocol-Version": "2025-11-25"}
	if resp, body := post(t, b.URL, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"portal_toggle_single_server","arguments":{"server_id":"dns","action":"untoggle"}}}`, h); resp.StatusCode != 200 || !strings.Contains(string(body), "switched off") {
		t.Fatalf("A's session at B: %s %s", resp.Status, body)
	}
	eventually(t, "the choice made at B holds at A", func() error {
		if _, body := post(t, a.URL, `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`, h); strings.Contains(string(body), "dns_zones_list") {
			return fmt.Errorf("dns is still listed")
		}
		return nil
	})

	// A run that pauses at A is approved on B's page and resumed at B.
	sa := connect(t, a, legacy, "optimize_context=search_and_execute", nil)
	sb := connect(t, b, legacy, "optimize_context=search_and_execute", nil)
	res := call(t, sa, "portal_execute", map[string]any{"code": "const p = await chat.message_post({channel_id: 'C000', text: 'replicas'}); return {posted: !!p, zones: (await dns.zones_list({})).result_info.total_count}"})
	var paused struct {
		Status, Run string
		Approvals   []struct{ URL string }
	}
	if err := json.Unmarshal(mustJSON(res.StructuredContent), &paused); err != nil || paused.Status != "paused" {
		t.Fatalf("%s", text(t, res))
	}
	page := b.base() + paused.Approvals[0].URL[strings.Index(paused.Approvals[0].URL, "/approvals/"):]
	newBrowser(t).decide(page, "approve")
	res = call(t, sb, "portal_execute", map[string]any{"resume": paused.Run})
	if res.IsError || text(t, res) != `{"posted":true,"zones":55}` {
		t.Errorf("resumed at the other replica: %s", text(t, res))
	}
	if res = call(t, sb, "portal_execute", map[string]any{"resume": paused.Run}); !res.IsError {
		t.Errorf("resumed twice: %s", text(t, res))
	}

	// A 2026-07-28 client is asked by A and answers at B.
	ask := func(p *process, extra string) map[string]any {
		t.Helper()
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"portal_execute","arguments":{"code":"return !!(await chat.message_post({channel_id: 'C001', text: 'modern'}))"}` + extra +
			`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`
		resp, b := post(t, p.URL+"?optimize_context=search_and_execute", body, map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "portal_execute"})
		var m struct{ Result map[string]any }
		if err := json.Unmarshal(b, &m); err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s %s", resp.Status, b)
		}
		return m.Result
	}
	first := ask(a, "")
	if first["resultType"] != "input_required" {
		t.Fatalf("A did not ask: %v", first)
	}
	answers := map[string]any{}
	for k := range first["inputRequests"].(map[string]any) {
		answers[k] = map[string]any{"action": "accept", "content": map[string]any{"decision": "approve"}}
	}
	second := ask(b, fmt.Sprintf(`,"requestState":%q,"inputResponses":%s`, first["requestState"], mustJSON(answers)))
	if got := string(mustJSON(second["content"])); second["isError"] == true || !strings.Contains(got, `"true"`) {
		t.Errorf("answered at the other replica: %s", got)
	}

	// An end of a session is one everywhere.
	req, err := http.NewRequest("DELETE", b.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Mcp-Session-Id", h["Mcp-Session-Id"])
	if resp, err := http.DefaultClient.Do(req); err != nil || resp.StatusCode/100 != 2 {
		t.Fatalf("DELETE at B: %v %v", resp, err)
	}
	eventually(t, "the session ended at B has ended at A", func() error {
		if resp, _ := post(t, a.URL, `{"jsonrpc":"2.0","id":4,"method":"ping"}`, h); resp.StatusCode != 404 {
			return fmt.Errorf("%s", resp.Status)
		}
		return nil
	})

	// The holder of a run is killed: the other goes on with it, and makes the
	// call that had been made before the wait no second time.
	const once = "const a = await tracker.issue_create({repo: 'portal', title: 'one'}); const b = await tracker.issue_create({repo: 'portal', title: 'two'}); return b.number - a.number"
	res = call(t, sa, "portal_execute", map[string]any{"code": once})
	for _, p := range []*process{a, b} { // one approval before the kill, one after
		if err := json.Unmarshal(mustJSON(res.StructuredContent), &paused); err != nil || paused.Status != "paused" {
			t.Fatalf("%s", text(t, res))
		}
		newBrowser(t).decide(b.base()+paused.Approvals[0].URL[strings.Index(paused.Approvals[0].URL, "/approvals/"):], "approve")
		if p == a {
			res = call(t, sa, "portal_execute", map[string]any{"resume": paused.Run})
			a.kill()
			continue
		}
		res = call(t, sb, "portal_execute", map[string]any{"resume": paused.Run})
	}
	if got := text(t, res); res.IsError || got != "1" {
		t.Errorf("a run whose process was killed: %s", got)
	}
}
