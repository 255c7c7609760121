package upstreams

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/mcp-portal/mcp-portal/wire"
)

// watchers are those who wait for updated resources on one 2025 session. What
// several wait for is subscribed to once.
type watchers struct {
	rpc sync.Mutex // one resources/subscribe or unsubscribe at a time

	mu    sync.Mutex
	all   []*watcher
	count map[string]int // who waits, by URI
}

type watcher struct {
	notify func(method string, params json.RawMessage)
	uris   []string
}

func (ws *watchers) add(w *watcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.all = append(ws.all, w)
}

func (ws *watchers) remove(w *watcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.all = slices.DeleteFunc(ws.all, func(x *watcher) bool { return x == w })
}

func (ws *watchers) of(w *watcher) []string {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return slices.Clone(w.uris)
}

// subscribe makes w hear of a resource.
func (ws *watchers) subscribe(ctx context.Context, s *server, c conn, w *watcher, uri string) error {
	ws.rpc.Lock()
	defer ws.rpc.Unlock()
	ws.mu.Lock()
	known := ws.count[uri] > 0
	w.uris = append(w.uris, uri) // before the server is told: it may tell of an update at once
	ws.mu.Unlock()
	if !known {
		if _, err := c.do(ctx, internal("resources/subscribe", wire.Object{{Key: "uri", Value: wire.Quote(uri)}}.Bytes(), s.timing())); err != nil {
			ws.mu.Lock()
			w.uris = slices.DeleteFunc(w.uris, func(u string) bool { return u == uri })
			ws.mu.Unlock()
			return err
		}
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.count == nil {
		ws.count = map[string]int{}
	}
	ws.count[uri]++
	return nil
}

// unsubscribe ends all that w waits for.
func (ws *watchers) unsubscribe(s *server, c conn, w *watcher) {
	ws.rpc.Lock()
	defer ws.rpc.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), politeness)
	defer cancel()
	for _, uri := range ws.of(w) {
		ws.mu.Lock()
		ws.count[uri]--
		last := ws.count[uri] == 0
		if last {
			delete(ws.count, uri)
		}
		ws.mu.Unlock()
		if !last || c.why() != nil {
			continue
		}
		if _, err := c.do(ctx, internal("resources/unsubscribe", wire.Object{{Key: "uri", Value: wire.Quote(uri)}}.Bytes(), s.timing())); err != nil {
			s.log.Debug("the server did not take resources/unsubscribe", "error", err)
		}
	}
}

// updated passes notifications/resources/updated to those who wait for it. The
// URI may be that of a part of what was subscribed to.
func (ws *watchers) updated(params json.RawMessage) {
	o, err := wire.ParseObject(params)
	if err != nil {
		return
	}
	uri := o.String("uri")
	ws.mu.Lock()
	var to []func(string, json.RawMessage)
	for _, w := range ws.all {
		if slices.ContainsFunc(w.uris, func(sub string) bool { return within(uri, sub) }) {
			to = append(to, w.notify)
		}
	}
	ws.mu.Unlock()
	for _, f := range to {
		f("notifications/resources/updated", params)
	}
}

// missed tells everybody who waits that something may have been missed.
func (ws *watchers) missed() {
	ws.mu.Lock()
	uris := make([]string, 0, len(ws.count))
	for uri := range ws.count {
		uris = append(uris, uri)
	}
	ws.mu.Unlock()
	for _, uri := range uris {
		ws.updated(wire.Object{{Key: "uri", Value: wire.Quote(uri)}}.Bytes())
	}
}

// within reports whether a URI is another, or a part of it.
func within(uri, whole string) bool {
	rest, ok := strings.CutPrefix(uri, whole)
	return ok && (rest == "" || strings.HasSuffix(whole, "/") || strings.ContainsRune("/?#", rune(rest[0])))
}
