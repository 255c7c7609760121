package gateway

import (
	"fmt"
	"strings"

	"github.com/mcp-portal/mcp-portal/registry"
)

// What servers say of the use of their tools (instructions of initialize) is
// told where their tools are: page sizes, filters and what to ask again are
// often written there and nowhere else.
const (
	noteBytes      = 900   // of one server, in one answer
	notesServers   = 4     // servers of one answer that are quoted
	notesInitially = 12000 // of all servers, where all tools are listed
)

// note is what the server says of the use of its tools, in one line; "" is
// nothing.
func (v *view) note(server string) string {
	if s := v.snap.Server(server); s != nil {
		return oneLine(s.Instructions, noteBytes)
	}
	return ""
}

// notes quotes the servers of tools, those of the first tools first.
func notes(v *view, tools []*registry.Tool) string {
	var b strings.Builder
	done := map[string]bool{}
	for _, t := range tools {
		if done[t.Server] || len(done) == notesServers {
			continue
		}
		done[t.Server] = true
		if n := v.note(t.Server); n != "" {
			fmt.Fprintf(&b, "Server %s says: %s\n", t.Server, n)
		}
	}
	return b.String()
}

// allNotes quotes every server that the caller sees, within bounds.
func allNotes(v *view) string {
	var b strings.Builder
	left := 0
	for _, s := range v.servers() {
		n := v.note(s.ID)
		switch {
		case n == "":
		case b.Len()+len(n) > notesInitially:
			left++
		default:
			fmt.Fprintf(&b, "\nServer %s says: %s", s.ID, n)
		}
	}
	if left > 0 {
		fmt.Fprintf(&b, "\n%d more servers say how to use them.", left)
	}
	return b.String()
}
