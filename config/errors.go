package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Error is one thing that is wrong with a configuration file.
type Error struct {
	File    string // as given to Load or Parse
	Line    int    // from 1; 0 when the error is about the file as a whole
	Column  int    // from 1, in characters
	Path    string // the key, e.g. servers.dns.url or guard.rules[2].action; empty for syntax
	Message string // what is wrong, and after a semicolon what to do
}

// Error returns "file:line:column: path: message" without the parts that are
// not known. It never contains the value of a secret.
func (e Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", e.Line, e.Column)
	}
	b.WriteString(": ")
	if e.Path != "" {
		b.WriteString(e.Path)
		b.WriteString(": ")
	}
	b.WriteString(e.Message)
	return b.String()
}

// Errors is everything that is wrong with a configuration file, in the order
// of the file. Load and Parse return it as their error.
type Errors []Error

// Error returns one line per error.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives the single errors to errors.Is and errors.As.
func (es Errors) Unwrap() []error {
	out := make([]error, len(es))
	for i, e := range es {
		out[i] = e
	}
	return out
}

// within keeps positions inside the text: the parser puts a value that is not
// there one or two characters behind the end of its line.
func (es Errors) within(text string) Errors {
	lines := strings.Split(text, "\n")
	for i, e := range es {
		if e.Line > 0 {
			line := min(e.Line, len(lines))
			end := utf8.RuneCountInString(strings.TrimSuffix(lines[line-1], "\r")) + 1
			es[i].Line, es[i].Column = line, max(1, min(e.Column, end))
		}
	}
	return es
}

// sorted returns the errors by position, without repetitions.
func (es Errors) sorted() Errors {
	out := slices.Clone(es)
	slices.SortStableFunc(out, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Path, b.Path))
	})
	return slices.Compact(out)
}

// Fault is an error about a value of a loaded configuration that another room
// found, such as a condition that does not compile. It stands where the value
// does; path is the key, e.g. guard.rules[2].when.
func (c *Config) Fault(path, format string, args ...any) Error {
	e := Error{File: c.Path, Path: path, Message: fmt.Sprintf(format, args...)}
	if at, ok := c.places[path]; ok {
		e.Line, e.Column = at.line, at.column
	}
	return e
}
