package proto

import (
	"encoding/binary"
	"fmt"
	"iter"
	"strings"
)

// Tool is a tool as the worker knows it; see codemode.Tool.
type Tool struct{ Outward, Identifier, Server, Member string }

// Tools is a list of tools as it is sent: there can be thousands, and a worker
// that meets its user for the first time must neither wait for them nor pay for
// fresh memory to spread them out. A tool is its outward name, a byte of bits
// that say which of the other names are parts of it, and those names, or their
// lengths.
type Tools string

const (
	sameIdentifier byte = 1 << iota // the outward name
	serverInFront                   // of the outward name; the length follows
	memberAtEnd                     // likewise
)

// AppendTool adds one tool to a list under way.
func AppendTool(b []byte, t Tool) []byte {
	var bits byte
	if t.Identifier == t.Outward {
		bits |= sameIdentifier
	}
	if strings.HasPrefix(t.Outward, t.Server) {
		bits |= serverInFront
	}
	if strings.HasSuffix(t.Outward, t.Member) {
		bits |= memberAtEnd
	}
	name := func(s string, length, whole bool) {
		if length {
			b = binary.AppendUvarint(b, uint64(len(s)))
		}
		if whole {
			b = append(b, s...)
		}
	}
	name(t.Outward, true, true)
	b = append(b, bits)
	name(t.Identifier, bits&sameIdentifier == 0, bits&sameIdentifier == 0)
	name(t.Server, true, bits&serverInFront == 0)
	name(t.Member, true, bits&memberAtEnd == 0)
	return b
}

// All goes through the tools. What is passed with a tool is its part of the
// list. It ends early at what is no list, which DecodeRun has refused.
func (b Tools) All() iter.Seq2[Tool, Tools] {
	return func(yield func(Tool, Tools) bool) {
		for len(b) > 0 {
			t, n := b.first()
			if n == 0 || !yield(t, b[:n]) {
				return
			}
			b = b[n:]
		}
	}
}

func (b Tools) check() error {
	for len(b) > 0 {
		_, n := b.first()
		if n == 0 {
			return fmt.Errorf("%w: the list of tools is broken", ErrProtocol)
		}
		b = b[n:]
	}
	return nil
}

// first is the first tool and how many bytes it takes; 0: there is none.
func (b Tools) first() (t Tool, size int) {
	at := 0
	length := func() int {
		v := 0
		for shift := 0; shift < 28 && at < len(b); shift += 7 {
			c := b[at]
			at++
			v |= int(c&0x7f) << shift
			if c < 0x80 {
				return v
			}
		}
		return -1
	}
	text := func() (string, bool) {
		n := length()
		if n < 0 || n > len(b)-at {
			return "", false
		}
		at += n
		return string(b[at-n : at]), true
	}
	var ok bool
	if t.Outward, ok = text(); !ok || at == len(b) {
		return t, 0
	}
	bits := b[at]
	at++
	t.Identifier = t.Outward
	if bits&sameIdentifier == 0 {
		if t.Identifier, ok = text(); !ok {
			return t, 0
		}
	}
	for _, part := range [...]struct {
		name *string
		bit  byte
	}{{&t.Server, serverInFront}, {&t.Member, memberAtEnd}} {
		if bits&part.bit == 0 {
			if *part.name, ok = text(); !ok {
				return t, 0
			}
			continue
		}
		n := length()
		switch {
		case n < 0 || n > len(t.Outward):
			return t, 0
		case part.bit == serverInFront:
			*part.name = t.Outward[:n]
		default:
			*part.name = t.Outward[len(t.Outward)-n:]
		}
	}
	return t, at
}
