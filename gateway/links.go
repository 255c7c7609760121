package gateway

import (
	"bytes"
	"encoding/json"

	"github.com/mcp-portal/mcp-portal/registry"
	"github.com/mcp-portal/mcp-portal/wire"
)

// A URI in a result leads to the server that wrote it. Through the portal it
// could lead to another, or to none; then, and only then, the client gets the
// explicit address (registry.ExplicitURI), which comes back as the plain one
// wherever the client uses it: in resources/read, subscriptions, completions
// and the arguments of tools.

// outwardLinks puts addresses that lead to the server in place of URIs in a
// result that would not. requested is the client's URI of a resources/read. A
// result without such URIs keeps its bytes.
func outwardLinks(snap *registry.Snapshot, x crossing, result json.RawMessage, requested string) json.RawMessage {
	if !bytes.Contains(result, []byte(`"uri"`)) && !bytes.Contains(result, []byte("resourceUri")) {
		return result
	}
	o, err := wire.ParseObject(result)
	if err != nil {
		return result
	}
	l := linker{snap, x.server}
	switch x.method {
	case "tools/call", "tasks/result":
		result = replaced(result, o, "content", eachOf(o.Get("content"), l.block))
	case "tasks/get":
		if r := o.Get("result"); r != nil {
			result = replaced(result, o, "result", outwardLinks(snap, crossing{method: "tools/call", server: x.server}, r, ""))
		}
	case "prompts/get":
		result = replaced(result, o, "messages", eachOf(o.Get("messages"), func(m wire.Object) (wire.Object, bool) {
			c, err := wire.ParseObject(m.Get("content"))
			if err != nil {
				return m, false
			}
			if c, changed := l.block(c); changed {
				return m.Set("content", c.Bytes()), true
			}
			return m, false
		}))
	case "resources/read":
		result = replaced(result, o, "contents", eachOf(o.Get("contents"), func(c wire.Object) (wire.Object, bool) {
			switch uri := c.String("uri"); {
			case uri == x.name && requested != uri && requested != "":
				return c.SetString("uri", requested), true
			case uri != x.name && uri != "" && snap.Ambiguous(x.server, uri):
				return c.SetString("uri", registry.ExplicitURI(x.server, uri)), true
			}
			return c, false
		}))
	}
	if uri := registry.AppURI(result); uri != "" {
		if to := snap.Outward(x.server, uri); to != uri {
			result = registry.WithAppURI(result, uri, to)
		}
	}
	return result
}

type linker struct {
	snap   *registry.Snapshot
	server string
}

// block is a content block with its link or embedded resource addressed.
func (l linker) block(b wire.Object) (wire.Object, bool) {
	switch b.String("type") {
	case "resource_link":
		if uri := b.String("uri"); uri != "" {
			if to := l.snap.Outward(l.server, uri); to != uri {
				return b.SetString("uri", to), true
			}
		}
	case "resource": // it is all there: its URI matters only if it means another
		if r, err := wire.ParseObject(b.Get("resource")); err == nil {
			if uri := r.String("uri"); uri != "" && l.snap.Ambiguous(l.server, uri) {
				return b.Set("resource", r.SetString("uri", registry.ExplicitURI(l.server, uri)).Bytes()), true
			}
		}
	}
	return b, false
}

// replaced sets a member of an object to other bytes, if they are other.
func replaced(raw json.RawMessage, o wire.Object, key string, value json.RawMessage) json.RawMessage {
	if value == nil || bytes.Equal(o.Get(key), value) {
		return raw
	}
	if out, err := wire.Splice(raw, key, value); err == nil {
		return out
	}
	return raw
}

// eachOf applies f to the objects of an array. What f leaves alone keeps its
// bytes, and so does an array in which it changes nothing.
func eachOf(raw json.RawMessage, f func(wire.Object) (wire.Object, bool)) json.RawMessage {
	var list []json.RawMessage
	if len(raw) == 0 || json.Unmarshal(raw, &list) != nil {
		return raw
	}
	changed := false
	for i, item := range list {
		o, err := wire.ParseObject(item)
		if err != nil {
			continue
		}
		if o, ok := f(o); ok {
			list[i], changed = o.Bytes(), true
		}
	}
	if !changed {
		return raw
	}
	out := []byte{'['}
	for i, item := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, item...)
	}
	return append(out, ']')
}

// inwardLinks undoes outwardLinks in the arguments of a tool: texts that begin
// with the explicit address of its server are given to it as it knows them.
func inwardLinks(args json.RawMessage, server string) json.RawMessage {
	prefix := []byte(`"` + registry.ExplicitURI(server, ""))
	if !bytes.Contains(args, prefix) {
		return args
	}
	out := make([]byte, 0, len(args))
	for rest := []byte(args); ; {
		i := bytes.Index(rest, prefix)
		if i < 0 {
			return append(out, rest...)
		}
		// A quote within a text is escaped: that is no beginning.
		if i > 0 && rest[i-1] == '\\' {
			out = append(out, rest[:i+len(prefix)]...)
		} else {
			out = append(append(out, rest[:i]...), '"')
		}
		rest = rest[i+len(prefix):]
	}
}
