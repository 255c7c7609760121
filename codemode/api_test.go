package codemode

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestCallForms(t *testing.T) {
	p := testPool(t, nil)
	host := answers(map[string]string{"crm_list": structured(`{"n":1}`), "my-server_get-data": structured(`{"n":2}`)})
	ts := tools("crm_list", "my-server_get-data")
	for _, c := range []struct{ name, code, value string }{
		{"identifier", `(await codemode.crm_list({})).n`, "1"},
		{"server and member", `(await crm.list({})).n`, "1"},
		{"no arguments", `(await crm.list()).n`, "1"},
		{"null arguments", `(await crm.list(null)).n`, "1"},
		{"call by outward name", `(await codemode.call("my-server_get-data", {})).n`, "2"},
		{"call by identifier", `(await codemode.call("my$server_get$data")).n`, "2"},
		{"call by server.member", `(await codemode.call("crm.list", {})).n`, "1"},
		{"outward name in brackets", `(await codemode["my-server_get-data"]({})).n`, "2"},
		{"identifier with sign", `(await codemode.my$server_get$data({})).n`, "2"},
		{"server through codemode", `(await codemode.crm.list({})).n`, "1"},
		{"whole name on the server", `(await crm.crm_list({})).n`, "1"},
		{"taken apart", `const { crm_list } = codemode; (await crm_list({})).n`, "1"},
		{"raw", `(await codemode.raw("crm_list", {})).content[0].type`, `"text"`},
		{"in", `["crm_list" in codemode, "x" in codemode, "list" in crm, "then" in crm]`, `[true,false,true,false]`},
		{"keys", `Object.keys(crm)`, `["list"]`},
		{"awaiting a namespace", `typeof (await codemode).call + typeof (await crm).list`, `"functionfunction"`},
		{"namespace as value", `return { c: String(codemode), t: codemode.then === undefined, s: crm.then === undefined }`, `{"c":"[object Object]","t":true,"s":true}`},
		{"namespaces do not change", `codemode.crm_list = 1; typeof codemode.crm_list`, `"function"`},
	} {
		t.Run(c.name, func(t *testing.T) { wantValue(t, run(t, p, host, c.code, ts...), c.value) })
	}
}

func TestB076_ScriptsGetValuesNotEnvelopes(t *testing.T) {
	p := testPool(t, nil)
	image := `{"type":"image","data":"aGk=","mimeType":"image/png"}`
	for _, c := range []struct{ name, result, code, value string }{
		{"structured content", structured(`{"items":[1,2,3]}`), `(await s.t()).items.length`, "3"},
		{"JSON object as text", text(`{"items":[1,2]}`), `(await s.t()).items.length`, "2"},
		{"JSON array as text", text(` [1,2] `), `(await s.t()).length`, "2"},
		{"plain text", text("hello"), `(await s.t()).toUpperCase()`, `"HELLO"`},
		{"number as text stays text", text("007"), `await s.t()`, `"007"`},
		{"round number as text stays text", text("42"), `await s.t()`, `"42"`},
		{"null as text stays text", text("null"), `await s.t()`, `"null"`},
		{"truth as text stays text", text(" true "), `await s.t()`, `" true "`},
		{"quoted text stays text", text(`"a"`), `await s.t()`, `"\"a\""`},
		{"broken JSON stays text", text(`{"a":`), `await s.t()`, `"{\"a\":"`},
		{"several texts", `{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, `await s.t()`, `"a\nb"`},
		{"several texts that make JSON", `{"content":[{"type":"text","text":"[1,"},{"type":"text","text":"2]"}]}`, `(await s.t())[1]`, `2`},
		{"null structured content", `{"structuredContent":null,"content":[{"type":"text","text":"x"}]}`, `await s.t()`, `"x"`},
		{"empty", `{"content":[]}`, `await s.t()`, `null`},
		{"toolResult of 2024", `{"toolResult":{"a":1}}`, `(await s.t()).a`, `1`},
		{"image", `{"content":[` + image + `]}`, `(await s.t()).mimeType`, `"image/png"`},
		{"text and image", `{"content":[{"type":"text","text":"{\"a\":1}"},` + image + `]}`, `const [a, i] = await s.t(); [a.a, i.type]`, `[1,"image"]`},
		{"names of prototypes are data", text(`{"__proto__":{"x":1},"constructor":2}`), `const r = await s.t(); [r.x, Object.keys(r)]`, `[null,["__proto__","constructor"]]`},
		{"order of members", structured(`{"b":1,"a":2}`), `await s.t()`, `{"b":1,"a":2}`},
		{"escapes", structured(`{"s":"\u00e9\n\"\\\ud83d\ude00"}`), `(await s.t()).s`, `"é\n\"\\😀"`},
		{"numbers", structured(`[0,-0,1.5,1e3,-12,123456789012345]`), `const r = await s.t(); [r[1] === 0, ...r.slice(2)]`, `[true,1.5,1000,-12,123456789012345]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantValue(t, run(t, p, answers(map[string]string{"s_t": c.result}), c.code, tools("s_t")...), c.value)
		})
	}
	t.Run("unreadable result", func(t *testing.T) {
		o := run(t, p, answers(map[string]string{"s_t": `{"content":[{]}`}), "await s.t()", tools("s_t")...)
		wantError(t, o, kindException, "cannot be read")
		if o.Error.Code != "bad_result" {
			t.Errorf("code %q", o.Error.Code)
		}
	})
}

