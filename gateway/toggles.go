package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/wire"
)

// toggles are the servers a session (2025) or a user's client (2026-07-28)
// has switched off for itself. They only hide; they are no access control.
type toggles struct {
	store store.Store
	log   *slog.Logger
	bus   *bus

	mu    sync.Mutex
	cache map[string]cachedToggles
	away  bool // the store could not be reached last time
}

type cachedToggles struct {
	off  map[string]bool
	read time.Time
}

const (
	togglesFor   = 24 * time.Hour  // kept that long after the last use
	togglesFresh = 5 * time.Second // other replicas announce changes; this is the backstop
)

func newToggles(s store.Store, log *slog.Logger, b *bus) *toggles {
	return &toggles{store: s, log: log, bus: b, cache: map[string]cachedToggles{}}
}

// off returns the servers switched off under the grant key.
func (t *toggles) off(ctx context.Context, key string) map[string]bool {
	t.mu.Lock()
	c, ok := t.cache[key]
	t.mu.Unlock()
	if ok && time.Since(c.read) < togglesFresh {
		return c.off
	}
	raw, found, err := t.store.Get(ctx, "toggles:"+key)
	if err != nil {
		t.mu.Lock()
		first := !t.away
		t.away = true
		t.mu.Unlock()
		if first { // not again for every request of an outage
			t.log.Warn("switched-off servers cannot be read, the last known choice holds", "error", err)
		}
		return c.off
	}
	t.mu.Lock()
	t.away = false
	t.mu.Unlock()
	off := map[string]bool{}
	if found {
		// A choice holds as long as its client comes back within a day.
		if _, err := t.store.Touch(ctx, "toggles:"+key, togglesFor); err != nil {
			t.log.Warn("switched-off servers could not be kept for longer", "error", err)
		}
		var list []string
		if err := json.Unmarshal(raw, &list); err != nil {
			t.log.Warn("unreadable switched-off servers are ignored", "error", err)
		}
		for _, s := range list {
			off[s] = true
		}
	}
	t.put(key, off)
	return off
}

func (t *toggles) put(key string, off map[string]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.cache) > 10000 {
		clear(t.cache)
	}
	t.cache[key] = cachedToggles{off: off, read: time.Now()}
}

// forget drops what is cached after another replica changed it.
func (t *toggles) forget(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.cache, key)
}

// set switches one server off or on.
func (t *toggles) set(ctx context.Context, key, server string, off bool) error {
	for {
		raw, found, err := t.store.Get(ctx, "toggles:"+key)
		if err != nil {
			return err
		}
		var list, next []string
		if found {
			if err := json.Unmarshal(raw, &list); err != nil {
				return fmt.Errorf("read which servers are switched off: %w", err)
			}
		}
		for _, s := range list {
			if s != server {
				next = append(next, s)
			}
		}
		if off {
			next = append(next, server)
		}
		var done bool
		if found {
			done, err = t.store.Swap(ctx, "toggles:"+key, raw, wire.Encode(next), togglesFor)
		} else {
			done, err = t.store.Create(ctx, "toggles:"+key, wire.Encode(next), togglesFor)
		}
		if err != nil {
			return err
		}
		if done {
			t.forget(key)
			return t.bus.tell(ctx, note{Kind: "toggled", Key: key})
		}
	}
}
