package gateway_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// company is a portal with sign-in; as returns the headers of a person.
func company(t *testing.T, yaml string) (p *portal, as func(user string, groups ...any) map[string]string) {
	t.Helper()
	idp := authtest.StartFakeIdP(t)
	p = start(t, "url: ORIGIN\nauth:\n  mode: oidc\n  accept: [idp]\n  issuer: "+idp.Issuer+"\n  client_id: x\n  client_secret: s\n"+yaml, nil)
	return p, func(user string, groups ...any) map[string]string {
		return map[string]string{"Authorization": "Bearer " + idp.Token(map[string]any{"sub": user, "aud": p.url + "/mcp", "groups": groups, "name": user})}
	}
}

var outwardNames = regexp.MustCompile(`"name":"([a-z]+_[a-z]+)"`)

// sees are the names of the tools of servers that a client lists.
func (c *client) sees() string {
	var out []string
	for _, m := range outwardNames.FindAllStringSubmatch(c.do("tools/list", "", nil).Raw, -1) {
		out = append(out, m[1])
	}
	return strings.Join(out, " ")
}

const machine = "mcpp_st_ci_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// A service token is no person: what needs a person's yes is refused for it in
// every way, however its client answers, and nothing is left to approve.
func TestMachinesGetNoApprovals(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	sum := sha256.Sum256([]byte(machine))
	p := start(t, "url: ORIGIN\nauth:\n  mode: oidc\n  issuer: http://127.0.0.1:1/\n  client_id: x\n  service_tokens:\n    - {id: ci, hash: 'sha256:"+hex.EncodeToString(sum[:])+"'}\n"+trusted(v), nil)
	h := map[string]string{"Authorization": "Bearer " + machine}
	eachEra(t, func(t *testing.T, e era) {
		for _, caps := range []string{noCaps, formCaps} {
			all, two := p.client(e, "", caps, h), p.client(e, twoTools, caps, h)
			if got := all.call("s_look", `{"id":"1"}`, "", nil); !strings.HasPrefix(got.text(), "ran look") {
				t.Fatalf("a read: %s", got.Raw)
			}
			for way, got := range map[string]answer{
				"direct":  all.call("s_kill", `{"id":"1"}`, "", always),
				"by name": two.call("portal_execute", `{"tool":"s_kill","arguments":{"id":"1"}}`, "", always),
				"in code": two.code("return await s.kill({id:'1'})", "", always),
			} {
				if !strings.Contains(got.text(), "a service token is no person") || approvalID.MatchString(got.Raw) || got.Result.ResultType == "input_required" {
					t.Errorf("%s, capabilities %s: %s", way, caps, got.Raw)
				}
			}
		}
	})
	for _, c := range v.calls() {
		if strings.Contains(c, "kill") {
			t.Errorf("arrived: %s", c)
		}
	}
}