func TestOneBadBlockSpoilsNoResult(t *testing.T) {
	p := testPool(t, nil)
	for _, c := range []struct{ content, value, note string }{
		{`{"type":"text","text":"a"},{"type":"text","text":7},{"type":"text","text":"b"}`, `"a\nb"`, "block 2 is a text block without a text"},
		{`{"type":"text"},{"type":"text","text":"[1]"}`, `[1]`, "block 1 is a text block without a text"},
		{`"x",null,{"type":"text","text":"a"}`, `"a"`, "block 1 is no object, and 1 more are malformed"},
	} {
		o := run(t, p, answers(map[string]string{"s_t": `{"content":[` + c.content + `]}`}), "return await s.t()", tools("s_t")...)
		wantValue(t, o, c.value)
		if logs := strings.Join(o.Logs, "\n"); !strings.Contains(logs, c.note) || !strings.Contains(logs, "codemode.raw") {
			t.Errorf("%s: logs %q, want %q", c.content, logs, c.note)
		}
	}
	o := run(t, p, answers(map[string]string{"s_t": `{"content":[{"type":"text"}]}`}), "await s.t()", tools("s_t")...)
	wantError(t, o, kindException, "block 1 is a text block without a text")
}

func TestContentBlocksLeaveBesideTheValue(t *testing.T) {
	p := testPool(t, nil)
	host := answers(map[string]string{
		"s_shot": `{"content":[{"type":"image","data":"aGk=","mimeType":"image/png","annotations":{"priority":1}}]}`,
		"s_file": `{"content":[{"type":"resource","resource":{"uri":"file:///a","text":"x"}}]}`,
	})
	o := run(t, p, host, `const shot = await s.shot(); const file = await s.file(); return { n: 2, shot, files: [file] }`, tools("s_shot", "s_file")...)
	wantValue(t, o, `{"n":2,"shot":"[image image/png: content block 1]","files":["[resource file:///a: content block 2]"]}`)
	if len(o.Content) != 2 || string(o.Content[0]) != `{"type":"image","data":"aGk=","mimeType":"image/png","annotations":{"priority":1}}` {
		t.Errorf("content %s", o.Content)
	}
}

