package worker

import (
	"slices"
	"strings"

	"github.com/mcp-portal/mcp-portal/codemode/internal/proto"
)

// names are the tools of a run in every spelling a script may use.
type names struct {
	tools     []proto.Tool
	outward   map[string]*proto.Tool
	ident     map[string]*proto.Tool
	servers   map[string]map[string]*proto.Tool
	serverIDs []string // sorted

	underscored map[string]string        // my_server of the server myServer
	folded      map[string][]*proto.Tool // every spelling as fold makes it; made when first asked
}

func newNames(tools []proto.Tool) names {
	n := names{
		tools:   tools,
		outward: make(map[string]*proto.Tool, len(tools)),
		ident:   make(map[string]*proto.Tool, len(tools)),
		servers: map[string]map[string]*proto.Tool{},

		underscored: map[string]string{},
	}
	for i := range tools {
		t := &tools[i]
		n.outward[t.Outward] = t
		n.ident[t.Identifier] = t
		if t.Server == "" {
			continue
		}
		m := n.servers[t.Server]
		if m == nil {
			m = map[string]*proto.Tool{}
			n.servers[t.Server] = m
			n.serverIDs = append(n.serverIDs, t.Server)
			if id, _, ok := strings.Cut(t.Outward, "_"); ok && strings.Contains(id, "-") && fold(id) == fold(t.Server) {
				n.underscored[t.Server] = strings.ReplaceAll(id, "-", "_")
			}
		}
		m[t.Member] = t
	}
	slices.Sort(n.serverIDs)
	return n
}

// find resolves a name in any spelling: exactly, or else the one tool that
// differs only in capitals and signs.
func (n *names) find(name string) *proto.Tool {
	if t := n.exact(name); t != nil {
		return t
	}
	if n.folded == nil {
		n.folded = make(map[string][]*proto.Tool, len(n.tools))
		for i := range n.tools {
			t := &n.tools[i]
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
	if t := n.outward[name]; t != nil {
		return t
	}
	if t := n.ident[name]; t != nil {
		return t
	}
	if s, m, ok := strings.Cut(name, "."); ok {
		return n.servers[s][m]
	}
	return nil
}

// nearest returns up to three candidates that look like name, best first.
func nearest(name string, candidates []string) []string {
	type scored struct {
		name string
		d    int
	}
	want := fold(name)
	var best []scored
	for _, c := range candidates {
		have := fold(c)
		d := distance(want, have)
		if strings.Contains(have, want) || strings.Contains(want, have) {
			d = min(d, 2)
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
	for i := 0; i < len(best) && i < 3; i++ {
		out = append(out, best[i].name)
	}
	return out
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
