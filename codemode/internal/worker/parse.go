package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"

	"github.com/dop251/goja"
)

// maxDepth is how deep a result may be nested.
const maxDepth = 200

// maxSafeDigits: an integer with fewer digits is exact as a JavaScript number.
const maxSafeDigits = 15

var (
	errJSON     = errors.New("invalid JSON")
	errTooDeep  = fmt.Errorf("JSON nested deeper than %d levels", maxDepth)
	maxSafe     = big.NewInt(1<<53 - 1)
	minSafe     = big.NewInt(-(1<<53 - 1))
	maxIntChars = 4096 // digits of an integer; more is hostile
)

// scanner walks JSON text once.
type scanner struct {
	b     []byte
	i     int
	depth int
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\n', '\t', '\r':
			s.i++
		default:
			return
		}
	}
}

// peek returns the next byte that is not white space, 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.i >= len(s.b) {
		return 0
	}
	return s.b[s.i]
}

func (s *scanner) eat(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.i++
	return true
}

// stringRaw consumes a string and returns it with its quotes.
func (s *scanner) stringRaw() (raw []byte, plain bool, err error) {
	if s.peek() != '"' {
		return nil, false, errJSON
	}
	start := s.i
	plain = true
	for i := s.i + 1; i < len(s.b); i++ {
		switch c := s.b[i]; {
		case c == '"':
			s.i = i + 1
			return s.b[start:s.i], plain, nil
		case c == '\\':
			plain = false
			i++
		case c < 0x20:
			return nil, false, errJSON
		}
	}
	return nil, false, errJSON
}

func (s *scanner) string() (string, error) {
	raw, plain, err := s.stringRaw()
	if err != nil {
		return "", err
	}
	if plain {
		return string(raw[1 : len(raw)-1]), nil
	}
	var v string
	if json.Unmarshal(raw, &v) != nil {
		return "", errJSON
	}
	return v, nil
}

func (s *scanner) literal(word string) error {
	if len(s.b)-s.i < len(word) || string(s.b[s.i:s.i+len(word)]) != word {
		return errJSON
	}
	s.i += len(word)
	return nil
}

// number consumes a number of the JSON grammar.
func (s *scanner) number() (text []byte, integer bool, err error) {
	start := s.i
	digits := func() bool {
		from := s.i
		for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
			s.i++
		}
		return s.i > from
	}
	if s.i < len(s.b) && s.b[s.i] == '-' {
		s.i++
	}
	if s.i < len(s.b) && s.b[s.i] == '0' {
		s.i++
	} else if !digits() {
		return nil, false, errJSON
	}
	integer = true
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		integer = false
		if !digits() {
			return nil, false, errJSON
		}
	}
	if s.i < len(s.b) && (s.b[s.i] == 'e' || s.b[s.i] == 'E') {
		s.i++
		integer = false
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		if !digits() {
			return nil, false, errJSON
		}
	}
	return s.b[start:s.i], integer, nil
}

// skip consumes one value without building it.
func (s *scanner) skip() error {
	switch c := s.peek(); c {
	case '{', '[':
		return s.container(c, func() error { return s.skip() })
	case '"':
		_, _, err := s.stringRaw()
		return err
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	default:
		_, _, err := s.number()
		return err
	}
}

// container consumes an object or array; value is called where each value
// stands (for objects after its name, which skip ignores).
func (s *scanner) container(open byte, value func() error) error {
	if s.depth++; s.depth > maxDepth {
		return errTooDeep
	}
	defer func() { s.depth-- }()
	s.i++
	closing := byte(']')
	if open == '{' {
		closing = '}'
	}
	if s.eat(closing) {
		return nil
	}
	for {
		if open == '{' {
			if _, _, err := s.stringRaw(); err != nil {
				return err
			}
			if !s.eat(':') {
				return errJSON
			}
		}
		if err := value(); err != nil {
			return err
		}
		if s.eat(closing) {
			return nil
		}
		if !s.eat(',') {
			return errJSON
		}
	}
}

// eachMember calls f with every member of a JSON object.
func eachMember(raw []byte, f func(name string, value []byte)) error {
	s := &scanner{b: raw}
	if !s.eat('{') {
		return errors.New("it is not a JSON object")
	}
	s.depth++
	for first := true; !s.eat('}'); first = false {
		if !first && !s.eat(',') {
			return errJSON
		}
		name, err := s.string()
		if err != nil {
			return err
		}
		if !s.eat(':') {
			return errJSON
		}
		s.space()
		from := s.i
		if err := s.skip(); err != nil {
			return err
		}
		f(name, raw[from:s.i])
	}
	if s.space(); s.i != len(raw) {
		return errJSON
	}
	return nil
}

