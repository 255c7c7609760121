package gateway_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-portal/mcp-portal/internal/corpora"
)

const zonesDocument = `
openapi: 3.0.3
info: {title: Zones, version: "1", description: Names and where they point.}
servers: [{url: /client/v4}]
paths:
  /zones:
    get:
      {operationId: zones-list, summary: List zones, tags: [Zone], parameters: [{name: page, in: query, schema: {type: integer}}, {name: name, in: query, schema: {type: string}}],
       responses: {"200": {content: {application/json: {schema: {type: object, properties: {result: {type: array, items: {$ref: "#/components/schemas/Zone"}}}}}}}}}
    post: {operationId: zones-post, summary: Create zone, tags: [Zone], requestBody: {required: true, content: {application/json: {schema: {type: object}}}}}
  /zones/{zone_id}/dns_records:
    get: {operationId: dns-list, summary: List DNS records, tags: [DNS], parameters: [{name: zone_id, in: path, required: true, schema: {type: string}}, {name: page, in: query, schema: {type: integer}}]}
  /zones/{zone_id}/dns_records/{id}:
    parameters: [{name: zone_id, in: path, required: true, schema: {type: string}}, {name: id, in: path, required: true, schema: {type: string}}]
    get: {operationId: dns-get, summary: One DNS record, tags: [DNS]}
    delete: {operationId: dns-delete, summary: Remove one record, tags: [DNS]}
  /secret/{id}:
    get: {operationId: secret-get, parameters: [{name: id, in: path, required: true, schema: {type: string}}]}
components: {schemas: {Zone: {type: object, properties: {id: {type: string}, parent: {$ref: "#/components/schemas/Zone"}}}}}
`

// zones is a real HTTP API.
type zones struct {
	*httptest.Server
	mu  sync.Mutex
	got []string
}

func newZones(t *testing.T) *zones {
	t.Helper()
	z := &zones{}
	z.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/openapi.yaml" {
			_, _ = io.WriteString(w, zonesDocument)
			return
		}
		body, _ := io.ReadAll(r.Body)
		z.mu.Lock()
		z.got = append(z.got, strings.TrimSpace(r.Method+" "+r.RequestURI+" "+string(body)))
		z.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Header.Get("Authorization") != "Bearer zones-token-1234":
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error":"unauthorized"}`)
		case r.URL.Path == "/client/v4/zones/broken/dns_records":
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error":"unauthorized"}`)
		case strings.HasSuffix(r.URL.Path, "/dns_records"):
			page := r.URL.Query().Get("page")
			if page != "3" {
				next := map[string]string{"": "2", "2": "3"}[page]
				w.Header().Set("Link", fmt.Sprintf(`<%s?page=%s>; rel="next"`, r.URL.Path, next))
			}
			_, _ = fmt.Fprintf(w, `[{"id":"r%s1"},{"id":"r%s2"}]`, page, page)
		default:
			_, _ = fmt.Fprintf(w, `{"result":[{"id":"z1","serial":9007199254740993}],"path":%q}`, r.URL.Path)
		}
	}))
	t.Cleanup(z.Close)
	return z
}

func (z *zones) requests() []string {
	z.mu.Lock()
	defer z.mu.Unlock()
	return append([]string(nil), z.got...)
}

func (z *zones) yaml(more string) string {
	return "servers:\n  cf:\n    openapi: " + z.URL + "/openapi.yaml\n    bearer: zones-token-1234\n" + more
}

// valueOf is what a script gives, or its error.
func valueOf(t *testing.T, a answer) string {
	t.Helper()
	s := structuredOf(t, a)
	if s.Status == "error" {
		return "error: " + s.Error.Message
	}
	return string(s.Value)
}

