package store

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
)

// buffered is how many messages a slow reader of a subscription may be behind.
const buffered = 256

// outlet is the reader's end of one subscription.
type outlet struct {
	channel string
	out     chan []byte
	log     *slog.Logger
	behind  bool // the last message was dropped; logged once until it catches up
}

func newOutlet(channel string, log *slog.Logger) *outlet {
	return &outlet{channel: channel, out: make(chan []byte, buffered), log: log}
}

// send passes a message on without waiting. Only one goroutine may send.
func (o *outlet) send(message []byte) {
	select {
	case o.out <- message:
		o.behind = false
	default:
		if !o.behind {
			o.log.Warn("store: a subscriber is too slow, messages are dropped", "channel", o.channel, "buffered", buffered)
		}
		o.behind = true
	}
}

// hub delivers messages inside this process.
type hub struct {
	log *slog.Logger

	mu     sync.Mutex
	subs   map[string]map[*outlet]struct{}
	closed bool
}

func newHub(log *slog.Logger) *hub {
	return &hub{log: log, subs: map[string]map[*outlet]struct{}{}}
}

func (h *hub) publish(channel string, message []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for o := range h.subs[channel] {
		o.send(bytes.Clone(message))
	}
}

// subscribe returns nil if the hub is closed.
func (h *hub) subscribe(ctx context.Context, channel string) <-chan []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	o := newOutlet(channel, h.log)
	if h.subs[channel] == nil {
		h.subs[channel] = map[*outlet]struct{}{}
	}
	h.subs[channel][o] = struct{}{}
	context.AfterFunc(ctx, func() { h.remove(o) })
	return o.out
}

func (h *hub) remove(o *outlet) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.subs[o.channel][o]; !ok {
		return
	}
	delete(h.subs[o.channel], o)
	if len(h.subs[o.channel]) == 0 {
		delete(h.subs, o.channel)
	}
	close(o.out)
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, set := range h.subs {
		for o := range set {
			close(o.out)
		}
	}
	clear(h.subs)
}
