package wire

import "bytes"

// pairUp puts U+FFFD in place of each \u escape that is half of a surrogate
// pair without the other half. JSON's grammar allows it (RFC 8259, section 8.2),
// but it is no character: serde_json and pydantic refuse the whole message for
// it, and others read different texts. The escape keeps its length. The input
// is returned when there is none, else a changed copy.
func pairUp(b []byte) []byte {
	if !bytes.Contains(b, []byte(`\ud`)) && !bytes.Contains(b, []byte(`\uD`)) {
		return b
	}
	changed := false
	for i := 0; i < len(b); {
		next := bytes.IndexByte(b[i:], '\\')
		if next < 0 {
			break
		}
		i += next
		u := escape(b[i:])
		switch {
		case u < 0: // of one character
			i += 2
		case u < 0xd800 || u > 0xdfff:
			i += 6
		case u < 0xdc00 && inRange(escape(b[min(i+6, len(b)):]), 0xdc00, 0xdfff):
			i += 12
		default:
			if !changed {
				b, changed = bytes.Clone(b), true
			}
			copy(b[i:], `\ufffd`)
			i += 6
		}
	}
	return b
}

func inRange(u, low, high int) bool { return u >= low && u <= high }

// escape is the code unit of a \u escape that b begins with; -1: it does not.
func escape(b []byte) int {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	u := 0
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		u = u<<4 | int(c)
	}
	return u
}
