package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// run runs the program and returns its output and exit code.
func run(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	b, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatalf("%v: %v", args, err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

// With --config a command sees and acts as any user of the configuration: a
// person, or a machine with its own limits.
func TestActingAsAUser(t *testing.T) {
	_, url := serveCompany(t, companyOptions)
	_, hash := newServiceToken(t, "nightly")
	cfg := writeConfig(t, fmt.Sprintf(`
listen: 127.0.0.1:0
url: http://127.0.0.1:9
auth:
  mode: oidc
  issuer: http://127.0.0.1:1
  allow_groups: [staff, service]
  service_tokens: [{id: nightly, hash: %q, groups: [service], servers: [dns]}]
guard:
  rules:
    - {name: no-zones-for-the-machine, users: ["svc:nightly"], tools: [zones_list], action: deny, reason: not at night}
servers:
%s`, hash, strings.Replace(companyServers(url), "  billing:\n", "  billing:\n    groups: [sales]\n", 1)))
	for _, c := range []struct {
		what string
		args []string
		code int
		want string
		not  string
	}{
		{"a person of sales", []string{"tools", "--config", cfg, "--user", "https://idp|1", "--groups", "staff,sales"}, 0, "billing (5 tools)", ""},
		{"a person of nothing more", []string{"tools", "--config", cfg, "--user", "a@b.c", "--groups", "staff"}, 0, "dns (5 tools)", "billing"},
		{"somebody who may not come in", []string{"tools", "--config", cfg, "--groups", "strangers"}, 1, "", "dns (5 tools)"},
		{"a machine", []string{"tools", "--config", cfg, "--user", "svc:nightly"}, 0, "dns (5 tools)", "tracker"},
		{"a machine's rule", []string{"call", "--config", cfg, "--user", "svc:nightly", "dns_zones_list"}, 2, "not at night", ""},
		{"a machine is not asked", []string{"call", "--config", cfg, "--user", "svc:nightly", "dns_record_delete", `{"zone_id":"x","record_id":"y"}`}, 2, "person", "/approvals/"},
		{"no such machine", []string{"tools", "--config", cfg, "--user", "svc:other"}, 1, "no service token", ""},
		{"nobody can approve there", []string{"call", "--config", cfg, "--groups", "staff", "chat_message_post", `{"channel_id":"C000","text":"x"}`}, 2, "--url", ""},
		{"--user without --config", []string{"tools", "--user", "anna"}, 1, "need --config", ""},
	} {
		out, code := run(t, c.args...)
		if code != c.code || !strings.Contains(out, c.want) || c.not != "" && strings.Contains(out, c.not) {
			t.Errorf("%s: exit code %d, want %d:\n%s", c.what, code, c.code, out)
		}
	}
}

// A script that waits for a person is not done: exit code 3.
func TestPausedScriptIsNotDone(t *testing.T) {
	p := demo(t)
	out, code := run(t, "call", "--url", p.URL, "--code", "return await chat.message_post({channel_id: 'C000', text: 'x'})")
	if code != 3 || !strings.Contains(out, "mcp-portal call --resume run_") {
		t.Errorf("exit code %d: %s", code, out)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"token"}, "mcp-portal token nightly-report"},
		{[]string{"demo", "--guard", "lax"}, "careful, read-only or open"},
		{[]string{"call", "--url", "http://127.0.0.1:1/mcp", "x"}, "no portal answers"},
		{[]string{"call", "dns_zones_list", "{not json"}, "not valid JSON"},
	} {
		if out, code := run(t, c.args...); code != 1 || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit code %d, want 1 and %q: %s", c.args, code, c.want, out)
		}
	}
}

// The answer of a plan names the plan: that id goes on as the one of its run.
func TestPlanGoesOnByItsID(t *testing.T) {
	_, url := serveCompany(t, companyOptions)
	p := startProcess(t, "serve", "--config", writeConfig(t, fmt.Sprintf(`listen: 127.0.0.1:0
auth: {mode: none}
guard: {rules: [{servers: [chat], class: [write], mode: [code], action: plan}]}
servers:
%s`, companyServers(url))))
	p.waitServers(t, 8)
	out, code := run(t, "call", "--url", p.URL, "--code", "return await chat.message_post({channel_id: 'C000', text: 'x'})")
	m := planPage.FindStringSubmatch(out)
	if code != 3 || m == nil {
		t.Fatalf("exit code %d: %s", code, out)
	}
	if status, page := newBrowser(t).decide(p.base()+m[0], "deny"); status != 200 {
		t.Fatalf("%d: %.500s", status, page)
	}
	if out, _ := run(t, "call", "--url", p.URL, "--resume", m[1]); !strings.Contains(out, "Plan "+m[1]) || !strings.Contains(out, "removed") {
		t.Errorf("going on with the plan: %s", out)
	}
}
