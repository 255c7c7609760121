package config

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Match reports whether name matches the glob. It is the one pattern language
// of every list of globs in portal.yaml: "*" stands for any characters, also
// none, "?" for exactly one, everything else for itself. Letter case counts.
func Match(glob, name string) bool {
	// Two positions and one way back: linear in practice and never
	// exponential, because only the last star is ever retried.
	g, n := 0, 0
	star, mark := -1, 0
	for n < len(name) {
		if g < len(glob) && glob[g] == '*' {
			star, mark = g, n
			g++
			continue
		}
		if g < len(glob) {
			_, size := utf8.DecodeRuneInString(name[n:])
			if glob[g] == '?' {
				g, n = g+1, n+size
				continue
			}
			if glob[g] == name[n] {
				g, n = g+1, n+1
				continue
			}
		}
		if star < 0 {
			return false
		}
		_, size := utf8.DecodeRuneInString(name[mark:])
		mark += size
		g, n = star+1, mark
	}
	for g < len(glob) && glob[g] == '*' {
		g++
	}
	return g == len(glob)
}

// MatchTool reports whether a "server/tool" glob matches a tool of a server.
// The two parts are matched each for itself, split at the first slash: a
// server id has none.
func MatchTool(glob, server, tool string) bool {
	gs, gt, ok := strings.Cut(glob, "/")
	return ok && Match(gs, server) && Match(gt, tool)
}

// hasGlob reports whether the pattern can match more than one name.
func hasGlob(s string) bool { return strings.ContainsAny(s, "*?") }

// checkGlob says what is wrong with a pattern, or "". Classes, braces and
// escapes of other glob languages are refused rather than taken literally: a
// policy that looks as if it matched is worse than one that does not load.
func checkGlob(s string) string {
	if s == "" {
		return "empty pattern; remove it, or write \"*\" to match everything"
	}
	if i := strings.IndexAny(s, `[]{}\!^`); i >= 0 {
		return fmt.Sprintf("%q is not supported in a pattern; only * (any characters) and ? (one character) are special", s[i:i+1])
	}
	for _, r := range s {
		if r < ' ' || r == 0x7f {
			return "a pattern cannot contain control characters; remove them"
		}
	}
	return ""
}
