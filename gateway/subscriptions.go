package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/audit"
	"github.com/mcp-portal/mcp-portal/registry"
	"github.com/mcp-portal/mcp-portal/upstreams"
	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// A client hears of updated resources on a stream: the GET stream of its 2025
// session, or its subscriptions/listen. So the subscription at the server lives
// in the replica that has the stream, and as long as the stream: another stream
// of the session, anywhere, subscribes again to what the session has in the
// store.

const (
	maxSubscriptions = 200 // of one stream
	// watchPatience is how long a client waits for a server to take a
	// subscription.
	watchPatience = 30 * time.Second
)

// subscriptions are what one stream wants to hear of resources and tasks.
type subscriptions struct {
	g    *Gateway
	x    *listener
	req  *request
	ctx  context.Context // of the stream
	mu   sync.Mutex
	want map[string]bool   // URIs, as the client says them
	task map[string]string // outward task id → server and own id
	live map[string]*serverWatch
	shut map[string]bool // servers that a rule closed under a subscription

	one sync.Mutex // held while servers are asked
}

// serverWatch is the subscription at one server.
type serverWatch struct {
	uris   map[string]string // own URI → the client's
	tasks  map[string]string // own id → outward
	agreed map[string]bool   // own URIs and ids
	ctx    context.Context
	cancel context.CancelFunc
	over   chan struct{}
}

func newSubscriptions(ctx context.Context, g *Gateway, x *listener, r *request) *subscriptions {
	return &subscriptions{g: g, x: x, req: r, ctx: ctx, want: map[string]bool{}, task: map[string]string{}, live: map[string]*serverWatch{}, shut: map[string]bool{}}
}

// wish takes what a subscriptions/listen asks for besides lists.
func (s *subscriptions) wish(filter wire.Object) *wire.Error {
	var uris []string
	if raw := filter.Get("resourceSubscriptions"); raw != nil {
		if err := json.Unmarshal(raw, &uris); err != nil {
			return wire.Errorf(wire.CodeInvalidParams, "params.notifications.resourceSubscriptions must be a list of URIs")
		}
	}
	if len(uris) > maxSubscriptions {
		return wire.Errorf(wire.CodeInvalidParams, "a stream may subscribe to %d resources at most: open another for the rest", maxSubscriptions)
	}
	for _, uri := range uris {
		s.want[uri] = true
	}
	raw := filter.Get("taskIds")
	if raw == nil {
		return nil
	}
	if e := s.req.declaresTasks(); e != nil {
		return e
	}
	var ids []string
	if err := json.Unmarshal(raw, &ids); err != nil || len(ids) > maxSubscriptions {
		return wire.Errorf(wire.CodeInvalidParams, "params.notifications.taskIds must be a list of at most %d ids", maxSubscriptions)
	}
	for _, id := range ids {
		rec, ok, err := s.g.taskOf(s.ctx, s.req.who.ID, id)
		if err != nil {
			return wire.Errorf(wire.CodeInternal, "%v", err)
		}
		if ok {
			s.task[id] = rec.Server + " " + rec.ID
		}
	}
	return nil
}

// honoured subscribes and says to what, in the words of the filter.
func (s *subscriptions) honoured(filter wire.Object, v *view) (out wire.Object) {
	s.mu.Lock()
	want := slices.Collect(maps.Keys(s.want))
	s.mu.Unlock()
	if len(want) == 0 && len(s.task) == 0 {
		return nil
	}
	problems := s.settle(v)
	if len(s.task) > 0 {
		ids := []string{}
		s.mu.Lock()
		for outward, t := range s.task {
			server, own, _ := strings.Cut(t, " ")
			if w := s.live[server]; w != nil && w.agreed[own] {
				ids = append(ids, outward)
			}
		}
		s.mu.Unlock()
		slices.Sort(ids)
		out = append(out, wire.Field{Key: "taskIds", Value: wire.Encode(ids)})
	}
	if len(want) == 0 {
		return out
	}
	uris := []string{}
	for _, uri := range want {
		if err := problems[uri]; err != nil {
			s.g.log.Info("a subscription was not taken", "error", err)
			s.set(uri, false)
			continue
		}
		uris = append(uris, uri)
	}
	slices.Sort(uris)
	return append(out, wire.Field{Key: "resourceSubscriptions", Value: wire.Encode(uris)})
}

