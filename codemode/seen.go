package codemode

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Most servers declare no type of their results. Seen is what a tool's earlier
// results looked like: which fields there were and of which types. It holds no
// value of any result, and of names only those that belong to the tool rather
// than to somebody's data; see keep.
type Seen struct {
	Results int       `json:"r"` // that it was made from
	Root    *seenNode `json:"t"`
}

// Bounds of what is looked at and kept.
const (
	seenDepth  = 8
	seenItems  = 10  // of a list, in one result
	seenFields = 60  // of an object; more are the keys of a map
	seenNodes  = 400 // of one tool
	seenShared = 3   // results in which a name must have been, for others to be told
)

// Types of JSON values, as bits.
const (
	seenNull = 1 << iota
	seenText
	seenNumber
	seenBool
	seenObject
	seenList
)

type seenNode struct {
	Types   int                   `json:"k"`
	Objects int                   `json:"o,omitempty"` // objects that stood here
	Fields  map[string]*seenField `json:"f,omitempty"` // of an object with names of its own
	Order   []string              `json:"q,omitempty"` // of the fields
	Map     *seenNode             `json:"m,omitempty"` // values of an object whose names are data
	Item    *seenNode             `json:"i,omitempty"` // of a list
}

type seenField struct {
	seenNode
	In      int    `json:"n"`           // objects that had it
	Results int    `json:"r"`           // results that had it
	By      string `json:"u,omitempty"` // the user whose results had it
	Others  bool   `json:"s,omitempty"` // so had those of another user
	last    int    // number of the result that had it last
}

// Add takes one more result into account. user is a mark of whose it was, not
// the name itself; words tells whether a word is one of the tool's own
// definition.
func (s *Seen) Add(value json.RawMessage, user string, words func(string) bool) {
	root, err := parseTree(value)
	if err != nil {
		return
	}
	if s.Root == nil {
		s.Root = &seenNode{}
	}
	s.Results++
	a := &seenAdder{s: s, user: user, words: words, left: seenNodes - s.Root.count()}
	a.add(s.Root, root, 0)
}

func (n *seenNode) count() int {
	if n == nil {
		return 0
	}
	c := 1 + n.Map.count() + n.Item.count()
	for _, f := range n.Fields {
		c += f.count()
	}
	return c
}

type seenAdder struct {
	s     *Seen
	user  string
	words func(string) bool
	left  int // nodes that may still be made
}

func seenType(v *node) int {
	switch v.kind {
	case '{':
		return seenObject
	case '[':
		return seenList
	case '"':
		return seenText
	}
	switch v.raw[0] {
	case 'n':
		return seenNull
	case 't', 'f':
		return seenBool
	}
	return seenNumber
}

func (a *seenAdder) add(to *seenNode, v *node, depth int) {
	to.Types |= seenType(v)
	if depth >= seenDepth {
		return
	}
	switch v.kind {
	case '[':
		for _, k := range v.kids[:min(len(v.kids), seenItems)] {
			if to.Item == nil {
				if a.left--; a.left < 0 {
					return
				}
				to.Item = &seenNode{}
			}
			a.add(to.Item, k, depth+1)
		}
	case '{':
		to.Objects++
		if to.Map == nil && (!a.keep(v) || len(to.Fields) > seenFields) {
			to.Map = &seenNode{}
			for _, name := range to.Order { // these were data, too
				to.Map.Types |= to.Fields[name].Types
			}
			to.Fields, to.Order = nil, nil
		}
		if to.Map != nil {
			for _, k := range v.kids[:min(len(v.kids), seenItems)] {
				a.add(to.Map, k, depth+1)
			}
			return
		}
		for i, name := range v.keys {
			f := to.Fields[name]
			if f == nil {
				if a.left--; a.left < 0 {
					return
				}
				if to.Fields == nil {
					to.Fields = map[string]*seenField{}
				}
				f = &seenField{By: a.user}
				to.Fields[name] = f
				to.Order = append(to.Order, name)
			}
			f.In++
			if f.last != a.s.Results {
				f.last = a.s.Results
				f.Results++
			}
			f.Others = f.Others || f.By != a.user
			a.add(&f.seenNode, v.kids[i], depth+1)
		}
	}
}

var seenName = regexp.MustCompile(`^(?:@odata\.)?[A-Za-z_$][A-Za-z_$-]*[0-9]{0,2}[A-Za-z_$-]*$`)

// keep tells whether the names of an object are those of fields. Names can be
// data as well: ids, addresses, logins, in maps. An object whose values are all
// of one kind is taken for a map unless all of its names are made of words that
// interfaces use, or that the tool's own definition has.
func (a *seenAdder) keep(v *node) bool {
	if len(v.keys) > seenFields {
		return false
	}
	kinds := 0
	for i, name := range v.keys {
		if len(name) > 40 || !seenName.MatchString(name) {
			return false
		}
		if k := seenType(v.kids[i]); k != seenNull {
			kinds |= k
		}
	}
	if kinds&(kinds-1) != 0 {
		return true // of several kinds: a record
	}
	for _, name := range v.keys {
		for _, word := range splitWords(name) {
			if !interfaceWords[word] && !interfaceWords[strings.TrimSuffix(word, "s")] && !a.words(word) {
				return false
			}
		}
	}
	return true
}

