package openapi

import (
	"encoding/json"
	"maps"
	"slices"
)

// Many operations of a document take and give the same few schemas, each by a
// short reference. What was written for one of them holds for all, as long as
// nothing came before it that has a part in it.

// writtenMost is how long a schema may be for what is written of it to be kept:
// longer ones are hardly there twice.
const writtenMost = 300

// writtenKey is a schema and the way in which it was written.
type writtenKey struct {
	schema string
	refs   int
}

// written is what came of a schema.
type written struct {
	out    json.RawMessage // nil: there was no room
	defs   map[string]string
	todo   []string
	cost   int // of the room
	failed int // the room that was not enough
}

// top writes the schema of a body or parameter.
func (c *schemas) top(raw json.RawMessage) json.RawMessage {
	if len(raw) > writtenMost || len(c.defs) > 0 || c.room < 0 {
		return c.schema(raw, 0, 0)
	}
	key, room := writtenKey{string(raw), c.refs}, c.room
	c.d.mu.Lock()
	w := c.d.written[key]
	c.d.mu.Unlock()
	switch {
	case w == nil:
	case w.out == nil && room <= w.failed, w.out != nil && w.cost > room && c.refs > 0:
		c.room = -1 // as then: all this is thrown away
		return anything
	case w.out != nil && w.cost <= room:
		c.room -= w.cost
		c.defs, c.todo = maps.Clone(w.defs), slices.Clone(w.todo)
		return w.out
	}
	out := c.schema(raw, 0, 0)
	switch {
	case c.room >= 0:
		w = &written{out: out, defs: maps.Clone(c.defs), todo: slices.Clone(c.todo), cost: room - c.room}
	case c.refs > 0:
		w = &written{failed: room}
	default:
		return out // what there was room for
	}
	c.d.mu.Lock()
	c.d.written[key] = w
	c.d.mu.Unlock()
	return out
}

// answer is outputSchema of an operation, kept for others with the same.
func (d *Document) answer(op *Operation) json.RawMessage {
	if len(op.output) == 0 || len(op.output) > writtenMost {
		return d.outputSchema(op)
	}
	d.mu.Lock()
	out, ok := d.answers[string(op.output)]
	d.mu.Unlock()
	if !ok {
		out = d.outputSchema(op)
		d.mu.Lock()
		d.answers[string(op.output)] = out
		d.mu.Unlock()
	}
	return out
}
