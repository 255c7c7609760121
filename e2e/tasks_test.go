package e2e

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"
)

// taskScripts solve jobs of the example company as an agent wrote them that knew
// the two tools and what they answered, nothing else. Each was right the first
// time it ran.
var taskScripts = map[string]string{
	"T01": `const zones = await codemode.paginate(codemode.dns_zones_list, {});
		return { zones: zones.length, active: zones.filter(z => z.status === 'active').length };`,
	"T03": `const zones = await codemode.paginate(codemode.dns_zones_list, {});
		const hits = await Promise.all(zones.map(async z => {
			const txt = await codemode.paginate(codemode.dns_records_list, { zone_id: z.id, type: 'TXT' });
			return txt.some(r => /v=spf1/.test(r.content) && /\+all"?\s*$/.test(r.content)) ? z.name : null;
		}));
		return hits.filter(Boolean).sort();`,
	"T05": `const { repos } = await codemode.tracker_repos_list();
		const out = {};
		await Promise.all(repos.map(async r => {
			const items = await codemode.paginate(codemode.tracker_issues_list, { repo: r.name, state: 'open', label: 'security' });
			const n = items.filter(i => !i.is_pull_request).length;
			if (n) out[r.name] = n;
		}));
		return out;`,
	"T07": `const { repos } = await codemode.tracker_repos_list();
		const counts = {};
		for (const r of repos) {
			for (const i of await codemode.paginate(codemode.tracker_issues_list, { repo: r.name, state: 'open' }))
				if (i.assignee) counts[i.assignee] = (counts[i.assignee] ?? 0) + 1;
		}
		return Object.entries(counts).filter(([, n]) => n > 12).sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));`,
	"T09": `const contacts = await codemode.paginate(codemode.crm_contacts_search, { archived: false });
		const by = Map.groupBy(contacts.filter(c => !c.archived && c.email), c => c.email.trim().toLowerCase());
		const dup = [...by.values()].filter(g => g.length > 1);
		return { addresses: dup.length, contacts: dup.reduce((n, g) => n + g.length, 0) };`,
	"T10": `const companies = await codemode.paginate(codemode.crm_companies_list, {});
		const tier = Object.fromEntries(companies.map(c => [c.id, c.tier]));
		const contacts = await codemode.paginate(codemode.crm_contacts_search, { archived: false });
		const out = {};
		for (const c of contacts) if (c.lifecycle === 'customer' && !c.phone && !c.archived) out[tier[c.company_id]] = (out[tier[c.company_id]] ?? 0) + 1;
		return out;`,
	"T11": `const inv = await codemode.paginate(codemode.billing_invoices_list, { status: 'open' });
		const sum = {};
		for (const i of inv) sum[i.currency] = (sum[i.currency] ?? 0) + (i.amount_due - (i.amount_paid ?? 0));
		return Object.fromEntries(Object.entries(sum).map(([c, n]) => [c, /jpy/i.test(c) ? n : n / 100]));`,
	"T12": `const customers = await codemode.paginate(codemode.billing_customers_list, { limit: 100 });
		const domain = Object.fromEntries(customers.map(c => [c.id, c.company_domain]));
		const invoices = await codemode.paginate(codemode.billing_invoices_list, { status: 'open', limit: 100 });
		const now = Date.parse('2026-11-30T12:00:00Z');
		const owed = {};
		for (const i of invoices) if (i.currency === 'usd' && Date.parse(i.due_date) < now)
			owed[domain[i.customer]] = (owed[domain[i.customer]] ?? 0) + i.amount_due - i.amount_paid;
		return Object.entries(owed).sort((a, b) => b[1] - a[1]).slice(0, 5).map(([d, c]) => [d, c / 100]);`,
	"T20": `const docs = await codemode.paginate(codemode.docs_docs_list, {});
		const out = {};
		await Promise.all(docs.map(async d => {
			const m = /^\s*OWNER:?\s*(.+)$/m.exec((await codemode.docs_doc_get({ id: d.id })).content);
			if (m) out[d.id] = m[1].trim();
		}));
		return out;`,
	"T23": `const companies = (await codemode.paginate(codemode.crm_companies_list, { limit: 100 })).filter(c => c.tier === 'enterprise');
		const zones = await codemode.paginate(codemode.dns_zones_list);
		const out = [];
		for (const c of companies) {
			const z = zones.find(z => z.name === c.domain);
			if (!z) continue;
			const n = (await codemode.paginate(codemode.dns_records_list, { zone_id: z.id, type: 'A' })).filter(r => r.proxied).length;
			if (n < 4) out.push(c.domain);
		}
		return out.sort();`,
}

// Ten jobs, solved by code through the built program.
func TestTasksAreSolvedByCode(t *testing.T) {
	raw, err := os.ReadFile("../examples/company/testdata/tasks.json")
	if err != nil {
		t.Fatal(err)
	}
	var corpus struct {
		Tasks []struct {
			ID     string `json:"id"`
			Answer any    `json:"answer"`
		} `json:"tasks"`
	}
	if err := json.Unmarshal(raw, &corpus); err != nil {
		t.Fatal(err)
	}
	s := connect(t, demo(t), modern, "optimize_context=search_and_execute", nil)
	solved := 0
	for _, task := range corpus.Tasks {
		code := taskScripts[task.ID]
		if code == "" {
			continue
		}
		res := call(t, s, "portal_execute", map[string]any{"code": code})
		var got any
		if err := json.Unmarshal([]byte(text(t, res)), &got); err != nil || !reflect.DeepEqual(got, task.Answer) {
			t.Errorf("%s: %.600s\nwant %.600v", task.ID, text(t, res), task.Answer)
			continue
		}
		solved++
	}
	if solved != len(taskScripts) {
		t.Errorf("%d of %d solved", solved, len(taskScripts))
	}
}
