package upstreams

import (
	"bytes"
	"fmt"
	"regexp"

	"github.com/mcp-portal/mcp-portal/wire"
)

var trailingID = regexp.MustCompile(`"id"\s*:\s*([0-9]+)\s*\}\s*$`)

// tooLong fails the call that a message over the limit answers. If that cannot
// be told from the ends of the message, it is the only call that waits; of
// several the one that gets no answer ends at its deadline.
func (p *pipe) tooLong(head, tail []byte) {
	err := fmt.Errorf("%w of %d bytes (limits.message)", wire.ErrTooLarge, p.max)
	id, notice := headID(head)
	if notice {
		p.log.Warn("a notification exceeds limits.message: skipped", "bytes", p.max)
		return
	}
	if id == "" {
		if m := trailingID.FindSubmatch(tail); m != nil {
			id = string(m[1])
		}
	}
	if id != "" {
		p.failOne(id, err)
		return
	}
	p.failOnly(err)
}

// headID finds the id among the first members of a cut object. notice reports
// that a method came before any id: nobody waits for it.
func headID(head []byte) (id string, notice bool) {
	rest := bytes.TrimLeft(head, " \t{")
	for range 4 {
		m := leadingMember.FindSubmatch(rest)
		if m == nil {
			return "", false
		}
		switch string(m[1]) {
		case "id":
			return string(m[2]), false
		case "method":
			return "", true
		}
		rest = rest[len(m[0]):]
	}
	return "", false
}

// leadingMember matches a member with a scalar value, and its comma.
var leadingMember = regexp.MustCompile(`^\s*"([a-z]+)"\s*:\s*("[^"\\]*"|-?[0-9.eE+-]+|null)\s*,`)
