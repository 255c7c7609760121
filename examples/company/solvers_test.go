package company

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"
)

type zoneRecord struct {
	Zone Zone
	Record
}

type item struct {
	Repo string
	issueHead
}

func (d *desk) zones() []Zone {
	return keep(d, "zones", func() []Zone { return numberedAll[Zone](d, "zones_list", nil) })
}

func (d *desk) records() []zoneRecord {
	return keep(d, "records", func() (all []zoneRecord) {
		for _, z := range d.zones() {
			for _, r := range numberedAll[Record](d, "records_list", obj{"zone_id": z.ID}) {
				all = append(all, zoneRecord{z, r})
			}
		}
		return all
	})
}

func (d *desk) items() []item {
	return keep(d, "items", func() (all []item) {
		repos := get[struct{ Repos []repository }](d, "tracker", "repos_list", nil).Repos
		for _, repo := range repos {
			for _, i := range cursorAll[issueHead](d, "tracker", "issues_list", "issues", obj{"repo": repo.Name}) {
				all = append(all, item{repo.Name, i})
			}
		}
		return all
	})
}

func (d *desk) people() []Contact {
	return keep(d, "people", func() []Contact { return d.contacts(obj{"limit": 100}) })
}

// businesses returns the companies by id.
func (d *desk) businesses() map[string]Business {
	return keep(d, "businesses", func() map[string]Business {
		all := map[string]Business{}
		args := obj{}
		for {
			p := get[afterPage[Business]](d, "crm", "companies_list", args)
			for _, b := range p.Results {
				all[b.ID] = b
			}
			if p.Paging == nil {
				return all
			}
			args = obj{"offset": json.Number(p.Paging.Next.After)}
		}
	})
}

func (d *desk) invoices() []Invoice {
	return keep(d, "invoices", func() []Invoice {
		return billingAll(d, "invoices_list", obj{"limit": 100}, func(i Invoice) string { return i.ID })
	})
}

func (d *desk) allLogs() []logEntry {
	return keep(d, "logs", func() (all []logEntry) {
		for _, s := range []string{"api", "auth", "billing", "edge", "worker"} {
			all = append(all, d.logs(s, "2026-11-28T00:00:00Z", "2026-11-30T00:00:00Z")...)
		}
		return all
	})
}

func (d *desk) docHeads(args obj) []docHead {
	return cursorAll[docHead](d, "docs", "docs_list", "docs", args)
}

type amount struct {
	domain string
	cents  int64
}

// overdue returns what companies owe in overdue open USD invoices, most first.
func (d *desk) overdue() []amount {
	domains := map[string]string{}
	for _, c := range billingAll(d, "customers_list", obj{"limit": 100}, func(c Customer) string { return c.ID }) {
		domains[c.ID] = c.CompanyDomain
	}
	sums := map[string]int64{}
	for _, i := range d.invoices() {
		if i.Status == "open" && i.Currency == "usd" && parse(i.DueDate).Before(Now()) {
			sums[domains[i.Customer]] += i.AmountDue
		}
	}
	var all []amount
	for domain, cents := range sums {
		all = append(all, amount{domain, cents})
	}
	slices.SortFunc(all, func(a, b amount) int {
		return cmp.Or(cmp.Compare(b.cents, a.cents), cmp.Compare(a.domain, b.domain))
	})
	return all
}

func parse(ts string) time.Time {
	at, err := time.Parse(time.RFC3339, ts)
	if err != nil {
		panic(err)
	}
	return at
}

func address(email string) string { return strings.ToLower(strings.TrimSpace(email)) }

var reporter = regexp.MustCompile(`Reported by (\S+@\S+)`)
var ownerLine = regexp.MustCompile(`(?m)^OWNER: (\S+)$`)

