package worker

import (
	"slices"
	"strings"

	"github.com/mcp-portal/mcp-portal/codemode/internal/proto"
)

// names are the tools of a run in every spelling a script may use. There can be
// thousands, and a script uses three: what is looked up is spread out and
// indexed only when it is looked up often enough.
type names struct {
	list      proto.Tools
	servers   map[string]*serverNames
	serverIDs []string // sorted

	underscored map[string]string // my_server of the server myServer

	scans   int          // lookups without an index
	all     []proto.Tool // made after a few lookups, like outward and ident
	outward map[string]*proto.Tool
	ident   map[string]*proto.Tool
	folded  map[string][]*proto.Tool // every spelling as fold makes it; made when first asked
}

// serverNames are the tools of one server.
type serverNames struct {
	parts   []proto.Tools
	members map[string]*proto.Tool // made when first asked
}

func (s *serverNames) tools() map[string]*proto.Tool {
	if s == nil {
		return nil
	}
	if s.members == nil {
		s.members = map[string]*proto.Tool{}
		for _, p := range s.parts {
			for t := range p.All() {
				s.members[t.Member] = &t
			}
		}
	}
	return s.members
}

// scansMost is how often going through the list is cheaper than an index.
const scansMost = 8

func newNames(list proto.Tools) *names {
	n := &names{list: list, servers: map[string]*serverNames{}, underscored: map[string]string{}}
	var s *serverNames
	last, from, at := "", 0, 0 // the part that is being gathered
	gather := func() {
		if s != nil && from < at {
			s.parts = append(s.parts, list[from:at])
		}
		from = at
	}
	for t, part := range list.All() {
		if t.Server != last {
			gather()
			if last, s = t.Server, n.servers[t.Server]; s == nil && t.Server != "" {
				s = &serverNames{}
				n.servers[t.Server] = s
				n.serverIDs = append(n.serverIDs, t.Server)
				if id, _, ok := strings.Cut(t.Outward, "_"); ok && strings.Contains(id, "-") && fold(id) == fold(t.Server) {
					n.underscored[t.Server] = strings.ReplaceAll(id, "-", "_")
				}
			}
		}
		at += len(part)
	}
	gather()
	slices.Sort(n.serverIDs)
	return n
}

// tools are all of them, spread out.
func (n *names) tools() []proto.Tool {
	if n.all == nil {
		n.all = []proto.Tool{}
		for t := range n.list.All() {
			n.all = append(n.all, t)
		}
	}
	return n.all
}

// find resolves a name in any spelling: exactly, or else the one tool that
// differs only in capitals and signs.
func (n *names) find(name string) *proto.Tool {
	if t := n.exact(name); t != nil {
		return t
	}
	if n.folded == nil {
		tools := n.tools()
		n.folded = make(map[string][]*proto.Tool, len(tools))
		for i := range tools {
			t := &tools[i]
			spellings := []string{fold(t.Outward), fold(t.Identifier), fold(t.Server + t.Member)}
			slices.Sort(spellings)
			for _, s := range slices.Compact(spellings) {
				n.folded[s] = append(n.folded[s], t)
			}
		}
	}
	if len(name) > 300 {
		return nil
	}
	if all := n.folded[fold(strings.TrimPrefix(name, "codemode."))]; len(all) == 1 {
		return all[0]
	}
	return nil
}

// server resolves the name of a server in any spelling to that of its global.
func (n *names) server(name string) string {
	if n.servers[name] != nil {
		return name
	}
	found := ""
	for _, id := range n.serverIDs {
		if fold(id) == fold(name) {
			if found != "" {
				return ""
			}
			found = id
		}
	}
	return found
}

// exact resolves an outward name, an identifier or "server.member".
func (n *names) exact(name string) *proto.Tool {
	name = strings.TrimPrefix(name, "codemode.")
	if t := n.listed(name); t != nil {
		return t
	}
	if s, m, ok := strings.Cut(name, "."); ok {
		return n.servers[s].tools()[m]
	}
	return nil
}