// eachItem calls f with every item of a JSON array.
func eachItem(raw []byte, f func(item []byte) error) error {
	s := &scanner{b: raw}
	if !s.eat('[') {
		return errors.New("the content is not a JSON array")
	}
	s.depth++
	for first := true; !s.eat(']'); first = false {
		if !first && !s.eat(',') {
			return errJSON
		}
		s.space()
		from := s.i
		if err := s.skip(); err != nil {
			return err
		}
		if err := f(raw[from:s.i]); err != nil {
			return err
		}
	}
	return nil
}

// parseJSON builds JavaScript values directly: in the order of the text, with
// integers beyond 2^53 as BigInt, so that no digit is lost.
func parseJSON(vm *goja.Runtime, raw []byte) (goja.Value, error) {
	p := &jsonParser{scanner: scanner{b: raw}, vm: vm}
	v, err := p.value()
	if err != nil {
		return nil, err
	}
	if p.space(); p.i != len(raw) {
		return nil, errJSON
	}
	return v, nil
}

type jsonParser struct {
	scanner
	vm    *goja.Runtime
	items []any // of the arrays under way, the innermost at the end
	seen  [256]seenString
}

// seenString is a string that was read and may come again: rows repeat their
// names, and many of their values.
type seenString struct {
	text  string
	value goja.Value // nil: it was only a name
}

// seenMost is the length in bytes from which repetition is unlikely.
const seenMost = 32

// text is p.string for what may repeat. The place is nil for what does not.
func (p *jsonParser) text() (string, *seenString, error) {
	raw, plain, err := p.stringRaw()
	if err != nil {
		return "", nil, err
	}
	if !plain {
		var v string
		if json.Unmarshal(raw, &v) != nil {
			return "", nil, errJSON
		}
		return v, nil, nil
	}
	raw = raw[1 : len(raw)-1]
	n := len(raw)
	if n == 0 || n > seenMost {
		return string(raw), nil, nil
	}
	place := &p.seen[uint8(n*31)^raw[0]*7^raw[n/2]*13^raw[n-1]*3]
	if place.text != string(raw) {
		*place = seenString{text: string(raw)}
	}
	return place.text, place, nil
}

func (p *jsonParser) stringValue() (goja.Value, error) {
	text, place, err := p.text()
	if err != nil {
		return nil, err
	}
	if place == nil {
		return p.vm.ToValue(text), nil
	}
	if place.value == nil {
		place.value = p.vm.ToValue(text)
	}
	return place.value, nil
}

func (p *jsonParser) value() (goja.Value, error) {
	switch p.peek() {
	case '{':
		return p.object()
	case '[':
		return p.array()
	case '"':
		return p.stringValue()
	case 't':
		return p.vm.ToValue(true), p.literal("true")
	case 'f':
		return p.vm.ToValue(false), p.literal("false")
	case 'n':
		return goja.Null(), p.literal("null")
	default:
		return p.numberValue()
	}
}

func (p *jsonParser) object() (goja.Value, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, errTooDeep
	}
	p.i++
	o := p.vm.NewObject()
	for first := true; !p.eat('}'); first = false {
		if !first && !p.eat(',') {
			return nil, errJSON
		}
		name, _, err := p.text()
		if err != nil {
			return nil, err
		}
		if !p.eat(':') {
			return nil, errJSON
		}
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		if name == "__proto__" { // data, never the prototype
			err = o.DefineDataProperty(name, v, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_TRUE)
		} else {
			err = o.Set(name, v)
		}
		if err != nil {
			return nil, err
		}
	}
	p.depth--
	return o, nil
}

func (p *jsonParser) array() (goja.Value, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, errTooDeep
	}
	p.i++
	from := len(p.items)
	for first := true; !p.eat(']'); first = false {
		if !first && !p.eat(',') {
			return nil, errJSON
		}
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		p.items = append(p.items, v)
	}
	p.depth--
	a := p.vm.NewArray(p.items[from:]...) // a copy
	clear(p.items[from:])
	p.items = p.items[:from]
	return a, nil
}

func (p *jsonParser) numberValue() (goja.Value, error) {
	raw, integer, err := p.number()
	if err != nil {
		return nil, err
	}
	if integer && len(raw) <= maxSafeDigits && raw[0] != '-' {
		n := int64(0)
		for _, c := range raw {
			n = 10*n + int64(c-'0')
		}
		return p.vm.ToValue(n), nil
	}
	text := string(raw)
	if integer && text != "-0" {
		if len(text) <= maxSafeDigits {
			n, err := strconv.ParseInt(text, 10, 64)
			return p.vm.ToValue(n), err
		}
		if len(text) > maxIntChars {
			return nil, fmt.Errorf("an integer has %d digits", len(text))
		}
		n, ok := new(big.Int).SetString(text, 10)
		if !ok {
			return nil, errJSON
		}
		if n.Cmp(maxSafe) > 0 || n.Cmp(minSafe) < 0 {
			return p.vm.ToValue(n), nil
		}
		return p.vm.ToValue(n.Int64()), nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) { // 1e999 is Infinity, as in JavaScript source
		return nil, errJSON
	}
	return p.vm.ToValue(f), nil
}
