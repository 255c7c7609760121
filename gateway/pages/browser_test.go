package pages

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/mcp-portal/mcp-portal/internal/testbrowser"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// site serves the pages as the gateway will, and remembers what was posted.
type site struct {
	*httptest.Server
	mu     sync.Mutex
	posts  []url.Values
	paths  []string
	closed bool // the approval was decided
}

func newSite(t *testing.T) *site {
	p := newPages(t)
	s := &site{}
	mux := http.NewServeMux()
	mux.Handle("/assets/", p.Assets())
	show := func(f func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			s.paths = append(s.paths, r.URL.String())
			s.mu.Unlock()
			if err := f(w, r); err != nil {
				t.Error(err)
			}
		}
	}
	mux.HandleFunc("GET /{$}", show(func(w http.ResponseWriter, r *http.Request) error {
		d := homeData()
		d.Endpoint, d.AllTools = s.URL+"/mcp", r.URL.Query().Get("tools") == "all"
		d.Warnings = []string{"Development mode: nobody signs in, and the portal answers on this machine only."}
		return p.Home(w, d)
	}))
	mux.HandleFunc("GET /approvals/{id}", show(func(w http.ResponseWriter, r *http.Request) error {
		a := approval()
		s.mu.Lock()
		if s.closed {
			a.State, a.DecidedBy, a.DecidedAt, a.Via = writeguard.Approved, a.User, noon, writeguard.ViaWeb
		}
		s.mu.Unlock()
		return p.Approval(w, ApprovalData{Frame: frame(), Approval: a, Action: r.URL.Path})
	}))
	mux.HandleFunc("POST /approvals/{id}", func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		s.posts, s.closed = append(s.posts, r.PostForm), true
		s.mu.Unlock()
		http.Redirect(w, r, r.URL.Path, http.StatusSeeOther)
	})
	mux.HandleFunc("GET /plans/{id}", show(func(w http.ResponseWriter, r *http.Request) error {
		args := json.RawMessage(`{"zone_id":"z_17","content":"2001:db8:85a3:0000:0000:8a2e:0370:7334"}`)
		plan := &writeguard.Plan{ID: "pl-X", User: "u", UserName: "Ada", Mode: writeguard.Code, Run: "run_X", Stage: 1, Created: noon, Ends: "the code looks into the answer of step 1", Reads: 3}
		d := PlanData{Frame: frame(), Plan: plan, Progress: &writeguard.Progress{Expires: noon}, State: writeguard.PlanOpen, Action: r.URL.Path, Undo: "/undo", UndoSteps: 2}
		for i := range 3 {
			step := writeguard.PlanStep{Server: "dns", Tool: strings.Repeat("record_update_", 1+5*i), Class: writeguard.Destructive, Rule: "clean-ups", Arguments: args, Refs: []writeguard.StepRef{{Step: 0, Path: "id"}},
				Preview: &writeguard.Preview{Tool: "record_get", Value: json.RawMessage(`{"content":"198.51.100.7"}`)}}
			plan.Steps = append(plan.Steps, step)
			d.Progress.Steps = append(d.Progress.Steps, writeguard.StepProgress{State: writeguard.StepOpen})
			d.Steps = append(d.Steps, PlanStep{Index: i, Step: step, Progress: d.Progress.Steps[i], Mine: true})
		}
		return p.Plan(w, d)
	}))
	mux.HandleFunc("GET /approvals/run/{run}", show(func(w http.ResponseWriter, r *http.Request) error {
		return p.Run(w, runData(r.URL.Path))
	}))
	mux.HandleFunc("GET /approvals", show(func(w http.ResponseWriter, _ *http.Request) error {
		used, denied, write := approval(), approval(), approval()
		used.State, denied.State = writeguard.Used, writeguard.Denied
		write.Server, write.Tool, write.Class = "tracker", "issue_create", writeguard.Write
		return p.Approvals(w, ApprovalsData{Frame: frame(), Path: "/approvals/", Approvals: []*writeguard.Approval{approval(), write, used, denied}})
	}))
	mux.HandleFunc("GET /servers", show(func(w http.ResponseWriter, _ *http.Request) error {
		d := ServersData{Frame: frame(), Servers: homeData().Servers}
		for i := range d.Servers {
			d.Servers[i].Toggle, d.Servers[i].Since = &Toggle{"/servers", i != 1}, noon.Add(-time.Duration(i+1)*time.Hour)
		}
		d.Servers[2].NextTry = noon.Add(25 * time.Second)
		return p.Servers(w, d)
	}))
	mux.HandleFunc("GET /gone", show(func(w http.ResponseWriter, _ *http.Request) error {
		return p.Message(w, MessageData{Frame: frame(), Status: 404, Title: "There is no such page", Text: "The address may be old."})
	}))
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func (s *site) posted() []url.Values {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]url.Values(nil), s.posts...)
}

