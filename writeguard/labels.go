package writeguard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mcp-portal/mcp-portal/config"
)

// Labels say what flows through a tool; as taints, what has flowed into a
// session already.
type Labels uint8

const (
	Private   Labels = 1 << iota // its results are the company's or a person's own
	Untrusted                    // its results may hold text that strangers wrote
	External                     // what it is given leaves the company
)

var labelNames = []struct {
	label Labels
	name  string
}{{Private, "private"}, {Untrusted, "untrusted"}, {External, "external"}}

// Has reports whether all of the others are among them.
func (l Labels) Has(others Labels) bool { return l&others == others }

// List is their names.
func (l Labels) List() []string {
	out := []string{}
	for _, n := range labelNames {
		if l&n.label != 0 {
			out = append(out, n.name)
		}
	}
	return out
}

// String is their names with commas between them, or "none".
func (l Labels) String() string {
	if l == 0 {
		return "none"
	}
	return strings.Join(l.List(), ", ")
}

// ParseLabels reads names of labels.
func ParseLabels(names []string) (Labels, error) {
	var l Labels
	for _, name := range names {
		i := slices.IndexFunc(labelNames, func(n struct {
			label Labels
			name  string
		}) bool {
			return n.name == name
		})
		if i < 0 {
			return 0, fmt.Errorf("%q is none of private, untrusted, external", name)
		}
		l |= labelNames[i].label
	}
	return l, nil
}

// labelled gives the labels of a tool and says why it counts as external, if
// it does. The administrator's labels of the tool itself are the last word;
// those of the server, or of servers without any, can be tightened by words
// in the tool's name.
func labelled(c *Call, cfg *config.Config) (l Labels, why string) {
	var s config.Server
	unlabelled := []string{"private", "untrusted"}
	if cfg != nil {
		s = cfg.Servers[c.Server]
		unlabelled = cfg.Guard.Unlabelled
	}
	t := s.Tools[c.Tool]
	names, from := t.Labels, "the configuration labels the tool"
	if names == nil {
		if names, from = s.Labels, "the configuration labels the server"; names == nil {
			names, from = unlabelled, "guard.unlabelled says so"
		}
	}
	// What is no label was refused when the configuration was compiled; here
	// it counts as all of them.
	l, err := ParseLabels(names)
	if err != nil {
		return Private | Untrusted | External, err.Error()
	}
	switch {
	case l.Has(External):
		return l, from
	case t.Class == classExternal:
		return l | External, "the configuration says so"
	case t.Labels != nil:
		return l, ""
	}
	if w := externalWord(c.Tool); w != "" {
		return l | External, fmt.Sprintf("the name says %q", w)
	}
	return l, ""
}

// sendingVerbs say, wherever they stand in a name, that something given is
// passed on to others.
var sendingVerbs = words(`
	broadcast browse crawl curl forward navigate scrape send tweet wget`)

// sendingNouns say the same unless the name reads: publish_page and
// share_file, but not get_share or list_emails.
var sendingNouns = words(`email fax invite mail publish share sms upload webhook`)

// externalWord returns the word of a tool name that says that what it is given
// goes out, or "". It only ever tightens.
func externalWord(name string) string {
	tokens := nameTokens(name)
	reading, searches, web := false, false, ""
	for _, t := range tokens {
		if base(t, sendingVerbs) != "" {
			return t
		}
		reading = reading || base(t, readingVerbs) != ""
		searches = searches || t == "search" || t == "fetch" || t == "open" || t == "visit" || t == "request"
		switch t {
		case "web", "url", "urls", "http", "https", "webpage", "website", "internet":
			web = t
		}
	}
	if web != "" && (reading || searches) {
		return web
	}
	if len(tokens) == 1 && tokens[0] == "fetch" {
		return "fetch"
	}
	if reading {
		return ""
	}
	for _, t := range tokens {
		if base(t, sendingNouns) != "" {
			return t
		}
	}
	return ""
}
