package codemode

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
)

// specHost answers codemode.spec with a document.
func specHost(doc string) *fakeHost {
	return &fakeHost{query: func(_ context.Context, name string, _ json.RawMessage) (json.RawMessage, error) {
		if name != "spec" {
			return nil, fmt.Errorf("codemode.%s was asked", name)
		}
		return json.RawMessage(doc), nil
	}}
}

const cyclicDocument = `{"openapi":"3.0.0","x-portal":{"view":"all","cut":false},
 "paths":{"/a~b":{"get":{"summary":"first","parameters":[{"$ref":"#/components/parameters/p"},{"$ref":"#/components/parameters/none"}],
   "responses":{"200":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/A"},"example":{"$ref":"#/components/schemas/A"}}}},
                "404":{"$ref":"#/components/responses/lost"},"500":{"$ref":"other.yaml#/x"}}},
  "post":{"requestBody":{"content":{"application/json":{"schema":{"type":"object","properties":{"one":{"$ref":"#/components/schemas/S"},"two":{"$ref":"#/components/schemas/S","description":"mine"},"example":{"$ref":"#/components/schemas/S"}}}}}}}}},
 "components":{"parameters":{"p":{"name":"p","in":"query"}},
  "schemas":{"A":{"type":"object","properties":{"b":{"$ref":"#/components/schemas/B"},"t":{"$ref":"#/components/schemas/x~1y%20z"}}},
             "B":{"type":"object","properties":{"a":{"$ref":"#/components/schemas/A"}}},
             "S":{"type":"string","enum":["s"]},"x/y z":{"type":"integer"},"Loop":{"$ref":"#/components/schemas/Loop"}}}}`

// References of a document are replaced where a script looks.
func TestReferencesOfSpecs(t *testing.T) {
	p := testPool(t, nil)
	h := specHost(cyclicDocument)
	schema := `const s = await codemode.spec("api"); const get = s.paths["/a~b"].get, A = get.responses["200"].content["application/json"].schema; `
	for code, want := range map[string]string{
		`return Object.entries(s.paths).map(([p, i]) => [p, Object.keys(i)])`: `[["/a~b",["get","post"]]]`,
		`return get.summary`: `"first"`,
		// encoded names, elsewhere, nowhere, around
		`return A.properties.t.type`:                                          `"integer"`,
		`return get.responses["500"]`:                                         `{"$ref":"other.yaml#/x"}`,
		`return [get.responses["404"] === undefined, get.parameters]`:         `[true,[{"name":"p","in":"query"},null]]`,
		`return A.properties.b.properties.a`:                                  `{"$circular":"#/components/schemas/A"}`,
		`return s.components.schemas.Loop`:                                    `{"$circular":"#/components/schemas/Loop"}`,
		`return JSON.parse(JSON.stringify(A))`:                                `{"type":"object","properties":{"b":{"type":"object","properties":{"a":{"$circular":"#/components/schemas/A"}}},"t":{"type":"integer"}}}`,
		`return s.components.schemas.B.properties.a.properties.b`:             `{"type":"object","properties":{"a":{"$circular":"#/components/schemas/A"}}}`,
		`void s.components.schemas.B.properties.a.properties.b; return A`:     `{"type":"object","properties":{"b":{"type":"object","properties":{"a":{"$circular":"#/components/schemas/A"}}},"t":{"type":"integer"}}}`,
		`return s.paths["/a~b"].post.requestBody.content["application/json"]`: `{"schema":{"type":"object","properties":{"one":{"type":"string","enum":["s"]},"two":{"type":"string","enum":["s"],"description":"mine"},"example":{"type":"string","enum":["s"]}}}}`,
		`return get.responses["200"].content["application/json"].example`:     `{"$ref":"#/components/schemas/A"}`,
		`A.properties.t.type = "changed"; delete A.properties.b; return [s.components.schemas.A.properties.t.type, (await codemode.spec("api")).components.schemas.A.properties.t.type, Object.keys(s.components.schemas.A.properties)]`: `["integer","integer",["b","t"]]`,
	} {
		t.Run(code, func(t *testing.T) { wantValue(t, run(t, p, h, schema+code), want) })
	}
	if o := run(t, p, h, `return codemode.spec("api").paths`); o.Error == nil || !strings.Contains(o.Error.Message, "await") {
		t.Errorf("a promise taken for a document: %+v", o)
	}
}

