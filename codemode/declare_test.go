package codemode

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/mcp-portal/mcp-portal/internal/corpora"
)

// parses tells whether TypeScript's syntax is kept.
func parses(source string) error {
	r := api.Transform(source, api.TransformOptions{Loader: api.LoaderTS, LogLevel: api.LogLevelSilent})
	if len(r.Errors) > 0 {
		e := r.Errors[0]
		if e.Location != nil {
			return fmt.Errorf("%s at %d:%d: %s", e.Text, e.Location.Line, e.Location.Column, e.Location.LineText)
		}
		return fmt.Errorf("%s", e.Text)
	}
	return nil
}

func TestTypes(t *testing.T) {
	for _, c := range []struct{ name, schema, want string }{
		{"required and optional", `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"number"}},"required":["a"]}`, `args: { a: string; b?: number }`},
		{"local reference", `{"type":"object","properties":{"a":{"$ref":"#/$defs/T"}},"required":["a"],"$defs":{"T":{"type":"string"}}}`, `args: { a: string }`},
		{"definitions", `{"type":"object","properties":{"a":{"$ref":"#/definitions/T~1x"}},"definitions":{"T/x":{"enum":[1]}}}`, `args?: { a?: 1 }`},
		{"percent in a reference", `{"type":"object","properties":{"a":{"$ref":"#/$defs/T%20x"}},"$defs":{"T x":{"type":"null"}}}`, `args?: { a?: null }`},
		{"external reference", `{"type":"object","properties":{"a":{"$ref":"https://x.example/y"}}}`, `args?: { a?: unknown }`},
		{"missing reference", `{"type":"object","properties":{"a":{"$ref":"#/nope/x"}}}`, `args?: { a?: unknown }`},
		{"array of union", `{"type":"object","properties":{"a":{"type":"array","items":{"type":["string","number"]}}}}`, `args?: { a?: (string | number)[] }`},
		{"array of enum", `{"type":"object","properties":{"a":{"type":"array","items":{"enum":["x","y"]}}}}`, `args?: { a?: ("x" | "y")[] }`},
		{"array of nullable", `{"type":"object","properties":{"a":{"type":"array","items":{"type":"string","nullable":true}}}}`, `args?: { a?: (string | null)[] }`},
		{"tuple", `{"type":"object","properties":{"a":{"prefixItems":[{"type":"string"},{"type":"integer"}],"items":false}}}`, `args?: { a?: [string, number] }`},
		{"tuple with rest", `{"type":"object","properties":{"a":{"type":"array","prefixItems":[{"type":"string"}],"items":{"type":["number","null"]}}}}`, `args?: { a?: [string, ...(number | null)[]] }`},
		{"list of types", `{"type":"object","properties":{"a":{"type":["string","null"]}}}`, `args?: { a?: string | null }`},
		{"object or null", `{"type":"object","properties":{"a":{"type":["object","null"],"properties":{"b":{"type":"string"}}}}}`, `args?: { a?: { b?: string } | null }`},
		{"array or null", `{"type":"object","properties":{"a":{"type":["array","null"],"items":{"type":"string"}}}}`, `args?: { a?: string[] | null }`},
		{"more properties", `{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":true}`, `args?: { a?: string; [key: string]: unknown }`},
		{"typed more properties", `{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":{"type":"number"}}`, `args?: { a?: string; [key: string]: number | string | undefined }`},
		{"only more properties", `{"type":"object","additionalProperties":{"type":"number"}}`, `args?: Record<string, number>`},
		{"nothing allowed", `{"type":"object","properties":{},"additionalProperties":false}`, `args?: {}`},
		{"nothing said", `{"type":"object"}`, `args?: Record<string, unknown>`},
		{"pattern properties", `{"type":"object","patternProperties":{"^x":{"type":"string"}}}`, `args?: Record<string, string>`},
		{"odd names", `{"type":"object","properties":{"a-b":{"type":"string"},"x\"y":{"type":"string"},"":{"type":"string"}}}`, `args?: { "a-b"?: string; "x\"y"?: string; ""?: string }`},
		{"literals", `{"type":"object","properties":{"a":{"enum":[null,1,"s",true,{"k":[1]}]},"b":{"const":"c"},"e":{"enum":[]}}}`, `args?: { a?: null | 1 | "s" | true | { k: [1] }; b?: "c"; e?: never }`},
		{"same literal twice", `{"type":"object","properties":{"a":{"anyOf":[{"enum":["a",null]},{"type":"null"}]}}}`, `args?: { a?: "a" | null }`},
		{"combinator beside properties", `{"type":"object","properties":{"a":{"type":"string"}},"anyOf":[{"required":["a"]},{"required":["b"]}]}`, `args: { a?: string }`},
		{"branches beside properties", `{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"oneOf":[{"properties":{"b":{"type":"string"}}},{"properties":{"c":{"type":"string"}}}]}`, `args: { a: string } & ({ b?: string } | { c?: string })`},
		{"allOf holding anyOf", `{"allOf":[{"type":"object","properties":{"a":{"type":"string"}}},{"anyOf":[{"type":"object","properties":{"b":{"type":"string"}}},{"type":"null"}]}]}`, `args?: { a?: string } & ({ b?: string } | null)`},
		{"empty anyOf", `{"type":"object","properties":{"v":{"anyOf":[]}}}`, `args?: { v?: unknown }`},
		{"required but not declared", `{"type":"object","properties":{"a":{}},"required":["a","b"]}`, `args: { a: unknown; b: unknown }`},
		{"true and false", `{"type":"object","properties":{"a":true,"b":false}}`, `args?: { a?: unknown; b?: never }`},
		{"reference with siblings", `{"type":"object","properties":{"a":{"$ref":"#/$defs/T","properties":{"x":{"type":"string"}}}},"$defs":{"T":{"type":"object","properties":{"y":{"type":"string"}}}}}`, `args?: { a?: { y?: string } & { x?: string } }`},
		{"malformed", `{"type":`, `args?: unknown`},
		{"no schema", ``, `args?: Record<string, unknown>`},
		{"schema that is no object", `[1]`, `args: unknown`},
		{"wrong shapes inside", `{"type":"object","properties":{"a":7,"b":{"type":3},"c":{"type":"array","items":"x"},"d":{"enum":"x"},"e":{"anyOf":{}}},"required":"a"}`, `args?: { a?: unknown; b?: unknown; c?: unknown[]; d?: unknown; e?: unknown }`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := signature("t", json.RawMessage(c.schema), nil)
			if want := "t(" + c.want + "): Promise<unknown>"; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if err := parses(Declare("t", "d", json.RawMessage(c.schema), json.RawMessage(c.schema))); err != nil {
				t.Errorf("declaration: %v", err)
			}
			if err := parses("declare const x: { " + got + " }"); err != nil {
				t.Errorf("signature: %v", err)
			}
		})
	}
}