// newBrowser starts Chromium and returns a tab and what its console and its
// policies complained about.
func newBrowser(t *testing.T) (context.Context, func() []string) {
	t.Helper()
	tab := testbrowser.Start(t)
	var mu sync.Mutex
	var said []string
	if err := chromedp.Listen(tab, func(ev any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := ev.(type) {
		case *log.EventEntryAdded:
			said = append(said, fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		case *runtime.EventConsoleAPICalled:
			said = append(said, "console."+string(e.Type))
		case *runtime.EventExceptionThrown:
			said = append(said, "exception: "+e.ExceptionDetails.Text)
		}
	}); err != nil {
		t.Fatalf("listen to Chromium: %v", err)
	}
	command(t, tab, log.Enable, cdp.Empty{})
	return tab, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), said...)
	}
}

func do(t *testing.T, ctx context.Context, what string, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(ctx, actions...); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func value[T any](t *testing.T, ctx context.Context, action chromedp.Action[T]) T {
	t.Helper()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func command[P, R any](t *testing.T, ctx context.Context, c cdp.Command[P, R], params P) R {
	t.Helper()
	r, err := chromedp.Call(ctx, c, params)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func css(selector string) chromedp.CSS { return chromedp.CSS(selector) }

func TestBrowserCopies(t *testing.T) {
	s := newSite(t)
	ctx, complaints := newBrowser(t)
	for _, name := range []string{"clipboard-read", "clipboard-write"} {
		if _, err := chromedp.CallBrowser(ctx, browser.SetPermission, browser.SetPermissionParams{
			Permission: &browser.PermissionDescriptor{Name: name}, Setting: browser.PermissionSettingGranted, Origin: s.URL}); err != nil {
			t.Fatal(err)
		}
	}
	do(t, ctx, "copy",
		chromedp.Navigate(s.URL+"/"),
		chromedp.WaitVisible(css(`button[data-copy="c-claude-code-0"]`)),
		chromedp.Click(css(`button[data-copy="c-claude-code-0"]`)),
		chromedp.WaitVisible(css(`button.copy.done`)))
	label := value(t, ctx, chromedp.Text(css(`button.copy.done`)))
	said := value(t, ctx, chromedp.TextContent(css(`#said`)))
	clip := value(t, ctx, chromedp.Evaluate[string](`navigator.clipboard.readText()`, chromedp.EvalAwaitPromise))
	if want := `claude mcp add --transport http example-company "` + s.URL + `/mcp?optimize_context=search_and_execute"`; clip != want {
		t.Errorf("clipboard %q, want %q", clip, want)
	}
	if said != "Copied" || !strings.HasPrefix(label, "Copied") {
		t.Errorf("said %q, label %q", said, label)
	}
	// The style sheet passed its policy.
	if display := value(t, ctx, chromedp.Evaluate[string](`getComputedStyle(document.querySelector(".endpoint .code")).display`)); display != "flex" {
		t.Errorf("display %q: the style sheet does not apply", display)
	}
	for _, path := range []string{"/?tools=all", "/servers", "/approvals", "/approvals/x", "/gone"} {
		do(t, ctx, path, chromedp.Navigate(s.URL+path), chromedp.WaitReady(css(`#said`)))
	}
	for _, c := range complaints() {
		if strings.Contains(c, "404") && strings.Contains(c, "/gone") {
			continue // Chromium logs the status of the page itself
		}
		t.Errorf("the browser complains: %s", c)
	}

	// The same policy stops what does not belong there.
	before := len(complaints())
	do(t, ctx, "home", chromedp.Navigate(s.URL+"/"))
	ran := value(t, ctx, chromedp.Evaluate[bool](`
		document.body.insertAdjacentHTML("beforeend", '<img src="data:," onerror="window.hit=1">');
		const e = document.createElement("script"); e.textContent = "window.hit=1"; document.body.append(e); !!window.hit`))
	if ran || len(complaints()) == before {
		t.Errorf("an injected script ran: %v, complaints %v", ran, complaints()[before:])
	}
}

func TestBrowserApprovesWithoutScript(t *testing.T) {
	s := newSite(t)
	ctx, complaints := newBrowser(t)
	command(t, ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	do(t, ctx, "approval page", chromedp.Navigate(s.URL+"/approvals/x"), chromedp.WaitVisible(css(`button[value="approve"]`)))
	if args := value(t, ctx, chromedp.Text(css(`#args`))); !strings.Contains(args, `"zone_id": "z_17"`) {
		t.Errorf("arguments %q", args)
	}
	if display := value(t, ctx, chromedp.Evaluate[string](`getComputedStyle(document.querySelector("button.copy")).display`)); display != "none" {
		t.Errorf("copy button without a script: %s", display)
	}
	do(t, ctx, "approve",
		chromedp.SendKeys(css(`#note`), "fine"+kb.Enter), // Enter decides nothing
		chromedp.Click(css(`button[value="approve"]`)),
		chromedp.WaitNotPresent(css(`form.decide`)))
	title := value(t, ctx, chromedp.Text(css(`h1`)))
	posts := s.posted()
	if len(posts) != 1 {
		t.Fatalf("%d posts: %v", len(posts), posts)
	}
	if got := posts[0].Encode(); got != "csrf=tok%3Cen%3E&decision=approve&note=fine" || title != "Approved" {
		t.Errorf("posted %s, then %q", got, title)
	}
	if c := complaints(); len(c) > 0 {
		t.Errorf("the browser complains: %v", c)
	}
}

// TestBrowserLayout: neither on a phone nor on a desk is anything wider than
// the screen. With PAGES_SCREENSHOTS=dir it also leaves pictures there.
func TestBrowserLayout(t *testing.T) {
	s := newSite(t)
	ctx, _ := newBrowser(t)
	dir := os.Getenv("PAGES_SCREENSHOTS")
	for name, path := range map[string]string{"home": "/", "all": "/?tools=all", "approval": "/approvals/x", "approvals": "/approvals", "plan": "/plans/x", "run": "/approvals/run/run_81f3", "servers": "/servers", "gone": "/gone"} {
		for _, width := range []int64{360, 1100} {
			do(t, ctx, path, chromedp.EmulateViewport(width, 800), chromedp.Navigate(s.URL+path), chromedp.WaitReady(css(`#said`)))
			if wide := value(t, ctx, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`)); wide > width {
				t.Errorf("%s at %d px is %d px wide", path, width, wide)
			}
			for _, scheme := range []string{"light", "dark"} {
				if dir == "" {
					continue
				}
				command(t, ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
				png := value(t, ctx, chromedp.FullScreenshot(100))
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, width, scheme)), png, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// On a phone, what is asked about is to be read and answered without searching:
// the buttons of a decision are in sight as soon as the page is, and leave most
// of it to what is decided. With PAGES_SCREENSHOTS=dir it leaves pictures there.
func TestDecisionsAreInReachOnAPhone(t *testing.T) {
	s := newSite(t)
	ctx, _ := newBrowser(t)
	do(t, ctx, "a phone", chromedp.EmulateViewport(390, 844))
	for _, path := range []string{"/approvals/x", "/plans/pl-X", "/approvals/run/run_81f3"} {
		do(t, ctx, path, chromedp.Navigate(s.URL+path), chromedp.WaitVisible(css(`button[value="approve"]`)))
		said := value(t, ctx, chromedp.Evaluate[string](`[...document.querySelectorAll(".reach button")].map(b => b.getBoundingClientRect()).every(r => r.height > 20 && r.top >= 0 && r.bottom <= innerHeight) + " " +
			(document.querySelector(".reach").getBoundingClientRect().height < innerHeight / 4) + " " +
			(document.querySelector(".args").getBoundingClientRect().top < document.querySelector(".reach").getBoundingClientRect().top)`))
		if said != "true true true" {
			t.Errorf("%s: buttons in sight, not too high, arguments in sight: %s", path, said)
		}
		if dir := os.Getenv("PAGES_SCREENSHOTS"); dir != "" {
			png := value(t, ctx, chromedp.CaptureScreenshot())
			if err := os.WriteFile(filepath.Join(dir, "phone"+strings.ReplaceAll(path, "/", "-")+".png"), png, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}
