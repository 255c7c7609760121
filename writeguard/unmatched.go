package writeguard

import (
	"fmt"
	"slices"
	"sort"

	"github.com/mcp-portal/mcp-portal/config"
)

// Unmatched says which patterns and names of tools in the configuration match no
// tool: a slip that strict loading cannot see. tools are the names that servers
// gave their tools, by server id. A server that is not among them is not known
// now, and nothing is said of what may be about it.
func (p *Policy) Unmatched(tools map[string][]string) []string {
	var out []string
	look := func(key, name string, servers, patterns []string) {
		for _, pattern := range patterns {
			about, found, known := 0, false, true
			for id, s := range p.cfg.Servers {
				if !matchAny(servers, id) || s.Enabled != nil && !*s.Enabled {
					continue
				}
				about++
				list, ok := tools[id]
				known = known && ok
				found = found || slices.ContainsFunc(list, func(tool string) bool { return config.Match(pattern, tool) })
			}
			if known && !found && about > 0 {
				out = append(out, fmt.Sprintf("%s (%s): no server that it is about has a tool %q, so it does nothing for it; see the names with: mcp-portal tools", key, Visible(name), Visible(pattern)))
			}
		}
	}
	for i, r := range p.rules {
		look(fmt.Sprintf("guard.rules[%d]", i), r.name, r.servers, r.tools)
	}
	for i, f := range p.filters {
		look(fmt.Sprintf("guard.filters[%d]", i), f.name, f.servers, f.tools)
	}
	var names []string
	for id, s := range p.cfg.Servers {
		list, ok := tools[id]
		for name := range s.Tools {
			if ok && !slices.Contains(list, name) {
				names = append(names, fmt.Sprintf("servers.%s.tools: the server has no tool %q; see the names with: mcp-portal tools", id, Visible(name)))
			}
		}
	}
	sort.Strings(names)
	return append(out, names...)
}
