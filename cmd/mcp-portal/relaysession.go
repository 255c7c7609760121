package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
)

// legacySession is the client's session of a 2025 revision, as far as the next
// one must begin like it.
type legacySession struct {
	mu       sync.Mutex
	opening  chan struct{} // closed when no initialize is under way; nil: none was
	hello    *wire.Message // the client's initialize; nil before
	id       string
	version  string
	gen      int                        // counts sessions
	notices  []string                   // lists that the portal tells changes of
	level    json.RawMessage            // of the last logging/setLevel
	watches  map[string]json.RawMessage // resources subscribed to, by params
	standing context.CancelFunc         // ends the stream of notices

	renewing sync.Mutex
}

// begin notes that an initialize is on its way: what comes after waits for its
// session.
func (s *legacySession) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opening == nil {
		s.opening = make(chan struct{})
	}
}

func (s *legacySession) opened() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opening != nil {
		close(s.opening)
		s.opening = nil
	}
}

// ready waits while an initialize is under way.
func (s *legacySession) ready(ctx context.Context) error {
	s.mu.Lock()
	opening := s.opening
	s.mu.Unlock()
	if opening == nil {
		return nil
	}
	select {
	case <-opening:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *legacySession) current() (id, version string, gen int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id, s.version, s.gen
}

// remember keeps what a later session must be told anew.
func (s *legacySession) remember(m wire.Message, answer json.RawMessage) {
	if msg, err := wire.ParseMessage(answer); err != nil || msg.Error != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m.Method {
	case "logging/setLevel":
		s.level = m.Params
	case "resources/subscribe":
		if s.watches == nil {
			s.watches = map[string]json.RawMessage{}
		}
		s.watches[string(m.Params)] = m.Params
	case "resources/unsubscribe":
		delete(s.watches, string(m.Params))
	}
}

// initialize begins the client's session.
func (r *relay) initialize(ctx context.Context, m wire.Message) (json.RawMessage, error) {
	defer r.session.opened()
	r.endSession()
	deadline := time.Now().Add(r.patience())
	for {
		raw, err := r.hello(ctx, m)
		var e *relayError
		if err == nil || !errors.As(err, &e) || e.sent || e.wait == 0 || time.Now().After(deadline) {
			return raw, err
		}
		select {
		case <-time.After(max(e.wait, 100*time.Millisecond)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// hello sends an initialize and takes what the portal says of the session.
func (r *relay) hello(ctx context.Context, m wire.Message) (json.RawMessage, error) {
	resp, err := r.open(ctx, m, "", "")
	if err != nil {
		return answerOf(err)
	}
	defer resp.Body.Close()
	raw, err := r.receive(ctx, resp, m)
	if err != nil {
		return nil, err
	}
	msg, err := wire.ParseMessage(raw)
	if err != nil || msg.Error != nil {
		return raw, nil
	}
	result, err := wire.ParseObject(msg.Result)
	if err != nil {
		return raw, nil
	}
	s := &r.session
	s.mu.Lock()
	s.hello, s.id, s.version = &m, resp.Header.Get(wire.HeaderSessionID), result.String("protocolVersion")
	s.gen++
	s.notices = nil
	if caps, err := wire.ParseObject(result.Get("capabilities")); err == nil {
		for _, kind := range []string{"tools", "prompts", "resources"} {
			if c, err := wire.ParseObject(caps.Get(kind)); err == nil && string(c.Get("listChanged")) == "true" {
				s.notices = append(s.notices, kind)
			}
		}
	}
	var follow context.Context
	if s.id != "" {
		// It lives as long as the session, not as the request that began it.
		follow, s.standing = context.WithCancel(context.WithoutCancel(ctx))
		go r.follow(follow, s.id, s.version, s.gen)
	}
	s.mu.Unlock()
	return raw, nil
}

// renew begins a new session like the one that the portal does not know any
// more. Only the first that notices does it.
func (r *relay) renew(ctx context.Context, gen int) error {
	s := &r.session
	s.renewing.Lock()
	defer s.renewing.Unlock()
	s.mu.Lock()
	hello, now := s.hello, s.gen
	level, watches := s.level, s.watches
	if now == gen {
		s.stopStanding()
	}
	s.mu.Unlock()
	if hello == nil || now != gen {
		return nil
	}
	m := *hello
	m.ID = wire.Quote(fmt.Sprintf("mcp-portal-stdio-%d", gen))
	raw, err := r.hello(ctx, m)
	if err != nil {
		return fmt.Errorf("begin a new session after the portal forgot the old one: %w", err)
	}
	if msg, err := wire.ParseMessage(raw); err != nil || msg.Error != nil {
		return &relayError{text: "the portal forgot the session and refused a new one: " + excerpt(raw)}
	}
	id, version, now := s.current()
	again := []wire.Message{{Method: "notifications/initialized"}}
	if level != nil {
		again = append(again, wire.Message{ID: wire.Quote("mcp-portal-stdio-level"), Method: "logging/setLevel", Params: level})
	}
	for _, p := range watches {
		again = append(again, wire.Message{ID: wire.Quote("mcp-portal-stdio-watch"), Method: "resources/subscribe", Params: p})
	}
	for _, m := range again {
		if _, err := r.post(ctx, m, version, id); err != nil {
			r.log.Warn("the new session could not be told all that the old one was", "method", m.Method, "error", err)
		}
	}
	r.log.Info("the portal did not know the session any more: a new one was begun; servers that were switched off in the old one are on again", "session", now)
	r.staleLists()
	return nil
}

// staleLists tells the client to list anew: what changed while nobody could
// tell is not known.
func (r *relay) staleLists() {
	r.session.mu.Lock()
	kinds := slices.Clone(r.session.notices)
	r.session.mu.Unlock()
	for _, kind := range kinds {
		r.write(wire.Message{Method: "notifications/" + kind + "/list_changed"}.Bytes())
	}
}

// stopStanding ends the stream of notices. The caller holds mu.
func (s *legacySession) stopStanding() {
	if s.standing != nil {
		s.standing()
		s.standing = nil
	}
}

// follow keeps the stream of notices open.
func (r *relay) follow(ctx context.Context, session, version string, gen int) {
	last, pause, first := "", time.Second, true
	for {
		status, err := r.stand(ctx, session, version, last, func(ev wire.Event) {
			if ev.ID != "" {
				last = ev.ID
			}
			if ev.Retry > 0 {
				pause = min(ev.Retry, time.Minute)
			}
		}, func() {
			if !first && last == "" {
				r.staleLists()
			}
			first, pause = false, time.Second
		})
		switch {
		case ctx.Err() != nil:
			return
		case status == http.StatusMethodNotAllowed || status == http.StatusNotAcceptable:
			return // a portal that has no such stream
		case status == http.StatusNotFound:
			if err := r.renew(ctx, gen); err == nil || ctx.Err() != nil {
				return // the new session has a stream of its own
			}
		case status == http.StatusUnauthorized || status == http.StatusForbidden:
			r.log.Warn("the portal refuses the stream of notices", "error", err)
			pause = time.Minute
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, 30*time.Second)
	}
}

// stand opens the stream of notices once and passes on what comes, until it
// ends.
func (r *relay) stand(ctx context.Context, session, version, last string, seen func(wire.Event), opened func()) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.address, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Accept", wire.TypeEventStream)
	wire.SetRequestHeaders(req.Header, version, session, "", "")
	if last != "" {
		req.Header.Set(wire.HeaderLastEventID, last)
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		return resp.StatusCode, errors.New(excerpt(body))
	}
	opened()
	_, err = r.events(resp.Body, nil, func(ev wire.Event, _ wire.Message) bool { seen(ev); return true })
	return resp.StatusCode, err
}

// listen keeps a subscriptions/listen (2026-07-28) open when its connection
// breaks: its client cannot know that.
func (r *relay) listen(ctx context.Context, m wire.Message) (json.RawMessage, error) {
	acknowledged := false
	pause := time.Second
	for {
		raw, err := r.listenOnce(ctx, m, acknowledged, func() { acknowledged, pause = true, time.Second })
		var e *relayError
		if err == nil || ctx.Err() != nil || !acknowledged || errors.As(err, &e) && !e.sent && e.wait == 0 {
			return raw, err
		}
		r.log.Info("the stream of notices broke and is opened again", "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		pause = min(2*pause, 30*time.Second)
	}
}

func (r *relay) listenOnce(ctx context.Context, m wire.Message, again bool, acknowledged func()) (json.RawMessage, error) {
	resp, err := r.open(ctx, m, versionOf(m), "")
	if err != nil {
		return answerOf(err)
	}
	defer resp.Body.Close()
	if mediaType(resp) != wire.TypeEventStream {
		return r.receive(ctx, resp, m)
	}
	raw, err := r.events(resp.Body, m.ID, func(_ wire.Event, msg wire.Message) bool {
		if msg.Method != "notifications/subscriptions/acknowledged" {
			return true
		}
		acknowledged()
		if again {
			r.missed(m, msg)
		}
		return !again
	})
	if err != nil {
		return nil, &relayError{sent: true, text: fmt.Sprintf("the stream of the portal at %s broke off (%v)", r.address, err)}
	}
	return raw, nil
}

// missed tells the client to list anew what it listens to.
func (r *relay) missed(m, ack wire.Message) {
	params, err := wire.ParseObject(ack.Params)
	if err != nil {
		return
	}
	agreed, err := wire.ParseObject(params.Get("notifications"))
	if err != nil {
		return
	}
	stamp := wire.Object{{Key: "_meta", Value: wire.Object{{Key: wire.MetaSubscriptionID, Value: m.ID}}.Bytes()}}.Bytes()
	for _, kind := range []string{"tools", "prompts", "resources"} {
		if string(agreed.Get(kind+"ListChanged")) == "true" {
			r.write(wire.Message{Method: "notifications/" + kind + "/list_changed", Params: stamp}.Bytes())
		}
	}
}

// endSession tells the portal that the session is over.
func (r *relay) endSession() {
	s := &r.session
	s.mu.Lock()
	id, version := s.id, s.version
	s.id, s.hello = "", nil
	s.stopStanding()
	s.mu.Unlock()
	if id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, r.address, nil)
	if err != nil {
		return
	}
	wire.SetRequestHeaders(req.Header, version, id, "", "")
	resp, err := r.http.Do(req)
	if err != nil {
		r.log.Warn("the session could not be ended at the portal, it ends there by itself when idle", "error", cause(err))
		return
	}
	_ = resp.Body.Close()
}
