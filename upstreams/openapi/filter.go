package openapi

import (
	"strings"

	"github.com/mcp-portal/mcp-portal/config"
)

// filter chooses operations by patterns: "tag:DNS*", "id:zones-*", "GET *",
// "DELETE /zones/*", "/zones/*". In a pattern "*" stands for any characters.
type filter struct{ include, exclude []string }

func newFilter(o Options) filter { return filter{o.Include, o.Exclude} }

func (f filter) keeps(op *Operation) bool {
	return (len(f.include) == 0 || matchesAny(f.include, op)) && !matchesAny(f.exclude, op)
}

func matchesAny(patterns []string, op *Operation) bool {
	for _, p := range patterns {
		if meansOperation(p, op) {
			return true
		}
	}
	return false
}

// meansOperation reports whether a pattern of operations.include means the operation.
func meansOperation(pattern string, op *Operation) bool {
	if tag, ok := strings.CutPrefix(pattern, "tag:"); ok {
		for _, t := range op.Tags {
			if config.Match(tag, t) {
				return true
			}
		}
		return false
	}
	if id, ok := strings.CutPrefix(pattern, "id:"); ok {
		return config.Match(id, op.ID)
	}
	path := pattern
	if method, rest, ok := strings.Cut(pattern, " "); ok && !strings.HasPrefix(pattern, "/") {
		if !config.Match(strings.ToUpper(method), op.Method) {
			return false
		}
		path = strings.TrimSpace(rest)
	}
	return config.Match(path, op.Path)
}
