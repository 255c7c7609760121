package codemode

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// union joins types with |, each once.
func union(parts []string) string {
	var out []string
	for _, p := range parts {
		if p == unknownType {
			return unknownType
		}
		for _, m := range members(p) {
			if m != "" && !slices.Contains(out, m) {
				out = append(out, m)
			}
		}
	}
	if len(out) > 1 {
		out = slices.DeleteFunc(out, func(p string) bool { return p == "never" })
	}
	for i, p := range out {
		if len(out) > 1 && topLevel(p, '&') {
			out[i] = "(" + p + ")"
		}
	}
	if len(out) == 0 {
		return "never"
	}
	return strings.Join(out, " | ")
}

// intersection joins types with &.
func intersection(parts []string) string {
	var out []string
	for _, p := range parts {
		if p != "" && p != unknownType && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	switch len(out) {
	case 0:
		return unknownType
	case 1:
		return out[0]
	}
	for i, p := range out {
		if topLevel(p, '|') {
			out[i] = "(" + p + ")"
		}
	}
	return strings.Join(out, " & ")
}

// grouped puts a type that is not one word into parentheses.
func grouped(t string) string {
	if topLevel(t, '|') || topLevel(t, '&') {
		return "(" + t + ")"
	}
	return t
}

// members splits a union at its own bars.
func members(t string) []string {
	var out []string
	for {
		i := operator(t, '|')
		if i < 0 {
			return append(out, strings.TrimSpace(t))
		}
		out = append(out, strings.TrimSpace(t[:i]))
		t = t[i+1:]
	}
}

func topLevel(t string, op byte) bool { return operator(t, op) >= 0 }

// operator returns where an operator stands in a type outside of all brackets,
// texts and comments, or -1.
func operator(t string, op byte) int {
	depth := 0
	for i := 0; i < len(t); i++ {
		switch c := t[i]; c {
		case '"':
			for i++; i < len(t) && t[i] != '"'; i++ {
				if t[i] == '\\' {
					i++
				}
			}
		case '/':
			if strings.HasPrefix(t[i:], "/*") {
				end := strings.Index(t[i+2:], "*/")
				if end < 0 {
					return -1
				}
				i += end + 3
			}
		case '{', '[', '(', '<':
			depth++
		case '}', ']', ')', '>':
			depth--
		case op:
			if depth == 0 {
				return i
			}
		}
	}
	return -1
}

// literal renders a JSON value as a literal type.
func literal(n *node) string {
	switch n.kind {
	case '{':
		if len(n.kids) == 0 {
			return "{}"
		}
		var out []string
		for i, k := range n.kids {
			out = append(out, quoteName(n.keys[i])+": "+literal(k))
		}
		return "{ " + strings.Join(out, "; ") + " }"
	case '[':
		var out []string
		for _, k := range n.kids {
			out = append(out, literal(k))
		}
		return "[" + strings.Join(out, ", ") + "]"
	case '"':
		return string(appendQuoted(nil, lineSafe(n.text())))
	}
	return string(n.raw)
}

// lineSafe removes the two separators that older TypeScript ends a line at.
func lineSafe(s string) string {
	return strings.NewReplacer("\u2028", " ", "\u2029", " ").Replace(s)
}

var nameShape = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*$`)

func isName(s string) bool { return nameShape.MatchString(s) }

// reserved words cannot be the name of a function; as a member they can.
var reserved = func() map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq("arguments await break case catch class const continue debugger default delete do else enum eval export extends false finally for function if implements import in instanceof interface let new null package private protected public return static super switch this throw true try typeof var void while with yield") {
		m[w] = true
	}
	return m
}()

func quoteName(s string) string {
	if isName(s) {
		return s
	}
	return string(appendQuoted(nil, lineSafe(s)))
}

// typeName makes an identifier of any text.
func typeName(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r < utf8.RuneSelf && (r == '_' || r == '$' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
			b.WriteRune(r)
		} else {
			b.WriteByte('_')
		}
	}
	name := b.String()
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		name = "_" + name
	}
	return name
}

func clipDoc(s string, n int) string {
	s = strings.TrimSpace(strings.ToValidUTF8(s, "\ufffd"))
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.TrimSpace(s[:n]) + " …"
}

// docBlock renders a documentation comment, "" without content.
func docBlock(text string, tags []string) string {
	var lines []string
	if text != "" {
		for line := range strings.SplitSeq(strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u2028", "\n", "\u2029", "\n").Replace(text), "\n") {
			lines = append(lines, line)
		}
	}
	for _, t := range tags {
		lines = append(lines, strings.Join(strings.Fields(t), " "))
	}
	if len(lines) == 0 {
		return ""
	}
	for i, l := range lines {
		lines[i] = strings.TrimRight(strings.ReplaceAll(l, "*/", `*\/`), " \t")
	}
	if len(lines) == 1 {
		return "/** " + lines[0] + " */\n"
	}
	return "/**\n * " + strings.Join(lines, "\n * ") + "\n */\n"
}

func indent(s string) string {
	lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	for i, l := range lines {
		if l != "" {
			lines[i] = "  " + l
		}
	}
	out := strings.Join(lines, "\n")
	if strings.HasSuffix(s, "\n") {
		out += "\n"
	}
	return out
}
