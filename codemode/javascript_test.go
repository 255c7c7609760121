package codemode

import (
	"strings"
	"testing"
)

// feature is one part of the language or its library, shown by a script that
// has value as its result, or fails with an error that says part.
type feature struct {
	name, code, value string
	part              string // of the error; empty: it works
}

// features is what docs/code-mode.md says works, and what does not.
var features = []feature{
	{name: "async functions, top-level await", code: "const f = async x => x + 1; return await f(1)", value: "2"},
	{name: "Promise.all, allSettled, any, race, try, withResolvers", code: "return [await Promise.all([1]), (await Promise.allSettled([Promise.reject(1)]))[0].status, await Promise.any([2]), await Promise.race([3]), await Promise.try(() => 4), typeof Promise.withResolvers().resolve]", value: `[[1],"rejected",2,3,4,"function"]`},
	{name: "generators, iterators, spread, destructuring with defaults", code: "function* g() { yield* [1, 2] } const [a, ...b] = g(); const { c = 3, ...d } = { e: 4 }; return [a, b, c, d]", value: `[1,[2],3,{"e":4}]`},
	{name: "async generators, for await", code: "async function* g() { yield 1; yield 2 } const o = []; for await (const x of g()) o.push(x); return o", value: "[1,2]"},
	{name: "classes: private members, static blocks, accessors", code: "class A { #n = 1; static s; static { A.s = 2 } get n() { return this.#n } static has(o) { return #n in o } } return [new A().n, A.s, A.has(new A())]", value: "[1,2,true]"},
	{name: "optional chaining, ??, ??=, **, numeric separators", code: "let a; a ??= 2; return [null?.x, a ** 10, 1_000, undefined ?? 5]", value: "[null,1024,1000,5]"},
	{name: "labels, switch, try/finally, optional catch binding", code: "o: for (;;) { for (;;) break o } try { throw 1 } catch { return 'c' } finally { }", value: `"c"`},
	{name: "tagged templates, String.raw", code: "const t = (s, ...v) => s.raw.join('|') + v; return [t`a${1}b`, String.raw`\\n`]", value: `["a|b1","\\n"]`},
	{name: "using, await using", code: "const log = []; { using a = { [Symbol.dispose]() { log.push('a') } } } { await using b = { async [Symbol.asyncDispose]() { log.push('b') } } } return log", value: `["a","b"]`},
	{name: "decorators", code: "const log = []; function d(v, c) { log.push(c.name) } class A { @d m() {} } return log", value: `["m"]`},
	{name: "BigInt, BigInt64Array", code: "return [2n ** 64n, new BigInt64Array([5n])[0]]", value: "[18446744073709551616,5]"},
	{name: "Map, Set, WeakMap, WeakRef, Symbol, Proxy, Reflect", code: "return [new Map([[1, 2]]).get(1), new WeakRef({ a: 1 }).deref().a, new Proxy({}, { get: () => 7 }).x, Reflect.has({ a: 1 }, 'a')]", value: "[2,1,7,true]"},
	{name: "set methods", code: "return [...new Set([1, 2]).union(new Set([3])), ...new Set([1, 2]).intersection(new Set([2]))]", value: "[1,2,3,2]"},
	{name: "Object.groupBy, Map.groupBy, Object.fromEntries, hasOwn", code: "return [Object.groupBy([1, 2], x => x % 2 ? 'odd' : 'even'), Map.groupBy([1], x => x).get(1), Object.fromEntries([['a', 1]]), Object.hasOwn({ b: 1 }, 'b')]", value: `[{"odd":[1],"even":[2]},[1],{"a":1},true]`},
	{name: "array: at, findLast, flat, flatMap, toSorted, toSpliced, with, fromAsync", code: "return [[1, 2].at(-1), [1, 2, 3].findLast(x => x < 3), [[1], [2]].flat(), [3, 1].toSorted(), [1, 2].toSpliced(0, 1), [1, 2].with(0, 9), await Array.fromAsync([Promise.resolve(1)])]", value: "[2,2,[1,2],[1,3],[2],[9,2],[1]]"},
	{name: "iterator helpers", code: "return [1, 2, 3, 4].values().filter(x => x % 2).map(x => x * 10).take(2).toArray()", value: "[10,30]"},
	{name: "string: replaceAll, matchAll, padStart, isWellFormed, normalize, localeCompare", code: "return ['a-a'.replaceAll('a', 'b'), [...'a1b2'.matchAll(/\\d/g)].length, '7'.padStart(3, '0'), 'x'.isWellFormed(), 'a'.localeCompare('b')]", value: `["b-b",2,"007",true,-1]`},
	{name: "regular expressions: named groups, lookbehind, flags s u y, \\p{…}", code: "return ['2024-05'.replace(/(?<y>\\d+)-(?<m>\\d+)/, '$<m>/$<y>'), /(?<=a)b/.test('ab'), /a.b/s.test('a\\nb'), 'äß1'.replace(/\\p{L}/gu, 'x')]", value: `["05/2024",true,true,"xx1"]`},
	{name: "regular expressions: flag v", code: "return /[\\p{L}--[a-z]]/v.test('A')", part: "not available here"},
	{name: "regular expressions: flag d", code: "return /a/d.exec('a').indices", part: "not available here"},
	{name: "Date: ISO, offsets, English dates; the zone is UTC", code: "return [new Date('2024-01-02T03:04:05+02:00').toISOString(), new Date('Jan 5, 2024').getTime(), new Date(2024, 0, 1).toISOString()]", value: `["2024-01-02T01:04:05.000Z",1704412800000,"2024-01-01T00:00:00.000Z"]`},
	{name: "toLocaleString, Intl.NumberFormat, Intl.DateTimeFormat: English, UTC", code: "return [(1234567.891).toLocaleString(), new Date(0).toLocaleDateString('en-US', { dateStyle: 'medium' }), new Intl.NumberFormat('en-US', { style: 'currency', currency: 'USD' }).format(5)]", value: `["1,234,567.891","Jan 1, 1970","$5.00"]`},
	{name: "JSON: order, big integers, rawJSON", code: "return [JSON.stringify({ b: 1, a: [undefined, () => 1] }), JSON.stringify(JSON.parse('{\"id\":9007199254740993}'))]", value: `["{\"b\":1,\"a\":[null,null]}","{\"id\":9007199254740993}"]`},
	{name: "structuredClone, atob, btoa, queueMicrotask, setTimeout, sleep", code: "const a = { d: new Date(0) }; a.self = a; const b = structuredClone(a); await sleep(1); return [b.self === b, atob(btoa('hi'))]", value: `[true,"hi"]`},
	{name: "URL, URLSearchParams", code: "const u = new URL('../b?x=1', 'https://a.example/c/d/'); u.searchParams.set('y', 'a b'); return u.href", value: `"https://a.example/c/b?x=1&y=a+b"`},
	{name: "TextEncoder, TextDecoder (UTF-8), Uint8Array to and from base64", code: "return [new TextDecoder().decode(new TextEncoder().encode('é')), new Uint8Array([104, 105]).toBase64()]", value: `["é","aGk="]`},
	{name: "crypto.randomUUID, Math.random: seeded for each run", code: "return [crypto.randomUUID().length, Math.random() < 1]", value: "[36,true]"},
	{name: "Error cause, AggregateError, stack", code: "try { throw new Error('a', { cause: 1 }) } catch (e) { return [e.cause, typeof e.stack, new AggregateError([1]).errors] }", value: `[1,"string",[1]]`},
	{name: "typed arrays, DataView, ArrayBuffer", code: "const v = new DataView(new ArrayBuffer(4)); v.setInt16(0, -2); return [v.getUint8(0), [...new Float64Array([1.5])]]", value: "[255,[1.5]]"},
	{name: "TypeScript: types, interfaces, generics, enums, satisfies, parameter properties", code: "enum E { A = 3 } interface I { n: number } class C { constructor(private n: number) {} get(): number { return this.n } } const x = { n: E.A } satisfies I; return new C(x.n).get() as number", value: "3"},
	{name: "TypeScript: namespace", code: "namespace N { export const a = 1 } return N.a", part: "namespace is not available"},
	{name: "TSX, JSX", code: "return <div className=\"a\">hi</div>", part: "JSX is not available"},
	{name: "import, export from", code: "import fs from 'fs'", part: "import is not available"},
	{name: "fetch, XMLHttpRequest, WebSocket", code: "return await fetch('https://a.example')", part: "no network"},
	{name: "require, process, Buffer", code: "return Buffer.from('a')", part: "use TextEncoder"},
	{name: "eval, new Function", code: "return new Function('return 1')()", part: "code from text is switched off"},
	{name: "setInterval", code: "setInterval(() => 1, 10)", part: "use a loop with await sleep"},
	{name: "other locales, time zones and parts of Intl", code: "return new Intl.NumberFormat('de').format(1)", part: "not available here"},
	{name: "Temporal", code: "return Temporal.Now.instant()", part: "use Date"},
	{name: "SharedArrayBuffer, Atomics, performance", code: "return performance.now()", part: "use Date.now()"},
}

func TestLanguageFeatures(t *testing.T) {
	p := testPool(t, nil)
	for _, f := range features {
		t.Run(f.name, func(t *testing.T) {
			o := run(t, p, nil, f.code)
			if f.value != "" {
				wantValue(t, o, f.value)
				return
			}
			if o.Error == nil || !strings.Contains(o.Error.Message, f.part) {
				t.Errorf("%s %+v, want an error with %q", o.Value, o.Error, f.part)
			}
		})
	}
}

// TestDocumentedFeatures keeps the table of docs/code-mode.md true.
func TestDocumentedFeatures(t *testing.T) {
	var b strings.Builder
	b.WriteString("| what | works |\n|---|---|\n")
	for _, f := range features {
		works := "yes"
		if f.value == "" {
			works = "no"
			if f.part != "" {
				works += ": … " + f.part + " …"
			}
		}
		b.WriteString("| " + strings.ReplaceAll(f.name, "|", "\\|") + " | " + works + " |\n")
	}
	keepTable(t, "<!-- features: made by TestDocumentedFeatures -->\n", "<!-- /features -->", b.String())
}
