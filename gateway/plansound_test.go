package gateway_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// odd is what the calls of the scripts below answer: whoever takes a stand-in
// for an answer gets nearly everything wrong.
const odd = `{"ok":false,"zero":0,"empty":"","none":null,"list":[],"pair":[1,2],"yes":true,"n":7,"f":1.0,"s":"text","big":9007199254740993,"obj":{"then":1,"deep":{"x":0}},"then":5}`

// tricky scripts all begin with the answer r of a planned call. Those that look
// at it have a first plan of one step; the others of as many as are given.
var tricky = []struct {
	steps int
	code  string
}{
	// Truth.
	{1, `if (r.ok) await s.kill({id: 'wrong'}); else await s.kill({id: 'right'})`},
	{1, `await s.kill({id: r.zero ? 'wrong' : 'right'})`},
	{1, `if (!r.none) await s.kill({id: 'right'})`},
	{1, `r.ok && await s.kill({id: 'wrong'})`},
	{1, `r.yes || await s.kill({id: 'wrong'})`},
	{1, `await s.kill({id: r.empty || 'right'})`},
	{1, `await s.kill({id: r.none ?? 'right'})`},
	{1, `await s.kill({id: String(r.none?.x)})`},
	{1, `await s.kill({id: String(r?.n)})`},
	{1, `await s.kill({id: String(r.list?.[0])})`},
	{1, `let i = 0; while (r.ok) { if (i++ > 3) break; await s.kill({id: 'wrong'}) }`},
	{2, `let i = 0; do { await s.kill({id: 'once'}) } while (r.zero && i++ < 3)`},
	{1, `for (let i = 0; r.ok && i < 3; i++) await s.kill({id: 'wrong'})`},
	{1, `for (let i = 0; i < r.zero; i++) await s.kill({id: 'wrong'})`},
	{1, `let x = r.ok; x ||= 'right'; await s.kill({id: x})`},
	{1, `let x = r.none; x ??= 'right'; await s.kill({id: x})`},
	{1, `let x = r.yes; x &&= 'right'; await s.kill({id: x})`},
	{1, `await s.kill({id: Boolean(r.ok) ? 'wrong' : 'right'})`},
	{1, `await s.kill({id: !!r.list === true ? 'right' : 'wrong'})`},
	{1, `const t = x => x ? 'wrong' : 'right'; await s.kill({id: t(r.ok)})`},
	// Kinds and identity.
	{1, `await s.kill({id: typeof r.n})`},
	{1, `const v = r.none; await s.kill({id: typeof v})`},
	{1, `await s.kill({id: typeof r === 'object' ? 'right' : 'wrong'})`},
	{1, `await s.kill({id: r.n === 7 ? 'right' : 'wrong'})`},
	{1, `await s.kill({id: r.n !== 7 ? 'wrong' : 'right'})`},
	{1, `await s.kill({id: r.none == null ? 'right' : 'wrong'})`},
	{1, `await s.kill({id: r.none == undefined ? 'right' : 'wrong'})`},
	{1, `await s.kill({id: Object.is(r.n, 7) ? 'right' : 'wrong'})`},
	{1, `await s.kill({id: Array.isArray(r.list) ? 'right' : 'wrong'})`},
	{1, `await s.kill({id: r.obj instanceof Object ? 'right' : 'wrong'})`},
	{1, `await s.kill({id: r.list instanceof Array ? 'right' : 'wrong'})`},
	{1, `switch (r.s) { case 'text': await s.kill({id: 'right'}); break; default: await s.kill({id: 'wrong'}) }`},
	{1, `switch ('text') { case r.s: await s.kill({id: 'right'}); break; default: await s.kill({id: 'wrong'}) }`},
	{1, `switch (true) { case r.ok: await s.kill({id: 'wrong'}); break; default: await s.kill({id: 'right'}) }`},
	{1, `await s.kill({id: 'n' in r ? 'right' : 'wrong'})`},
	{1, `await s.kill({id: Object.hasOwn(r, 'q') ? 'wrong' : 'right'})`},
	{1, `await s.kill({id: r.hasOwnProperty('q') ? 'wrong' : 'right'})`},
	{1, `await s.kill({id: Object.keys(r).length > 3 ? 'right' : 'wrong'})`},
	{1, `await s.kill({id: Number.isInteger(r.n) ? 'right' : 'wrong'})`},
	{1, `await s.kill({id: isNaN(r.s) ? 'right' : 'wrong'})`},
	{1, `await s.kill({id: r.constructor === Object ? 'right' : 'wrong'})`},
	// Lists, maps and their callbacks.
	{1, `await s.kill({id: [1, 7].includes(r.n) ? 'right' : 'wrong'})`},
	{1, `await s.kill({id: 'i' + [7].indexOf(r.n)})`},
	{1, `await s.kill({id: 'i' + [r.n].indexOf(7)})`},
	{1, `await s.kill({id: [r.n, 1].includes(7) ? 'right' : 'wrong'})`},
	{1, `for (const x of ['a', 'b'].filter(() => r.ok)) await s.kill({id: x})`},
	{1, `await s.kill({id: String(['a', 'b'].find(() => r.zero))})`},
	{1, `await s.kill({id: 'i' + [1, 2].findIndex(() => r.ok)})`},
	{1, `await s.kill({id: [1].some(() => r.ok) ? 'wrong' : 'right'})`},
	{1, `await s.kill({id: [1].every(() => r.yes) ? 'right' : 'wrong'})`},
	{1, `await s.kill({id: 'i' + [r].filter(x => x.ok).length})`},
	{1, `await s.kill({id: 'i' + [r, r].findLastIndex(x => x.none)})`},
	{1, `for (const x of [3, 1, 2].sort((a, b) => r.zero)) await s.kill({id: 'x' + x})`},
	{1, `const list = [r.n, 1]; list.sort(); await s.kill({id: 'x' + list[0]})`},
	{1, `await s.kill({id: 'n' + [1, 2].flatMap(() => r.pair).length})`},
	{1, `await s.kill({id: 'n' + [r.pair].flat().length})`},
	{1, `await s.kill({id: 'n' + [].concat(r.pair).length})`},
	{1, `await s.kill({id: 'n' + [...r.pair].length})`},
	{1, `const [a] = r.pair; await s.kill({id: 'x' + a})`},
	{1, `for (const x of r.pair) await s.kill({id: 'x' + x})`},
	{1, `for (const k in r.obj) await s.kill({id: k})`},
	{1, `for (const [k] of Object.entries(r.obj)) await s.kill({id: k})`},
	{1, `await s.kill({id: 'n' + r.pair.map(x => x * 2).join()})`},
	{1, `await s.kill({id: 'n' + new Set([7, r.n]).size})`},
	{1, `const m = new Map([[7, 'right']]); await s.kill({id: m.get(r.n) ?? 'wrong'})`},
	{1, `const m = new Map([[r.n, 'right']]); await s.kill({id: m.get(7) ?? 'wrong'})`},
	{1, `const m = new Map(); m.set(r.n, 'right'); await s.kill({id: m.get(7) ?? 'wrong'})`},
	{1, `const z = new Set(); z.add(r.n); z.add(7); await s.kill({id: 'n' + z.size})`},
	{1, `const o = {7: 'right'}; await s.kill({id: o[r.n] ?? 'wrong'})`},
	{1, `await s.kill({id: 'n' + new Array(r.n).length})`},
	{1, `await s.kill({id: 'n' + Object.groupBy([1], () => r.s).text})`},
	{1, `await s.kill({id: 'n' + Array.from(r.pair).length})`},
	{1, `await s.kill({id: 'n' + Array.from({length: r.zero}).length})`},
	// Texts and numbers.
	{1, `await s.kill({id: 'x' + r.n})`},
	{1, "await s.kill({id: `x${r.s}`})"},
	{1, `await s.kill({id: String(r.n)})`},
	{1, `await s.kill({id: r.s.toUpperCase()})`},
	{1, `await s.kill({id: JSON.stringify(r)})`},
	{1, `await s.kill({id: JSON.stringify({r})})`},
	{1, `await s.kill({id: [r.s].join()})`},
	{1, `await s.kill({id: 'n' + (r.n > 3)})`},
	{1, `await s.kill({id: 'n' + Math.max(r.n, 3)})`},
	{1, `await s.kill({id: 'n' + (+r.n)})`},
	{1, `await s.kill({id: 'a-text'.includes(r.s) ? 'right' : 'wrong'})`},
	{1, `await s.kill({id: 'text'.startsWith(r.s) ? 'right' : 'wrong'})`},
	{1, `await s.kill({id: /tex/.test(r.s) ? 'right' : 'wrong'})`},
	{1, `await s.kill({id: 'text' === r.s ? 'right' : 'wrong'})`},
	{1, `const c = structuredClone({r}); await s.kill({id: 'n' + c.r.n})`},
	{1, `await s.kill({id: encodeURIComponent(r.s)})`},
	{1, `await s.kill({id: new URLSearchParams({a: r.s}).toString()})`},
	{1, `await s.kill({id: new Date(r.n).toISOString()})`},
	// Taking apart.
	{1, `const f = (x = 'right') => x; await s.kill({id: f(r.q)})`},
	{1, `function f(x, y = 'right') { return y } await s.kill({id: f(1, r.q)})`},
	{1, `const {q = 'right'} = r; await s.kill({id: q})`},
	{1, `const {n, ...rest} = r; await s.kill({id: 'n' + Object.keys(rest).length})`},
	{1, `const o = {...r}; await s.kill({id: 'n' + o.n})`},
	{1, `const o = Object.assign({}, r); await s.kill({id: 'n' + o.n})`},
	{1, `const k = 'then'; await s.kill({id: 'n' + r[k]})`},
	{1, `await s.kill({id: 'n' + r.then})`},
	{1, `await s.kill({id: 'n' + r['then']})`},
	{1, `r.n = 8; await s.kill({id: 'n' + r.n})`},
	{1, `delete r.n; await s.kill({id: 'n' + r.n})`},
	{1, `try { r.none.x } catch { await s.kill({id: 'right'}) } try { r() } catch { await s.kill({id: 'right too'}) }`},
	{1, `class A { constructor(x) { return x } } await s.kill({id: new A(r.obj) instanceof A ? 'wrong' : 'right'})`},
	{1, `const look = v => { try { return v ? 'wrong' : 'right' } finally { await0 = 1 } }; let await0; await s.kill({id: look(r.ok)})`},
	{1, `try { if (r.ok) throw 1; await s.kill({id: 'right'}) } catch { await s.kill({id: 'wrong'}) } finally { await s.kill({id: 'last'}) }`},
	{1, `const x = await Promise.any([Promise.resolve(r)]); await s.kill({id: x.ok ? 'wrong' : 'right'})`},
	{1, `const [x] = await Promise.all([r]); await s.kill({id: x.ok ? 'wrong' : 'right'})`},
	{1, `const x = (await Promise.allSettled([r]))[0].value; await s.kill({id: x.ok ? 'wrong' : 'right'})`},
	{1, `async function* g() { yield r } for await (const x of g()) await s.kill({id: x.ok ? 'wrong' : 'right'})`},
	{1, `const t = (await codemode.tools()).find(t => t.name === r.s); await s.kill({id: t ? 'wrong' : 'right'})`},
	{1, `const hits = await codemode.search(r.s).catch(() => []); await s.kill({id: Array.isArray(hits) ? 'right' : 'wrong'})`},
	{1, `await s.kill(r.obj.deep)`},
	{1, `type T = {ok: boolean}; const t: T = r; await s.kill({id: t.ok ? 'wrong' : 'right'})`},
	{1, `console.assert(r.ok, 'x'); await s.kill({id: 'right'})`},
	// Reads with an answer that is known later wait for it; what follows, too.
	{1, `const x = await s.look({id: r.s}); await s.kill({id: x.includes('text') ? 'right' : 'wrong'})`},
	// No look: the stage goes on.
	{2, `await s.kill({id: r.n})`},
	{2, `await s.kill({id: r.obj.deep.x})`},
	{2, `await s.kill({id: r.pair[1]})`},
	{2, `await s.kill({id: r.pair.length})`},
	{2, `await s.kill({id: r['s']})`},
	{2, `await s.kill({id: r.f})`},
	{2, `await s.kill({id: r.big})`},
	{2, `await s.kill({id: [r.obj, {deep: r.list}]})`},
	{2, `const {n, obj: {deep}} = r; await s.kill({id: n, deep})`},
	{2, `const all = [r, r].map(x => x.n); await s.kill({id: all})`},
	{2, `const o = {...{a: r.n}, b: 1}; await s.kill({id: o})`},
	{2, `const m = new Map([['k', r.n]]); await s.kill({id: m.get('k')})`},
	{2, `const f = async x => x.n; await s.kill({id: await f(r)})`},
	{2, `class A { #x; constructor(x) { this.#x = x } get n() { return this.#x.n } } await s.kill({id: new A(r).n})`},
	{2, `const f = ({n} = {}) => n; await s.kill({id: f(r)})`},
	{2, `const f = (x, y = 5) => y; await s.kill({id: f(r)})`},
	{2, `const t = (await codemode.tools()).length; await s.kill({id: t > 1 && 'right'})`},
	{2, `console.log('made', r, r.n); await s.kill({id: 'right'})`},
	{3, `for (const x of ['b', 'c'].filter(x => x > 'a').sort()) await s.kill({id: x})`},
	{4, `const out = [r]; for (const x of ['b', 'c', 'd']) out.push(await s.kill({id: x})); return out.map(o => ({n: o.n, s: o.s}))`},
	{3, `let n = 0; for (const x of ['b', 'c']) { try { await s.kill({id: x}); n++ } catch { n-- } } return n`},
	{3, `const x = await s.kill({id: r.n}); await s.kill({id: x.obj}); return [r, x]`},
	{3, `const rs = await Promise.allSettled(['b', 'c'].map(id => s.kill({id}))); return rs.map(x => x.status)`},
	{2, `await s.look({id: 'other'}); await s.kill({id: 'b'}); return r.list.length`},
	{2, `const x: number = r.n as number; await s.kill({id: x}); enum E {A} return E.A`},
}

