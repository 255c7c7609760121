package upstreamtest

import (
	"encoding/json"
	"slices"
	"strconv"
	"sync"

	"github.com/mcp-portal/mcp-portal/wire"
)

// Tool is a small tool definition with the name.
func Tool(name string) json.RawMessage {
	return wire.Object{
		{Key: "name", Value: wire.Quote(name)},
		{Key: "description", Value: wire.Quote("test tool " + name)},
		{Key: "inputSchema", Value: json.RawMessage(`{"type":"object"}`)},
	}.Bytes()
}

// offer is what a server has, by list method.
type offer struct {
	mu    sync.Mutex
	lists map[string][]json.RawMessage
	page  int
}

var members = map[string]string{
	"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources", "resources/templates/list": "resourceTemplates",
}

func (o *offer) set(method string, items []json.RawMessage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lists == nil {
		o.lists = map[string][]json.RawMessage{}
	}
	o.lists[method] = items
}

func (o *offer) add(method string, item json.RawMessage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lists[method] = append(slices.Clone(o.lists[method]), item)
}

func (o *offer) remove(method, name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lists[method] = slices.DeleteFunc(slices.Clone(o.lists[method]), func(item json.RawMessage) bool {
		obj, _ := wire.ParseObject(item)
		return obj.String("name") == name
	})
}

// result answers a list method; false for any other method.
func (o *offer) result(method string, params json.RawMessage, modern bool) (json.RawMessage, bool) {
	member, ok := members[method]
	if !ok {
		return nil, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	items := o.lists[method]
	p, _ := wire.ParseObject(params)
	from, _ := strconv.Atoi(p.String("cursor"))
	from = min(from, len(items))
	to := len(items)
	if o.page > 0 {
		to = min(to, from+o.page)
	}
	res := wire.Object{{Key: member, Value: wire.Encode(slices.Concat([]json.RawMessage{}, items[from:to]))}}
	if to < len(items) {
		res = res.SetString("nextCursor", strconv.Itoa(to))
	}
	if modern {
		res = res.SetString("resultType", "complete").Set("ttlMs", json.RawMessage(`0`)).SetString("cacheScope", "private")
	}
	// Items keep their bytes: joined by hand, since encoding compacts them.
	b := []byte("[")
	for i, item := range items[from:to] {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, item...)
	}
	return res.Set(member, append(b, ']')).Bytes(), true
}

const capabilities = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true}}`
