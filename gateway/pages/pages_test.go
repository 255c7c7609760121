package pages

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

var noon = time.Date(2026, 12, 2, 12, 0, 0, 0, time.UTC)

func newPages(t testing.TB) *Pages {
	t.Helper()
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	p.now = func() time.Time { return noon }
	return p
}

func frame() Frame {
	return Frame{
		Portal: "Example Company", CSRF: "tok<en>", SignOut: "/auth/logout", Pending: 2,
		User: &auth.Principal{ID: "i|alice", Name: "Alice Doe", Email: "alice@example.com", Groups: []string{"ops", "staff"}},
	}
}

func homeData() HomeData {
	return HomeData{Frame: frame(), Endpoint: "https://portal.example.com/mcp", SignsIn: true, ToolCount: 31, Servers: []Server{
		{ID: "dns", Title: "DNS", Description: "Zones and records of all domains", State: "ready", Tools: 9},
		{ID: "tracker", Description: "Issues, projects and who works on what", State: "ready", Tools: 14},
		{ID: "billing", Title: "Billing", Description: "Invoices and refunds", State: "degraded", Tools: 8,
			Reason: "billing: connection refused at https://billing.internal/mcp; is the server running?"},
		{ID: "kb", Title: "Knowledge base", Description: "Articles and runbooks", State: "connecting"},
	}}
}

func approval() *writeguard.Approval {
	args := json.RawMessage(`{"comment":"clean-up <b>now</b>","force":true,"record_id":"rec_0192","zone_id":"z_17"}`)
	return &writeguard.Approval{
		ID: "ap-ABCDEFGHIJKLMNOPQRSTUVWXYZ", User: "i|alice", UserName: "Alice Doe", Client: "claude-code/2.1.4",
		Server: "dns", Tool: "record_delete", Class: writeguard.Destructive, Source: "name", Why: `the name says "delete"`,
		Rule: "preset careful", Reason: "dns/record_delete is destructive: preset careful asks a person to approve this call before it is sent.",
		Arguments: args, Hash: writeguard.HashArguments(args), Mode: writeguard.Code, Run: "run_81f3",
		Created: noon.Add(-40 * time.Second), Expires: noon.Add(14*time.Minute + 20*time.Second), State: writeguard.Pending,
	}
}

// node is one element of a parsed page.
type node struct {
	name  string
	attrs map[string]string
	text  string // of the element and below
	kids  []*node
}

func (n *node) all(name string, attrs ...string) (out []*node) {
	ok := n.name == name
	for i := 0; i+1 < len(attrs); i += 2 {
		ok = ok && n.attrs[attrs[i]] == attrs[i+1]
	}
	if ok {
		out = append(out, n)
	}
	for _, k := range n.kids {
		out = append(out, k.all(name, attrs...)...)
	}
	return out
}

func (n *node) one(t *testing.T, name string, attrs ...string) *node {
	t.Helper()
	got := n.all(name, attrs...)
	if len(got) != 1 {
		t.Fatalf("%d elements %s %v, want one", len(got), name, attrs)
	}
	return got[0]
}

// parse reads a page. It fails on tags that do not match, which a browser
// would silently repair into another page.
func parse(t *testing.T, body string) *node {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(body))
	d.Strict, d.Entity = false, xml.HTMLEntity
	d.AutoClose = []string{"meta", "link", "input", "wbr", "br"}
	root := &node{name: "#"}
	stack := []*node{root}
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the page is not well-formed: %v\n%s", err, body)
		}
		switch x := tok.(type) {
		case xml.StartElement:
			n := &node{name: x.Name.Local, attrs: map[string]string{}}
			for _, a := range x.Attr {
				n.attrs[a.Name.Local] = a.Value
			}
			top := stack[len(stack)-1]
			top.kids = append(top.kids, n)
			stack = append(stack, n)
		case xml.EndElement:
			if stack[len(stack)-1].name != x.Name.Local {
				t.Fatalf("</%s> closes <%s>", x.Name.Local, stack[len(stack)-1].name)
			}
			stack = stack[:len(stack)-1]
		case xml.CharData:
			for _, n := range stack {
				n.text += string(x)
			}
		}
	}
	if len(stack) != 1 {
		t.Fatalf("<%s> is not closed", stack[len(stack)-1].name)
	}
	return root
}

