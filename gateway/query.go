package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/registry"
	"github.com/mcp-portal/mcp-portal/upstreams"
	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// queryArguments of portal_query_tools.
type queryArguments struct {
	Query   string   `json:"query"`
	Pattern string   `json:"pattern"`
	Names   []string `json:"names"`
	Servers []string `json:"servers"`
	Detail  string   `json:"detail"`
	Limit   float64  `json:"limit"` // models write 10.0, too
}

const (
	queryLimit    = 10
	queryLimitMax = 100
	queryTextMax  = 1000
	// Bounds of one answer in bytes; about 6,000 tokens in all, 2,500 for one
	// definition.
	answerBytes     = 24000
	definitionBytes = 10000
)

// queryTools is portal_query_tools.
func (g *Gateway) queryTools(ctx context.Context, r *request) (json.RawMessage, *wire.Error) {
	var a queryArguments
	if e := ownArguments(r, toolQuery, &a, "query", "pattern", "names", "servers", "detail", "limit"); e != nil {
		return nil, e
	}
	text, err := g.query(ctx, r, a)
	if err != nil {
		return toolError(err.Error()), nil
	}
	return toolText(text), nil
}

func (g *Gateway) query(ctx context.Context, r *request, a queryArguments) (string, error) {
	given := 0
	for _, x := range []bool{strings.TrimSpace(a.Query) != "", a.Pattern != "", len(a.Names) > 0} {
		if x {
			given++
		}
	}
	switch {
	case given > 1:
		return "", fmt.Errorf("give one of query, pattern and names, not several")
	case a.Detail != "" && !slices.Contains([]string{"names", "brief", "full"}, a.Detail):
		return "", fmt.Errorf(`detail %q is not known: use "names", "brief" or "full"`, bounded(a.Detail, 40))
	case a.Limit != math.Trunc(a.Limit) || a.Limit < 0 || a.Limit > queryLimitMax:
		return "", fmt.Errorf("limit must be a whole number between 1 and %d", queryLimitMax)
	case len(a.Query) > queryTextMax || len(a.Pattern) > queryTextMax:
		return "", fmt.Errorf("query and pattern may have %d characters: say in a few words what you want to do", queryTextMax)
	case len(a.Names) > queryLimitMax:
		return "", fmt.Errorf("at most %d names in one query", queryLimitMax)
	}
	for _, s := range a.Servers {
		if r.view.snap.Server(s) == nil || !r.view.shows(s) {
			return "", fmt.Errorf("there is no server %q for you. %s", bounded(s, 60), serverSentence(r.view, 600))
		}
	}
	if given == 0 && len(a.Servers) == 0 {
		return g.serverOverview(ctx, r), nil
	}
	limit := int(a.Limit)
	if limit == 0 && len(a.Names) > 0 {
		limit = len(a.Names)
	}
	if limit == 0 {
		limit = queryLimit
	}
	if a.Detail == "" {
		a.Detail = "brief"
		if len(a.Names) > 0 {
			a.Detail = "full"
		}
	}
	tools, total, missing, err := g.find(r, a, limit)
	if err != nil {
		return "", err
	}
	return g.answerTools(ctx, r, a, tools, total, missing), nil
}

// find searches what the caller sees. Without query, pattern and names it
// lists the tools of the servers asked for.
func (g *Gateway) find(r *request, a queryArguments, limit int) (tools []*registry.Tool, total int, missing []string, err error) {
	if len(a.Names) > 0 {
		seen := map[*registry.Tool]bool{}
		for _, n := range a.Names {
			t := r.view.named(n)
			switch {
			case t == nil:
				missing = append(missing, n)
			case !seen[t] && (len(a.Servers) == 0 || slices.Contains(a.Servers, t.Server)):
				seen[t] = true
				tools = append(tools, t)
			}
		}
		return tools[:min(limit, len(tools))], len(tools), missing, nil
	}
	if strings.TrimSpace(a.Query) == "" && a.Pattern == "" {
		for _, t := range r.view.tools() {
			if slices.Contains(a.Servers, t.Server) {
				tools = append(tools, t)
			}
		}
		return tools[:min(limit, len(tools))], len(tools), nil, nil
	}
	res, err := r.view.snap.Search(registry.Query{Text: a.Query, Pattern: a.Pattern, Servers: a.Servers, Limit: limit}, r.view.sees)
	if err != nil {
		return nil, 0, nil, err
	}
	for _, h := range res.Hits {
		tools = append(tools, h.Tool)
	}
	return tools, res.Total, nil, nil
}

