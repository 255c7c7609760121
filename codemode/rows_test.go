package codemode

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// rows are the tests of comparable code modes that concern one script, with
// their own inputs: the table "Code mode" of docs/cases.md. Where the value here
// differs from theirs, it says why.
var rows = []struct {
	row   string
	code  string
	value string
	kind  string // of the error instead
	part  string
	line  int
}{
	{row: "1 empty", code: "", kind: kindSyntax, part: "empty"}, // theirs: undefined. Nothing was meant to be sent
	{row: "1 whitespace", code: " \n\t ", kind: kindSyntax, part: "empty"},
	{row: "2 js", code: "```js\nasync () => 1\n```", value: "1"},
	{row: "2 ts", code: "```ts\nasync () => { const x: number = 1; return x }\n```", value: "1"},
	{row: "2 untagged", code: "```\nasync () => 1\n```", value: "1"},
	{row: "2 CRLF", code: "```js\r\nasync () => {\r\n  return 1\r\n}\r\n```\r\n", value: "1"},
	{row: "3 JavaScript", code: "```JavaScript\nasync () => 1\n```", value: "1"},
	{row: "3 prose around", code: "Here is the code:\n```js\nasync () => 1\n```\nIt gives one.", value: "1"},
	{row: "4 semicolon", code: "async () => { return 1 };", value: "1"},
	{row: "4 comment", code: "async () => { return 1 } // done", value: "1"},
	{row: "4 block comment", code: "async () => 1 /* done */", value: "1"},
	{row: "5 arrow", code: "export default async () => 1", value: "1"},
	{row: "5 anonymous", code: "export default async function () { return 1 }", value: "1"},
	{row: "5 named", code: "export default async function main() { return 1 }", value: "1"},
	{row: "6", code: "async function doIt() { return 1 }", value: "1"},
	{row: "7", code: "const main = async () => 1", value: "1"},
	{row: "8", code: "const x = 1; x + 1", value: "2"},
	{row: "9 return", code: "return 5", value: "5"},
	{row: "9 await", code: "await Promise.resolve(5)", value: "5"},
	{row: "10", code: "const a = 1;\nconst = ;", kind: kindSyntax, part: "const = ;", line: 2},
	{row: "11", code: "async (): Promise<number> => { const x: number = 1; return x }", value: "1"},
	{row: "24 add", code: "return await math.add({a: 10, b: 32})", value: "42"},
	{row: "24 chained", code: "const n = await math.add({a: 10, b: 32}); return await math.greet({name: 'n' + n})", value: `"Hello, n42!"`},
	{row: "25 array", code: "return (await s.array()).length", value: "3"},
	{row: "25 object", code: "return (await s.object()).a", value: "1"},
	{row: "25 two texts", code: "return await s.texts()", value: `"one\ntwo"`},
	{row: "25 structured", code: "return await s.structured()", value: `{"n":1}`},
	{row: "26 caught", code: "try { await s.fails() } catch (e) { return [e instanceof Error, e.message, e.code] }", value: `[true,"quota exceeded","tool_error"]`},
	{row: "26 uncaught", code: "await s.fails()", kind: kindException, part: "quota exceeded"},
	{row: "27 undefined", code: "return undefined", value: "undefined"},
	{row: "27 null", code: "return null", value: "null"},
	{row: "27 unknown tool", code: "return await codemode.math_sub({})", kind: kindException, part: "there is no tool codemode.math_sub"},
	{row: "28 text", code: "throw 'x'", kind: kindException, part: `threw the text "x"`},
	{row: "28 empty message", code: "throw new Error('')", kind: kindException, part: "no message"},
	{row: "28 null", code: "throw null", kind: kindException, part: "threw null"},
	{row: "28 undefined", code: "throw undefined", kind: kindException, part: "threw"},
	{row: "29", code: "await fetch('https://example.com')", kind: kindException, part: "there is no network", line: 1},
	{row: "31 parallel", code: "return await Promise.all([1, 2, 3].map(a => math.add({a, b: 0})))", value: "[1,2,3]"},
	{row: "32 codemode", code: "return typeof codemode.call", value: `"function"`},
	{row: "33 bytes", code: "return new Uint8Array([1, 2, 255])", value: `{"$binary":"AQL/","bytes":3}`},
	{row: "33 a part of them", code: "return new Uint8Array([9, 1, 2, 9]).subarray(1, 3)", value: `{"$binary":"AQI=","bytes":2}`},
	{row: "33 back", code: "return [...Uint8Array.fromBase64('AQL/')]", value: "[1,2,255]"},
	{row: "53", code: "return nosuch.list()", kind: kindException, part: "math, s"},
}

