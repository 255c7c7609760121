package openapi_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/openapi"
)

func parse(t *testing.T, text string, o openapi.Options) *openapi.Document {
	t.Helper()
	d, err := openapi.Parse([]byte(text), o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// tool is the definition that an operation becomes.
func tool(t *testing.T, d *openapi.Document, name string) string {
	t.Helper()
	for _, raw := range d.Tools() {
		var x struct{ Name string }
		if err := json.Unmarshal(raw, &x); err != nil {
			t.Fatal(err)
		}
		if x.Name == name {
			return string(raw)
		}
	}
	t.Fatalf("there is no tool %s", name)
	return ""
}

// Every style of every place, as the specification's examples write them.
func TestStylesOfParameters(t *testing.T) {
	const list, object = `["blue","black","brown"]`, `{"R":100,"G":200,"B":150}`
	for _, c := range []struct{ param, value, want string }{
		{`{name: c, in: path, required: true}`, `"blue"`, "/x/blue"},
		{`{name: c, in: path, required: true}`, list, "/x/blue,black,brown"},
		{`{name: c, in: path, required: true}`, object, "/x/R,100,G,200,B,150"},
		{`{name: c, in: path, required: true, explode: true}`, object, "/x/R=100,G=200,B=150"},
		{`{name: c, in: path, required: true, style: label}`, `"blue"`, "/x/.blue"},
		{`{name: c, in: path, required: true, style: label, explode: true}`, list, "/x/.blue.black.brown"},
		{`{name: c, in: path, required: true, style: label, explode: true}`, object, "/x/.R=100.G=200.B=150"},
		{`{name: c, in: path, required: true, style: matrix}`, list, "/x/;c=blue,black,brown"},
		{`{name: c, in: path, required: true, style: matrix, explode: true}`, list, "/x/;c=blue;c=black;c=brown"},
		{`{name: c, in: path, required: true, style: matrix, explode: true}`, object, "/x/;R=100;G=200;B=150"},
		{`{name: c, in: query}`, `"a b&c"`, "/x/{c}?c=a+b%26c"},
		{`{name: c, in: query}`, list, "/x/{c}?c=blue&c=black&c=brown"},
		{`{name: c, in: query, explode: false}`, list, "/x/{c}?c=blue%2Cblack%2Cbrown"},
		{`{name: c, in: query, style: spaceDelimited, explode: false}`, list, "/x/{c}?c=blue+black+brown"},
		{`{name: c, in: query, style: pipeDelimited, explode: false}`, list, "/x/{c}?c=blue%7Cblack%7Cbrown"},
		{`{name: c, in: query}`, object, "/x/{c}?R=100&G=200&B=150"},
		{`{name: c, in: query, style: deepObject}`, object, "/x/{c}?c%5BR%5D=100&c%5BG%5D=200&c%5BB%5D=150"},
		{`{name: c, in: query, style: deepObject}`, `{"a":[1,2],"b":[{"c":3}]}`, "/x/{c}?c%5Ba%5D%5B%5D=1&c%5Ba%5D%5B%5D=2&c%5Bb%5D%5B0%5D%5Bc%5D=3"},
		{`{name: c, in: query, content: {application/json: {schema: {}}}}`, object, "/x/{c}?c=" + url.QueryEscape(object)},
		{`{name: c, in: query}`, `9007199254740993`, "/x/{c}?c=9007199254740993"},
		{`{name: c, in: query}`, `null`, "/x/{c}"},
		{`{name: c, in: header}`, list, "/x/{c} C: blue,black,brown"},
		{`{name: c, in: cookie}`, `"a b"`, "/x/{c} Cookie: c=a%20b"},
	} {
		path := "/x/{c}"
		if !strings.Contains(c.param, "in: path") {
			path = "/x/~c~"
		}
		d := parse(t, "openapi: 3.0.0\npaths:\n  "+path+":\n    get: {operationId: go, parameters: ["+c.param+"]}\n", openapi.Options{})
		_, r, err := d.Call("go", json.RawMessage(`{"c":`+c.value+`}`))
		if err != nil {
			t.Errorf("%s %s: %v", c.param, c.value, err)
			continue
		}
		got := strings.Replace(r.Path, "~c~", "{c}", 1)
		if r.Query != "" {
			got += "?" + r.Query
		}
		for k, v := range r.Header {
			got += " " + k + ": " + v[0]
		}
		if got != c.want {
			t.Errorf("%s %s:\ngot  %s\nwant %s", c.param, c.value, got, c.want)
		}
	}
}

func TestBodies(t *testing.T) {
	for _, c := range []struct{ content, value, kind, want string }{
		{`application/json: {}`, `{"a": 1.50}`, "application/json", `{"a": 1.50}`},
		{`text/plain: {}, application/merge-patch+json: {}`, `[1]`, "application/merge-patch+json", `[1]`},
		{`application/x-www-form-urlencoded: {}`, `{"a":"x y","b":[1,2],"c":null,"d":{"e":true}}`, "application/x-www-form-urlencoded", `a=x+y&b=1&b=2&d%5Be%5D=true`},
		{`application/x-www-form-urlencoded: {encoding: {b: {style: deepObject}}}`, `{"b":["x"]}`, "application/x-www-form-urlencoded", `b%5B%5D=x`},
		{`application/xml: {schema: {type: object}}`, `"<a b=\"1\">é</a>"`, "application/xml", `<a b="1">é</a>`},
		{`application/xml: {}, application/json: {}`, `{"a":1}`, "application/json", `{"a":1}`},
		{`text/csv: {}`, `"a,b\n"`, "text/csv", "a,b\n"},
		{`application/octet-stream: {}`, `"AAEC"`, "application/octet-stream", "\x00\x01\x02"},
	} {
		d := parse(t, "openapi: 3.0.0\npaths:\n  /x:\n    post: {operationId: go, requestBody: {content: {"+c.content+"}}}\n", openapi.Options{})
		_, r, err := d.Call("go", json.RawMessage(`{"body":`+c.value+`}`))
		if err != nil || r.Header.Get("Content-Type") != c.kind || string(r.Body) != c.want {
			t.Errorf("%s %s: %+v %v", c.content, c.value, r, err)
		}
	}
	d := parse(t, "openapi: 3.0.0\npaths:\n  /x:\n    post: {operationId: go, requestBody: {content: {multipart/form-data: {schema: {type: object, properties: {file: {type: string, format: binary}}}}}}}\n", openapi.Options{})
	_, r, err := d.Call("go", json.RawMessage(`{"body":{"note":"hi","meta":{"a":1},"file":{"filename":"a\".png","content_type":"image/png","base64":"AAEC"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequest(http.MethodPost, "http://x/", strings.NewReader(string(r.Body)))
	req.Header = r.Header
	if err := req.ParseMultipartForm(1 << 20); err != nil {
		t.Fatal(err)
	}
	f := req.MultipartForm.File["file"]
	if req.FormValue("note") != "hi" || req.FormValue("meta") != `{"a":1}` || len(f) != 1 || f[0].Filename != `a".png` || f[0].Size != 3 || f[0].Header.Get("Content-Type") != "image/png" {
		t.Errorf("%+v", req.MultipartForm)
	}
}

// XML is text in both directions: nothing is made of it, and an object in its
// place is refused with what to write.
func TestXMLIsText(t *testing.T) {
	d := parse(t, "openapi: 3.0.0\npaths:\n  /x:\n    post: {operationId: go, requestBody: {content: {application/xml: {schema: {type: object, properties: {a: {type: string}}}}}}}\n", openapi.Options{})
	op, _, err := d.Call("go", json.RawMessage(`{"body":{"a":"1"}}`))
	if err == nil || !strings.Contains(err.Error(), "application/xml") || !strings.Contains(err.Error(), "write the document itself") {
		t.Errorf("an object as XML: %v", err)
	}
	if op, _, err = d.Call("go", json.RawMessage(`{"body":"<a>1</a>"}`)); err != nil {
		t.Fatal(err)
	}
	for _, media := range []string{"application/xml", "text/xml; charset=utf-8", "application/atom+xml", "image/svg+xml"} {
		got := string(op.Result(openapi.Answer{Status: 200, Header: http.Header{"Content-Type": {media}}, Body: []byte("<a>é</a>")}))
		if !strings.Contains(got, `"type":"text"`) || !strings.Contains(got, "é") || strings.Contains(got, "blob") {
			t.Errorf("%s: %s", media, got)
		}
	}
}

// Names are the operationIds as tools write them; operations that would share a
// name have longer ones, whatever their order.
func TestNamesOfOperations(t *testing.T) {
	one := "  /a/{x}:\n    get: {operationId: repos/get}\n"
	two := "  /b:\n    get: {operationId: repos.get}\n    post: {}\n"
	three := "  /c-d:\n    get: {}\n  /c.d:\n    get: {}\n  /e:\n    get: {operationId: 列表}\n    put: {operationId: get_a_x}\n"
	names := func(text string) map[string]string {
		out := map[string]string{}
		for _, op := range parse(t, "openapi: 3.0.0\npaths:\n"+text, openapi.Options{}).Operations {
			out[op.Method+" "+op.Path] = op.Name
		}
		return out
	}
	got := names(one + two + three)
	for path, want := range map[string]string{"GET /b": "get_b", "POST /b": "post_b", "GET /e": "get_e", "PUT /e": "get_a_x", "GET /c-d": "get_c-d", "GET /c.d": "get_c_d"} {
		if got[path] != want {
			t.Errorf("%s is %q, want %q", path, got[path], want)
		}
	}
	if !strings.HasPrefix(got["GET /a/{x}"], "get_a_x_") {
		t.Errorf("GET /a/{x} is %q: another operation has its longer name", got["GET /a/{x}"])
	}
	for path, name := range names(three + two + one) {
		if got[path] != name {
			t.Errorf("%s is %q in one order and %q in another", path, got[path], name)
		}
	}
}

// Cycles become $defs; references that lead nowhere, to themselves or
// elsewhere leave their place open; nullable and exclusive bounds are written
// as JSON Schema has them.
func TestSchemasOfTools(t *testing.T) {
	d := parse(t, `
openapi: 3.0.3
paths:
  /x~y:
    parameters: [{$ref: "#/components/parameters/page"}]
    post:
      operationId: go
      requestBody: {content: {application/json: {schema: {$ref: "#/components/schemas/Node"}}}}
      responses: {"200": {content: {application/json: {schema: {type: object, properties: {n: {$ref: "#/components/schemas/Node"}}, required: [n]}}}}}
  /lost:
    get: {operationId: lost, parameters: [{name: a, in: query, schema: {$ref: "#/components/schemas/Nobody"}}, {name: b, in: query, schema: {$ref: "other.yaml#/X"}}, {name: c, in: query, schema: {$ref: "#/components/schemas/Loop"}}]}
components:
  parameters:
    page: {name: page, in: query, schema: {type: integer, minimum: 1, exclusiveMinimum: true}}
  schemas:
    Loop: {$ref: "#/components/schemas/Loop"}
    Node:
      type: object
      required: [id, name]
      properties:
        id: {type: string, readOnly: true}
        name: {type: string, nullable: true, enum: [a, b]}
        when: {$ref: "#/components/schemas/a~1b%20c"}
        children: {type: array, items: {$ref: "#/components/schemas/Node"}}
    a/b c: {type: string, format: date, nullable: true}
`, openapi.Options{})
	got := tool(t, d, "go")
	for _, want := range []string{
		`"page":{"type":"integer","exclusiveMinimum":1}`,
		`"required":["name"]`, `"name":{"type":["string","null"],"enum":["a","b",null]}`,
		`"when":{"type":["string","null"],"format":"date"}`,
		`"children":{"type":"array","items":{"$ref":"#/$defs/Node"}}`, `"$defs":{"Node":{"type":"object"`,
		`"annotations":{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":false,"openWorldHint":true}`,
		`(POST /x~y)`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nis not in %s", want, got)
		}
	}
	if strings.Contains(got, `"id":{`) && !strings.Contains(got, `"outputSchema"`) {
		t.Errorf("a field that is only read is an argument: %s", got)
	}
	if lost := tool(t, d, "lost"); !strings.Contains(lost, `"properties":{"a":{},"b":{},"c":{`) {
		t.Errorf("lost references: %s", lost)
	}
}

// Swagger 2 is read as it is.
func TestSwagger2(t *testing.T) {
	d := parse(t, `
swagger: "2.0"
host: api.example.com
basePath: /v1
schemes: [http, https]
consumes: [application/json]
paths:
  /pets/{id}:
    get:
      operationId: getPet
      parameters: [{name: id, in: path, required: true, type: integer}, {name: tags, in: query, type: array, items: {type: string}, collectionFormat: multi}, {name: f, in: query, type: array, items: {type: string}}]
    put:
      operationId: putPet
      parameters: [{name: id, in: path, required: true, type: integer}, {name: pet, in: body, required: true, schema: {$ref: "#/definitions/Pet"}}]
    post:
      operationId: upload
      consumes: [multipart/form-data]
      parameters: [{name: id, in: path, required: true, type: integer}, {name: photo, in: formData, type: file, required: true}]
definitions:
  Pet: {type: object, properties: {name: {type: string}}}
`, openapi.Options{})
	if got := d.Base(nil).String(); got != "https://api.example.com/v1" {
		t.Errorf("base %s", got)
	}
	_, r, err := d.Call("getPet", json.RawMessage(`{"id":7,"tags":["a","b"],"f":["c","d"]}`))
	if err != nil || r.Path != "/pets/7" || r.Query != "tags=a&tags=b&f=c%2Cd" {
		t.Errorf("%+v %v", r, err)
	}
	if got := tool(t, d, "putPet"); !strings.Contains(got, `"body":{"type":"object","properties":{"name":{"type":"string"}}}`) || !strings.Contains(got, `"required":["id","body"]`) {
		t.Errorf("%s", got)
	}
	if got := tool(t, d, "upload"); !strings.Contains(got, `"photo":{"type":"object","description":"a file`) {
		t.Errorf("%s", got)
	}
}

// What a document says that could lead elsewhere makes its operation useless,
// and only it.
func TestPathsThatLeadElsewhere(t *testing.T) {
	for _, path := range []string{"//evil.com/x", "@evil.com/x", "evil", "/a/../../b", "/%2e%2e/b", "/a/%252e%252e/b", `/a\\..\\b`, "/a{b", "/{}", "/a\\tb"} {
		d := parse(t, `{"openapi":"3.0.0","paths":{"/ok":{"get":{}},"`+path+`":{"get":{}}}}`, openapi.Options{})
		if len(d.Operations) != 1 || len(d.Warnings) != 1 {
			t.Errorf("%s: %d operations, warnings %q", path, len(d.Operations), d.Warnings)
		}
	}
}

func TestDocumentsThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "empty",
		"<!doctype html>":                       "web page",
		"{}":                                    `neither "openapi" nor "swagger"`,
		"openapi: 4.0.0":                        "is not read",
		"swagger: '1.2'":                        "is not read",
		"- a":                                   "no mapping",
		"a: [":                                  "neither JSON nor YAML",
		"openapi: 3.0.0":                        "no operation",
		"openapi: 3.1.0\npaths: {x: {get: {}}}": "does not begin with one slash",
		"a: &a [x, x]\nb: &b [*a, *a]\n{":       "neither JSON nor YAML",
		"openapi: 3.0.0\npaths: {/a: {get: true}}": "no operation",
	} {
		if _, err := openapi.Parse([]byte(text), openapi.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	// Merge keys that lead to themselves end.
	for _, text := range []string{"openapi: 3.0.0\nx:\n  <<: &s [*s, *s]\n", "openapi: 3.0.0\nx: &a\n  <<: [*a, *a]\n"} {
		if _, err := openapi.Parse([]byte(text), openapi.Options{}); err == nil {
			t.Errorf("%q is read", text)
		}
	}
	// Aliases that unfold to more than anybody can read.
	bomb := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 12; i++ {
		a := "*a" + string(rune('0'+(i-1)%10))
		bomb += "a" + string(rune('0'+i%10)) + string(rune('a'+i/10)) + ": &a" + string(rune('0'+i%10)) + " [" + strings.Repeat(a+",", 10) + "]\n"
	}
	if _, err := openapi.Parse([]byte("openapi: 3.0.0\n"+bomb), openapi.Options{}); err == nil {
		t.Error("an alias bomb is read")
	}
}

// Hints of the document only tighten, unless it is trusted.
func TestHintsOfOperations(t *testing.T) {
	text := `{"openapi":"3.0.0","paths":{"/x":{"post":{"operationId":"search","x-mcp":{"readOnlyHint":true}},"get":{"operationId":"pop","x-mcp":{"readOnlyHint":false}},"delete":{"operationId":"off","x-mcp":false}}}}`
	careful, trusting := parse(t, text, openapi.Options{}), parse(t, text, openapi.Options{Trust: true})
	for _, c := range []struct {
		d    *openapi.Document
		name string
		want string
	}{
		{careful, "search", `"readOnlyHint":false`}, {trusting, "search", `"readOnlyHint":true`},
		{careful, "pop", `"readOnlyHint":false`}, {trusting, "pop", `"readOnlyHint":false`},
	} {
		if got := tool(t, c.d, c.name); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", c.name, got)
		}
	}
	if careful.Operation("off") != nil {
		t.Error("x-mcp: false is offered")
	}
}

// Generators demand bodies of which the document says nothing; a DELETE goes
// without.
func TestBodiesThatNobodyDescribes(t *testing.T) {
	d := parse(t, `{"openapi":"3.0.0","paths":{"/x":{
		"delete":{"operationId":"off","requestBody":{"required":true,"content":{"application/json":{}}}},
		"patch":{"operationId":"change","requestBody":{"required":true,"content":{"application/json":{}}}}}}}`, openapi.Options{})
	if _, r, err := d.Call("off", json.RawMessage(`{}`)); err != nil || r.Body != nil {
		t.Errorf("%+v %v", r, err)
	}
	if _, _, err := d.Call("change", json.RawMessage(`{}`)); err == nil {
		t.Error("a PATCH goes without its body")
	}
}

// A request is the operation whose template fits best; what could not be sent
// is refused, and other paths have neighbours.
func TestRequestsFindTheirOperation(t *testing.T) {
	d := parse(t, `
openapi: 3.0.0
paths:
  /zones/{zone_id}: {get: {operationId: zone}}
  /zones/mine: {get: {operationId: mine}}
  /zones/{zone_id}/dns_records: {get: {operationId: records}, post: {operationId: add, requestBody: {required: true, content: {application/json: {schema: {type: object}}}}}}
  /files/{name}.{ext}: {get: {operationId: file}}
`, openapi.Options{})
	for _, c := range []struct{ method, path, want string }{
		{"GET", "/zones/mine", `mine {}`}, {"get", "/zones/a%2Fb", `zone {"zone_id":"a/b"}`}, {"", "/v4/zones/1", `zone {"zone_id":"1"}`},
		{"GET", "/files/a.tar.gz", `file {"name":"a","ext":"tar.gz"}`},
		{"POST", "/zones/1/dns_records", "error body is missing; it takes zone_id, body"}, {"GET", "/zone/1/dnsRecord", "near GET /zones/{zone_id}/dns_records"},
	} {
		op, args, err := d.Resolve(openapi.Target{Method: c.method, Path: c.path}, "/v4")
		got := ""
		var unknown *openapi.Unknown
		switch {
		case errors.As(err, &unknown):
			near := d.Nearest(unknown.Method, unknown.Path, 1, func(*openapi.Operation) bool { return true })
			got = "near"
			for _, op := range near {
				got += " " + op.Method + " " + op.Path
			}
		case err != nil:
			got = "error " + err.Error()
		default:
			got = op.ID + " " + string(args)
		}
		if got != c.want {
			t.Errorf("%s %s: %s, want %s", c.method, c.path, got, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("openapi: 3.0.0\npaths: {/a/{b}: {get: {parameters: [{name: b, in: path}]}}}"), `{"b":"x"}`)
	f.Add([]byte(`{"swagger":"2.0","paths":{"/a":{"post":{"parameters":[{"in":"body","schema":{"$ref":"#/definitions/A"}}]}}},"definitions":{"A":{"items":{"$ref":"#/definitions/A"}}}}`), `{"body":1}`)
	base := &url.URL{Scheme: "https", Host: "api.example.com", Path: "/v1"}
	f.Fuzz(func(t *testing.T, doc []byte, args string) {
		d, err := openapi.Parse(doc, openapi.Options{})
		if err != nil {
			return
		}
		for _, raw := range d.Tools() {
			if !json.Valid(raw) {
				t.Fatalf("a tool is no JSON: %s", raw)
			}
		}
		for _, op := range d.Operations {
			if r, err := op.Request(json.RawMessage(args)); err == nil {
				u := r.URL(base)
				again, err := url.Parse(u.String())
				if err != nil || again.Host != base.Host || again.Scheme != base.Scheme || !strings.HasPrefix(again.Path, "/v1/") || strings.Contains(again.Path+"/", "/../") {
					t.Fatalf("%s %s leads to %s", op.Method, args, u)
				}
			}
		}
	})
}
