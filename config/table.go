package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Table returns the keys of portal.yaml as Markdown tables, one per section,
// for docs/configuration.md.
func Table() string {
	var b strings.Builder
	lims := limits()
	section := "?"
	fields := slices.Clone(Fields())
	order := map[string]int{}
	for _, f := range fields {
		if _, seen := order[f.section()]; !seen {
			order[f.section()] = len(order)
		}
	}
	slices.SortStableFunc(fields, func(x, y Field) int { return cmp.Compare(order[x.section()], order[y.section()]) })
	for _, f := range fields {
		if f.section() != section {
			section = f.section()
			title := "Top level"
			if section != "" {
				title = "`" + section + "`"
			}
			fmt.Fprintf(&b, "\n### %s\n\n| key | type | default | meaning |\n|---|---|---|---|\n", title)
		}
		kind := f.Type
		lim := lims[f.Path]
		switch {
		case lim.enum != nil:
			kind += ": " + strings.Join(lim.enum, ", ")
		case lim.max > 0:
			kind += fmt.Sprintf(", %d to %d", lim.min, lim.max)
		case lim.shortest > 0 && lim.longest > 0:
			kind += fmt.Sprintf(", %s to %s", short(lim.shortest), short(lim.longest))
		case lim.longest > 0:
			kind += fmt.Sprintf(", up to %s", short(lim.longest))
		case lim.glob:
			kind = "list of patterns"
		}
		def := ""
		if f.Default != "" {
			def = "`" + f.Default + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Path[strings.LastIndex(f.Path, ".")+1:], kind, def, strings.ReplaceAll(f.Description, "|", "\\|"))
	}
	return strings.TrimPrefix(b.String(), "\n")
}

// section returns the path of the map a key stands in.
func (f Field) section() string {
	return f.Path[:max(0, strings.LastIndex(f.Path, "."))]
}
