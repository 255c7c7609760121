package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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
// touching the values. The input must be one valid JSON object.
func ParseObject(b []byte) (Object, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	t, err := dec.Token()
	if err != nil {
		return nil, fmt.Errorf("parse JSON object: %w", err)
	}
	if t != json.Delim('{') {
		return nil, errors.New("parse JSON object: not an object")
	}
	var o Object
	for dec.More() {
		k, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("parse JSON object: %w", err)
		}
		key, ok := k.(string)
		if !ok {
			return nil, errors.New("parse JSON object: key is not a string")
		}
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return nil, fmt.Errorf("parse JSON object: member %q: %w", key, err)
		}
		o = append(o, Field{key, v})
	}
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("parse JSON object: %w", err)
	}
	if dec.More() {
		return nil, errors.New("parse JSON object: data after the object")
	}
	return o, nil
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

// Quote is s as a JSON string, without HTML escaping.
func Quote(s string) json.RawMessage {
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
