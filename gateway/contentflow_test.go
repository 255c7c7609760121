package gateway_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
	"github.com/mcp-portal/mcp-portal/wire"
)

// contentServer offers content besides a tool and keeps what it is asked.
func contentServer(t *testing.T, era upstreamtest.Era) *victim {
	o := upstreamtest.Options{Era: era, Tools: []json.RawMessage{toolDef("look", readOnly)}, Prompts: []json.RawMessage{json.RawMessage(`{"name":"ask"}`)},
		Resources: []json.RawMessage{json.RawMessage(`{"uri":"x://listed","name":"l"}`)}, Templates: []json.RawMessage{json.RawMessage(`{"uriTemplate":"x://find/{q}","name":"f"}`)}}
	return serveWith(t, o, func(c *upstreamtest.Call) bool {
		switch c.Method {
		case "prompts/get":
			c.Result(`{"messages":[]}`)
		case "resources/read":
			c.Result(`{"contents":[{"uri":"x://listed","text":"t"}]}`)
		case "completion/complete":
			c.Result(`{"completion":{"values":[]}}`)
		default:
			return false
		}
		return true
	})
}

// arrived are the requests of a method that reached the server.
func arrived(v *victim, method string) (out []upstreamtest.Seen) {
	for _, s := range v.Requests() {
		if s.Method == method {
			out = append(out, s)
		}
	}
	return out
}

// After private and untrusted reads a caller's own words do not leave through a
// prompt, a completion or the address of a resource either. Nobody can be asked
// about these, so they are refused, unless a rule lets the server's reads flow.
func TestTrifectaIsClosedForContent(t *testing.T) {
	eachEra(t, func(t *testing.T, e era) {
		v := contentServer(t, upstreamtest.Legacy)
		external := trusted(v) + "    labels: [external, private, untrusted]\n"
		p := start(t, external, nil)
		c := p.client(e, "", noCaps, nil)
		requests := map[string]string{
			"prompts/get":         `"name":"s_ask","arguments":{"q":"stolen"}`,
			"completion/complete": `"ref":{"type":"ref/prompt","name":"s_ask"},"argument":{"name":"q","value":"stolen"}`,
			"resources/read":      `"uri":"x://find/stolen"`,
		}
		if e == legacy {
			requests["resources/subscribe"] = `"uri":"x://find/stolen"`
		}
		harmless := map[string]string{"prompts/get": `"name":"s_ask"`, "resources/read": `"uri":"x://listed"`}
		if got := c.do("prompts/get", requests["prompts/get"], nil); got.Error != nil {
			t.Fatalf("before anything was read: %s", got.Raw)
		}
		before := len(arrived(v, "prompts/get"))
		c.call("s_look", `{"id":"1"}`, "", nil)
		for method, params := range requests {
			if got := c.do(method, params, nil); got.Error == nil || !strings.Contains(got.Error.Message, "leaves the company") || slices.ContainsFunc(v.Requests(), func(s upstreamtest.Seen) bool {
				return s.Method == method && (method != "prompts/get" || len(arrived(v, method)) > before)
			}) {
				t.Errorf("%s: %s, %d arrived", method, got.Raw, len(arrived(v, method)))
			}
		}
		for method, params := range harmless {
			if got := c.do(method, params, nil); got.Error != nil {
				t.Errorf("%s, with nothing of the caller in it: %s", method, got.Raw)
			}
		}
		p.reload(external + "guard: {rules: [{name: flow, servers: [s], class: [read], action: allow}]}\n")
		for method, params := range requests {
			if got := c.do(method, params, nil); got.Error != nil && method != "resources/subscribe" { // which the server does not offer
				t.Errorf("%s under a rule that allows it: %s", method, got.Raw)
			}
		}
	})
}

// What a filter takes out of the address of a resource is not in a header, nor
// in the audit, either.
func TestFiltersLookIntoNamesInHeaders(t *testing.T) {
	v := contentServer(t, upstreamtest.Modern)
	p := start(t, trusted(v)+"guard: {filters: [{name: codes, pattern: 'C-[0-9]{4}', in: [arguments], action: redact}, {name: never, pattern: 'TOP-[A-Z]+', in: [arguments], action: block}]}\n", nil)
	c := p.client(modern, "", noCaps, nil)
	if got := c.do("resources/read", `"uri":"x://find/C-1234"`, nil); got.Error != nil {
		t.Fatalf("%s", got.Raw)
	}
	if got := c.do("resources/read", `"uri":"x://find/TOP-SECRET"`, nil); got.Error == nil {
		t.Fatalf("%s", got.Raw)
	}
	seen := arrived(v, "resources/read")
	if len(seen) != 1 {
		t.Fatalf("%d requests arrived", len(seen))
	}
	if name := seen[0].Header.Get(wire.HeaderName); strings.Contains(name, "1234") || !strings.Contains(name, "redacted") || strings.Contains(string(seen[0].Params), "1234") {
		t.Errorf("%s: %q, params %s", wire.HeaderName, name, seen[0].Params)
	}
	_, raw := p.auditLines(func(l []map[string]any) bool { return len(l) == 2 })
	if strings.Contains(raw, "1234") || strings.Contains(raw, "TOP-SECRET") || !strings.Contains(raw, "codes: pattern") {
		t.Errorf("audit: %s", raw)
	}
}

// Filters for a tool look into what is answered to the questions of its task,
// although nobody knows any more which tool made it.
func TestFiltersOfAToolLookIntoItsTasks(t *testing.T) {
	p, peers := full(t, "guard: {filters: [{name: codes, tools: [never_mind], pattern: 'C-[0-9]{4}', in: [arguments], action: block}]}\n")
	i := slices.IndexFunc(peers, func(x peer) bool { return x.modern && x.full != nil })
	if i < 0 {
		t.Fatal("no modern server")
	}
	c := p.client(modern, "", taskCaps, nil)
	id := taskOf(c.call(peers[i].id+"_job", `{}`, "", nil))
	if got := c.do("tasks/update", `"taskId":"`+id+`","inputResponses":{"a":{"action":"accept","content":{"n":"C-1234"}}}`, nil); got.Error == nil || !strings.Contains(got.Error.Message, "may not be sent") {
		t.Errorf("%s", got.Raw)
	}
}
