package config

import (
	"slices"
	"strings"
)

func nearest(word string, candidates []string) string { return Nearest(word, candidates) }

// Nearest returns the candidate that a mistyped word most likely meant, or ""
// when none is close. Letter case, "-" and "_" do not count as differences,
// so clientId finds client_id.
func Nearest(word string, candidates []string) string {
	w := fold(word)
	if w == "" || len(w) > 64 {
		return ""
	}
	best, bestDist := "", 1<<30
	for _, c := range candidates {
		f := fold(c)
		d := distance(w, f)
		if limit := max(1, min(len(w), len(f))/3); d > limit {
			continue
		}
		if d < bestDist || d == bestDist && c < best {
			best, bestDist = c, d
		}
	}
	return best
}

func fold(s string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(s))
}

// distance is the number of inserted, removed, changed or swapped
// neighbouring characters between two words.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	rows := make([][]int, len(x)+1)
	for i := range rows {
		rows[i] = make([]int, len(y)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(x); i++ {
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(x)][len(y)]
}

// list writes words for a message: a, b and c.
func list(words []string) string {
	w := slices.Clone(words)
	if len(w) < 2 {
		return strings.Join(w, "")
	}
	return strings.Join(w[:len(w)-1], ", ") + " and " + w[len(w)-1]
}

// choice writes words for a message: "a", "b" or "c".
func choice(words []string) string {
	q := make([]string, len(words))
	for i, w := range words {
		q[i] = `"` + w + `"`
	}
	if len(q) < 2 {
		return strings.Join(q, "")
	}
	return strings.Join(q[:len(q)-1], ", ") + " or " + q[len(q)-1]
}
