package gateway

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mcp-portal/mcp-portal/codemode"
	"github.com/mcp-portal/mcp-portal/registry"
	"github.com/mcp-portal/mcp-portal/upstreams"
)

// withheldMost is how many names of withheld tools are told to a script.
const withheldMost = 500

const (
	whyHeld     = "is held back: its server changed its definition since it was approved, or lists it newly. An administrator of the portal looks at it and releases it on the page of pins; until then do without it"
	whyDisabled = "is switched off by an administrator of the portal; do without it"
	whyOff      = "is switched off by the user: ask them whether to switch it on at %s"
)

// withheld are the tools that the caller could see and cannot use now, and why.
// What access rules refuse is not among them: to that caller it does not exist.
func (g *Gateway) withheld(r *request) (out []codemode.Withheld) {
	v, left := r.view, withheldMost
	for _, s := range v.allowed() {
		name := registry.ServerIdentifier(s.ID)
		if v.off[s.ID] {
			out = append(out, codemode.Withheld{Server: name, Why: fmt.Sprintf(whyOff, g.togglesURL(r.grant))})
			continue
		}
		add := func(why string, tools []string) {
			tools = tools[:min(len(tools), left)]
			left -= len(tools)
			if len(tools) > 0 {
				out = append(out, codemode.Withheld{Server: name, Tools: tools, Why: why})
			}
		}
		var held, disabled []string
		for _, p := range s.Pending {
			if p.Held && p.Tool != "" && v.set.access.CanTool(v.who, s.ID, p.Tool) {
				held = append(held, p.Outward)
			}
		}
		for _, d := range s.Disabled {
			if v.set.access.CanTool(v.who, s.ID, d.Tool) {
				disabled = append(disabled, d.Outward)
			}
		}
		add(whyHeld, held)
		add(whyDisabled, disabled)
		if len(s.Tools)+len(held)+len(s.Disabled) == 0 && s.State != upstreams.Ready {
			out = append(out, codemode.Withheld{Server: name, Why: g.whyEmpty(isAdmin(v.set, v.who), s)})
		}
	}
	for id, s := range v.set.cfg.Servers {
		if !s.IsEnabled() && v.set.access.CanServer(v.who, id) {
			out = append(out, codemode.Withheld{Server: registry.ServerIdentifier(id), Why: whyDisabled})
		}
	}
	slices.SortStableFunc(out, func(a, b codemode.Withheld) int { // what names a tool first
		return min(1, len(b.Tools)) - min(1, len(a.Tools))
	})
	return out
}

// whyEmpty says why nothing is known of a server's tools.
func (g *Gateway) whyEmpty(admin bool, s *registry.Server) string {
	switch s.State {
	case upstreams.Connecting:
		return "is still connecting and its tools are not known yet: try again in a moment"
	case upstreams.LoginNeeded:
		return "needs a sign-in: ask the user to open " + g.baseURL() + "/servers and sign in there"
	}
	why := "cannot be reached now, so its tools are not known: try again later"
	if up, ok := g.opt.Upstreams.Get(s.ID); ok && admin && up.Status().Error != nil {
		why += " (" + bounded(up.Status().Error.Message, 200) + ")"
	}
	return why
}

// whyWithheld says why the caller cannot use what a name means, "" if it means
// nothing that there is.
func (g *Gateway) whyWithheld(r *request, name string) string {
	return codemode.WhyWithheld(g.withheld(r), name)
}

// sentence makes one of a text that goes on after a name.
func sentence(s string) string {
	return strings.ToUpper(s[:1]) + s[1:] + "."
}
