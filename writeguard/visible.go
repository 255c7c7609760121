package writeguard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
)

// Visible returns text from others on one line with nothing hidden in it:
// control, direction, zero-width and other invisible characters, line ends and
// unusual spaces become \u escapes, bytes that are no UTF-8 become \ufffd. A
// person who approves reads what is there, not what a renderer makes of it.
func Visible(s string) string { return visible(s, false) }

// VisibleJSON returns valid JSON indented for reading, with every invisible
// character of its strings as an escape. It is the same value.
func VisibleJSON(raw json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return Visible(string(raw))
	}
	return visible(b.String(), true)
}

func visible(s string, lines bool) string {
	clean := true
	for _, r := range s {
		if hidden(r) && !(lines && r == '\n') {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case lines && r == '\n' || !hidden(r):
			b.WriteRune(r)
		case r > 0xffff:
			// As JSON writes it, so that the text stays the same value.
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// hidden reports whether a character shows nothing of its own, or changes how
// others show.
func hidden(r rune) bool {
	switch {
	case r == ' ':
		return false
	case r < 0x20 || r >= 0x7f && r < 0xa1 || r == unicode.ReplacementChar:
		return true
	case r < 0x300:
		return r == 0xad
	case r >= 0xfe00 && r <= 0xfe0f, r >= 0xe0000 && r <= 0xe0fff: // variation selectors, tags
		return true
	case r == 0x34f, r == 0x115f, r == 0x1160, r == 0x17b4, r == 0x17b5, r == 0x2800, r == 0x3164, r == 0xffa0: // blank letters and fillers
		return true
	case r >= 0x180b && r <= 0x180f:
		return true
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zs, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs) || !unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S)
}
