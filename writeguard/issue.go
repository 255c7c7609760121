package writeguard

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/mcp-portal/mcp-portal/config"
)

var (
	celName    = regexp.MustCompile(`^[A-Za-z_][\w.]*`)
	undeclared = regexp.MustCompile(`^undeclared reference to '([^']*)'`)
	badSyntax  = regexp.MustCompile(`^Syntax error: .* (?:input|at:) '([^']*)'`)
)

// plainIssue says what CEL found at a place of a condition (line from 1,
// column from 0) in words that help who wrote it. What it does not know it
// leaves as CEL says it.
func plainIssue(text string, line, column int, message string) string {
	if m := undeclared.FindStringSubmatch(message); m != nil {
		name := m[1]
		if lines := strings.Split(text, "\n"); line >= 1 && line <= len(lines) {
			if rest := []rune(lines[line-1]); column <= len(rest) {
				if strings.HasPrefix(string(rest[column:]), "(") {
					return "there is no function " + name
				}
				if full := celName.FindString(string(rest[column:])); strings.HasPrefix(full, name) {
					name = full
				}
			}
		}
		if near := config.Nearest(name, conditionVariables()); near != "" {
			return fmt.Sprintf("there is no %s; did you mean %s?", name, near)
		}
		return fmt.Sprintf("there is no %s; a condition can look at %s, and texts are in quotes", name, strings.Join(conditionVariables(), ", "))
	}
	if m := badSyntax.FindStringSubmatch(message); m != nil {
		switch said := strings.TrimSpace(m[1]); said {
		case "=":
			return "= does not compare; write =="
		case "and":
			return "write && for and"
		case "or":
			return "write || for or"
		case "not":
			return "write ! for not"
		case "<EOF>":
			return "the condition ends where a value is missing"
		}
	}
	return message
}
