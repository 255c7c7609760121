package codemode

import (
	"fmt"
	"strings"
)

// reference renders a $ref within the document. A short definition is written
// in place; a longer or recursive one becomes a type of its own.
func (d *declarer) reference(ref string, depth int) string {
	target := d.resolve(ref)
	if target == nil {
		return unknownType
	}
	if name := d.known[target]; name != "" {
		return name
	}
	if d.open[target] > 0 {
		if d.brief || len(d.known) >= typeNamesMost {
			return unknownType // one line has no room for types of its own
		}
		d.known[target] = d.freeName(ref)
		return d.known[target]
	}
	d.open[target]++
	body := d.typeOf(target, depth+1)
	d.open[target]--
	name := d.known[target]
	if name == "" {
		if len(body) <= inlineRef || d.brief || len(d.known) >= typeNamesMost {
			return body
		}
		name = d.freeName(ref)
		d.known[target] = name
	}
	d.aliases = append(d.aliases, alias{name, body})
	return name
}

// resolve follows a JSON pointer in this document; nil when it leads elsewhere.
func (d *declarer) resolve(ref string) *node {
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	n := d.root
	if pointer == "" {
		return n
	}
	if !strings.HasPrefix(pointer, "/") {
		return nil
	}
	for part := range strings.SplitSeq(pointer[1:], "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(unescape(part))
		switch {
		case n == nil:
			return nil
		case n.kind == '{':
			n = n.member(part)
		case n.kind == '[':
			var i int
			if _, err := fmt.Sscanf(part, "%d", &i); err != nil || i < 0 || i >= len(n.kids) {
				return nil
			}
			n = n.kids[i]
		default:
			return nil
		}
	}
	return n
}

func (d *declarer) freeName(ref string) string {
	last := ref[strings.LastIndexByte(ref, '/')+1:]
	if last == "#" || last == "" {
		last = d.kind
	}
	base := d.prefix + "_" + typeName(unescape(last))
	name := base
	for i := 2; d.used[name]; i++ {
		name = fmt.Sprintf("%s%d", base, i)
	}
	d.used[name] = true
	return name
}

// unescape decodes the percent signs of a URL fragment.
func unescape(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		var c byte
		if s[i] == '%' && i+2 < len(s) {
			if _, err := fmt.Sscanf(s[i+1:i+3], "%02x", &c); err == nil {
				b.WriteByte(c)
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