// errNotAgreed means that a server left something out of what it agreed to.
var errNotAgreed = errors.New("the server did not agree to this subscription")

// prune ends at once the subscriptions at servers that the client may not hear
// of any more: hidden, taken away, or closed by a rule. It waits for no server.
func (s *subscriptions) prune(v *view) {
	s.mu.Lock()
	live, shut := maps.Clone(s.live), maps.Clone(s.shut)
	s.mu.Unlock()
	r := *s.req
	r.view, r.set = v, v.set
	closed := func(server string, uris []string) bool {
		p := &passage{req: &r, mode: writeguard.Direct}
		d, denied := s.g.closedToWatch(s.ctx, p, server, uris, &audit.Event{})
		return denied && d.Action == writeguard.Deny
	}
	for server, w := range live {
		uris := slices.Sorted(maps.Keys(w.uris))
		rule := closed(server, uris)
		if !rule && v.shows(server) && (len(uris) == 0 || v.content(server)) {
			continue
		}
		w.cancel()
		s.mu.Lock()
		if s.live[server] == w {
			delete(s.live, server)
		}
		if rule {
			s.shut[server] = true
		}
		s.mu.Unlock()
	}
	for server := range shut {
		if !closed(server, []string{""}) { // the rule is gone
			s.mu.Lock()
			delete(s.shut, server)
			s.mu.Unlock()
		}
	}
}

// settle makes the subscriptions at the servers those that are wanted and that
// the client may see now. It returns why some are not, by the client's URI.
func (s *subscriptions) settle(v *view) map[string]error {
	s.one.Lock()
	defer s.one.Unlock()
	problems := map[string]error{}
	desired := map[string]*serverWatch{}
	at := func(server string) *serverWatch {
		if desired[server] == nil {
			desired[server] = &serverWatch{uris: map[string]string{}, tasks: map[string]string{}}
		}
		return desired[server]
	}
	s.mu.Lock()
	for uri := range s.want {
		server, own, ok := v.resource(uri)
		if !ok {
			problems[uri] = unknownResource(s.req, uri)
			continue
		}
		if s.shut[server] {
			problems[uri] = errNotAgreed
			continue
		}
		at(server).uris[own] = uri
	}
	for outward, t := range s.task {
		server, own, _ := strings.Cut(t, " ")
		if v.shows(server) {
			at(server).tasks[own] = outward
		}
	}
	old := maps.Clone(s.live)
	s.mu.Unlock()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for server, w := range desired {
		if before := old[server]; before != nil && !isClosed(before.over) && maps.Equal(before.uris, w.uris) && maps.Equal(before.tasks, w.tasks) {
			continue
		}
		wg.Go(func() {
			err := s.start(server, w, v)
			mu.Lock()
			defer mu.Unlock()
			for own, uri := range w.uris {
				switch {
				case err != nil:
					problems[uri] = err
				case !w.agreed[own]:
					problems[uri] = errNotAgreed
				}
			}
		})
	}
	wg.Wait()
	for server, before := range old {
		if desired[server] == nil {
			before.cancel()
			s.mu.Lock()
			delete(s.live, server)
			s.mu.Unlock()
		}
	}
	return problems
}

