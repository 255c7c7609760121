package company

// Output schemas. The dns server types all its results; other servers type one
// tool each, as real servers do half-heartedly. A test holds the results of the
// running servers against them.

const (
	zoneSchema = `{"type":"object","properties":{"id":{"type":"string"},"name":{"type":"string"},` +
		`"status":{"type":"string","enum":["active","pending","paused"]},"plan":{"type":"string"}},` +
		`"required":["id","name","status","plan"],"additionalProperties":false}`

	recordSchema = `{"type":"object","properties":{"id":{"type":"string"},"type":{"type":"string"},"name":{"type":"string"},` +
		`"content":{"type":"string"},"ttl":{"type":"integer","description":"seconds; 1 is automatic"},"proxied":{"type":"boolean"}},` +
		`"required":["id","type","name","content","ttl","proxied"],"additionalProperties":false}`

	resultInfoSchema = `{"type":"object","properties":{"page":{"type":"integer"},"per_page":{"type":"integer"},` +
		`"count":{"type":"integer","description":"items on this page"},"total_count":{"type":"integer"},"total_pages":{"type":"integer"}},` +
		`"required":["page","per_page","count","total_count","total_pages"],"additionalProperties":false}`

	issueSchema = `{"type":"object","properties":{"repo":{"type":"string"},"number":{"type":"integer"},"title":{"type":"string"},` +
		`"state":{"type":"string","enum":["open","closed"]},"is_pull_request":{"type":"boolean"},` +
		`"labels":{"type":"array","items":{"type":"string"}},"author":{"type":"string"},"assignee":{"type":["string","null"]},` +
		`"created_at":{"type":"string","format":"date-time"},"closed_at":{"type":["string","null"],"format":"date-time"},` +
		`"comments":{"type":"integer"},"milestone":{"type":["string","null"]},"body":{"type":"string"}},` +
		`"required":["repo","number","title","state","is_pull_request","labels","author","assignee","created_at","closed_at","comments","milestone","body"]}`

	contactSchema = `{"type":"object","properties":{"id":{"type":"string"},"email":{"type":"string"},"firstname":{"type":"string"},` +
		`"lastname":{"type":"string"},"company_id":{"type":"string"},` +
		`"lifecycle":{"type":"string","enum":["subscriber","lead","customer","churned"]},"owner":{"type":"string"},` +
		`"phone":{"type":["string","null"]},"created_at":{"type":"string","format":"date-time"},"archived":{"type":"boolean"}},` +
		`"required":["id","email","firstname","lastname","company_id","lifecycle","owner","phone","created_at","archived"]}`

	invoiceSchema = `{"type":"object","properties":{"id":{"type":"string"},"customer":{"type":"string"},` +
		`"status":{"type":"string","enum":["draft","open","paid","void","uncollectible"]},"currency":{"type":"string"},` +
		`"amount_due":{"type":"integer","description":"smallest currency unit"},"amount_paid":{"type":"integer"},` +
		`"created":{"type":"string","format":"date-time"},"due_date":{"type":"string","format":"date-time"},"number":{"type":"string"}},` +
		`"required":["id","customer","status","currency","amount_due","amount_paid","created","due_date","number"]}`

	messageSchema = `{"type":"object","properties":{"id":{"type":"string"},"channel_id":{"type":"string"},"text":{"type":"string"},` +
		`"ts":{"type":"string","format":"date-time"}},"required":["id","channel_id","text","ts"]}`
)

func object(name, schema string) string {
	return `{"type":"object","properties":{"` + name + `":` + schema + `},"required":["` + name + `"]}`
}

func listOf(schema string) string {
	return `{"type":"object","properties":{"result":{"type":"array","items":` + schema + `},"result_info":` + resultInfoSchema +
		`},"required":["result","result_info"]}`
}

// outputSchemas returns the schema of every tool that has one.
func outputSchemas() map[Tool]string {
	return map[Tool]string{
		{"dns", "zones_list"}:      listOf(zoneSchema),
		{"dns", "records_list"}:    listOf(recordSchema),
		{"dns", "record_create"}:   object("result", recordSchema),
		{"dns", "record_update"}:   object("result", recordSchema),
		{"dns", "record_delete"}:   object("result", `{"type":"object","properties":{"id":{"type":"string"}},"required":["id"]}`),
		{"tracker", "issue_get"}:   issueSchema,
		{"crm", "contact_get"}:     contactSchema,
		{"billing", "invoice_get"}: invoiceSchema,
		{"chat", "message_post"}:   messageSchema,
	}
}
