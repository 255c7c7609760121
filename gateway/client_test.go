package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mcp-portal/mcp-portal/wire"
)

// era is how a client speaks.
type era string

const (
	legacy era = "2025-11-25"
	modern era = "2026-07-28"
)

// eachEra runs a test for a client of either era.
func eachEra(t *testing.T, f func(t *testing.T, e era)) {
	for _, e := range []era{legacy, modern} {
		t.Run(string(e), func(t *testing.T) { f(t, e) })
	}
}

// Capabilities of clients and places of the portal.
const (
	noCaps   = `{}`
	formCaps = `{"elicitation":{}}`
	twoTools = "?optimize_context=search_and_execute"
	yes      = `{"action":"accept","content":{"decision":"approve"}}`
)

// client is an MCP client that writes its own bytes.
type client struct {
	p       *portal
	era     era
	query   string // of the URL
	caps    string
	header  map[string]string // with every request
	session string
	id      atomic.Int64
}

// client connects; a 2025 client opens a session.
func (p *portal) client(e era, query, caps string, header map[string]string) *client {
	p.t.Helper()
	c := &client{p: p, era: e, query: query, caps: caps, header: header}
	if e == modern {
		return c
	}
	resp, body := p.post(query, `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"test","version":"1"},"capabilities":`+caps+`}}`, header)
	if c.session = resp.Header.Get("Mcp-Session-Id"); c.session == "" {
		p.t.Fatalf("initialize: %d %s", resp.StatusCode, body)
	}
	return c
}

// post sends any body to the endpoint. A header with an empty value is left
// out.
func (p *portal) post(query, body string, header map[string]string) (*http.Response, string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	resp, err := p.open(ctx, query, body, header)
	p.must(err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	p.must(err)
	return resp, string(b)
}

func (p *portal) open(ctx context.Context, query, body string, header map[string]string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/mcp"+query, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for k, v := range header {
		if v == "" {
			req.Header.Del(k)
		} else {
			req.Header.Set(k, v)
		}
	}
	return http.DefaultClient.Do(req)
}

// answer is a response, read.
type answer struct {
	Status int
	Type   string // media type
	Raw    string
	Err    error    // the request came to no end
	Notes  []string // notifications before it, as they came

	Error  *wire.Error `json:"error"`
	Result struct {
		ResultType    string                     `json:"resultType"`
		RequestState  string                     `json:"requestState"`
		InputRequests map[string]json.RawMessage `json:"inputRequests"`
		Content       []struct{ Text string }    `json:"content"`
		IsError       bool                       `json:"isError"`
	} `json:"result"`
}

// text is all text of a tool result, or the error.
func (a answer) text() string {
	var b strings.Builder
	for _, c := range a.Result.Content {
		b.WriteString(c.Text + "\n")
	}
	if a.Error != nil {
		b.WriteString(a.Error.Message)
	}
	if a.Err != nil {
		b.WriteString(a.Err.Error())
	}
	return b.String()
}

var (
	approvalID = regexp.MustCompile(`ap-[A-Z2-7]{26}`)
	runID      = regexp.MustCompile(`run_[A-Z2-7]{26}`)
)

