package company

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

type resultInfo struct {
	Page       int `json:"page"`
	PerPage    int `json:"per_page"`
	Count      int `json:"count"`
	TotalCount int `json:"total_count"`
	TotalPages int `json:"total_pages"`
}

type numberedPage[T any] struct {
	Result     []T        `json:"result"`
	ResultInfo resultInfo `json:"result_info"`
}

type singleResult[T any] struct {
	Result T `json:"result"`
}

// numbered returns one page of all by its number. A page past the last is
// empty, and result_info says how many there are.
func numbered[T any](all []T, page, perPage *int, standard, largest int) (any, error) {
	size, err := pageSize("per_page", perPage, standard, largest)
	if err != nil {
		return nil, err
	}
	number := 1
	if page != nil {
		number = *page
	}
	pages := (len(all) + size - 1) / size
	if number < 1 {
		return nil, fmt.Errorf("page must be 1 or more, not %d", number)
	}
	items := []T{}
	if number <= pages {
		items = append(items, all[(number-1)*size:min(number*size, len(all))]...)
	}
	return numberedPage[T]{items, resultInfo{number, size, len(items), len(all), pages}}, nil
}

func zonesList(r *run, a struct {
	Page    *int   `json:"page"`
	PerPage *int   `json:"per_page"`
	Name    string `json:"name"`
	Status  string `json:"status"`
}) (any, error) {
	if err := oneOf("status", a.Status, "active", "pending", "paused"); err != nil {
		return nil, err
	}
	var zones []Zone
	for _, z := range r.DNS.Zones {
		if (a.Name == "" || z.Name == a.Name) && (a.Status == "" || z.Status == a.Status) {
			zones = append(zones, z)
		}
	}
	return numbered(zones, a.Page, a.PerPage, 20, 50)
}

func recordTypes() []string {
	return []string{"A", "AAAA", "CNAME", "MX", "NS", "SRV", "TXT"}
}

func recordsList(r *run, a struct {
	ZoneID  string `json:"zone_id"`
	Type    string `json:"type"`
	Name    string `json:"name"`
	Page    *int   `json:"page"`
	PerPage *int   `json:"per_page"`
}) (any, error) {
	if err := oneOf("type", a.Type, recordTypes()...); err != nil {
		return nil, err
	}
	if _, err := r.zone(a.ZoneID); err != nil {
		return nil, err
	}
	var records []Record
	for _, rec := range r.DNS.Records[a.ZoneID] {
		if (a.Name == "" || rec.Name == a.Name) && (a.Type == "" || rec.Type == a.Type) {
			records = append(records, rec)
		}
	}
	return numbered(records, a.Page, a.PerPage, 100, 100)
}

func recordCreate(r *run, a struct {
	ZoneID  string `json:"zone_id"`
	Type    string `json:"type"`
	Name    string `json:"name"`
	Content string `json:"content"`
	TTL     *int   `json:"ttl"`
	Proxied bool   `json:"proxied"`
}) (any, error) {
	zone, err := r.zone(a.ZoneID)
	if err != nil {
		return nil, err
	}
	if a.Name != zone.Name && !strings.HasSuffix(a.Name, "."+zone.Name) {
		return nil, fmt.Errorf("name %q is not within zone %s", a.Name, zone.Name)
	}
	rec := Record{Type: a.Type, Name: a.Name, Content: a.Content, TTL: 1, Proxied: a.Proxied}
	if a.TTL != nil {
		rec.TTL = *a.TTL
	}
	if err := rec.check(); err != nil {
		return nil, err
	}
	r.created++
	rec.ID = fmt.Sprintf("%032x", r.created)
	r.DNS.Records[a.ZoneID] = append(r.DNS.Records[a.ZoneID], rec)
	return singleResult[Record]{rec}, nil
}

// errRateLimited is the whole text of the answer to a call over the limit.
var errRateLimited = errors.New(`{"code":"rate_limited","retry_after_ms":200}`)

func recordUpdate(r *run, a struct {
	ZoneID   string  `json:"zone_id"`
	RecordID string  `json:"record_id"`
	Content  *string `json:"content"`
	TTL      *int    `json:"ttl"`
	Proxied  *bool   `json:"proxied"`
}) (any, error) {
	r.faults.recordUpdates++
	if r.faults.recordUpdates%12 == 0 {
		return nil, errRateLimited
	}
	i, err := r.record(a.ZoneID, a.RecordID)
	if err != nil {
		return nil, err
	}
	if a.Content == nil && a.TTL == nil && a.Proxied == nil {
		return nil, errors.New("nothing to change: give content, ttl or proxied")
	}
	rec := r.DNS.Records[a.ZoneID][i]
	if a.Content != nil {
		rec.Content = *a.Content
	}
	if a.TTL != nil {
		rec.TTL = *a.TTL
	}
	if a.Proxied != nil {
		rec.Proxied = *a.Proxied
	}
	if err := rec.check(); err != nil {
		return nil, err
	}
	r.DNS.Records[a.ZoneID][i] = rec
	return singleResult[Record]{rec}, nil
}

func recordDelete(r *run, a struct {
	ZoneID   string `json:"zone_id"`
	RecordID string `json:"record_id"`
}) (any, error) {
	i, err := r.record(a.ZoneID, a.RecordID)
	if err != nil {
		return nil, err
	}
	r.DNS.Records[a.ZoneID] = slices.Delete(r.DNS.Records[a.ZoneID], i, i+1)
	return singleResult[map[string]string]{map[string]string{"id": a.RecordID}}, nil
}

func (r *run) zone(id string) (Zone, error) {
	for _, z := range r.DNS.Zones {
		if z.ID == id {
			return z, nil
		}
	}
	return Zone{}, fmt.Errorf("no zone has the id %q; zones_list has the ids", id)
}

// record returns the index of a record in its zone.
func (r *run) record(zoneID, id string) (int, error) {
	zone, err := r.zone(zoneID)
	if err != nil {
		return 0, err
	}
	for i, rec := range r.DNS.Records[zoneID] {
		if rec.ID == id {
			return i, nil
		}
	}
	return 0, fmt.Errorf("no record of zone %s has the id %q; records_list has the ids", zone.Name, id)
}

// check refuses a record that a name server would not take.
func (rec Record) check() error {
	if rec.Type == "" || !slices.Contains(recordTypes(), rec.Type) {
		return fmt.Errorf("type %q is unknown; use one of %s", rec.Type, strings.Join(recordTypes(), ", "))
	}
	if rec.TTL != 1 && (rec.TTL < 60 || rec.TTL > 86400) {
		return fmt.Errorf("ttl must be 1 (automatic) or 60 to 86400 seconds, not %d", rec.TTL)
	}
	addr, err := netip.ParseAddr(rec.Content)
	switch {
	case rec.Content == "":
		return errors.New("content must not be empty")
	case rec.Type == "A" && (err != nil || !addr.Is4()):
		return fmt.Errorf("content %q is not an IPv4 address, as an A record needs", rec.Content)
	case rec.Type == "AAAA" && (err != nil || !addr.Is6()):
		return fmt.Errorf("content %q is not an IPv6 address, as an AAAA record needs", rec.Content)
	case rec.Proxied && !slices.Contains([]string{"A", "AAAA", "CNAME"}, rec.Type):
		return fmt.Errorf("a %s record cannot be proxied", rec.Type)
	}
	return nil
}
