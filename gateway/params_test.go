package gateway_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
	"github.com/mcp-portal/mcp-portal/wire"
)

// keysOf are the members of an object as they came, in order.
func keysOf(t *testing.T, raw string) []string {
	t.Helper()
	o, err := wire.ParseObject([]byte(raw))
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	var keys []string
	for _, f := range o {
		keys = append(keys, f.Key)
	}
	slices.Sort(keys)
	return keys
}

// Many JSON parsers ignore the case of members. What the guard judged is what
// such a server reads.
func TestMembersThatDifferInCaseStayHere(t *testing.T) {
	eachEra(t, func(t *testing.T, e era) {
		v := serve(t, upstreamtest.Legacy, nil)
		p := start(t, trusted(v), nil)
		all, two := p.client(e, "", noCaps, nil), p.client(e, twoTools, noCaps, nil)
		for _, c := range []struct {
			what string
			got  answer
		}{
			{"Name", all.call("s_look", `{"id":"ok"}`, `"Name":"kill","Arguments":{"id":"bad"}`, nil)},
			{"NAME and a long s", all.call("s_look", `{"id":"ok"}`, `"NAME":"kill","argument\u017f":{"id":"bad"}`, nil)},
			{"one tool of two", two.call("portal_execute", `{"tool":"s_look","arguments":{"id":"ok"}}`, `"NAME":"kill","ARGUMENTS":{"id":"bad"}`, nil)},
			{"one tool of two, a long s", two.call("portal_execute", `{"tool":"s_look","arguments":{"id":"ok"}}`, `"argumentſ":{"id":"bad"}`, nil)},
		} {
			if got := c.got.text(); got != "ran look {\"id\":\"ok\"}\n" {
				t.Errorf("%s: %s", c.what, c.got.Raw)
			}
		}
		calls := v.calls()
		if len(calls) != 4 {
			t.Fatalf("%d calls arrived: %q", len(calls), calls)
		}
		for _, got := range calls {
			for _, k := range keysOf(t, got) {
				if !slices.Contains([]string{"name", "arguments", "_meta"}, k) {
					t.Errorf("member %q reached the server: %s", k, got)
				}
			}
		}
	})
}

// Two members of one name are one at the server: the one that was judged.
func TestDuplicateMembersBecomeOne(t *testing.T) {
	eachEra(t, func(t *testing.T, e era) {
		v := serve(t, upstreamtest.Legacy, nil)
		p := start(t, trusted(v), nil)
		c := p.client(e, "", noCaps, nil)
		got := c.do("tools/call", `"name":"s_kill","arguments":{"id":"1"},"name":"s_look","arguments":{"id":"2"}`, nil)
		if got.text() != "ran look {\"id\":\"2\"}\n" {
			t.Errorf("%s", got.Raw)
		}
		got = c.do("tools/call", `"name":"s_look","arguments":{"id":"1"},"name":"s_kill","arguments":{"id":"2"}`, nil)
		if !strings.Contains(got.text(), "Approval needed") {
			t.Errorf("the last name is a destructive tool, but: %s", got.Raw)
		}
		calls := v.calls()
		if len(calls) != 1 || strings.Count(calls[0], `"name"`) != 1 || strings.Count(calls[0], `"arguments"`) != 1 {
			t.Errorf("arrived: %q", calls)
		}
	})
}

// The same holds for prompts, resources and completions.
func TestMembersThatDifferInCaseOutsideTools(t *testing.T) {
	eachEra(t, func(t *testing.T, e era) {
		v := serveWith(t, upstreamtest.Options{
			Prompts:   []json.RawMessage{json.RawMessage(`{"name":"greet"}`)},
			Resources: []json.RawMessage{json.RawMessage(`{"uri":"doc://a","name":"a"}`)},
		}, func(c *upstreamtest.Call) bool {
			switch c.Method {
			case "prompts/get":
				c.Result(`{"messages":[]}`)
			case "resources/read":
				c.Result(`{"contents":[]}`)
			case "completion/complete":
				c.Result(`{"completion":{"values":[]}}`)
			default:
				return false
			}
			return true
		})
		p := start(t, trusted(v), nil)
		c := p.client(e, "", noCaps, nil)
		name := firstOf(t, c.do("prompts/list", "", nil).Raw, "prompts", "name")
		uri := firstOf(t, c.do("resources/list", "", nil).Raw, "resources", "uri")
		for _, r := range []struct{ method, params string }{
			{"prompts/get", `"name":` + string(wire.Quote(name)) + `,"Name":"other","ARGUMENTS":{"x":"y"}`},
			{"resources/read", `"uri":` + string(wire.Quote(uri)) + `,"URI":"doc://secret"`},
			{"completion/complete", `"ref":{"type":"ref/prompt","name":` + string(wire.Quote(name)) + `},"argument":{"name":"a","value":"b"},"Ref":{"type":"ref/prompt","name":"other"},"ARGUMENT":{"name":"z","value":"z"}`},
		} {
			if got := c.do(r.method, r.params, nil); got.Error != nil || got.Err != nil {
				t.Errorf("%s: %s", r.method, got.Raw)
			}
		}
		seen := 0
		for _, r := range v.Requests() {
			if r.Method != "prompts/get" && r.Method != "resources/read" && r.Method != "completion/complete" {
				continue
			}
			seen++
			for _, k := range keysOf(t, string(r.Params)) {
				if !slices.Contains([]string{"name", "uri", "ref", "argument", "_meta"}, k) {
					t.Errorf("%s: member %q reached the server: %s", r.Method, k, r.Params)
				}
			}
		}
		if seen != 3 {
			t.Errorf("%d of 3 requests arrived", seen)
		}
	})
}

