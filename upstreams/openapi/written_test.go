package openapi_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/openapi"
)

// What is kept of a schema for other operations is what each would get alone,
// whatever came before: recursion, sizes around the bounds, other parameters.
func TestSharedSchemasAreWrittenAsAlone(t *testing.T) {
	var paths, schemas []string
	long := strings.Repeat("x", 900)
	for i := range 8 { // each leads on to the next, the last back to the first
		schemas = append(schemas, fmt.Sprintf(`"S%d":{"type":"object","properties":{"next":{"$ref":"#/components/schemas/S%d"},"many":{"type":"array","items":{"$ref":"#/components/schemas/S%d"}},"note":{"type":"string","description":%q}}}`, i, (i+1)%8, (i+3)%8, long[:100*(i+1)]))
	}
	for i := range 8 { // small, and back to itself
		schemas = append(schemas, fmt.Sprintf(`"R%d":{"type":"object","properties":{"self":{"$ref":"#/components/schemas/R%d"}}}`, i, i))
	}
	for i := range 8 { // wide, not recursive: some of them do not fit
		var props []string
		for j := range 5 * (i + 1) {
			props = append(props, fmt.Sprintf(`"p%d":{"type":"string","description":%q}`, j, long))
		}
		schemas = append(schemas, fmt.Sprintf(`"W%d":{"type":"object","properties":{%s,"more":{"$ref":"#/components/schemas/W%d"}}}`, i, strings.Join(props, ","), max(0, i-1)))
	}
	for i := range 48 {
		ref := fmt.Sprintf(`{"$ref":"#/components/schemas/%s%d"}`, []string{"S", "W"}[i%2], i/2%8)
		params := ""
		for j := range (i + 2) % 3 * 8 {
			params += fmt.Sprintf(`{"name":"q%d","in":"query","description":%q,"schema":%s},`, j, long, []string{`{"type":"string"}`, fmt.Sprintf(`{"$ref":"#/components/schemas/R%d"}`, (i+j)%8)}[j%2*((i+1)%2)])
		}
		paths = append(paths, fmt.Sprintf(`"/p%d":{"post":{"operationId":"op%d","parameters":[%s],"requestBody":{"content":{"application/json":{"schema":%s}}},"responses":{"200":{"content":{"application/json":{"schema":%s}}}}}}`,
			i, i, strings.TrimSuffix(params, ","), ref, ref))
	}
	doc := []byte(fmt.Sprintf(`{"openapi":"3.1.0","info":{"title":"t","version":"1"},"paths":{%s},"components":{"schemas":{%s}}}`, strings.Join(paths, ","), strings.Join(schemas, ",")))
	all, err := openapi.Parse(doc, openapi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	distinct := map[int]bool{}
	for i, got := range all.Tools() {
		alone, err := openapi.Parse(doc, openapi.Options{Include: []string{fmt.Sprintf("id:op%d", i)}})
		if err != nil {
			t.Fatal(err)
		}
		if want := alone.Tools(); len(want) != 1 || !bytes.Equal(got, want[0]) {
			t.Errorf("op%d beside others:\n%.300s\nalone:\n%.300s", i, got, want)
		}
		distinct[len(got)] = true
	}
	if len(distinct) < 20 {
		t.Errorf("only %d sizes: the document tries too little", len(distinct))
	}
}
