package company

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"
)

// TestRefusals holds that what cannot be answered is refused in words that
// help, in both eras, and that nothing is changed by it.
func TestRefusals(t *testing.T) {
	c := New(Options{})
	zone := c.seed.DNS.Zones[0]
	rec := c.seed.DNS.Records[zone.ID][0]
	update := func(more ...any) obj { return with(obj{"zone_id": zone.ID, "record_id": rec.ID}, more...) }
	create := func(more ...any) obj {
		return with(obj{"zone_id": zone.ID, "type": "A", "name": "x." + zone.Name, "content": "192.0.2.1"}, more...)
	}
	filter := func(f obj) obj { return obj{"filters": []obj{f}} }
	span := func(more ...any) obj {
		return with(obj{"service": "api", "from": "2026-11-28", "to": "2026-11-29"}, more...)
	}
	forged := base64.RawURLEncoding.EncodeToString([]byte("00000000.-5.1"))
	cases := []struct {
		server, tool string
		args         any
		says         string
	}{
		// Arguments that do not fit the schema.
		{"dns", "records_list", obj{}, "zone_id"},
		{"dns", "zones_list", obj{"page": "one"}, "page"},
		{"dns", "zones_list", obj{"perpage": 50}, `unknown argument "perpage"; known are name, page, per_page, status`},
		{"tracker", "repos_list", obj{"page": 1}, "takes none"},
		{"tracker", "issue_create", obj{"repo": "portal", "title": "t", "labels": []int{1}}, "labels"},
		{"crm", "contacts_search", obj{"filters": []string{"lead"}}, "filters"},
		{"crm", "contact_get", obj{"id": nil}, "id"},

		// Page sizes and places.
		{"dns", "zones_list", obj{"per_page": 51}, "between 1 and 50, not 51"},
		{"dns", "zones_list", obj{"page": 0}, "1 or more"},
		{"dns", "records_list", obj{"zone_id": zone.ID, "per_page": 101}, "between 1 and 100"},
		{"crm", "companies_list", obj{"limit": 101}, "between 1 and 100"},
		{"crm", "companies_list", obj{"offset": -1}, "0 or more"},
		{"crm", "contacts_search", obj{"limit": 0}, "between 1 and 100"},
		{"crm", "contacts_search", obj{"after": "100"}, "invalid after"},
		{"billing", "invoices_list", obj{"limit": 101}, "between 1 and 100"},
		{"billing", "invoices_list", obj{"starting_after": "in_none"}, "starting_after"},
		{"billing", "customers_list", obj{"starting_after": "cus_none"}, "starting_after"},
		{"tracker", "issues_list", obj{"repo": "portal", "cursor": "2"}, "invalid cursor"},
		{"tracker", "issues_list", obj{"repo": "portal", "cursor": forged}, "invalid cursor"},
		{"tracker", "search", obj{"q": "add", "cursor": "!!"}, "invalid cursor"},
		{"docs", "docs_list", obj{"cursor": "x"}, "invalid cursor"},
		{"kb", "articles_list", obj{"cursor": "x"}, "invalid cursor"},
		{"chat", "channels_list", obj{"cursor": "x"}, "invalid cursor"},
		{"logs", "logs_query", span("page_token", "500"), "invalid page_token"},

		// Filters that cannot match.
		{"dns", "zones_list", obj{"status": "Active"}, "active, pending, paused"},
		{"dns", "records_list", obj{"zone_id": zone.ID, "type": "a"}, "AAAA"},
		{"tracker", "issues_list", obj{"repo": "portal", "state": "merged"}, "open, closed, all"},
		{"tracker", "issues_list", obj{"repo": "portal", "assignee": "nobody"}, "anaweiss"},
		{"tracker", "search", obj{"q": "  "}, "one word"},
		{"crm", "search", obj{"query": ""}, "one word"},
		{"kb", "search", obj{"query": ""}, "one word"},
		{"crm", "contacts_search", filter(obj{"propertyName": "tier", "value": "free"}), `no property "tier"`},
		{"crm", "contacts_search", filter(obj{"lifecycle": "lead"}), "a filter is"},
		{"crm", "contacts_search", filter(obj{"propertyName": "lifecycle", "operator": "EQUALS", "value": "lead"}), `operator "EQUALS"`},
		{"crm", "contacts_search", filter(obj{"propertyName": "lifecycle", "operator": "EQ"}), "0 values"},
		{"crm", "contacts_search", filter(obj{"propertyName": "phone", "operator": "HAS_PROPERTY", "value": "x"}), "1 values"},
		{"crm", "contacts_search", filter(obj{"propertyName": "phone", "operator": "IN", "values": []any{}}), "0 values"},
		{"crm", "contacts_search", filter(obj{"propertyName": "phone", "value": obj{}}), "neither text"},
		{"crm", "contacts_search", filter(obj{"propertyName": "created_at", "operator": "LT", "value": "October"}), "not an instant"},
		{"billing", "invoices_list", obj{"status": "overdue"}, "uncollectible"},
		{"billing", "invoices_list", obj{"customer": "cus_none"}, "customers_list"},
		{"docs", "docs_list", obj{"folder": "hr"}, "eng, ops, sales"},
		{"logs", "logs_query", span("service", "web"), "api, auth, billing, edge, worker"},
		{"logs", "logs_query", span("service", ""), "service"},
		{"logs", "logs_query", span("level", "debug"), "info, warn, error"},
		{"logs", "logs_query", span("from", "yesterday"), "2026-11-29T00:00:00Z"},
		{"logs", "logs_query", span("to", "2026-11-28"), "exclusive"},

		// Unknown ids.
		{"dns", "records_list", obj{"zone_id": "none"}, "zones_list"},
		{"dns", "record_update", update("record_id", "none", "ttl", 60), "records_list"},
		{"dns", "record_delete", update("record_id", "none"), "records_list"},
		{"dns", "record_create", create("zone_id", "none"), "zones_list"},
		{"tracker", "issues_list", obj{"repo": "none"}, "portal, gateway"},
		{"tracker", "issue_get", obj{"repo": "portal", "number": 41}, "issues_list"},
		{"tracker", "issue_update", obj{"repo": "portal", "number": 41, "state": "open"}, "issues_list"},
		{"tracker", "issue_delete", obj{"repo": "portal", "number": 0}, "issues_list"},
		{"crm", "contact_get", obj{"id": "1"}, "contacts_search"},
		{"crm", "contact_delete", obj{"id": "1"}, "contacts_search"},
		{"billing", "invoice_get", obj{"id": "INV-100365"}, "invoices_list"},
		{"billing", "invoice_void", obj{"id": "none"}, "invoices_list"},
		{"billing", "refund_create", obj{"invoice": "none"}, "invoices_list"},
		{"docs", "doc_get", obj{"id": "doc_034"}, "docs_list"},
		{"kb", "article_get", obj{"id": "art_000001"}, "articles_list"},
		{"chat", "message_post", obj{"channel_id": "billing", "text": "x"}, "channels_list"},

		// Writes that make no sense.
		{"dns", "record_create", create("name", "x.other.example"), "not within zone"},
		{"dns", "record_create", create("type", "BAD"), "unknown"},
		{"dns", "record_create", create("content", "::1"), "IPv4"},
		{"dns", "record_create", create("ttl", 5), "60 to 86400"},
		{"dns", "record_create", create("type", "TXT", "proxied", true), "proxied"},
		{"dns", "record_update", update(), "nothing to change"},
		{"tracker", "issue_create", obj{"repo": "portal", "title": ""}, "title"},
		{"tracker", "issue_update", obj{"repo": "portal", "number": 1}, "nothing to change"},
		{"tracker", "issue_update", obj{"repo": "portal", "number": 1, "state": "done"}, "open or closed"},
		{"tracker", "issue_update", obj{"repo": "portal", "number": 1, "assignee": "nobody"}, "anaweiss"},
		{"billing", "invoice_void", obj{"id": "in_b05e6d6fd5aa"}, "is paid"},
		{"billing", "refund_create", obj{"invoice": "in_b05e6d6fd5aa", "amount": 187877}, "187876 usd are left"},
		{"billing", "refund_create", obj{"invoice": "in_b05e6d6fd5aa", "amount": 0}, "cannot be refunded"},
		{"billing", "refund_create", obj{"invoice": "in_1b2904c80dc5"}, "only a paid invoice"},
		{"chat", "message_post", obj{"channel_id": "C006", "text": "\n"}, "text"},
	}
	for _, era := range []string{modernEra, legacyEra} {
		c.Reset()
		d := openDesk(t, c, era)
		for _, tc := range cases {
			if text := d.refused(tc.server, tc.tool, tc.args); !strings.Contains(text, tc.says) {
				t.Errorf("%s: %s %s %v: %q does not say %q", era, tc.server, tc.tool, tc.args, text, tc.says)
			}
		}
		rep := c.Report()
		if len(rep.Changes)+len(rep.Articles)+len(rep.Messages)+len(rep.Refunds) != 0 {
			t.Errorf("refused calls changed something: %+v", rep.Changes)
		}
		if len(rep.Calls) != len(cases) {
			t.Errorf("%d calls recorded, want %d", len(rep.Calls), len(cases))
		}
		for _, call := range rep.Calls {
			if call.Outcome != OutcomeError || call.Error == "" {
				t.Errorf("recorded %+v", call)
			}
		}
	}
}

