package writeguard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// decodeArguments reads arguments for conditions, in one pass: objects are
// map[string]any, lists []any, numbers int64 where they are whole and float64
// elsewhere. What two programs could read differently is an error, as in
// Canonical: a call is judged by what its server will read.
func decodeArguments(raw json.RawMessage) (map[string]any, error) {
	raw = bytes.Trim(raw, " \t\r\n")
	if len(raw) == 0 || string(raw) == "null" {
		return map[string]any{}, nil
	}
	switch {
	case raw[0] != '{':
		return nil, errors.New("read arguments: not a JSON object")
	case !json.Valid(raw):
		return nil, errors.New("read arguments: not valid JSON")
	case !utf8.Valid(raw):
		return nil, errors.New("read arguments: a text is not UTF-8")
	}
	r := argumentReader{b: raw}
	v, err := r.object(0)
	if err != nil {
		return nil, fmt.Errorf("read arguments: %w", err)
	}
	return v, nil
}

// argumentReader walks over JSON that is known to be valid, so it looks only
// at what tells values apart.
type argumentReader struct {
	b []byte
	i int
}

// next skips white space and the signs between values, and returns the first
// byte of what follows.
func (r *argumentReader) next() byte {
	for {
		switch c := r.b[r.i]; c {
		case ' ', '\t', '\r', '\n', ',', ':':
			r.i++
		default:
			return c
		}
	}
}

func (r *argumentReader) value(depth int) (any, error) {
	if depth > depthMax {
		return nil, fmt.Errorf("nested deeper than %d levels", depthMax)
	}
	switch c := r.next(); c {
	case '{':
		return r.object(depth)
	case '[':
		return r.list(depth)
	case '"':
		return r.text()
	case 't':
		r.i += len("true")
		return true, nil
	case 'f':
		r.i += len("false")
		return false, nil
	case 'n':
		r.i += len("null")
		return nil, nil
	}
	return r.number()
}

func (r *argumentReader) object(depth int) (map[string]any, error) {
	r.i++
	out := map[string]any{}
	for r.next() != '}' {
		name, err := r.text()
		if err != nil {
			return nil, err
		}
		if _, twice := out[name]; twice {
			return nil, fmt.Errorf("member %q is there twice", Visible(name))
		}
		if out[name], err = r.value(depth + 1); err != nil {
			return nil, err
		}
	}
	r.i++
	return out, oneCase(out)
}

// oneCase refuses members whose names differ only in case: many programs take
// them for the same one, and the last of them counts.
func oneCase(o map[string]any) error {
	if len(o) < 2 {
		return nil
	}
	seen := make(map[string]string, len(o))
	for name := range o {
		key := strings.ToLower(strings.ToUpper(name))
		if other, twice := seen[key]; twice {
			return fmt.Errorf("members %q and %q differ only in case", Visible(min(name, other)), Visible(max(name, other)))
		}
		seen[key] = name
	}
	return nil
}

func (r *argumentReader) list(depth int) ([]any, error) {
	r.i++
	out := []any{}
	for r.next() != ']' {
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	r.i++
	return out, nil
}

func (r *argumentReader) text() (string, error) {
	start, escaped := r.i, false
	for r.i++; r.b[r.i] != '"'; r.i++ {
		if r.b[r.i] == '\\' {
			escaped = true
			r.i++
		}
	}
	r.i++
	quoted := r.b[start:r.i]
	if !escaped {
		return string(quoted[1 : len(quoted)-1]), nil
	}
	if err := wellFormedText(quoted); err != nil {
		return "", err
	}
	var s string
	err := json.Unmarshal(quoted, &s)
	return s, err
}

func (r *argumentReader) number() (any, error) {
	start := r.i
	for r.i < len(r.b) {
		c := r.b[r.i]
		if c != '-' && c != '+' && c != '.' && c != 'e' && c != 'E' && (c < '0' || c > '9') {
			break
		}
		r.i++
	}
	text := string(r.b[start:r.i])
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, fmt.Errorf("the number %.40s is too large", text)
	}
	return f, nil
}

// longestList is the length of the longest list anywhere in a value.
func longestList(v any) int {
	n := 0
	switch x := v.(type) {
	case []any:
		n = len(x)
		for _, item := range x {
			n = max(n, longestList(item))
		}
	case map[string]any:
		for _, item := range x {
			n = max(n, longestList(item))
		}
	}
	return n
}
