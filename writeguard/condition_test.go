package writeguard

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
)

// at is a call with arguments and with what happened before it.
func at(args string, f Facts) Call {
	c := call("crm", "refund_create", Write)
	c.Client, c.Run, c.Mode = "agent/1.0", "run-1", Code
	c.Arguments = json.RawMessage(args)
	c.Facts = func() (Facts, error) { return f, nil }
	return c
}

func TestConditions(t *testing.T) {
	for _, tt := range []struct {
		when string
		args string
		want bool
	}{
		{`args.amount > 100`, `{"amount":101}`, true},
		{`args.amount > 100`, `{"amount":100}`, false},
		{`args.amount > 100`, `{"amount":100.5}`, true},
		{`args.amount == 1`, `{"amount":1.0}`, true},
		{`args.id == 9007199254740993`, `{"id":9007199254740993}`, true},
		{`args.id == 9007199254740993`, `{"id":9007199254740992}`, false},
		{`has(args.amount) && args.amount > 100`, `{}`, false},
		{`args.to.all(x, x.endsWith("@example.com"))`, `{"to":["a@example.com","b@example.com"]}`, true},
		{`args.to.exists(x, !x.endsWith("@example.com"))`, `{"to":["a@example.com","b@evil.test"]}`, true},
		{`args.zone in ["a","b"]`, `{"zone":"b"}`, true},
		{`size(args.ids) > 2`, `{"ids":[1,2,3]}`, true},
		{`args.path.matches("^/tmp/")`, `{"path":"/tmp/x"}`, true},
		{`user.id == "https://idp|alice" && "ops" in user.groups && user.email == "alice@example.com" && user.kind == "user" && user.name == "Alice"`, `{}`, true},
		{`tool.name == "refund_create" && tool.class == "write" && server.id == "crm" && "private" in tool.labels`, `{}`, true},
		{`client.startsWith("agent/") && mode == "code" && run.id == "run-1"`, `{}`, true},
		{`run.calls >= 3 && run.tool_calls == 1 && "untrusted" in run.taints && !("private" in run.taints)`, `{}`, true},
	} {
		p := compiled(t, withLabels(guardConfig("open", config.Rule{When: tt.when, Action: "deny", Reason: "it holds"})))
		d := p.Decide(at(tt.args, Facts{Calls: 3, ToolCalls: 1, Taints: Untrusted}))
		if got := d.Action == Deny; got != tt.want || got && d.Reason != "it holds" {
			t.Errorf("%s over %s: %s %s; want %v", tt.when, tt.args, d.Action, d.Reason, tt.want)
		}
	}
}

func withLabels(cfg *config.Config) *config.Config {
	cfg.Guard.Unlabelled = []string{"private", "untrusted"}
	return cfg
}

// What cannot be judged is refused, also by a rule that would allow.
func TestConditionsFailClosed(t *testing.T) {
	deep := strings.Repeat(`[`, 300) + strings.Repeat(`]`, 300)
	many := `{"xs":[` + strings.TrimSuffix(strings.Repeat(`"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",`, 3000), ",") + `]}`
	for name, tt := range map[string]struct{ when, args, says string }{
		"missing member":  {`args.amount < 5`, `{}`, "no such key: amount"},
		"wrong type":      {`args.amount < 5`, `{"amount":"4"}`, "no such overload"},
		"no list":         {`args.to.exists(x, x == "a")`, `{"to":"a"}`, ""},
		"division":        {`1 / args.n > 0`, `{"n":0}`, "division by zero"},
		"repeated member": {`args.n == 1`, `{"n":1,"n":2}`, ""},
		"too deep":        {`has(args.n)`, `{"n":` + deep + `}`, "nested"},
		"no object":       {`has(args.n)`, `[1]`, "not a JSON object"},
		"unknown":         {`has(args.n)`, ``, "not known"},
		"too costly":      {`args.xs.all(x, args.xs.all(y, x == y))`, many, "cost"},
		"costly pattern":  {`args.xs.exists(x, args.xs.exists(y, y.matches("(a+)+b")))`, many, "cost"},
	} {
		for _, action := range []string{"allow", "approve", "deny"} {
			p := compiled(t, withLabels(guardConfig("open", config.Rule{Name: "the rule", When: tt.when, Action: action})))
			c := at(tt.args, Facts{})
			if tt.args == "" {
				c.Arguments = nil
			}
			d := p.Decide(c)
			if d.Action != Deny || d.Rule != "the rule" || !strings.Contains(d.Reason, "could not be judged") || !strings.Contains(d.Reason, tt.says) || !strings.Contains(d.Reason, "Nothing was sent") {
				t.Errorf("%s, %s: %+v", name, action, d)
			}
		}
	}
	p := compiled(t, withLabels(guardConfig("open", config.Rule{When: `run.calls < 5`, Action: "allow"})))
	c := at(`{}`, Facts{})
	c.Facts = func() (Facts, error) { return Facts{}, errors.New("the store is away") }
	if d := p.Decide(c); d.Action != Deny || !strings.Contains(d.Reason, "the store is away") {
		t.Errorf("facts that are not known: %+v", d)
	}
	c.Facts = nil
	if d := p.Decide(c); d.Action != Deny {
		t.Errorf("no facts: %+v", d)
	}
}

