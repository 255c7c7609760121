package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// guarded is a portal over the example company with rules of its own.
func guarded(t *testing.T, more string) (p *process, cfg string) {
	t.Helper()
	_, url := serveCompany(t, companyOptions)
	cfg = writeConfig(t, "listen: 127.0.0.1:0\nauth: {mode: none}\n"+more+"servers:\n"+companyServers(url))
	p = startProcess(t, "serve", "--config", cfg)
	p.waitServers(t, 8)
	return p, cfg
}

// explain says class, source, rule and decision, of a running portal and from
// a configuration, and the page of the tool says the same.
func TestGuardExplain(t *testing.T) {
	p, cfg := guarded(t, `guard:
  rules:
    - {name: small-posts, servers: [chat], when: args.text.size() < 10, action: allow}
    - {name: no-deletes, class: [destructive], mode: [code], action: deny, reason: not in scripts}
`)
	for _, c := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"crm_contact_delete"}, 0, []string{"contact_delete on server crm", "destructive, by ", "approve, by preset careful", "no-deletes: is not for mode direct", "rules      1 others"}},
		{[]string{"crm.contact_delete", "--mode", "code"}, 0, []string{"deny, by no-deletes", "not in scripts", "no-deletes: decides"}},
		{[]string{"chat_message_post"}, 0, []string{"may change by small-posts", "approve, by preset careful"}},
		{[]string{"chat_message_post", `{"text":"hi"}`}, 0, []string{"allow, by small-posts"}},
		{[]string{"chat_message_post", `{"text":"much longer than that"}`}, 0, []string{"approve, by preset careful", "its condition is false"}},
		{[]string{"no_such_tool"}, 1, []string{`no tool "no_such_tool"`}},
		{[]string{"chat_message_post", "{"}, 1, []string{"not valid JSON"}},
		{[]string{"chat_message_post", "--mode", "script"}, 1, []string{"none of direct, code"}},
	} {
		for _, portal := range [][]string{{"--url", p.URL}, {"--config", cfg}} {
			out, code := run(t, append(append([]string{"guard", "explain"}, portal...), c.args...)...)
			if code != c.code {
				t.Errorf("%v %v: exit code %d\n%s", portal, c.args, code, out)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("%v %v: %q is not in\n%s", portal, c.args, want, out)
				}
			}
		}
	}
	out, code := run(t, "guard", "explain", "--url", p.URL, "--json", "crm_contact_delete")
	var e struct{ Class, Decision, Rule, Source string }
	if err := json.Unmarshal([]byte(out), &e); err != nil || code != 0 || e.Class != "destructive" || e.Decision != "approve" || e.Rule == "" || e.Source == "" {
		t.Errorf("%v %s", err, out)
	}
	b := newBrowser(t)
	for path, want := range map[string][]string{
		"/servers":                               {`href="/servers/crm"`},
		"/servers/crm":                           {`href="/tools/crm_contact_delete"`, "a person is asked first", "destructive"},
		"/tools/crm_contact_delete":              {"destructive, by ", "a person is asked first", "preset careful", "is not for mode direct"},
		"/tools/crm_contact_delete?mode=code":    {"refused", "no-deletes", "not in scripts"},
		"/tools/chat_message_post?arguments=%7B": {"must be a JSON object"},
		"/tools/chat_message_post?arguments=%7B%22text%22%3A%22hi%22%7D": {"runs at once", "small-posts"},
	} {
		status, page := b.get(p.base() + path)
		for _, w := range want {
			if status != 200 || !strings.Contains(page, w) {
				t.Errorf("%s: %d, %q is not in it", path, status, w)
			}
		}
	}
	for _, path := range []string{"/tools/nothing", "/servers/nothing"} {
		if status, _ := b.get(p.base() + path); status != 404 {
			t.Errorf("%s: %d", path, status)
		}
	}
}

