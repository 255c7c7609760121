package codemode

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
)

// author writes scripts of a small grammar; each byte of choices decides one
// turn, so that the fuzzer varies programs and not letters.
type author struct {
	choices []byte
	room    int // words left
	sync    int // functions around that may not await
	attacks []attack
}

func (a *author) pick(n int) int {
	if len(a.choices) == 0 {
		return 0
	}
	c := a.choices[0]
	a.choices = a.choices[1:]
	return int(c) % n
}

func (a *author) one(of ...string) string { return of[a.pick(len(of))] }

// statements are a few, deeper ones fewer.
func (a *author) statements(depth int) string {
	var b strings.Builder
	for n := 1 + a.pick(4); n > 0 && a.room > 0; n-- {
		b.WriteString(a.statement(depth))
		b.WriteString(a.one(";\n", ";\r\n", " ;/* x */ "))
	}
	return b.String()
}

// plain are statements of a function that may not await, fresh those of one
// that may.
func (a *author) plain(depth int) string {
	a.sync++
	defer func() { a.sync-- }()
	return a.statements(depth)
}

func (a *author) fresh(depth int) string {
	defer func(n int) { a.sync = n }(a.sync)
	a.sync = 0
	return a.statements(depth)
}

// await is the word, where it may stand.
func (a *author) await() string {
	if a.sync > 0 {
		return ""
	}
	return "await "
}

func (a *author) function(depth int) string {
	if a.pick(2) == 0 {
		return "async function" + a.one(" ", "* ") + a.one("x", "y", "f") + "(x, ...y) {" + a.fresh(depth) + "}"
	}
	return "function" + a.one(" ", "* ") + a.one("x", "y", "f") + "(x, ...y) {" + a.plain(depth) + "}"
}

func (a *author) name() string {
	return a.one("x", "y", "crm", "s", "codemode", "Object", "Array", "Promise", "Error", "globalThis", "console", "JSON", "undefined", "then", "__proto__")
}

func (a *author) statement(depth int) string {
	if a.room--; depth > 4 || a.room < 0 {
		return a.expression(depth)
	}
	in := depth + 1
	switch a.pick(40) {
	case 0:
		return a.one("var x", "var y", "var s", "var {a, ...b}", "var [p, , q]", "globalThis.crm", "const c"+fmt.Sprint(a.room)) + " = " + a.expression(in)
	case 1:
		return "if (" + a.expression(in) + ") {" + a.statements(in) + "} else " + a.statement(in)
	case 2:
		return "for (let i = 0; i < " + a.one("3", "1e3", "1e9", "Infinity") + "; i++) {" + a.statements(in) + "}"
	case 3:
		return a.one("for (const x of ", strings.TrimSuffix("for "+a.await(), " ")+" (const x of ", "for (const x in ") + a.expression(in) + ") {" + a.statements(in) + "}"
	case 4:
		return "try {" + a.statements(in) + "} catch (e) {" + a.statements(in) + "} finally {" + a.statements(in) + "}"
	case 5:
		return a.function(in)
	case 6:
		return "class " + a.one("A", "B extends Array", "C extends Promise", "D extends Error", "E extends null") + " { #p = 1" +
			"; get then() {" + a.plain(in) + " } [Symbol." + a.one("iterator", "asyncIterator", "toPrimitive", "species", "dispose") + "]() {" + a.plain(in) + "} }"
	case 7:
		return a.one("return ", "throw ", a.await(), "void ") + a.expression(in)
	case 8:
		return "Object.defineProperty(" + a.name() + a.one("", ".prototype") + ", '" + a.name() + "', {get() {" + a.plain(in) + "}, configurable: true})"
	case 9:
		return a.name() + a.one(".a = ", ".prototype = ", ".then = ", "[Symbol.iterator] = ", ".b ??= ", ".x **= ", ".length = ") + a.expression(in)
	case 10:
		return a.one("type T = ", "let z: ", "declare const w: ") + a.one("number", "T<T<T>>", "string extends infer U ? U : never", "'a' | 'b'")
	case 11:
		return "setTimeout(() => {" + a.plain(in) + "}, " + a.one("0", "1", "1e9", "-1", "NaN") + ")"
	case 12:
		return "while (" + a.expression(in) + ") { " + a.statements(in) + a.one("break", "continue", "") + " }"
	case 13: // a piece of a known attack
		lines := strings.Split(a.attacks[a.pick(256)*a.pick(8)%len(a.attacks)].code, "\n")
		line := lines[a.pick(len(lines))]
		return line[:min(len(line), 400)]
	case 14:
		return "{ using r = {[Symbol.dispose]() {" + a.plain(in) + "}}; " + a.statements(in) + "}"
	case 15:
		return "console." + a.one("log", "table", "dir", "error", "assert", "trace") + "(" + a.expression(in) + ", " + a.expression(in) + ")"
	}
	return a.expression(depth)
}

