package company

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/errgroup"
)

// send posts a JSON-RPC body without the help of the SDK.
func send(t *testing.T, url, body string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

func TestOneURLSpeaksBothEras(t *testing.T) {
	d := openDesk(t, New(Options{}), legacyEra)
	url := d.url + Path("dns")

	resp, body := send(t, url, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	if resp.StatusCode != 200 || resp.Header.Get("Mcp-Session-Id") == "" || !strings.Contains(body, `"protocolVersion":"2025-11-25"`) {
		t.Fatalf("initialize: %s %v %s", resp.Status, resp.Header, body)
	}

	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
	resp, body = send(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"zones_list","arguments":{"per_page":1},`+meta+`}}`,
		"Mcp-Protocol-Version", modernEra, "Mcp-Method", "tools/call", "Mcp-Name", "zones_list")
	if resp.StatusCode != 200 || resp.Header.Get("Mcp-Session-Id") != "" || !strings.Contains(body, `"total_count":55`) {
		t.Fatalf("modern call: %s %v %s", resp.Status, resp.Header, body)
	}
	resp, _ = send(t, url, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "Mcp-Session-Id", "none")
	if resp.StatusCode != 404 {
		t.Fatalf("unknown session: %s, want 404 so that a client begins anew", resp.Status)
	}

	// A modern body without the header is told what is missing.
	resp, body = send(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"zones_list","arguments":{},`+meta+`}}`)
	if resp.StatusCode != 400 || !strings.Contains(body, "-32020") {
		t.Fatalf("modern body without header: %s %s", resp.Status, body)
	}

	for _, garbage := range []string{"", "null", "[]", "{", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":5}`} {
		if resp, body := send(t, d.url+Path("crm"), garbage); resp.StatusCode < 400 && !strings.Contains(body, `"error"`) {
			t.Errorf("body %q: %s %s", garbage, resp.Status, body)
		}
	}
	if resp, _ := send(t, d.url+"/nothing/mcp", "{}"); resp.StatusCode != 404 {
		t.Errorf("unknown server: %s", resp.Status)
	}
}

func TestUnknownToolIsAProtocolError(t *testing.T) {
	c := New(Options{})
	for _, era := range []string{modernEra, legacyEra} {
		d := openDesk(t, c, era)
		_, err := d.mustSession("dns").CallTool(d.ctx(), &mcp.CallToolParams{Name: "zone_delete"})
		var rpc *jsonrpc.Error
		if !errors.As(err, &rpc) || rpc.Code != jsonrpc.CodeInvalidParams {
			t.Fatalf("%s: %v, want -32602", era, err)
		}
	}
	if calls := c.Calls(); len(calls) != 0 {
		t.Fatalf("recorded %+v", calls)
	}
}

func TestResetRestoresEverything(t *testing.T) {
	c := New(Options{})
	d := openDesk(t, c, modernEra)
	before := c.Report()
	zone := d.zones()[0]
	rec := numberedAll[Record](d, "records_list", obj{"zone_id": zone.ID})[0]
	created := get[singleResult[Record]](d, "dns", "record_create", obj{"zone_id": zone.ID, "type": "A", "name": zone.Name, "content": "192.0.2.9"})
	get[any](d, "dns", "record_update", obj{"zone_id": zone.ID, "record_id": rec.ID, "ttl": 61})
	get[any](d, "dns", "record_delete", obj{"zone_id": zone.ID, "record_id": created.Result.ID})
	get[any](d, "tracker", "issue_create", obj{"repo": "portal", "title": "new"})
	get[any](d, "tracker", "issue_update", obj{"repo": "portal", "number": 1, "state": "open", "assignee": "", "labels": []string{}})
	get[any](d, "tracker", "issue_delete", obj{"repo": "portal", "number": 40})
	get[any](d, "crm", "contacts_batch_update", obj{"updates": []obj{{"id": "51000", "archived": true}}})
	get[any](d, "crm", "contact_delete", obj{"id": "53025"})
	get[any](d, "billing", "invoice_void", obj{"id": "in_1b2904c80dc5"})
	get[any](d, "billing", "refund_create", obj{"invoice": "in_b05e6d6fd5aa", "amount": 100})
	get[any](d, "kb", "article_create", obj{"title": "t", "body": "b"})
	get[any](d, "chat", "message_post", obj{"channel_id": "C006", "text": "hi"})

	rep := c.Report()
	var changes []string
	for _, ch := range rep.Changes {
		changes = append(changes, ch.Kind+" "+ch.Collection+" "+ch.ID)
	}
	want := []string{
		"updated dns.records " + rec.ID, "updated tracker.issues portal#1", "deleted tracker.issues portal#40",
		"created tracker.issues portal#41", "updated crm.contacts 51000", "deleted crm.contacts 53025", "updated billing.invoices in_1b2904c80dc5",
	}
	if !sameSet(changes, want) {
		t.Errorf("changes %v\nwant    %v", changes, want)
	}
	if len(rep.Articles) != 1 || len(rep.Messages) != 1 || len(rep.Refunds) != 1 || len(rep.Calls) < 12 {
		t.Errorf("report %+v", rep)
	}

	resp, err := http.Post(d.url+"/reset", "", nil)
	if err != nil || resp.StatusCode != http.StatusNoContent {
		t.Fatalf("POST /reset: %v %v", resp, err)
	}
	resp.Body.Close()
	after := c.Report()
	if after.Run != before.Run+1 {
		t.Errorf("run %d after %d", after.Run, before.Run)
	}
	after.Run = before.Run
	if !reflect.DeepEqual(after, before) {
		t.Errorf("after the reset %+v\nwant %+v", after, before)
	}
	if got := get[Contact](d, "crm", "contact_get", obj{"id": "53025"}); got.ID != "53025" {
		t.Errorf("contact after the reset: %+v", got)
	}
}