// The rules that were tried, which tell about other users, are for
// administrators; without a token nothing is said.
func TestGuardExplainTellsOthersLess(t *testing.T) {
	_, url := serveCompany(t, companyOptions)
	token, hash := newServiceToken(t, "ci")
	addr := freePort(t)
	p := startProcess(t, "serve", "--config", writeConfig(t, fmt.Sprintf(`
listen: %s
url: http://%s
auth:
  mode: oidc
  issuer: http://127.0.0.1:1
  service_tokens: [{id: ci, hash: %q, servers: [dns, chat]}]
guard:
  rules: [{name: secret-rule, users: [ceo@example.com], action: allow}]
servers:
%s`, addr, addr, hash, companyServers(url))))
	eventually(t, "the dns server is listed", func() error {
		out, code := run(t, "guard", "explain", "--url", p.URL, "--token", token, "dns_record_delete")
		if code != 0 {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	out, _ := run(t, "guard", "explain", "--url", p.URL, "--token", token, "dns_record_delete")
	if strings.Contains(out, "secret-rule") || !strings.Contains(out, "only administrators") {
		t.Error(out)
	}
	if out, code := run(t, "guard", "explain", "--url", p.URL, "--token", token, "crm_contact_delete"); code != 1 || !strings.Contains(out, "no tool") {
		t.Errorf("a tool that the caller may not see: %d %s", code, out)
	}
	if out, code := run(t, "guard", "suggest", "--url", p.URL, "--token", token, "crm"); code != 1 || strings.Contains(out, "contact_delete") {
		t.Errorf("a server that the caller may not see: %d %s", code, out)
	}
	if out, code := run(t, "guard", "explain", "--url", p.URL, "dns_record_delete"); code != 1 || !strings.Contains(out, "wants a token") {
		t.Errorf("without a token: %d %s", code, out)
	}
	for _, path := range []string{"/guard/tools?server=dns", "/tools/dns_record_delete", "/servers/dns"} {
		resp, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Get(p.base() + path)
		if err != nil || resp.StatusCode == 200 {
			t.Errorf("%s without a sign-in: %v %v", path, resp.Status, err)
		}
	}
}

// suggest writes a policy from the real tool list that check accepts, and
// whose classes count once they are in the configuration.
func TestGuardSuggest(t *testing.T) {
	p, cfg := guarded(t, "")
	for _, server := range []string{"billing", "chat", "crm", "dns", "docs", "kb", "logs", "tracker"} {
		out, code := run(t, "guard", "suggest", "--url", p.URL, server)
		if code != 0 {
			t.Fatalf("%s: %s", server, out)
		}
		file := writeConfig(t, out)
		if out, code := run(t, "check", "--config", file); code != 0 {
			t.Errorf("%s: check: %s", server, out)
		}
		again, _ := run(t, "guard", "suggest", "--config", cfg, server)
		if again != out {
			t.Errorf("%s: from the configuration it is another\n%s\n%s", server, out, again)
		}
	}
	out, _ := run(t, "guard", "suggest", "--url", p.URL, "crm")
	for _, want := range []string{`"contact_delete": {class: destructive}`, `"contact_get": {class: read}`} {
		if !strings.Contains(out, want) {
			t.Errorf("%s is not in\n%s", want, out)
		}
	}
	if out, code := run(t, "guard", "suggest", "--url", p.URL, "nothing"); code != 1 || !strings.Contains(out, `no server "nothing"`) {
		t.Errorf("%d %s", code, out)
	}
}

// test runs tables of tests; what fails has its line.
func TestGuardTest(t *testing.T) {
	cfg := writeConfig(t, `auth: {mode: none}
servers:
  dns: {url: https://dns.example.com/mcp, trust_annotations: true}
guard:
  rules:
    - {name: operators, groups: [operators], class: [write], when: "!has(args.ttl) || args.ttl >= 60", action: allow}
    - {name: tainted, when: '"private" in run.taints', action: deny, reason: it has read private data}
`)
	dir := filepath.Dir(cfg)
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	head := "users:\n  olga: {email: olga@example.com, groups: [operators]}\ntests:\n"
	for name, c := range map[string]struct {
		text string
		code int
		want []string
	}{
		"right": {head + `  - {name: operators may, server: dns, tool: record_create, annotations: {destructiveHint: false}, arguments: {ttl: 60}, user: olga, mode: [direct, code], expect: allow, rule: operators, class: write}
  - {name: others are asked, server: dns, tool: record_create, annotations: {destructiveHint: false}, expect: approve, rule: preset careful}
  - {server: dns, tool: record_delete, run: {taints: [private]}, expect: deny, reason: private data}
`, 0, []string{"3 tests, 4 calls", "0 wrong"}},
		"wrong": {head + `  - name: fine
    server: dns
    tool: x
    expect: approve
  - name: too short
    server: dns
    tool: record_create
    annotations: {destructiveHint: false}
    arguments: {ttl: 5}
    user: olga
    expect: allow
`, 2, []string{":8: too short: decided approve by preset careful (class write), want allow", "1 wrong"}},
		"typo":            {head + "  - server: dns\n    tool: x\n    expext: deny\n", 1, []string{":6: ", "expext"}},
		"no such server":  {head + "  - server: dsn\n    tool: x\n    expect: deny\n", 2, []string{`:4: test 1: server "dsn" is not in`}},
		"no such user":    {head + "  - {server: dns, tool: x, user: bob, expect: deny}\n", 2, []string{`:4: test 1: user: there is no "bob"`}},
		"no decision":     {head + "  - {server: dns, tool: x}\n", 2, []string{`:4: test 1: expect: "" is none of`}},
		"no YAML":         {"tests: [\n", 1, []string{":1: "}},
		"nothing in it":   {"config: portal.yaml\n", 1, []string{"it has no tests"}},
		"no such file":    {"config: other.yaml\n" + head + "  - {server: dns, tool: x, expect: deny}\n", 1, []string{"other.yaml"}},
		"the same twice":  {"tests: []\ntests: []\n", 1, []string{":2: "}},
		"a mode too many": {head + "  - {server: dns, tool: x, mode: [direct, script], expect: approve}\n", 2, []string{`:4: test 1: mode: "script" is none`}},
	} {
		file := write(strings.ReplaceAll(name, " ", "-")+"_test.yaml", c.text)
		out, code := run(t, "guard", "test", file)
		if code != c.code {
			t.Errorf("%s: exit code %d, want %d\n%s", name, code, c.code, out)
		}
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: %q is not in\n%s", name, want, out)
			}
		}
	}
	if out, code := run(t, "guard", "test", "--config", filepath.Join(dir, "none.yaml"), write("x_test.yaml", head+"  - {server: dns, tool: x, expect: deny}\n")); code != 1 {
		t.Errorf("%d %s", code, out)
	}
}

// replay runs a changed policy over what really happened.
func TestGuardReplay(t *testing.T) {
	p, cfg := guarded(t, "")
	s := connect(t, p, modern, "optimize_context=search_and_execute", nil)
	call(t, s, "portal_execute", map[string]any{"code": `
		for (let i = 0; i < 3; i++) await dns.zones_list({});
		try { await dns.record_delete({zone_id: 'a', record_id: 'b'}) } catch (e) { return e.code }`})
	direct := connect(t, p, legacy, "", nil)
	call(t, direct, "chat_message_post", map[string]any{"channel_id": "C000", "text": "hello"})
	p.stop() // the log is complete
	out, code := run(t, "guard", "replay", "--config", cfg, "--since", "1h")
	if code != 0 || !strings.Contains(out, "would differ, 0 cannot be told") || !strings.Contains(out, ", 0 would") {
		t.Errorf("the same policy: exit code %d\n%s", code, out)
	}
	text, err := os.ReadFile(cfg)
	if err != nil {
		t.Fatal(err)
	}
	change := func(guard string) string {
		next := filepath.Join(filepath.Dir(cfg), "next.yaml")
		if err := os.WriteFile(next, append(text, guard...), 0o600); err != nil {
			t.Fatal(err)
		}
		return next
	}
	next := change(`guard:
  rules:
    - {name: no-zones, tools: [zones_list], mode: [code], when: run.tool_calls >= 1, action: deny}
    - {name: short, servers: [chat], when: args.text.size() < 10, action: allow}
`)
	out, code = run(t, "guard", "replay", "--config", next)
	for _, want := range []string{"2× dns/zones_list: allow (preset careful) → deny (no-zones)", "1× chat/message_post: approve (preset careful) → approve or allow (preset careful)", "rule short looks at arguments, which the log does not hold", "not in the log"} {
		if code != 2 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, %q is not in\n%s", code, want, out)
		}
	}
	if out, code := run(t, "guard", "replay", "--config", cfg, "--audit", "/nonexistent"); code != 1 || !strings.Contains(out, "/nonexistent") {
		t.Errorf("%d %s", code, out)
	}
	if out, code := run(t, "guard", "replay", "--config", cfg, "--since", "1ns"); code != 0 || !strings.Contains(out, "0 decisions") {
		t.Errorf("%d %s", code, out)
	}
}