// A document is asked for once in a run, whatever the script does.
func TestASpecIsAskedForOnce(t *testing.T) {
	p := testPool(t, nil)
	asked := 0
	h := &fakeHost{query: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
		asked++
		return json.RawMessage(cyclicDocument), nil
	}}
	o := run(t, p, h, `for (let i = 0; i < 20; i++) await codemode.spec("api", {tags: ["x"]}); return (await codemode.spec("api")).openapi`)
	wantValue(t, o, `"3.0.0"`)
	if asked != 2 {
		t.Errorf("asked %d times, want 2", asked)
	}
}

// 2,000 operations over one schema of 200 properties are looked through within
// the limits of a run; writing out a document whose schemas all reach each other
// ends, too.
func TestLargeSpecs(t *testing.T) {
	p := testPool(t, func(c *config.Code) { c.WallTime, c.CPUTime = 10*time.Minute, time.Minute })
	var paths, props, knot []string
	for i := range 2000 {
		paths = append(paths, fmt.Sprintf(`"/p%d":{"get":{"summary":"op %d","responses":{"200":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/Big"}}}}}}}`, i, i))
	}
	for i := range 200 {
		props = append(props, fmt.Sprintf(`"f%d":{"type":"string","description":"field %d"}`, i, i))
	}
	doc := `{"openapi":"3.0.0","paths":{` + strings.Join(paths, ",") + `},"components":{"schemas":{"Big":{"type":"object","properties":{` + strings.Join(props, ",") + `}}}}}`
	o := run(t, p, specHost(doc), `const s = await codemode.spec("api");
		const hits = Object.entries(s.paths).filter(([, i]) => /op 199\d/.test(i.get.summary) && i.get.responses["200"].content["application/json"].schema.properties.f7);
		return hits.length`)
	wantValue(t, o, "10")
	for i := range 12 {
		var all []string
		for j := range 12 {
			all = append(all, fmt.Sprintf(`"s%d":{"$ref":"#/components/schemas/S%d"}`, j, j))
		}
		knot = append(knot, fmt.Sprintf(`"S%d":{"properties":{%s}}`, i, strings.Join(all, ",")))
	}
	o = run(t, p, specHost(`{"openapi":"3.0.0","paths":{},"components":{"schemas":{`+strings.Join(knot, ",")+`}}}`), `const s = await codemode.spec("api"); let n = 0;
		const walk = v => { if (v && typeof v === "object") { n++; for (const k of Object.keys(v)) walk(v[k]); } };
		walk(s.components.schemas.S0); return n > 1000`)
	wantValue(t, o, "true")
}

// The index of a large document says where the rest is.
func TestAnIndexSaysWhatItLacks(t *testing.T) {
	p := testPool(t, nil)
	h := specHost(`{"openapi":"3.0.0","paths":{"/a":{"get":{"summary":"x","x-tool":"api_a"}}},"x-portal":{"view":"index","cut":false}}`)
	wantError(t, run(t, p, h, `return (await codemode.spec("api")).paths["/a"].get.parameters`), "exception", "codemode.spec(server, {paths")
	wantValue(t, run(t, p, h, `return (await codemode.spec("api")).paths`), `{"/a":{"get":{"summary":"x","x-tool":"api_a"}}}`)
}

