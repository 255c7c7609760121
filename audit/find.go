package audit

import (
	"regexp"
	"slices"
	"strings"
)

// notSecret are words in the name of a value that is no credential although
// the name ends like one: the cursors of paged lists. In a log they may be
// masked; taken out of a result they would end the list.
var notSecret = regexp.MustCompile(`(?i)page|cursor|next|continu|sync|delta|resume`)

// FindSecrets returns where a text holds what Redact would mask, as pairs of
// byte offsets in order that do not overlap. The cursors of paged lists
// (next_page_token and the like) are not among them.
func FindSecrets(s string) [][]int {
	if s == "" {
		return nil
	}
	var out [][]int
	lower := strings.ToLower(s)
	for _, r := range redactions {
		if !slices.ContainsFunc(r.needs, func(w string) bool { return strings.Contains(lower, w) }) {
			continue
		}
		kept, after, _ := strings.Cut(r.with, Mask)
		groups := strings.Count(kept, "${")
		for _, m := range r.pattern.FindAllStringSubmatchIndex(s, -1) {
			start, end := m[0], m[1]-len(after)
			if groups > 0 {
				start = m[2*groups+1]
			}
			if groups > 1 && notSecret.MatchString(s[m[2]:m[3]]) {
				continue
			}
			if start < end {
				out = append(out, []int{start, end})
			}
		}
	}
	slices.SortFunc(out, func(a, b []int) int { return a[0] - b[0] })
	merged := out[:0]
	for _, x := range out {
		if n := len(merged); n > 0 && x[0] < merged[n-1][1] {
			merged[n-1][1] = max(merged[n-1][1], x[1])
			continue
		}
		merged = append(merged, x)
	}
	return merged
}

// SecretMember reports whether a member of that name holds a credential:
// password, token, api_key and the like, but not next_page_token.
func SecretMember(name string) bool {
	return secretName.MatchString(name) && !notSecret.MatchString(name)
}
