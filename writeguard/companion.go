package writeguard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/wire"
)

// Companion is a call that is made from a call of a plan: to look beforehand at
// what it changes, or to take it back.
type Companion struct {
	Tool string // original name, of the same server
	args []companionArgument
}

// companionArgument is one argument: a literal, or where its value is found.
type companionArgument struct {
	name    string
	literal json.RawMessage
	from    []string // args, before or result, then names of members
}

// Preview is how to look at what a call of a tool changes; nil: it is not known.
func (p *Policy) Preview(server, tool string) *Companion {
	return companionOf(p.cfg.Servers[server].Tools[tool].Preview)
}

// Undo is how to take back what a call of a tool did; nil: it is not known.
func (p *Policy) Undo(server, tool string) *Companion {
	return companionOf(p.cfg.Servers[server].Tools[tool].Undo)
}

func companionOf(c config.Companion) *Companion {
	if c.With == "" {
		return nil
	}
	out, err := compileCompanion(c, "args", "before", "result")
	if err != nil {
		return nil // Compile has refused it
	}
	return out
}

// compileCompanion reads a companion whose arguments may come from these.
func compileCompanion(c config.Companion, from ...string) (*Companion, error) {
	out := &Companion{Tool: c.With}
	for _, name := range slices.Sorted(maps.Keys(c.Args)) {
		text := strings.TrimSpace(c.Args[name])
		a := companionArgument{name: name}
		switch path := strings.Split(text, "."); {
		case len(text) >= 2 && text[0] == '\'' && text[len(text)-1] == '\'':
			a.literal = wire.Quote(text[1 : len(text)-1])
		case slices.Contains(from, path[0]) && !slices.Contains(path, ""):
			a.from = path
		case text != "" && text[0] != '"' && json.Valid([]byte(text)):
			a.literal = json.RawMessage(text)
		default:
			return nil, fmt.Errorf("args.%s: %q is neither %s with names after dots, nor 'text', nor a number, true or false", name, text, strings.Join(from, ", "))
		}
		out.args = append(out.args, a)
	}
	return out, nil
}

// Uses reports whether an argument comes from there.
func (c *Companion) Uses(from string) bool {
	return slices.ContainsFunc(c.args, func(a companionArgument) bool { return len(a.from) > 0 && a.from[0] == from })
}

// Arguments are those of the companion's call, given the values that they come
// from. What is not there is an error: a call without it might be another.
func (c *Companion) Arguments(values map[string]json.RawMessage) (json.RawMessage, error) {
	out := wire.Object{}
	for _, a := range c.args {
		v := a.literal
		if a.from != nil {
			v = values[a.from[0]]
			if v == nil {
				return nil, fmt.Errorf("%s is not known", a.from[0])
			}
			for i, key := range a.from[1:] {
				next, err := memberOf(v, key)
				if err != nil {
					return nil, fmt.Errorf("there is no %s: %w", strings.Join(a.from[:i+2], "."), err)
				}
				v = next
			}
		}
		out = append(out, wire.Field{Key: a.name, Value: v})
	}
	return out.Bytes(), nil
}

func memberOf(v json.RawMessage, key string) (json.RawMessage, error) {
	v = bytes.TrimSpace(v)
	if len(v) > 0 && v[0] == '[' {
		var list []json.RawMessage
		n, err := strconv.Atoi(key)
		if err != nil || json.Unmarshal(v, &list) != nil || n < 0 || n >= len(list) {
			return nil, errors.New("no such item")
		}
		return list[n], nil
	}
	o, err := wire.ParseObject(v)
	if err != nil {
		return nil, errors.New("it is no object")
	}
	if v = o.Get(key); v == nil {
		return nil, errors.New("no such member")
	}
	return v, nil
}

// Change is a member of what is there that a call asks to be something else.
type Change struct{ Name, Before, After string }

// Changes compares what a preview showed with what the call asks for: members of
// the same name that differ, in the first object that has any of them.
func Changes(before, arguments json.RawMessage) (out []Change) {
	args, err := wire.ParseObject(arguments)
	if err != nil {
		return nil
	}
	o := record(before, args)
	for _, f := range args {
		was := o.Get(f.Key)
		if was == nil {
			continue
		}
		if a, b := compact(was), compact(f.Value); a != b {
			out = append(out, Change{f.Key, a, b})
		}
	}
	return out
}

// record finds the object that a call is about: itself, or one level down.
func record(before json.RawMessage, args wire.Object) wire.Object {
	o, err := wire.ParseObject(before)
	if err != nil {
		return nil
	}
	has := func(o wire.Object) bool {
		return slices.ContainsFunc(args, func(f wire.Field) bool { return o.Get(f.Key) != nil })
	}
	if has(o) {
		return o
	}
	for _, f := range o {
		if inner, err := wire.ParseObject(f.Value); err == nil && has(inner) {
			return inner
		}
	}
	return nil
}

func compact(v json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, v) != nil {
		return string(v)
	}
	return b.String()
}