// approvals are the different approvals that an answer names.
func (a answer) approvals() []string {
	var out []string
	seen := map[string]bool{}
	for _, id := range approvalID.FindAllString(a.Raw, -1) {
		if !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out
}

// asks are the approvals that an input_required result asks for: how the
// client's retry answers yes to all of them.
func (a answer) sayYes() string {
	o := wire.Object{}
	for k := range a.Result.InputRequests {
		o = append(o, wire.Field{Key: k, Value: json.RawMessage(yes)})
	}
	return `"requestState":` + string(wire.Quote(a.Result.RequestState)) + `,"inputResponses":` + string(o.Bytes())
}

// question is what the portal asks a 2025 client on the stream of a request.
type question struct {
	c      *client
	ID     json.RawMessage
	Method string
	Params json.RawMessage
}

// reply answers it with a result.
func (q question) reply(result string) *http.Response {
	p := q.c.p
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	resp, err := p.open(ctx, q.c.query, `{"jsonrpc":"2.0","id":`+string(q.ID)+`,"result":`+result+`}`, q.c.headers("", ""))
	if err != nil && p.stopping.Load() {
		return nil // the answer arrived, its 202 did not: the test is over
	}
	p.must(err)
	resp.Body.Close()
	return resp
}

// always says yes to approvals.
func always(q question) { go q.reply(yes) }

func (c *client) headers(method, name string) map[string]string {
	h := map[string]string{}
	if c.era == modern {
		h["Mcp-Protocol-Version"], h["Mcp-Method"] = string(modern), method
		h["Mcp-Name"] = wire.EncodeHeaderValue(name)
	} else {
		h["Mcp-Session-Id"] = c.session
	}
	for k, v := range c.header {
		h[k] = v
	}
	return h
}

// do sends a request; params are the members of params as they are to stand
// there, without _meta. on gets the portal's questions and may be nil.
func (c *client) do(method, params string, on func(question)) answer {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return c.doAs(ctx, fmt.Sprint(c.id.Add(1)), method, params, nil, on)
}

// doAs is do with an id, a context and further headers.
func (c *client) doAs(ctx context.Context, id, method, params string, header map[string]string, on func(question)) answer {
	all := params
	if c.era == modern {
		if !strings.Contains(all, `"_meta":{`) {
			all = strings.TrimSuffix(`"_meta":{},`+all, ",")
		}
		all = strings.Replace(all, `"_meta":{`, `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},"io.modelcontextprotocol/clientCapabilities":`+c.caps+`,`, 1)
		all = strings.Replace(all, ",}", "}", 1)
	}
	name := ""
	if o, err := wire.ParseObject([]byte("{" + params + "}")); err == nil {
		if name = o.String("name"); method == "resources/read" {
			name = o.String("uri")
		}
	}
	h := c.headers(method, name)
	for k, v := range header {
		h[k] = v
	}
	resp, err := c.p.open(ctx, c.query, `{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":{`+all+`}}`, h)
	if err != nil {
		return answer{Err: err}
	}
	defer resp.Body.Close()
	a := answer{Status: resp.StatusCode, Type: resp.Header.Get("Content-Type")}
	if a.Type != "text/event-stream" {
		b, err := io.ReadAll(resp.Body)
		a.Raw, a.Err = string(b), err
		if err := json.Unmarshal(b, &a); err != nil {
			a.Err = err
		}
		return a
	}
	sc := bufio.NewScanner(resp.Body)
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		data, ok := strings.CutPrefix(sc.Text(), "data: ")
		if !ok {
			continue
		}
		m, err := wire.ParseMessage([]byte(data))
		switch {
		case err != nil:
			a.Err = err
			return a
		case m.IsResponse():
			a.Raw, a.Err = data, json.Unmarshal([]byte(data), &a)
			return a
		case m.IsRequest() && on != nil:
			on(question{c, m.ID, m.Method, m.Params})
		case m.IsNotification():
			a.Notes = append(a.Notes, data)
		}
	}
	if a.Err = sc.Err(); a.Err == nil {
		a.Err = io.ErrUnexpectedEOF
	}
	return a
}

// call calls a tool with arguments and, perhaps, further members of params.
func (c *client) call(tool, arguments, more string, on func(question)) answer {
	params := `"name":` + string(wire.Quote(tool)) + `,"arguments":` + arguments
	if more != "" {
		params += "," + more
	}
	a := c.do("tools/call", params, on)
	c.p.isDeclared(tool, a)
	return a
}

// code runs a script with portal_execute.
func (c *client) code(src, more string, on func(question)) answer {
	return c.call("portal_execute", `{"code":`+string(wire.Quote(src))+`}`, more, on)
}

// resume goes on with a paused run.
func (c *client) resume(run, more string, on func(question)) answer {
	return c.call("portal_execute", `{"resume":"`+run+`"}`, more, on)
}

// end sends DELETE for the session.
func (c *client) end(header map[string]string) int {
	c.p.t.Helper()
	req, err := http.NewRequest(http.MethodDelete, c.p.url+"/mcp", nil)
	c.p.must(err)
	for k, v := range c.headers("", "") {
		req.Header.Set(k, v)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	c.p.must(err)
	resp.Body.Close()
	return resp.StatusCode
}
