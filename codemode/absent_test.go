package codemode

import (
	"context"
	"strings"
	"testing"
)

// Whether a tool exists is asked in many ways, and each has its answer: the
// right one, with a line that says so, or an error that names what is there.
func TestAbsentToolsAreAbsentWhereverTheyAreLookedFor(t *testing.T) {
	const there, said = "there is no tool crm.nope", "line 1 tests for a tool: there is no tool crm.nope"
	p := testPool(t, nil)
	for _, c := range []struct{ code, value, err, note string }{
		{code: "if (crm.nope) return 1; return 2", value: `2`, note: said},
		{code: "return crm.nope ? 1 : 2", value: `2`, note: said},
		{code: "return !crm.nope", value: `true`, note: said},
		{code: "return Boolean(crm['nope'])", value: `false`, note: said},
		{code: "return typeof crm.nope", value: `"undefined"`, note: said},
		{code: "return typeof codemode.crm.nope", value: `"undefined"`, note: said},
		{code: "return typeof codemode?.crm.nope", value: `"undefined"`, note: said},
		{code: "return typeof codemode?.crm?.nope", value: `"undefined"`, note: said},
		{code: "return typeof codemode?.['crm']['nope']", value: `"undefined"`, note: said},
		{code: "const codemode = undefined; return typeof codemode?.crm.nope", value: `"undefined"`},
		{code: "return (await codemode?.crm?.list?.({})).n", value: `1`},
		{code: "const f = crm.list; if (f({})) return 1", err: "used as a condition"},
		{code: "const crm = {list: Promise.resolve(4)}; return await crm.list", value: `4`},
		{code: "return typeof codemode['crm'].nope", value: `"undefined"`, note: said},
		{code: "return typeof codemode.crm_nope", value: `"undefined"`, note: "there is no tool codemode.crm_nope"},
		{code: "return crm.nope === undefined", value: `true`, note: said},
		{code: "return null != crm.nope", value: `false`, note: said},
		{code: "return (crm.nope ?? crm.list).name", err: "crm.list", value: `"crm.list"`, note: said},
		{code: "return (crm.nope || crm.list).name", value: `"crm.list"`, note: said},
		{code: "return crm.nope && 1 || 3", value: `3`, note: said},
		{code: "return await crm.nope?.({}) ?? 'none'", value: `"none"`, note: said},
		{code: "return await crm?.nope?.({}) ?? 'none'", value: `"none"`, note: said},
		{code: "return crm?.nope ? 1 : 2", value: `2`, note: said},
		{code: "const k = 'nope'; return typeof crm[k]", value: `"undefined"`, note: said},
		{code: "const f = crm.nope; if (!f) return 'absent'", value: `"absent"`, note: said},
		{code: "const f = crm.nope; return f?.({}) ?? 'absent'", value: `"absent"`, note: said},
		{code: "const { nope, list: l } = crm; return [typeof nope, typeof l]", value: `["undefined","function"]`, note: said},
		{code: "const c = crm; return c.nope ? 1 : 2", value: `2`, note: said},
		{code: "switch (crm.nope) { case undefined: return 1 } return 2", value: `1`, note: said},
		{code: "return 'nope' in crm", value: `false`},
		{code: "return Object.hasOwn(crm, 'nope')", value: `false`},
		{code: "return (await crm.nope) ? 1 : 2", err: there},
		{code: "return await crm.nope({})", err: there},
		{code: "return crm.nope", err: there},
		{code: "await crm.list; return 'done'", err: "crm.list was named without being called"},
		{code: "crm.list; return 'done'", err: "crm.list was named without being called"},
		{code: "return typeof crm.list()", err: "an await is missing"},
		{code: "return crm.list() instanceof Array", err: "an await is missing"},
		{code: "return crm.list() instanceof Promise", value: "true"},
		{code: "if (crm?.list()) return 1", err: "used as a condition"},
		// What exists, or is the script's own, is as it was.
		{code: "return [typeof crm.list, !crm.list, (await crm.list?.({})).n]", value: `["function",false,1]`},
		{code: "const crm = {n: 5, nope: null, get() { return this.n }}; return [typeof crm.nope, crm.get?.(), crm.nope ?? 2]", value: `["object",5,2]`},
		{code: "const crm = new Map([[1, 2]]); return [crm.get?.(1), crm.nope?.(), typeof crm.nope]", value: `[2,null,"undefined"]`},
	} {
		for _, lowered := range []string{"", "const typed: number = 1;"} {
			t.Run(c.code+" "+lowered, func(t *testing.T) {
				o := run(t, p, answers(map[string]string{"crm_list": structured(`{"n":1}`)}), lowered+c.code, tools("crm_list")...)
				if c.value == "" {
					wantError(t, o, kindException, c.err)
					return
				}
				wantValue(t, o, c.value)
				if logs := strings.Join(o.Logs, "\n"); c.note != "" && !strings.Contains(logs, c.note) || c.note == "" && strings.Contains(logs, "tests for a tool") {
					t.Errorf("console %q, want %q", logs, c.note)
				}
			})
		}
	}
}