// listed resolves an outward name, else an identifier.
func (n *names) listed(name string) (found *proto.Tool) {
	if n.outward == nil && n.scans < scansMost {
		n.scans++
		for t := range n.list.All() {
			if t.Outward == name || found == nil && t.Identifier == name {
				match := t
				found = &match
			}
			if t.Outward == name {
				break
			}
		}
		return found
	}
	if n.outward == nil {
		tools := n.tools()
		n.outward, n.ident = make(map[string]*proto.Tool, len(tools)), make(map[string]*proto.Tool, len(tools))
		for i := range tools {
			t := &tools[i]
			n.outward[t.Outward], n.ident[t.Identifier] = t, t
		}
	}
	if t := n.outward[name]; t != nil {
		return t
	}
	return n.ident[name]
}

// nearest returns up to three candidates that look like name, best first.
func nearest(name string, candidates []string) []string {
	type scored struct {
		name string
		d    int
	}
	want, words, exact := fold(name), splitWords(name), false
	var best []scored
	for _, c := range candidates {
		have := fold(c)
		d := distance(want, have)
		if min(len(have), len(want)) >= 3 && (strings.Contains(have, want) || strings.Contains(want, have)) {
			d = min(d, 2)
		}
		if n, ok := sameWords(words, splitWords(c)); ok { // listCompanies of companies_list
			if d = n; n == 0 {
				exact = true
			}
		}
		if d <= max(1, max(len(want), len(have))/3) {
			best = append(best, scored{c, d})
		}
	}
	slices.SortStableFunc(best, func(a, b scored) int {
		if a.d != b.d {
			return a.d - b.d
		}
		return strings.Compare(a.name, b.name)
	})
	var out []string
	for i := 0; i < len(best) && i < 3 && (!exact || best[i].d == 0); i++ {
		out = append(out, best[i].name)
	}
	return out
}

// splitWords are the words of a name, sorted, without the plural.
func splitWords(name string) []string {
	var words []string
	from := 0
	cut := func(to int) {
		if from < to {
			w := strings.ToLower(name[from:to])
			if n := len(w); n > 3 && w[n-1] == 's' {
				w = w[:n-1]
			}
			words = append(words, w)
		}
		from = to
	}
	for i := 0; i < len(name) && i < 100; i++ {
		switch c := name[i]; {
		case c == '_' || c == '-' || c == '.' || c == '$':
			cut(i)
			from = i + 1
		case c >= 'A' && c <= 'Z' && i > 0 && (name[i-1] < 'A' || name[i-1] > 'Z'):
			cut(i)
		}
	}
	cut(min(len(name), 100))
	slices.Sort(words)
	return words
}

// sameWords tells whether the second name is made of the words of the first, in
// any order, with at most one more, and how many words are not the same: verbs
// may be others that mean the same.
func sameWords(a, b []string) (differ int, ok bool) {
	if len(a) < 2 || len(b) < len(a) || len(b) > len(a)+1 {
		return 0, false
	}
	left := slices.Clone(b)
	differ = len(b) - len(a)
	for _, w := range a {
		i := slices.Index(left, w)
		if i < 0 {
			if i = slices.IndexFunc(left, func(x string) bool { return synonyms[x] != "" && synonyms[x] == synonyms[w] }); i < 0 {
				return 0, false
			}
			differ++
		}
		left = slices.Delete(left, i, i+1)
	}
	return differ, true
}

// synonyms are verbs that interfaces use for one thing.
var synonyms = map[string]string{
	"get": "get", "fetch": "get", "read": "get", "retrieve": "get", "show": "get", "list": "get", "all": "get", "find": "get", "search": "get", "query": "get", "lookup": "get",
	"create": "create", "add": "create", "new": "create", "insert": "create", "make": "create", "post": "create", "send": "create",
	"update": "update", "edit": "update", "modify": "update", "change": "update", "set": "update", "patch": "update",
	"delete": "delete", "remove": "delete", "destroy": "delete", "drop": "delete",
}

// fold removes what models get wrong without meaning another tool.
func fold(s string) string {
	s = strings.ToLower(s)
	return strings.NewReplacer("_", "", "-", "", ".", "", "$", "").Replace(s)
}

// distance is the number of single letter edits between two short names.
func distance(a, b string) int {
	if len(a) > 64 {
		a = a[:64]
	}
	if len(b) > 64 {
		b = b[:64]
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diag
			if a[i-1] != b[j-1] {
				cost++
			}
			diag = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
