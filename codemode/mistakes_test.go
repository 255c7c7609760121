package codemode

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
)

// mistakes are scripts in which an await or a call is missing where the language
// itself says nothing. Each is an error before the wrong value is used, or the
// answer has a hint that names the place.
var mistakes = []struct {
	name, code string
	err        string // part of the error
	hint       string // part of the console output, with a value
}{
	{name: "keys of a promise", code: "return Object.keys(crm.list())", err: "the promise of crm.list was given to Object.keys"},
	{name: "entries of a promise", code: "const r = crm.list(); for (const [k, v] of Object.entries(r)) console.log(k)", err: "write await crm.list(…)"},
	{name: "values of a promise", code: "return Object.values(codemode.crm_list())", err: "write await codemode.crm_list(…)"},
	{name: "assign from a promise", code: "return Object.assign({}, crm.list())", err: "given to Object.assign"},
	{name: "spread of a promise", code: "const r = crm.list()\nreturn {...r, x: 1}", err: "taken for an object, which has no fields"},
	{name: "spread of the promise of an own function", code: "const f = async () => ({a: 1}); return {...f()}", err: "a promise was taken for an object"},
	{name: "for in over a promise", code: "for (const k in crm.list()) console.log(k)", err: "taken for an object"},
	{name: "condition, call", code: "if (crm.list({id: 1})) return 'there'; return 'not there'", err: "used as a condition, which is always true"},
	{name: "condition, call by name", code: "return codemode.call('crm_list') ? 1 : 2", err: "used as a condition"},
	{name: "condition, negated", code: "while (!crm.list()) {}", err: "used as a condition"},
	{name: "condition, and", code: "return crm.list() && 'there'", err: "used as a condition"},
	{name: "condition, own async function", code: "async function admin(u) { return false }\nif (admin(1)) return 'deleted'", err: "a promise was used as a condition"},
	{name: "condition, own function that gives a promise", code: "const get = id => crm.list({id})\nif (get(1)) return 'there'", err: "the promise of crm.list was used as a condition"},
	{name: "condition, method", code: "class C { async ok() { return false } }\nreturn new C().ok() ? 1 : 2", err: "used as a condition"},
	{name: "condition, Boolean", code: "return Boolean(crm.list())", err: "used as a condition"},
	{name: "condition, variable", code: "const r = crm.list()\nif (r) return 'there'", hint: "line 2: the promise of crm.list was used as a condition, which is always true: an await is missing, write await crm.list(…)"},
	{name: "condition, variable of an own function", code: "async function admin(u) { return false }\nconst ok = admin(1)\nif (ok) return 'deleted'", hint: "line 3: a promise was used as a condition"},
	{name: "compared, call", code: "return crm.list() === 'x'", err: "compared, which is never equal"},
	{name: "compared with null", code: "return crm.list() == null", err: "compared"},
	{name: "compared, variable", code: "let r = 0\nr = crm.list()\nreturn r !== 'x'", hint: "line 3: the promise of crm.list was compared"},
	{name: "switch", code: "switch (crm.list()) { case 1: return 1 }", err: "compared"},
	{name: "in", code: "const r = crm.list(); return 'n' in r", hint: "looked for in a list"},
	{name: "is a list", code: "const r = crm.list(); return Array.isArray(r) ? r : []", hint: "asked what it is"},
	{name: "looked for", code: "const r = crm.list(); return [1, 2].includes(r)", hint: "looked for in a list"},
	{name: "async filter", code: "return [1, 2].filter(async x => false)", err: "the callback of filter gave a promise, which counts as true"},
	{name: "filter by a tool", code: "return [1, 2].filter(id => crm.list({id}))", err: "the callback of filter gave a promise (of crm.list)"},
	{name: "async some, every, find", code: "return [1].some(async x => false) || [1].find(async x => false)", err: "the callback of some"},
	{name: "filter by a tool itself", code: "return [{id: 1}].filter(crm.list)", err: "the callback of filter gave a promise"},
	{name: "filter by an own function", code: "const ok = async x => false\nreturn [1].filter(ok)", err: "the callback of filter"},
	{name: "filter by a function with a block", code: "return [1].findIndex(id => { const r = crm.list({id}); return r })", err: "the callback of findIndex gave a promise (of crm.list)"},
	{name: "filter by a part of a condition", code: "return [1].every(id => id > 0 && crm.list({id}))", err: "the callback of every"},
	{name: "condition, part of one", code: "const n = 1; if (n && crm.list()) return 'there'", err: "used as a condition"},
	{name: "async filter of an iterator", code: "return [1].values().filter(async x => false).toArray()", err: "the callback of filter"},
	{name: "map of a promise", code: "return crm.list().map(x => x)", err: "write (await crm.list(…)).map"},
	{name: "text", code: "return `${crm.list()}`", err: "used as text or a number"},
	{name: "sum", code: "return 1 + crm.list()", err: "used as text or a number"},
	{name: "length of a tool", code: "return crm.list.length", err: "crm.list is a function without .length"},
	{name: "answer that nobody awaits", code: "crm.list()\nawait sleep(30)\nreturn 'done'", hint: "the answer of crm.list (line 1) was never awaited, so nothing was done with it"},
	{name: "call that nobody awaits", code: "crm.list()\nreturn 'done'", hint: "1 call was not awaited (crm.list)"},
	{name: "async forEach", code: "let n = 0;\n[1, 2].forEach(async id => { n += (await crm.list({id})).n })\nreturn n", hint: "forEach does not wait for async functions"},
	{name: "function in the value", code: "return {users: crm.list, n: 1}", hint: "the value holds functions that were not called (crm.list)"},
	{name: "function deep in the value", code: "return {n: 1, a: [{f: async () => 1}]}", hint: "functions that were not called (f)"},
}

