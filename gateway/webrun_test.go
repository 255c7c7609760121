package gateway_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// killAll asks for three calls at once.
func killAll(ids [3]string) string {
	return fmt.Sprintf("const r = await Promise.allSettled([%q,%q,%q].map(id => s.kill({id}))); return r.map(x => x.status).join()", ids[0], ids[1], ids[2])
}

// One address answers for all calls with which a script waits, and each is
// still decided by itself: what is not ticked is denied, or left for later.
func TestCallsOfARunAreDecidedTogether(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v), nil)
	c := p.client(modern, twoTools, noCaps, nil)
	pause := func(names [3]string) (run, page string, byArgument map[string]string) {
		t.Helper()
		got := c.code(killAll(names), "", nil)
		run = runID.FindString(got.Raw)
		page = "/approvals/run/" + run
		if len(got.approvals()) != 3 || !strings.Contains(got.text(), "open "+p.url+page+" and decide") {
			t.Fatalf("three calls, one address: %s", got.Raw)
		}
		byArgument = map[string]string{}
		for _, id := range got.approvals() {
			_, one := p.get("/approvals/" + id)
			for _, n := range names {
				if strings.Contains(one, "&#34;id&#34;: &#34;"+n+"&#34;") {
					byArgument[n] = id
				}
			}
		}
		if len(byArgument) != 3 {
			t.Fatalf("%v", byArgument)
		}
		return run, page, byArgument
	}
	form := func(decision string, shown, ticked []string) string {
		return "decision=" + decision + "&shown=" + strings.Join(shown, "&shown=") + "&call=" + strings.Join(ticked, "&call=")
	}
	all := func(m map[string]string) (ids []string) {
		for _, id := range m {
			ids = append(ids, id)
		}
		return ids
	}
	// left are the calls that the page still offers to approve.
	left := func(page string) (ids []string) {
		_, body := p.get(page)
		for _, m := range regexp.MustCompile(`name="call" value="([^"]+)"`).FindAllStringSubmatch(body, -1) {
			ids = append(ids, m[1])
		}
		return ids
	}

	run, page, id := pause([3]string{"1", "2", "3"})
	for bad, want := range map[string]int{
		form("yes", all(id), all(id)): http.StatusBadRequest,
		form("approve", all(id), nil): http.StatusOK, // nothing ticked is no "deny all"
		form("approve", nil, all(id)): http.StatusOK, // nothing was shown
		form("some", all(id), nil):    http.StatusOK,
		form("approve", []string{"ap-AAAAAAAAAAAAAAAAAAAAAAAAAA"}, []string{"ap-AAAAAAAAAAAAAAAAAAAAAAAAAA"}): http.StatusOK,
	} {
		if resp, body := p.submit(page, page, bad); resp.StatusCode != want || want == http.StatusOK && !strings.Contains(body, "Nothing was decided") {
			t.Errorf("%s: %d", bad, resp.StatusCode)
		}
	}
	if resp, _ := p.page(http.MethodPost, page, form("approve", all(id), all(id)), nil); resp.StatusCode == http.StatusSeeOther {
		t.Error("a form without its token decided")
	}
	if got := left(page); len(got) != 3 {
		t.Fatalf("something was decided: %v is left", got)
	}

	// Two now, one later.
	if resp, body := p.submit(page, page, form("some", all(id), []string{id["1"], id["3"]})); resp.StatusCode != http.StatusSeeOther {
		t.Fatalf("%d %.400s", resp.StatusCode, body)
	}
	if got := left(page); !slices.Equal(got, []string{id["2"]}) {
		t.Fatalf("left: %v", got)
	}
	if resp, _ := p.submit(page, page, form("deny", []string{id["2"]}, []string{id["2"]})); resp.StatusCode != http.StatusSeeOther {
		t.Fatalf("%d", resp.StatusCode)
	}
	if got := c.resume(run, "", nil); !strings.HasPrefix(got.text(), "fulfilled,rejected,fulfilled") {
		t.Errorf("%s", got.Raw)
	}
	sent := ids(v, "kill")
	slices.Sort(sent)
	if !slices.Equal(sent, []string{"1", "3"}) {
		t.Errorf("arrived: %v", sent)
	}

	// All at once; what was not ticked is denied, what was not shown waits.
	run, page, id = pause([3]string{"4", "5", "6"})
	if resp, _ := p.submit(page, page, form("approve", []string{id["4"], id["5"]}, []string{id["5"], id["6"]})); resp.StatusCode != http.StatusSeeOther {
		t.Fatalf("%d", resp.StatusCode)
	}
	if got := left(page); !slices.Equal(got, []string{id["6"]}) {
		t.Errorf("left: %v", got)
	}
	if resp, body := p.submit(page, page, form("approve", all(id), []string{id["4"], id["6"]})); resp.StatusCode != http.StatusSeeOther {
		t.Fatalf("answered ones do not matter: %d %.400s", resp.StatusCode, body)
	}
	if got := c.resume(run, "", nil); !strings.HasPrefix(got.text(), "rejected,fulfilled,fulfilled") {
		t.Errorf("%s", got.Raw)
	}
}

// The page of a run is for those who may see its calls.
func TestRunPageOfAnotherUser(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v), nil)
	for _, run := range []string{"run_none", "%2e%2e", "", "x%2Fy"} {
		if resp, body := p.get("/approvals/run/" + run); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%q: %d %.200s", run, resp.StatusCode, body)
		}
	}
	other, as := company(t, trusted(v))
	c := other.client(modern, twoTools, noCaps, as("ada"))
	got := c.code(killAll([3]string{"1", "2", "3"}), "", nil)
	if resp, _ := other.page(http.MethodGet, fmt.Sprintf("/approvals/run/%s", runID.FindString(got.Raw)), "", nil); resp.StatusCode == http.StatusOK {
		t.Error("the page of a run is shown to somebody who is not signed in")
	}
}