func TestCursorsAreBoundToTheirQuery(t *testing.T) {
	d := openDesk(t, New(Options{}), modernEra)
	first := get[issuesPageResult](d, "tracker", "issues_list", obj{"repo": "portal"})
	for _, args := range []obj{{"repo": "gateway"}, {"repo": "portal", "state": "open"}} {
		if text := d.refused("tracker", "issues_list", with(args, "cursor", first.NextCursor)); !strings.Contains(text, "other filters") {
			t.Errorf("%v: %q", args, text)
		}
	}
	page := get[afterPage[Contact]](d, "crm", "contacts_search", obj{})
	if len(page.Results) != 10 {
		t.Errorf("%d contacts on a page by default, want 10", len(page.Results))
	}
	if text := d.refused("crm", "contacts_search", obj{"archived": true, "after": page.Paging.Next.After}); !strings.Contains(text, "other filters") {
		t.Error(text)
	}
}

func TestDefaultPageSizes(t *testing.T) {
	d := openDesk(t, New(Options{}), modernEra)
	if p := get[numberedPage[Zone]](d, "dns", "zones_list", nil); p.ResultInfo != (resultInfo{1, 20, 20, 55, 3}) || len(p.Result) != 20 {
		t.Errorf("zones_list: %+v with %d items", p.ResultInfo, len(p.Result))
	}
	if p := get[numberedPage[Zone]](d, "dns", "zones_list", obj{"page": 4}); p.ResultInfo != (resultInfo{4, 20, 0, 55, 3}) || p.Result == nil {
		t.Errorf("zones_list past the end: %+v", p)
	}
	if p := get[afterPage[Business]](d, "crm", "companies_list", nil); len(p.Results) != 50 || p.Paging == nil || p.Paging.Next.After != "50" {
		t.Errorf("companies_list: %d items, paging %+v", len(p.Results), p.Paging)
	}
	if p := get[listPage[Invoice]](d, "billing", "invoices_list", nil); len(p.Data) != 10 || !p.HasMore {
		t.Errorf("invoices_list: %d items, has_more %v", len(p.Data), p.HasMore)
	}
	if p := get[listPage[Customer]](d, "billing", "customers_list", nil); len(p.Data) != 10 || !p.HasMore {
		t.Errorf("customers_list: %d items, has_more %v", len(p.Data), p.HasMore)
	}
	p := get[struct {
		Docs       []docHead
		NextCursor string
	}](d, "docs", "docs_list", nil)
	if len(p.Docs) != 15 || p.NextCursor == "" {
		t.Errorf("docs_list: %d items, nextCursor %q", len(p.Docs), p.NextCursor)
	}
	lines, next, _ := logsPageOf(d, obj{"service": "api", "from": "2026-11-28", "to": "2026-11-30"})
	if len(lines) != 500 || next == "" {
		t.Errorf("logs_query: %d lines, next_page_token %q", len(lines), next)
	}
}