// firstOf is a member of the first item of a list result.
func firstOf(t *testing.T, raw, list, member string) string {
	t.Helper()
	var m struct{ Result map[string]json.RawMessage }
	var items []map[string]any
	if err := json.Unmarshal([]byte(raw), &m); err != nil {
		t.Fatal(err, raw)
	}
	if err := json.Unmarshal(m.Result[list], &items); err != nil || len(items) == 0 {
		t.Fatal(err, raw)
	}
	s, _ := items[0][member].(string)
	return s
}

// params and arguments that are null are as if left out.
func TestNullIsAbsent(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	p := start(t, trusted(v), nil)
	c := p.client(legacy, "", noCaps, nil)
	resp, body := p.post("", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":null}`, c.headers("", ""))
	if resp.StatusCode != 200 || !strings.Contains(body, `"s_look"`) {
		t.Errorf("params null: %d %s", resp.StatusCode, body)
	}
	eachEra(t, func(t *testing.T, e era) {
		c := p.client(e, "", noCaps, nil)
		if got := c.call("s_look", "null", "", nil); got.text() != "ran look {}\n" && got.text() != "ran look null\n" {
			t.Errorf("arguments null: %s", got.Raw)
		}
		if got := c.call("s_look", "[1]", "", nil); !strings.Contains(got.text(), "must be a JSON object") {
			t.Errorf("arguments that are a list: %s", got.Raw)
		}
		if got := p.client(e, twoTools, noCaps, nil).call("portal_execute", `{"tool":"s_look","arguments":null}`, "", nil); !strings.HasPrefix(got.text(), "ran look ") {
			t.Errorf("arguments null inside portal_execute: %s", got.Raw)
		}
	})
	if n := len(v.calls()); n != 4 {
		t.Errorf("%d calls arrived, want 4", n)
	}
}

// regionDef is a tool with parameters that its server wants in headers, too.
const regionDef = `{"name":"drop","description":"Drop it","annotations":{"destructiveHint":true},"inputSchema":{"type":"object","properties":{` +
	`"region":{"type":"string","x-mcp-header":"Region"},"force":{"type":"boolean","x-mcp-header":"Force"},` +
	`"table":{"type":"object","properties":{"owner":{"type":"string","x-mcp-header":"Owner"}}},"plain":{"type":"string"}}}}`

// What a person approved is what arrives: nothing that the client put beside
// it, and headers made from the arguments.
func TestApprovedCallCarriesOnlyWhatWasShown(t *testing.T) {
	eachEra(t, func(t *testing.T, e era) {
		v := serveWith(t, upstreamtest.Options{Era: upstreamtest.Modern, Tools: []json.RawMessage{json.RawMessage(regionDef)}}, nil)
		p := start(t, trusted(v), nil)
		h := map[string]string{"Mcp-Param-Region": "prod", "Mcp-Param-Stray": "x"} // nothing to a 2025 client
		if e == modern {
			h = map[string]string{"Mcp-Param-Region": "=?base64?dMOrc3Q=?=", "Mcp-Param-Force": "true", "Mcp-Param-Owner": "ann", "Mcp-Param-Stray": "x"}
		}
		c := p.client(e, "", noCaps, h)
		const args = `{"region":"tëst","force":true,"table":{"owner":"ann"},"plain":"p"}`
		const more = `"requestState":"state-of-another-call","inputResponses":{"confirm":{"action":"accept","content":{"rows":"*"}}},"task":{"ttl":1},"vendor":1,` +
			`"_meta":{"progressToken":7,"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","vendor/force":true}`
		first := c.call("s_drop", args, more, nil)
		ids := first.approvals()
		if len(ids) != 1 || len(v.calls()) != 0 {
			t.Fatalf("%s %q", first.Raw, v.calls())
		}
		p.approve(ids[0])
		if got := c.call("s_drop", args, more, nil); !strings.HasPrefix(got.text(), "ran drop ") {
			t.Fatalf("%s", got.Raw)
		}
		calls := v.calls()
		if len(calls) != 1 {
			t.Fatalf("%q", calls)
		}
		if got := keysOf(t, calls[0]); !slices.Equal(got, []string{"_meta", "arguments", "name"}) {
			t.Errorf("members %q: %s", got, calls[0])
		}
		for _, bad := range []string{"state-of-another-call", "confirm", "vendor", "ttl"} {
			if strings.Contains(calls[0], bad) {
				t.Errorf("%s reached the server: %s", bad, calls[0])
			}
		}
		if !strings.Contains(calls[0], "00-0af7651916cd43dd8448eb211c80319c") {
			t.Errorf("the trace context was lost: %s", calls[0])
		}
		for _, r := range v.Requests() {
			if r.Method != "tools/call" {
				continue
			}
			for name, want := range map[string]string{"Region": "tëst", "Force": "true", "Owner": "ann", "Stray": "", "Plain": ""} {
				if got, err := wire.DecodeHeaderValue(r.Header.Get("Mcp-Param-" + name)); err != nil || got != want {
					t.Errorf("Mcp-Param-%s is %q, want %q (%v)", name, got, want, err)
				}
			}
		}
	})
}

// A call that nobody has to approve carries no header of the client's hop
// either, and keeps what the client answers to its server.
func TestAllowedCallKeepsItsRounds(t *testing.T) {
	def := strings.Replace(regionDef, destructive, readOnly, 1)
	v := serveWith(t, upstreamtest.Options{Era: upstreamtest.Modern, Tools: []json.RawMessage{json.RawMessage(def)}}, func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" || strings.Contains(string(c.Params), "its-own-state") {
			return false
		}
		c.Result(`{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}},"requestState":"its-own-state"}`)
		return true
	})
	p := start(t, trusted(v), nil)
	c := p.client(modern, "", formCaps, map[string]string{"Mcp-Param-Region": "eu"})
	got := c.call("s_drop", `{"region":"eu"}`, "", nil)
	if got.Result.RequestState != "its-own-state" {
		t.Fatalf("%s", got.Raw)
	}
	if got = c.call("s_drop", `{"region":"eu"}`, got.sayYes(), nil); !strings.HasPrefix(got.text(), "ran drop ") {
		t.Fatalf("%s", got.Raw)
	}
	if calls := v.calls(); len(calls) != 2 || !strings.Contains(calls[1], `"inputResponses"`) {
		t.Errorf("%q", calls)
	}
	for _, r := range v.Requests() {
		if got := r.Header.Get("Mcp-Param-Region"); r.Method == "tools/call" && got != "eu" {
			t.Errorf("Mcp-Param-Region is %q, want that of the arguments", got)
		}
	}
}