func TestB079_NestedErrorsAreRejections(t *testing.T) {
	p := testPool(t, nil)
	host := answers(map[string]string{"s_t": `{"isError":true,"content":[{"type":"text","text":"quota exceeded"}],"structuredContent":{"retry":5}}`})
	o := run(t, p, host, "const a = 1\n\n  const r = await s.t()\nreturn 'went on'", tools("s_t")...)
	wantError(t, o, kindException, "quota exceeded")
	if o.Error.Code != "tool_error" || o.Error.Line != 3 || o.Error.Column == 0 {
		t.Errorf("code %q at %d:%d, want tool_error at line 3", o.Error.Code, o.Error.Line, o.Error.Column)
	}
	if len(o.Calls) != 1 || o.Calls[0].Status != callError || !strings.Contains(o.Calls[0].Error, "quota") {
		t.Errorf("calls %+v", o.Calls)
	}
	wantValue(t, run(t, p, host, `try { await s.t() } catch (e) { return [e instanceof Error, e.code, e.message, e.data.retry] }`, tools("s_t")...), `[true,"tool_error","quota exceeded",5]`)
	wantValue(t, run(t, p, host, `(await codemode.raw("s_t")).isError`, tools("s_t")...), `true`)

	denied := &fakeHost{call: func(context.Context, HostCall) (json.RawMessage, error) {
		return nil, fmt.Errorf("send: %w", &HostError{Code: "denied", Message: "This tool needs approval."})
	}}
	o = run(t, p, denied, "await s.t()", tools("s_t")...)
	wantError(t, o, kindException, "This tool needs approval.")
	if o.Error.Code != "denied" {
		t.Errorf("code %q", o.Error.Code)
	}
	// From Promise.all too, and with the position of the failing call.
	o = run(t, p, denied, "await Promise.all([\n sleep(1),\n s.t()\n])", tools("s_t")...)
	if o.Error == nil || o.Error.Line != 3 || o.Error.Code != "denied" {
		t.Errorf("error %+v", o.Error)
	}
}

func TestB080_EveryFailureIsAnError(t *testing.T) {
	p := testPool(t, nil)
	for _, c := range []struct {
		name, code, kind, part string
	}{
		{"syntax error", "const = ;", kindSyntax, "const"},
		{"thrown text", "throw 'x'", kindException, `threw the text "x"`},
		{"thrown empty text", "throw ''", kindException, `threw the text ""`},
		{"thrown null", "throw null", kindException, "threw null"},
		{"thrown undefined", "throw undefined", kindException, "threw"},
		{"thrown object", "throw {a: 1}", kindException, `{"a":1}`},
		{"error without message", "throw new Error('')", kindException, "no message"},
		{"rejected promise", "return Promise.reject(new RangeError('r'))", kindException, "r"},
		{"rejected with nothing", "return Promise.reject()", kindException, "threw"},
		{"aggregate", "await Promise.any([Promise.reject(new Error('one'))])", kindException, "one"},
		{"cause", "throw new Error('outer', {cause: new Error('inner')})", kindException, "inner"},
		{"type error", "const a = 1\nnull.x", kindException, "x"},
		{"never settled", "await new Promise(() => {})", kindDeadlock, "nothing will ever settle"},
		{"throwing getter in the value", "return { get a() { throw new Error('gotcha') } }", kindException, "reading the returned value: gotcha"},
		{"throwing toString of an error", "throw { get name() { throw 1 } }", kindException, "threw"},
		{"error whose message throws", "const e = new Error(); Object.defineProperty(e, 'message', {get() { throw e }}); throw e", kindException, "description fails"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := run(t, p, nil, c.code)
			wantError(t, o, c.kind, c.part)
			if o.Value != nil {
				t.Errorf("value %s beside an error", o.Value)
			}
		})
	}
	o, err := p.Run(context.Background(), Request{Owner: "u", Code: "for (;;) await null", Limits: Limits{Wall: 300 * time.Millisecond}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, o, kindWall, "time limit")
}

func TestB083_PromisesAreSettledBeforeTheValueIsRead(t *testing.T) {
	p := testPool(t, nil)
	for _, code := range []string{
		"return (async () => ({a: 1}))()",
		"(async () => ({a: 1}))()",
		"async () => ({a: 1})",
		"async () => (async () => ({a: 1}))()",
		"const f = async () => ({a: 1}); f()",
		"async function main() { return {a: 1} }",
		"const r = await sleep(1).then(() => ({a: 1})); r",
		"export default async () => ({a: 1})",
		"return {a: sleep(5).then(() => 1)}",
		"return {then(f) { f({a: 1}) }}",
		"if (true) { sleep(1).then(() => ({a: 1})) }",
	} {
		wantValue(t, run(t, p, nil, code), `{"a":1}`)
	}
	// B085: one that never settles is said to be so, and nothing waits for it.
	wantValue(t, run(t, p, nil, "return [1, {a: new Promise(() => {})}]"), `[1,{"a":"[Promise: never settled, is an await missing?]"}]`)
}

