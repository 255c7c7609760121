package company

import (
	"fmt"
	"strconv"
)

const crmPage, crmPageMax = 50, 100

type pagingNext struct {
	After string `json:"after"`
}

type paging struct {
	Next pagingNext `json:"next"`
}

// afterPage is a page with the total over all pages. Paging is missing on the
// last one.
type afterPage[T any] struct {
	Total   int     `json:"total"`
	Results []T     `json:"results"`
	Paging  *paging `json:"paging,omitempty"`
}

func companiesList(r *run, a struct {
	Offset int  `json:"offset"`
	Limit  *int `json:"limit"`
}) (any, error) {
	size, err := pageSize("limit", a.Limit, crmPage, crmPageMax)
	if err != nil {
		return nil, err
	}
	if a.Offset < 0 {
		return nil, fmt.Errorf("offset must be 0 or more, not %d", a.Offset)
	}
	all := r.CRM.Companies
	from := min(a.Offset, len(all))
	to := min(from+size, len(all))
	page := afterPage[Business]{Total: len(all), Results: append([]Business{}, all[from:to]...)}
	if to < len(all) {
		page.Paging = &paging{pagingNext{strconv.Itoa(to)}}
	}
	return page, nil
}

// crmHit is a hit of search: a contact or a company.
type crmHit struct {
	Kind  string `json:"kind"` // contact or company
	ID    string `json:"id"`
	Title string `json:"title"`
}

const crmHits = 20

// crmSearch has no pages: it gives the first hits and says how many there are.
func crmSearch(r *run, a struct {
	Query string `json:"query"`
}) (any, error) {
	wanted, err := words("query", a.Query)
	if err != nil {
		return nil, err
	}
	hits := []crmHit{}
	for _, b := range r.CRM.Companies {
		if hasAll(b.Name+" "+b.Domain, wanted) {
			hits = append(hits, crmHit{"company", b.ID, b.Name + " (" + b.Domain + ")"})
		}
	}
	for _, p := range r.CRM.Contacts {
		if !p.Archived && hasAll(p.Firstname+" "+p.Lastname+" "+p.Email, wanted) {
			hits = append(hits, crmHit{"contact", p.ID, p.Firstname + " " + p.Lastname + " <" + p.Email + ">"})
		}
	}
	total := len(hits)
	return struct {
		Total     int      `json:"total"`
		Truncated bool     `json:"truncated"`
		Results   []crmHit `json:"results"`
	}{total, total > crmHits, hits[:min(total, crmHits)]}, nil
}
