package company

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestEveryTwelfthRecordUpdateIsRateLimitedAndChangesNothing(t *testing.T) {
	d := openDesk(t, New(Options{}), modernEra)
	zone := d.zones()[0]
	rec := numberedAll[Record](d, "records_list", obj{"zone_id": zone.ID})[0]
	args := obj{"zone_id": zone.ID, "record_id": rec.ID}
	for n := 1; n <= 36; n++ {
		update := with(args, "ttl", 60+n)
		if n%12 != 0 {
			get[any](d, "dns", "record_update", update)
			continue
		}
		if text := d.refused("dns", "record_update", update); text != `{"code":"rate_limited","retry_after_ms":200}` {
			t.Fatalf("call %d: text %q", n, text)
		}
		now := numberedAll[Record](d, "records_list", obj{"zone_id": zone.ID})[0]
		if now.TTL != 60+n-1 {
			t.Fatalf("call %d: ttl is %d; a rate limited call must change nothing", n, now.TTL)
		}
	}
	d.refused("dns", "record_update", with(args, "ttl", "soon")) // does not fit the schema and does not count
	for n := 1; n <= 11; n++ {
		get[any](d, "dns", "record_update", with(args, "ttl", 300))
	}
	d.refused("dns", "record_update", with(args, "ttl", 300))
}

func TestSecondPageIsEmptyWithACursorInLargeRepositoriesOnly(t *testing.T) {
	d := openDesk(t, New(Options{}), modernEra)
	for repo, want := range map[string][]int{"gateway": {30, 0, 30, 30, 30, 30, 30, 30}, "billing-api": {30, 0, 30, 30}, "portal": {30, 10}} {
		args := obj{"repo": repo}
		seen := map[int]bool{}
		for n, size := range want {
			p := get[issuesPageResult](d, "tracker", "issues_list", args)
			if len(p.Issues) != size {
				t.Fatalf("%s page %d: %d issues, want %d", repo, n+1, len(p.Issues), size)
			}
			if last := n == len(want)-1; last != (p.NextCursor == "") {
				t.Fatalf("%s page %d: nextCursor %q", repo, n+1, p.NextCursor)
			}
			for _, i := range p.Issues {
				seen[i.Number] = true
			}
			args["cursor"] = p.NextCursor
		}
		if total := map[string]int{"gateway": 210, "billing-api": 90, "portal": 40}[repo]; len(seen) != total {
			t.Errorf("%s: %d issues over all pages, want %d", repo, len(seen), total)
		}
	}
}

