package gateway_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// answerShape is what structuredContent of portal_execute and its like really
// is: everything that the outputSchema declares, and the members of its lists,
// for which there is no room in the definitions.
const answerShape = `{
  "type": "object",
  "properties": {
    "status": {"enum": ["ok", "error", "paused"]},
    "value": {},
    "cut": {"type": "string", "minLength": 10},
    "result": {"type": "string", "pattern": "^res_"},
    "error": {"type": "object", "required": ["kind", "name", "message", "line", "column", "code"], "additionalProperties": false, "properties": {
      "kind": {"enum": ["syntax", "exception", "wall", "cpu", "memory", "stack", "calls", "deadlock", "cancelled", "engine", "busy", "unavailable"]},
      "name": {"type": "string", "minLength": 1}, "message": {"type": "string", "minLength": 1},
      "line": {"type": "integer", "minimum": 0}, "column": {"type": "integer", "minimum": 0}, "code": {"type": "string"}}},
    "logs": {"type": "array", "minItems": 1, "items": {"type": "string"}},
    "calls": {"type": "array", "minItems": 1, "maxItems": 1000, "items": {"type": "object", "required": ["tool", "ms", "bytes"], "additionalProperties": false, "properties": {
      "tool": {"type": "string", "minLength": 1}, "ms": {"type": "number", "minimum": 0}, "bytes": {"type": "integer", "minimum": 0},
      "outcome": {"enum": ["ok", "failed", "in_flight", "not_started", "planned"]}, "ids": {"type": "string", "minLength": 1}, "error": {"type": "string", "minLength": 1},
      "calls": {"type": "integer", "minimum": 1}, "ok": {"type": "integer", "minimum": 1}, "failed": {"type": "integer", "minimum": 1},
      "in_flight": {"type": "integer", "minimum": 1}, "not_started": {"type": "integer", "minimum": 1}, "planned": {"type": "integer", "minimum": 1},
      "errors": {"type": "array", "maxItems": 3, "items": {"type": "string"}}},
      "oneOf": [{"required": ["outcome"]}, {"required": ["calls"]}]}},
    "changed": {"type": "array", "minItems": 1, "maxItems": 21, "items": {"type": "string", "minLength": 1}},
    "approvals": {"type": "array", "maxItems": 50, "items": {"type": "object", "required": ["url", "server", "tool", "class", "arguments"], "additionalProperties": false, "properties": {
      "url": {"type": "string", "pattern": "^http"}, "server": {"type": "string"}, "tool": {"type": "string"}, "class": {"type": "string"}, "arguments": {}}}},
    "sign_ins": {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["server", "url", "reason"], "properties": {"url": {"type": "string", "pattern": "^http"}}}},
    "run": {"type": "string", "pattern": "^run_"},
    "next": {"type": "string", "minLength": 10},
    "plan": {"type": "string", "minLength": 1},
    "url": {"type": "string", "pattern": "^http"},
    "steps": {"type": "integer", "minimum": 1},
    "applied": {"type": "object", "required": ["plan", "steps"]}
  },
  "required": ["status"],
  "additionalProperties": false,
  "allOf": [
    {"if": {"properties": {"status": {"const": "paused"}}}, "then": {"required": ["run", "next"], "not": {"required": ["value"]}}},
    {"if": {"required": ["error"]}, "then": {"properties": {"status": {"const": "error"}}}},
    {"if": {"required": ["result"]}, "then": {"required": ["cut"]}}
  ]
}`

// noRoom are the members of plans: to declare them as well would cost the model
// more than the 700 tokens of both definitions. The schema does not exclude them.
var noRoom = []string{"applied", "plan", "steps", "url"}

