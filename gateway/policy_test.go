package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// A call that a rule leaves to others waits for them: the one who asks cannot
// answer it, in the client or on the page, and the yes of another person on the
// page lets the paused run of a client of either era go on.
func TestAnotherPersonApproves(t *testing.T) {
	eachEra(t, func(t *testing.T, e era) {
		v := serve(t, upstreamtest.Legacy, nil)
		idp := authtest.StartFakeIdP(t)
		p := start(t, "url: ORIGIN\nauth:\n  mode: oidc\n  accept: [idp]\n  issuer: "+idp.Issuer+"\n  client_id: "+idp.ClientID+"\n  client_secret: "+idp.ClientSecret+"\nguard:\n  rules:\n    - {name: bosses, class: [destructive], action: approve, approvers: {groups: [bosses]}}\n"+trusted(v), nil)
		alice := p.client(e, twoTools, formCaps, map[string]string{"Authorization": "Bearer " + idp.Token(map[string]any{"sub": "alice", "aud": p.url + "/mcp", "name": "alice"})})
		asked := func(q question) { t.Errorf("the one who asks is asked: %s", q.Params); q.reply(yes) }
		paused := alice.code("return await s.kill({id:'1'})", "", asked)
		ids, run := paused.approvals(), runID.FindString(paused.Raw)
		if len(ids) != 1 || run == "" || paused.Result.ResultType == "input_required" {
			t.Fatalf("%s", paused.Raw)
		}
		decide := func(user string, groups []string) *authtest.Page {
			idp.SetUser(authtest.User{Sub: user, Groups: groups})
			b := authtest.NewBrowser(t, user)
			page := b.Get(p.url + "/approvals/" + ids[0])
			_, rest, found := strings.Cut(page.Body, `name="csrf" value="`)
			if !found {
				return page
			}
			csrf, _, _ := strings.Cut(rest, `"`)
			return b.Post(p.url+"/approvals/"+ids[0], url.Values{"csrf": {csrf}, "decision": {"approve"}})
		}
		decide("alice", []string{"staff"})
		decide("mallory", []string{"staff"})
		if n := len(v.calls()); n != 0 {
			t.Fatalf("%d calls arrived without a yes", n)
		}
		page := decide("head", []string{"bosses"})
		if !strings.Contains(page.Body, "Approved") {
			t.Fatalf("the page of the approver: %d %.600s", page.Status, page.Body)
		}
		if got := alice.resume(run, "", asked); !strings.Contains(got.text(), "ran kill") {
			t.Errorf("%s", got.Raw)
		}
		if n := len(v.calls()); n != 1 {
			t.Errorf("one yes released %d calls", n)
		}
	})
}

// Filters see what comes back before anybody else does, directly and in code,
// and what goes out before it is judged.
func TestFiltersAtTheDoor(t *testing.T) {
	const card = "4111 1111 1111 1111"
	v := serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
		if c.Method == "tools/call" && strings.Contains(string(c.Params), "card") {
			c.Text("the card is " + card)
			return true
		}
		return false
	})
	p := start(t, trusted(v)+"guard:\n  filters:\n    - {in: [results], detect: [cards], action: redact}\n    - {in: [arguments], pattern: 'C-[0-9]{4}', action: block}\n", nil)
	eachEra(t, func(t *testing.T, e era) {
		before := len(v.calls())
		direct, code := p.client(e, "", noCaps, nil), p.client(e, twoTools, noCaps, nil)
		for way, got := range map[string]answer{
			"direct": direct.call("s_look", `{"id":"card"}`, "", nil),
			"code":   code.code("const r = await s.look({id:'card'}); return JSON.stringify(r) + ' ' + JSON.stringify(r).includes('4111')", "", nil),
		} {
			if strings.Contains(got.Raw, "4111 1") || !strings.Contains(got.text(), "[redacted by the portal]") || way == "code" && !strings.Contains(got.text(), "false") {
				t.Errorf("%s: %s", way, got.Raw)
			}
		}
		for way, got := range map[string]answer{
			"direct": direct.call("s_look", `{"id":"C-1234"}`, "", nil),
			"code":   code.code("return await s.look({id:'C-' + '1234'})", "", nil),
		} {
			if !strings.Contains(got.text(), "may not be sent") || !strings.Contains(got.text(), "Nothing was sent") {
				t.Errorf("%s: %s", way, got.Raw)
			}
		}
		if n := len(v.calls()) - before; n != 2 {
			t.Errorf("%d calls arrived, want 2", n)
		}
	})
}

