package company

import "slices"

// Tool names one tool of one server.
type Tool struct {
	Server string `json:"server"`
	Name   string `json:"tool"`
}

// Deviation is a tool whose annotations are not those of its true behaviour.
type Deviation struct {
	Tool
	// Kind is "none" for a tool without annotations and "lie" for false ones.
	Kind string
	// Why says what such a tool is there to exercise.
	Why string
}

// Kinds of a [Deviation].
const (
	DeviationNone = "none"
	DeviationLie  = "lie"
)

// Lie is the tool that deletes for good but claims to be read-only.
func Lie() Tool { return Tool{Server: "crm", Name: "contact_delete"} }

// Deviations returns every tool whose annotations are missing or false.
func Deviations() []Deviation {
	return []Deviation{
		{Lie(), DeviationLie, "a destructive tool that claims readOnlyHint: hints of an untrusted server may only tighten policy"},
		{Tool{"tracker", "search"}, DeviationNone, "a harmless tool that says nothing about itself, with a name that three servers share"},
		{Tool{"kb", "search"}, DeviationNone, "as tracker search"},
		{Tool{"chat", "channels_list"}, DeviationNone, "a harmless list that says nothing about itself"},
	}
}

// service describes one server to its clients.
type service struct {
	id           string
	title        string
	purpose      string // one sentence, also for the portal's configuration
	instructions string // how to page and filter; sent at initialize
	pageSize     int    // of the protocol's own lists, so that paging them is exercised; 0 is the SDK's default
}

// services is in the order in which the servers are listed everywhere.
func services() []service {
	return []service{
		{"dns", "Company DNS", "DNS zones and records of the company's customers.",
			"Lists take page and per_page and answer result_info with total_pages. zones_list: 20 a page, at most 50. records_list: 100 a page, at most 100. record_update may answer rate_limited; wait retry_after_ms and send it again.", 0},
		{"tracker", "Company tracker", "Issues and pull requests of twelve repositories.",
			"Lists answer nextCursor; go on until it is missing, even when a page is empty. issues_list mixes issues and pull requests (is_pull_request) and leaves out bodies. issue_get refuses more than 8 calls at once.", 4},
		{"crm", "Company CRM", "Companies and contacts: who is a customer, who is a lead, and of which company.",
			"Go on with paging.next.after until paging is missing. contacts_search: 10 a page, at most 100; filters are objects {\"propertyName\",\"operator\",\"value\"} joined by and. companies_list: 50 a page, at most 100; give paging.next.after as offset.", 0},
		{"billing", "Company billing", "Billing customers, invoices, voids and refunds; amounts in the smallest currency unit.",
			"Lists take starting_after (the id of the last item seen) and limit (10, at most 100) and answer has_more. Invoices are listed newest first. JPY has no minor unit.", 0},
		{"logs", "Company logs", "Request log lines of the company's services for 28 and 29 November 2026.",
			"logs_query returns NDJSON text, 500 lines at most, from inclusive to to exclusive (RFC 3339). A last line {\"next_page_token\":…} means there is more; a last line {\"partial\":true,…} means shards were missing: ask again.", 0},
		{"docs", "Company documents", "Internal documents: runbooks, specifications, notes, transcripts.",
			"docs_list gives ids without sizes, 15 a page with nextCursor. doc_get gives the full text, which can be large. Documents are also resources doc://<id>.", 10},
		{"kb", "Company knowledge base", "Knowledge base articles that assistants may write.",
			"article_create may fail after it stored the article: look with articles_list before sending it again. Lists answer nextCursor.", 0},
		{"chat", "Company chat", "Chat channels and posting messages to them.",
			"channels_list is newest first, 10 a page with nextCursor. message_post posts at once and cannot be undone.", 0},
	}
}

// Servers returns the ids of the eight servers in their fixed order.
func Servers() []string {
	var ids []string
	for _, s := range services() {
		ids = append(ids, s.id)
	}
	return ids
}

// Descriptions returns one sentence per server id: what the server is for.
func Descriptions() map[string]string {
	m := map[string]string{}
	for _, s := range services() {
		m[s.id] = s.purpose
	}
	return m
}

// Trusted returns the ids of the servers whose annotations an administrator
// may trust: all but the server of [Lie].
func Trusted() []string {
	return slices.DeleteFunc(Servers(), func(id string) bool { return id == Lie().Server })
}

// Path returns the URL path of the MCP endpoint of a server, "/dns/mcp" for
// "dns".
func Path(server string) string { return "/" + server + "/mcp" }
