package codemode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf16"

	"github.com/mcp-portal/mcp-portal/codemode/internal/proto"
	"github.com/mcp-portal/mcp-portal/wire"
)

// In a guarded run a call that the host holds can get a stand-in for its answer,
// so that the script goes on with what it can do without knowing it. That
// happens only when nothing else can make the script go on, one call at a time,
// in order.

// Ref names the answer of a call that is known later, or a part of it.
type Ref = proto.Ref

// Looked says that a guarded run ended because its script wanted to know what is
// known later.
type Looked struct {
	Answers  int    // that the script had been told when it went on to the look
	Question int    // whose answer it wanted to know
	At       string // "line:column" in the code; empty: unknown
}

func (l *Looked) Error() string {
	return fmt.Sprintf("the code wants to know the answer to question %d", l.Question)
}

// Marker is the name of the member by which references stand in the arguments of
// a run's calls. Its script cannot know it.
func Marker(seed uint64) string { return fmt.Sprintf("$answer-%016x", seed) }

// ref reads a value as a reference.
func ref(marker string, value json.RawMessage) (r Ref, ok bool) {
	if !bytes.Contains(value, []byte(marker)) {
		return r, false
	}
	o, err := wire.ParseObject(value)
	if err != nil || len(o) != 1 || o[0].Key != marker {
		return r, false
	}
	return r, json.Unmarshal(o[0].Value, &r) == nil
}

// Refs lists the references in arguments.
func Refs(marker string, args json.RawMessage) (out []Ref) {
	_, _ = Resolve(marker, args, func(r Ref) (json.RawMessage, error) {
		out = append(out, r)
		return json.RawMessage("null"), nil
	})
	return out
}

// Resolve puts values in the place of the references in arguments. The error is
// the first of value's.
func Resolve(marker string, args json.RawMessage, value func(Ref) (json.RawMessage, error)) (json.RawMessage, error) {
	if !bytes.Contains(args, []byte(marker)) {
		return args, nil
	}
	if r, ok := ref(marker, args); ok {
		return value(r)
	}
	if o, err := wire.ParseObject(args); err == nil {
		out := slices.Clone(o)
		for i := range out {
			v, err := Resolve(marker, out[i].Value, value)
			if err != nil {
				return nil, err
			}
			out[i].Value = v
		}
		return out.Bytes(), nil
	}
	var list []json.RawMessage
	if json.Unmarshal(args, &list) != nil {
		return args, nil
	}
	for i := range list {
		v, err := Resolve(marker, list[i], value)
		if err != nil {
			return nil, err
		}
		list[i] = v
	}
	return wire.Encode(list), nil
}

// Follow finds what a reference names in the result of its call. What is not
// there is an error: a script would get undefined, and send a call without it.
func Follow(result json.RawMessage, r Ref) (json.RawMessage, error) {
	v, ok := result, true
	if !r.Raw {
		if v, ok = Plain(result); !ok {
			return nil, errors.New("the answer has no value that code could use")
		}
	}
	for i, key := range r.Path {
		next, err := member(v, key)
		if err != nil {
			return nil, fmt.Errorf("the answer has no %s: %w", pathText(r.Path[:i+1]), err)
		}
		v = next
	}
	return v, nil
}

func pathText(path []string) string {
	s := ""
	for _, p := range path {
		s += "." + p
	}
	return s
}

func member(v json.RawMessage, key string) (json.RawMessage, error) {
	v = bytes.TrimSpace(v)
	switch {
	case len(v) > 0 && v[0] == '{':
		o, err := wire.ParseObject(v)
		if err != nil {
			return nil, err
		}
		for i := len(o) - 1; i >= 0; i-- { // of members given twice the last counts
			if o[i].Key == key {
				return o[i].Value, nil
			}
		}
		return nil, errors.New("it is not among its members")
	case len(v) > 0 && v[0] == '[':
		var list []json.RawMessage
		if err := json.Unmarshal(v, &list); err != nil {
			return nil, err
		}
		if key == "length" {
			return json.RawMessage(strconv.Itoa(len(list))), nil
		}
		if n, err := strconv.Atoi(key); err == nil && n >= 0 && n < len(list) && strconv.Itoa(n) == key {
			return list[n], nil
		}
		return nil, fmt.Errorf("it is a list of %d items", len(list))
	case len(v) > 0 && v[0] == '"':
		var s string
		if key == "length" && json.Unmarshal(v, &s) == nil {
			return json.RawMessage(strconv.Itoa(len(utf16.Encode([]rune(s))))), nil
		}
		return nil, errors.New("it is a text")
	}
	return nil, fmt.Errorf("it is %.20s", v)
}

// standIn gives the first call that waits for it a stand-in.
func (c *callList) standIn() {
	c.mu.Lock()
	if len(c.held) == 0 {
		c.mu.Unlock()
		return
	}
	j := c.held[0]
	c.held = c.held[1:]
	c.mu.Unlock()
	c.tape.answer(Event{Kind: EventAnswer, N: j.n, Data: json.RawMessage("null"), Later: true, Time: time.Now().UnixMilli()})
}

// looked takes a Look frame: the script has come to its end.
func looked(data []byte) error {
	var m proto.LookMsg
	if err := json.Unmarshal(data, &m); err != nil || m.Question < 1 || m.Taken < 1 {
		return fmt.Errorf("%w: a look at nothing", proto.ErrProtocol)
	}
	return &Looked{Answers: int(m.Taken), Question: m.Question, At: cutText(m.At, 40)}
}
