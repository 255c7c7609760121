package pages

import (
	"net/http"

	"github.com/mcp-portal/mcp-portal/registry"
)

// PinRow is one definition that is not the approved one.
type PinRow struct {
	Server, Tool string
	Digest       string
	New, Held    bool
	Differences  []registry.Difference
}

// PinsData is the page where admins look at changed definitions.
type PinsData struct {
	Frame
	Pins    []PinRow
	Problem string
	Done    string // what was just released; may be empty
}

// Pins shows what servers have changed about their tools, and releases it.
func (p *Pages) Pins(w http.ResponseWriter, status int, d PinsData) error {
	return p.render(w, status, "pins", "Changed definitions", d.Frame, d)
}