func TestMissingAwaitsAreNeverSilent(t *testing.T) {
	p := testPool(t, nil)
	for _, lowered := range []string{"", "const typed: number = 1;"} { // the second goes through esbuild
		for _, m := range mistakes {
			t.Run(m.name+" "+lowered, func(t *testing.T) {
				o := run(t, p, answers(map[string]string{"crm_list": structured(`{"n":1}`)}), lowered+m.code, tools("crm_list")...)
				if m.err != "" {
					wantError(t, o, kindException, m.err)
					if o.Error != nil && o.Error.Line == 0 {
						t.Errorf("no line: %s", o.Error.Message)
					}
					return
				}
				if o.Error != nil || !strings.Contains(strings.Join(o.Logs, "\n"), m.hint) {
					t.Errorf("value %s, error %v, console %q; want %q", o.Value, o.Error, o.Logs, m.hint)
				}
			})
		}
	}
}

// TestPromisesUsedAsPromises must neither fail nor be hinted at.
func TestPromisesUsedAsPromises(t *testing.T) {
	p := testPool(t, nil)
	host := &fakeHost{call: func(_ context.Context, c HostCall) (json.RawMessage, error) {
		return json.RawMessage(structured(`{"n":1}`)), nil
	}}
	for name, code := range map[string]string{
		"cache":               "const cache = {}\nconst get = id => cache[id] ?? (cache[id] = crm.list({id}))\nreturn (await Promise.all([get(1), get(1)])).length",
		"cache with if":       "let going\nfunction get() { if (going) return going; going = crm.list(); return going }\nreturn (await Promise.all([get(), get()])).length",
		"cache with in":       "const going = {}\nconst get = id => { if (!(id in going)) going[id] = crm.list({id}); return going[id] }\nreturn (await Promise.all([get(1), get(1)])).length",
		"started early":       "const a = crm.list(), b = crm.list()\nreturn (await a).n + (await b).n",
		"returned":            "const r = crm.list()\nreturn r",
		"inside the value":    "const a = crm.list(), b = crm.list()\nreturn Object.keys({a: await a, b: await b}).length",
		"part of the value":   "return {a: crm.list(), b: [crm.list()]}",
		"then":                "let n\nawait crm.list().then(r => { n = r.n })\nreturn n + 1",
		"race":                "const r = await Promise.race([crm.list(), crm.list()])\nreturn r.n + 1",
		"allSettled":          "return (await Promise.allSettled([crm.list(), crm.list()])).length",
		"filter by awaited":   "const keep = await Promise.all([1, 2].map(async x => x > 1))\nreturn [1, 2].filter((x, i) => keep[i])[0]",
		"filter by an object": "return [1, 2].filter(x => ({})).length",
		"awaited condition":   "if (await crm.list()) return 2",
		"sync of such a name": "const o = {list: () => false}\nreturn o.list() ? 1 : 2",
		"spread of a value":   "return Object.keys({...(await crm.list()), ...null, ...undefined, ...[1]}).length",
		"own filter":          "class L { async filter(f) { return (await f(1)) ? 2 : 1 } }\nreturn new L().filter(async x => true)",
		"predicates":          "const a = [1, 2, 3]; return a.find(x => x > 1) + a.findIndex(x => x > 9) + (a.some(x => x > 2) && a.every(x => x > 0) ? 1 : 0) + a.findLast(x => x < 2) + a.findLastIndex(x => x === 1) - 1",
		"filter of text":      "return Array.prototype.filter.call('abc', c => c !== 'b').length",
		"holes":               "return [1, , 3].filter(() => true).length",
	} {
		t.Run(name, func(t *testing.T) {
			o := run(t, p, host, code, tools("crm_list")...)
			switch {
			case o.Error != nil:
				t.Errorf("%s (line %d)", o.Error.Message, o.Error.Line)
			case len(o.Logs) > 0 && !(name == "race" && strings.Contains(o.Logs[0], "1 call was still under way at the end (crm.list)")):
				t.Errorf("a hint: %q", o.Logs)
			case name != "returned" && name != "part of the value" && string(o.Value) != "2":
				t.Errorf("value %s", o.Value)
			}
		})
	}
}