func (a *author) expression(depth int) string {
	if a.room--; depth > 6 || a.room < 0 {
		return a.one("1", "x", "null", "undefined", "'a'", "[]", "({})", "1n", "NaN", "this")
	}
	in := depth + 1
	switch a.pick(22) {
	case 0:
		return a.one(a.await(), "", "void ", "typeof ") + a.one("s.t", "s.slow", "s.proto", "s.forged", "crm.list", "codemode.call", "codemode.raw", "codemode.s_t", "s.nothing", "codemode.search", "codemode.describe", "codemode.tools", "codemode.paginate") + "(" + a.expression(in) + a.one(")", ", "+a.expression(in)+")")
	case 1:
		member := a.one("a", "then", "toJSON", "__proto__", "[Symbol.iterator]", "isError", "content") + ": " + a.expression(in)
		if a.pick(2) == 0 {
			member = a.one("get a()", "toJSON()", "then(f)", "toString()", "*[Symbol.iterator]()") + " {" + a.plain(in) + "}"
		}
		return "({" + member + ", ...(" + a.expression(in) + ")})"
	case 2:
		return "[" + a.expression(in) + ", , ..." + a.expression(in) + "]"
	case 3:
		return "(" + a.expression(in) + ")" + a.one(" + ", " ** ", " === ", " ?? ", " && ", ", ", " in ", " instanceof ", " << ", " < ") + "(" + a.expression(in) + ")"
	case 4:
		if a.pick(2) == 0 {
			return "(" + a.one("async () => ", "async x => ", "async function* () ") + "{" + a.fresh(in) + "})"
		}
		return "(" + a.one("() => ", "function () ", "function* () ") + "{" + a.plain(in) + "})"
	case 5:
		return "new Proxy(" + a.expression(in) + ", {" + a.one("get", "has", "ownKeys", "apply", "construct", "set", "getPrototypeOf", "defineProperty") + "(...x) {" + a.plain(in) + "}})"
	case 6:
		return "Promise." + a.one("all", "race", "any", "allSettled", "resolve", "reject", "try", "withResolvers") + "(" + a.expression(in) + ")"
	case 7:
		return "new " + a.one("Promise", "Array", "Map", "Set", "Error", "Date", "RegExp", "Uint8Array", "ArrayBuffer", "WeakRef", "AggregateError", "URL", "TextEncoder") + "(" + a.expression(in) + ")"
	case 8:
		return a.one("/(a+)+b/", "/(?=a)(a+)+b/", "/\\p{L}+/u", "/(?<n>x)\\k<n>/y", "/(a{1,100}){1,100}/") + a.one(".test(", ".exec(", "[Symbol.replace](") + a.expression(in) + ")"
	case 9:
		return "JSON." + a.one("stringify", "parse") + "(" + a.expression(in) + ", (k, v) => {" + a.plain(in) + "})"
	case 10:
		return "'" + a.one("ab", "\\ud800", "}{", "\\u2028", "{\"ok\":true}") + "'." + a.one("repeat", "padEnd", "split", "replaceAll", "normalize", "at", "concat") + "(" + a.one("3", "2 ** 28", "-1", "1e9", a.expression(in)) + ")"
	case 11:
		return a.one("Object", "Reflect") + "." + a.one("keys", "entries", "assign", "freeze", "setPrototypeOf", "getOwnPropertyDescriptors", "ownKeys", "apply", "construct", "fromEntries", "groupBy") + "(" + a.expression(in) + ", " + a.expression(in) + ")"
	case 12:
		return "`${" + a.expression(in) + "}`"
	case 13:
		return a.name() + a.one("", ".constructor", ".constructor('return 1')()", ".prototype", "[Symbol.iterator]()", ".length", "?.a?.[0]", ".then(x => x)")
	case 14:
		return "Array.from({length: " + a.one("3", "1e6", "2 ** 32", "-1") + "}, (_, i) => {" + a.plain(in) + "})." + a.one("map", "sort", "flat", "reduce", "toSorted", "flatMap", "indexOf") + "(" + a.expression(in) + ")"
	case 15:
		return a.one("structuredClone", "atob", "btoa", "eval", "Function", "sleep", "parseInt", "BigInt", "Symbol", "String", "encodeURIComponent") + "(" + a.expression(in) + ")"
	case 16:
		return "(" + a.one("2n ** 64n", "10n ** 10000n", "-1n", "9007199254740993", "1e999") + ")"
	}
	return a.one("1", "x", "null", "'text'", "[1, 2]", "({a: 1})", "1n", "globalThis", "this", "(-0)")
}

