package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/mcp-portal/mcp-portal/internal/testbrowser"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// What can be pressed on a page; what is hidden cannot.
const controlsOf = `[...document.querySelectorAll("a[href], button:not([disabled]), summary, input[type=checkbox], input[type=radio]")].filter(e => e.checkVisibility())`

// What a person sees of a page. A page that was loaded anew has no mark.
const seenOf = `JSON.stringify([location.href, document.title, document.body.innerText, !!window.mark,
	[...document.querySelectorAll("input, select, details")].map(e => [e.checked, e.value, e.open])])`

// Every control of every page does something that its user sees, leads to a
// page that is there, and the browser has nothing to complain about.
func TestB187_EveryControlDoesSomething(t *testing.T) {
	v := serveWith(t, upstreamtest.Options{Era: upstreamtest.Legacy, Tools: []json.RawMessage{
		toolDef("look", readOnly), toolDef("kill", destructive), toolDef("drop", destructive)}}, nil)
	p := start(t, trusted(v)+"    pin: review\nguard: {rules: [{name: planned, tools: [drop], action: plan}]}\n", nil)
	c := p.client(legacy, twoTools, noCaps, nil)
	n := 0
	fresh := func(code string) string { // ids that no page has decided on
		n++
		return c.code(strings.ReplaceAll(code, "N", fmt.Sprint(n)), "", nil).Raw
	}
	changes := 0
	pages := []func() string{
		func() string { return "/" },
		func() string { return "/?tools=all" },
		func() string { return "/servers" },
		func() string { return "/servers/s" },
		func() string { return "/tools/s_kill" },
		func() string { return "/clients" },
		func() string { fresh(`await s.kill({id: "listed N"})`); return "/approvals" },
		func() string { return "/approvals/" + approvalID.FindString(fresh(`await s.kill({id: "N"})`)) },
		func() string {
			return "/approvals/run/" + runID.FindString(fresh(`await Promise.all([s.kill({id: "a N"}), s.kill({id: "b N"})])`))
		},
		func() string {
			return "/plans/" + planIDs.FindString(fresh(`await s.drop({id: "a N"}); await s.drop({id: "b N"})`))
		},
		func() string {
			changes++
			v.RemoveTool("look")
			v.AddTool(json.RawMessage(fmt.Sprintf(`{"name":"look","description":"says %d","inputSchema":{"type":"object"},"annotations":%s}`, changes, readOnly)))
			v.EmitListChanged()
			said := fmt.Sprintf("says %d", changes)
			p.until("the change is noticed", func() bool {
				for _, d := range p.registry.Pending() {
					if strings.Contains(string(d.Now), said) {
						return true
					}
				}
				return false
			})
			return "/pins"
		},
	}

	tab := testbrowser.Start(t)
	var mu sync.Mutex
	var complaints []string
	complain := func(text string) { mu.Lock(); defer mu.Unlock(); complaints = append(complaints, text) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(chromedp.Listen(tab, func(ev any) {
		switch e := ev.(type) {
		case *log.EventEntryAdded:
			complain(fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		case *runtime.EventConsoleAPICalled:
			complain("console." + string(e.Type))
		case *runtime.EventExceptionThrown:
			complain("exception: " + e.ExceptionDetails.Text)
		}
	}))
	_, err := chromedp.Call(tab, log.Enable, cdp.Empty{})
	must(err)
	_, err = chromedp.CallBrowser(tab, browser.SetPermission, browser.SetPermissionParams{
		Permission: &browser.PermissionDescriptor{Name: "clipboard-write"}, Setting: browser.PermissionSettingGranted, Origin: p.url})
	must(err)

	pressed, links := 0, map[string]bool{}
	for _, page := range pages {
		path := page()
		load := func() (count int) {
			must(chromedp.Do(tab, chromedp.Navigate(p.url+path), chromedp.WaitReady(chromedp.CSS("h1"))))
			return ask[int](t, tab, controlsOf+`.length`)
		}
		all := load()
		if all < 3 {
			t.Fatalf("%s: %d controls: is it the page that was meant? %s", path, all, ask[string](t, tab, `document.body.innerText`))
		}
		for i := range all {
			if load() < all { // the last one has decided what there was to decide
				if path = page(); load() < all {
					t.Fatalf("%s: there were %d controls: %s", path, all, ask[string](t, tab, `document.body.innerText`))
				}
			}
			what := ask[string](t, tab, fmt.Sprintf(`(e => [e.tagName, e.href || e.name || "", e.value || "", e.innerText].join(" "))(%s[%d])`, controlsOf, i))
			if strings.HasPrefix(what, "A ") {
				elsewhere := ask[bool](t, tab, fmt.Sprintf(`new URL(%s[%d].href).origin != location.origin`, controlsOf, i))
				if elsewhere || links[what] { // another program's, or the same on every page
					continue
				}
				links[what] = true
			}
			before := ask[string](t, tab, `window.mark = true, `+seenOf)
			mu.Lock()
			complaints = nil
			mu.Unlock()
			must(chromedp.Do(tab, chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`%s[%d].click()`, controlsOf, i))))
			pressed++
			p.until(fmt.Sprintf("%s: something is seen of %q", path, what), func() bool {
				// A page that is just being left cannot be asked.
				now, err := chromedp.Run(tab, chromedp.Evaluate[string](`document.readyState == "complete" ? `+seenOf+` : ""`))
				return err == nil && now != "" && now != before
			})
			if status := ask[int](t, tab, `performance.getEntriesByType("navigation")[0].responseStatus`); status >= 400 {
				t.Errorf("%s: %q leads to a page with status %d: %s", path, what, status, ask[string](t, tab, `document.body.innerText`))
			}
			mu.Lock()
			for _, c := range complaints {
				t.Errorf("%s: %q: the browser complains: %s", path, what, c)
			}
			mu.Unlock()
		}
	}
	if pressed < 40 {
		t.Errorf("only %d controls were pressed", pressed)
	}
	t.Logf("%d controls pressed", pressed)
}

func ask[T any](t *testing.T, tab context.Context, script string) T {
	t.Helper()
	v, err := chromedp.Run(tab, chromedp.Evaluate[T](script))
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return v
}