func TestPagingByIdGoesOnWhenItemsLeaveTheFilter(t *testing.T) {
	d := openDesk(t, New(Options{}), modernEra)
	voided := 0
	args := obj{"status": "draft", "limit": 100}
	for {
		p := get[listPage[Invoice]](d, "billing", "invoices_list", args)
		for _, i := range p.Data {
			if got := get[Invoice](d, "billing", "invoice_void", obj{"id": i.ID}); got.Status != "void" {
				t.Fatalf("voided: %+v", got)
			}
			voided++
		}
		if !p.HasMore {
			break
		}
		args = with(args, "starting_after", p.Data[len(p.Data)-1].ID)
	}
	if voided != 261 {
		t.Fatalf("%d drafts voided while paging, want all 261", voided)
	}
}

func TestRefundsOfOneInvoiceAddUp(t *testing.T) {
	c := New(Options{})
	d := openDesk(t, c, modernEra)
	args := obj{"invoice": "in_b05e6d6fd5aa"} // paid: 187876 usd cents
	if r := get[Refund](d, "billing", "refund_create", with(args, "amount", 100_000)); r.Amount != 100_000 || r.Currency != "usd" {
		t.Errorf("refund %+v", r)
	}
	if text := d.refused("billing", "refund_create", with(args, "amount", 87_877)); !strings.Contains(text, "87876 usd are left") {
		t.Errorf("more than is left: %q", text)
	}
	if r := get[Refund](d, "billing", "refund_create", args); r.Amount != 87_876 {
		t.Errorf("refund of the rest: %+v", r)
	}
	d.refused("billing", "refund_create", args)
	if refunds := c.Report().Refunds; len(refunds) != 2 || refunds[0].ID == refunds[1].ID {
		t.Errorf("refunds %+v", refunds)
	}
}

