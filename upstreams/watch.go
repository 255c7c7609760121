package upstreams

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
)

// Watch is what one caller wants to hear of one server outside its calls.
type Watch struct {
	Resources []string // URIs, as the server knows them
	Tasks     []string // ids, as the server knows them (2026-07-28 servers)

	// Ready is called once: with what the server agreed to, or with the reason
	// why it agreed to nothing. Errors as of Upstream.Do.
	Ready func(resources, tasks []string, err error)
	// Notify gets the notifications. After the connection was lost and made
	// again it gets one notifications/resources/updated for each resource:
	// something may have been missed.
	Notify func(method string, params json.RawMessage)
}

// ackPatience is how long a server may take to acknowledge a subscription.
const ackPatience = 20 * time.Second

// Watch keeps a subscription until ctx ends, through lost connections. It
// returns early when the server refuses it at the first attempt, or is removed.
func (u *upstream) Watch(ctx context.Context, c *Call, w Watch) {
	var b *backoff
	for first := true; ctx.Err() == nil; {
		s := u.m.server(u.id)
		if s == nil {
			if first {
				w.Ready(nil, nil, &CallError{Server: u.id, Err: errRetired, Problem: Problem{Kind: KindConfig, Message: "the server is not in the configuration any more"}})
			}
			return
		}
		if b == nil {
			b = &backoff{min: s.opts.BackoffMin, max: s.opts.BackoffMax}
		}
		began := time.Now()
		err := s.watch(ctx, c, w, func(resources, tasks []string) {
			if first {
				first = false
				w.Ready(resources, tasks, nil)
				return
			}
			for _, uri := range resources {
				w.Notify("notifications/resources/updated", wire.Object{{Key: "uri", Value: wire.Quote(uri)}}.Bytes())
			}
		})
		if ctx.Err() != nil {
			break
		}
		if first {
			if err == nil {
				err = errors.New("the server ended the subscription before it began")
			}
			w.Ready(nil, nil, err)
			return
		}
		s.log.Info("a subscription was lost: subscribing again", "reason", err)
		if time.Since(began) > 10*b.min {
			b.reset()
		}
		select {
		case <-time.After(b.next()):
		case <-ctx.Done():
		}
	}
}

// watch is one attempt of Watch: it returns when the connection is lost.
func (s *server) watch(ctx context.Context, c *Call, w Watch, ready func(resources, tasks []string)) error {
	cn, release, err := s.connFor(ctx, c)
	if err != nil {
		return err
	}
	defer release()
	h := cn.hello()
	if len(w.Resources) > 0 && string(h.capability("resources").Get("subscribe")) != "true" {
		return s.peer.fail(c.Name, KindConfig, false, nil, "the server does not offer subscriptions to its resources")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.loop, cancel)()
	if h.modern() {
		return s.watchModern(ctx, cn, c, w, ready)
	}
	return s.watchLegacy(ctx, cn, w, ready)
}

// watchModern listens with one request for all.
func (s *server) watchModern(ctx context.Context, cn conn, c *Call, w Watch, ready func(resources, tasks []string)) error {
	filter := wire.Object{}
	if len(w.Resources) > 0 {
		filter = filter.Set("resourceSubscriptions", wire.Encode(w.Resources))
	}
	if len(w.Tasks) > 0 {
		filter = filter.Set("taskIds", wire.Encode(w.Tasks))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(ackPatience, func() {
		cancel(s.peer.fail(c.Name, KindTimeout, false, nil, "the subscription was not acknowledged within %v", ackPatience))
	})
	defer late.Stop()
	call := *c
	call.Method, call.Name = methodListen, ""
	call.Params = wire.Object{{Key: "notifications", Value: filter.Bytes()}}.Bytes()
	call.Notify = func(method string, params json.RawMessage) {
		switch {
		case method == "notifications/subscriptions/acknowledged":
			late.Stop()
			ready(agreed(params, w))
		case !strings.HasSuffix(method, "/list_changed"):
			w.Notify(method, params)
		}
	}
	_, err := cn.do(ctx, exchange{Call: &call})
	return err
}

// agreed reads what a server acknowledged, and only what it was asked for.
func agreed(params json.RawMessage, w Watch) (resources, tasks []string) {
	var a struct {
		Notifications struct {
			Resources []string `json:"resourceSubscriptions"`
			Tasks     []string `json:"taskIds"`
		} `json:"notifications"`
	}
	if json.Unmarshal(params, &a) != nil {
		return nil, nil
	}
	both := func(asked, got []string) (out []string) {
		for _, x := range asked {
			if slices.Contains(got, x) {
				out = append(out, x)
			}
		}
		return out
	}
	return both(w.Resources, a.Notifications.Resources), both(w.Tasks, a.Notifications.Tasks)
}

// watchLegacy subscribes to each resource on a session.
func (s *server) watchLegacy(ctx context.Context, cn conn, w Watch, ready func(resources, tasks []string)) error {
	b := cn.base()
	one := &watcher{notify: w.Notify}
	b.watchers.add(one)
	defer b.watchers.remove(one)
	var refused error
	for _, uri := range w.Resources {
		if err := b.watchers.subscribe(ctx, s, cn, one, uri); err != nil {
			if lost := cn.why(); lost != nil || ctx.Err() != nil {
				return err
			}
			refused = err
		}
	}
	defer b.watchers.unsubscribe(s, cn, one)
	got := b.watchers.of(one)
	if len(got) == 0 {
		return refused
	}
	ready(got, nil)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-cn.lost():
		return cn.why()
	}
}
