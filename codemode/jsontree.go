package codemode

import (
	"encoding/json"
	"errors"
)

// node is one JSON value with the order of its members and the exact text of
// its scalars.
type node struct {
	kind byte   // '{' '[' '"' or 's' for numbers, true, false, null
	raw  []byte // of scalars and strings
	keys []string
	kids []*node
}

var errNotJSON = errors.New("it is not valid JSON")

// parseTree reads valid JSON. The decoder's check bounds the depth to 10,000.
func parseTree(raw []byte) (*node, error) {
	if !json.Valid(raw) {
		return nil, errNotJSON
	}
	p := treeParser{b: raw}
	return p.value(), nil
}

// treeParser relies on its input being valid.
type treeParser struct {
	b []byte
	i int
}

func (p *treeParser) space() byte {
	for p.i < len(p.b) {
		switch p.b[p.i] {
		case ' ', '\t', '\n', '\r':
			p.i++
		default:
			return p.b[p.i]
		}
	}
	return 0
}

func (p *treeParser) str() []byte {
	from := p.i
	for p.i++; p.b[p.i] != '"'; p.i++ {
		if p.b[p.i] == '\\' {
			p.i++
		}
	}
	p.i++
	return p.b[from:p.i]
}

func (p *treeParser) value() *node {
	switch c := p.space(); c {
	case '"':
		return &node{kind: '"', raw: p.str()}
	case '{', '[':
		n := &node{kind: c}
		closing := byte(']')
		if c == '{' {
			closing = '}'
		}
		p.i++
		for p.space() != closing {
			if p.b[p.i] == ',' {
				p.i++
				p.space()
			}
			if c == '{' {
				n.keys = append(n.keys, unquote(p.str()))
				p.space()
				p.i++ // the colon
			}
			n.kids = append(n.kids, p.value())
		}
		p.i++
		return n
	default:
		from := p.i
		for p.i < len(p.b) {
			switch p.b[p.i] {
			case ',', ']', '}', ' ', '\t', '\n', '\r':
				return &node{kind: 's', raw: p.b[from:p.i]}
			}
			p.i++
		}
		return &node{kind: 's', raw: p.b[from:p.i]}
	}
}

func unquote(raw []byte) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return string(raw)
	}
	return s
}

// member returns the last member of an object with this name, or nil.
func (n *node) member(name string) *node {
	if n == nil || n.kind != '{' {
		return nil
	}
	for i := len(n.keys) - 1; i >= 0; i-- {
		if n.keys[i] == name {
			return n.kids[i]
		}
	}
	return nil
}

// text returns the string a node is, or "".
func (n *node) text() string {
	if n == nil || n.kind != '"' {
		return ""
	}
	return unquote(n.raw)
}

func (n *node) is(literal string) bool {
	return n != nil && n.kind == 's' && string(n.raw) == literal
}

// appendJSON appends the value without white space.
func (n *node) appendJSON(b []byte) []byte {
	switch n.kind {
	case '{', '[':
		b = append(b, n.kind)
		for i, k := range n.kids {
			if i > 0 {
				b = append(b, ',')
			}
			if n.kind == '{' {
				b = appendQuoted(b, n.keys[i])
				b = append(b, ':')
			}
			b = k.appendJSON(b)
		}
		return append(b, n.kind+2) // in ASCII the closing bracket is two after the opening one
	default:
		return append(b, n.raw...)
	}
}

// appendQuoted appends a JSON string without the HTML escapes of encoding/json.
func appendQuoted(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, '\\', 'n')
		case r == '\t':
			b = append(b, '\\', 't')
		case r == '\r':
			b = append(b, '\\', 'r')
		case r < 0x20:
			b = append(b, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			b = append(b, string(r)...)
		}
	}
	return append(b, '"')
}