func TestMoreThanEightIssueGetsInFlightAreRefused(t *testing.T) {
	c := New(Options{})
	entered, release := make(chan time.Duration, 100), make(chan struct{})
	c.sleep = func(ctx context.Context, d time.Duration) error {
		entered <- d
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	d := openDesk(t, c, legacyEra)
	let := sync.OnceFunc(func() { close(release) })
	t.Cleanup(let) // before the server closes, which waits for calls under way
	d.mustSession("tracker")
	args := obj{"repo": "portal", "number": 1}
	var held sync.WaitGroup
	failed := make(chan error, 8)
	for range 8 {
		held.Go(func() {
			if _, err := try[issueResult](d, "tracker", "issue_get", args); err != nil {
				failed <- err
			}
		})
	}
	for range 8 {
		select {
		case latency := <-entered:
			if latency != 150*time.Millisecond {
				t.Fatalf("latency %s, want 150ms", latency)
			}
		case err := <-failed:
			t.Fatalf("a call within the limit failed: %v", err)
		case <-time.After(time.Minute):
			t.Fatal("the first eight calls are not in flight")
		}
	}
	if text := d.refused("tracker", "issue_get", args); text != "too many concurrent requests" {
		t.Fatalf("ninth call: %q", text)
	}
	let()
	held.Wait()
	select {
	case err := <-failed:
		t.Fatalf("a call within the limit failed: %v", err)
	default:
	}
	get[issueResult](d, "tracker", "issue_get", args)
}

func TestLatencyIsTakenWhenSwitchedOn(t *testing.T) {
	d := openDesk(t, New(Options{Latency: true}), modernEra)
	d.mustSession("tracker")
	start := time.Now()
	get[issueResult](d, "tracker", "issue_get", obj{"repo": "portal", "number": 1})
	if took := time.Since(start); took < 150*time.Millisecond {
		t.Fatalf("issue_get took %s, less than its latency", took)
	}
}

func TestThirdIssueIsCreatedAlthoughTheAnswerIsAnError(t *testing.T) {
	d := openDesk(t, New(Options{}), modernEra)
	for n := 1; n <= 4; n++ {
		args := obj{"repo": "infra", "title": fmt.Sprintf("made by test %d", n), "labels": []string{"bug"}}
		if n == 3 {
			if text := d.refused("tracker", "issue_create", args); text != "upstream timeout" {
				t.Fatalf("third call: %q", text)
			}
			continue
		}
		if got := get[issueResult](d, "tracker", "issue_create", args); got.Number != 40+n || got.State != "open" {
			t.Fatalf("call %d: %+v", n, got)
		}
	}
	if hits := cursorAll[foundIssue](d, "tracker", "search", "items", obj{"q": "MADE test"}); len(hits) != 4 {
		t.Fatalf("%d issues created, want 4: %v", len(hits), hits)
	}
}

func TestFirstAuthQueryLeavesOutShardsOneAndThree(t *testing.T) {
	c := New(Options{})
	d := openDesk(t, c, modernEra)
	args := obj{"service": "auth", "from": "2026-11-28T00:00:00Z", "to": "2026-11-28T06:00:00Z"}
	shards := func() (map[int]int, bool) {
		lines, _, partial := logsPageOf(d, args)
		counts := map[int]int{}
		for _, l := range lines {
			counts[l.Shard]++
		}
		return counts, partial
	}
	logsPageOf(d, with(args, "service", "api")) // another service does not use it up
	text, _, err := d.raw("logs", "logs_query", args)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(text, "\n{\"partial\":true,\"failed_shards\":[1,3]}\n") {
		t.Fatalf("the first answer ends with %q", text[max(0, len(text)-100):])
	}
	if strings.Contains(text, `"shard":1`) || strings.Contains(text, `"shard":3`) {
		t.Fatal("the first answer has lines of shards 1 and 3")
	}
	if counts, partial := shards(); partial || counts[1] == 0 || counts[3] == 0 {
		t.Fatalf("second query: partial %v, lines by shard %v", partial, counts)
	}
	c.Reset()
	if _, partial := shards(); !partial {
		t.Fatal("the first query after a reset is not partial")
	}
}

func TestFifthArticleIsStoredAlthoughTheAnswerIsAnError(t *testing.T) {
	c := New(Options{})
	d := openDesk(t, c, modernEra)
	d.refused("kb", "article_create", obj{"title": " ", "body": "x"}) // stores nothing and does not count
	for n := 1; n <= 6; n++ {
		args := obj{"title": fmt.Sprintf("Article %d", n), "body": "text"}
		if n == 5 {
			if text := d.refused("kb", "article_create", args); text != "gateway timeout" {
				t.Fatalf("fifth call: %q", text)
			}
			continue
		}
		get[any](d, "kb", "article_create", args)
	}
	rep := c.Report()
	if len(rep.Articles) != 6 || rep.Articles[4].Title != "Article 5" || rep.Articles[4].Bytes != 4 {
		t.Fatalf("stored: %+v", rep.Articles)
	}
}

func TestBatchUpdateReportsLockedContactsAndAppliesTheRest(t *testing.T) {
	c := New(Options{})
	d := openDesk(t, c, modernEra)
	type batchResult struct {
		Updated int
		Results []Contact
		Errors  []batchError
	}
	people := d.people()
	var locked, free Contact
	for _, p := range people {
		var number int
		fmt.Sscan(p.ID, &number)
		if number%13 == 0 {
			locked = p
		} else {
			free = p
		}
	}
	got := get[batchResult](d, "crm", "contacts_batch_update", obj{"updates": []obj{
		{"id": locked.ID, "owner": "Zoe"},
		{"id": free.ID, "properties": obj{"owner": "Zoe", "phone": nil}},
		{"id": "1", "owner": "Zoe"},
		{"id": free.ID, "lifecycle": "gone"},
		{"id": free.ID, "shoesize": 44},
	}})
	if got.Updated != 1 || len(got.Results) != 1 || got.Results[0].ID != free.ID || got.Results[0].Owner != "Zoe" || got.Results[0].Phone != nil {
		t.Errorf("results: %+v", got)
	}
	var codes []string
	for _, e := range got.Errors {
		codes = append(codes, e.ID+" "+e.Code)
	}
	if want := []string{locked.ID + " LOCKED", "1 NOT_FOUND", free.ID + " INVALID", free.ID + " INVALID"}; fmt.Sprint(codes) != fmt.Sprint(want) {
		t.Errorf("errors %v, want %v", codes, want)
	}
	if changes := c.Report().Changes; len(changes) != 1 || changes[0].ID != free.ID {
		t.Errorf("changes: %+v", changes)
	}

	var many []obj
	for _, p := range people[:51] {
		many = append(many, obj{"id": p.ID, "owner": "Ana"})
	}
	c.Reset()
	if text := d.refused("crm", "contacts_batch_update", obj{"updates": many}); !strings.Contains(text, "50") {
		t.Errorf("51 updates: %q does not tell the limit", text)
	}
	d.refused("crm", "contacts_batch_update", obj{"updates": []obj{{"id": free.ID, "owner": "Ana"}, {"owner": "Ana"}}})
	if changes := c.Report().Changes; len(changes) != 0 {
		t.Errorf("a refused batch changed %+v", changes)
	}
	if got := get[batchResult](d, "crm", "contacts_batch_update", obj{"updates": many[:50]}); got.Updated+len(got.Errors) != 50 {
		t.Errorf("50 updates: %d applied, %d errors", got.Updated, len(got.Errors))
	}
}

func TestOutageCutsTheFirstThreeCRMCalls(t *testing.T) {
	for _, era := range []string{modernEra, legacyEra} {
		t.Run(era, func(t *testing.T) {
			c := New(Options{Outage: true})
			d := openDesk(t, c, era)
			try := func() error {
				_, err := try[any](d, "crm", "contact_get", obj{"id": "53025"})
				return err
			}
			d.mustSession("crm") // connecting and listing are not tool calls
			if _, err := d.mustSession("crm").ListTools(d.ctx(), nil); err != nil {
				t.Fatal(err)
			}
			get[any](d, "billing", "customers_list", nil)
			for n := 1; n <= 3; n++ {
				err := try()
				if text := refusal(""); err == nil || errors.As(err, &text) {
					t.Fatalf("call %d: %v, want a connection error", n, err)
				}
			}
			if err := try(); err != nil {
				t.Fatalf("call 4: %v, want it healed", err)
			}
			c.Reset()
			if try() == nil {
				t.Fatal("the first call of the next run went through")
			}
			c.ResetOutage(false)
			if err := try(); err != nil {
				t.Fatalf("without the scenario: %v", err)
			}
		})
	}
}

func TestOutageCallsAreRecorded(t *testing.T) {
	c := New(Options{Outage: true})
	d := openDesk(t, c, modernEra)
	for range 4 {
		d.raw("crm", "search", obj{"query": "birch"})
	}
	var outcomes []string
	for _, call := range c.Calls() {
		if call.Tool != (Tool{"crm", "search"}) || string(call.Arguments) != `{"query":"birch"}` {
			t.Errorf("recorded %+v", call)
		}
		outcomes = append(outcomes, call.Outcome)
	}
	if want := "[disconnected disconnected disconnected ok]"; fmt.Sprint(outcomes) != want {
		t.Fatalf("outcomes %v, want %s", outcomes, want)
	}
}
