package writeguard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mcp-portal/mcp-portal/config"
)

// Suggestion is the class that a tool could be given in the configuration.
// Only a person can make it count: where it is a read it loosens what holds
// without it.
type Suggestion struct {
	Tool   string
	Class  Class
	Labels Labels // as they are now, External from the name
	Why    string // one line, for the reviewer
	// Classes are lines for a tool whose schema names several actions.
	Classes []config.ToolClass
	Doubt   string // one line: what speaks against it; empty: nothing
}

// writingVerbs in a name say that something is changed, wherever they stand;
// all the others do where no reading verb stands before them: reply_to_thread,
// but not get_thread_replies. They only keep a tool from being suggested as a
// read.
var writingVerbs = words(`
	add append apply assign create deploy edit enable execute import insert
	install invite modify mutate patch perform post register rename replace
	schedule send set start submit update upgrade upload upsert write`)

// runsWhatIsGiven are words of tools that run a query or program of the
// caller's: what that does is not known before.
var runsWhatIsGiven = words(`command eval evaluate exec execute graphql query run script shell sql statement`)

// Suggest proposes a class for a tool from all that is known of it. Unlike
// Classify it believes what a server says of its own reads and what a name
// says, because a person reviews it; it is a read only if nothing speaks
// against that.
func Suggest(c Call) Suggestion {
	k := Classify(c, &config.Config{Guard: config.Guard{Unlabelled: []string{"private", "untrusted"}}})
	s := Suggestion{Tool: c.Tool, Class: k.Class, Labels: k.Labels, Why: k.Why}
	if k.Class != Write {
		return s
	}
	h, verb := readHints(c.Annotations), readingName(c.Tool)
	switch {
	case h.readOnly == no:
		s.Why = "the server says readOnlyHint: false"
	case h.readOnly == yes && verb == "" && writingName(c.Tool) != "":
		s.Why = "the server says readOnlyHint: true"
		s.Doubt = fmt.Sprintf("but the name says %q", writingName(c.Tool))
	case h.readOnly == yes:
		s.Class, s.Why = Read, "the server says readOnlyHint: true"
	case h.destructive == no:
		s.Why = "the server says destructiveHint: false"
	case verb != "" && descriptionWrites(c.Description) == "":
		s.Class, s.Why = Read, fmt.Sprintf("the name says %q, the server says nothing", verb)
	case verb != "":
		s.Why, s.Doubt = fmt.Sprintf("the description says %q", descriptionWrites(c.Description)), fmt.Sprintf("the name says %q", verb)
	default:
		s.Why = "nothing says that it only reads"
	}
	return s
}

// readingName returns the reading verb of a name that says nothing else; "":
// there is none. Before it at most a few words may stand that are no verbs,
// such as the server's own name.
func readingName(name string) string {
	verb := ""
	for i, t := range nameTokens(name) {
		switch {
		case base(t, runsWhatIsGiven) != "" || writingVerbs[t]:
			return ""
		case verb == "" && base(t, ambiguousVerbs) != "":
			return ""
		case verb == "" && readingVerbs[t] && t != "download" && i < 4: // a download may write a file
			verb = t
		}
	}
	return verb
}

// writingName returns the word of a name that says that something is changed.
func writingName(name string) string {
	for _, t := range nameTokens(name) {
		if writingVerbs[t] {
			return t
		}
	}
	return ""
}

// descriptionWrites returns the first word of a description if it is a verb
// that says that something is changed.
func descriptionWrites(d string) string {
	tokens := nameTokens(strings.ToLower(short(d, 60)))
	if len(tokens) > 0 && base(tokens[0], writingVerbs) != "" {
		return tokens[0]
	}
	return ""
}

// SuggestPolicy writes a starting policy for a server as YAML, for a person to
// review: a class for each of its tools with what speaks for it, and rules
// that let reads flow and ask about the rest. The text is a configuration of
// its own, which check accepts: tools and rules are to be taken from it.
// schema gives the input schema of a tool, by its place; it may be nil.
func SuggestPolicy(server string, tools []Call, schema func(i int) json.RawMessage) string {
	list := make([]Suggestion, 0, len(tools))
	for i, c := range tools {
		s := Suggest(c)
		if schema != nil {
			if s.Classes, s.Class = suggestClasses(schema(i), s.Class); s.Classes != nil {
				s.Why += "; by its argument"
			}
		}
		list = append(list, s)
	}
	order := map[Class]int{Destructive: 0, Write: 1, Read: 2}
	slices.SortFunc(list, func(a, b Suggestion) int {
		return cmp.Or(cmp.Compare(order[a.Class], order[b.Class]), strings.Compare(a.Tool, b.Tool))
	})
	counts := map[Class]int{}
	width := 0
	for _, s := range list {
		counts[s.Class]++
		if s.Classes == nil {
			width = max(width, len(entry(s)))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `# A starting policy for the server %s, made from its tool list: %d tools,
# %d read, %d write, %d destructive. It counts only once you have put it into
# your own portal.yaml. Review every line, the reads above all: a read runs
# without anybody being asked. Copy tools and rules; url and auth stand here
# only so that this file is complete (mcp-portal check reads it).
auth:
  mode: none
servers:
  %s:
    url: https://mcp.example.com/%s # keep your own
`, Visible(server), len(list), counts[Read], counts[Write], counts[Destructive], server, server)
	if len(list) == 0 {
		b.WriteString("    # it has no tools that you see\n")
	} else {
		b.WriteString("    tools:\n")
	}
	for _, s := range list {
		why := s.Why
		if s.Doubt != "" {
			why += "; " + s.Doubt + ": look twice"
		}
		if s.Classes == nil {
			fmt.Fprintf(&b, "      %-*s # %s\n", width, entry(s), Visible(why))
			continue
		}
		fmt.Fprintf(&b, "      %s # %s\n        class: %s # of whatever no line below names\n        classes:\n", name(s.Tool)+":", Visible(why), s.Class)
		for _, l := range s.Classes {
			fmt.Fprintf(&b, "          - {class: %s, when: '%s'}\n", l.Class, strings.ReplaceAll(l.When, "'", "''"))
		}
		if s.Labels.Has(External) {
			fmt.Fprintf(&b, "        labels: [%s]\n", strings.Join(s.Labels.List(), ", "))
		}
	}
	fmt.Fprintf(&b, `guard:
  preset: careful # reads run, what is external needs a yes after private and untrusted data
  rules:
    - name: %[1]s-destructive
      servers: [%[1]s]
      class: [destructive]
      action: approve
      via: web # on the portal's page: no client can answer for its user
    - name: %[1]s-writes
      servers: [%[1]s]
      class: [write]
      action: approve
      grant: 20 # in a script an approver may release up to so many calls at once
      budget: {per_hour: 200}
`, server)
	return b.String()
}

// name is the name of a tool as a key of the configuration.
func name(tool string) string {
	b, err := json.Marshal(tool)
	if err != nil {
		return `""`
	}
	return string(b)
}

// entry is a tool's line of the configuration. JSON text is YAML, too.
func entry(s Suggestion) string {
	labels := ""
	if s.Labels.Has(External) {
		labels = ", labels: [" + strings.Join(s.Labels.List(), ", ") + "]"
	}
	return fmt.Sprintf("%s: {class: %s%s}", name(s.Tool), s.Class, labels)
}
