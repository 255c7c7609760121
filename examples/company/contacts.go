package company

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	contactsPage = 10
	batchLimit   = 50
)

func lifecycles() []string { return []string{"subscriber", "lead", "customer", "churned"} }

// property returns a property of a contact as text; has is false for one that
// is empty, known for one that contacts do not have.
func (p Contact) property(name string) (value string, has, known bool) {
	switch name {
	case "id":
		value = p.ID
	case "email":
		value = p.Email
	case "firstname":
		value = p.Firstname
	case "lastname":
		value = p.Lastname
	case "company_id":
		value = p.CompanyID
	case "lifecycle":
		value = p.Lifecycle
	case "owner":
		value = p.Owner
	case "created_at":
		value = p.CreatedAt
	case "archived":
		value = strconv.FormatBool(p.Archived)
	case "phone":
		if p.Phone != nil {
			value = *p.Phone
		}
	default:
		return "", false, false
	}
	return value, value != "", true
}

const filterHelp = `a filter is {"propertyName":"lifecycle","operator":"EQ","value":"lead"}; properties are archived, company_id, created_at, email, firstname, id, lastname, lifecycle, owner, phone; operators are EQ, NEQ, CONTAINS, LT, LTE, GT, GTE (with value), IN, NOT_IN (with values), HAS_PROPERTY, NOT_HAS_PROPERTY`

// contactFilter is one of the filters of contacts_search, all of which must hold.
type contactFilter struct {
	Property string            `json:"propertyName"`
	Operator string            `json:"operator"` // EQ if left out
	Value    json.RawMessage   `json:"value"`
	Values   []json.RawMessage `json:"values"`
}

// condition compiles a filter.
func (f contactFilter) condition() (func(Contact) bool, error) {
	if _, _, known := (Contact{}).property(f.Property); !known {
		return nil, fmt.Errorf("contacts have no property %q: %s", f.Property, filterHelp)
	}
	raws := f.Values
	if f.Value != nil {
		raws = append(raws, f.Value)
	}
	values := make([]string, 0, len(raws))
	for _, raw := range raws {
		v, err := scalar(raw)
		if err != nil {
			return nil, fmt.Errorf("the filter for %s: %w: %s", f.Property, err, filterHelp)
		}
		values = append(values, v)
	}
	needed := 1
	var holds func(value string, has bool) bool
	switch f.Operator {
	case "", "EQ":
		holds = func(v string, _ bool) bool { return v == values[0] }
	case "NEQ":
		holds = func(v string, _ bool) bool { return v != values[0] }
	case "CONTAINS":
		holds = func(v string, _ bool) bool { return strings.Contains(v, values[0]) }
	case "LT", "LTE", "GT", "GTE":
		if f.Property == "created_at" && len(values) == 1 {
			at, err := instant("value", values[0])
			if err != nil {
				return nil, fmt.Errorf("the filter for created_at: %w", err)
			}
			values[0] = at.UTC().Format(time.RFC3339)
		}
		order := map[string][]int{"LT": {-1}, "LTE": {-1, 0}, "GT": {1}, "GTE": {1, 0}}[f.Operator]
		holds = func(v string, has bool) bool { return has && slices.Contains(order, strings.Compare(v, values[0])) }
	case "IN":
		needed = max(1, len(values))
		holds = func(v string, _ bool) bool { return slices.Contains(values, v) }
	case "NOT_IN":
		needed = max(1, len(values))
		holds = func(v string, _ bool) bool { return !slices.Contains(values, v) }
	case "HAS_PROPERTY":
		needed = 0
		holds = func(_ string, has bool) bool { return has }
	case "NOT_HAS_PROPERTY":
		needed = 0
		holds = func(_ string, has bool) bool { return !has }
	default:
		return nil, fmt.Errorf("operator %q is unknown: %s", f.Operator, filterHelp)
	}
	if len(values) != needed {
		return nil, fmt.Errorf("operator %s does not take %d values: %s", f.Operator, len(values), filterHelp)
	}
	return func(p Contact) bool {
		value, has, _ := p.property(f.Property)
		return holds(value, has)
	}, nil
}

// scalar reads a text, a whole number or a boolean as text.
func scalar(raw json.RawMessage) (string, error) {
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return "", fmt.Errorf("the value is not JSON: %w", err)
	}
	switch v := v.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return strconv.FormatBool(v), nil
	}
	return "", fmt.Errorf("the value %s is neither text, number nor boolean", raw)
}

func contactsSearch(r *run, a struct {
	Filters  []json.RawMessage `json:"filters"`
	Archived bool              `json:"archived"`
	After    string            `json:"after"`
	Limit    *int              `json:"limit"`
}) (any, error) {
	size, err := pageSize("limit", a.Limit, contactsPage, crmPageMax)
	if err != nil {
		return nil, err
	}
	query := []string{"contacts_search", strconv.FormatBool(a.Archived)}
	var conditions []func(Contact) bool
	for n, raw := range a.Filters {
		var f contactFilter
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields()
		if err := d.Decode(&f); err != nil {
			return nil, fmt.Errorf("filters[%d] is not a filter (%w): %s", n, err, filterHelp)
		}
		holds, err := f.condition()
		if err != nil {
			return nil, fmt.Errorf("filters[%d]: %w", n, err)
		}
		conditions = append(conditions, holds)
		query = append(query, f.Property, f.Operator, string(f.Value), fmt.Sprintf("%s", f.Values))
	}
	var found []Contact
	for _, p := range r.CRM.Contacts {
		if p.Archived && !a.Archived {
			continue
		}
		if !slices.ContainsFunc(conditions, func(holds func(Contact) bool) bool { return !holds(p) }) {
			found = append(found, p)
		}
	}
	results, next, err := cut(found, size, "after", a.After, query...)
	if err != nil {
		return nil, err
	}
	page := afterPage[Contact]{Total: len(found), Results: results}
	if next != "" {
		page.Paging = &paging{pagingNext{next}}
	}
	return page, nil
}