// The headers of a 2026-07-28 client must say what its arguments say, under
// every parameter that the tool's schema names; nothing arrives otherwise.
func TestParamHeadersAreCompared(t *testing.T) {
	const def = `{"name":"find","annotations":{"readOnlyHint":true},"inputSchema":{"type":"object","properties":{` +
		`"region":{"type":"string","x-mcp-header":"Region"},"limit":{"type":"integer","x-mcp-header":"Limit"},"all":{"type":"boolean","x-mcp-header":"All"},` +
		`"bad":{"type":"string"},"ratio":{"type":"number"},"twin":{"type":"string"},` +
		`"where":{"type":"object","properties":{"zone":{"type":"string","x-mcp-header":"Zone"}}}}}}`
	v := serveWith(t, upstreamtest.Options{Era: upstreamtest.Modern, Tools: []json.RawMessage{json.RawMessage(def)}}, nil)
	p := start(t, trusted(v), nil)
	list := p.client(modern, "", noCaps, nil).do("tools/list", "", nil).Raw
	if !strings.Contains(list, `"region":{"type":"string","x-mcp-header":"Region"}`) || !strings.Contains(list, `"x-mcp-header":"Zone"`) {
		t.Errorf("marks were lost: %s", list)
	}
	arrived := 0
	for _, c := range []struct {
		args string
		h    map[string]string
		ok   bool
	}{
		{`{"region":"eu"}`, map[string]string{"Mcp-Param-Region": "eu"}, true},
		{`{"region":"eu"}`, map[string]string{"Mcp-Param-Region": "us"}, false},
		{`{"region":"eu"}`, map[string]string{"Mcp-Param-Region": "EU"}, false},
		{`{"region":"eu"}`, nil, false},
		{`{"region":""}`, nil, false},
		{`{"region":null}`, nil, true},
		{`{}`, nil, true},
		{`{}`, map[string]string{"Mcp-Param-Region": "eu"}, false},
		{`{"region":null}`, map[string]string{"Mcp-Param-Region": "null"}, false},
		{`{"region":" Zürich "}`, map[string]string{"Mcp-Param-Region": "=?base64?IFrDvHJpY2gg?="}, true},
		{`{"region":" Zürich "}`, map[string]string{"Mcp-Param-Region": "=?base64?!?="}, false},
		{`{"region":"Zürich"}`, map[string]string{"Mcp-Param-Region": "Zürich"}, false},
		{`{"limit":42}`, map[string]string{"Mcp-Param-Limit": "42.0"}, true},
		{`{"limit":42}`, map[string]string{"Mcp-Param-Limit": "84/2"}, false},
		{`{"limit":42}`, map[string]string{"Mcp-Param-Limit": "43"}, false},
		{`{"limit":9007199254740993}`, map[string]string{"Mcp-Param-Limit": "9007199254740992"}, false},
		{`{"limit":42}`, nil, false},
		{`{"all":true}`, map[string]string{"Mcp-Param-All": "true"}, true},
		{`{"all":true}`, map[string]string{"Mcp-Param-All": "True"}, false},
		{`{"where":{"zone":"a"}}`, map[string]string{"mcp-param-zone": "a"}, true},
		{`{"where":{"zone":"a"}}`, map[string]string{"Mcp-Param-Zone": "b"}, false},
		{`{"where":{"zone":"a"}}`, nil, false},
		{`{"ratio":0.5,"bad":"x","twin":"y"}`, nil, true},
		{`{"ratio":0.5}`, map[string]string{"Mcp-Param-Ratio": "7", "Mcp-Param-Else": "z"}, true},
	} {
		got := p.client(modern, "", noCaps, c.h).call("s_find", c.args, "", nil)
		if c.ok {
			if arrived++; got.Status != 200 || got.Error != nil {
				t.Errorf("%s %v: %d %s", c.args, c.h, got.Status, got.Raw)
			}
		} else if got.Status != 400 || got.Error == nil || got.Error.Code != -32020 {
			t.Errorf("%s %v: %d %s; want 400, -32020", c.args, c.h, got.Status, got.Raw)
		}
		if n := len(v.calls()); n != arrived {
			t.Fatalf("%s %v: %d calls arrived, want %d", c.args, c.h, n, arrived)
		}
	}
	// A client that cannot have seen the schema need not send any.
	if got := p.client(modern, "?optimize_context=minimize_tools", noCaps, nil).call("s_find", `{"region":"eu"}`, "", nil); got.Status != 200 || got.Error != nil {
		t.Errorf("names only: %d %s", got.Status, got.Raw)
	}
	if h := v.Requests()[len(v.Requests())-1].Header.Get("Mcp-Param-Region"); h != "eu" {
		t.Errorf("the server's hop has the header %q", h)
	}
}