// A name from another client, or with its words in another order, leads to what
// is meant here.
func TestWrongNamesLeadToTheRightOnes(t *testing.T) {
	p := testPool(t, nil)
	for code, want := range map[string]string{
		"return crm.listCompanies({})":                  "the nearest names are crm.companies_list",
		"return crm.getContact({})":                     "the nearest names are crm.contact_get",
		"return codemode.removeContact({})":             "codemode.crm_contact_delete",
		"return crm.frobnicate({})":                     "crm has companies_list, contact_delete, contact_get",
		"return codemode.execute('crm_contact_get')":    "codemode.call",
		"return codemode.listTools()":                   "await codemode.tools()",
		"return codemode.tools.list()":                  "codemode.tools is a function without .list",
		"return codemode.tools.crm_contact_get({})":     "call one with codemode.crm_contact_get({…})",
		"return tools.crm_contact_get({})":              "codemode.call",
		"return mcp.callTool('crm_contact_get', {})":    "codemode.call",
		"return call_tool('crm_contact_get', {})":       "codemode.call",
		"return codemode.call('crm_companiesGet', {})":  "the nearest names are crm_companies_list",
		"return crm_contact_get({})":                    "write codemode.crm_contact_get({…})",
		"return (await codemode.call('crm.nope')).then": "crm.nope",
	} {
		t.Run(code, func(t *testing.T) {
			wantError(t, run(t, p, nil, code, tools("crm_companies_list", "crm_contact_get", "crm_contact_delete")...), kindException, want)
		})
	}
}

// What could be there and is not says why, in each place where it is named.
func TestWithheldToolsSayWhy(t *testing.T) {
	p := testPool(t, nil)
	withheld := []Withheld{
		{Server: "crm", Tools: []string{"crm_contact_purge"}, Why: "is held back: ask an administrator"},
		{Server: "mail", Why: "is switched off by the user"},
	}
	for code, want := range map[string]string{
		"return await crm.contact_purge({})":              "tool crm_contact_purge is held back: ask an administrator",
		"return await crm.contactPurge({})":               "tool crm_contact_purge is held back",
		"return await codemode.crm_contact_purge({})":     "tool crm_contact_purge is held back",
		"return await codemode.call('crm_contact_purge')": "tool crm_contact_purge is held back",
		"return crm.contact_purge.name.x.y":               "", // whatever it says, it is an error
		"return await mail.send({})":                      "server mail is switched off by the user",
		"return await codemode.mail_send({})":             "server mail is switched off by the user",
		"return await codemode.mail.send({})":             "server mail is switched off by the user",
		"return await codemode.call('mail_send', {})":     "server mail is switched off by the user",
		"return await crm.contact_x({})":                  "there is no tool crm.contact_x",
		"return await mailer.send({})":                    "mailer is not defined",
	} {
		t.Run(code, func(t *testing.T) {
			o, err := p.Run(context.Background(), Request{ID: "r", Owner: "u", Code: code, Tools: tools("crm_contact_get"), Withheld: withheld}, &fakeHost{})
			if err != nil {
				t.Fatal(err)
			}
			wantError(t, o, kindException, want)
		})
	}
}