// splitWords splits an identifier or text into its words, in small letters.
func splitWords(name string) []string {
	var out []string
	from := -1
	end := func(i int) {
		if from >= 0 {
			out = append(out, strings.ToLower(name[from:i]))
		}
		from = -1
	}
	lower := func(i int) bool { return i < len(name) && name[i] >= 'a' && name[i] <= 'z' }
	upper := func(i int) bool { return i < len(name) && name[i] >= 'A' && name[i] <= 'Z' }
	for i := range len(name) {
		switch {
		case !lower(i) && !upper(i):
			end(i)
			continue
		case from >= 0 && upper(i) && (lower(i-1) || lower(i+1)):
			end(i) // totalPages, HTTPStatus
		}
		if from < 0 {
			from = i
		}
	}
	end(len(name))
	return out
}

// Words returns a function that knows the words of a tool's definition.
func Words(texts ...string) func(string) bool {
	set := map[string]bool{}
	for _, t := range texts {
		for _, w := range splitWords(t) {
			set[w] = true
		}
	}
	return func(w string) bool { return set[w] || set[strings.TrimSuffix(w, "s")] || set[w+"s"] }
}

// Type renders what was seen as a TypeScript type, for a user: names that were
// only in another user's results are left out. It is "" when nothing is known.
func (s *Seen) Type(user string) string {
	if s == nil || s.Root == nil || s.Results == 0 {
		return ""
	}
	t := s.render(s.Root, user, 0)
	if t == unknownType {
		return ""
	}
	return t
}

func (s *Seen) render(n *seenNode, user string, depth int) string {
	if n == nil || n.Types == 0 || depth > seenDepth {
		return unknownType
	}
	var parts []string
	for _, x := range []struct {
		bit  int
		name string
	}{{seenText, "string"}, {seenNumber, "number"}, {seenBool, "boolean"}} {
		if n.Types&x.bit != 0 {
			parts = append(parts, x.name)
		}
	}
	if n.Types&seenObject != 0 {
		parts = append(parts, s.renderObject(n, user, depth))
	}
	if n.Types&seenList != 0 {
		parts = append(parts, grouped(s.render(n.Item, user, depth+1))+"[]")
	}
	if n.Types&seenNull != 0 {
		if len(parts) == 0 {
			return unknownType // always null so far: it will be something else one day
		}
		parts = append(parts, "null")
	}
	return strings.Join(parts, " | ")
}

func (s *Seen) renderObject(n *seenNode, user string, depth int) string {
	if n.Map != nil {
		return "Record<string, " + s.render(n.Map, user, depth+1) + ">"
	}
	var fields []string
	hidden := false
	for _, name := range n.Order {
		f := n.Fields[name]
		if f.By != user && !f.Others || f.By != user && (f.Results < seenShared || f.In*2 < n.Objects) {
			hidden = true
			continue
		}
		mark := ""
		if f.In < n.Objects {
			mark = "?"
		}
		fields = append(fields, fmt.Sprintf("%s%s: %s;", quoteName(name), mark, s.render(&f.seenNode, user, depth+1)))
	}
	if hidden || len(fields) == 0 {
		if len(fields) == 0 {
			return anyArguments
		}
		fields = append(fields, "[key: string]: unknown;")
	}
	return "{\n" + indent(strings.Join(fields, "\n")) + "\n}"
}

// DeclareSeen is Declare for a tool whose result has no declared type, with the
// type of what was seen of it instead, which it says.
func DeclareSeen(identifier, description string, input json.RawMessage, seen string, results int) string {
	if seen == "" {
		return Declare(identifier, description, input, nil)
	}
	d := newDeclarer(identifier)
	name := d.prefix + "_Seen"
	doc := docBlock(fmt.Sprintf("Not declared by the server, but seen in %s: fields may be missing, or be others.", plural(results, "earlier result", "earlier results")), nil)
	return doc + "type " + name + " = " + seen + ";\n" + d.declaration(identifier, description, input, func() string { return name })
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Names returns all names that it holds, sorted: for tests of what it must not.
func (s *Seen) Names() []string {
	var out []string
	var walk func(n *seenNode)
	walk = func(n *seenNode) {
		if n == nil {
			return
		}
		walk(n.Map)
		walk(n.Item)
		for name, f := range n.Fields {
			out = append(out, name)
			walk(&f.seenNode)
		}
	}
	walk(s.Root)
	slices.Sort(out)
	return slices.Compact(out)
}