// An HTTP API is found, described, called and used in code like any server; its
// writes wait for approval, and the audit has the operation.
func TestAnAPIBehindTheDoor(t *testing.T) {
	z := newZones(t)
	p := start(t, z.yaml("    tools: {secret-get: {enabled: false}}\n"), nil)
	eachEra(t, func(t *testing.T, e era) {
		c := p.client(e, twoTools, noCaps, nil)
		if got := c.call("portal_query_tools", `{"query":"list dns records"}`, "", nil).text(); !strings.Contains(got, "cf_dns-list [read]") {
			t.Errorf("search: %s", got)
		}
		if got := c.call("portal_query_tools", `{"names":["cf_dns-delete"]}`, "", nil).text(); !strings.Contains(got, "[destructive, needs approval]") || !strings.Contains(got, "zone_id") {
			t.Errorf("describe: %s", got)
		}
		if got := c.call("portal_execute", `{"tool":"cf_zones-list","arguments":{"name":"a b"}}`, "", nil); !strings.Contains(got.Raw, "9007199254740993") {
			t.Errorf("call: %s", got.Raw)
		}
		if got := valueOf(t, c.code(`return (await cf.zones_list({})).result[0].serial`, "", nil)); got != "9007199254740993" {
			t.Errorf("code: %s", got)
		}
		if got := valueOf(t, c.code(`return (await codemode.paginate(codemode.cf_dns$list, {zone_id: "z"})).map(r => r.id)`, "", nil)); got != `["r1","r2","r21","r22","r31","r32"]` {
			t.Errorf("pages: %s", got)
		}
		paused := c.code(`return codemode.request({server: "cf", method: "DELETE", path: "/zones/z/dns_records/r1"})`, "", nil)
		if !strings.Contains(paused.Raw, "dns-delete") || strings.Contains(strings.Join(z.requests(), " "), "DELETE") {
			t.Errorf("a write through codemode.request: %s", paused.Raw)
		}
	})
	lines, _ := p.auditLines(func(lines []map[string]any) bool { return len(lines) > 5 })
	found := false
	for _, l := range lines {
		found = found || l["server"] == "cf" && l["capability"] == "dns-list" && l["mode"] == "code" && l["class"] == "read"
	}
	if !found {
		t.Errorf("the audit has no dns-list: %v", lines)
	}
}