// A session that has read private data and strangers' text asks before
// something goes out; the session of another client does not.
func TestTrifectaAtTheDoor(t *testing.T) {
	tools := []json.RawMessage{toolDef("look", readOnly), toolDef("web_search", readOnly)}
	eachEra(t, func(t *testing.T, e era) {
		v := serveWith(t, upstreamtest.Options{Era: upstreamtest.Legacy, Tools: tools}, nil)
		p := start(t, trusted(v)+"    tools: {web_search: {labels: [external]}}\n", nil)
		c := p.client(e, "", noCaps, nil)
		if got := c.call("s_web_search", `{"id":"1"}`, "", nil); !strings.HasPrefix(got.text(), "ran web_search") {
			t.Fatalf("before: %s", got.Raw)
		}
		if got := c.call("s_look", `{"id":"1"}`, "", nil); !strings.HasPrefix(got.text(), "ran look") {
			t.Fatalf("%s", got.Raw)
		}
		if got := c.call("s_web_search", `{"id":"2"}`, "", nil); !strings.Contains(got.text(), "Approval needed") {
			t.Errorf("after: %s", got.Raw)
		}
		if n := len(v.calls()); n != 2 {
			t.Errorf("%d calls arrived, want 2", n)
		}
	})
}

// Budgets and conditions hold in code and directly, and a call beyond them does
// not reach its server.
func TestBudgetsAtTheDoor(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v)+`guard:
  rules:
    - {name: early, tools: [look], when: 'has(args.id) && args.id == "x" && run.calls >= 2', action: deny}
    - {name: few, tools: [look], action: allow, budget: {per_run: 3, per_hour: 5}}
`, nil)
	c, direct := p.client(modern, twoTools, noCaps, nil), p.client(legacy, "", noCaps, nil)
	if got := c.call("portal_query_tools", `{"query":"look"}`, "", nil); !strings.Contains(got.text(), "s_look [read, depends on the arguments") {
		t.Errorf("%s", got.Raw)
	}
	got := c.code(`let ok = 0; await Promise.all([1,2,3,4,5,6].map(i => s.look({id: String(i)}).then(() => ok++, () => 0))); return ok`, "", nil)
	if !strings.HasPrefix(got.text(), "3\n") || len(v.calls()) != 3 {
		t.Errorf("%d calls arrived: %s", len(v.calls()), got.Raw)
	}
	got = c.code(`await s.look({id:'a'}); const out = []; for (const id of ['b', 'x']) { try { await s.look({id}); out.push(id) } catch (e) { out.push(e.message) } } return out.join()`, "", nil)
	if !strings.Contains(got.text(), "b,") || !strings.Contains(got.text(), "early") {
		t.Errorf("%s", got.Raw)
	}
	for i := range 3 {
		if got := direct.call("s_look", fmt.Sprintf(`{"id":"%d"}`, i), "", nil); !strings.Contains(got.text(), "5 calls of one user in any hour") {
			t.Errorf("%s", got.Raw)
		}
	}
	if n := len(v.calls()); n != 5 {
		t.Errorf("%d calls arrived, want 5", n)
	}
}

// While the guard only observes every call runs, and the audit and the pages
// say what it would have done.
func TestObserveAtTheDoor(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v)+"guard: {observe: true, preset: read-only}\n", nil)
	if got := p.client(modern, "", noCaps, nil).call("s_kill", `{"id":"1"}`, "", nil); !strings.HasPrefix(got.text(), "ran kill") {
		t.Errorf("%s", got.Raw)
	}
	lines, _ := p.auditLines(func(l []map[string]any) bool { return len(l) > 0 })
	if l := lines[0]; l["decision"] != "allow" || l["would"] != "deny" {
		t.Errorf("%v", l)
	}
	_, page := p.get("/")
	_, status := p.get("/status")
	if !strings.Contains(page, "The guard only observes") || !strings.Contains(status, "only observing") || !strings.Contains(p.log.String(), "THE GUARD ONLY OBSERVES") {
		t.Errorf("it is not said loudly:\n%s", status)
	}
}
