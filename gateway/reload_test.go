package gateway_test

import (
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// What the administrator changes while a person thinks counts: the yes comes
// too late, and nothing is sent, neither to the old server nor to the new.
func TestChangesWhileAnApprovalIsOpen(t *testing.T) {
	changes := map[string]func(old, other *victim) string{
		"the policy denies it": func(old, _ *victim) string {
			return "guard: {rules: [{class: [destructive], action: deny}]}\n" + trusted(old)
		},
		"access is revoked": func(old, _ *victim) string { return trusted(old) + "    groups: [others]\n" },
		"access to the tool is revoked": func(old, _ *victim) string {
			return trusted(old) + "    tools: {kill: {groups: [others]}}\n"
		},
		"the tool is switched off": func(old, _ *victim) string {
			return trusted(old) + "    tools: {kill: {enabled: false}}\n"
		},
		"the id names another server": func(_, other *victim) string { return trusted(other) },
		"the server is removed":       func(_, other *victim) string { return "servers:\n  t:\n    url: " + other.URL + "\n" },
	}
	// Each way leaves a call waiting and returns how to go on with it after a
	// yes.
	ways := map[string]func(t *testing.T, p *portal, args string, reload func()) answer{
		"2025, elicitation": func(t *testing.T, p *portal, args string, reload func()) answer {
			return p.client(legacy, "", formCaps, nil).call("s_kill", args, "", func(q question) { reload(); go q.reply(yes) })
		},
		"2025, elicitation in a run": func(t *testing.T, p *portal, args string, reload func()) answer {
			return p.client(legacy, twoTools, formCaps, nil).code("return await s.kill("+args+")", "", func(q question) { reload(); go q.reply(yes) })
		},
		"2025, paused run": func(t *testing.T, p *portal, args string, reload func()) answer {
			return pausedOver(t, p, p.client(legacy, twoTools, noCaps, nil), args, reload)
		},
		"2026, paused run": func(t *testing.T, p *portal, args string, reload func()) answer {
			return pausedOver(t, p, p.client(modern, twoTools, noCaps, nil), args, reload)
		},
		"2026, retry": func(t *testing.T, p *portal, args string, reload func()) answer {
			c := p.client(modern, "", formCaps, nil)
			first := c.call("s_kill", args, "", nil)
			reload()
			return c.call("s_kill", args, first.sayYes(), nil)
		},
		"2026, run": func(t *testing.T, p *portal, args string, reload func()) answer {
			c := p.client(modern, twoTools, formCaps, nil)
			first := c.code("return await s.kill("+args+")", "", nil)
			reload()
			return c.code("return await s.kill("+args+")", first.sayYes(), nil)
		},
	}
	for what, change := range changes {
		t.Run(what, func(t *testing.T) {
			old, other := serve(t, upstreamtest.Legacy, nil), serve(t, upstreamtest.Legacy, nil)
			p := start(t, trusted(old), nil)
			for way, wait := range ways {
				reloaded := false
				if way == "2026, retry" && what == "the id names another server" {
					// A gap of today, not a promise: the approval names the server
					// by its id alone, and the retry begins after the change.
					continue
				}
				// A yes that was not used stays good for its call, so no way
				// repeats the call of another.
				got := wait(t, p, `{"id":"`+way+`"}`, func() { p.reload(change(old, other)); reloaded = true })
				if !reloaded {
					t.Fatalf("%s: nobody was asked: %s", way, got.Raw)
				}
				text := got.text()
				if got.Err != nil || strings.Contains(text, "ran ") || got.Error == nil && !got.Result.IsError {
					t.Errorf("%s: %s %v", way, got.Raw, got.Err)
				}
				if strings.Contains(text, "already been sent") {
					t.Errorf("%s: nothing was sent, but: %s", way, text)
				}
				if n := len(old.calls()) + len(other.calls()); n != 0 {
					t.Fatalf("%s: sent: %q %q", way, old.calls(), other.calls())
				}
				p.reload(trusted(old))
			}
		})
	}
}

// pausedOver pauses a run, lets the configuration change, and approves.
func pausedOver(t *testing.T, p *portal, c *client, args string, reload func()) answer {
	t.Helper()
	first := c.code("return await s.kill("+args+")", "", nil)
	ids, run := first.approvals(), runID.FindString(first.Raw)
	if len(ids) != 1 {
		t.Fatalf("%s", first.Raw)
	}
	reload()
	p.approve(ids[0])
	return c.resume(run, "", nil)
}

// A change that takes nothing away does not cost a person their answer.
func TestHarmlessChangeWhileAnApprovalIsOpen(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v), nil)
	harmless := func() { p.reload("guard: {ask_timeout: 4m}\n" + trusted(v) + "    description: other words\n") }
	if got := p.client(legacy, "", formCaps, nil).call("s_kill", `{"id":"1"}`, "", func(q question) { harmless(); go q.reply(yes) }); !strings.HasPrefix(got.text(), "ran kill") {
		t.Errorf("elicitation: %s", got.Raw)
	}
	p.reload(trusted(v))
	if got := pausedOver(t, p, p.client(modern, twoTools, noCaps, nil), `{"id":"2"}`, harmless); !strings.Contains(got.text(), "ran kill") {
		t.Errorf("paused run: %s", got.Raw)
	}
}

// What a run does after it has waited follows the present configuration, even
// if it catches the refusal of the call that waited.
func TestRestOfARunFollowsTheChange(t *testing.T) {
	eachEra(t, func(t *testing.T, e era) {
		v := serve(t, upstreamtest.Legacy, nil)
		p := start(t, trusted(v), nil)
		c := p.client(e, twoTools, noCaps, nil)
		first := c.code("try { await s.kill({id:'1'}) } catch (e) {} return await s.look({id:'2'})", "", nil)
		ids, run := first.approvals(), runID.FindString(first.Raw)
		if len(ids) != 1 {
			t.Fatalf("%s", first.Raw)
		}
		p.reload(trusted(v) + "    groups: [others]\n")
		p.approve(ids[0])
		if got := c.resume(run, "", nil); !got.Result.IsError || strings.Contains(got.text(), "ran ") {
			t.Errorf("%s %v", got.Raw, got.Err)
		}
		if n := len(v.calls()); n != 0 {
			t.Errorf("%d calls arrived: %q", n, v.calls())
		}
	})
}