// codemode.request is the call of a tool: same budget, same list of calls, same
// errors, the same again when a run goes on from its recording.
func TestRequestsAreCallsOfTools(t *testing.T) {
	p := testPool(t, nil)
	h := &fakeHost{
		query: func(_ context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
			if strings.Contains(string(args), "nowhere") {
				return nil, &HostError{Code: "unknown_operation", Message: "api has no operation GET /nowhere for you. Near: GET /items."}
			}
			return json.RawMessage(`{"tool":"api_get","request":"GET /items/{id}","arguments":{"id":"7"}}`), nil
		},
		call: func(_ context.Context, c HostCall) (json.RawMessage, error) {
			if string(c.Arguments) != `{"id":"7"}` {
				return nil, fmt.Errorf("arguments %s", c.Arguments)
			}
			return json.RawMessage(`{"content":[{"type":"text","text":"unauthorized"}],"structuredContent":{"status":401},"isError":` + fmt.Sprint(c.Seq > 1) + `}`), nil
		},
	}
	o := run(t, p, h, `const a = await codemode.request({server: "api", path: "/items/7"});
		let e; try { await codemode.request({server: "api", path: "/items/7"}) } catch (x) { e = x }
		let f; try { await codemode.request({path: "/nowhere"}) } catch (x) { f = x }
		return [a, e.message.includes("unauthorized"), e.data, f.message.includes("Near: GET /items")]`, tools("api_get")...)
	wantValue(t, o, `[{"status":401},true,{"status":401},true]`)
	if len(o.Calls) != 2 || o.Calls[0].Tool != "api_get" || o.Calls[1].Status != "error" {
		t.Errorf("calls %+v", o.Calls)
	}
	wantError(t, run(t, p, h, "await codemode.request({path: '/items/7'});\n  await codemode.request({path: '/items/7'});", tools("api_get")...), "exception", "unauthorized")
	wantError(t, run(t, p, h, `return codemode.request({path: "/items/7"}).status`, tools("api_get")...), "exception", "await")

	j := newJournal(nil)
	code := `const all = await Promise.all([1, 2, 3].map(() => codemode.request({path: "/items/7"}).catch(e => e.name))); const s = await codemode.request({path: "/items/7"}).catch(e => "late"); return [all, s]`
	first, err := p.Run(context.Background(), Request{ID: "r", Owner: "u", Code: code, Tools: tools("api_get"), Journal: j, Seed: 1, Start: 1}, h)
	if err != nil {
		t.Fatal(err)
	}
	silent := &fakeHost{query: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
		return nil, fmt.Errorf("asked again")
	}}
	again, err := p.Run(context.Background(), Request{ID: "r2", Owner: "u", Code: code, Tools: tools("api_get"), Replay: &Recording{Version: Version(), Seed: 1, Start: 1, Events: throughStore(t, j.all())}}, silent)
	if err != nil {
		t.Fatal(err)
	}
	if first.Error != nil || string(first.Value) != string(again.Value) || len(silent.calls()) > 0 {
		t.Errorf("first %s %+v, again %s %+v", first.Value, first.Error, again.Value, again.Error)
	}
}

// Pages of an HTTP API whose next one only a header knows.
func TestPaginateFollowsHeaders(t *testing.T) {
	p := testPool(t, nil)
	for name, header := range map[string]func(page, last int) string{
		"link": func(page, last int) string {
			if page < last {
				return fmt.Sprintf(`"link":"<https://api/items?page=%d&per_page=2>; rel=\"next\", <https://api/items?page=4>; rel=\"last\""`, page+1)
			}
			return `"link":"<https://api/items?page=1>; rel=\"first\""`
		},
		"next page": func(page, last int) string {
			if page < last {
				return fmt.Sprintf(`"x-next-page":"%d"`, page+1)
			}
			return `"x-next-page":""`
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			h := &fakeHost{
				query: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
					return json.RawMessage(`{"inputSchema":{"properties":{"page":{"type":"integer"}}}}`), nil
				},
				call: func(_ context.Context, c HostCall) (json.RawMessage, error) {
					got = append(got, string(c.Arguments))
					var a struct{ Page int }
					_ = json.Unmarshal(c.Arguments, &a)
					a.Page = max(a.Page, 1)
					return json.RawMessage(fmt.Sprintf(`{"content":[{"type":"text","text":"[%d,%d]"}],"_meta":{"mcp-portal/http":{"status":200,%s}}}`, 2*a.Page-1, 2*a.Page, header(a.Page, 4))), nil
				},
			}
			wantValue(t, run(t, p, h, `return codemode.paginate("api_list", {})`, tools("api_list")...), "[1,2,3,4,5,6,7,8]")
			if len(got) != 4 || got[3] != `{"page":4}` {
				t.Errorf("calls %q", got)
			}
		})
	}
}