func rowHost() *fakeHost {
	return &fakeHost{call: func(_ context.Context, c HostCall) (json.RawMessage, error) {
		var a struct {
			A, B int
			Name string
		}
		if err := json.Unmarshal(c.Arguments, &a); err != nil {
			return nil, err
		}
		switch c.Tool {
		case "math_add":
			return json.RawMessage(structured(fmt.Sprint(a.A + a.B))), nil
		case "math_greet":
			return json.RawMessage(text("Hello, " + a.Name + "!")), nil
		case "s_array":
			return json.RawMessage(text("[1,2,3]")), nil
		case "s_object":
			return json.RawMessage(text(`{"a":1}`)), nil
		case "s_texts":
			return json.RawMessage(`{"content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}`), nil
		case "s_structured":
			return json.RawMessage(structured(`{"n":1}`)), nil
		}
		return json.RawMessage(`{"content":[{"type":"text","text":"quota exceeded"}],"isError":true}`), nil
	}}
}

func TestRowsOfOtherCodeModes(t *testing.T) {
	p := testPool(t, nil)
	for _, r := range rows {
		t.Run(r.row, func(t *testing.T) {
			host := rowHost()
			o := run(t, p, host, r.code, tools("math_add", "math_greet", "s_array", "s_object", "s_texts", "s_structured", "s_fails")...)
			if r.kind == "" {
				wantValue(t, o, r.value)
				return
			}
			wantError(t, o, r.kind, r.part)
			if o.Error != nil && r.line > 0 && o.Error.Line != r.line {
				t.Errorf("line %d, want %d", o.Error.Line, r.line)
			}
			if strings.HasPrefix(r.row, "29") && len(host.calls()) > 0 {
				t.Error("something was called")
			}
		})
	}

	t.Run("30", func(t *testing.T) {
		for code, limit := range map[string]Limits{
			"await new Promise(f => setTimeout(f, 1e6))": {Wall: 100 * time.Millisecond},
			"await s.hangs()":    {Wall: 100 * time.Millisecond},
			"while (true) {}":    {Wall: 100 * time.Millisecond},
			"while (true) { 1 }": {CPU: 100 * time.Millisecond},
		} {
			hung := &fakeHost{call: func(ctx context.Context, _ HostCall) (json.RawMessage, error) { <-ctx.Done(); return nil, ctx.Err() }}
			o, err := p.Run(context.Background(), Request{Owner: "u", Code: code, Tools: tools("s_hangs"), Limits: limit}, hung)
			if err != nil {
				t.Fatal(err)
			}
			kind := kindWall
			if limit.CPU > 0 {
				kind = kindCPU
			}
			wantError(t, o, kind, "time limit of 0.1 s")
		}
		// Nothing could ever settle this one: it is said at once.
		wantError(t, run(t, p, nil, "await new Promise(() => {})"), kindDeadlock, "resolve()")
	})

	t.Run("31 console", func(t *testing.T) {
		o := run(t, p, nil, "console.log('a', {b: 1}); console.warn('c'); console.error('d'); return 1")
		if got := strings.Join(o.Logs, "|"); got != `a {"b":1}|[warn] c|[error] d` {
			t.Errorf("%s", got)
		}
	})

	// 42 to 44: what exactly fits is untouched, what does not is cut once more
	// however it looks, and stays JSON.
	t.Run("42", func(t *testing.T) {
		fits := strings.Repeat("word ", 2000)
		budget := EstimateTokens([]byte(`"` + fits + `"`))
		raw, _ := json.Marshal(fits)
		if out, cut, _ := Shape(raw, budget); cut || string(out) != string(raw) {
			t.Errorf("what just fits was cut: %v, %d of %d bytes", cut, len(out), len(raw))
		}
		raw, _ = json.Marshal(fits + strings.Repeat("word ", 100))
		out, cut, info := Shape(raw, budget)
		if !cut || EstimateTokens(out) > budget || !strings.Contains(string(out), fmt.Sprintf("… %d more characters", info.Characters)) || info.Bytes != len(raw) {
			t.Errorf("cut %v, %d tokens of %d, %+v", cut, EstimateTokens(out), budget, info)
		}
	})
	t.Run("43", func(t *testing.T) {
		forged, _ := json.Marshal(strings.Repeat("word ", 2000) + "… 5 more characters")
		out, cut, info := Shape(forged, 500)
		if !cut || EstimateTokens(out) > 500 || info.Characters < 5000 || !strings.HasSuffix(string(out), fmt.Sprintf(`… %d more characters"`, info.Characters)) {
			t.Errorf("cut %v, %d tokens, %+v", cut, EstimateTokens(out), info)
		}
	})
	t.Run("44", func(t *testing.T) {
		var list []map[string]any
		for i := range 500 {
			list = append(list, map[string]any{"id": i, "note": strings.Repeat("long ", 200)})
		}
		raw, _ := json.Marshal(map[string]any{"success": true, "result": list, "result_info": map[string]any{"total_count": 500}, "…": "a field of that name"})
		out, cut, info := Shape(raw, 1000)
		var got struct {
			Success    bool
			Result     []json.RawMessage
			ResultInfo struct {
				Total int `json:"total_count"`
			} `json:"result_info"`
		}
		if err := json.Unmarshal(out, &got); err != nil || !cut || EstimateTokens(out) > 1000 {
			t.Fatalf("%v, cut %v, %d tokens: %.300s", err, cut, EstimateTokens(out), out)
		}
		if !got.Success || got.ResultInfo.Total != 500 || !strings.Contains(string(out), `"…":"a field of that name"`) {
			t.Errorf("small fields: %v, %d: %.200s", got.Success, got.ResultInfo.Total, out)
		}
		if info.Items != 500-(len(got.Result)-1) || !strings.Contains(string(got.Result[len(got.Result)-1]), fmt.Sprintf("… %d more items", info.Items)) {
			t.Errorf("%d items shown, %+v", len(got.Result)-1, info)
		}
	})
}