func TestB013_IntegersStayExact(t *testing.T) {
	p := testPool(t, nil)
	host := &fakeHost{call: func(_ context.Context, c HostCall) (json.RawMessage, error) {
		if c.Tool == "s_echo" {
			return json.RawMessage(`{"structuredContent":` + string(c.Arguments) + `}`), nil
		}
		return json.RawMessage(`{"structuredContent":{"id":9007199254740993,"safe":9007199254740991,"neg":-9007199254740993,"big":123456789012345678901234567890}}`), nil
	}}
	ts := tools("s_get", "s_echo")
	wantValue(t, run(t, p, host, `s.get()`, ts...), `{"id":9007199254740993,"safe":9007199254740991,"neg":-9007199254740993,"big":123456789012345678901234567890}`)
	wantValue(t, run(t, p, host, `const r = await s.get(); [typeof r.id, typeof r.safe, r.id === 9007199254740993n, String(r.big)]`, ts...), `["bigint","number",true,"123456789012345678901234567890"]`)
	wantValue(t, run(t, p, host, `const r = await s.get(); await s.echo({ id: r.id, next: r.id + 1n })`, ts...), `{"id":9007199254740993,"next":9007199254740994}`)
	got := host.calls()
	if last := string(got[len(got)-1].Arguments); last != `{"id":9007199254740993,"next":9007199254740994}` {
		t.Errorf("arguments %s", last)
	}
	wantValue(t, run(t, p, host, `JSON.stringify(await s.get())`, ts...), `"{\"id\":9007199254740993,\"safe\":9007199254740991,\"neg\":-9007199254740993,\"big\":123456789012345678901234567890}"`)
}

func TestOddValues(t *testing.T) {
	p := testPool(t, nil)
	for _, c := range []struct{ code, value string }{
		{`return undefined`, "undefined"}, {`return null`, "null"}, {`return ""`, `""`},
		{`return {a: undefined, b: [undefined]}`, `{"b":[null]}`},
		{`return [NaN, Infinity, -Infinity, -0, 1e21, 0.1]`, `["NaN","Infinity","-Infinity",0,1e+21,0.1]`},
		{`const a = {}; a.self = a; return a`, `{"self":"[Circular]"}`},
		{`const s = {x: 1}; return [s, s]`, `[{"x":1},{"x":1}]`},
		{`return {f() {}, g: class A {}, s: Symbol('q')}`, `{"f":"[function f]","g":"[function A]","s":"[Symbol(q)]"}`},
		{`return new Date(0)`, `"1970-01-01T00:00:00.000Z"`}, {`return [new Date(NaN)]`, `["[Invalid Date]"]`},
		{`return [new Map([["a", 1]]), new Set([1, 2])]`, `[[["a",1]],[1,2]]`},
		{`return /a+/g`, `"/a+/g"`},
		{`return {e: new TypeError("m", {cause: 1})}`, `{"e":{"name":"TypeError","message":"m","cause":1}}`},
		{`return [new Uint8Array([104, 105]), new Uint8Array([1, 104, 105, 2]).subarray(1, 3), new Uint8Array([104, 105]).buffer]`,
			`[{"$binary":"aGk=","bytes":2},{"$binary":"aGk=","bytes":2},{"$binary":"aGk=","bytes":2}]`},
		{`return [new Float64Array([1.5, 2]), new Uint16Array([1, 2]), new BigInt64Array([5n])]`, `[[1.5,2],[1,2],[5]]`},
		{`return Object.assign(Object.create(null), {a: 1})`, `{"a":1}`},
		{`return [new String("s"), new Number(1), new Boolean(false)]`, `["s",1,false]`},
		{`return {toJSON() { return {b: 1} }}`, `{"b":1}`},
		{`return new Proxy({a: 1}, {})`, `{"a":1}`},
		{`return [1,,3]`, `[1,null,3]`},
		{`return Object.groupBy([1, 2, 3], x => x % 2 ? "odd" : "even")`, `{"odd":[1,3],"even":[2]}`},
	} {
		wantValue(t, run(t, p, nil, c.code), c.value)
	}
}