// contact returns the index of a contact, archived ones included.
func (r *run) contact(id string) (int, error) {
	for i := range r.CRM.Contacts {
		if r.CRM.Contacts[i].ID == id {
			return i, nil
		}
	}
	return 0, fmt.Errorf("no contact has the id %q; contacts_search has the ids", id)
}

type contactRef struct {
	ID string `json:"id"`
}

func contactGet(r *run, a contactRef) (any, error) {
	i, err := r.contact(a.ID)
	if err != nil {
		return nil, err
	}
	return r.CRM.Contacts[i], nil
}

func contactDelete(r *run, a contactRef) (any, error) {
	i, err := r.contact(a.ID)
	if err != nil {
		return nil, err
	}
	r.CRM.Contacts = slices.Delete(r.CRM.Contacts, i, i+1)
	return struct {
		contactRef
		Deleted bool `json:"deleted"`
	}{a, true}, nil
}

// batchError is why one update of a batch was not applied.
type batchError struct {
	ID      string `json:"id"`
	Code    string `json:"code"` // NOT_FOUND, INVALID or LOCKED
	Message string `json:"message"`
}

const updateHelp = `an update is {"id":"51000","lifecycle":"churned"} or {"id":"51000","properties":{"lifecycle":"churned"}}; properties are archived, company_id, email, firstname, lastname, lifecycle, owner, phone`

// contactsBatchUpdate applies the updates that it can and reports the others.
// Only a call that is malformed as a whole is refused as a whole.
func contactsBatchUpdate(r *run, a struct {
	Updates []map[string]json.RawMessage `json:"updates"`
}) (any, error) {
	// The input schema says so too; this holds whatever the schema says.
	if len(a.Updates) > batchLimit {
		return nil, fmt.Errorf("at most %d updates in one call, not %d", batchLimit, len(a.Updates))
	}
	ids := make([]string, len(a.Updates))
	for n, u := range a.Updates {
		if err := json.Unmarshal(u["id"], &ids[n]); err != nil || ids[n] == "" {
			return nil, fmt.Errorf("updates[%d] has no id that is a text; nothing was changed: %s", n, updateHelp)
		}
	}
	results, failed := []Contact{}, []batchError{}
	for n, u := range a.Updates {
		id := ids[n]
		at, err := r.contact(id)
		if err != nil {
			failed = append(failed, batchError{id, "NOT_FOUND", err.Error()})
			continue
		}
		if number, err := strconv.Atoi(id); err == nil && number%13 == 0 {
			failed = append(failed, batchError{id, "LOCKED", "the contact is locked by another process and was not changed"})
			continue
		}
		changed, err := r.CRM.Contacts[at].with(u, r.CRM.Companies)
		if err != nil {
			failed = append(failed, batchError{id, "INVALID", err.Error()})
			continue
		}
		r.CRM.Contacts[at] = changed
		results = append(results, changed)
	}
	return struct {
		Updated int          `json:"updated"`
		Results []Contact    `json:"results"`
		Errors  []batchError `json:"errors"`
	}{len(results), results, failed}, nil
}

// with returns the contact with the properties of an update.
func (p Contact) with(update map[string]json.RawMessage, companies []Business) (Contact, error) {
	properties := maps.Clone(update)
	delete(properties, "id")
	if nested, ok := properties["properties"]; ok {
		if len(properties) > 1 {
			return p, errors.New("give the properties either beside the id or in properties, not both")
		}
		properties = nil
		if err := json.Unmarshal(nested, &properties); err != nil {
			return p, fmt.Errorf("properties is not an object: %w", err)
		}
	}
	if len(properties) == 0 {
		return p, fmt.Errorf("nothing to change: %s", updateHelp)
	}
	targets := map[string]any{
		"archived": &p.Archived, "company_id": &p.CompanyID, "email": &p.Email, "firstname": &p.Firstname,
		"lastname": &p.Lastname, "lifecycle": &p.Lifecycle, "owner": &p.Owner, "phone": &p.Phone,
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		target, ok := targets[name]
		if !ok {
			return p, fmt.Errorf("property %q cannot be changed: %s", name, updateHelp)
		}
		if name != "phone" && bytes.Equal(properties[name], []byte("null")) {
			return p, fmt.Errorf("property %s cannot be null", name)
		}
		if err := json.Unmarshal(properties[name], target); err != nil {
			return p, fmt.Errorf("property %s: %w", name, err)
		}
	}
	if err := oneOf("lifecycle", p.Lifecycle, lifecycles()...); err != nil || p.Lifecycle == "" {
		return p, fmt.Errorf("lifecycle %q is unknown; use one of %s", p.Lifecycle, strings.Join(lifecycles(), ", "))
	}
	if !slices.ContainsFunc(companies, func(b Business) bool { return b.ID == p.CompanyID }) {
		return p, fmt.Errorf("no company has the id %q; companies_list has the ids", p.CompanyID)
	}
	return p, nil
}
