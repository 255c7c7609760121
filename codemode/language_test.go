package codemode

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the table in docs/code-mode.md")

// form is one way of writing a program, and what comes of it.
type form struct {
	name  string
	code  string
	value string // "undefined", or JSON
	kind  string // of the error instead of a value
	part  string // of its message
	line  int    // of the error; 0: not checked
}

// forms is the list of what models write. docs/code-mode.md is made from it.
var forms = []form{
	{name: "last expression", code: "const x = 1; x + 1", value: "2"},
	{name: "top-level return and await", code: "const x = await Promise.resolve(4)\nreturn x + 1", value: "5"},
	{name: "async arrow", code: "async () => { return 1 }", value: "1"},
	{name: "async arrow and semicolon", code: "async () => 1;", value: "1"},
	{name: "async arrow and comment", code: "// first\nasync () => { return 1 } // last\n/* end */", value: "1"},
	{name: "arrow with parameter", code: "async (codemode) => typeof codemode.call", value: `"function"`},
	{name: "arrow with destructured parameter", code: "async ({ codemode, crm }) => typeof crm.list", value: `"function"`},
	{name: "function in parentheses, not called", code: "(async function () { return 1 })", value: "1"},
	{name: "anonymous function", code: "async function () { return 1 }", value: "1"},
	{name: "called at once", code: "(async () => { return 1 })()", value: "1"},
	{name: "one function declaration", code: "async function main() { return 1 }", value: "1"},
	{name: "several functions with main", code: "function helper() { return 2 }\nasync function main() { return helper() }", value: "2"},
	{name: "several functions, one unused", code: "const add = (a, b) => a + b\nfunction go() { return add(1, 2) }", value: "3"},
	{name: "several functions, no entry", code: "function a() {}\nfunction b() {}", kind: "exception", part: "calls none"},
	{name: "function declared after its call", code: "main()\nasync function main() { return 7 }", value: "7"},
	{name: "const main", code: "const main = async () => 1", value: "1"},
	{name: "const f and call", code: "const f = async () => 3; f()", value: "3"},
	{name: "last declaration", code: "const a = 1\nconst result = await Promise.resolve({ok: true})", value: `{"ok":true}`},
	{name: "last declaration, destructured", code: "const { a, b: [c] } = { a: 1, b: [2] }", value: `{"a":1,"c":2}`},
	{name: "export default arrow", code: "export default async () => 1", value: "1"},
	{name: "export default anonymous function", code: "export default async function () { return 1 }", value: "1"},
	{name: "export default named function", code: "const h = 2;\nexport default async function main() { return h }", value: "2"},
	{name: "export default name", code: "const h = async () => 3;\nexport default h;", value: "3"},
	{name: "export default value", code: "export default { a: 1 }", value: `{"a":1}`},
	{name: "export function", code: "export async function run() { return 4 }", value: "4"},
	{name: "export list", code: "async function go() { return 5 }\nexport { go as default };", value: "5"},
	{name: "fence", code: "```js\nasync () => 1\n```", value: "1"},
	{name: "fence with CRLF", code: "```ts\r\nconst x: number = 1\r\nreturn x\r\n```\r\n", value: "1"},
	{name: "fence, upper case tag", code: "```JavaScript\nreturn 1\n```", value: "1"},
	{name: "fence without tag", code: "```\nreturn 1\n```", value: "1"},
	{name: "fence not closed", code: "```js\nreturn 1\n", value: "1"},
	{name: "prose around a fence", code: "Sure! Here's the code:\n\n```javascript\nconst a = 1;\nreturn a\n```\n\nIt returns one.", value: "1"},
	{name: "two code blocks", code: "First:\n```js\nreturn 1\n```\nor\n```js\nreturn 2\n```", kind: "syntax", part: "several code blocks"},
	{name: "fence inside a string", code: "const md: string = '`' +\n'```js\\n' +\n'```'\nreturn md.length", value: "10"},
	{name: "JSON around code", code: `{"code": "const x = 1;\nreturn x + 1"}`, value: "2"},
	{name: "CRLF", code: "const a = 1;\r\nreturn a;\r\n", value: "1"},
	{name: "object literal", code: "{a: 1}", value: `{"a":1}`},
	{name: "object literal, several members", code: "{ a: 1, b: [2] };", value: `{"a":1,"b":[2]}`},
	{name: "object after statements", code: "const n = 2\n{ total: n }", value: `{"total":2}`},
	{name: "block", code: "{ const x = 1; x }", value: "1"},
	{name: "if at the end", code: "const n = 3; if (n > 2) { 'many' } else 'few'", value: `"many"`},
	{name: "try at the end", code: "try { Promise.reject(new Error('x')) } catch (e) { 'caught ' + e.message }", value: `"caught x"`},
	{name: "returned promise", code: "return (async () => ({a: 1}))()", value: `{"a":1}`},
	{name: "promises inside the value", code: "return { a: Promise.resolve(1), b: [sleep(1).then(() => 2)] }", value: `{"a":1,"b":[2]}`},
	{name: "failing promise inside the value", code: "return { a: Promise.reject(new TypeError('no')) }", kind: "exception", part: "no"},
	{name: "array of promises", code: "[1, 2].map(async x => x * 2)", value: "[2,4]"},
	{name: "two arrows", code: "async () => 1\nasync () => 2", kind: "exception", part: "without calling it"},
	{name: "tool not called", code: "return codemode.crm_list", kind: "exception", part: "without calling it"},
	{name: "undeclared variable", code: "result = 5; result", value: "5"},
	{name: "TypeScript annotations", code: "async (): Promise<number> => { const x: number = 1; return x }", value: "1"},
	{name: "TypeScript interface, enum, generics", code: "interface A { n: number }\nenum E { X = 4 }\nfunction id<T>(x: T): T { return x }\nconst a: A = { n: id<number>(E.X) }\nreturn a satisfies A", value: `{"n":4}`},
	{name: "TypeScript as and non-null", code: "const x = ({ a: 1 } as any)!\nreturn x.a as number", value: "1"},
	{name: "async generator, for await", code: "async function* g() { yield 1; yield 2 }\nlet n = 0\nfor await (const x of g()) n += x\nreturn n", value: "3"},
	{name: "using", code: "let log = []\n{ using r = { [Symbol.dispose]() { log.push('end') } }; log.push('in') }\nreturn log", value: `["in","end"]`},
	{name: "class fields and private names", code: "class A { #n = 1; static s = 2; get n() { return this.#n } }\nreturn new A().n + A.s", value: "3"},
	{name: "hashbang", code: "#!/usr/bin/env node\nreturn 1", value: "1"},
	{name: "string of Unicode letters", code: `return "äß1".replace(/\p{L}/gu, "x")`, value: `"xx1"`},
	{name: "import", code: "import fs from 'fs'\nreturn 1", kind: "syntax", part: "import is not available", line: 1},
	{name: "dynamic import", code: "const x = 1\nconst fs = await import('fs')", kind: "syntax", part: "import is not available", line: 2},
	{name: "require", code: "const fs = require('fs')", kind: "exception", part: "no modules", line: 1},
	{name: "fetch", code: "const r =\n  await fetch('https://example.com')", kind: "exception", part: "no network", line: 2},
	{name: "Python", code: "import json\nfor x in range(3):\n    print(x)", kind: "syntax", part: "Python"},
	{name: "shell", code: "curl -s https://example.com | jq .", kind: "syntax", part: "shell"},
	{name: "fence of another language", code: "```python\nprint(1)\n```", kind: "syntax", part: "python"},
	{name: "prose only", code: "I will list all the records for you now.", kind: "syntax", part: "not code"},
	{name: "empty", code: " \n", kind: "syntax", part: "empty"},
	{name: "syntax error", code: "const a = 1;\nconst = ;", kind: "syntax", part: "const = ;", line: 2},
	{name: "missing bracket", code: "const a = [1, 2\nreturn a.map(x => {", kind: "syntax", part: "", line: 2},
	{name: "bracket too many", code: "return 1 }); evil(); (async()=>{", kind: "syntax", part: ""},
	{name: "unknown global", code: "const a = 1\nreturn crn.list()", kind: "exception", part: "did you mean crm?", line: 2},
	{name: "server as a variable", code: "const crm = await crm.list()\nreturn crm", kind: "exception", part: "rename the variable", line: 1},
	{name: "directive and declaration", code: "'use strict'\nconst a = 1", value: "1"},
	{name: "module.exports", code: "const x = 3\nmodule.exports = async () => x", value: "3"},
	{name: "exports.main", code: "exports.main = async () => 4", value: "4"},
	{name: "async generator as expression", code: "const g = async function* () { yield 1; yield 2 }\nconst out = []\nfor await (const x of g()) out.push(x)\nreturn out", value: "[1,2]"},
	{name: "generator as value", code: "return (function* () { yield 1; yield 2 })()", value: "[1,2]"},
	{name: "iterators inside the value", code: "return { a: [1, 2].values(), b: new Map([[1, 2]]).entries() }", value: `{"a":[1,2],"b":[[1,2]]}`},
	{name: "async generator as value", code: "return (async function* () { yield 1 })()", kind: "exception", part: "for await"},
	{name: "code as a JSON string", code: `"const x = 1;\nreturn x"`, value: "1"},
	{name: "fence of JSON around code", code: "```json\n{\"code\": \"return 4\"}\n```", value: "4"},
	{name: "line breaks encoded twice", code: `const a = 1;\nreturn a + 1;`, value: "2"},
	{name: "HTML encoded", code: "const f = x =&gt; x + 1; return f(1) &amp;&amp; 5", value: "5"},
	{name: "typographic quotes", code: "const a = “hello”; return a", value: `"hello"`},
	{name: "another call in place of code", code: `{"tool": "crm_list", "arguments": {}}`, kind: "syntax", part: `codemode.call("crm_list", {…})`},
	{name: "tool name in another spelling", code: "return (await codemode.crmList({})).n", value: "1"},
	{name: "await forgotten, field read", code: "const r = codemode.crm_list()\nreturn r.items", kind: "exception", part: "write (await codemode.crm_list(…)).items", line: 2},
	{name: "await forgotten, taken apart", code: "const { n } = crm.list()", kind: "exception", part: "an await is missing", line: 1},
	{name: "await forgotten, in a loop", code: "for (const x of crm.list()) {}", kind: "exception", part: "used as a list: an await is missing"},
	{name: "await forgotten, in text", code: "return `${crm.list()}`", kind: "exception", part: "used as text or a number: an await is missing"},
	{name: "await forgotten, as JSON", code: "return JSON.stringify({ a: crm.list() })", kind: "exception", part: "would become {}"},
	{name: "await of an own function forgotten", code: "const all = async () => [1]\nreturn all().length", kind: "exception", part: "await it first", line: 2},
	{name: "call forgotten, field read", code: "return crm.list.items", kind: "exception", part: "crm.list is a function without .items"},
	{name: "member of a tool that does not exist", code: "return codemode.crm_lost.items", kind: "exception", part: "no tool codemode.crm_lost"},
	{name: "functions as value", code: "const fn = async () => 5\nreturn { fn }", kind: "exception", part: "returned functions (fn) without calling"},
	{name: "the tools as value", code: "return codemode", kind: "exception", part: "without calling them"},
	{name: "function inside the value", code: "return { a: 1, f: async () => 1 }", value: `{"a":1,"f":"[function f]"}`},
	{name: "result parsed once more", code: "return JSON.parse(await crm.list()).n", value: "1"},
	{name: "shell, a valid subtraction", code: "ls -la", kind: "exception", part: "shell"},
	{name: "Python, one line", code: "x = [i for i in items]", kind: "syntax", part: "Python"},
	{name: "Python that is valid JavaScript", code: "result = await crm.list()\nprint(result)", kind: "exception", part: "use console.log", line: 2},
	{name: "another language", code: "package main\nfunc main() {}", kind: "syntax", part: "this is Go"},
	{name: "prose without a capital", code: "list all contacts", kind: "syntax", part: "not code"},
	{name: "nothing returned", code: "for (const x of [1]) { x }", value: "undefined"},
}