func TestDeclarationText(t *testing.T) {
	got := Declare("crm_list", "List */ them.\nSecond line.", json.RawMessage(`{"type":"object","required":["q"],"properties":{
		"q":{"type":"string","description":"What to find","minLength":1,"pattern":"^a*/"},
		"limit":{"type":"integer","default":20,"maximum":100},
		"old":{"type":"boolean","deprecated":true}}}`), json.RawMessage(`{"type":"object","properties":{"items":{"type":"array","items":{"type":"string"}}},"required":["items"]}`))
	want := `/**
 * List *\/ them.
 * Second line.
 */
declare function crm_list(args: {
  /**
   * What to find
   * @minLength 1
   * @pattern ^a*\/
   */
  q: string;
  /**
   * @default 20
   * @maximum 100
   * @integer
   */
  limit?: number;
  /** @deprecated */
  old?: boolean;
}): Promise<{
  items: string[];
}>;
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, name := range []string{"crm.list", "crm.delete", "delete", "a-b", "1x", "crm.a-b", "", "class.x", "日本"} {
		if err := parses(Declare(name, "d", json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"}}}`), nil)); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestCyclesAndSizesEnd(t *testing.T) {
	tree := `{"type":"object","properties":{"root":{"$ref":"#/$defs/Node"}},"$defs":{"Node":{"type":"object","properties":{"value":{"type":"string","description":"d"},"children":{"type":"array","items":{"$ref":"#/$defs/Node"}}}}}}`
	got := Declare("t", "", json.RawMessage(tree), json.RawMessage(tree))
	if err := parses(got); err != nil {
		t.Error(err)
	}
	if !strings.Contains(got, "type t_Node = {") || !strings.Contains(got, "children?: t_Node[]") || !strings.Contains(got, "type t_Node2 = {") {
		t.Errorf("no name for the cycle:\n%s", got)
	}
	if got, want := signature("t", json.RawMessage(tree), nil), "t(args?: { root?: { value?: string; children?: unknown[] } }): Promise<unknown>"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var wide strings.Builder
	wide.WriteString(`{"type":"object","properties":{`)
	for i := range 5000 {
		if i > 0 {
			wide.WriteByte(',')
		}
		fmt.Fprintf(&wide, `"f%d":{"type":"object","properties":{"a":{"type":"string","description":"%s"}}}`, i, strings.Repeat("x", 100))
	}
	wide.WriteString(`}}`)
	doubling := `{"$ref":"#/$defs/d0","$defs":{`
	for i := range 40 {
		doubling += fmt.Sprintf(`"d%d":{"type":"object","properties":{"a":{"$ref":"#/$defs/d%d"},"b":{"$ref":"#/$defs/d%d"}}},`, i, i+1, i+1)
	}
	doubling += `"d40":{"type":"string"}}}`
	for name, schema := range map[string]string{
		"self":     `{"$ref":"#"}`,
		"pair":     `{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`,
		"in union": `{"anyOf":[{"$ref":"#"},{"type":"string"}]}`,
		"deep":     strings.Repeat(`{"type":"array","items":`, 500) + `{}` + strings.Repeat(`}`, 500),
		"wide":     wide.String(),
		"doubling": doubling,
	} {
		got := Declare("t", "", json.RawMessage(schema), nil)
		if err := parses(got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(got) > 400<<10 {
			t.Errorf("%s: %d bytes", name, len(got))
		}
		if s := signature("t", json.RawMessage(schema), nil); parses("declare const x: { "+s+" }") != nil {
			t.Errorf("%s: signature %.200s", name, s)
		}
	}
}

// TestDeclareCorpus renders every tool of the corpus of real servers.
func TestDeclareCorpus(t *testing.T) {
	files, err := filepath.Glob(corpora.Path(t, "mcp-tools", "*", "tools-list.json"))
	if err != nil {
		t.Fatal(err)
	}
	own, err := filepath.Glob(filepath.Join("testdata", "tools", "*.json"))
	if err != nil || len(own) == 0 {
		t.Fatal("the own samples are missing", err)
	}
	n := 0
	for _, f := range append(own, files...) {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var list struct {
			Tools []struct {
				Name, Description         string
				InputSchema, OutputSchema json.RawMessage
			}
		}
		if err := json.Unmarshal(data, &list); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		var all strings.Builder
		for _, tool := range list.Tools {
			d := Declare(tool.Name, tool.Description, tool.InputSchema, tool.OutputSchema)
			if err := parses(d); err != nil {
				t.Errorf("%s %s: %v\n%s", f, tool.Name, err, d)
			}
			if strings.Contains(d, "args: unknown") || strings.Contains(d, "args?: unknown") {
				t.Errorf("%s %s: the arguments are unknown", f, tool.Name)
			}
			all.WriteString(d)
			if s := signature(typeName(tool.Name), tool.InputSchema, tool.OutputSchema); strings.Contains(s, "\n") || parses("declare const x: { "+s+" }") != nil {
				t.Errorf("%s %s: signature %s", f, tool.Name, s)
			}
			n++
		}
		if err := parses(all.String()); err != nil {
			t.Errorf("%s: together: %v", f, err)
		}
	}
	t.Logf("%d tools", n)
}

func FuzzDeclare(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`, "x */ y")
	f.Add(`{"anyOf":[{"enum":["*/"]},{"type":["array","null"]}]}`, "")
	f.Fuzz(func(t *testing.T, schema, description string) {
		d := Declare("t", description, json.RawMessage(schema), json.RawMessage(schema))
		if err := parses(d); err != nil {
			t.Fatalf("%v\n%s", err, d)
		}
	})
}
