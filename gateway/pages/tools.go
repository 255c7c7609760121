package pages

import (
	"net/http"

	"github.com/mcp-portal/mcp-portal/writeguard"
)

// ToolRow is one tool in the list of its server.
type ToolRow struct {
	Path        string // of its page
	Name        string // as clients see it
	Description string // one sentence; may be empty
	Guard       writeguard.Explanation
}

// ToolsData is the page of one server's tools.
type ToolsData struct {
	Frame
	Server string // id
	Label  string // title; may be empty
	Tools  []ToolRow
}

// Tools shows the tools of a server that the user may use, and what the guard
// would do with a call of each.
func (p *Pages) Tools(w http.ResponseWriter, d ToolsData) error {
	return p.render(w, http.StatusOK, "tools", "Tools of "+d.Server, d.Frame, d)
}

// ToolData is the page of one tool.
type ToolData struct {
	Frame
	Name        string // as clients see it
	Own         string // as its server calls it
	Server      string // id
	Description string // as its server says
	Arguments   string // as they were typed in; empty: none
	Mode        string // "code", else direct
	Judged      bool   // Guard is about these arguments, not about the tool as such
	Guard       writeguard.Explanation
	Hidden      int    // rules tried that only administrators see
	Problem     string // what is wrong with the arguments; empty: nothing
}

// Tool shows what the guard would do with a call of a tool, and why.
func (p *Pages) Tool(w http.ResponseWriter, d ToolData) error {
	return p.render(w, http.StatusOK, "tool", d.Name, d.Frame, d)
}