// codemode.request is the operation's tool; codemode.spec shows what the caller
// may call.
func TestSpecAndRequestInCode(t *testing.T) {
	z := newZones(t)
	p := start(t, z.yaml("    tools: {secret-get: {enabled: false}}\n"), nil)
	c := p.client(modern, twoTools, noCaps, nil)
	for code, want := range map[string]string{
		`return Object.entries((await codemode.spec("cf")).paths).map(([p, i]) => p + " " + Object.keys(i).filter(m => m !== "parameters"))`:                                         `["/zones get,post","/zones/{zone_id}/dns_records get","/zones/{zone_id}/dns_records/{id} get,delete"]`,
		`return (await codemode.spec()).paths["/zones"].get.summary`:                                                                                                                 `"List zones"`,
		`return (await codemode.spec("cf", {tags: "DNS", search: "delete"}))["x-portal"]`:                                                                                            `{"view":"part","operations":1,"of":5,"cut":false}`,
		`return (await codemode.spec("cf", {paths: "GET /zones"})).paths["/zones"].get.responses["200"].content["application/json"].schema.properties.result.items.properties`:       `{"id":{"type":"string"},"parent":{"$circular":"#/components/schemas/Zone"}}`,
		`const s = await codemode.spec("cf"); const op = s.paths["/zones/{zone_id}/dns_records/{id}"].get; return (await codemode.call(op["x-tool"], {zone_id: "z", id: "7"})).path`: `"/client/v4/zones/z/dns_records/7"`,
		`return (await codemode.request({server: "cf", method: "GET", path: "/zones?name=x", query: {page: 2}})).path`:                                                               `"/client/v4/zones"`,
		`return (await codemode.request({path: "/client/v4/zones/a%2Fb/dns_records/7"})).path`:                                                                                       `"/client/v4/zones/a/b/dns_records/7"`,
	} {
		if got := valueOf(t, c.code(code, "", nil)); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", code, got, want)
		}
	}
	got := strings.Join(z.requests(), "\n")
	for _, want := range []string{"GET /client/v4/zones?page=2&name=x", "GET /client/v4/zones/a%2Fb/dns_records/7"} {
		if !strings.Contains(got, want) && !strings.Contains(got, "GET /client/v4/zones?name=x&page=2") {
			t.Errorf("the API got\n%s\nnot %s", got, want)
		}
	}
	before := len(z.requests())
	for code, want := range map[string]string{
		`codemode.request({path: "/zones/z/dns_record"})`:                          "Near: GET /zones/{zone_id}/dns_records",
		`codemode.request({path: "/secret/1"})`:                                    "no operation GET /secret/1 for you",
		`codemode.request({method: "PUT", path: "/zones"})`:                        "Near: GET /zones",
		`codemode.request({path: "/zones/{zone_id}/dns_records"})`:                 "put the value of {zone_id}",
		`codemode.request({path: "/zones", query: {colour: 1}})`:                   "it has page, name",
		`codemode.request({path: "/zones", headers: {Authorization: "Bearer x"}})`: "added by itself",
		`codemode.request({path: "/zones", body: {}})`:                             "takes no body",
		`codemode.request({url: "/zones"})`:                                        "has no member",
		`codemode.request({server: "other", path: "/zones"})`:                      "is no server with an OpenAPI document",
		`codemode.request("/zones")`:                                               "takes one object",
		`codemode.spec("cf", {path: "/nothing/*"})`:                                "none of the 5 operations",
		`codemode.spec("cf", {colour: 1})`:                                         "has no option",
		`codemode.request({path: "@evil.com/x"})`:                                  "does not begin with a slash",
		`codemode.request({path: "//evil"})`:                                       "two slashes",
		`codemode.request({path: "/../.."})`:                                       "lead out",
		`codemode.request({path: "/zones/%2e%2e/%2e%2e"})`:                         "lead out",
		`codemode.request({path: "/zones/%252e%252e/dns_records"})`:                "lead out",
		`codemode.request({path: "/zones/..%2f..%2fsecret/dns_records"})`:          "lead out",
		`codemode.request({path: "https://evil.com/zones"})`:                       "is an address",
		`codemode.request({path: "/zones\r\nX-Evil: 1"})`:                          "characters that no path has",
		`codemode.request({path: "/zones/z%0d%0aX/dns_records"})`:                  "lead out",
		`codemode.request({path: "/zones#/../../secret"})`:                         "fragment",
		`codemode.request({path: "/zones\\..\\..\\secret"})`:                       "characters that no path has",
		`codemode.cf_dns$get({zone_id: "..", id: ".."})`:                           "lead out",
		`codemode.cf_dns$get({zone_id: "z", id: "%2e%2e"})`:                        "lead out",
	} {
		if got := valueOf(t, c.code("return await "+code, "", nil)); !strings.HasPrefix(got, "error: ") || !strings.Contains(got, want) {
			t.Errorf("%s\ngot  %s\nwant %s", code, got, want)
		}
	}
	if got := z.requests()[before:]; len(got) > 0 {
		t.Errorf("what is refused reached the API: %q", got)
	}
	// An error of the API is an exception of the code.
	if got := valueOf(t, c.code(`return codemode.request({server: "cf", path: "/zones/broken/dns_records"})`, "", nil)); !strings.Contains(got, "error: HTTP 401") || !strings.Contains(got, "unauthorized") {
		t.Errorf("401: %s", got)
	}
}

// Requests of two users at once are asked about, and answered for, apart.
func TestRequestsOfTwoUsersStayApart(t *testing.T) {
	z := newZones(t)
	p := start(t, z.yaml(""), nil)
	type asked struct {
		who  string
		text string
	}
	var mu sync.Mutex
	var questions []asked
	var wg sync.WaitGroup
	for _, who := range []string{"one", "two"} {
		wg.Go(func() {
			c := p.client(legacy, twoTools, formCaps, nil)
			got := c.code(`return (await codemode.request({server: "cf", method: "DELETE", path: "/zones/z/dns_records/`+who+`"})).path`, "", func(q question) {
				mu.Lock()
				questions = append(questions, asked{who, string(q.Params)})
				mu.Unlock()
				q.reply(yes)
			})
			if v := valueOf(t, got); !strings.HasSuffix(v, who+`"`) {
				t.Errorf("%s got %s", who, v)
			}
		})
	}
	wg.Wait()
	for _, q := range questions {
		other := map[string]string{"one": "two", "two": "one"}[q.who]
		if !strings.Contains(q.text, q.who) || strings.Contains(q.text, `"`+other) {
			t.Errorf("%s was asked %s", q.who, q.text)
		}
	}
	deletes := 0
	for _, r := range z.requests() {
		if strings.HasPrefix(r, "DELETE ") {
			deletes++
		}
	}
	if len(questions) != 2 || deletes != 2 {
		t.Errorf("%d questions, %d requests", len(questions), deletes)
	}
}

