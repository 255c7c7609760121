package openapi_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/mcp-portal/mcp-portal/internal/corpora"
	"github.com/mcp-portal/mcp-portal/upstreams/openapi"
)

// document reads one document of the corpus.
func document(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(corpora.Path(t, "openapi", name))
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(name, ".gz") {
		r, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if b, err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// Every real document is read whole: each operation becomes one tool with a
// name of its own and schemas that a validator takes, of a bounded size.
func TestRealDocumentsBecomeTools(t *testing.T) {
	var index []struct {
		File       string `json:"file"`
		Operations int    `json:"operations"`
		Split      string `json:"split"`
	}
	b, err := os.ReadFile(corpora.Path(t, "openapi", "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &index); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range index {
		if _, err := os.Stat(corpora.Path(t, "openapi", e.File)); err != nil {
			continue // the index also lists documents that are held back
		}
		n++
		t.Run(strings.TrimSuffix(filepath.Base(e.File), ".gz"), func(t *testing.T) {
			d, err := openapi.Parse(document(t, e.File), openapi.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if d.Total != e.Operations {
				t.Errorf("%d operations found, the index counts %d", d.Total, e.Operations)
			}
			if left := d.Total - len(d.Operations); left > 0 {
				t.Errorf("%d operations cannot be called: %q", left, d.Warnings)
			}
			tools := d.Tools()
			names := map[string]bool{}
			size, most := 0, 0
			for i, raw := range tools {
				var tool struct {
					Name         string          `json:"name"`
					Description  string          `json:"description"`
					InputSchema  json.RawMessage `json:"inputSchema"`
					OutputSchema json.RawMessage `json:"outputSchema"`
				}
				if err := json.Unmarshal(raw, &tool); err != nil {
					t.Fatalf("tool %d: %v", i, err)
				}
				if names[tool.Name] || tool.Name == "" {
					t.Errorf("the name %q is there twice or empty", tool.Name)
				}
				names[tool.Name] = true
				size += len(raw)
				most = max(most, len(raw))
				if len(raw) > 60_000 {
					t.Errorf("%s has %d bytes", tool.Name, len(raw))
				}
				if i%(1+len(tools)/100) > 0 {
					continue // a hundred of each are enough for the validator
				}
				for what, schema := range map[string]json.RawMessage{"inputSchema": tool.InputSchema, "outputSchema": tool.OutputSchema} {
					if schema == nil {
						continue
					}
					var s jsonschema.Schema
					if err := json.Unmarshal(schema, &s); err != nil {
						t.Errorf("%s: %s: %v", tool.Name, what, err)
						continue
					}
					if _, err := s.Resolve(nil); err != nil && !strings.Contains(err.Error(), "regexp") {
						t.Errorf("%s: %s: %v", tool.Name, what, err)
					}
				}
			}
			t.Logf("%s: %d tools, %d bytes in all, %d the largest; warnings: %d", d.Version, len(tools), size, most, len(d.Warnings))
		})
	}
	if n < 10 {
		t.Fatalf("only %d documents found", n)
	}
}
