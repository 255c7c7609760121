package audit

import (
	"bytes"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// escapeC1 escapes the control and formatting characters that JSON allows as
// they are: DEL, the C1 controls (some terminals take U+009B for an escape
// sequence), and the invisible ones that reorder or hide text. Outside of
// strings an encoder writes none of them, so replacing bytes is safe.
func escapeC1(line []byte) []byte {
	if !bytes.ContainsFunc(line, unsafe) {
		return line
	}
	var b bytes.Buffer
	for len(line) > 0 {
		r, size := utf8.DecodeRune(line)
		switch {
		case !unsafe(r):
			b.Write(line[:size])
		case r > 0xffff:
			hi, lo := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		line = line[size:]
	}
	return b.Bytes()
}

func unsafe(r rune) bool {
	return r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r))
}