// FuzzScripts runs programs that nobody wrote through a real worker. Each ends
// in time, with a value or an error that says something, calls nothing that it
// may not, and the next good run is fine.
func FuzzScripts(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		seed := make([]byte, 20+random.IntN(200))
		for i := range seed {
			seed[i] = byte(random.Uint32())
		}
		f.Add(seed)
	}
	list := attacks(f)
	p := testPool(f, func(c *config.Code) {
		c.Workers, c.MaxWorkers, c.MemoryMB, c.CPUTime, c.WallTime = 1, 2, 96, 300*time.Millisecond, time.Minute
	})
	host := attackedHost()
	var mu sync.Mutex
	ends := map[string]int{}
	f.Cleanup(func() { f.Logf("ends: %v", ends) })
	f.Fuzz(func(t *testing.T, choices []byte) {
		a := &author{choices: choices, room: 60, attacks: list}
		code := a.statements(0)
		// A call that hangs, or a long sleep, ends with this.
		const wall = 2 * time.Second
		o, err := p.Run(context.Background(), Request{Owner: "fuzz", Code: code, Tools: attackedTools(), Limits: Limits{Wall: wall}}, host)
		if err != nil {
			t.Fatalf("%v:\n%s", err, code)
		}
		if err := (attack{}).check(o); err != nil {
			t.Fatalf("%v:\n%s", err, code)
		}
		if o.Wall > wall+30*time.Second {
			t.Fatalf("it ended after %s:\n%s", o.Wall, code)
		}
		good, err := p.Run(context.Background(), Request{Owner: "good", Code: "return (await s.t()).n + 1", Tools: attackedTools()}, host)
		if err != nil || good.Error != nil || string(good.Value) != "2" {
			t.Fatalf("the next run: %+v %v, after\n%s", good, err, code)
		}
		if _, err := json.Marshal(o); err != nil {
			t.Fatalf("an outcome that is no JSON: %v:\n%s", err, code)
		}
		kind := "ok"
		if o.Error != nil {
			kind = o.Error.Kind
			if kind == kindEngine {
				t.Logf("the engine failed: %s\n%s", o.Error.Message, code)
			}
		}
		mu.Lock()
		ends[kind]++
		mu.Unlock()
	})
}