// What the document does not have goes through a tool of its own, if the
// administrator adds it, and is judged as that.
func TestAnyRequest(t *testing.T) {
	z := newZones(t)
	p := start(t, z.yaml("    operations: {include: [\"tag:Zone\"], any_request: true}\n    tools: {any_request: {class: read}}\n"), nil)
	c := p.client(modern, twoTools, noCaps, nil)
	if got := valueOf(t, c.code(`return (await codemode.request({path: "/hidden/thing", query: {a: [1, 2]}})).path`, "", nil)); got != `"/client/v4/hidden/thing"` {
		t.Errorf("%s", got)
	}
	if got := z.requests(); len(got) != 1 || got[0] != "GET /client/v4/hidden/thing?a=1&a=2" {
		t.Errorf("%q", got)
	}
	if got := valueOf(t, c.code(`return codemode.request({path: "/hidden/../../x"})`, "", nil)); !strings.Contains(got, "lead out") {
		t.Errorf("%s", got)
	}
	p.reload(z.yaml("    operations: {include: [\"tag:Zone\"], any_request: true}\n"))
	if got := c.code(`return codemode.request({path: "/hidden/thing"})`, "", nil); !strings.Contains(got.Raw, "any_request") || len(z.requests()) != 1 {
		t.Errorf("without a class of its own it is asked about: %s", got.Raw)
	}
}

// 1,533 operations of a real document: search finds the one, code gets an index
// of the document and then what it needs.
func TestALargeRealDocument(t *testing.T) {
	doc := cloudflareDocument(t)
	file := filepath.Join(t.TempDir(), "cloudflare.json")
	if err := os.WriteFile(file, doc, 0o600); err != nil {
		t.Fatal(err)
	}
	z := newZones(t)
	p := start(t, "servers:\n  cf:\n    openapi: "+file+"\n    url: "+z.URL+"/client/v4\n    bearer: zones-token-1234\n", nil)
	c := p.client(modern, twoTools, noCaps, nil)
	if got := c.call("portal_query_tools", `{"query":"list dns records for a zone"}`, "", nil).text(); !strings.Contains(got, "dns-records-for-a-zone-list-dns-records") {
		t.Errorf("search: %.600s", got)
	}
	for code, want := range map[string]string{
		`const s = await codemode.spec("cf"); return [s["x-portal"].view, s["x-portal"].operations, Object.keys(s.paths).length > 900]`: `["index",1533,true]`,
		`const s = await codemode.spec("cf", {paths: "GET /zones/*/dns_records"}); const op = Object.values(s.paths)[0].get;
		 return op.parameters.some(p => p.name === "per_page" && p.schema.default === 100)`: "true",
		`return (await codemode.request({server: "cf", path: "/zones/023e105f4ecef8ad9ca31a8372d0c353/dns_records", query: {per_page: 5}})).map(r => r.id)`: `["r1","r2"]`,
	} {
		if got := valueOf(t, c.code(code, "", nil)); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", code, got, want)
		}
	}
	if got := z.requests(); len(got) != 1 || got[0] != "GET /client/v4/zones/023e105f4ecef8ad9ca31a8372d0c353/dns_records?per_page=5" {
		t.Errorf("the API got %q", got)
	}
}

func cloudflareDocument(t *testing.T) []byte {
	t.Helper()
	packed, err := os.ReadFile(corpora.Path(t, "openapi", "cloudflare-2024-08-06.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}
