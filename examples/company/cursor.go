package company

import (
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"strings"
)

// mark is a place in the answer to a query. Clients see it encoded and bound
// to the query, so that a cursor cannot be used with other filters.
type mark struct {
	offset int
	page   int // 1 is the first
}

// queryHash identifies a query by its tool and filters.
func queryHash(query []string) uint32 {
	h := fnv.New32a()
	for _, part := range query {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return h.Sum32()
}

func (m mark) encode(query ...string) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%08x.%d.%d", queryHash(query), m.offset, m.page))
}

// openMark reads a cursor that encode made for the same query; the empty
// cursor is the start. name is what the tool calls its cursor.
func openMark(name, cursor string, query ...string) (mark, error) {
	if cursor == "" {
		return mark{page: 1}, nil
	}
	var hash uint32
	var m mark
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		_, err = fmt.Sscanf(string(raw), "%08x.%d.%d", &hash, &m.offset, &m.page)
	}
	foreign := hash != queryHash(query)
	if err != nil || m.offset < 0 || m.page < 1 || (!foreign && m.encode(query...) != cursor) {
		return mark{}, fmt.Errorf("invalid %s %.80q: give back the value of the page before, or leave it out to begin", name, cursor)
	}
	if foreign {
		return mark{}, fmt.Errorf("the %s %.80q belongs to a query with other filters: keep the filters while paging, or leave it out to begin", name, cursor)
	}
	return m, nil
}

// cut returns the page of all that cursor names, never nil, and the cursor of
// the next one, empty at the end.
func cut[T any](all []T, size int, name, cursor string, query ...string) (page []T, next string, err error) {
	m, err := openMark(name, cursor, query...)
	if err != nil {
		return nil, "", err
	}
	from := min(m.offset, len(all))
	to := min(from+size, len(all))
	if to < len(all) {
		next = mark{to, m.page + 1}.encode(query...)
	}
	return append([]T{}, all[from:to]...), next, nil
}

// pageSize returns the wanted size of a page, or standard if none was given. Sizes
// above largest are refused rather than cut: who steps by the size asked for
// would skip items.
func pageSize(name string, wanted *int, standard, largest int) (int, error) {
	if wanted == nil {
		return standard, nil
	}
	if *wanted < 1 || *wanted > largest {
		return 0, fmt.Errorf("%s must be between 1 and %d, not %d", name, largest, *wanted)
	}
	return *wanted, nil
}

// words splits a search text; it must have one word at least.
func words(name, text string) ([]string, error) {
	w := strings.Fields(strings.ToLower(text))
	if len(w) == 0 {
		return nil, fmt.Errorf("%s must have one word at least", name)
	}
	return w, nil
}

// hasAll reports whether text, in any case, contains every word.
func hasAll(text string, words []string) bool {
	text = strings.ToLower(text)
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}
