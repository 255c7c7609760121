package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/wire"
)

// listeners are the clients that wait for list_changed: GET streams of 2025
// sessions and subscriptions/listen of 2026-07-28. Each remembers what its
// client saw last and is told only when that changed.
type listeners struct {
	g *Gateway

	mu  sync.Mutex
	all map[*listener]struct{}
}

type listener struct {
	grant   string
	session string // key of the 2025 session; empty: subscriptions/listen
	who     *auth.Principal
	mode    Mode
	stamp   json.RawMessage // subscription id to put on every notification
	wants   map[string]bool // tools, prompts, resources
	wakes   chan struct{}
	quit    chan struct{}
	quitOne sync.Once
	seen    map[string][32]byte
}

func newListeners(g *Gateway) *listeners {
	l := &listeners{g: g, all: map[*listener]struct{}{}}
	g.bus.handle("toggled", func(n note) {
		g.toggles.forget(n.Key)
		l.wake(n.Key)
	})
	return l
}

// wake makes the listeners of a grant (all, if empty) look again.
func (l *listeners) wake(grant string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for x := range l.all {
		if grant == "" || x.grant == grant {
			select {
			case x.wakes <- struct{}{}:
			default:
			}
		}
	}
}

// drop ends the streams of a session.
func (l *listeners) drop(session string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for x := range l.all {
		if x.session == session && session != "" {
			x.end()
		}
	}
}

func (x *listener) end() { x.quitOne.Do(func() { close(x.quit) }) }

func (l *listeners) add(x *listener) {
	x.wakes, x.quit, x.seen = make(chan struct{}, 1), make(chan struct{}), map[string][32]byte{}
	if x.session != "" {
		l.drop(x.session) // a newer GET takes over; two would get everything twice
	}
	l.mu.Lock()
	l.all[x] = struct{}{}
	l.mu.Unlock()
}

func (l *listeners) remove(x *listener) {
	l.mu.Lock()
	delete(l.all, x)
	l.mu.Unlock()
}

// count is the number of open streams.
func (l *listeners) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

// look fingerprints what the listener's client would be shown now, and returns
// the kinds that changed since it looked last.
func (l *listeners) look(ctx context.Context, x *listener) []string {
	set := l.g.settings()
	v := l.g.newView(ctx, set, x.who, x.grant)
	var changed []string
	for _, kind := range []string{"tools", "prompts", "resources"} {
		if !x.wants[kind] {
			continue
		}
		h := sha256.New()
		switch kind {
		case "tools":
			for _, t := range l.g.toolList(v, x.mode) {
				h.Write(t)
				h.Write([]byte{'\n'})
			}
		case "prompts":
			for _, p := range v.prompts() {
				h.Write(p)
				h.Write([]byte{'\n'})
			}
		case "resources":
			for _, r := range append(v.resources(), v.templates()...) {
				h.Write(r)
				h.Write([]byte{'\n'})
			}
		}
		sum := [32]byte(h.Sum(nil))
		if old, ok := x.seen[kind]; ok && old != sum {
			changed = append(changed, kind)
		}
		x.seen[kind] = sum
	}
	return changed
}

// get serves the standalone stream of a 2025 session.
func (g *Gateway) get(w http.ResponseWriter, r *http.Request) {
	who, s, ok := g.bySession(w, r)
	if !ok {
		return
	}
	set := g.settings()
	mode, _, err := modeOf(r, set)
	if err != nil {
		fail(w, http.StatusBadRequest, nil, wire.Errorf(wire.CodeInvalidRequest, "%v", err))
		return
	}
	if _, sse := accepts(r.Header.Values("Accept")); !sse {
		fail(w, http.StatusNotAcceptable, nil, wire.Errorf(wire.CodeInvalidRequest, "GET opens an event stream: send Accept: text/event-stream"))
		return
	}
	x := &listener{grant: s.key, session: s.key, who: who, mode: mode, wants: map[string]bool{"tools": true, "prompts": true, "resources": true}}
	g.follow(r.Context(), w, x, nil)
}

// listen serves subscriptions/listen (2026-07-28): an acknowledgement, then
// notifications stamped with the id of the request, until the client leaves.
func (g *Gateway) listen(ctx context.Context, w http.ResponseWriter, req *request) {
	want, err := wire.ParseObject(req.params.Get("notifications"))
	if err != nil {
		fail(w, http.StatusBadRequest, req.msg.ID, wire.Errorf(wire.CodeInvalidParams, "params.notifications must be an object, for example {\"toolsListChanged\":true}"))
		return
	}
	x := &listener{grant: req.grant, who: req.who, mode: req.mode, stamp: req.msg.ID, wants: map[string]bool{}}
	agreed := wire.Object{}
	for _, k := range []struct{ member, kind string }{{"toolsListChanged", "tools"}, {"promptsListChanged", "prompts"}, {"resourcesListChanged", "resources"}} {
		if string(want.Get(k.member)) == "true" {
			x.wants[k.kind] = true
			agreed = append(agreed, wire.Field{Key: k.member, Value: json.RawMessage("true")})
		}
	}
	ack := wire.Message{Method: "notifications/subscriptions/acknowledged", Params: wire.Object{
		{Key: "_meta", Value: stamped(x.stamp)}, {Key: "notifications", Value: agreed.Bytes()}}.Bytes()}
	g.follow(ctx, w, x, &ack)
}

func stamped(id json.RawMessage) json.RawMessage {
	return wire.Object{{Key: wire.MetaSubscriptionID, Value: id}}.Bytes()
}

// follow keeps a stream open and tells its client what changed.
func (g *Gateway) follow(ctx context.Context, w http.ResponseWriter, x *listener, first *wire.Message) {
	g.listeners.add(x)
	defer g.listeners.remove(x)
	g.listeners.look(ctx, x)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	write := func(b []byte) bool {
		if _, err := w.Write(b); err != nil {
			return false
		}
		return http.NewResponseController(w).Flush() == nil
	}
	opening := []byte(": open\n\n")
	if first != nil {
		opening = wire.AppendEvent(nil, wire.Event{Name: "message", Data: first.Bytes()})
	}
	if !write(opening) {
		return
	}
	beat := time.NewTicker(keepAlive)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.stopped:
			if x.stamp != nil {
				res := wire.Object{{Key: "_meta", Value: stamped(x.stamp)}, {Key: "resultType", Value: json.RawMessage(`"complete"`)}}
				write(wire.AppendEvent(nil, wire.Event{Name: "message", Data: wire.Message{ID: x.stamp, Result: res.Bytes()}.Bytes()}))
			}
			return
		case <-x.quit:
			return
		case <-beat.C:
			if !write([]byte(": keepalive\n\n")) {
				return
			}
		case <-x.wakes:
			// Changes come in bursts (a server reconnects: tools, prompts,
			// resources): one look a moment later covers them all.
			select {
			case <-ctx.Done():
				return
			case <-time.After(50 * time.Millisecond):
			}
			for _, kind := range g.listeners.look(ctx, x) {
				m := wire.Message{Method: "notifications/" + kind + "/list_changed"}
				if x.stamp != nil {
					m.Params = wire.Object{{Key: "_meta", Value: stamped(x.stamp)}}.Bytes()
				}
				if !write(wire.AppendEvent(nil, wire.Event{Name: "message", Data: m.Bytes()})) {
					return
				}
			}
		}
	}
}