func sameSet(a, b []string) bool {
	count := map[string]int{}
	for _, s := range a {
		count[s]++
	}
	for _, s := range b {
		count[s]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

func TestStateAndResetEndpoints(t *testing.T) {
	d := openDesk(t, New(Options{}), modernEra)
	get[any](d, "kb", "article_create", obj{"title": "t", "body": "<b>"})
	state := func() (rep Report) {
		resp, err := http.Get(d.url + "/state")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(&rep); err != nil {
			t.Fatal(err)
		}
		return rep
	}
	rep := state()
	if rep.Counts["zones"] != 55 || len(rep.Articles) != 1 || rep.Articles[0].Body != "<b>" || len(rep.Calls) != 1 || rep.Calls[0].Outcome != OutcomeOK {
		t.Fatalf("state %+v", rep)
	}
	for query, status := range map[string]int{"?outage=true": 204, "?outage=maybe": 400, "": 204} {
		resp, err := http.Post(d.url+"/reset"+query, "", nil)
		if err != nil || resp.StatusCode != status {
			t.Fatalf("POST /reset%s: %v %v, want %d", query, resp, err, status)
		}
		resp.Body.Close()
	}
	if rep := state(); rep.Run != 3 || !rep.Outage || len(rep.Articles) != 0 {
		t.Fatalf("state %+v", rep)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, d.url+"/reset", nil)
	req.Header.Set("Origin", "https://elsewhere.example")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden || state().Run != 3 {
		t.Fatalf("a page on another origin could reset: %s", resp.Status)
	}
}

func TestPromptsResourcesAndCompletion(t *testing.T) {
	c := New(Options{})
	for _, era := range []string{modernEra, legacyEra} {
		d := openDesk(t, c, era)
		ctx := d.ctx()
		docs := d.mustSession("docs")
		first, err := docs.ListResources(ctx, nil)
		if err != nil || len(first.Resources) != 10 || first.NextCursor == "" {
			t.Fatalf("first page of resources: %+v %v", first, err)
		}
		n := 0
		for r, err := range docs.Resources(ctx, nil) {
			if err != nil || !strings.HasPrefix(r.URI, "doc://doc_") || r.Size != 0 {
				t.Fatalf("resource %+v %v", r, err)
			}
			n++
		}
		if n != 34 {
			t.Errorf("%d resources, want 34", n)
		}
		templates, err := docs.ListResourceTemplates(ctx, nil)
		if err != nil || len(templates.ResourceTemplates) != 1 {
			t.Fatalf("templates %+v %v", templates, err)
		}
		read, err := docs.ReadResource(ctx, &mcp.ReadResourceParams{URI: "doc://doc_004"})
		if err != nil || len(read.Contents) != 1 || len(read.Contents[0].Text) != 380074 {
			t.Fatalf("doc://doc_004: %v", err)
		}
		var rpc *jsonrpc.Error
		if _, err := docs.ReadResource(ctx, &mcp.ReadResourceParams{URI: "doc://none"}); !errors.As(err, &rpc) {
			t.Errorf("doc://none: %v, want a protocol error", err)
		}

		tracker := d.mustSession("tracker")
		prompt, err := tracker.GetPrompt(ctx, &mcp.GetPromptParams{Name: "triage_issue", Arguments: map[string]string{"repo": "portal", "number": "1"}})
		if err != nil || !strings.Contains(prompt.Messages[0].Content.(*mcp.TextContent).Text, "Add search #940") {
			t.Fatalf("triage_issue: %+v %v", prompt, err)
		}
		for _, args := range []map[string]string{{"repo": "portal"}, {"repo": "none", "number": "1"}, {"repo": "portal", "number": "999"}} {
			if _, err := tracker.GetPrompt(ctx, &mcp.GetPromptParams{Name: "triage_issue", Arguments: args}); !errors.As(err, &rpc) || rpc.Code != jsonrpc.CodeInvalidParams {
				t.Errorf("triage_issue %v: %v, want -32602", args, err)
			}
		}
		if _, err := d.mustSession("kb").GetPrompt(ctx, &mcp.GetPromptParams{Name: "draft_article", Arguments: map[string]string{"topic": "DNS"}}); err != nil {
			t.Errorf("draft_article: %v", err)
		}
		if _, err := d.mustSession("kb").GetPrompt(ctx, &mcp.GetPromptParams{Name: "draft_article"}); !errors.As(err, &rpc) {
			t.Errorf("draft_article without topic: %v", err)
		}

		done, err := tracker.Complete(ctx, &mcp.CompleteParams{
			Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: "triage_issue"}, Argument: mcp.CompleteParamsArgument{Name: "repo", Value: "sdk"}})
		if err != nil || !reflect.DeepEqual(done.Completion.Values, []string{"sdk-go", "sdk-js"}) {
			t.Errorf("completion of repo: %+v %v", done, err)
		}
		done, err = docs.Complete(ctx, &mcp.CompleteParams{
			Ref: &mcp.CompleteReference{Type: "ref/resource", URI: "doc://{id}"}, Argument: mcp.CompleteParamsArgument{Name: "id", Value: "doc_03"}})
		if err != nil || len(done.Completion.Values) != 4 {
			t.Errorf("completion of id: %+v %v", done, err)
		}
		if _, err := docs.Complete(ctx, &mcp.CompleteParams{
			Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: "none"}, Argument: mcp.CompleteParamsArgument{Name: "x"}}); !errors.As(err, &rpc) {
			t.Errorf("completion of nothing: %v", err)
		}
	}
}