func get(t *testing.T, f func(http.ResponseWriter) error) (*node, *httptest.ResponseRecorder) {
	t.Helper()
	w := httptest.NewRecorder()
	if err := f(w); err != nil {
		t.Fatal(err)
	}
	return parse(t, w.Body.String()), w
}

func TestHome(t *testing.T) {
	p := newPages(t)
	doc, w := get(t, func(w http.ResponseWriter) error { return p.Home(w, homeData()) })
	if w.Code != 200 || doc.one(t, "title").text != "Example Company" {
		t.Errorf("status %d, title %q", w.Code, doc.one(t, "title").text)
	}
	if got := doc.one(t, "pre", "id", "endpoint").text; got != "https://portal.example.com/mcp" {
		t.Errorf("endpoint %q", got)
	}
	const two = "https://portal.example.com/mcp?optimize_context=search_and_execute"
	for id, want := range map[string]string{
		"c-claude-code-0": `claude mcp add --transport http example-company "` + two + `"`,
		"c-codex-0":       `codex mcp add example-company --url "` + two + `"`,
		"c-other-0":       two,
	} {
		if got := doc.one(t, "pre", "id", id).text; got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
	form := doc.one(t, "form")
	if form.attrs["action"] != "/auth/logout" || form.attrs["method"] != "post" || form.one(t, "input", "name", "csrf").attrs["value"] != "tok<en>" {
		t.Errorf("sign-out form %v", form.attrs)
	}
	for _, want := range []string{"Alice Doe", "alice@example.com", "ops, staff", "31 tools of 4 servers", "connection refused", "asks you to sign in"} {
		if !strings.Contains(doc.text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if n := len(doc.all("li", "class", "card")); n != 4 {
		t.Errorf("%d servers", n)
	}
	// Every copy button copies something that is there.
	for _, b := range doc.all("button", "class", "copy") {
		doc.one(t, "pre", "id", b.attrs["data-copy"])
		if _, hidden := b.attrs["hidden"]; !hidden {
			t.Error("a copy button shows without a script")
		}
	}

	all := homeData()
	all.AllTools, all.SignOut, all.SignsIn, all.Warnings = true, "", false, []string{"Development mode: nobody signs in."}
	doc, _ = get(t, func(w http.ResponseWriter) error { return p.Home(w, all) })
	if got := doc.one(t, "pre", "id", "c-other-0").text; got != "https://portal.example.com/mcp" {
		t.Errorf("all tools: %q", got)
	}
	if len(doc.all("form")) != 0 || !strings.Contains(doc.text, "Development mode") || strings.Contains(doc.text, "asks you to sign in") {
		t.Error("development mode offers to sign out or does not warn")
	}
	none := homeData()
	none.Servers, none.Problem = nil, "The list of servers is not known."
	doc, _ = get(t, func(w http.ResponseWriter) error { return p.Home(w, none) })
	if !strings.Contains(doc.text, none.Problem) || strings.Contains(doc.text, "no server that you may use") {
		t.Error("an unknown list looks like an empty one")
	}
}

func TestHomeWithoutAddress(t *testing.T) {
	for _, endpoint := range []string{"", "portal/mcp", "javascript:alert(1)", "http://", "ftp://x/mcp", "http://[::1"} {
		d := homeData()
		d.Endpoint = endpoint
		w := httptest.NewRecorder()
		if err := newPages(t).Home(w, d); err == nil || w.Code != 500 {
			t.Errorf("endpoint %q: %v, status %d", endpoint, err, w.Code)
		}
	}
}

// TestClients checks that what is copied parses to the address again.
func TestClients(t *testing.T) {
	const address = "http://127.0.0.1:8080/mcp?a=1&optimize_context=search_and_execute"
	blocks := map[string]string{}
	links := map[string]string{}
	for _, c := range clients("demo", address, true) {
		for _, b := range c.Blocks {
			blocks[c.ID+" "+b.Label] = b.Text
		}
		links[c.ID] = string(c.Link)
	}
	for key, path := range map[string][]string{
		"cursor In ~/.cursor/mcp.json":   {"mcpServers", "demo", "url"},
		"vs-code Or in .vscode/mcp.json": {"servers", "demo", "url"},
		"other As JSON":                  {"mcpServers", "demo", "url"},
		"stdio Through mcp-remote, which signs in with the browser and needs Node.js": {"mcpServers", "demo", "args"},
		"stdio Through the portal's own program, with a service token":                {"mcpServers", "demo", "args"},
	} {
		var v any
		if err := json.Unmarshal([]byte(blocks[key]), &v); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		for _, p := range path {
			v = v.(map[string]any)[p]
		}
		if args, ok := v.([]any); ok {
			if !slices.Equal(args, []any{"-y", "mcp-remote", address, "--allow-http"}) && !slices.Equal(args, []any{"stdio", "--url", address}) {
				t.Errorf("%s: %v", key, args)
			}
		} else if v != address {
			t.Errorf("%s: %v", key, v)
		}
	}
	if got, want := blocks["vs-code In a terminal (macOS, Linux)"], `code --add-mcp '{"name":"demo","type":"http","url":"`+address+`"}'`; got != want {
		t.Errorf("vs code: %s", got)
	}
	checkLinks(t, links, address)
	for _, c := range clients("demo", address, false) {
		for _, b := range c.Blocks {
			if strings.Contains(b.Label+b.Text, "token") || strings.Contains(b.Label+b.Text, "TOKEN") {
				t.Errorf("%s asks for a token that nobody has: %s", c.ID, b.Text)
			}
		}
	}
}

func TestClientName(t *testing.T) {
	for in, want := range map[string]string{
		"Example Company": "example-company", "": "portal", "日本": "portal", "--A  b!!": "a-b", "\"; rm -rf ~": "rm-rf",
		strings.Repeat("ab ", 20): strings.Repeat("ab-", 10)[:29], "Ünï": "n",
	} {
		if got := ClientName(in); got != want {
			t.Errorf("ClientName(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestApprovalStates(t *testing.T) {
	p := newPages(t)
	for _, tt := range []struct {
		state   writeguard.State
		title   string
		says    string
		buttons int
	}{
		{writeguard.Approved, "Approved", "Tell your agent to go on: its script waits", 0},
		{writeguard.Pending, "Approve this call?", "Nothing has been sent yet", 2},
		{writeguard.Approved, "Approved", "make the same call again", 0},
		{writeguard.Denied, "Denied", "was not sent", 0},
		{writeguard.Used, "Approved and sent", "will need another approval", 0},
		{writeguard.Expired, "Expired", "The time is over", 0},
	} {
		a := approval()
		a.State = tt.state
		if strings.Contains(tt.says, "same call") {
			a.Mode, a.Run = writeguard.Direct, ""
		}
		if tt.state != writeguard.Pending && tt.state != writeguard.Expired {
			a.DecidedBy, a.DecidedAt, a.Via, a.Note, a.UsedAt = a.User, noon, writeguard.ViaWeb, "too much", noon
		}
		doc, w := get(t, func(w http.ResponseWriter) error {
			return p.Approval(w, ApprovalData{Frame: frame(), Approval: a, Action: "/approvals/" + a.ID})
		})
		if w.Code != 200 || doc.one(t, "h1").text != tt.title || !strings.Contains(doc.text, tt.says) {
			t.Errorf("%s: status %d, %q", tt.state, w.Code, doc.one(t, "h1").text)
		}
		var decisions []string
		for _, b := range doc.all("button", "name", "decision") {
			decisions = append(decisions, b.attrs["value"])
		}
		slices.Sort(decisions)
		if len(decisions) != tt.buttons || tt.buttons == 2 && !slices.Equal(decisions, []string{"approve", "deny"}) {
			t.Errorf("%s: buttons %v", tt.state, decisions)
		}
		for _, want := range []string{"dns", "record_delete", "destructive", "claude-code/2.1.4", "Alice Doe", a.Run, "preset careful", `says "delete"`} {
			if !strings.Contains(doc.text, want) {
				t.Errorf("%s: the page does not say %q", tt.state, want)
			}
		}
		if a.DecidedBy != "" && !strings.Contains(doc.text, "on this page: too much") {
			t.Errorf("%s: the decision is not shown", tt.state)
		}
	}
	a := approval()
	doc, _ := get(t, func(w http.ResponseWriter) error {
		return p.Approval(w, ApprovalData{Frame: frame(), Approval: a, Problem: "It was too late."})
	})
	if len(doc.all("form")) != 0 || !strings.Contains(doc.text, "It was too late.") {
		t.Error("a page without an action has a form, or hides the problem")
	}
}

// TestApprovalShowsEverything: all arguments, however many, and nothing that
// does not show.
func TestApprovalShowsEverything(t *testing.T) {
	p := newPages(t)
	a := approval()
	a.Arguments = json.RawMessage(`{"body":"` + strings.Repeat("a long text ", 20000) + `THE END","to":"all` + "\u202e\u200b" + `"}`)
	a.Tool = "record\u202edelete\n"
	doc, w := get(t, func(w http.ResponseWriter) error {
		return p.Approval(w, ApprovalData{Frame: frame(), Approval: a, Action: "/x"})
	})
	shown := doc.one(t, "pre", "id", "args").text
	if again, err := writeguard.Canonical(json.RawMessage(shown)); err != nil || string(again) != string(a.Arguments) {
		t.Errorf("what is shown is not what is sent (%v, %d bytes of %d)", err, len(again), len(a.Arguments))
	}
	if !strings.Contains(shown, `all\u202e\u200b`) || !strings.Contains(doc.text, `record\u202edelete\u000a`) || !strings.Contains(doc.text, "Look closely") {
		t.Error("hidden characters are not shown")
	}
	if strings.ContainsAny(w.Body.String(), "\u202e\u200b") {
		t.Error("a hidden character is in the page")
	}
	doc, _ = get(t, func(w http.ResponseWriter) error {
		return p.Approval(w, ApprovalData{Frame: frame(), Approval: approval(), Action: "/x"})
	})
	if strings.Contains(doc.text, "Look closely") {
		t.Error("a warning without a reason")
	}
}

// runData is a script that waits with two calls of the viewer and one of
// somebody else, after one that was denied.
func runData(action string) RunData {
	d := RunData{Frame: frame(), Run: "run_81f3", Action: action}
	for i, tool := range []string{"record_update", "record_delete", "record_delete", "message_post"} {
		a := approval()
		a.ID, a.Tool = fmt.Sprintf("ap-%d", i), tool
		a.Arguments = json.RawMessage(fmt.Sprintf(`{"id":"r%d","to":"2001:db8:85a3:0000:0000:8a2e:0370:7334`+"\u202e"+`"}`, i))
		c := ApprovalData{Approval: a, Action: "/approvals/" + a.ID}
		switch i {
		case 0:
			a.State, a.DeciderName, a.DecidedBy, a.Note = writeguard.Denied, "Alice Doe", a.User, "not that one"
		case 3:
			a.Approvers, c.Action = &config.Approvers{Groups: []string{"security"}}, ""
		}
		d.Calls = append(d.Calls, c)
	}
	return d
}

// How many calls destroy is said as a person would.
func TestDestructiveIsSaidInWords(t *testing.T) {
	for want, n := range map[string][2]int{"1 call": {1, 0}, "1 destructive call": {1, 1}, "2 calls": {2, 0}, "2 calls, 1 of them destructive": {2, 1}, "2 calls, all of them destructive": {2, 2}} {
		if got := destructive(n[0], n[1], "call", "calls"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The list of plans says of each where it goes and what the worst of it is.
func TestListedPlansSayWhereAndWhat(t *testing.T) {
	p := newPages(t)
	steps := []writeguard.PlanStep{{Server: "dns", Class: writeguard.Write}, {Server: "crm", Class: writeguard.Destructive}, {Server: "dns", Class: writeguard.Read}}
	plan := &writeguard.Plan{ID: "pl-1", UserName: "Ada", Created: noon, Steps: steps}
	doc, _ := get(t, func(w http.ResponseWriter) error {
		return p.Approvals(w, ApprovalsData{Frame: frame(), Plans: []writeguard.Listed{{Plan: plan, Progress: &writeguard.Progress{Expires: noon}, State: writeguard.PlanOpen}}})
	})
	if !strings.Contains(doc.text, "Plan of 3 calls") || !strings.Contains(doc.text, "on dns, crm") || len(doc.all("span", "class", "badge destructive")) != 1 {
		t.Errorf("%s", doc.text)
	}
}

// The page of a run shows every argument of every call, and asks only about
// those that wait for the viewer.
func TestRunPage(t *testing.T) {
	p := newPages(t)
	doc, w := get(t, func(w http.ResponseWriter) error { return p.Run(w, runData("/approvals/run/run_81f3")) })
	var shown, ticked []string
	for _, in := range doc.all("input") {
		switch in.attrs["name"] {
		case "shown":
			shown = append(shown, in.attrs["value"])
		case "call":
			ticked = append(ticked, in.attrs["value"])
		}
	}
	if want := []string{"ap-1", "ap-2"}; !slices.Equal(shown, want) || !slices.Equal(ticked, want) {
		t.Errorf("shown %v, to tick %v", shown, ticked)
	}
	for _, want := range []string{"Approve these 3 calls?", "2 calls of one script, all of them destructive", `"r0"`, `"r1"`, `"r2"`, `"r3"`, "not that one", "a member of security", "Look closely"} {
		if !strings.Contains(doc.text, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.Contains(w.Body.String(), "\u202e") {
		t.Error("a hidden character is in the page")
	}
	d := runData("/x")
	d.Calls = d.Calls[:1]
	doc, _ = get(t, func(w http.ResponseWriter) error { return p.Run(w, d) })
	if len(doc.all("form", "class", "decide")) != 0 || !strings.Contains(doc.text, "Nothing waits any more") {
		t.Errorf("a script that waits for nothing: %s", doc.text)
	}

	first, second, other := approval(), approval(), approval()
	second.ID, other.Run = "ap-2", "run_other"
	doc, _ = get(t, func(w http.ResponseWriter) error {
		return p.Approvals(w, ApprovalsData{Frame: frame(), Path: "/approvals/", Approvals: []*writeguard.Approval{first, other, second}})
	})
	doc.one(t, "a", "href", "/approvals/run/run_81f3")
	if n := len(doc.all("a", "href", "/approvals/run/run_other")); n != 0 {
		t.Error("one call is offered together")
	}
}

func TestApprovalsAndServers(t *testing.T) {
	p := newPages(t)
	done := approval()
	done.ID, done.State = "ap-BBCDEFGHIJKLMNOPQRSTUVWXYZ", writeguard.Denied
	doc, _ := get(t, func(w http.ResponseWriter) error {
		return p.Approvals(w, ApprovalsData{Frame: frame(), Path: "/approvals/", Approvals: []*writeguard.Approval{approval(), done}})
	})
	doc.one(t, "a", "href", "/approvals/"+done.ID)
	if s := doc.one(t, "section", "aria-labelledby", "open"); !strings.Contains(s.text, "record_delete") || !strings.Contains(s.text, `"zone_id":"z_17"`) || len(s.all("li")) != 1 {
		t.Errorf("waiting: %s", s.text)
	}
	if s := doc.one(t, "section", "aria-labelledby", "closed"); !strings.Contains(s.text, "denied") {
		t.Errorf("earlier: %s", s.text)
	}
	doc, _ = get(t, func(w http.ResponseWriter) error { return p.Approvals(w, ApprovalsData{Frame: frame()}) })
	if !strings.Contains(doc.text, "Nothing waits for you") {
		t.Error("empty list")
	}
	doc, _ = get(t, func(w http.ResponseWriter) error {
		return p.Approvals(w, ApprovalsData{Frame: frame(), Problem: "The store cannot be reached."})
	})
	if strings.Contains(doc.text, "Nothing waits for you") || !strings.Contains(doc.text, "cannot be reached") {
		t.Error("an unknown list looks like an empty one")
	}

	servers := homeData().Servers
	servers[0].Toggle, servers[1].Toggle = &Toggle{"/servers", true}, &Toggle{"/servers", false}
	servers[0].Warnings, servers[2].NextTry, servers[0].Listed = []string{"2 tools are withheld"}, noon.Add(20*time.Second), noon.Add(-3*time.Hour)
	doc, _ = get(t, func(w http.ResponseWriter) error { return p.Servers(w, ServersData{Frame: frame(), Servers: servers}) })
	for i, want := range []string{"false", "true"} {
		f := doc.all("form")[i]
		if f.one(t, "input", "name", "enabled").attrs["value"] != want || f.one(t, "input", "name", "csrf").attrs["value"] != "tok<en>" ||
			f.one(t, "input", "name", "server").attrs["value"] != servers[i].ID {
			t.Errorf("switch of %s", servers[i].ID)
		}
	}
	if got := strings.Count(doc.text, "turned off by you"); got != 1 {
		t.Errorf("%d servers are shown as turned off", got)
	}
	for _, want := range []string{"2 tools are withheld", "next try in 20 s", "listed 3 h ago", "connection refused", "degraded"} {
		if !strings.Contains(doc.text, want) {
			t.Errorf("servers: %q is missing", want)
		}
	}
}

func TestMessage(t *testing.T) {
	p := newPages(t)
	doc, w := get(t, func(w http.ResponseWriter) error {
		return p.Message(w, MessageData{Frame: Frame{Portal: "P", SignIn: "/auth/login"}, Status: 404, Title: "Not found", Text: "There is nothing here."})
	})
	if w.Code != 404 || doc.one(t, "h1").text != "Not found" || len(doc.all("a", "href", "/auth/login")) != 1 {
		t.Errorf("status %d\n%s", w.Code, doc.text)
	}
	_, w = get(t, func(w http.ResponseWriter) error { return p.Message(w, MessageData{Title: "x"}) })
	if w.Code != 500 {
		t.Errorf("no status given: %d", w.Code)
	}
}

func TestAssets(t *testing.T) {
	p := newPages(t)
	fetch := func(method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		p.Assets().ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w
	}
	for name, kind := range map[string]string{"copy.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"} {
		w := fetch("GET", p.assets.path(name))
		if w.Code != 200 || w.Header().Get("Content-Type") != kind || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") || w.Body.Len() == 0 {
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		}
		if w := fetch("GET", "/assets/"+name+"?v=old"); w.Code != 200 || w.Header().Get("Cache-Control") != "no-cache" {
			t.Errorf("%s of another version: %d %v", name, w.Code, w.Header())
		}
	}
	for _, path := range []string{"/assets/", "/assets/portal.css", "/assets/../pages.go", "/assets/nope.js", "/copy.js"} {
		if w := fetch("GET", path); w.Code != 404 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if w := fetch("POST", "/assets/copy.js"); w.Code != 405 {
		t.Errorf("POST: %d", w.Code)
	}
}

// TestNeverHalfAPage: a template that fails is a 500 and an error.
func TestNeverHalfAPage(t *testing.T) {
	w := httptest.NewRecorder()
	if err := newPages(t).render(w, 200, "approval", "x", frame(), struct{ Problem string }{}); err == nil || w.Code != 500 || strings.Contains(w.Body.String(), "<") {
		t.Errorf("%v, status %d, %s", err, w.Code, w.Body)
	}
}