// Marks that break the rules are never shown: clients must refuse a tool that
// has one. A 2026-07-28 server's tool with one is withheld, as the protocol
// wants it; to other servers the marks mean nothing, and the tool stays.
func TestBrokenHeaderMarks(t *testing.T) {
	var defs []json.RawMessage
	for i, prop := range []string{`{"type":"string","x-mcp-header":"no header"}`, `{"type":"string","x-mcp-header":""}`, `{"type":"number","x-mcp-header":"Ratio"}`,
		`{"type":"string","x-mcp-header":7}`, `{"type":"object","x-mcp-header":"Obj","properties":{}}`, `{"x-mcp-header":"Untyped"}`, `{"type":"string","x-mcp-header":"TWIN"}`} {
		defs = append(defs, json.RawMessage(`{"name":"t`+string(rune('a'+i))+`","inputSchema":{"type":"object","properties":{"good":{"type":"string","x-mcp-header":"Twin"},"p":`+prop+`}}}`))
	}
	fine := json.RawMessage(`{"name":"fine","inputSchema":{"type":"object","properties":{"good":{"type":"string","x-mcp-header":"Fine"}}}}`)
	for _, e := range []upstreamtest.Era{upstreamtest.Legacy, upstreamtest.Modern} {
		v := serveWith(t, upstreamtest.Options{Era: e, Tools: append([]json.RawMessage{fine}, defs...)}, nil)
		p := start(t, trusted(v), nil)
		list := p.client(modern, "", noCaps, nil).do("tools/list", "", nil).Raw
		want := map[upstreamtest.Era]int{upstreamtest.Legacy: len(defs), upstreamtest.Modern: 0}[e]
		if got := strings.Count(list, `"name":"s_t`); got != want || !strings.Contains(list, `"x-mcp-header":"Fine"`) {
			t.Errorf("%v: %d of %d broken tools are offered: %s", e, got, len(defs), list)
		}
		if got := strings.Count(list, "x-mcp-header"); got != want+1 {
			t.Errorf("%v: %d marks are shown, want %d: %s", e, got, want+1, list)
		}
	}
}
