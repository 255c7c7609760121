package config

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

const (
	maxFile  = 1 << 20 // bytes of a configuration file
	maxDepth = 32      // nested lists and maps; the types need fewer than ten
)

// position is a place in the file, both from 1; the zero value is unknown.
type position struct{ line, column int }

// syntax turns the bytes of a file into the tree of its one document.
func syntax(path string, data []byte) (ast.Node, Errors) {
	fail := func(at position, format string, args ...any) (ast.Node, Errors) {
		return nil, Errors{{File: path, Line: at.line, Column: at.column, Message: fmt.Sprintf(format, args...)}}
	}
	if len(data) > maxFile {
		return fail(position{1, 1}, "the file has %d bytes, more than the %d allowed; is this the right file?", len(data), maxFile)
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if at, what := badCharacter(data); what != "" {
		return fail(at, "%s", what)
	}
	text := strings.ReplaceAll(string(data), "\r\n", "\n")
	lines := strings.Split(text, "\n")

	file, err := parseTree(text)
	if err != nil {
		// A tab explains most of the odd messages a parser gives after it.
		if tabs := tabLines(lines, func(int) bool { return true }); len(tabs) > 0 {
			return nil, tabErrors(path, tabs)
		}
		at, message := position{1, 1}, err.Error()
		if ye, ok := err.(yaml.Error); ok {
			message = ye.GetMessage()
			if tk := ye.GetToken(); tk != nil && tk.Position != nil {
				at = position{max(1, tk.Position.Line), max(1, tk.Position.Column)}
			}
		}
		at.line = min(at.line, len(lines))
		hint := "check the indentation, colons and quotes here and on the line before"
		if line := lines[at.line-1]; strings.Contains(line, "${") && strings.ContainsAny(line, "[{") {
			hint = `inside [ ] and { } put quotes around a value with a variable: "${NAME}"`
		}
		if open := openQuote(lines[:at.line-1]); open.line > 0 {
			return fail(open, "the quote that opens here is not closed on this line; close it, or write the value without quotes")
		}
		return fail(at, "not valid YAML: %s; %s", message, hint)
	}
	if tabs := tabLines(lines, structuralLines(text)); len(tabs) > 0 {
		return nil, tabErrors(path, tabs)
	}
	docs := make([]*ast.DocumentNode, 0, 1)
	for _, d := range file.Docs {
		if d != nil && d.Body != nil && d.Body.Type() != ast.DirectiveType {
			docs = append(docs, d)
		}
	}
	if len(docs) == 0 {
		return fail(position{1, 1}, "the file is empty; write at least auth and servers, see docs/configuration.md")
	}
	if len(docs) > 1 {
		return fail(at(docs[1].Body), "a second document starts here; portal.yaml is one document, remove the --- line")
	}
	return docs[0].Body, nil
}

// unclosed is a value that begins with a quote and goes on to the end of its
// line without another.
var unclosed = regexp.MustCompile(`^\s*(?:- +)?(?:[\w.-]+: +)?(?:"[^"]*|'[^']*)$`)

// openQuote finds the first of the lines on which a quote stays open. A parser
// complains only where the next quote closes it, many lines below.
func openQuote(lines []string) position {
	for i, line := range lines {
		if unclosed.MatchString(line) && !strings.HasPrefix(strings.TrimSpace(line), "#") {
			return position{i + 1, utf8.RuneCountInString(line[:strings.IndexAny(line, `"'`)]) + 1}
		}
	}
	return position{}
}

// parseTree parses without ever bringing the process down: nesting is bounded
// before the recursive parser sees it, and a panic of the parser is an error.
func parseTree(text string) (file *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			file, err = nil, fmt.Errorf("the parser cannot read it")
		}
	}()
	tokens := lexer.Tokenize(text)
	depth, dashes, line := 0, 0, 0
	for _, tk := range tokens {
		switch tk.Type {
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth--
		case token.SequenceEntryType, token.MappingKeyType, token.MappingValueType, token.AnchorType, token.TagType:
			if tk.Position.Line != line {
				dashes, line = 0, tk.Position.Line
			}
			if depth == 0 { // inside brackets these do not nest
				dashes++
			}
		}
		if depth > maxDepth || dashes > maxDepth || tk.Position.Column > 10000 {
			return nil, tooDeep{tk}
		}
	}
	return parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
}

// tooDeep is the error of parseTree for nesting no configuration needs.
type tooDeep struct{ tk *token.Token }

func (e tooDeep) Error() string                { return e.GetMessage() }
func (e tooDeep) GetToken() *token.Token       { return e.tk }
func (tooDeep) GetMessage() string             { return "nested too deeply" }
func (e tooDeep) FormatError(_, _ bool) string { return e.GetMessage() }

var _ yaml.Error = tooDeep{}

// badCharacter finds what YAML text cannot contain.
func badCharacter(data []byte) (position, string) {
	at := position{1, 1}
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return at, "a byte that is not UTF-8; save the file as UTF-8 text"
		case r < ' ' && r != '\n' && r != '\r' && r != '\t', r == 0x7f:
			return at, fmt.Sprintf("a control character (%U); remove it, or write it as an escape in double quotes", r)
		}
		i += size
		at.column++
		if r == '\n' {
			at = position{at.line + 1, 1}
		}
	}
	return at, ""
}

// tabLines returns where the indentation of lines contains a tab.
func tabLines(lines []string, counts func(line int) bool) []position {
	var out []position
	for i, line := range lines {
		indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
		if len(indent) == len(line) || line[len(indent)] == '#' {
			continue
		}
		if j := strings.IndexByte(indent, '\t'); j >= 0 && counts(i+1) {
			out = append(out, position{i + 1, j + 1})
		}
	}
	return out
}

// structuralLines tells which lines start a key or a list item, as opposed to
// the inside of a block of text, where a tab is content.
func structuralLines(text string) func(int) bool {
	first := map[int]bool{}
	for _, tk := range lexer.Tokenize(text) {
		switch tk.Type {
		case token.MappingValueType:
			if tk.Prev != nil {
				first[tk.Prev.Position.Line] = true
			}
		case token.SequenceEntryType:
			first[tk.Position.Line] = true
		}
	}
	return func(line int) bool { return first[line] }
}

func tabErrors(path string, tabs []position) Errors {
	var out Errors
	for _, p := range tabs {
		out = append(out, Error{File: path, Line: p.line, Column: p.column, Message: "a tab in the indentation; use spaces"})
	}
	return out
}

// at returns where a node starts. A map's own token is its first colon, so its
// start is that of its first key.
func at(n ast.Node) position {
	switch x := n.(type) {
	case nil:
		return position{}
	case *ast.MappingNode:
		if !x.IsFlowStyle && len(x.Values) > 0 {
			return at(x.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return at(x.Key)
	}
	tk := n.GetToken()
	if tk == nil || tk.Position == nil {
		return position{}
	}
	return position{max(1, tk.Position.Line), max(1, tk.Position.Column)}
}
