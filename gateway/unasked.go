package gateway

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
)

// What a server says outside calls goes to the GET stream of the session that
// it says it to. (2026-07-28 clients hear outside calls only what they asked
// for, see subscriptions.go.)

// FromServer takes a notification that belongs to no call, see
// upstreams.Options.OnNotification. It does not block.
func (g *Gateway) FromServer(server, user, session, method string, params json.RawMessage) {
	switch method {
	case "notifications/resources/updated", "notifications/tasks":
		return // those who wait for it get it by their subscription
	case "notifications/elicitation/complete":
		o, err := wire.ParseObject(params)
		if err != nil {
			return
		}
		// Only the client that was sent to the URL may hear of it.
		key, ok := g.urls.take(server, o.String("elicitationId"), session)
		if !ok {
			return
		}
		session = key
	}
	if session == "" {
		return // nobody's
	}
	params = taskNotice(user, server, method, params)
	if method == "notifications/message" && !g.sessionWantsLog(session, params) {
		return
	}
	g.listeners.push(session, wire.Message{Method: method, Params: params})
}

// sessionWantsLog is wantsLog outside a request.
func (g *Gateway) sessionWantsLog(key string, params json.RawMessage) bool {
	rec, ok := g.sessions.known2025(key)
	return ok && (&request{level: rec.Level}).wantsLog(params)
}

// known2025 is what this replica knows of a session by its key.
func (s *sessions) known2025(key string) (sessionRecord, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.known[key]
	if !ok {
		return sessionRecord{}, false
	}
	return n.sessionRecord, true
}

// urls remembers which session was sent to which URL, until the server says
// that it is done there.
type urls struct {
	mu   sync.Mutex
	sent map[string]sentTo
}

type sentTo struct {
	session string
	until   time.Time
}

const (
	urlsFor = time.Hour
	maxURLs = 10000
)

// note remembers a question that sends the client to a URL.
func (u *urls) note(server, session string, params json.RawMessage) {
	o, err := wire.ParseObject(params)
	if err != nil || session == "" || o.String("mode") != "url" || o.String("elicitationId") == "" {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if u.sent == nil {
		u.sent = map[string]sentTo{}
	}
	for k, s := range u.sent { // in no order: some that are over, or any beyond the bound
		if len(u.sent) < maxURLs && now.Before(s.until) {
			break
		}
		delete(u.sent, k)
	}
	u.sent[server+"\x00"+o.String("elicitationId")] = sentTo{session, now.Add(urlsFor)}
}

// refused remembers the URLs of an error that says where the user must go
// first (2025-11-25, -32042).
func (u *urls) refused(server, session string, err error) {
	e, ok := wire.AsError(err)
	if !ok || e.Code != wire.CodeURLElicitation {
		return
	}
	var d struct {
		Elicitations []json.RawMessage `json:"elicitations"`
	}
	if json.Unmarshal(e.Data, &d) == nil {
		for _, q := range d.Elicitations {
			u.note(server, session, q)
		}
	}
}

// take finds the session that was sent to a URL, once. from is the session that
// the server said it to, if it has one of its own with each.
func (u *urls) take(server, id, from string) (string, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := server + "\x00" + id
	s, ok := u.sent[key]
	if !ok || from != "" && from != s.session {
		return "", false
	}
	delete(u.sent, key)
	return s.session, time.Now().Before(s.until)
}

// noting remembers the URLs that a server sends the client of an asker to.
func (g *Gateway) noting(server, session string, ask asker) asker {
	return func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *wire.Error) {
		if method == "elicitation/create" {
			g.urls.note(server, session, params)
		}
		return ask(ctx, method, params)
	}
}

// rootsChanged tells the 2025 servers of a session that the client's roots
// changed, on every replica.
func (g *Gateway) rootsChanged(ctx context.Context, r *request) {
	if !r.can("roots") {
		return
	}
	body := wire.Encode(changedRoots{r.who.ID, r.msg.Params})
	if err := g.bus.tell(ctx, note{Kind: "roots", Key: r.sess.key, Body: body}); err != nil {
		g.log.Warn("the other replicas could not be told that a client's roots changed", "error", err)
		g.opt.Upstreams.Notify(r.who.ID, r.sess.key, r.msg.Method, r.msg.Params)
	}
}

type changedRoots struct {
	User   string          `json:"user"`
	Params json.RawMessage `json:"params,omitempty"`
}

func (g *Gateway) passRoots(n note) {
	var c changedRoots
	if json.Unmarshal(n.Body, &c) == nil {
		g.opt.Upstreams.Notify(c.User, n.Key, "notifications/roots/list_changed", c.Params)
	}
}
