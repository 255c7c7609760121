package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
	"github.com/mcp-portal/mcp-portal/internal/testbrowser"
	"github.com/mcp-portal/mcp-portal/store/storetest"
)

// A rule names the leads as approvers. Ann's run pauses; Ann, signed in in her
// browser, sees the question and cannot answer it; Bea, signed in in hers, finds
// it under Approvals and approves it with a click; then the run of Ann's client
// goes on, in both eras, and the call was made exactly once.
func TestAnotherPersonApprovesInABrowser(t *testing.T) {
	idp := authtest.StartFakeIdP(t)
	_, company := serveCompany(t, companyOptions)
	addr := freePort(t)
	base := "http://" + addr
	p := startProcess(t, "serve", "--config", writeConfig(t, fmt.Sprintf(`
listen: %s
url: %s
auth:
  mode: oidc
  accept: [idp]
  issuer: %s
  client_id: %s
  client_secret: %s
  admins: [staff]
guard:
  rules:
    - {name: four-eyes, servers: [tracker], tools: [issue_create], class: [write], action: approve, approvers: {groups: [leads]}}
servers:
%s`, addr, base, idp.Issuer, idp.ClientID, idp.ClientSecret, companyServers(company))))
	token := idp.Token(map[string]any{"sub": "ann", "aud": base + "/mcp", "name": "Ann", "groups": []string{"staff"}})
	p.waitServersAs(t, 8, token)
	tabs := testbrowser.People(t, 2)
	ann, bea := tabs[0], tabs[1]
	do := func(ctx context.Context, what string, a ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		if err := chromedp.Do(ctx, a...); err != nil {
			t.Fatalf("%s: %v\n%s", what, err, body(ctx))
		}
	}
	css := func(s string) chromedp.CSS { return chromedp.CSS(s) }
	// Both sign in at the portal, and both stay signed in.
	for ctx, u := range map[context.Context]authtest.User{ann: {Sub: "ann", Groups: []string{"staff"}}, bea: {Sub: "bea", Groups: []string{"leads"}}} {
		idp.SetUser(u)
		do(ctx, "sign in as "+u.Sub, chromedp.Navigate(base+"/approvals"), chromedp.WaitVisible(css("main h1")))
	}
	for _, e := range eras {
		s, err := connectAs(t, p, e, "optimize_context=search_and_execute", token)
		if err != nil {
			t.Fatal(err)
		}
		title := "approved by another " + string(e)
		res := call(t, s, "portal_execute", map[string]any{"code": fmt.Sprintf("const zones = (await dns.zones_list({})).result_info.total_count; const made = await tracker.issue_create({repo: 'portal', title: %q}); return {zones, number: made.number}", title)})
		var paused struct {
			Status, Run string
			Approvals   []struct{ URL string }
		}
		if err := json.Unmarshal(mustJSON(res.StructuredContent), &paused); err != nil || paused.Status != "paused" || len(paused.Approvals) != 1 {
			t.Fatalf("era %s: %s", e, text(t, res))
		}
		page := paused.Approvals[0].URL
		do(ann, "Ann looks", chromedp.Navigate(page), chromedp.WaitVisible(css("#args")))
		if b := body(ann); !strings.Contains(b, title) || !strings.Contains(b, "leads") {
			t.Errorf("era %s: what Ann sees: %s", e, b)
		}
		if n, err := chromedp.Run(ann, chromedp.Evaluate[int](`document.querySelectorAll('form.decide').length`)); err != nil || n != 0 {
			t.Errorf("era %s: Ann can answer herself: %d %v", e, n, err)
		}
		do(bea, "Bea finds it", chromedp.Navigate(base+"/approvals"), chromedp.Click(css(`a[href="/approvals/`+page[strings.LastIndex(page, "/")+1:]+`"]`)), chromedp.WaitVisible(css(`button[value="approve"]`)))
		if b := body(bea); !strings.Contains(b, title) {
			t.Errorf("era %s: what Bea sees: %s", e, b)
		}
		do(bea, "Bea approves", chromedp.Click(css(`button[value="approve"]`)), chromedp.WaitNotPresent(css("form.decide")))
		res = call(t, s, "portal_execute", map[string]any{"resume": paused.Run})
		if got := text(t, res); res.IsError || !strings.HasPrefix(got, `{"zones":55,"number":`) {
			t.Errorf("era %s: after the yes: %s", e, got)
		}
		if res := call(t, s, "portal_execute", map[string]any{"resume": paused.Run}); !res.IsError {
			t.Errorf("era %s: a run that has ended went on: %s", e, text(t, res))
		}
	}
	p.stop() // the audit is complete
	raw, err := os.ReadFile(filepath.Join(filepath.Dir(p.config(t)), "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	for line := range strings.Lines(string(raw)) {
		if strings.Contains(line, `"capability":"issue_create"`) && strings.Contains(line, `"status":"ok"`) {
			made++
		}
	}
	if made != len(eras) {
		t.Errorf("%d issues were created, want one for each era", made)
	}
}

// grant releases several calls of a run on the page of an approval.
func (b *browser) grant(u string, calls int) {
	b.t.Helper()
	status, page := b.get(u)
	m := csrfField.FindStringSubmatch(page)
	if status != 200 || m == nil {
		b.t.Fatalf("the approval page %s answered %d and has no form:\n%s", u, status, page)
	}
	resp, err := b.c.PostForm(u, url.Values{"csrf": {m[1]}, "decision": {"grant"}, "calls": {fmt.Sprint(calls)}})
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, page := b.get(u); !strings.Contains(page, "Approved") {
		b.t.Fatalf("grant: %s\n%s", resp.Status, page)
	}
}

// body is the text of the page.
func body(ctx context.Context) string {
	s, err := chromedp.Run(ctx, chromedp.Text(chromedp.CSS("body")))
	if err != nil {
		return err.Error()
	}
	return s
}

// Budgets, taints and grants are those of a user, a session and a run, not of a
// replica: two on one Redis count together.
func TestGuardStateIsSharedByReplicas(t *testing.T) {
	redis := storetest.StartRedis(t)
	_, company := serveCompany(t, companyOptions)
	yaml := fmt.Sprintf(`listen: 127.0.0.1:0
auth: {mode: none}
store: {redis: %q}
guard:
  rules:
    - {name: few, tools: [zones_list], action: allow, budget: {per_hour: 4}}
    - {name: posts, tools: [message_post], class: [write], mode: [code], action: approve, grant: 3}
    - {name: tainted, tools: [contacts_search], when: '"untrusted" in run.taints', action: deny, reason: it has read what strangers wrote}
    - {name: contacts, tools: [contacts_search], action: allow}
servers:
%s`, redis.URL(), strings.Replace(companyServers(company), "  dns:\n", "  dns:\n    labels: []\n", 1))
	a := startProcess(t, "serve", "--config", writeConfig(t, yaml))
	b := startProcess(t, "serve", "--config", writeConfig(t, yaml))
	a.waitServers(t, 8)
	b.waitServers(t, 8)

	// Four calls in an hour: two here, two there, and no fifth anywhere.
	sa, sb := connect(t, a, modern, "", nil), connect(t, b, modern, "", nil)
	for i := range 6 {
		s := sa
		if i%2 == 1 {
			s = sb
		}
		res := call(t, s, "dns_zones_list", map[string]any{})
		if over := strings.Contains(text(t, res), "4 calls of one user in any hour"); over != (i >= 4) || res.IsError != over {
			t.Errorf("call %d: %s", i+1, text(t, res))
		}
	}

	// A session that reads at A is tainted at B; another user's client is not.
	explain := func(p *process, client string) string {
		t.Helper()
		h := map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "crm_contacts_search"}
		_, raw := post(t, p.URL, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"crm_contacts_search","arguments":{"query":"a"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"`+client+`","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`, h)
		return string(raw)
	}
	if got := explain(b, "reader"); strings.Contains(got, "strangers") {
		t.Fatalf("before anything was read: %s", got)
	}
	if got := explain(a, "reader"); !strings.Contains(got, "strangers") {
		t.Errorf("what was read at B does not count at A: %s", got)
	}
	if got := explain(a, "another"); strings.Contains(got, "strangers") {
		t.Errorf("another client is tainted: %s", got)
	}

	// A grant given on B's page for a run that paused at A releases its calls
	// wherever it goes on, three in all.
	ca, cb := connect(t, a, legacy, "optimize_context=search_and_execute", nil), connect(t, b, legacy, "optimize_context=search_and_execute", nil)
	res := call(t, ca, "portal_execute", map[string]any{"code": "let n = 0; for (let i = 0; i < 4; i++) { await chat.message_post({channel_id: 'C000', text: 'grant ' + i}); n++ } return n"})
	var paused struct {
		Status, Run string
		Approvals   []struct{ URL string }
	}
	read := func() {
		t.Helper()
		paused.Status, paused.Approvals = "", nil
		if err := json.Unmarshal(mustJSON(res.StructuredContent), &paused); err != nil || paused.Status != "paused" || len(paused.Approvals) != 1 {
			t.Fatalf("%s", text(t, res))
		}
	}
	read()
	path := paused.Approvals[0].URL[strings.Index(paused.Approvals[0].URL, "/approvals/"):]
	a.kill() // who held the run is gone before anybody answers
	newBrowser(t).grant(b.base()+path, 3)
	res = call(t, cb, "portal_execute", map[string]any{"resume": paused.Run})
	read() // the fourth needs its own yes
	if path == paused.Approvals[0].URL[strings.Index(paused.Approvals[0].URL, "/approvals/"):] {
		t.Errorf("the same approval asks again")
	}
	newBrowser(t).decide(b.base()+paused.Approvals[0].URL[strings.Index(paused.Approvals[0].URL, "/approvals/"):], "approve")
	res = call(t, cb, "portal_execute", map[string]any{"resume": paused.Run})
	if res.IsError || text(t, res) != "4" {
		t.Errorf("%s", text(t, res))
	}
}
