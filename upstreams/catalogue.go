package upstreams

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/mcp-portal/mcp-portal/wire"
)

// Ceilings of one list of one server.
const (
	maxPages = 1000
	maxItems = 50_000
)

// listing is one of the lists that make a catalogue.
type listing struct {
	method     string // MCP method
	member     string // of the result
	identity   string // member that names an item
	capability string
	required   bool // when advertised, an unknown method is a failure
}

func listings() []listing {
	return []listing{
		{"tools/list", "tools", "name", "tools", true},
		{"prompts/list", "prompts", "name", "prompts", false},
		{"resources/list", "resources", "uri", "resources", false},
		{"resources/templates/list", "resourceTemplates", "uriTemplate", "resources", false},
	}
}

// list reads everything that a server offers. Any list that cannot be read to
// its end fails the whole: half a catalogue is not one.
func (s *server) list(ctx context.Context, c conn) (*Catalogue, error) {
	h := c.hello()
	cat := &Catalogue{
		ProtocolVersion: h.version,
		ServerInfo:      h.serverInfo,
		Capabilities:    h.capabilities,
		Instructions:    h.instructions,
		Tools:           []json.RawMessage{},
		Prompts:         []json.RawMessage{},
		Resources:       []json.RawMessage{},
		Templates:       []json.RawMessage{},
	}
	warn := func(format string, args ...any) {
		w := s.peer.clean(fmt.Sprintf(format, args...))
		cat.Warnings = append(cat.Warnings, w)
		s.log.Warn("the catalogue is odd", "warning", w)
	}
	for _, l := range listings() {
		if h.capability(l.capability) == nil {
			continue
		}
		items, err := s.pages(ctx, c, l, warn)
		if we, ok := wire.AsError(err); ok && we.Code == wire.CodeMethodNotFound && !l.required {
			if l.method != "resources/templates/list" { // many advertise resources and have no templates
				warn("%s is advertised but the server does not know it", l.method)
			}
			continue
		}
		if err != nil {
			return nil, inList(l.method, err)
		}
		switch l.method {
		case "tools/list":
			cat.Tools = items
		case "prompts/list":
			cat.Prompts = items
		case "resources/list":
			cat.Resources = items
		default:
			cat.Templates = items
		}
	}
	return cat, nil
}

// inList names the list that failed.
func inList(method string, err error) error {
	var ce *CallError
	if !errors.As(err, &ce) {
		return fmt.Errorf("%s: %w", method, err)
	}
	out := *ce
	out.Sent = false // listing twice does no harm
	out.Problem.Message = method + ": " + out.Problem.Message
	return &out
}

// pages reads one list. It stops, with a warning, where a server would keep it
// reading for ever.
func (s *server) pages(ctx context.Context, c conn, l listing, warn func(string, ...any)) ([]json.RawMessage, error) {
	items := []json.RawMessage{}
	known := map[string]bool{}
	cursors := map[string]bool{}
	var duplicates, nameless int
	var size int64
	defer func() {
		if duplicates > 0 {
			warn("%s repeats %d items: the first of each counts", l.method, duplicates)
		}
		if nameless > 0 {
			warn("%s has %d items without a %s: left out", l.method, nameless, l.identity)
		}
	}()
	params := json.RawMessage(nil)
	for page := 1; ; page++ {
		raw, err := c.do(ctx, internal(l.method, params, s.timing()))
		if err != nil {
			return nil, err
		}
		o, err := wire.ParseObject(raw)
		if err != nil {
			return nil, fmt.Errorf("the result is not an object: %w", err)
		}
		var batch []json.RawMessage
		if err := json.Unmarshal(o.Get(l.member), &batch); err != nil || batch == nil {
			return nil, fmt.Errorf("the result has no array %q", l.member)
		}
		for _, item := range batch {
			io, err := wire.ParseObject(item)
			name := ""
			if err == nil {
				name = io.String(l.identity)
			}
			switch {
			case name == "":
				nameless++
			case known[name]:
				duplicates++
			default:
				known[name] = true
				size += int64(len(item))
				items = append(items, bytes.Clone(item))
			}
		}
		cursor := o.String("nextCursor")
		switch next := o.Get("nextCursor"); {
		case next != nil && next[0] != '"' && string(next) != "null":
			warn("%s has a cursor that is no string: stopped after %d pages", l.method, page)
			return items, nil
		case cursor == "":
			return items, nil
		case cursors[cursor]:
			warn("%s repeats the cursor %s: stopped after %d pages", l.method, wire.Quote(cursor), page)
			return items, nil
		case page >= maxPages || len(items) >= maxItems || size >= 8*s.limits.Message:
			warn("%s does not end: stopped after %d pages with %d items", l.method, page, len(items))
			return items, nil
		}
		cursors[cursor] = true
		params = wire.Object{{Key: "cursor", Value: wire.Quote(cursor)}}.Bytes()
	}
}

// sameCatalogue reports whether nothing changed.
func sameCatalogue(a, b *Catalogue) bool {
	return a != nil && b != nil && reflect.DeepEqual(a, b)
}