// TestConcurrentCallsAndResets has many clients write, read and reset at once;
// the race detector and the consistency of what is left are the judges.
func TestConcurrentCallsAndResets(t *testing.T) {
	c := New(Options{})
	d := openDesk(t, c, modernEra)
	zone := d.zones()[0]
	var g errgroup.Group
	for worker := range 8 {
		g.Go(func() error {
			for n := range 10 {
				if _, err := try[any](d, "chat", "message_post", obj{"channel_id": "C001", "text": fmt.Sprintf("%d/%d", worker, n)}); err != nil {
					return err
				}
				if _, err := try[any](d, "dns", "record_create", obj{"zone_id": zone.ID, "type": "TXT", "name": zone.Name, "content": "x"}); err != nil {
					return err
				}
				p, err := try[numberedPage[Record]](d, "dns", "records_list", obj{"zone_id": zone.ID})
				if err != nil {
					return err
				}
				if p.ResultInfo.TotalCount < 25 {
					return fmt.Errorf("%d records", p.ResultInfo.TotalCount)
				}
				if n%5 == 0 {
					c.Report()
				}
				if worker == 0 && n == 5 {
					c.Reset()
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	rep := c.Report()
	ids := map[string]bool{}
	for _, m := range rep.Messages {
		ids[m.ID] = true
	}
	for _, ch := range rep.Changes {
		ids[ch.ID] = true
	}
	if rep.Run != 2 || len(ids) != len(rep.Messages)+len(rep.Changes) || len(ids) == 0 {
		t.Fatalf("run %d: %d ids for %d messages and %d records", rep.Run, len(ids), len(rep.Messages), len(rep.Changes))
	}
	c.Reset()
	if rep := c.Report(); len(rep.Messages)+len(rep.Changes)+len(rep.Calls) != 0 {
		t.Fatalf("after the reset: %+v", rep)
	}
}

func TestRecordedCallsAreBounded(t *testing.T) {
	r := newRun(1, &fixture{}, false)
	big := json.RawMessage(`"` + strings.Repeat("x", 16<<20) + `"`)
	for range 5 {
		r.end(r.begin(Tool{"kb", "article_create"}, big), OutcomeOK, "")
	}
	if len(r.recorded()) != 3 || r.unrecorded != 2 {
		t.Fatalf("%d calls kept, %d not, of 5 with 16 MiB each", len(r.recorded()), r.unrecorded)
	}
	for range maxCalls {
		r.begin(Tool{"dns", "zones_list"}, nil)
	}
	if len(r.recorded()) != maxCalls || r.unrecorded != 2+3 {
		t.Fatalf("%d calls kept, %d not", len(r.recorded()), r.unrecorded)
	}
}

func TestServeEndsWithItsContextThoughStreamsAreOpen(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- New(Options{}).Serve(ctx, l) }()
	d := &desk{t: t, url: "http://" + l.Addr().String(), era: legacyEra, sessions: map[string]*mcp.ClientSession{}}
	get[any](d, "dns", "zones_list", nil) // its session keeps a stream open
	stop()
	select {
	case err := <-served:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Serve does not end")
	}
	d.close()
	if resp, err := http.Get(d.url + "/state"); err == nil {
		resp.Body.Close()
		t.Fatal("still served after the end")
	}

	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	if err := New(Options{}).Serve(t.Context(), closed); err == nil || !strings.Contains(err.Error(), closed.Addr().String()) {
		t.Fatalf("serving a closed listener: %v", err)
	}
}

func TestBodyAboveTheLimitIsRefused(t *testing.T) {
	d := openDesk(t, New(Options{}), modernEra)
	body := io.MultiReader(strings.NewReader(`{"x":"`), bytes.NewReader(bytes.Repeat([]byte("x"), maxBody)))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.url+Path("crm"), body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Fatalf("%s, want 413", resp.Status)
	}
}

// BenchmarkNew measures the start, which the demo waits for.
func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		New(Options{})
	}
}