// start subscribes at one server; the subscription of before goes on until the
// new one stands, so that nothing is missed.
func (s *subscriptions) start(server string, w *serverWatch, v *view) error {
	ctx, cancel := context.WithCancel(s.ctx)
	w.ctx, w.cancel, w.over, w.agreed = ctx, cancel, make(chan struct{}), map[string]bool{}
	type outcome struct {
		agreed []string
		err    error
	}
	ready := make(chan outcome, 1)
	r := *s.req
	r.view, r.set = v, v.set
	go func() {
		defer close(w.over)
		s.g.watch(ctx, &r, server, upstreams.Watch{Resources: slices.Sorted(maps.Keys(w.uris)), Tasks: slices.Sorted(maps.Keys(w.tasks)),
			Ready:  func(resources, tasks []string, err error) { ready <- outcome{append(resources, tasks...), err} },
			Notify: func(method string, params json.RawMessage) { s.deliver(server, w, method, params) }})
	}()
	patience := time.NewTimer(watchPatience)
	defer patience.Stop()
	var out outcome
	select {
	case out = <-ready:
	case <-patience.C:
		out.err = fmt.Errorf("server %s did not take the subscription within %v", server, watchPatience)
	case <-s.ctx.Done():
		out.err = context.Cause(s.ctx)
	}
	if out.err != nil {
		cancel()
		return out.err
	}
	for _, x := range out.agreed {
		w.agreed[x] = true
	}
	s.mu.Lock()
	before := s.live[server]
	s.live[server] = w
	s.mu.Unlock()
	if before != nil {
		before.cancel()
	}
	return nil
}

// deliver passes a notification of a server on to the stream, in the client's
// terms.
func (s *subscriptions) deliver(server string, w *serverWatch, method string, params json.RawMessage) {
	o, err := wire.ParseObject(params)
	if err != nil || w.ctx.Err() != nil {
		return
	}
	switch method {
	case "notifications/resources/updated":
		o = o.SetString("uri", w.outward(server, o.String("uri")))
	case "notifications/tasks":
		outward, ok := w.tasks[o.String("taskId")]
		if !ok {
			return
		}
		o = o.SetString("taskId", outward)
	default:
		return // nothing else was asked for
	}
	s.x.post(method, o.Bytes())
}

// outward is the address under which the client subscribed to a URI of the
// server, or to what it is a part of.
func (w *serverWatch) outward(server, own string) string {
	if uri, ok := w.uris[own]; ok {
		return uri
	}
	for sub, uri := range w.uris {
		if strings.HasPrefix(own, sub) && uri != sub {
			return registry.ExplicitURI(server, own)
		}
	}
	return own
}

// stop ends all subscriptions.
func (s *subscriptions) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for server, w := range s.live {
		w.cancel()
		delete(s.live, server)
	}
}

// set adds or removes a URI; it reports whether something changed.
func (s *subscriptions) set(uri string, on bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.want[uri] == on {
		return false
	}
	if delete(s.want, uri); on {
		s.want[uri] = true
	}
	return true
}

// subscribed is a change of what a session subscribes to, on its way to the
// replica that has the session's stream.
type subscribed struct {
	URI string `json:"uri"`
	On  bool   `json:"on"`
}