// No answer is made up: whatever a script does with answers that are known
// later, stage by stage it changes exactly what it changes without plans, and
// returns the same.
func TestPlansInventNothing(t *testing.T) {
	const lanes = 4 // much of the time goes by with waiting for processes
	for lane := range lanes {
		t.Run(fmt.Sprint(lane), func(t *testing.T) {
			t.Parallel()
			inventNothing(t, lane, lanes)
		})
	}
}

func inventNothing(t *testing.T, lane, lanes int) {
	answer := func(c *upstreamtest.Call) bool {
		if c.Method == "tools/call" && c.Name() == "kill" {
			c.Result(`{"content":[],"structuredContent":` + odd + `}`)
			return true
		}
		return false
	}
	freely, planned := serve(t, upstreamtest.Legacy, answer), serve(t, upstreamtest.Legacy, answer)
	const limits = "code: {workers: 2, max_workers: 4}\n"
	open := start(t, trusted(freely)+allowAll+limits, nil).client(legacy, twoTools, noCaps, nil)
	p := start(t, trusted(planned)+planWrites+limits, nil)
	c := p.client(legacy, twoTools, noCaps, nil)
	writes := func(v *victim, from int) (out []string) {
		for _, call := range v.calls()[from:] {
			var got struct {
				Name      string
				Arguments any
			}
			d := json.NewDecoder(strings.NewReader(call))
			d.UseNumber() // every digit counts
			if err := d.Decode(&got); err != nil {
				t.Fatal(err)
			}
			if got.Name == "kill" {
				args, err := json.Marshal(got.Arguments)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, strings.ReplaceAll(string(args), "1.0", "1"))
			}
		}
		slices.Sort(out) // calls made at once come in any order
		return out
	}
	for i := lane; i < len(tricky); i += lanes {
		x := tricky[i]
		code := `const r = await s.kill({id: 'first'}); ` + x.code
		atFree, atPlan := len(freely.calls()), len(planned.calls())
		want := open.code(code, "", nil)
		got := c.code(code, "", nil)
		first := ""
		for stage := 1; ; stage++ {
			id := planIDs.FindString(got.text())
			if !strings.HasPrefix(got.text(), "Planned: ") || id == "" {
				break
			}
			n := strings.Count(got.text(), "\n- ")
			if stage == 1 {
				first = got.text()
				if n != x.steps {
					t.Errorf("%s\nthe first plan has %d steps, want %d:\n%s", x.code, n, x.steps, first)
				}
			}
			if stage > 12 {
				t.Fatalf("%s\nplans without end: %s", x.code, got.text())
			}
			ticked := make([]string, n)
			for k := range ticked {
				ticked[k] = fmt.Sprint(k)
			}
			p.decidePlan(id, "approve", ticked...)
			got = c.plan(id)
		}
		if first == "" {
			t.Errorf("%s\nno plan: %s", x.code, got.Raw)
		}
		a, b := writes(freely, atFree), writes(planned, atPlan)
		if !slices.Equal(a, b) {
			t.Errorf("%s\nwithout plans %s\nwith plans    %s\n%s", x.code, strings.Join(a, "; "), strings.Join(b, "; "), got.text())
		}
		if value(want) != value(got) {
			t.Errorf("%s\nwithout plans %s\nwith plans    %s", x.code, value(want), value(got))
		}
	}
}

// value is what a script returned, or its error without its place.
func value(a answer) string {
	text, _, _ := strings.Cut(a.text(), "\ncalls:")
	text, _, _ = strings.Cut(text, "\nPlan pl-")
	return text
}