// Rows 14 to 23, which TestTypes has with more of their kind: the parts it does
// not.
func TestRowsOfTypes(t *testing.T) {
	chain := `{"type":"object","properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{`
	for i := range 25 {
		chain += fmt.Sprintf(`"d%d":{"type":"object","properties":{"n":{"$ref":"#/$defs/d%d"}}},`, i, i+1)
	}
	chain += `"d25":{"type":"string"}}}`
	got := Declare("t", "", json.RawMessage(chain), nil)
	if err := parses(got); err != nil || len(got) > 64<<10 {
		t.Errorf("row 16, 25 levels: %v, %d bytes", err, len(got))
	}
	got = Declare("t", "ends */ here\nand goes on", json.RawMessage(`{"type":"object","properties":{"a\nb":{"type":"string"},"c'd\"e":{"type":"number"},"\u0001":{}}}`), nil)
	if err := parses(got); err != nil || !strings.Contains(got, `*\/ here`) || !strings.Contains(got, `"a\nb"?: string`) || !strings.Contains(got, `"c'd\"e"?: number`) {
		t.Errorf("row 20: %v\n%s", err, got)
	}
	good, bad := json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"}}}`), json.RawMessage(`{"type":"object","properties":[}`)
	if signature("x", good, nil) != "x(args?: { a?: string }): Promise<unknown>" || signature("y", bad, nil) != "y(args?: unknown): Promise<unknown>" {
		t.Errorf("row 22: %s; %s", signature("x", good, nil), signature("y", bad, nil))
	}
	if got, want := signature("x", good, json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)), "x(args?: { a?: string }): Promise<{ n: number }>"; got != want {
		t.Errorf("row 23: %s, want %s", got, want)
	}
}