// subscribe is resources/subscribe and resources/unsubscribe of a 2025 session.
func (g *Gateway) subscribe(ctx context.Context, r *request, on bool) (json.RawMessage, *wire.Error) {
	if r.modern {
		return nil, wire.Errorf(wire.CodeMethodNotFound, "%s belongs to the 2025 versions: use subscriptions/listen with resourceSubscriptions", r.msg.Method)
	}
	if r.sess == nil {
		return nil, wire.Errorf(wire.CodeInvalidRequest, "a subscription belongs to a session: start with initialize and send the %s header", wire.HeaderSessionID)
	}
	uri := r.params.String("uri")
	if uri == "" {
		return nil, wire.Errorf(wire.CodeInvalidParams, "params.uri is missing: it names the resource")
	}
	x := g.listeners.of(r.sess.key)
	if on {
		server, own, ok := r.view.resource(uri)
		if !ok {
			g.recordRefused(ctx, r, r.msg.Method, uri)
			return nil, unknownResource(r, uri)
		}
		have := g.subscribedTo(ctx, r.sess.key)
		if slices.Contains(have, uri) && x == nil {
			return json.RawMessage("{}"), nil
		}
		if len(have) >= maxSubscriptions {
			return nil, wire.Errorf(wire.CodeInvalidRequest, "this session already has %d subscriptions: end some with resources/unsubscribe", len(have))
		}
		var err error
		if x != nil {
			x.subs.set(uri, true)
			err = x.subs.settle(r.view)[uri]
		} else {
			err = g.trySubscription(ctx, r, server, own)
		}
		if err != nil {
			if x != nil {
				x.subs.set(uri, false)
			}
			if e, ok := wire.AsError(err); ok {
				return nil, e
			}
			return nil, wire.Errorf(wire.CodeInternal, "subscribe to %s: %s", bounded(uri, 200), g.errorText(err))
		}
	}
	if err := g.keepSubscription(ctx, r.sess.key, uri, on); err != nil {
		if x == nil {
			return nil, wire.Errorf(wire.CodeInternal, "the subscription could not be kept, the store cannot be reached: try again")
		}
		g.log.Warn("a subscription is known to this process only", "error", err)
	}
	if x != nil {
		if !on && x.subs.set(uri, false) {
			x.subs.settle(r.view)
		}
		return json.RawMessage("{}"), nil
	}
	if err := g.bus.tell(ctx, note{Kind: "subscribed", Key: r.sess.key, Body: wire.Encode(subscribed{uri, on})}); err != nil {
		g.log.Warn("the other replicas could not be told of a subscription", "error", err)
	}
	return json.RawMessage("{}"), nil
}

// trySubscription asks a server whether it takes a subscription, for a session
// whose stream is elsewhere or not open yet.
func (g *Gateway) trySubscription(ctx context.Context, r *request, server, own string) error {
	ctx, cancel := context.WithTimeout(ctx, watchPatience)
	defer cancel()
	err := context.DeadlineExceeded
	g.watch(ctx, r, server, upstreams.Watch{Resources: []string{own}, Notify: func(string, json.RawMessage) {},
		Ready: func(agreed, _ []string, e error) {
			if err = e; e == nil && len(agreed) == 0 {
				err = errNotAgreed
			}
			cancel()
		}})
	return err
}

func subscriptionsKey(session string) string { return "subscriptions:" + session }

// subscribedTo is what a session subscribes to.
func (g *Gateway) subscribedTo(ctx context.Context, session string) []string {
	raw, ok, err := g.opt.Store.Get(ctx, subscriptionsKey(session))
	var list []string
	if err != nil || !ok || json.Unmarshal(raw, &list) != nil {
		return nil
	}
	return list
}

// subscriptionsFor is how long the store keeps what a session subscribes to
// while the session has no stream.
func (g *Gateway) subscriptionsFor() time.Duration {
	return max(24*time.Hour, 4*g.settings().cfg.Limits.SessionIdle)
}

// keepSubscription changes what the store has of a session's subscriptions.
func (g *Gateway) keepSubscription(ctx context.Context, session, uri string, on bool) error {
	key, idle := subscriptionsKey(session), g.subscriptionsFor()
	for range 20 {
		raw, ok, err := g.opt.Store.Get(ctx, key)
		if err != nil {
			return err
		}
		var list []string
		if ok {
			if err := json.Unmarshal(raw, &list); err != nil {
				return fmt.Errorf("read the subscriptions of the session: %w", err)
			}
		}
		if slices.Contains(list, uri) == on {
			return nil
		}
		if list = slices.DeleteFunc(list, func(u string) bool { return u == uri }); on {
			list = append(list, uri)
		}
		var done bool
		if !ok {
			done, err = g.opt.Store.Create(ctx, key, wire.Encode(list), idle)
		} else {
			done, err = g.opt.Store.Swap(ctx, key, raw, wire.Encode(list), idle)
		}
		if err != nil || done {
			return err
		}
	}
	return errors.New("the session's subscriptions change too fast")
}
