package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/jsonschema-go/jsonschema"
)

// update rewrites the generated files: go test ./config -update. The change is
// then to be read before it is committed.
var update = flag.Bool("update", false, "rewrite generated files and expected errors")

// same compares a file with what it must hold, or writes it.
func same(t *testing.T, path string, want []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the types say; run go test ./config -update and read the difference", path)
	}
}

func TestSchemaFileIsCurrent(t *testing.T) {
	same(t, filepath.Join("..", "deploy", "portal.schema.json"), Schema())
}

func TestDocumentationListsEveryKey(t *testing.T) {
	path := filepath.Join("..", "docs", "configuration.md")
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const marker = "<!-- keys: made from the types by config.Table; a test keeps it true -->\n"
	head, _, ok := strings.Cut(string(doc), marker)
	if !ok {
		t.Fatalf("%s has lost its marker line", path)
	}
	same(t, path, []byte(head+marker+"\n"+Table()))
}

func TestEveryKeyIsDescribed(t *testing.T) {
	for _, f := range Fields() {
		if f.Description == "" {
			t.Errorf("%s has no comment in config.go", f.Path)
		}
	}
	known := map[string]bool{}
	for _, f := range Fields() {
		known[f.Path] = true
	}
	for path := range limits() {
		if !known[path] {
			t.Errorf("limits has %s, which is no key", path)
		}
	}
}

// TestCommentsStateTheDefaults compares the "default x" of the comments of
// config.go with the defaults themselves.
func TestCommentsStateTheDefaults(t *testing.T) {
	for _, f := range Fields() {
		_, after, ok := strings.Cut(f.Description, "default ")
		if !ok || f.Default == "" || strings.Contains(f.Description, `(default)`) {
			continue
		}
		said := strings.Trim(strings.FieldsFunc(after, func(r rune) bool { return strings.ContainsRune(",;()", r) })[0], `"`)
		if have := strings.Trim(strings.ReplaceAll(f.Default, ",", ""), "[]"); !strings.HasPrefix(said, have) && durationOf(said) != durationOf(have) {
			t.Errorf("%s: the comment says default %q, the default is %q", f.Path, said, have)
		}
	}
}

// durationOf writes a duration in one way, and leaves other texts alone.
func durationOf(s string) string {
	if d, err := time.ParseDuration(s); err == nil {
		return d.String()
	}
	return s
}

func schema(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(Schema(), &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// instance decodes YAML as an editor would, for the schema.
func instance(t *testing.T, text []byte) any {
	t.Helper()
	j, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(j, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestSchemaAgreesWithParse gives the schema every good file, which it must
// accept, and a mistake at each level, which it must not.
func TestSchemaAgreesWithParse(t *testing.T) {
	s := schema(t)
	files, _ := filepath.Glob(filepath.Join("testdata", "*.good.yaml"))
	files = append(files, filepath.Join("..", "deploy", "portal.example.yaml"))
	if len(files) < 5 {
		t.Fatalf("only %d good files", len(files))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(instance(t, text)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	for _, text := range []string{
		"authh: {}", "auth: {isuer: x}", "servers: {dns: {url: x, enabledd: true}}", "servers: {dns: {url: x, tools: {a: {clas: read}}}}",
		"servers: {DNS: {url: x}}", "servers: {dns: {}}", "servers: {dns: {url: x, command: [a]}}", "servers: {dns: {url: x, enabled: 'yes'}}",
		"servers: {dns: {url: x, groups: a}}", "servers: {dns: {url: x, call_timeout: 30}}", "guard: {rules: [{}]}", "guard: {rules: [{action: alow}]}",
		"guard: {preset: open-ish}", "catalog: {name_max: 39}", "code: {workers: two}", "store: {redis: a, file: b}", "log: [info]",
		"auth: {service_tokens: [{id: a, hash: md5}]}",
	} {
		if err := s.Validate(instance(t, []byte(text))); err == nil {
			t.Errorf("the schema accepts %s", text)
		}
	}
}

func TestExampleLoads(t *testing.T) {
	path := filepath.Join("..", "deploy", "portal.example.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse(path, text, func(name string) (string, bool) { return "value-of-" + name, true })
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Warnings) > 0 {
		t.Errorf("the example has warnings: %q", c.Warnings)
	}
	// "Complete": every key is there, in use or in a comment.
	for _, f := range Fields() {
		name := f.Path[strings.LastIndex(f.Path, ".")+1:]
		if !strings.Contains(string(text), name+":") {
			t.Errorf("the example does not show %s", f.Path)
		}
	}
}

// TestDocumentedFilesLoad checks the YAML blocks of the documentation.
func TestDocumentedFilesLoad(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "docs", "configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(doc), "```yaml\n")[1:]
	if len(blocks) < 2 {
		t.Fatal("no YAML blocks found")
	}
	for _, b := range blocks {
		text, _, _ := strings.Cut(b, "```")
		if _, err := Parse("portal.yaml", []byte(text), noEnv); err != nil {
			t.Errorf("%s\n%v", text, err)
		}
	}
}

func noEnv(string) (string, bool) { return "", false }
