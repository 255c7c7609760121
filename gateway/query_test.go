package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// many is a portal with 150 small tools and one that is very large.
func many(t *testing.T) *portal {
	t.Helper()
	var tools []json.RawMessage
	for i := range 150 {
		def := string(toolDef(fmt.Sprintf("t%03d", i), readOnly))
		tools = append(tools, json.RawMessage(strings.Replace(def, `"tool `, `"`+strings.Repeat("Does it well. ", 20)+`tool `, 1)))
	}
	tools = append(tools, json.RawMessage(`{"name":"big","description":"`+strings.Repeat("word ", 10000)+`","inputSchema":{"type":"object","properties":{"x":{"type":"string","description":"`+strings.Repeat("y", 200000)+`"}}}}`))
	v := serveWith(t, upstreamtest.Options{Tools: tools}, nil)
	return start(t, "servers:\n  many:\n    url: "+v.URL+"\n    trust_annotations: true\n", nil)
}

// Every limit of a query says in words what it is and what to do.
func TestQueryLimitsAreSaid(t *testing.T) {
	p := many(t)
	hundredAndOne := strings.TrimSuffix(strings.Repeat(`"x",`, 101), ",")
	var missing []string
	for i := range 12 {
		missing = append(missing, fmt.Sprintf(`"nothere%d"`, i))
	}
	eachEra(t, func(t *testing.T, e era) {
		c := p.client(e, twoTools, noCaps, nil)
		for _, q := range []struct {
			args    string
			isError bool
			want    []string
		}{
			{`{"query":"t001","limit":101}`, true, []string{"limit must be a whole number between 1 and 100"}},
			{`{"query":"t001","limit":1.5}`, true, []string{"whole number"}},
			{`{"query":"t001","limit":-1}`, true, []string{"whole number"}},
			{`{"query":"t001","limit":"10"}`, true, []string{"limit"}},
			{`{"query":"t001","detail":"all"}`, true, []string{`"names", "brief" or "full"`}},
			{`{"query":"a","pattern":"b"}`, true, []string{"one of query, pattern and names"}},
			{`{"query":"a","names":["b"]}`, true, []string{"one of query, pattern and names"}},
			{`{"Query":"a"}`, true, []string{`no argument "Query"`, "query, pattern, names"}},
			{`{"query":"` + strings.Repeat("w ", 501) + `"}`, true, []string{"1000 characters"}},
			{`{"pattern":"` + strings.Repeat("w", 1001) + `"}`, true, []string{"1000 characters"}},
			{`{"pattern":"("}`, true, []string{"pattern"}},
			{`{"names":[` + hundredAndOne + `]}`, true, []string{"at most 100 names"}},
			{`{"servers":["MANY"]}`, true, []string{`no server "MANY"`, "Servers: many"}},
			{`[]`, true, []string{"must be an object"}},
			{`{"query":"t001","limit":10.0}`, false, []string{"many_t001"}},
			{`{"query":"t001","limit":null,"pattern":null,"names":null,"servers":null}`, false, []string{"many_t001"}},
			{`{"servers":["many"],"detail":"names"}`, false, []string{"showing 10 of 151", "raise limit"}},
			{`{"servers":["many"],"detail":"names","limit":100}`, false, []string{"showing 100 of 151", "more are never shown at once"}},
			{`{"servers":["many"],"detail":"full","limit":100}`, false, []string{"of 151", "the answer is full"}},
			{`{"names":["many_t001","many_t001","many/t001","many.t001"]}`, false, []string{"showing 1 of 1"}},
			{`{"names":["many_t001","many_t002","many_t003"],"limit":1}`, false, []string{"showing 1 of 3"}},
			{`{"names":[` + strings.Join(missing, ",") + `,"many_t001"]}`, false, []string{`No tool is named "nothere0"`, "Nor are 2 more", "showing 1 of 1"}},
			{`{"names":["many_big"]}`, false, []string{"bytes, left out"}},
			{`{"query":"zzzzqqqq"}`, false, []string{"no tool fits", "Servers: many"}},
			{`{"query":" "}`, false, []string{"1 server", "many (151 tools)"}},
			{`{}`, false, []string{"1 server", "many (151 tools)"}},
		} {
			got := c.call("portal_query_tools", q.args, "", nil)
			for _, w := range q.want {
				if !strings.Contains(got.text(), w) {
					t.Errorf("%.80s: lacks %q: %.400s", q.args, w, got.Raw)
				}
			}
			if got.Error != nil || got.Result.IsError != q.isError {
				t.Errorf("%.80s: error %v, want %v: %.400s", q.args, got.Result.IsError, q.isError, got.Raw)
			}
			if n := len(got.text()); n > 40000 {
				t.Errorf("%.80s: the answer has %d bytes", q.args, n)
			}
		}
	})
}

// Very long names and words cost no more than short ones. Guessing at
// them grows with the square of their length and takes many minutes for these;
// the deadlines of a run and of the harness are far from both.
func TestLongWordsAreAnswered(t *testing.T) {
	p := many(t)
	long, word := strings.Repeat("z", 3_000_000), strings.Repeat("z", 300_000)
	l := p.client(legacy, "", noCaps, nil)
	for what, got := range map[string]answer{
		"tools/call":     l.call(long, "{}", "", nil),
		"prompts/get":    l.do("prompts/get", `"name":"`+long+`"`, nil),
		"resources/read": l.do("resources/read", `"uri":"`+long+`"`, nil),
		"completion":     l.do("completion/complete", `"ref":{"type":"ref/prompt","name":"`+long+`"},"argument":{"name":"a","value":"b"}`, nil),
		"method":         l.do(long, "", nil),
	} {
		if got.Error == nil || len(got.Raw) > 2000 {
			t.Errorf("%s: %v %.300s", what, got.Err, got.Raw)
		}
	}
	eachEra(t, func(t *testing.T, e era) {
		two := p.client(e, twoTools, noCaps, nil)
		for _, args := range []string{
			`{"names":["` + word + `"]}`, `{"query":"` + word + `"}`, `{"pattern":"` + word + `"}`, `{"servers":["` + word + `"]}`, `{"detail":"` + word + `"}`,
			`{"names":["` + strings.Repeat(strings.Repeat("q", 5000)+`","`, 99) + `x"]}`,
		} {
			if got := two.call("portal_query_tools", args, "", nil); got.Err != nil || got.text() == "" || len(got.Raw) > 20000 {
				t.Errorf("%.30s: %v %.300s", args, got.Err, got.Raw)
			}
		}
		if got := two.call("portal_execute", `{"tool":"`+word+`"}`, "", nil); !strings.Contains(got.text(), "There is no tool") || len(got.Raw) > 2000 {
			t.Errorf("portal_execute: %v %.300s", got.Err, got.Raw)
		}
		// Scripts search, too. Within the time of a run.
		got := two.code(`const w = 'z'.repeat(300000); const out = [(await codemode.search(w)).length];
			for (const f of [() => codemode.describe(w), () => codemode.call(w, {})]) { try { await f(); out.push('found') } catch (e) { out.push(e.message.length < 1000) } }
			return out`, "", nil)
		if !strings.HasPrefix(strings.ReplaceAll(got.text(), "\n", ""), "[0,true,true]") {
			t.Errorf("code: %v %.600s", got.Err, got.Raw)
		}
	})
}
