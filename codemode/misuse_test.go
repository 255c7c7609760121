package codemode

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
)

func TestMisuse(t *testing.T) {
	p := testPool(t, nil)
	host := answers(map[string]string{"crm_list_users": structured(`{"n":1}`)})
	ts := tools("crm_list_users", "billing_invoices")
	for _, c := range []struct {
		name, code, part string
		line             int
	}{
		{"unknown tool", "const a = 1\nawait codemode.crm_list_user({})", "codemode.crm_list_users", 2},
		{"unknown member", "await crm.listUser({})", "crm.list_users", 1},
		{"unknown name in call", "await codemode.call('billing_invoice', {})", "billing_invoices", 1},
		{"nothing near", "await codemode.zzzzzzzzzzzz({})", "codemode.search", 1},
		{"text as arguments", "await crm.list_users('x')", "one object with named arguments", 1},
		{"array as arguments", "await crm.list_users([1])", "one object with named arguments", 1},
		{"two arguments", "await crm.list_users({}, 2)", "not 2 values", 1},
		{"promise as arguments", "await crm.list_users(Promise.resolve({}))", "await it first", 1},
		{"promise inside arguments", "\n\nawait crm.list_users({a: {b: Promise.resolve(1)}})", "at a.b", 3},
		{"function inside arguments", "await crm.list_users({f: () => 1})", "at f", 1},
		{"circular arguments", "const a = {}; a.a = a; await crm.list_users(a)", "circular", 1},
		{"not a number", "await crm.list_users({n: 0/0})", "NaN", 1},
		{"map", "await crm.list_users({m: new Map([[1, 2]])})", "Object.fromEntries", 1},
		{"bytes", "await crm.list_users({b: new Uint8Array(2)})", "base64", 1},
		{"throwing getter in arguments", "await crm.list_users({get a() { throw new Error('mine') }})", "mine", 1},
		{"tool name used as a global", "await crm_list_users({})", "codemode.crm_list_users", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := run(t, p, host, c.code, ts...)
			wantError(t, o, kindException, c.part)
			if o.Error != nil && o.Error.Line != c.line {
				t.Errorf("line %d, want %d: %s", o.Error.Line, c.line, o.Error.Message)
			}
			// The same misuse must be catchable like any failed call.
			if n := strings.Count(c.code, "await"); n == 1 && !strings.Contains(c.code, "crm_list_users({})") {
				caught := strings.Replace(c.code, "await ", "return ", 1) + ".catch(e => 'caught')"
				wantValue(t, run(t, p, host, caught, ts...), `"caught"`)
			}
		})
	}
}

func TestWhatTimersDidNotDoIsSaid(t *testing.T) {
	p := testPool(t, nil)
	const unfired, undone = "1 timer had not fired", "1 async callback of setTimeout was not done"
	for _, c := range []struct{ code, note string }{
		{"setTimeout(async () => { await s.t(); throw new Error('late') }, 100000); return 1", unfired},
		{"setTimeout(() => console.log('x'), 100000); return 1", unfired},
		{"await Promise.race([s.t(), new Promise((_, no) => setTimeout(() => no(1), 100000))]); return 1", ""},
		{"await new Promise(f => setTimeout(f, 1)); setTimeout(async () => 1, 100000); return 1", unfired},
		{"const n = setTimeout(() => 1, 100000); clearTimeout(n); return 1", ""},
		{"await Promise.race([s.t(), sleep(100000)]); return 1", ""},
		{"setTimeout(async () => { await sleep(100000); throw new Error('late') }, 0); await sleep(1); return 1", undone},
		{"setTimeout(async () => { await s.t(); throw new Error('late') }, 0); await sleep(1); return 1", "Error: late"},
		{"setTimeout(async () => { await s.t() }, 0); await sleep(1); return 1", ""},
	} {
		o := run(t, p, answers(map[string]string{"s_t": structured(`{}`)}), c.code, tools("s_t")...)
		wantValue(t, o, "1")
		logs := strings.Join(o.Logs, "\n")
		if !strings.Contains(logs, c.note) || c.note == "" && strings.Contains(logs, "imer") {
			t.Errorf("%s: logs %q, want %q", c.code, logs, c.note)
		}
	}
}

// TestMisusesSayTheNextStep holds misuses of the functions of codemode as models
// write them, with what the text must show. Those that are clear work.
func TestMisusesSayTheNextStep(t *testing.T) {
	p := testPool(t, nil)
	host := answers(map[string]string{"crm_list": structured(`{"items":[1]}`)})
	for _, c := range []struct{ code, want string }{
		{"for await (const x of codemode.paginate(crm.list, {})) console.log(x)", "for (const item of await codemode.paginate(…))"},
		{"for (const x of codemode.paginate(crm.list)) console.log(x)", "for (const item of await codemode.paginate(…))"},
		{"await codemode.paginate(crm.list, {}, {limit: 5})", "{max: 100}"},
		{"await codemode.paginate(crm.list, 'x')", "one object"},
		{"await codemode.paginate({tool: 'crm_list'})", "codemode.paginate(codemode.<name>, {…})"},
		{"await codemode.paginate(crm.list({}))", "codemode.paginate(codemode.<name>, {…})"},
		{"await codemode.call({name: 'crm_list', arguments: {}})", `await codemode.call("crm_list", {…})`},
		{"await codemode.raw()", `await codemode.raw("crm_list", {…})`},
		{"await codemode.raw('crm_list', {}, 1)", "one object"},
		{"codemode.tools().map(t => t.name)", "(await codemode.tools(…)).map"},
	} {
		wantError(t, run(t, p, host, c.code, tools("crm_list")...), kindException, c.want)
	}
	for _, code := range []string{"(await codemode.call(crm.list, {})).items", "(await codemode.call(codemode.crm_list)).items", "(await codemode.raw(crm.list)).structuredContent.items"} {
		wantValue(t, run(t, p, host, code, tools("crm_list")...), "[1]")
	}
	asked := ""
	host.query = func(_ context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
		asked = name + string(args)
		return json.RawMessage(`{}`), nil
	}
	run(t, p, host, "await codemode.describe(crm.list)", tools("crm_list")...)
	if asked != `describe["crm_list"]` {
		t.Errorf("asked for %s", asked)
	}
}

