package gateway_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
	"github.com/mcp-portal/mcp-portal/wire"
)

// peer is one server of the matrix: an era over a transport.
type peer struct {
	id     string
	modern bool
	full   *upstreamtest.Full     // nil: in another process
	http   *upstreamtest.FullHTTP // nil: another transport
}

// pair is a client of one era before a server of one era over one transport.
type pair struct {
	*portal
	peer
	era era
}

// full starts a portal before a server of each era and transport.
func full(t *testing.T, more string, extra ...json.RawMessage) (*portal, []peer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h25, h26 := upstreamtest.NewFullHTTP(t, false), upstreamtest.NewFullHTTP(t, true)
	sse, sseAt := upstreamtest.NewFullSSE(t)
	file := ""
	if h25.Extra, h26.Extra, sse.Extra = extra, extra, extra; len(extra) > 0 {
		file = filepath.Join(t.TempDir(), "tools.json")
		list := []byte("[")
		for i, e := range extra {
			if i > 0 {
				list = append(list, ',')
			}
			list = append(list, e...)
		}
		if err := os.WriteFile(file, append(list, ']'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	yaml := "servers:\n"
	add := func(id, link string) { yaml += "  " + id + ":\n    trust_annotations: true\n    " + link + "\n" }
	child := func(modern bool) string {
		cfg := upstreamtest.Child{Full: true, Modern: modern, Extra: file}.Server(nil)
		var env []string
		for k, v := range cfg.Env {
			env = append(env, k+": "+string(wire.Quote(v.Reveal())))
		}
		slices.Sort(env)
		return "command: [" + string(wire.Quote(self)) + ", \"-test.run=^$\"]\n    env: {" + strings.Join(env, ", ") + "}"
	}
	add("h25", "url: "+h25.URL)
	add("h26", "url: "+h26.URL)
	add("s25", "url: "+sseAt.URL+"\n    transport: sse")
	add("p25", child(false))
	add("p26", child(true))
	return start(t, yaml+more, nil), []peer{{"h25", false, h25.Full, h25}, {"s25", false, sse, nil}, {"p25", false, nil, nil}, {"h26", true, h26.Full, h26}, {"p26", true, nil, nil}}
}

// eachPair runs a test for each of the four pairs over each transport that the
// era has.
func eachPair(t *testing.T, f func(t *testing.T, p pair)) {
	t.Helper()
	p, peers := full(t, "")
	for _, e := range []era{legacy, modern} {
		for _, s := range peers {
			t.Run(fmt.Sprintf("%s client, %s server", e[:4], s.id), func(t *testing.T) {
				f(t, pair{p, s, e})
			})
		}
	}
}

// answers by method and kind of question.
var everything = map[string]string{
	"form":                   `{"action":"accept","content":{"n":1.10,"big":12345678901234567890}}`,
	"url":                    `{"action":"accept"}`,
	"sampling/createMessage": `{"role":"assistant","content":{"type":"text","text":"sampled"},"model":"m","vendor":1e400}`,
	"roots/list":             `{"roots":[{"uri":"file:///root","name":"r"}]}`,
}

const allCaps = `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{"listChanged":true},"vendor":{"a":1}}`

// asks calls a method and answers everything it is asked, in the way of the
// client's era. It returns the questions as they came, {method, params}.
func (c *client) asks(method, params string, reply func(method string, params json.RawMessage) string) (answer, []string) {
	var mu sync.Mutex
	var got []string
	var wg sync.WaitGroup
	defer wg.Wait()
	note := func(m string, p json.RawMessage) string {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, m+" "+string(p))
		return reply(m, p)
	}
	if c.era == legacy {
		a := c.do(method, params, func(q question) {
			res := note(q.Method, q.Params)
			wg.Go(func() { q.reply(res) })
		})
		return a, got
	}
	var notes []string
	more := ""
	for round := 0; ; round++ {
		a := c.do(method, params+more, nil)
		notes = append(notes, a.Notes...)
		if a.Result.ResultType != "input_required" || round == 20 {
			a.Notes = notes
			return a, got
		}
		var keys []string
		for k := range a.Result.InputRequests {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		var o wire.Object
		for _, k := range keys {
			q, _ := wire.ParseObject(a.Result.InputRequests[k])
			o = append(o, wire.Field{Key: k, Value: json.RawMessage(note(q.String("method"), q.Get("params")))})
		}
		more = `,"requestState":` + string(wire.Quote(a.Result.RequestState)) + `,"inputResponses":` + string(o.Bytes())
	}
}

func replyAll(method string, params json.RawMessage) string {
	if method != "elicitation/create" {
		return everything[method]
	}
	if o, _ := wire.ParseObject(params); o.String("mode") == "url" {
		return everything["url"]
	}
	return everything["form"]
}

const (
	askForm   = `{"method":"elicitation/create","params":{"message":"form?","requestedSchema":{"type":"object","properties":{"n":{"type":"number","default":1.10}}},"vendor":1e400}}`
	askURL    = `{"method":"elicitation/create","params":{"mode":"url","message":"url?","url":"https://example.com/x","elicitationId":"e-1"}}`
	askSample = `{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":5,"temperature":0.10}}`
	askRoots  = `{"method":"roots/list","params":{}}`
)

// What a server asks in the middle of a call reaches its client, and the
// answers the server, byte for byte, whichever eras meet.
func TestPairsQuestions(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		c := p.client(p.era, "", allCaps, nil)
		list := `[` + strings.Join([]string{askForm, askURL, askSample, askRoots}, ",") + `]`
		got, questions := c.asks("tools/call", `"name":"`+p.id+`_ask","arguments":{"asks":`+list+`}`, replyAll)
		want := `{"k0":` + everything["form"] + `,"k1":` + everything["url"] + `,"k2":` + everything["sampling/createMessage"] + `,"k3":` + everything["roots/list"] + `}`
		if len(got.Result.Content) != 1 || got.Result.Content[0].Text != want {
			t.Errorf("the server got %s\nwant %s", got.Raw, want)
		}
		slices.Sort(questions)
		var expect []string
		for _, q := range []string{askForm, askURL, askRoots, askSample} {
			o, _ := wire.ParseObject([]byte(q))
			expect = append(expect, o.String("method")+" "+string(o.Get("params")))
		}
		slices.Sort(expect)
		if !slices.Equal(questions, expect) {
			t.Errorf("asked %q\nwant %q", questions, expect)
		}
		// A prompt and a resource may ask, too.
		for method, params := range map[string]string{"prompts/get": `"name":"` + p.id + `_ask"`, "resources/read": `"uri":"portal+` + p.id + `:mem://ask"`} {
			got, questions := c.asks(method, params, replyAll)
			if len(questions) != 1 || !strings.Contains(got.Raw, `\"big\":12345678901234567890`) {
				t.Errorf("%s: asked %q, got %s", method, questions, got.Raw)
			}
		}
	})
}

// Only what the client declared is asked, down to the mode of elicitation.
func TestPairsUndeclaredQuestions(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		for _, c := range []struct{ caps, ask string }{
			{noCaps, askForm}, {formCaps, askURL}, {`{"elicitation":{"url":{}}}`, askForm}, {formCaps, askSample}, {formCaps, askRoots},
			{`{"sampling":{}}`, `{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":5,"tools":[]}}`},
			{allCaps, `{"method":"vendor/ask","params":{}}`},
		} {
			if p.modern && p.era == modern {
				continue // the server sees the capabilities itself, and its result is its own
			}
			got, questions := p.client(p.era, "", c.caps, nil).asks("tools/call", `"name":"`+p.id+`_ask","arguments":{"asks":[`+c.ask+`]}`, replyAll)
			if len(questions) != 0 || !strings.Contains(got.Raw, "not answer") && !strings.Contains(got.Raw, "not available") {
				t.Errorf("caps %s, %s: asked %q, got %s", c.caps, c.ask, questions, got.Raw)
			}
		}
	})
}

// What a server asks reaches the session whose call caused it, also of several
// sessions of one user with calls under way at once, however the server is
// reached.
func TestPairsQuestionsReachTheirSession(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				caps := `{"elicitation":{}}`
				if p.era == modern { // these differ by what they can be asked
					caps = fmt.Sprintf(`{"elicitation":{},"vendor":{"n":%d}}`, i)
				}
				c := p.client(p.era, "", caps, nil)
				mine := fmt.Sprintf("for %d?", i)
				for range 5 {
					ask := `{"method":"elicitation/create","params":{"message":"` + mine + `","requestedSchema":{"type":"object","properties":{}}}}`
					a, asked := c.asks("tools/call", `"name":"`+p.id+`_ask","arguments":{"asks":[`+ask+`]}`,
						func(string, json.RawMessage) string { return fmt.Sprintf(`{"action":"accept","content":{"n":%d}}`, i) })
					if len(asked) != 1 || !strings.Contains(asked[0], mine) || !strings.Contains(a.text(), fmt.Sprintf(`"n":%d}`, i)) {
						t.Errorf("client %d was asked %q, its server got %s", i, asked, a.Raw)
					}
				}
			})
		}
		all.Wait()
	})
}