func TestBuiltIns(t *testing.T) {
	p := testPool(t, nil)
	for _, c := range []struct{ code, value string }{
		{`return [btoa("hi"), atob("aGk=")]`, `["aGk=","hi"]`},
		{`const e = new TextEncoder().encode("é😀\ud800"); return new TextDecoder().decode(e)`, `"é😀�"`},
		{`const u = new URL("../b?x=1#h", "https://Ex.com:443/a/c/d"); return [u.href, u.hostname, u.pathname, u.searchParams.get("x"), u.origin]`, `["https://ex.com/a/b?x=1#h","ex.com","/a/b","1","https://ex.com"]`},
		{`const u = new URL("https://a.b/"); u.searchParams.set("q", "a b&c"); return String(u)`, `"https://a.b/?q=a+b%26c"`},
		{`return [URL.canParse("nope"), new URLSearchParams({a: 1, b: "x y"}).toString(), [...new URLSearchParams("a=1&a=2")].length]`, `[false,"a=1\u0026b=x+y",2]`},
		{`return /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(crypto.randomUUID())`, `true`},
		{`const a = {d: new Date(0), m: new Map([[1, {x: 1}]])}; a.self = a; const b = structuredClone(a); return [b !== a, b.self === b, b.d.getTime(), b.m.get(1).x]`, `[true,true,0,1]`},
		{`return [(1234567.891).toLocaleString(), (5).toLocaleString()]`, `["1,234,567.891","5"]`},
		{`const {promise, resolve} = Promise.withResolvers(); setTimeout(resolve, 1, 9); return promise`, `9`},
		{`const t = setTimeout(() => { throw 1 }, 1); clearTimeout(t); await sleep(5); return "quiet"`, `"quiet"`},
		{`return await Array.fromAsync([Promise.resolve(1), 2])`, `[1,2]`},
		{`return [1, 2, 3].values().map(x => x * 2).filter(x => x > 2).toArray()`, `[4,6]`},
		{`return new Date(2024, 0, 1).toISOString()`, `"2024-01-01T00:00:00.000Z"`},
		{`return [typeof fetch, typeof require, typeof process, typeof module, typeof importScripts]`, `["undefined","undefined","undefined","undefined","undefined"]`},
		{`return ["a\ud800".isWellFormed(), RegExp.escape("a.b"), "x" instanceof RegExp, /a/ instanceof RegExp, new RegExp("a", "g").flags]`, `[false,"a\\.b",false,true,"g"]`},
	} {
		wantValue(t, run(t, p, nil, c.code), strings.ReplaceAll(c.value, `\u0026`, "&"))
	}
}