// solvers are the tasks of the corpus, done as a careful client does them.
func solvers() map[string]func(*desk) any {
	return map[string]func(*desk) any{
		"T01": func(d *desk) any {
			active := numberedAll[Zone](d, "zones_list", obj{"status": "active", "per_page": 50})
			return obj{"zones": len(d.zones()), "active": len(active)}
		},
		"T02": func(d *desk) any {
			var found [][]string
			for _, r := range d.records() {
				if r.Content == "198.51.100.7" {
					found = append(found, []string{r.Zone.Name, r.Name, r.Type})
				}
			}
			return found
		},
		"T03": func(d *desk) any {
			names := map[string]bool{}
			for _, r := range d.records() {
				if r.Type == "TXT" && strings.HasPrefix(r.Content, "v=spf1") && strings.HasSuffix(r.Content, "+all") {
					names[r.Zone.Name] = true
				}
			}
			return slices.Sorted(maps.Keys(names))
		},
		"T04": repoint,
		"T05": func(d *desk) any {
			counts := map[string]int{}
			for _, repo := range get[struct{ Repos []repository }](d, "tracker", "repos_list", nil).Repos {
				for _, i := range cursorAll[issueHead](d, "tracker", "issues_list", "issues", obj{"repo": repo.Name, "state": "open", "label": "security"}) {
					if !i.IsPullRequest {
						counts[repo.Name]++
					}
				}
			}
			return counts
		},
		"T06": func(d *desk) any {
			hours := map[string][]float64{}
			for _, i := range d.items() {
				if !i.IsPullRequest && i.ClosedAt != nil && strings.HasPrefix(*i.ClosedAt, "2026-10") {
					hours[i.Repo] = append(hours[i.Repo], parse(*i.ClosedAt).Sub(parse(i.CreatedAt)).Hours())
				}
			}
			repo, most := "", -1.0
			for r, h := range hours {
				slices.Sort(h)
				if m := (h[(len(h)-1)/2] + h[len(h)/2]) / 2; m > most {
					repo, most = r, m
				}
			}
			return obj{"repo": repo, "median_hours": math.Round(most*10) / 10}
		},
		"T07": func(d *desk) any {
			counts := map[string]int{}
			for _, i := range d.items() {
				if i.State == "open" && i.Assignee != nil {
					counts[*i.Assignee]++
				}
			}
			list := [][]any{}
			logins := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
				return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
			})
			for _, login := range logins {
				if counts[login] > 12 {
					list = append(list, []any{login, counts[login]})
				}
			}
			return list
		},
		"T08": func(d *desk) any {
			bugs := cursorAll[issueHead](d, "tracker", "issues_list", "issues", obj{"repo": "portal", "state": "open", "label": "bug"})
			bugs = slices.DeleteFunc(bugs, func(i issueHead) bool { return i.IsPullRequest })
			slices.SortFunc(bugs, func(a, b issueHead) int {
				return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.Number, b.Number))
			})
			oldest := []int{}
			for _, b := range bugs[:min(5, len(bugs))] {
				oldest = append(oldest, b.Number)
			}
			return obj{"count": len(bugs), "oldest": oldest}
		},
		"T09": func(d *desk) any {
			counts := map[string]int{}
			for _, p := range d.people() {
				counts[address(p.Email)]++
			}
			addresses, contacts := 0, 0
			for _, n := range counts {
				if n > 1 {
					addresses, contacts = addresses+1, contacts+n
				}
			}
			return obj{"addresses": addresses, "contacts": contacts}
		},
		"T10": func(d *desk) any {
			counts := map[string]int{}
			for _, p := range d.contacts(obj{"limit": 100, "filters": []obj{
				{"propertyName": "lifecycle", "operator": "EQ", "value": "customer"},
				{"propertyName": "phone", "operator": "NOT_HAS_PROPERTY"},
			}}) {
				counts[d.businesses()[p.CompanyID].Tier]++
			}
			return counts
		},
		"T11": func(d *desk) any {
			sums := map[string]float64{}
			for _, i := range billingAll(d, "invoices_list", obj{"status": "open", "limit": 100}, func(i Invoice) string { return i.ID }) {
				unit := 100.0
				if i.Currency == "jpy" {
					unit = 1
				}
				sums[i.Currency] += float64(i.AmountDue) / unit
			}
			return sums
		},
		"T12": func(d *desk) any {
			var top [][]any
			for _, a := range d.overdue()[:5] {
				top = append(top, []any{a.domain, float64(a.cents) / 100})
			}
			return top
		},
		"T13": func(d *desk) any {
			counts := map[string]int{}
			for _, a := range d.overdue()[:10] {
				counts[a.domain] = 0
			}
			for _, p := range d.people() {
				if _, ok := counts[d.businesses()[p.CompanyID].Domain]; ok {
					counts[d.businesses()[p.CompanyID].Domain]++
				}
			}
			return counts
		},
		"T14": churn,
		"T15": func(d *desk) any {
			counts := map[string]int{}
			for _, l := range d.allLogs() {
				if l.Level == "error" && l.TS.UTC().Format(time.DateOnly) == "2026-11-29" {
					counts[l.Service]++
				}
			}
			return counts
		},
		"T16": func(d *desk) any {
			times := map[string][]int{}
			for _, l := range d.allLogs() {
				if l.Route != "/healthz" {
					times[l.Route] = append(times[l.Route], l.MS)
				}
			}
			p95 := map[string]int{}
			for route, ms := range times {
				slices.Sort(ms)
				p95[route] = ms[int(math.Ceil(float64(len(ms))*.95))-1]
			}
			return p95
		},
		"T17": func(d *desk) any {
			counts := map[string]int{}
			for _, l := range d.allLogs() {
				if l.Status >= 500 {
					counts[l.User]++
				}
			}
			user := slices.MinFunc(slices.Sorted(maps.Keys(counts)), func(a, b string) int { return cmp.Compare(counts[b], counts[a]) })
			assigned := 0
			for _, i := range d.items() {
				if i.State == "open" && i.Assignee != nil && *i.Assignee == user {
					assigned++
				}
			}
			return obj{"user": user, "errors": counts[user], "open_assigned": assigned}
		},
		"T18": func(d *desk) any {
			heads := d.docHeads(nil)
			i := slices.IndexFunc(heads, func(h docHead) bool { return h.Title == "Transcript: quarterly review (full)" })
			doc := get[Document](d, "docs", "doc_get", obj{"id": heads[i].ID})
			stored := get[struct{ Bytes int }](d, "kb", "article_create", obj{"title": doc.Title, "body": doc.Content})
			return obj{"bytes": stored.Bytes}
		},
		"T19": copyOps,
		"T20": func(d *desk) any {
			owners := map[string]string{}
			for _, h := range d.docHeads(nil) {
				doc := get[Document](d, "docs", "doc_get", obj{"id": h.ID})
				if m := ownerLine.FindStringSubmatch(doc.Content); m != nil {
					owners[h.ID] = m[1]
				}
			}
			return owners
		},
		"T21": func(d *desk) any {
			open := billingAll(d, "invoices_list", obj{"status": "open", "limit": 100}, func(i Invoice) string { return i.ID })
			open = slices.DeleteFunc(open, func(i Invoice) bool { return i.Currency != "eur" })
			slices.SortFunc(open, func(a, b Invoice) int { return cmp.Compare(b.AmountDue, a.AmountDue) })
			numbers := []string{open[0].Number, open[1].Number, open[2].Number}
			channels := cursorAll[Channel](d, "chat", "channels_list", "channels", nil)
			i := slices.IndexFunc(channels, func(c Channel) bool { return c.Name == "billing" })
			if i < channelsPage {
				d.t.Errorf("channel billing is number %d: it must not be on page one", i)
			}
			get[Message](d, "chat", "message_post", obj{"channel_id": channels[i].ID, "text": strings.Join(numbers, "\n")})
			return obj{"numbers": numbers}
		},
		"T22": func(d *desk) any {
			old := 0
			for _, i := range billingAll(d, "invoices_list", obj{"status": "draft", "limit": 100}, func(i Invoice) string { return i.ID }) {
				if i.Created < "2026-10-01" {
					old++
				}
			}
			return obj{"would_void": old}
		},
		"T23": func(d *desk) any {
			tiers := map[string]string{}
			for _, b := range d.businesses() {
				tiers[b.Domain] = b.Tier
			}
			proxied := map[string]int{}
			for _, r := range d.records() {
				if r.Type == "A" && r.Proxied {
					proxied[r.Zone.Name]++
				}
			}
			few := []string{}
			for _, z := range d.zones() {
				if tiers[z.Name] == "enterprise" && proxied[z.Name] < 4 {
					few = append(few, z.Name)
				}
			}
			return few
		},
		"T24": reporters,
	}
}