// B127: the session of one user is unknown to every other, and lives on.
func TestB127_SessionOfAnotherUser(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p, as := company(t, trusted(v))
	ann := p.client(legacy, "", formCaps, as("ann"))
	thief := &client{p: p, era: legacy, caps: formCaps, header: as("bob"), session: ann.session}
	if got := thief.do("tools/list", "", nil); got.Status != http.StatusNotFound || strings.Contains(got.Raw, "s_look") {
		t.Errorf("POST: %d %s", got.Status, got.Raw)
	}
	if status := thief.end(nil); status != http.StatusNotFound {
		t.Errorf("DELETE: %d", status)
	}
	req, err := http.NewRequest(http.MethodGet, p.url+"/mcp", nil)
	p.must(err)
	req.Header.Set("Accept", "text/event-stream")
	for k, v := range thief.headers("", "") {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	p.must(err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("GET: %d", resp.StatusCode)
	}
	// Nor can it answer a question of that session.
	got := ann.call("s_kill", `{"id":"1"}`, "", func(q question) {
		if resp := (question{c: thief, ID: q.ID}).reply(yes); resp.StatusCode != http.StatusNotFound {
			t.Errorf("an answer: %d", resp.StatusCode)
		}
		go q.reply(`{"action":"decline"}`)
	})
	if !strings.Contains(got.text(), "Denied") || len(v.calls()) != 0 {
		t.Errorf("%s %q", got.Raw, v.calls())
	}
	// Each try has its line, under the name of who tried.
	var tried []string
	lines, _ := p.auditLines(func(l []map[string]any) bool { return len(l) >= 5 })
	for _, l := range lines {
		if l["method"] == "session" {
			tried = append(tried, fmt.Sprint(l["capability"], " ", l["status"], " ", strings.HasSuffix(fmt.Sprint(l["user"]), "|bob")))
		}
	}
	if slices.Sort(tried); !slices.Equal(tried, []string{"DELETE denied true", "GET denied true", "answer denied true", "tools/list denied true"}) {
		t.Errorf("the audit has %q", tried)
	}
	ann.header = as("ann") // a fresh token of the same user
	if got := ann.do("ping", "", nil); got.Status != 200 {
		t.Errorf("the session's own user: %d %s", got.Status, got.Raw)
	}
}

// Approvals and runs of one user are of no use to another.
func TestApprovalsAndRunsOfAnotherUser(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p, as := company(t, trusted(v))
	ann, bob := p.client(modern, twoTools, formCaps, as("ann")), p.client(modern, twoTools, formCaps, as("bob"))
	paused := ann.code("return await s.kill({id:'1'})", "", nil)
	run, ids := runID.FindString(paused.Raw), paused.approvals()
	if run == "" || len(ids) != 1 {
		t.Fatalf("%s", paused.Raw)
	}
	for way, got := range map[string]answer{
		"resume": bob.resume(run, "", nil), "resume with answers": bob.resume(run, paused.sayYes(), nil), "retry": bob.code("return 1", paused.sayYes(), nil),
	} {
		if !strings.Contains(got.text(), "There is no paused run") {
			t.Errorf("%s: %s", way, got.Raw)
		}
	}
	direct := p.client(modern, "", formCaps, as("bob")).call("s_kill", `{"id":"1"}`, `"requestState":"portal-approval:`+ids[0]+`","inputResponses":{"approval":`+yes+`}`, nil)
	if direct.Result.ResultType != "input_required" || strings.Contains(direct.Raw, ids[0]) {
		t.Errorf("the approval of another: %s", direct.Raw)
	}
	if n := len(v.calls()); n != 0 {
		t.Fatalf("%d calls arrived", n)
	}
	if got := ann.resume(run, paused.sayYes(), nil); !strings.Contains(got.text(), "ran kill") {
		t.Errorf("the run's own user: %s", got.Raw)
	}
}

// Access rules hold in every mode, by every name.
func TestWhatGroupsSee(t *testing.T) {
	v, hidden := serve(t, upstreamtest.Legacy, nil), serve(t, upstreamtest.Legacy, nil)
	p, as := company(t, trusted(v)+"    tools: {kill: {groups: [ops]}}\n  x:\n    url: "+hidden.URL+"\n    groups: [ops]\n    trust_annotations: true\n")
	eachEra(t, func(t *testing.T, e era) {
		if got := p.client(e, "", noCaps, as("bob", "ops")).sees(); got != "s_kill s_look x_kill x_look" {
			t.Errorf("ops see %s", got)
		}
		ann := p.client(e, "", noCaps, as("ann", "dev"))
		if got := ann.sees(); got != "s_look" {
			t.Errorf("dev sees %s", got)
		}
		two := p.client(e, twoTools, noCaps, as("ann", "dev"))
		for way, got := range map[string]answer{
			"direct":           ann.call("x_look", "{}", "", nil),
			"a tool":           ann.call("s_kill", "{}", "", nil),
			"toggle":           ann.call("portal_toggle_single_server", `{"server_id":"x","action":"toggle"}`, "", nil),
			"by name":          two.call("portal_execute", `{"tool":"x_look"}`, "", nil),
			"by name, dotted":  two.call("portal_execute", `{"tool":"x.look"}`, "", nil),
			"by name, slashed": two.call("portal_execute", `{"tool":"x/look"}`, "", nil),
			"in code":          two.code("return await codemode.call('x_look', {})", "", nil),
			"in code, member":  two.code("return await x.look({})", "", nil),
			"query":            two.call("portal_query_tools", `{"servers":["x"]}`, "", nil),
		} {
			if got.Error == nil && !got.Result.IsError || strings.Contains(got.text(), "ran ") {
				t.Errorf("%s: %s", way, got.Raw)
			}
		}
	})
	if n := len(hidden.calls()); n != 0 {
		t.Errorf("%d calls arrived: %q", n, hidden.calls())
	}
}

// A 2025 session switches servers off for itself; a 2026-07-28 user does so for
// the client in use. Nobody else notices.
func TestTogglesAreOnesOwn(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p, as := company(t, trusted(v))
	const both = "s_kill s_look"
	eachEra(t, func(t *testing.T, e era) {
		ann, bob := p.client(e, "", noCaps, as("ann")), p.client(e, "", noCaps, as("bob"))
		again := p.client(e, "", noCaps, as("ann"))
		if got := ann.call("portal_toggle_single_server", `{"server_id":"s","action":"untoggle"}`, "", nil); !strings.Contains(got.text(), "switched off") {
			t.Fatalf("%s", got.Raw)
		}
		if got := ann.sees(); got != "" {
			t.Errorf("switched off, but seen: %s", got)
		}
		if got := ann.call("s_look", "{}", "", nil); got.Error == nil || strings.Contains(got.text(), "ran ") {
			t.Errorf("switched off, but called: %s", got.Raw)
		}
		if got := bob.sees(); got != both {
			t.Errorf("another user sees %q", got)
		}
		if got := again.sees(); e == legacy && got != both || e == modern && got != "" {
			t.Errorf("the same user's next connection sees %q", got)
		}
		if got := ann.call("portal_toggle_single_server", `{"server_id":"s","action":"toggle"}`, "", nil); !strings.Contains(got.text(), "switched on") || ann.sees() != both {
			t.Errorf("%s", got.Raw)
		}
		if got := ann.call("portal_toggle_single_server", `{"server_id":"nope","action":"toggle"}`, "", nil); !strings.Contains(got.text(), "unknown server") {
			t.Errorf("%s", got.Raw)
		}
	})
}

var grantAddress = regexp.MustCompile(`/servers\?grant=[A-Za-z0-9%._~:-]+`)

// The page of switches is for the person whose client asked for it.
func TestTogglePageIsOnesOwn(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v), nil)
	sum := sha256.Sum256([]byte("somebody else"))
	foreign := url.QueryEscape(hex.EncodeToString(sum[:16]) + ":" + hex.EncodeToString(sum[:16]))
	eachEra(t, func(t *testing.T, e era) {
		c := p.client(e, "", noCaps, nil)
		address := grantAddress.FindString(c.call("portal_toggle_servers", "{}", "", nil).text())
		if resp, body := p.get(address); address == "" || resp.StatusCode != 200 {
			t.Fatalf("GET %s: %d %.200s", address, resp.StatusCode, body)
		}
		for _, g := range []string{foreign, "mcp-session%3A" + foreign, "x", "%3A"} {
			if resp, _ := p.get("/servers?grant=" + g); resp.StatusCode != http.StatusForbidden {
				t.Errorf("GET with the grant %s: %d", g, resp.StatusCode)
			}
			if resp, _ := p.submit(address, "/servers?grant="+g, "server=s&enabled=false"); resp.StatusCode != http.StatusForbidden {
				t.Errorf("POST with the grant %s: %d", g, resp.StatusCode)
			}
		}
		if resp, _ := p.submit(address, address, "server=nope&enabled=false"); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("an unknown server: %d", resp.StatusCode)
		}
		if c.sees() != "s_kill s_look" {
			t.Errorf("something was switched off")
		}
		if resp, body := p.submit(address, address, "server=s&enabled=false"); resp.StatusCode != http.StatusSeeOther || c.sees() != "" {
			t.Errorf("one's own switch: %d %.200s", resp.StatusCode, body)
		}
	})
}