func TestConsole(t *testing.T) {
	p := testPool(t, nil)
	o := run(t, p, nil, `console.log("a", 1, {b: [2]}, null, undefined); console.info("i"); console.debug("d"); console.warn("w"); console.error(new Error("e")); console.table([{x: 1}]); console.assert(1 === 2, "no"); 1`)
	want := []string{`a 1 {"b":[2]} null undefined`, "i", "d", "[warn] w", `[error] {"name":"Error","message":"e"}`, `[{"x":1}]`, "[error] Assertion failed: no"}
	if !slices.Equal(o.Logs, want) {
		t.Errorf("logs %q, want %q", o.Logs, want)
	}
	o, err := p.Run(context.Background(), Request{Owner: "u", Code: `for (let i = 0; i < 100; i++) console.log("x".repeat(100)); 1`, Limits: Limits{MaxLogs: 1000}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, l := range o.Logs {
		total += len(l)
	}
	if total > 1100 || o.LogsCut < 80 || len(o.Logs) < 9 {
		t.Errorf("%d lines of %d bytes kept, %d cut", len(o.Logs), total, o.LogsCut)
	}
}

func TestQueriesReachTheHost(t *testing.T) {
	p := testPool(t, nil)
	host := &fakeHost{query: func(_ context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
		if name == "describe" {
			return nil, &HostError{Code: "not_found", Message: "no such tool"}
		}
		return json.RawMessage(fmt.Sprintf(`{"name":%q,"args":%s}`, name, args)), nil
	}}
	wantValue(t, run(t, p, host, `return [await codemode.tools(), await codemode.search("dns", {limit: 2}), await codemode.servers()]`),
		`[{"name":"tools","args":[]},{"name":"search","args":["dns",{"limit":2}]},{"name":"servers","args":[]}]`)
	o := run(t, p, host, `await codemode.describe("x")`)
	wantError(t, o, kindException, "no such tool")
	if len(o.Calls) != 0 {
		t.Errorf("queries are no calls: %+v", o.Calls)
	}
}

func TestParallelCallsAreBoundedAndInOrder(t *testing.T) {
	p := testPool(t, nil)
	var now, most atomic.Int32
	gate := make(chan struct{})
	host := &fakeHost{call: func(ctx context.Context, c HostCall) (json.RawMessage, error) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		if c.Seq <= 3 { // the first three meet: they do run at once
			if now.Load() == 3 {
				close(gate)
			}
			select {
			case <-gate:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return json.RawMessage(fmt.Sprintf(`{"structuredContent":{"seq":%d,"a":%s}}`, c.Seq, c.Arguments)), nil
	}}
	o, err := p.Run(context.Background(), Request{Owner: "u", Code: `const r = await Promise.all(Array.from({length: 20}, (_, i) => s.t({i}))); r.every((x, i) => x.seq === i + 1 && x.a.i === i)`, Tools: tools("s_t"), Limits: Limits{Parallel: 3}}, host)
	if err != nil {
		t.Fatal(err)
	}
	wantValue(t, o, "true")
	if most.Load() != 3 {
		t.Errorf("%d calls at once, want 3", most.Load())
	}
	if len(o.Calls) != 20 || o.Calls[19].Seq != 20 || o.Calls[19].Status != callOK || o.Calls[19].BytesOut == 0 {
		t.Errorf("records %+v", o.Calls)
	}
}

func TestBudgetOfCalls(t *testing.T) {
	p := testPool(t, nil)
	host := answers(map[string]string{"s_t": structured(`1`)})
	o, err := p.Run(context.Background(), Request{Owner: "u", Code: "for (let i = 0; i < 10; i++)\n await s.t()", Tools: tools("s_t"), Limits: Limits{MaxCalls: 3}}, host)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, o, kindCalls, "budget of 3 tool calls")
	if len(o.Calls) != 3 || o.Error.Line != 2 {
		t.Errorf("%d calls, line %d", len(o.Calls), o.Error.Line)
	}
	o = run(t, p, answers(map[string]string{"s_t": structured(`"` + strings.Repeat("x", 5<<20) + `"`)}), "await s.t()", tools("s_t")...)
	wantError(t, o, kindException, "ask for fewer rows")
	if o.Error.Code != "too_large" {
		t.Errorf("code %q", o.Error.Code)
	}
	o = run(t, p, host, "await s.t({a: 'x'.repeat(2e6)})", tools("s_t")...)
	wantError(t, o, kindException, "larger than")
}

func TestUnawaitedCallsAreWaitedFor(t *testing.T) {
	p := testPool(t, nil)
	host := &fakeHost{call: func(ctx context.Context, c HostCall) (json.RawMessage, error) {
		time.Sleep(50 * time.Millisecond)
		if c.Seq == 2 {
			return nil, &HostError{Code: "denied", Message: "not allowed"}
		}
		return json.RawMessage(structured(`1`)), nil
	}}
	o := run(t, p, host, "s.t(); s.t(); return 'end'", tools("s_t")...)
	wantValue(t, o, `"end"`)
	logs := strings.Join(o.Logs, "\n")
	if !strings.Contains(logs, "2 calls were not awaited") || !strings.Contains(logs, "not allowed") {
		t.Errorf("logs %q", o.Logs)
	}
	if len(o.Calls) != 2 || o.Calls[0].Status != callOK || o.Calls[1].Status != callError {
		t.Errorf("calls %+v", o.Calls)
	}
	// The deadline ends the wait, not the value.
	never := &fakeHost{call: func(ctx context.Context, c HostCall) (json.RawMessage, error) { <-ctx.Done(); return nil, ctx.Err() }}
	o, err := p.Run(context.Background(), Request{Owner: "u", Code: "s.t(); return 'end'", Tools: tools("s_t"), Limits: Limits{Wall: 2 * time.Second}}, never)
	if err != nil {
		t.Fatal(err)
	}
	wantValue(t, o, `"end"`)
	if len(o.Calls) != 1 || o.Calls[0].Status != callInFlight {
		t.Errorf("calls %+v", o.Calls)
	}
}

func TestRandomNumbersAreOfTheRun(t *testing.T) {
	p := testPool(t, nil)
	value := func(seed uint64) string {
		o, err := p.Run(context.Background(), Request{ID: "r", Owner: "u", Seed: seed, Start: 1, Code: "return [crypto.randomUUID(), crypto.randomUUID(), Math.random()]"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(o.Value)
	}
	if a, b := value(1), value(1); a != b {
		t.Errorf("one run, two sequences: %s %s", a, b)
	}
	if a, b := value(1), value(2); a == b {
		t.Errorf("two runs, one sequence: %s", a)
	}
}

// B097: code arrives as it was written; nothing in it is decoded once more.
func TestB097_CodeArrivesIntact(t *testing.T) {
	p := testPool(t, nil)
	wantValue(t, run(t, p, nil, "return 'a\\nb' + \"\\\"q\\\"\" + 'c\\\\d' + `t${1 + 1}\\n` + /\\d+\\.\\\\/.source"), `"a\nb\"q\"c\\dt2\n\\d+\\.\\\\"`)
	wantValue(t, run(t, p, nil, `return "&gt; &amp; \u201cx\u201d"`), `"&gt; &amp; “x”"`)
	host := &fakeHost{call: func(_ context.Context, c HostCall) (json.RawMessage, error) {
		return json.RawMessage(`{"structuredContent":` + string(c.Arguments) + `}`), nil
	}}
	wantValue(t, run(t, p, host, "return await s.t({ text: `line\n\t\"quoted\" \\\\ ${'$'}{x}` })", tools("s_t")...), `{"text":"line\n\t\"quoted\" \\ ${x}"}`)
}

// B082: an error has its name, its message and the user's line and column.
func TestB082_ErrorsSayWhatAndWhere(t *testing.T) {
	p := testPool(t, nil)
	for _, c := range []struct {
		code, name, part string
		line, column     int
	}{
		{"const a = 1\n\nawait codemode.nope()", "Error", "no tool codemode.nope", 3, 20},
		{"const a = 1\nconst b = 2\nconst = 3", "SyntaxError", `but found "="`, 3, 7},
		{"  null.x", "TypeError", "Cannot read property 'x'", 1, 8},
		{"const f = () => {\n  throw new RangeError('too far')\n}\nf()", "RangeError", "too far", 2, 9},
		{"const x: number = 1\nconst y: string = x.nope.deep\nreturn y", "TypeError", "deep", 2, 25},
		{"\n\n```js\nreturn nope\n```", "ReferenceError", "nope is not defined", 4, 8},
		{"async () => {\n  return nope\n}", "ReferenceError", "nope is not defined", 2, 10},
	} {
		o := run(t, p, nil, c.code)
		if o.Error == nil || o.Error.Name != c.name || !strings.Contains(o.Error.Message, c.part) || o.Error.Line != c.line || o.Error.Column != c.column {
			t.Errorf("%q: %+v, want %s with %q at %d:%d", c.code, *o.Error, c.name, c.part, c.line, c.column)
		}
	}
}

func TestJSONParseKeepsDigits(t *testing.T) {
	p := testPool(t, nil)
	for _, c := range []struct{ code, value string }{
		{`JSON.parse('{"id":9007199254740993,"n":[1,2.5,"x",null,true,-0]}')`, `{"id":9007199254740993,"n":[1,2.5,"x",null,true,0]}`},
		{`typeof JSON.parse(JSON.stringify({ id: 9007199254740993n })).id`, `"bigint"`},
		{`JSON.parse('{"a":1,"b":[1,2]}', (k, v) => typeof v === 'number' ? v * 2 : v)`, `{"a":2,"b":[2,4]}`},
		{`JSON.parse('{"a":1,"b":2}', (k, v) => k === 'a' ? undefined : v)`, `{"b":2}`},
		{`[JSON.parse('5'), JSON.parse(' "x" '), JSON.parse('null'), JSON.parse(5), JSON.parse(null), JSON.parse.name]`, `[5,"x",null,5,null,"parse"]`},
		{`(() => { try { JSON.parse('<html>') } catch (e) { return [e instanceof SyntaxError, e.message] } })()`, `[true,"JSON.parse: unexpected <html> at position 0 of <html>"]`},
		{`(() => { try { JSON.parse('{"a":') } catch (e) { return e.message } })()`, `"JSON.parse: the text ends too early"`},
		{`Object.keys(JSON.parse('{"__proto__":1}'))`, `["__proto__"]`},
	} {
		wantValue(t, run(t, p, nil, "return "+c.code), c.value)
	}
}