func schemaOf(t testing.TB, text string) *jsonschema.Resolved {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var answering = []string{"portal_execute", "portal_codemode_execute", "portal_codemode_search", "portal_code"}

// isDeclared checks the structured content of an answer of one of these tools.
// Every test that calls them through a client does so.
func (p *portal) isDeclared(tool string, a answer, schemas ...*jsonschema.Resolved) {
	p.t.Helper()
	if !slices.Contains(answering, tool) || a.Err != nil || a.Error != nil || a.Result.ResultType == "input_required" {
		return
	}
	var m struct {
		Result struct {
			StructuredContent any `json:"structuredContent"`
			IsError           bool
		} `json:"result"`
	}
	if err := json.Unmarshal([]byte(a.Raw), &m); err != nil {
		p.t.Errorf("%v: %.300s", err, a.Raw)
		return
	}
	if m.Result.StructuredContent == nil {
		if !m.Result.IsError { // a client may refuse a result without what was declared
			p.t.Errorf("no structured content: %.600s", a.Raw)
		}
		return
	}
	for _, s := range append(schemas, schemaOf(p.t, answerShape)) {
		if err := s.Validate(m.Result.StructuredContent); err != nil {
			p.t.Errorf("the structured content is not what is declared: %v: %.1000s", err, a.Raw)
		}
	}
	if o, ok := m.Result.StructuredContent.(map[string]any); ok && (o["status"] == "error") != m.Result.IsError {
		p.t.Errorf("status %v, isError %v", o["status"], m.Result.IsError)
	}
}

// One answer of every kind, against the outputSchema as tools/list has it.
func TestAnswersAreWhatTheSchemaDeclares(t *testing.T) {
	v := serveWith(t, upstreamtest.Options{Tools: []json.RawMessage{toolDef("look", readOnly), toolDef("put", `{"readOnlyHint":false,"destructiveHint":false}`), toolDef("kill", `{"destructiveHint":true}`)}}, func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		switch c.Arguments().String("id") {
		case "structured":
			c.Result(`{"content":[{"type":"text","text":"see"}],"structuredContent":{"n":1}}`)
		case "big":
			c.Result(`{"content":[{"type":"text","text":"` + strings.Repeat("tool text ", 20_000) + `"}]}`)
		case "image":
			c.Result(`{"content":[{"type":"image","mimeType":"image/png","data":"AAAA"}]}`)
		case "refused":
			c.Result(`{"content":[{"type":"text","text":"quota exceeded"}],"isError":true}`)
		case "refused with data":
			c.Result(`{"content":[{"type":"text","text":"quota exceeded"}],"structuredContent":{"left":0},"isError":true}`)
		default:
			c.Result(`{"content":[{"type":"text","text":"{\"id\":17}"}]}`)
		}
		return true
	})
	p := start(t, trusted(v)+"guard: {preset: careful, rules: [{tools: [put], action: allow}]}\ncode: {wall_time: 3s, cpu_time: 1s, max_calls: 30, max_source: 2000}\n", nil)
	eachEra(t, func(t *testing.T, e era) {
		c := p.client(e, twoTools, noCaps, nil)
		var list struct {
			Result struct {
				Tools []struct {
					Name         string
					OutputSchema json.RawMessage
				}
			}
		}
		if err := json.Unmarshal([]byte(c.do("tools/list", "", nil).Raw), &list); err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, tool := range list.Result.Tools {
			if tool.Name == "portal_execute" {
				text = string(tool.OutputSchema)
			}
		}
		declared := schemaOf(t, text)
		var outer, inner struct{ Properties map[string]json.RawMessage }
		if json.Unmarshal([]byte(text), &outer) != nil || json.Unmarshal([]byte(answerShape), &inner) != nil ||
			!slices.Equal(slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(outer.Properties)), noRoom...))), slices.Sorted(maps.Keys(inner.Properties))) {
			t.Errorf("declared are %v, there can be %v", slices.Sorted(maps.Keys(outer.Properties)), slices.Sorted(maps.Keys(inner.Properties)))
		}
		seen := map[string]bool{} // members, so that none is declared for nothing
		check := func(name, status string, a answer) {
			t.Helper()
			p.isDeclared("portal_execute", a, declared)
			var m struct {
				Result struct{ StructuredContent map[string]json.RawMessage }
			}
			if err := json.Unmarshal([]byte(a.Raw), &m); err != nil || string(m.Result.StructuredContent["status"]) != fmt.Sprintf("%q", status) {
				t.Errorf("%s: want status %s: %v %.500s", name, status, err, a.Raw)
			}
			for k := range m.Result.StructuredContent {
				seen[k] = true
			}
		}
		tool := func(name, id string) answer {
			return c.call("portal_execute", fmt.Sprintf(`{"tool":%q,"arguments":{"id":%q}}`, name, id), "", nil)
		}
		for _, x := range []struct{ name, status, code string }{
			{"value", "ok", "return {a: [1, null, 'x']}"},
			{"null", "ok", "return null"},
			{"nothing", "ok", "return"},
			{"text", "ok", "return 'x'"},
			{"big integer", "ok", "return 9007199254740993n"},
			{"console", "ok", "console.log('a', {b: 1}); return 1"},
			{"cut", "ok", "return 'x'.repeat(200000)"},
			{"image", "ok", "return await s.look({id: 'image'})"},
			{"calls", "ok", "await s.put({id: 'a'}); await s.look({id: 'refused'}).catch(() => 0); return 1"},
			{"many calls", "ok", "for (let i = 0; i < 25; i++) await s.look({id: 'a'}); return 1"},
			{"syntax", "error", "const = 1"},
			{"exception", "error", "await s.put({id: 'a'}); null.x"},
			{"text thrown", "error", "throw 'x'"},
			{"null thrown", "error", "throw null"},
			{"empty message", "error", "throw new Error('')"},
			{"empty name", "error", "const e = new Error('x'); e.name = ''; throw e"},
			{"tool error", "error", "await s.look({id: 'refused'})"},
			{"unknown tool", "error", "await s.nothing()"},
			{"wall", "error", "await sleep(60000)"},
			{"cpu", "error", "for (;;) ;"},
			{"calls", "error", "for (;;) await s.look({id: 'a'})"},
			{"stack", "error", "const f = () => f() + 1; f()"},
			{"deadlock", "error", "await new Promise(() => {})"},
			{"source", "error", "//" + strings.Repeat("x", 2000)},
			{"empty", "error", " "},
			{"paused", "paused", "return await s.kill({id: 'a'})"},
			{"two paused", "paused", "return await Promise.all([s.kill({id: 'a'}), s.kill({id: 'b'})])"},
		} {
			check(x.name, x.status, c.code(x.code, "", nil))
		}
		check("one tool", "ok", tool("s_look", "a"))
		check("one tool, structured", "ok", tool("s_look", "structured"))
		check("one tool, image", "ok", tool("s_look", "image"))
		check("one tool, cut", "ok", tool("s_look", "big"))
		check("one tool, error with data", "error", tool("s_look", "refused with data"))
		p.isDeclared("portal_execute", tool("s_look", "refused"), declared)
		p.isDeclared("portal_execute", tool("s_lost", "a"), declared)
		p.isDeclared("portal_execute", c.resume("run_NOTTHERE", "", nil), declared)
		for k := range outer.Properties {
			if !seen[k] && k != "sign_ins" { // TestSignInInTheMiddleOfARun and its like have those
				t.Errorf("%s is declared, and no answer had it", k)
			}
		}
	})
}
