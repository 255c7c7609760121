package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-portal/mcp-portal/internal/testbrowser"
	"github.com/mcp-portal/mcp-portal/store/storetest"
)

// deletions stands before the company's servers and sees what reaches them.
type deletions struct {
	mu   sync.Mutex
	of   map[string]int // by record id
	n    int
	each func(n int) // after the server has carried the n-th out, before its answer
}

// nth is the context key of the number of a deletion.
type nth struct{}

func (d *deletions) serve(t *testing.T, company string) string {
	t.Helper()
	target, err := url.Parse(company)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1
	proxy.ModifyResponse = func(resp *http.Response) error {
		if n, ok := resp.Request.Context().Value(nth{}).(int); ok && d.each != nil {
			d.each(n)
		}
		return nil
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		var call struct {
			Params struct {
				Name      string
				Arguments struct {
					Record string `json:"record_id"`
				}
			}
		}
		if json.Unmarshal(body, &call) == nil && call.Params.Name == "record_delete" {
			d.mu.Lock()
			d.of[call.Params.Arguments.Record]++
			d.n++
			r = r.WithContext(context.WithValue(r.Context(), nth{}, d.n))
			d.mu.Unlock()
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

var planPage = regexp.MustCompile(`/plans/(pl-[A-Z2-7]{26})`)

// cleanUp deletes every record that points at the retired load balancer.
const cleanUp = `
const all = async (list) => { const out = []; for (let page = 1; ; page++) { const r = await list(page); out.push(...r.result); if (page >= r.result_info.total_pages) return out; } };
const zones = await all(page => dns.zones_list({page, per_page: 50}));
const hits = (await Promise.all(zones.map(async z => (await all(page => dns.records_list({zone_id: z.id, page}))).filter(r => r.content === '198.51.100.7').map(r => ({zone: z.id, id: r.id}))))).flat();
const deleted = [], kept = [];
for (const h of hits) {
  try { const gone = await dns.record_delete({zone_id: h.zone, record_id: h.id}); deleted.push(gone.result.id); } catch (e) { kept.push(e.code); }
}
return {found: hits.length, deleted: deleted.length, kept}`

const planned = "guard: {rules: [{name: clean-ups, servers: [dns], class: [write, destructive], mode: [code], action: plan}]}\n"

// left lists what points at the retired load balancer, zone by zone.
func left(t *testing.T, p *process) map[string]bool {
	t.Helper()
	s := connect(t, p, legacy, "optimize_context=search_and_execute", nil)
	res := call(t, s, "portal_execute", map[string]any{"code": cleanUp[:strings.Index(cleanUp, "const deleted")] + "return hits.map(h => h.id)"})
	var ids []string
	if err := json.Unmarshal([]byte(text(t, res)), &ids); err != nil {
		t.Fatalf("%v: %s", err, text(t, res))
	}
	out := map[string]bool{}
	for _, id := range ids {
		out[id] = true
	}
	return out
}

// The DNS clean-up is planned, reviewed in a browser with two steps removed, and
// applied; the portal is killed while a step is under way, and the other replica
// reports: nothing is deleted twice, and nothing is missing from the report.
func TestPlanSurvivesAKillInTheMiddle(t *testing.T) {
	for _, kill := range []bool{false, true} {
		t.Run(map[bool]string{false: "undisturbed", true: "killed"}[kill], func(t *testing.T) { planCleanUp(t, kill) })
	}
}

func planCleanUp(t *testing.T, kill bool) {
	redis := storetest.StartRedis(t)
	_, company := serveCompany(t, companyOptions)
	seen := &deletions{of: map[string]int{}}
	yaml := fmt.Sprintf("listen: 127.0.0.1:0\nauth: {mode: none}\nstore: {redis: %q}\n%sservers:\n%s", redis.URL(), planned, companyServers(seen.serve(t, company)))
	a := startProcess(t, "serve", "--config", writeConfig(t, yaml))
	b := startProcess(t, "serve", "--config", writeConfig(t, yaml))
	a.waitServers(t, 8)
	b.waitServers(t, 8)
	before := left(t, b)
	if kill {
		seen.each = func(n int) {
			if n == 4 {
				a.kill()
			}
		}
	}

	sa := connect(t, a, legacy, "optimize_context=search_and_execute", nil)
	res := call(t, sa, "portal_execute", map[string]any{"code": cleanUp})
	m := planPage.FindStringSubmatch(text(t, res))
	if m == nil || len(seen.of) != 0 {
		t.Fatalf("no plan, or something was deleted already (%v): %s", seen.of, text(t, res))
	}
	steps := review(t, b.base()+m[0], 1, 3)
	if len(steps) != len(before) || len(before) < 8 {
		t.Fatalf("the plan has %d steps for %d records", len(steps), len(before))
	}

	var report string
	var said struct {
		Applied struct {
			Steps []struct{ Arguments, State string }
		}
	}
	if kill {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, _ = sa.CallTool(ctx, &mcp.CallToolParams{Name: "portal_execute", Arguments: map[string]any{"plan": m[1]}}) // its portal dies
		cancel()
		sb := connect(t, b, legacy, "optimize_context=search_and_execute", nil)
		res = call(t, sb, "portal_execute", map[string]any{"plan": m[1]})
	} else {
		res = call(t, sa, "portal_execute", map[string]any{"plan": m[1]})
	}
	report = text(t, res)
	if err := json.Unmarshal(mustJSON(res.StructuredContent), &said); err != nil || len(said.Applied.Steps) != len(steps) {
		t.Fatalf("the report has %d of %d steps (%v): %s", len(said.Applied.Steps), len(steps), err, report)
	}
	after := left(t, b)
	n := len(before)
	for id, times := range seen.of {
		if times != 1 || after[id] {
			t.Errorf("record %s was sent %d times and is there: %v", id, times, after[id])
		}
	}
	for i, id := range steps {
		if s := said.Applied.Steps[i]; !strings.Contains(s.Arguments, id) || s.State == "open" || s.State == "sending" {
			t.Errorf("step %d (%s) in the report: %v", i+1, id, s)
		}
	}
	if seen.of[steps[1]]+seen.of[steps[3]] != 0 || !after[steps[1]] || !after[steps[3]] {
		t.Error("a removed step was carried out")
	}
	if kill {
		// Steps 1, 3 and 5 were answered for, 6 was under way.
		if want := fmt.Sprintf("%d steps: 3 done, 2 removed by the reviewer, 1 with unknown outcome, %d not sent", n, n-6); !strings.Contains(report, want) || len(seen.of) != 4 {
			t.Errorf("%d were sent, want %q in\n%s", len(seen.of), want, report)
		}
		settled(t, b, seen, m, steps)
		return
	}
	if want := fmt.Sprintf(`{"found":%d,"deleted":%d,"kept":["removed","removed"]}`, n, n-2); !strings.Contains(report, want) || len(after) != 2 {
		t.Errorf("%d are left, want %s in\n%s", len(after), want, report)
	}
}

// settled has a person say on the page that the step under way was carried out;
// then the rest is, each once, and the code comes to its end.
func settled(t *testing.T, b *process, seen *deletions, plan []string, steps []string) {
	t.Helper()
	ctx := testbrowser.Start(t)
	happened := chromedp.CSS(`#step-6 button[value="happened"]`)
	if err := chromedp.Do(ctx, chromedp.Navigate(b.base()+plan[0]), chromedp.Click(happened), chromedp.WaitNotPresent(happened)); err != nil {
		t.Fatalf("say that it happened: %v\n%s", err, body(ctx))
	}
	s := connect(t, b, legacy, "optimize_context=search_and_execute", nil)
	report := text(t, call(t, s, "portal_execute", map[string]any{"plan": plan[1]}))
	n := len(steps)
	if want := fmt.Sprintf(`"deleted":%d,"kept":["removed","removed","answer_lost"]`, n-3); !strings.Contains(report, want) {
		t.Errorf("after the step was settled: want %s in\n%s", want, report)
	}
	after := left(t, b)
	for id, times := range seen.of {
		if times != 1 || after[id] {
			t.Errorf("record %s was sent %d times and is there: %v", id, times, after[id])
		}
	}
	if len(after) != 2 || len(seen.of) != n-2 {
		t.Errorf("%d records are left, %d were sent", len(after), len(seen.of))
	}
}

// review takes the ticks off two steps of a plan in a browser and approves the
// rest. It returns the record ids of the steps in order.
func review(t *testing.T, page string, without ...int) (records []string) {
	t.Helper()
	ctx := testbrowser.Start(t)
	css := func(s string) chromedp.CSS { return chromedp.CSS(s) }
	must := func(what string, err error) {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	must("open the plan", chromedp.Do(ctx, chromedp.Navigate(page), chromedp.WaitVisible(css(`button[value="approve"]`))))
	steps, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](`[...document.querySelectorAll(".steps pre")].map(p => JSON.parse(p.textContent).record_id)`))
	must("read the steps", err)
	for _, i := range without {
		must("untick", chromedp.Do(ctx, chromedp.Click(css(fmt.Sprintf(`input[name="step"][value="%d"]`, i)))))
	}
	must("approve", chromedp.Do(ctx, chromedp.Click(css(`button[value="approve"]`)), chromedp.WaitNotPresent(css(`button[value="approve"]`))))
	return steps
}
