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
	g      *Gateway
	outbox chan note

	mu  sync.Mutex
	all map[*listener]struct{}
}

// kinds of lists, in the order of a mark.
var kinds = []string{"tools", "prompts", "resources"}

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
	had     string // mark of what the client was told last on a stream before
	subs    *subscriptions

	mailMu sync.Mutex
	mail   []wire.Message // for the client, besides list_changed
	posted chan struct{}
}

// maxMail bounds what waits for a client that reads slowly.
const maxMail = 1000

// post has a notification sent on the stream. An update of a resource that
// waits already stands for the next, too.
func (x *listener) post(method string, params json.RawMessage) {
	x.mailMu.Lock()
	defer x.mailMu.Unlock()
	if method == "notifications/resources/updated" {
		for _, m := range x.mail {
			if m.Method == method && string(m.Params) == string(params) {
				return
			}
		}
	}
	if len(x.mail) == maxMail {
		x.mail = x.mail[1:]
	}
	x.mail = append(x.mail, wire.Message{Method: method, Params: params})
	select {
	case x.posted <- struct{}{}:
	default:
	}
}

// collect takes what waits, as the stream has it.
func (x *listener) collect() []wire.Message {
	x.mailMu.Lock()
	out := x.mail
	x.mail = nil
	x.mailMu.Unlock()
	for i, m := range out {
		// Whose subscription it is belongs to each hop.
		if p, err := wire.SetMeta(m.Params, map[string]json.RawMessage{wire.MetaSubscriptionID: x.stamp}); err == nil {
			out[i].Params = p
		}
	}
	return out
}

func newListeners(ctx context.Context, g *Gateway) *listeners {
	l := &listeners{g: g, all: map[*listener]struct{}{}, outbox: make(chan note, maxMail)}
	go l.carry(ctx)
	g.bus.handle("subscribed", func(n note) {
		var s subscribed
		if x := l.of(n.Key); x != nil && json.Unmarshal(n.Body, &s) == nil && x.subs.set(s.URI, s.On) {
			l.wake(x.grant)
		}
	})
	g.bus.handle("push", func(n note) {
		if m, err := wire.ParseMessage(n.Body); err == nil {
			if x := l.of(n.Key); x != nil {
				x.post(m.Method, m.Params)
			}
		}
	})
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

// of is the stream of a session; nil if it is not here.
func (l *listeners) of(session string) *listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	for x := range l.all {
		if x.session == session && session != "" && !isClosed(x.quit) {
			return x
		}
	}
	return nil
}

// push sends a notification to the stream of a session, on whichever replica
// that is. It does not block.
func (l *listeners) push(session string, m wire.Message) {
	if x := l.of(session); x != nil {
		x.post(m.Method, m.Params)
		return
	}
	if l.g.opt.Store.Status().Backend == "file" {
		return // there is no other replica: the client has no stream
	}
	select {
	case l.outbox <- note{Kind: "push", Key: session, Body: m.Bytes()}:
	default:
		l.g.log.Warn("a notification for another replica was dropped: the store is too slow", "method", m.Method)
	}
}

// carry sends to the other replicas, in order, what is for streams of theirs.
func (l *listeners) carry(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-l.outbox:
			if err := l.g.bus.tell(ctx, n); err != nil && ctx.Err() == nil {
				l.g.log.Debug("a notification could not be passed to the other replicas", "error", err)
			}
		}
	}
}

func (l *listeners) add(x *listener) {
	x.wakes, x.quit, x.seen = make(chan struct{}, 1), make(chan struct{}), map[string][32]byte{}
	x.posted = make(chan struct{}, 1)
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
	for _, kind := range kinds {
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
	x := &listener{grant: s.key, session: s.key, who: who, mode: mode, wants: map[string]bool{"tools": true, "prompts": true, "resources": true},
		had: r.Header.Get(wire.HeaderLastEventID)}
	rec := g.sessions.record(s)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	x.subs = newSubscriptions(ctx, g, x, &request{set: set, who: who, sess: s, grant: s.key, version: rec.Version,
		clientInfo: rec.ClientInfo, caps: rec.Capabilities, client: clientName(rec.ClientInfo)})
	have := g.subscribedTo(ctx, s.key)
	for _, uri := range have {
		x.subs.want[uri] = true
	}
	g.follow(ctx, w, x, func() *wire.Message {
		if len(have) > 0 {
			g.listeners.wake(x.grant)
		}
		return nil
	})
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req.view = g.newView(ctx, req.set, req.who, req.grant)
	x.subs = newSubscriptions(ctx, g, x, req)
	if e := x.subs.wish(want); e != nil {
		fail(w, modernStatus(e.Code), req.msg.ID, e)
		return
	}
	agreed := wire.Object{}
	for _, k := range []struct{ member, kind string }{{"toolsListChanged", "tools"}, {"promptsListChanged", "prompts"}, {"resourcesListChanged", "resources"}} {
		if string(want.Get(k.member)) == "true" {
			x.wants[k.kind] = true
			agreed = append(agreed, wire.Field{Key: k.member, Value: json.RawMessage("true")})
		}
	}
	g.follow(ctx, w, x, func() *wire.Message {
		agreed = append(agreed, x.subs.honoured(want, req.view)...)
		return &wire.Message{Method: "notifications/subscriptions/acknowledged", Params: wire.Object{
			{Key: "_meta", Value: stamped(x.stamp)}, {Key: "notifications", Value: agreed.Bytes()}}.Bytes()}
	})
}

// follow keeps a stream open and tells its client what changed. first makes
// what the stream begins with, if anything.
func (g *Gateway) follow(ctx context.Context, w http.ResponseWriter, x *listener, first func() *wire.Message) {
	g.listeners.add(x)
	defer g.listeners.remove(x)
	defer x.subs.stop()
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
	tell := func(kinds []string) bool {
		for _, kind := range kinds {
			if !write(x.changed(kind)) {
				return false
			}
		}
		return true
	}
	opening := ": open\n"
	if x.session != "" {
		opening += "id: " + x.mark() + "\n" // without data it is no event to a client: it only remembers it
	}
	if !write([]byte(opening+"\n")) || !tell(x.missed(x.had)) { // at once, whatever the first message takes
		return
	}
	if m := first(); m != nil && !write(wire.AppendEvent(nil, wire.Event{Name: "message", Data: m.Bytes()})) {
		return
	}
	beat := time.NewTicker(keepAlive)
	defer beat.Stop()
	kept := g.now()
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
			if x.session != "" && g.now().Sub(kept) > time.Hour {
				kept = g.now() // what the session subscribes to outlives its stream
				if _, err := g.opt.Store.Touch(ctx, subscriptionsKey(x.session), g.subscriptionsFor()); err != nil {
					g.log.Debug("the subscriptions of a session could not be kept", "error", err)
				}
			}
		case <-x.posted:
			for _, m := range x.collect() {
				if !write(wire.AppendEvent(nil, wire.Event{Name: "message", Data: m.Bytes()})) {
					return
				}
			}
		case <-x.wakes:
			// Changes come in bursts (a server reconnects: tools, prompts,
			// resources): one look a moment later covers them all.
			select {
			case <-ctx.Done():
				return
			case <-time.After(50 * time.Millisecond):
			}
			v := g.newView(ctx, g.settings(), x.who, x.grant) // what may be seen may have changed, too
			x.subs.prune(v)
			go x.subs.settle(v)
			if !tell(g.listeners.look(ctx, x)) {
				return
			}
		}
	}
}