// named finds a visible tool by any name an agent may hold: outward name,
// code identifier, server/tool, server.tool; or else the only tool whose name
// differs from it in capitals and signs alone.
func (v *view) named(n string) *registry.Tool {
	n = strings.TrimPrefix(strings.TrimSpace(n), "codemode.")
	if t, ok := v.tool(n); ok {
		return t
	}
	all := v.tools()
	for _, t := range all {
		if t.Identifier == n || t.Server+"/"+t.Name == n || t.Server+"."+t.Name == n || registry.ServerIdentifier(t.Server)+"."+t.Member == n {
			return t
		}
	}
	if len(n) > 300 {
		return nil
	}
	var found *registry.Tool
	for _, t := range all {
		if want := fold(n); fold(t.Outward) == want || fold(t.Identifier) == want || fold(t.Server+t.Name) == want {
			if found != nil {
				return nil
			}
			found = t
		}
	}
	return found
}

// fold removes what names get wrong without another tool being meant.
func fold(s string) string {
	return strings.NewReplacer("_", "", "-", "", ".", "", "$", "", "/", "").Replace(strings.ToLower(s))
}

// serverOverview answers the empty query.
func (g *Gateway) serverOverview(ctx context.Context, r *request) string {
	servers := r.view.servers()
	if len(servers) == 0 {
		return "No servers are connected for you. Ask the administrator of the portal, or switch servers on at " + g.togglesURL(r.grant)
	}
	reasons := g.reasons(ctx, r.view)
	var b strings.Builder
	fmt.Fprintf(&b, "%s. Search tools with query, or list one server's with servers.\n", plural(len(servers), "server"))
	for i, s := range servers {
		line := fmt.Sprintf("- %s (%s)", s.ID, plural(len(r.view.toolsOf(s)), "tool"))
		if s.Description != "" {
			line += ": " + oneLine(s.Description, 160)
		}
		if why := reasons[s.ID]; why != "" {
			what := "not working now: "
			if strings.HasPrefix(why, "sign-in needed") {
				what = ""
			}
			line += " [" + what + oneLine(why, 200) + "]"
		}
		if b.Len()+len(line) > answerBytes {
			fmt.Fprintf(&b, "… and %d more servers\n", len(servers)-i)
			break
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// answerTools writes the tools found at the detail asked for, within bounds.
func (g *Gateway) answerTools(ctx context.Context, r *request, a queryArguments, tools []*registry.Tool, total int, missing []string) string {
	var b strings.Builder
	if len(missing) > 0 {
		for _, m := range missing[:min(10, len(missing))] {
			if why := g.whyWithheld(r, m); why != "" {
				b.WriteString(sentence(why) + "\n")
				continue
			}
			fmt.Fprintf(&b, "No tool is named %q.", bounded(m, 80))
			if near := nearestTools(r.view, m, 3); len(near) > 0 {
				b.WriteString(" Near: " + strings.Join(near, ", ") + ".")
			}
			b.WriteString("\n")
		}
		if n := len(missing) - 10; n > 0 {
			fmt.Fprintf(&b, "Nor are %d more of the names.\n", n)
		}
		if len(tools) == 0 {
			return b.String()
		}
	}
	if len(tools) == 0 {
		what := "no tool fits"
		if a.Pattern != "" {
			what = "no tool matches the pattern"
		}
		what += ". Try other words, "
		if len(a.Servers) > 0 {
			return what + "or only servers, without query and pattern, to list all of their tools."
		}
		return what + "or an empty query to see the servers. " + serverSentence(r.view, 400)
	}
	var parts []string
	size, shown := 0, 0
	for _, t := range tools {
		p := g.describe(ctx, r, t, a.Detail)
		if size+len(p) > answerBytes && shown > 0 {
			break
		}
		parts = append(parts, p)
		size += len(p)
		shown++
	}
	head := fmt.Sprintf("showing %d of %d", shown, total)
	if a.Query != "" || a.Pattern != "" {
		head += " that fit" // or it would read like all that there are
		if len(a.Servers) == 1 {
			if s := r.view.snap.Server(a.Servers[0]); s != nil && len(r.view.toolsOf(s)) > total {
				head += fmt.Sprintf(", of %d tools of %s", len(r.view.toolsOf(s)), s.ID)
			}
		}
	}
	switch {
	case shown < len(tools):
		head += " (the answer is full: ask for fewer names, or less detail)"
	case shown < total && shown >= queryLimitMax:
		head += " (more are never shown at once: filter by servers, or narrow the words)"
	case shown < total:
		head += " (raise limit, filter by servers, or use other words)"
	}
	sep := "\n"
	if a.Detail == "full" {
		sep = "\n\n"
	}
	b.WriteString(head + "\n" + strings.Join(parts, sep) + "\n")
	if a.Detail != "names" {
		b.WriteString(notes(r.view, tools[:shown]))
	}
	if a.Detail == "brief" && r.mode == ModeTwoTools {
		fmt.Fprintf(&b, "Parameters: %s {\"names\":[…]}. In code: codemode.<name>(args).\n", toolQuery)
	}
	return b.String()
}

// describe writes one tool.
func (g *Gateway) describe(ctx context.Context, r *request, t *registry.Tool, detail string) string {
	if detail == "names" {
		return t.Outward
	}
	head := fmt.Sprintf("%s [%s]", t.Outward, g.verdict(r, t))
	if s := r.view.snap.Server(t.Server); s != nil && s.State == upstreams.Degraded {
		head += " [server not working now]"
	}
	if t.Identifier != t.Outward {
		head += " (in code: codemode." + t.Identifier + ")"
	}
	if detail == "brief" {
		if d := firstSentence(t.Description, 200); d != "" {
			head += " " + d
		}
		return head
	}
	ts := g.seen.declare(ctx, t, r.who.ID)
	out := head + "\n" + ts
	schema := string(t.InputSchema)
	if len(out)+len(schema) > definitionBytes {
		if len(out) > definitionBytes {
			out = bounded(out, definitionBytes) + "\n(cut: this definition is very large)"
		}
		return out + fmt.Sprintf("\ninput JSON Schema: %d bytes, left out; the TypeScript above says the same", len(schema))
	}
	// Where tools are called from code, the declaration is all that it takes.
	if schema != "" && (r.mode != ModeTwoTools || r.set.cfg.Code.Mode == "off") {
		out += "\ninput JSON Schema: " + schema
	}
	return out
}

// verdict says in a word what the guard would do with a call of the tool.
func (g *Gateway) verdict(r *request, t *registry.Tool) string {
	// Neither the arguments nor what happens before are known yet.
	d := r.set.policy.Outlook(writeguard.Call{Principal: r.who, Client: r.client, Mode: writeguard.Direct, Server: t.Server, Tool: t.Name,
		Description: t.Description, Annotations: t.Annotations})
	if len(d.If) > 0 {
		return string(d.Class) + ", depends on the arguments or on earlier calls"
	}
	switch d.Action {
	case writeguard.Allow:
		return string(d.Class)
	case writeguard.Approve:
		if r.who.Kind == auth.KindService {
			return string(d.Class) + ", refused for machines"
		}
		return string(d.Class) + ", needs approval"
	case writeguard.ToPlan:
		return string(d.Class) + ", is planned and reviewed first"
	}
	return string(d.Class) + ", refused by policy"
}

// plural counts a noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func oneLine(s string, n int) string {
	return bounded(writeguard.Visible(strings.Join(strings.Fields(s), " ")), n)
}

var sentenceEnd = regexp.MustCompile(`[.!?](\s|$)`)

// firstSentence is the first sentence of a description in one line.
func firstSentence(s string, n int) string {
	s = writeguard.Visible(strings.Join(strings.Fields(s), " "))
	if loc := sentenceEnd.FindStringIndex(s); loc != nil && loc[0] > 10 {
		s = s[:loc[0]+1]
	}
	return bounded(s, n)
}

// nearestTools suggests visible names for one that does not exist.
func nearestTools(v *view, name string, n int) []string {
	res, err := v.snap.Search(registry.Query{Text: bounded(name, 100), Limit: n}, v.sees)
	if err != nil {
		return nil
	}
	var out []string
	for _, h := range res.Hits {
		out = append(out, h.Tool.Outward)
	}
	return out
}