func repoint(d *desk) any {
	counts := map[string]int{}
	for _, z := range numberedAll[Zone](d, "zones_list", obj{"status": "active"}) {
		for _, rec := range numberedAll[Record](d, "records_list", obj{"zone_id": z.ID, "type": "CNAME"}) {
			if rec.Content != "old-lb.hosting.example" {
				continue
			}
			args := obj{"zone_id": z.ID, "record_id": rec.ID, "content": "edge.hosting.example"}
			_, err := try[any](d, "dns", "record_update", args)
			if text := (refusal)(""); errors.As(err, &text) {
				var limit struct{ Code string }
				if json.Unmarshal([]byte(text), &limit) != nil || limit.Code != "rate_limited" {
					d.t.Fatalf("record_update: %v", err)
				}
				_, err = try[any](d, "dns", "record_update", args)
			}
			if err != nil {
				d.t.Fatalf("record_update: %v", err)
			}
			counts[z.Name]++
		}
	}
	return counts
}

func churn(d *desk) any {
	var updates []obj
	for _, p := range d.contacts(obj{"limit": 100, "filters": []obj{
		{"propertyName": "lifecycle", "value": "lead"},
		{"propertyName": "created_at", "operator": "LT", "value": "2026-10-01"},
	}}) {
		if d.businesses()[p.CompanyID].Tier == "free" {
			updates = append(updates, obj{"id": p.ID, "lifecycle": "churned"})
		}
	}
	updated, failed := 0, []string{}
	for batch := range slices.Chunk(updates, batchLimit) {
		res := get[struct {
			Updated int
			Errors  []batchError
		}](d, "crm", "contacts_batch_update", obj{"updates": batch})
		updated += res.Updated
		for _, e := range res.Errors {
			failed = append(failed, e.ID)
		}
	}
	slices.Sort(failed)
	return obj{"updated": updated, "failed": failed}
}