// A condition that does not compile is found when the configuration is loaded,
// with the line it stands on.
func TestConditionsAreCheckedAtLoad(t *testing.T) {
	for when, says := range map[string]string{
		`args.amount >`:      "ends where a value is missing",
		`usr.id == "x"`:      "did you mean user.",
		`user.nam == "x"`:    "did you mean user.",
		`run.calls == "x"`:   "no matching overload",
		`args.amount`:        "not true or false",
		`user.groups`:        "not true or false",
		`nothing(args)`:      "there is no function nothing",
		`user.id = "x"`:      "write ==",
		`tool.class in 5`:    "no matching overload",
		`args.n == 1 && 'x'`: "expected type 'bool'",
	} {
		text := "auth: {mode: none}\nguard:\n  rules:\n    - action: allow\n      servers: ['*']\n    - action: deny\n      when: |\n        " + when + "\n"
		cfg, err := config.Parse("portal.yaml", []byte(text), os.LookupEnv)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Compile(cfg)
		var at config.Error
		if !errors.As(err, &at) || at.Path != "guard.rules[1].when" || at.Line != 7 && at.Line != 8 || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", when, err)
		}
	}
	if _, err := compileCondition(strings.Repeat("true && ", 1000) + "true"); err == nil {
		t.Error("a condition of 8 kB compiles")
	}
}

func TestItemsOfACall(t *testing.T) {
	p := compiled(t, guardConfig("open", config.Rule{Name: "few", Action: "allow", Budget: config.Budget{Items: 3}}))
	for args, want := range map[string]Action{
		`{"ids":[1,2,3]}`:             Allow,
		`{"ids":[1,2,3,4]}`:           Deny,
		`{"a":{"b":[[1],[1,2,3,4]]}}`: Deny,
		`{"ids":"1,2,3,4"}`:           Allow,
		`{"ids":[1],"ids":[1,2]}`:     Deny,
		`{}`:                          Allow,
	} {
		if d := p.Decide(at(args, Facts{})); d.Action != want {
			t.Errorf("%s: %+v", args, d)
		}
	}
}

// Rules match by the client and by whether data leaves the company.
func TestMatchClientAndExternal(t *testing.T) {
	cfg := withLabels(guardConfig("open",
		config.Rule{Name: "old client", Client: []string{"agent/0.*"}, Action: "deny"},
		config.Rule{Name: "leaves", Class: []string{"external"}, Action: "approve"},
		config.Rule{Name: "leaves or destroys", Class: []string{"destructive", "external"}, Action: "deny"}))
	cfg.Servers["mail"] = config.Server{TrustAnnotations: true, Labels: []string{"external"}, Tools: map[string]config.ServerTool{
		"inbox_list": {Labels: []string{"private", "untrusted"}}, "report": {Class: "external", Labels: []string{}}}}
	p := compiled(t, cfg)
	for _, tt := range []struct {
		server, tool, client, rule string
		class                      Class
	}{
		{"crm", "x", "agent/0.9", "old client", Read},
		{"crm", "x", "agent/1.0", "preset open", Read},
		{"crm", "send_report", "agent/1.0", "leaves", Read},
		{"mail", "anything", "", "leaves", Read},
		{"mail", "inbox_list", "", "preset open", Read},
		{"mail", "report", "", "leaves", Read},
		{"crm", "x", "", "leaves or destroys", Destructive},
	} {
		c := call(tt.server, tt.tool, tt.class)
		c.Client = tt.client
		if d := p.Decide(c); d.Rule != tt.rule {
			t.Errorf("%s/%s by %s: %+v", tt.server, tt.tool, tt.client, d)
		}
	}
}

