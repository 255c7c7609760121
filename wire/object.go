package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Field is one member of a JSON object with the exact bytes of its value.
type Field struct {
	Key   string
	Value json.RawMessage
}

// Object is a JSON object as ordered members. Values that are not replaced
// keep their bytes; keys that need no escaping keep theirs.
type Object []Field

// ParseObject splits a JSON object into its members, in order, without
// touching the values. The input must be one valid JSON object. The values
// share the input's memory.
func ParseObject(b []byte) (Object, error) {
	if !json.Valid(b) {
		return nil, errors.New("parse JSON object: not valid JSON")
	}
	return SplitObject(b)
}

// SplitObject is ParseObject for bytes known to be valid JSON: of others it makes
// anything.
func SplitObject(b []byte) (Object, error) {
	var o Object
	var bad error
	err := scanObject(b, func(key, val []byte, _, _ int) {
		k, err := keyText(key)
		if err != nil {
			bad = err
		}
		o = append(o, Field{k, json.RawMessage(val)})
	}, nil)
	if err == nil {
		err = bad
	}
	if err != nil {
		return nil, fmt.Errorf("parse JSON object: %w", err)
	}
	return o, nil
}

// keyText decodes a quoted key.
func keyText(quoted []byte) (string, error) {
	inner := quoted[1 : len(quoted)-1]
	plain := utf8.Valid(inner)
	for _, c := range inner {
		if c == '\\' {
			plain = false
		}
	}
	if plain {
		return string(inner), nil
	}
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		return "", fmt.Errorf("key %s: %w", quoted, err)
	}
	return s, nil
}

// keyIs compares a quoted key with a name.
func keyIs(quoted []byte, name string) bool {
	k, err := keyText(quoted)
	return err == nil && k == name
}

// scanObject walks over the members of one object in bytes known to be valid
// JSON: visit gets the quoted key, the value, and the value's offsets. closing
// gets the offset of the closing brace.
func scanObject(b []byte, visit func(key, val []byte, start, end int), closing *int) error {
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		return errors.New("not an object")
	}
	i = skipSpace(b, i+1)
	for i < len(b) && b[i] != '}' {
		k := i
		i = skipString(b, i)
		key := b[k:i]
		i = skipSpace(b, skipSpace(b, i)+1) // over the colon
		v := i
		i = skipValue(b, i)
		visit(key, b[v:i:i], v, i)
		i = skipSpace(b, i)
		if i < len(b) && b[i] == ',' {
			i = skipSpace(b, i+1)
		}
	}
	if closing != nil {
		*closing = i
	}
	return nil
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = skipString(b, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // end of the enclosing value after a scalar
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}

// Get returns the value of key, or nil. Of duplicate keys the last counts, as
// in encoding/json.
func (o Object) Get(key string) json.RawMessage {
	for i := len(o) - 1; i >= 0; i-- {
		if o[i].Key == key {
			return o[i].Value
		}
	}
	return nil
}

// String returns the value of key if it is a JSON string, else "".
func (o Object) String(key string) string {
	var s string
	if v := o.Get(key); len(v) > 0 && v[0] == '"' {
		if inner := v[1:max(1, len(v)-1)]; plainText(inner) {
			return string(inner)
		}
		_ = json.Unmarshal(v, &s)
	}
	return s
}

// Set returns the object with key set to value, in its place if it was there,
// else at the end.
func (o Object) Set(key string, value json.RawMessage) Object {
	out := make(Object, 0, len(o)+1)
	done := false
	for _, f := range o {
		if f.Key == key {
			if done {
				continue
			}
			f.Value, done = value, true
		}
		out = append(out, f)
	}
	if !done {
		out = append(out, Field{key, value})
	}
	return out
}

// Splice sets one member of a JSON object and leaves every other byte alone: a
// member that is there gets the new value in its place, a new one is added at
// the end, a nil value removes nothing and returns the object as it is. When
// the key is there more than once, one remains. It fails when obj is not one
// valid JSON object.
func Splice(obj json.RawMessage, key string, value json.RawMessage) (json.RawMessage, error) {
	if !json.Valid(obj) {
		return nil, errors.New("edit JSON object: not valid JSON")
	}
	if value == nil {
		return obj, nil
	}
	found, start, end, closing, empty := 0, 0, 0, 0, true
	err := scanObject(obj, func(k, _ []byte, s, e int) {
		empty = false
		if keyIs(k, key) {
			found, start, end = found+1, s, e
		}
	}, &closing)
	if err != nil {
		return nil, fmt.Errorf("edit JSON object: %w", err)
	}
	switch {
	case found == 1:
		return slices.Concat(obj[:start], value, obj[end:]), nil
	case found > 1: // which one counts is undefined: leave one only
		o, err := SplitObject(obj)
		if err != nil {
			return nil, err
		}
		return o.Set(key, value).Bytes(), nil
	}
	comma := ","
	if empty {
		comma = ""
	}
	return slices.Concat(obj[:closing], []byte(comma), Quote(key), []byte(":"), value, obj[closing:]), nil
}

// SetString is Set with a JSON string.
func (o Object) SetString(key, value string) Object { return o.Set(key, Quote(value)) }

// Without returns the object less the keys.
func (o Object) Without(keys ...string) Object {
	out := make(Object, 0, len(o))
next:
	for _, f := range o {
		for _, k := range keys {
			if f.Key == k {
				continue next
			}
		}
		out = append(out, f)
	}
	return out
}

// Bytes joins the members again.
func (o Object) Bytes() json.RawMessage {
	n := 2
	for _, f := range o {
		n += len(f.Key) + len(f.Value) + 4
	}
	b := make([]byte, 0, n)
	b = append(b, '{')
	for i, f := range o {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, Quote(f.Key)...)
		b = append(b, ':')
		b = append(b, f.Value...)
	}
	return append(b, '}')
}

// plainText tells whether a text is its own JSON form, without the quotes.
func plainText[T string | json.RawMessage](s T) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// Quote is s as a JSON string, without HTML escaping.
func Quote(s string) json.RawMessage {
	if plainText(s) {
		b := make([]byte, 0, len(s)+2)
		return append(append(append(b, '"'), s...), '"')
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes
	return json.RawMessage(bytes.TrimRight(b.Bytes(), "\n"))
}

// Encode is json.Marshal without HTML escaping. It is for values of ours that
// always encode; it panics when given one that does not.
func Encode(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("wire.Encode(%T): %v", v, err))
	}
	return json.RawMessage(bytes.TrimRight(b.Bytes(), "\n"))
}
