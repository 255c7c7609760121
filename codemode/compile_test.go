package codemode

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/internal/corpora"
)

// corpusTool is a tool definition of the shared corpora.
type corpusTool struct {
	Name, Description         string
	InputSchema, OutputSchema json.RawMessage
}

// corpusTools are all tool lists of the shared corpora, by server.
func corpusTools(t *testing.T) map[string][]corpusTool {
	t.Helper()
	out := map[string][]corpusTool{}
	read := func(path string, into any) {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var r io.Reader = f
		if strings.HasSuffix(path, ".gz") {
			if r, err = gzip.NewReader(f); err != nil {
				t.Fatal(err)
			}
		}
		if err := json.NewDecoder(r).Decode(into); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	files, err := filepath.Glob(corpora.Path(t, "mcp-tools", "*", "tools-list.json"))
	if err != nil || len(files) < 30 {
		t.Fatalf("%d tool lists, %v", len(files), err)
	}
	for _, f := range files {
		var list struct{ Tools []corpusTool }
		read(f, &list)
		out["real/"+filepath.Base(filepath.Dir(f))] = list.Tools
	}
	var large []struct {
		Server string
		Tools  []corpusTool
	}
	read(corpora.Path(t, "mcp-catalogue-large", "smithery-2025-10.json.gz"), &large)
	for i, s := range large {
		out[fmt.Sprintf("large/%d %s", i, s.Server)] = s.Tools
	}
	return out
}

// compile runs the TypeScript compiler over the files of a folder.
func compile(t *testing.T, dir string) string {
	t.Helper()
	npm, err := filepath.Abs(filepath.Join("..", "e2e", "npm", "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	config := `{"compilerOptions":{"strict":true,"noEmit":true,"skipLibCheck":false,"target":"es2022","module":"es2022","moduleDetection":"force","types":[],"lib":["es2022"]},"include":["*.ts"]}`
	if err := os.WriteFile(filepath.Join(dir, "tsconfig.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(npm, "node", "bin", "node"), filepath.Join(npm, "typescript", "bin", "tsc"), "-p", dir, "--pretty", "false").CombinedOutput()
	if err == nil {
		return ""
	}
	if len(out) == 0 {
		t.Fatalf("the TypeScript compiler did not run (hack/setup installs it): %v", err)
	}
	return string(out)
}

// Every declaration of every tool of the corpora compiles, in strict mode, and
// so does its type when it is used.
func TestDeclarationsCompile(t *testing.T) {
	dir := t.TempDir()
	n, file := 0, 0
	for server, tools := range corpusTools(t) {
		var b strings.Builder
		used := map[string]bool{}
		fmt.Fprintf(&b, "// %s\n", strings.NewReplacer("\n", " ", "\r", " ").Replace(server))
		for _, tool := range tools {
			id := typeName(tool.Name)
			for i := 2; used[id]; i++ {
				id = fmt.Sprintf("%s%d", typeName(tool.Name), i)
			}
			used[id] = true
			d := Declare(id, tool.Description, tool.InputSchema, tool.OutputSchema)
			if len(tool.InputSchema) > 2 && strings.Contains(d, "(args?: unknown)") {
				t.Errorf("%s %s: the arguments are unknown", server, tool.Name)
			}
			b.WriteString(d)
			fmt.Fprintf(&b, "export type U%d = { call: { %s }[\"%s\"] };\n", n, signature(id, tool.InputSchema, tool.OutputSchema), id)
			n++
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%d.ts", file)), []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		file++
	}
	if n < 10_000 {
		t.Errorf("only %d tools found", n)
	}
	if out := compile(t, dir); out != "" {
		lines := strings.Split(out, "\n")
		t.Errorf("%d complaints of the compiler, the first:\n%s", len(lines), strings.Join(lines[:min(len(lines), 20)], "\n"))
	}
}

// The types mean what the schemas say: what is right compiles, what is wrong
// does not. Each @ts-expect-error that is not needed is an error itself.
func TestDeclarationsMeanTheSchema(t *testing.T) {
	var b strings.Builder
	for name, schema := range map[string]string{
		"lists":  `{"type":"object","required":["a"],"properties":{"a":{"type":"array","items":{"type":["string","number"]}},"e":{"type":"array","items":{"enum":["x","y"]}},"n":{"type":"array","items":{"type":"string","nullable":true}}}}`,
		"tuple":  `{"type":"object","properties":{"t":{"type":"array","prefixItems":[{"type":"string"},{"type":"integer"}],"items":false}}}`,
		"typed":  `{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":{"type":"number"}}`,
		"both":   `{"type":"object","required":["id"],"properties":{"id":{"type":"string"}},"anyOf":[{"properties":{"x":{"type":"number"}},"required":["x"]},{"properties":{"y":{"type":"number"}},"required":["y"]}]}`,
		"tree":   `{"type":"object","required":["root"],"properties":{"root":{"$ref":"#/$defs/Node"}},"$defs":{"Node":{"type":"object","required":["value"],"properties":{"value":{"type":"string","description":"what the node says"},"children":{"type":"array","items":{"$ref":"#/$defs/Node"}}}}}}`,
		"mutual": `{"type":"object","properties":{"a":{"$ref":"#/$defs/A"}},"$defs":{"A":{"type":"object","description":"a thing that leads to the other kind of thing","properties":{"b":{"$ref":"#/$defs/B"},"n":{"type":"number"}}},"B":{"type":"object","description":"a thing that leads back to the first kind","properties":{"a":{"$ref":"#/$defs/A"},"s":{"type":"string"}}}}}`,
		"nested": `{"allOf":[{"type":"object","required":["a"],"properties":{"a":{"type":"string"}}},{"anyOf":[{"type":"object","required":["b"],"properties":{"b":{"type":"string"}}},{"type":"object","required":["c"],"properties":{"c":{"type":"string"}}}]}]}`,
		"closed": `{"type":"object","properties":{},"additionalProperties":false}`,
	} {
		b.WriteString(Declare(name, "d", json.RawMessage(schema), json.RawMessage(`{"type":"object","required":["ok"],"properties":{"ok":{"type":"boolean"}}}`)))
	}
	b.WriteString(`
const r: Promise<{ ok: boolean }> = lists({ a: ["x", 1], e: ["x"], n: ["s", null] });
// @ts-expect-error a list of booleans
lists({ a: [true] });
// @ts-expect-error not one of the values
lists({ a: [], e: ["z"] });
// @ts-expect-error a is required
lists({});
tuple({ t: ["a", 1] });
// @ts-expect-error the wrong way round
tuple({ t: [1, "a"] });
tuple();
both({ id: "1", x: 1 });
// @ts-expect-error neither x nor y
both({ id: "1" });
// @ts-expect-error id is required
both({ x: 1 });
tree({ root: { value: "a", children: [{ value: "b", children: [{ value: "c" }] }] } });
// @ts-expect-error deep inside the cycle
tree({ root: { value: "a", children: [{ value: "b", children: [{ value: 3 }] }] } });
mutual({ a: { b: { a: { b: { s: "x" } } } } });
// @ts-expect-error through both
mutual({ a: { b: { a: { b: { s: 1 } } } } });
nested({ a: "1", b: "2" });
nested({ a: "1", c: "2" });
// @ts-expect-error a alone is not enough
nested({ a: "1" });
closed({});
async function use() {
  const n: boolean = (await typed({ a: "x" })).ok;
  // @ts-expect-error there is no such field
  return [n, (await tree({ root: { value: "" } })).nope];
}
export { r, use };
`)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "use.ts"), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := compile(t, dir); out != "" {
		t.Errorf("%s\n%s", out, b.String())
	}
}
