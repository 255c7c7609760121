package openapi

import (
	"encoding/json"
	"net/url"
	"strconv"
	"strings"

	"github.com/mcp-portal/mcp-portal/wire"
)

// maxChain bounds references that lead to references.
const maxChain = 32

// lookup follows a reference into the document: "#" and a JSON pointer (RFC
// 6901), percent-encoded or not. Nil: it leads elsewhere, or nowhere.
func (d *Document) lookup(ref string) json.RawMessage {
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	if pointer == "" {
		return d.raw
	}
	if pointer[0] != '/' {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	target, ok := d.found[pointer]
	if !ok {
		target = d.walk(pointer)
		d.found[pointer] = target
	}
	return target
}

// walk follows a pointer that is not empty. The caller holds mu.
func (d *Document) walk(pointer string) json.RawMessage {
	at, here := "", d.raw
	for part := range strings.SplitSeq(pointer[1:], "/") {
		if p, err := url.PathUnescape(part); err == nil {
			part = p
		}
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		if len(here) > 0 && here[0] == '[' {
			var list []json.RawMessage
			i, err := strconv.Atoi(part)
			if err != nil || json.Unmarshal(here, &list) != nil || i < 0 || i >= len(list) {
				return nil
			}
			here = list[i]
			at += "/" + part
			continue
		}
		members := d.objects[at]
		if members == nil {
			o, err := wire.SplitObject(here)
			if err != nil {
				return nil
			}
			members = make(map[string]json.RawMessage, len(o))
			for _, f := range o {
				members[f.Key] = f.Value
			}
			d.objects[at] = members
		}
		next, ok := members[part]
		if !ok {
			return nil
		}
		here = next
		at += "/" + strings.ReplaceAll(part, "/", "~1")
	}
	return here
}

// follow resolves an object that may be a reference, through further ones. The
// members beside a reference count before those it leads to (OpenAPI 3.1).
func (d *Document) follow(raw json.RawMessage) wire.Object {
	var beside wire.Object
	for range maxChain {
		o := d.object(raw)
		if o == nil {
			return nil
		}
		ref := o.Get("$ref")
		if len(ref) == 0 || ref[0] != '"' {
			for _, f := range beside {
				o = o.Set(f.Key, f.Value)
			}
			return o
		}
		for _, f := range o.Without("$ref") {
			if beside.Get(f.Key) == nil {
				beside = append(beside, f)
			}
		}
		if raw = d.lookup(o.String("$ref")); raw == nil {
			return nil
		}
	}
	return nil
}

// object parses an object of the document; nil: it is none. What is returned is
// shared, and read only.
func (d *Document) object(raw json.RawMessage) wire.Object {
	if first(raw) != '{' {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	o, ok := d.parsed[&raw[0]]
	if !ok {
		var err error
		if o, err = wire.SplitObject(raw); err != nil {
			return nil
		}
		if o == nil {
			o = wire.Object{}
		}
		d.parsed[&raw[0]] = o
	}
	return o
}

// forget drops what lookups have collected; later ones collect anew.
func (d *Document) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.objects, d.parsed, d.found = map[string]map[string]json.RawMessage{}, map[*byte]wire.Object{}, map[string]json.RawMessage{}
	d.written, d.answers = map[writtenKey]*written{}, map[string]json.RawMessage{}
}