func TestLogSpanIncludesItsStartAndNotItsEnd(t *testing.T) {
	d := openDesk(t, New(Options{}), modernEra)
	lines, _, _ := logsPageOf(d, obj{"service": "billing", "from": "2026-11-28T00:00:14.767Z", "to": "2026-11-28T01:00:00Z"})
	if len(lines) < 2 || lines[0].Requested != "r179c641107" {
		t.Fatalf("the line at the start is missing: %+v", lines)
	}
	second := lines[1].TS.Format(time.RFC3339Nano)
	lines, _, _ = logsPageOf(d, obj{"service": "billing", "from": "2026-11-28T00:00:14.767Z", "to": second})
	if len(lines) != 1 {
		t.Fatalf("%d lines before the second one, want 1", len(lines))
	}
	if lines, next, partial := logsPageOf(d, obj{"service": "billing", "from": "2020-01-01", "to": "2020-01-02"}); len(lines) != 0 || next != "" || partial {
		t.Fatalf("lines of 2020: %+v", lines)
	}
	lines, _, _ = logsPageOf(d, obj{"service": "billing", "from": "2026-11-28", "to": "2026-11-30", "level": "error"})
	for _, l := range lines {
		if l.Level != "error" || l.Service != "billing" {
			t.Fatalf("line %+v in an answer of errors of billing", l)
		}
	}
}

func FuzzOpenMark(f *testing.F) {
	f.Add(mark{30, 2}.encode("q", "a"), "a")
	f.Add("", "a")
	f.Add(base64.RawURLEncoding.EncodeToString([]byte("deadbeef.-1.0")), "a")
	f.Fuzz(func(t *testing.T, cursor, filter string) {
		m, err := openMark("cursor", cursor, "q", filter)
		if err != nil {
			return
		}
		if m.offset < 0 || m.page < 1 {
			t.Fatalf("%q opened as %+v", cursor, m)
		}
		if cursor != "" && m.encode("q", filter) != cursor {
			t.Fatalf("%q opened as %+v, which encodes as %q", cursor, m, m.encode("q", filter))
		}
		if _, _, err := cut([]int{1, 2, 3}, 2, "cursor", cursor, "q", filter); err != nil {
			t.Fatalf("a cursor that opens does not cut: %v", err)
		}
	})
}