func copyOps(d *desk) any {
	stored := func(title string) bool {
		return slices.ContainsFunc(cursorAll[articleHead](d, "kb", "articles_list", "articles", nil),
			func(a articleHead) bool { return a.Title == title })
	}
	copied := 0
	for _, h := range d.docHeads(obj{"folder": "ops"}) {
		doc := get[Document](d, "docs", "doc_get", obj{"id": h.ID})
		if utf8.RuneCountInString(doc.Content) <= 5000 {
			continue
		}
		if _, err := try[any](d, "kb", "article_create", obj{"title": doc.Title, "body": doc.Content}); err != nil && !stored(doc.Title) {
			d.t.Fatalf("article_create: %v", err)
		}
		copied++
	}
	return obj{"copied": copied}
}

func reporters(d *desk) any {
	enterprise := map[string]bool{}
	for _, p := range d.people() {
		if d.businesses()[p.CompanyID].Tier == "enterprise" {
			enterprise[address(p.Email)] = true
		}
	}
	var mu sync.Mutex
	found := map[string]bool{}
	var g errgroup.Group
	g.SetLimit(issueGetInFlight)
	for _, i := range d.items() {
		if i.State != "open" || i.IsPullRequest {
			continue
		}
		g.Go(func() error {
			issue, err := try[issueResult](d, "tracker", "issue_get", obj{"repo": i.Repo, "number": i.Number})
			if err != nil {
				return err
			}
			if m := reporter.FindStringSubmatch(issue.Body); m != nil && enterprise[address(m[1])] {
				mu.Lock()
				found[address(m[1])] = true
				mu.Unlock()
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		d.t.Fatal(err)
	}
	return len(found)
}
