package codemode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// unitsPerToken is the resolution of the estimate.
const unitsPerToken = 12

// Cut tells what Shape left out.
type Cut struct {
	Bytes      int `json:"bytes"`                // size of the whole value
	Kept       int `json:"kept"`                 // size of what is left
	Items      int `json:"items,omitempty"`      // of lists
	Fields     int `json:"fields,omitempty"`     // of objects
	Characters int `json:"characters,omitempty"` // of texts
}

// EstimateTokens estimates the tokens of a text for o200k-like vocabularies. It
// leans to the high side: about 4 bytes of plain words per token, 3 digits, 2
// to 3 signs, and less than one character of other scripts. It never says less
// than a quarter of the bytes.
func EstimateTokens(text []byte) int {
	return (units(text) + unitsPerToken - 1) / unitsPerToken
}

func units(text []byte) int {
	n := 0
	last := byte(0) // class of the byte before
	inWord := 0     // letters and digits so far in this word
	for _, c := range text {
		u, class := weigh(c)
		if class == 'a' || class == 'A' || class == '0' {
			if inWord > 1 && last != class {
				u += costChange
			}
			inWord++
		} else {
			inWord = 0
		}
		n += u
		last = class
	}
	return n
}

// costChange is what a change between small letters, capitals and digits inside
// a word costs: identifiers, hashes and base64 fall apart there.
const costChange = 7

func weigh(c byte) (u int, class byte) {
	switch {
	case c >= 'a' && c <= 'z':
		return 3, 'a'
	case c >= 'A' && c <= 'Z':
		return 4, 'A'
	case c >= '0' && c <= '9':
		return 4, '0'
	case c == ' ':
		return 3, ' '
	case c >= 0x80:
		return 5, 'x'
	}
	return 5, '.'
}

// Costs of the parts that JSON adds, in units.
const (
	costSign   = 5
	costQuotes = 2 * costSign
	costMarker = 110 // the text that tells what is left out
	costLeast  = 40  // the smallest thing put in place of a value
	costClip   = 30 * unitsPerToken
)

// Shape cuts a JSON value down to about budgetTokens estimated tokens. The
// result is valid JSON: small fields survive, the largest values are cut first,
// lists say "… N more items", texts "… N more characters". A value that fits
// comes back as it is. Text that is no JSON is shaped as a JSON string.
func Shape(value json.RawMessage, budgetTokens int) (json.RawMessage, bool, Cut) {
	cut := Cut{Bytes: len(value), Kept: len(value)}
	if len(value) == 0 {
		return value, false, cut // no value at all: undefined
	}
	if !json.Valid(value) {
		value = appendQuoted(nil, strings.ToValidUTF8(string(value), "\ufffd"))
	}
	budget := budgetTokens * unitsPerToken
	if units(value) <= budget {
		return value, false, cut
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, value); err != nil { // it is valid, see above
		return json.RawMessage(`"…"`), true, cut
	}
	if units(compact.Bytes()) <= budget {
		cut.Kept = compact.Len()
		return compact.Bytes(), false, cut
	}
	root := newPart(compact.Bytes())
	deepest := maxShapeDepth
	if compact.Len() > bigValue {
		deepest = maxBigDepth
	}
	for room := budget; room > costLeast; room = room * 7 / 8 {
		s := shaper{cut: Cut{Bytes: cut.Bytes}, deepest: deepest}
		s.fit(root, room, 0)
		if units(s.b) <= budget {
			s.cut.Kept = len(s.b)
			return s.b, true, s.cut
		}
	}
	cut.Kept = len(`"…"`)
	return json.RawMessage(`"…"`), true, cut
}

// ShapeText cuts plain text, such as the message of an error, to a budget.
func ShapeText(text string, budgetTokens int) (string, bool) {
	text = strings.ToValidUTF8(text, "\ufffd")
	budget := budgetTokens * unitsPerToken
	if units([]byte(text)) <= budget {
		return text, false
	}
	head, left := prefix(text, budget-costMarker)
	return head + moreCharacters(left), true
}

// Each level of a value is read anew from its text, so depth costs time.
const (
	maxShapeDepth = 100
	maxBigDepth   = 24
	bigValue      = 256 << 10 // bytes
)

type shaper struct {
	b       []byte
	cut     Cut
	deepest int
}

// fit writes a value within a budget of units.
func (s *shaper) fit(n *part, budget, depth int) {
	if n.cost <= budget {
		s.b = append(s.b, n.raw...)
		return
	}
	switch kind := n.raw[0]; {
	case (kind == '{' || kind == '[') && depth >= s.deepest:
		s.text(string(n.raw), budget)
	case kind == '{':
		s.object(n, budget, depth)
	case kind == '[':
		s.list(n, budget, depth)
	case kind == '"':
		s.text(unquote(n.raw), budget)
	default: // a number of absurd length
		s.text(string(n.raw), budget)
	}
}

