package company

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
)

// Report says what a run has done so far.
type Report struct {
	Run    int  `json:"run"` // 1 at start, one more at every reset
	Outage bool `json:"outage"`
	// Counts has the number of zones, records, issues and so on now.
	Counts   map[string]int  `json:"counts"`
	Articles []ArticleReport `json:"articles"`
	Messages []Message       `json:"messages"`
	Refunds  []Refund        `json:"refunds"`
	// Changes are the differences of records, issues, contacts and invoices
	// from the fixture, by collection and id.
	Changes []Change `json:"changes"`
	Calls   []Call   `json:"calls"`
	// Movements are those of the warehouse.
	Movements []Movement `json:"movements,omitempty"`
	// Unrecorded counts calls past the bounds of what is kept.
	Unrecorded int `json:"unrecorded"`
}

// ArticleReport is a stored article with the size and the SHA-256 (hex) of its
// body.
type ArticleReport struct {
	Article
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Kinds of a [Change].
const (
	ChangeCreated = "created"
	ChangeUpdated = "updated"
	ChangeDeleted = "deleted"
)

// Change is one thing that is not as in the fixture.
type Change struct {
	Kind       string `json:"kind"`
	Collection string `json:"collection"` // dns.records, tracker.issues, crm.contacts or billing.invoices
	ID         string `json:"id"`         // issues: repo#number
	// Before and After are a Record, Issue, Contact or Invoice; Before is nil
	// for what was created, After for what was deleted.
	Before any `json:"before,omitempty"`
	After  any `json:"after,omitempty"`
}

// Report returns the report of the current run.
func (c *Company) Report() Report {
	r := c.run.Load()
	calls := r.recorded()
	r.mu.Lock()
	defer r.mu.Unlock()
	rep := Report{
		Run: r.number, Outage: r.outage, Calls: calls, Movements: slices.Clone(r.movements), Unrecorded: r.unrecorded,
		Counts: r.counts(), Changes: []Change{},
		Articles: []ArticleReport{},
		Messages: append([]Message{}, r.Chat.Messages...),
		Refunds:  append([]Refund{}, r.Billing.Refunds...),
	}
	for _, a := range r.KB.Articles {
		sum := sha256.Sum256([]byte(a.Body))
		rep.Articles = append(rep.Articles, ArticleReport{a, len(a.Body), hex.EncodeToString(sum[:])})
	}
	for _, z := range c.seed.DNS.Zones {
		rep.Changes = append(rep.Changes, diff("dns.records", c.seed.DNS.Records[z.ID], r.DNS.Records[z.ID],
			func(rec Record) string { return rec.ID })...)
	}
	for _, repo := range c.seed.Tracker.Repos {
		rep.Changes = append(rep.Changes, diff("tracker.issues", c.seed.Tracker.Issues[repo], r.Tracker.Issues[repo],
			func(i Issue) string { return fmt.Sprintf("%s#%d", repo, i.Number) })...)
	}
	rep.Changes = append(rep.Changes, diff("crm.contacts", c.seed.CRM.Contacts, r.CRM.Contacts, func(p Contact) string { return p.ID })...)
	rep.Changes = append(rep.Changes, diff("billing.invoices", c.seed.Billing.Invoices, r.Billing.Invoices, func(i Invoice) string { return i.ID })...)
	return rep
}

func (f *fixture) counts() map[string]int {
	counts := map[string]int{
		"zones": len(f.DNS.Zones), "repositories": len(f.Tracker.Repos),
		"companies": len(f.CRM.Companies), "contacts": len(f.CRM.Contacts),
		"customers": len(f.Billing.Customers), "invoices": len(f.Billing.Invoices), "refunds": len(f.Billing.Refunds),
		"documents": len(f.Docs.Docs), "articles": len(f.KB.Articles),
		"channels": len(f.Chat.Channels), "messages": len(f.Chat.Messages),
	}
	for _, records := range f.DNS.Records {
		counts["records"] += len(records)
	}
	for _, issues := range f.Tracker.Issues {
		counts["issues"] += len(issues)
	}
	return counts
}

// diff compares a collection with that of the fixture, in the order of the
// fixture and then of creation.
func diff[T any](collection string, before, after []T, id func(T) string) []Change {
	now := make(map[string]T, len(after))
	for _, item := range after {
		now[id(item)] = item
	}
	var changes []Change
	for _, old := range before {
		key := id(old)
		item, still := now[key]
		delete(now, key)
		switch {
		case !still:
			changes = append(changes, Change{Kind: ChangeDeleted, Collection: collection, ID: key, Before: old})
		case !reflect.DeepEqual(old, item):
			changes = append(changes, Change{Kind: ChangeUpdated, Collection: collection, ID: key, Before: old, After: item})
		}
	}
	for _, item := range after {
		key := id(item)
		if _, created := now[key]; created {
			changes = append(changes, Change{Kind: ChangeCreated, Collection: collection, ID: key, After: item})
		}
	}
	return changes
}