func TestForms(t *testing.T) {
	p := testPool(t, nil)
	for _, f := range forms {
		t.Run(f.name, func(t *testing.T) {
			host := answers(map[string]string{"crm_list": structured(`{"n":1}`)})
			o := run(t, p, host, f.code, tools("crm_list")...)
			if f.kind == "" {
				wantValue(t, o, f.value)
				if f.value == "undefined" && !strings.Contains(strings.Join(o.Logs, "\n"), "returned nothing") {
					t.Errorf("undefined without a word: logs %q", o.Logs)
				}
				return
			}
			wantError(t, o, f.kind, f.part)
			if f.kind == "syntax" && len(host.calls()) > 0 {
				t.Error("code that cannot be compiled called a tool")
			}
			if o.Error != nil && f.line != 0 && o.Error.Line != f.line {
				t.Errorf("line %d, want %d (%s)", o.Error.Line, f.line, o.Error.Message)
			}
		})
	}
}

// TestDocumentedForms keeps the table of docs/code-mode.md true.
func TestDocumentedForms(t *testing.T) {
	var b strings.Builder
	b.WriteString("| what is sent | example | what comes back |\n|---|---|---|\n")
	for _, f := range forms {
		result := "`" + f.value + "`"
		if f.kind != "" {
			result = f.kind + " error"
			if f.part != "" {
				result += ": … " + f.part + " …"
			}
		}
		example := strings.NewReplacer("\r\n", " ⏎ ", "\n", " ⏎ ", "|", "\\|").Replace(strings.TrimSpace(f.code))
		b.WriteString("| " + f.name + " | ```` " + example + " ```` | " + result + " |\n")
	}
	keepTable(t, "<!-- forms: made by TestDocumentedForms -->\n", "<!-- /forms -->", b.String())
}

// keepTable compares what stands between two marks of docs/code-mode.md with
// what the tests prove, or writes it with -update.
func keepTable(t *testing.T, begin, end, table string) {
	t.Helper()
	path := filepath.Join("..", "docs", "code-mode.md")
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(doc), begin)
	before, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for the table %s", path, begin)
	}
	if before == table {
		return
	}
	if !*update {
		t.Fatalf("the table in %s is not what the tests prove; run go test ./codemode -run %s -update", path, t.Name())
	}
	if err := os.WriteFile(path, []byte(head+begin+table+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}
