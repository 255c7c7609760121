package codemode

// part is a value inside a JSON text without white space. What it consists of
// is read when somebody looks, and no more of it than could be shown: a value
// may be large, and a tree of all its nodes is many times larger.
type part struct {
	raw  []byte
	cost int // of the whole, in units of a twelfth of a token
	core int // of a list item with its long parts clipped

	opened bool
	keys   []string // of an object
	kids   []*part
	more   int // members after these
}

// costMember is less than any member of an object or list costs.
const costMember = 8

func newPart(raw []byte) *part {
	p := &part{raw: raw, cost: units(raw)}
	p.core = min(p.cost, costClip)
	if raw[0] == '{' {
		p.core = min(p.cost, coreOf(raw))
	}
	return p
}

// open reads the members that fit into a budget of units.
func (p *part) open(budget int) {
	if p.opened {
		return
	}
	p.opened = true
	most := max(budget, 0)/costMember + 1
	eachPart(p.raw, func(key, value []byte) {
		if len(p.kids) >= most {
			p.more++
			return
		}
		if p.raw[0] == '{' {
			p.keys = append(p.keys, unquote(key))
		}
		p.kids = append(p.kids, newPart(value))
	})
}

func keyCost(key string) int { return units([]byte(key)) + costQuotes + 2*costSign }

// coreOf is what an object costs when its long parts are clipped.
func coreOf(raw []byte) int {
	c := 2 * costSign
	eachPart(raw, func(key, value []byte) {
		c += units(key) + 2*costSign + min(units(value), costClip)
	})
	return c
}

// eachPart calls f with every member of an object or list, in order; key is nil
// in lists. The text is valid JSON without white space.
func eachPart(raw []byte, f func(key, value []byte)) {
	if len(raw) < 2 {
		return
	}
	for i := 1; i < len(raw)-1; i++ { // past the bracket or comma
		var key []byte
		if raw[0] == '{' {
			from := i
			i = skipPart(raw, i)
			key = raw[from:i]
			i++ // the colon
		}
		from := i
		i = skipPart(raw, i)
		f(key, raw[from:i])
	}
}

// skipPart returns where the value that begins at i ends.
func skipPart(raw []byte, i int) int {
	depth := 0
	for ; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			for i++; i < len(raw) && raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return min(i+1, len(raw))
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // of a number or word
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',':
			if depth == 0 {
				return i
			}
		}
	}
	return i
}