// What was undefined is not in JSON: the run says so, and what there was.
func TestUndefinedIsSaid(t *testing.T) {
	p := testPool(t, nil)
	host := answers(map[string]string{"s_t": structured(`{"result":[{"id":1,"phone":"x"},{"id":2}],"total":2}`)})
	for _, c := range []struct{ name, code, value, note string }{
		{"a wrong name", `const r = await s.t(); return {n: r.count, all: r.result.map(x => ({id: x.id, mail: x.mail}))}`, `{"all":[{"id":1},{"id":2}]}`,
			"undefined everywhere, so not in the value: n, mail; the last result, of s.t, was {result: a list of 2, the first {id: number, phone: text}, total: number}"},
		{"sometimes there", `const r = await s.t(); return r.result.map(x => ({id: x.id, phone: x.phone}))`, `[{"id":1,"phone":"x"},{"id":2}]`, ""},
		{"a callback without return", `const r = await s.t(); return r.result.map(x => { x.id })`, `[null,null]`, "holds only undefined"},
		{"nothing at all", `const r = await s.t(); return r.count`, `undefined`, "returned nothing: end with return value, or with an expression; the last result, of s.t, was {"},
		{"all there", `return await s.t()`, `{"result":[{"id":1,"phone":"x"},{"id":2}],"total":2}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := run(t, p, host, c.code, tools("s_t")...)
			wantValue(t, o, c.value)
			logs := strings.Join(o.Logs, "\n")
			if c.note == "" && logs != "" || !strings.Contains(logs, c.note) {
				t.Errorf("said %q, want %q", logs, c.note)
			}
		})
	}
	o := run(t, p, host, `const r = await s.t(); return r.items.map(x => x.id)`, tools("s_t")...)
	wantError(t, o, kindException, "the last result, of s.t, was {result: a list of 2")
}

// Names in other spellings reach the tool when only one can be meant.
func TestNamesInOtherSpellings(t *testing.T) {
	p := testPool(t, nil)
	host := &fakeHost{call: func(_ context.Context, c HostCall) (json.RawMessage, error) {
		return json.RawMessage(structured(`"` + c.Tool + `"`)), nil
	}}
	ts := []Tool{
		{"shop_get-data", "shop_get_data$", "shop", "get_data$"},
		{"my-server_list-all_items", "myServer_$list$all_items", "myServer", "$list$all_items"},
		{"two_get-stock", "two_get_stock$", "two", "get_stock$"}, {"two_get_stock", "two_get_stock", "two", "get_stock"},
		{"amb_get-a_b", "amb_$get$a_b", "amb", "$get$a_b"}, {"amb_get_a-b", "amb_$get_a$b", "amb", "$get_a$b"},
	}
	for _, c := range []struct{ code, tool string }{
		{"codemode.shop_get_data$()", "shop_get-data"}, {"codemode.shop_get_data()", "shop_get-data"}, {"codemode.shopGetData()", "shop_get-data"},
		{"codemode.SHOP_GET_DATA()", "shop_get-data"}, {"codemode['shop_get-data']()", "shop_get-data"}, {"codemode.call('shop/get-data'.replace('/', '.'))", "shop_get-data"},
		{"shop.get_data()", "shop_get-data"}, {"shop.getData()", "shop_get-data"}, {"shop['get-data']()", "shop_get-data"}, {"codemode.shop.get_data()", "shop_get-data"},
		{"my_server.list_all_items()", "my-server_list-all_items"}, {"myServer.listAllItems()", "my-server_list-all_items"}, {"codemode.my_server.list_all_items()", "my-server_list-all_items"},
		{"codemode.my_server_list_all_items()", "my-server_list-all_items"}, {"codemode['my-server'].list_all_items()", "my-server_list-all_items"},
		// B061: the exact name owns the identifier.
		{"codemode.two_get_stock()", "two_get_stock"}, {"codemode.two_get_stock$()", "two_get-stock"}, {"codemode['two_get-stock']()", "two_get-stock"}, {"two.get_stock()", "two_get_stock"},
	} {
		for _, order := range [][]Tool{ts, {ts[5], ts[4], ts[3], ts[2], ts[1], ts[0]}} {
			wantValue(t, run(t, p, host, "return await "+c.code, order...), `"`+c.tool+`"`)
		}
	}
	before := len(host.calls())
	for code, want := range map[string]string{
		"codemode.two_getStock()":     "codemode.two_get_stock",
		"codemode.amb_get_a_b()":      "codemode.amb_$get$a_b, codemode.amb_$get_a$b",
		"codemode.shop_get_dat()":     "codemode.shop_get_data$",
		"codemode.call('shop_getda')": "shop_get-data",
	} {
		wantError(t, run(t, p, host, "return await "+code, ts...), kindException, want)
	}
	if n := len(host.calls()) - before; n != 0 {
		t.Errorf("%d calls by names that could mean two tools", n)
	}
}
