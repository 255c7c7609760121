package registry

import (
	"encoding/json"

	"github.com/mcp-portal/mcp-portal/upstreams"
	"github.com/mcp-portal/mcp-portal/wire"
)

// introduction is what a server says of itself and of the use of its tools.
// Agents read it beside the tools, so it is pinned like a definition.
type introduction struct {
	Title        string `json:"title,omitempty"`
	Description  string `json:"description,omitempty"`
	Instructions string `json:"instructions,omitempty"`
}

// itself is the name under which an introduction is pinned, among those of
// tools: no tool has an empty one.
const itself = ""

func introductionOf(c *upstreams.Catalogue) introduction {
	info, err := wire.ParseObject(c.ServerInfo)
	if err != nil {
		info = nil
	}
	title := oneLine(info.String("title"))
	if title == "" {
		title = oneLine(info.String("name"))
	}
	return introduction{title, oneLine(info.String("description")), c.Instructions}
}

// definition is the form in which an introduction is approved.
func (w introduction) definition() json.RawMessage {
	b, _ := json.Marshal(w) // strings always encode
	return b
}

// introduced is the introduction that counts: the approved one, if another is
// held back.
//
// To one user a server may speak of them. Such words are nobody else's, so they
// are approved for nobody, and where a person would have to, not said.
func (p *pinned) introduced(server string, now introduction) (introduction, *Pending) {
	if p != nil && p.ofOne {
		if p.mode == pinReview {
			return introduction{}, nil
		}
		return now, nil
	}
	pending := p.compare(server, itself, now.definition())
	if pending == nil || !pending.Held {
		return now, pending
	}
	var was introduction
	_ = json.Unmarshal(pending.Was, &was) // nothing was approved: nothing is said
	return was, pending
}

// ofOneUser is p for the list of one user.
func (p *pinned) ofOneUser() *pinned {
	if p == nil {
		return nil
	}
	own := *p
	own.ofOne = true
	return &own
}