func (s *shaper) text(t string, budget int) {
	head, left := prefix(t, budget-costQuotes-costMarker)
	s.cut.Characters += left
	s.b = appendQuoted(s.b, head+moreCharacters(left))
}

func moreCharacters(n int) string { return fmt.Sprintf("… %d more characters", n) }

// prefix returns the longest beginning of t that costs at most budget, and the
// number of characters after it.
func prefix(t string, budget int) (head string, left int) {
	used := 0
	last := byte(0)
	end := 0
	for i, r := range t {
		cost := 0
		for _, c := range []byte(t[i : i+utf8.RuneLen(r)]) {
			u, class := weigh(c)
			if last != class {
				u += costChange
			}
			if c < 0x20 || c == '"' || c == '\\' {
				u += 5 // an escape
			}
			cost += u
			last = class
		}
		if used += cost; used > budget {
			return t[:end], utf8.RuneCountInString(t[end:])
		}
		end = i + utf8.RuneLen(r)
	}
	return t, 0
}

// level is the largest L for which the sum of min(cost, L) fits.
func level(costs []int, room int) int {
	sorted := slices.Clone(costs)
	slices.Sort(sorted)
	for i, c := range sorted {
		share := room / (len(sorted) - i)
		if c > share {
			return share
		}
		room -= c
	}
	return 1 << 60
}

func (s *shaper) object(n *part, budget, depth int) {
	n.open(budget)
	names, costs := 2*costSign, make([]int, len(n.kids))
	least := 0
	for i, k := range n.kids {
		names += keyCost(n.keys[i])
		costs[i] = k.cost
		least += min(k.cost, costLeast+costMarker)
	}
	keep := make([]bool, len(n.kids))
	left := 0
	if names+least <= budget && n.more == 0 {
		for i := range keep {
			keep[i] = true
		}
	} else {
		// Not even the names fit: the cheapest members stay, in their order.
		order := make([]int, len(n.kids))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int {
			return min(costs[a], costClip) + keyCost(n.keys[a]) - min(costs[b], costClip) - keyCost(n.keys[b])
		})
		room := budget - 2*costSign - costMarker - keyCost("…")
		names, left = 2*costSign+costMarker+keyCost("…"), len(n.kids)+n.more
		for _, i := range order {
			need := keyCost(n.keys[i]) + min(costs[i], costClip)
			if room -= need; room < 0 {
				break
			}
			keep[i] = true
			names += keyCost(n.keys[i])
			left--
		}
	}
	var kept []int
	for i, k := range keep {
		if k {
			kept = append(kept, costs[i])
		}
	}
	most := level(kept, budget-names)
	s.b = append(s.b, '{')
	first := true
	for i, k := range n.kids {
		if !keep[i] {
			continue
		}
		if !first {
			s.b = append(s.b, ',')
		}
		first = false
		s.b = appendQuoted(s.b, n.keys[i])
		s.b = append(s.b, ':')
		s.fit(k, min(k.cost, most), depth+1)
	}
	if left > 0 {
		s.cut.Fields += left
		if !first {
			s.b = append(s.b, ',')
		}
		marker := "…"
		for slices.Contains(n.keys, marker) {
			marker += "…"
		}
		s.b = appendQuoted(s.b, marker)
		s.b = append(s.b, ':')
		s.b = appendQuoted(s.b, fmt.Sprintf("%d more fields", left))
	}
	s.b = append(s.b, '}')
}

// list keeps whole items where it can. Items with long parts are clipped before
// items are dropped.
func (s *shaper) list(n *part, budget, depth int) {
	n.open(budget)
	costs, cores := make([]int, len(n.kids)), make([]int, len(n.kids))
	for i, k := range n.kids {
		costs[i], cores[i] = k.cost, k.core
	}
	typical := slices.Clone(cores)
	slices.Sort(typical)
	clip := max(costClip, typical[len(typical)*9/10])
	room := budget - 2*costSign
	total := 0
	for _, c := range costs {
		total += min(c, clip) + costSign
	}
	count := len(n.kids)
	if total > room || n.more > 0 {
		room -= costMarker
		count = 0
		used := 0
		for _, c := range costs {
			if used+min(c, clip)+costSign > room {
				break
			}
			used += min(c, clip) + costSign
			count++
		}
		// One big item after few small ones: a part of it is better than none.
		if count < len(costs) && room-used > max(2*costLeast, room/2) {
			count++
		}
	}
	most := level(costs[:count], room-count*costSign)
	s.b = append(s.b, '[')
	for i, k := range n.kids[:count] {
		if i > 0 {
			s.b = append(s.b, ',')
		}
		s.fit(k, min(k.cost, most), depth+1)
	}
	if left := len(n.kids) + n.more - count; left > 0 {
		s.cut.Items += left
		if count > 0 {
			s.b = append(s.b, ',')
		}
		s.b = appendQuoted(s.b, fmt.Sprintf("… %d more items", left))
	}
	s.b = append(s.b, ']')
}
