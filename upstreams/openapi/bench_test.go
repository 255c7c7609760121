package openapi_test

import (
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/openapi"
)

// The largest document of the corpus: 16,000 operations over a schema that
// reaches almost everything.
func BenchmarkLargestDocument(b *testing.B) {
	data := document(b, "msgraph-v1.json.gz")
	b.ReportAllocs()
	for b.Loop() {
		d, err := openapi.Parse(data, openapi.Options{})
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for _, t := range d.Tools() {
			n += len(t)
		}
		b.ReportMetric(float64(n), "bytes")
		b.ReportMetric(float64(len(d.Operations)), "operations")
	}
}