func TestExternalWords(t *testing.T) {
	for name, want := range map[string]string{
		"send_email": "send", "fetch": "fetch", "fetch_url": "url", "web_search": "web", "tavily-search": "", "brave_web_search": "web",
		"browser_navigate": "navigate", "share_file": "share", "get_share_links": "", "publishPage": "publish", "list_emails": "",
		"record_update": "", "read_file": "", "upload_file": "upload", "get_uploads": "", "scrape": "scrape", "http_request": "http", "list_webhooks": "",
	} {
		if got := externalWord(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// The lethal trifecta is closed by default: private data and strangers' text
// have been read, and now something goes out.
func TestTrifecta(t *testing.T) {
	cfg := withLabels(guardConfig("careful"))
	cfg.Servers["web"] = config.Server{TrustAnnotations: true, Labels: []string{"untrusted", "external"}}
	p := compiled(t, cfg)
	for _, tt := range []struct {
		tool  string
		facts func() (Facts, error)
		want  Action
	}{
		{"search", func() (Facts, error) { return Facts{}, nil }, Allow},
		{"search", func() (Facts, error) { return Facts{Taints: Private}, nil }, Allow},
		{"search", func() (Facts, error) { return Facts{Taints: Untrusted}, nil }, Allow},
		{"search", func() (Facts, error) { return Facts{Taints: Private | Untrusted}, nil }, Approve},
		{"search", func() (Facts, error) { return Facts{}, errors.New("away") }, Approve},
		{"search", nil, Approve},
	} {
		c := call("web", tt.tool, Read)
		c.Facts = tt.facts
		if d := p.Decide(c); d.Action != tt.want || tt.want == Approve && d.Rule != "preset careful, data flow" {
			t.Errorf("%+v", d)
		}
	}
	// A read that stays inside is not asked about, and asks for no facts.
	c := call("crm", "contact_get", Read)
	c.Facts = func() (Facts, error) { t.Error("asked"); return Facts{}, nil }
	if d := p.Decide(c); d.Action != Allow {
		t.Errorf("%+v", d)
	}
}

// A guard that only observes lets everything run and says what it would do;
// what cannot be judged at all is refused even so.
func TestObserve(t *testing.T) {
	cfg := guardConfig("read-only")
	cfg.Guard.Observe = true
	p := compiled(t, cfg)
	if d := p.Decide(call("dns", "x", Write)); d.Action != Allow || d.Would != Deny || d.Rule != "preset read-only" {
		t.Errorf("%+v", d)
	}
	if d := p.Decide(call("dns", "x", Read)); d.Action != Allow || d.Would != "" {
		t.Errorf("%+v", d)
	}
	if d := p.Decide(Call{}); d.Action != Deny {
		t.Errorf("%+v", d)
	}
}

// The outlook of a tool says what its calls may come to.
func TestOutlook(t *testing.T) {
	p := compiled(t, withLabels(guardConfig("open",
		config.Rule{Name: "big", When: "args.n > 5", Action: "approve"},
		config.Rule{Name: "late", When: "run.calls > 5", Action: "deny"},
		config.Rule{Name: "bob", When: `user.id == "bob"`, Action: "deny"})))
	c := call("dns", "x", Read)
	c.Arguments, c.Facts = nil, nil
	if o := p.Outlook(c); o.Action != Allow || o.Worst != Deny || fmt.Sprint(o.If) != "[big late]" {
		t.Errorf("%+v", o)
	}
	c.Arguments = json.RawMessage(`{"n":1}`)
	if o := p.Outlook(c); fmt.Sprint(o.If) != "[late]" {
		t.Errorf("%+v", o)
	}
}

// conditions200 is a policy of 200 rules, 20 of them with a condition on the
// arguments, five of which have to be evaluated for the call.
func conditions200(t testing.TB) (*Policy, Call) {
	var rules []config.Rule
	for i := range 200 {
		r := config.Rule{Servers: []string{fmt.Sprintf("s%d", i)}, Tools: []string{"*_update"}, Action: "deny"}
		if i%10 == 0 {
			r = config.Rule{Tools: []string{[]string{"refund_*", "*_delete", "zone_*", "*_void"}[i/10%4]}, When: fmt.Sprintf(`has(args.amount) && args.amount > %d || "boss%d" in user.groups`, 1000+i, i), Action: "approve"}
		}
		rules = append(rules, r)
	}
	return compiled(t, guardConfig("open", rules...)), at(`{"amount":5,"currency":"EUR","note":"thank you for your order","to":{"name":"Ada","id":"c_1"}}`, Facts{})
}

func BenchmarkDecide200Conditions(b *testing.B) {
	p, c := conditions200(b)
	benchDecide(b, p, c, Allow)
}

// benchDecide times each decision for itself and prints the median, as the
// mean of a shared machine is that of its other users. Beside it stands how
// long a kilobyte of SHA-256 took in the same run, to compare machines by.
func benchDecide(b *testing.B, p *Policy, c Call, want Action) {
	took, calibration := make([]time.Duration, 0, b.N), make([]time.Duration, 0, b.N)
	kilobyte := make([]byte, 1024)
	b.ReportAllocs()
	for range b.N {
		start := time.Now()
		d := p.Decide(c)
		took = append(took, time.Since(start))
		if d.Action != want {
			b.Fatalf("wrong verdict: %+v", d)
		}
		start = time.Now()
		sum := sha256.Sum256(kilobyte)
		calibration = append(calibration, time.Since(start))
		kilobyte[0] = sum[0]
	}
	for name, d := range map[string][]time.Duration{"p50": took, "p99": took, "sha256-1KB-p50": calibration} {
		slices.Sort(d)
		at := len(d) / 2
		if name == "p99" {
			at = len(d) * 99 / 100
		}
		b.ReportMetric(float64(d[at].Nanoseconds()), name+"-ns")
	}
}
