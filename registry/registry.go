package registry

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/upstreams"
)

// Options configure a Registry.
type Options struct {
	Store   store.Store      // keeps the last good catalogues; nil: nothing is kept
	Log     *slog.Logger     // nil: slog.Default()
	Catalog config.Catalog   // limits of names
	Now     func() time.Time // nil: time.Now
}

// Registry makes snapshots out of what upstreams report. All methods are safe
// for concurrent use.
type Registry struct {
	log   *slog.Logger
	now   func() time.Time
	cache *cache
	pins  *pinKeeper

	snapshot atomic.Pointer[Snapshot]

	mu      sync.Mutex // of what follows
	nameMax int
	// pinDefault is how servers are pinned that do not say so themselves.
	pinDefault string
	servers    map[string]*entry
	mixed      map[string]*Snapshot // with lists of users; of the snapshot mixedOf
	mixedOf    *Snapshot

	tell notifier
}

// entry is what is known of one configured server.
type entry struct {
	cfg       config.Server
	catalogue *upstreams.Catalogue  // nil: none known
	fromCache bool                  // the catalogue is of an earlier process
	state     upstreams.State       // as last reported
	part      *Server               // built from cfg and catalogue
	own       map[string]personalOf // by user, where each has a login
	pins      *pinned               // nil: nothing is pinned
}

// build makes the part anew, or keeps it if that comes to the same: a search
// index is good for as long as the tools are the same ones.
func (e *entry) build(nameMax int) {
	if part := buildServer(e.cfg, e.catalogue, nameMax, e.pins); e.part == nil || !sameServer(e.part, part) {
		e.part = part
	}
	for _, p := range e.own {
		p.list.build(e.cfg, nameMax, e.pins)
	}
}

// pin makes the pins anew for how the server is pinned now.
func (e *entry) pin(mode string) {
	switch {
	case mode == pinOff:
		e.pins = nil
	case e.pins == nil:
		e.pins = &pinned{mode: mode}
	case e.pins.mode != mode:
		e.pins = &pinned{mode: mode, approved: e.pins.approved, failed: e.pins.failed}
	}
}

// New returns a registry without servers. Close it to stop its writer.
func New(o Options) *Registry {
	r := &Registry{log: o.Log, now: o.Now, nameMax: clampNameMax(o.Catalog.NameMax), pinDefault: o.Catalog.Pin, servers: map[string]*entry{}}
	if r.log == nil {
		r.log = slog.Default()
	}
	if r.now == nil {
		r.now = time.Now
	}
	r.cache = newCache(o.Store, r.log, r.now)
	r.snapshot.Store(assemble(nil, 1, nil))
	if o.Store == nil {
		r.pinDefault = pinOff
	}
	r.pins = newPinKeeper(r, o.Store)
	return r
}

// Close stops writing to the store; what is not stored by then is listed anew
// by the next process. Flush first to wait for it.
func (r *Registry) Close() {
	r.pins.close()
	r.cache.close()
}

// Flush waits until every catalogue is stored, or returns why one is not.
func (r *Registry) Flush(ctx context.Context) error { return r.cache.flush(ctx) }

// StoreAgain writes every catalogue to the store once more. Call it when the
// store was away and is back, perhaps without what it held.
func (r *Registry) StoreAgain() {
	r.cache.again()
	r.pins.poke()
}

// Cache says of each server's catalogue whether the store has it.
func (r *Registry) Cache() []CacheStatus { return r.cache.status() }

// Snapshot returns the present snapshot; never nil. A request asks once and
// keeps it to its end.
func (r *Registry) Snapshot() *Snapshot { return r.snapshot.Load() }

// Subscribe has f called after every change, one call at a time, in order and
// without gaps: the new snapshot of one call is the old one of the next. f may
// use the registry. The returned function ends it.
func (r *Registry) Subscribe(f func(old, new *Snapshot)) (cancel func()) { return r.tell.add(f) }

// SetCatalog changes the limits of names, and how servers are pinned.
func (r *Registry) SetCatalog(c config.Catalog) {
	defer r.pins.poke()
	r.change(func() bool {
		n := clampNameMax(c.NameMax)
		pin := c.Pin
		if r.pins.store == nil {
			pin = pinOff
		}
		if n == r.nameMax && pin == r.pinDefault {
			return false
		}
		r.nameMax, r.pinDefault, r.mixedOf = n, pin, nil
		for _, e := range r.servers {
			e.pin(r.pinMode(e.cfg))
			e.build(n)
		}
		return true
	})
}

// SetServers replaces the configuration of all servers. Servers that are gone
// or switched off leave the snapshot; one whose connection (URL, command) is
// another than before loses its catalogue, which was somebody else's.
//
// An Update or a status names only the server, not the connection it came by.
// So on a new configuration: have the old connections stop, call SetServers,
// and only then have the new ones start (upstreams.Manager.Apply). Otherwise a
// late list of an old connection would count for the new one, or an early one
// of the new would be lost.
func (r *Registry) SetServers(servers map[string]config.Server) {
	defer r.pins.poke()
	r.change(func() bool {
		next := make(map[string]*entry, len(servers))
		for id, cfg := range servers {
			if !cfg.IsEnabled() {
				continue
			}
			cfg.ID = id
			e := &entry{cfg: cfg, state: upstreams.Connecting}
			if old := r.servers[id]; old != nil {
				e.pins = old.pins // they belong to the id
			}
			e.pin(r.pinMode(cfg))
			if old := r.servers[id]; old != nil && connectionOf(old.cfg) == connectionOf(cfg) {
				e.catalogue, e.fromCache, e.state = old.catalogue, old.fromCache, old.state
				e.part, e.own = old.part, old.own
			}
			e.build(r.nameMax)
			next[id] = e
		}
		r.servers = next
		keep := make(map[string]string, len(next))
		for id, e := range next {
			keep[id] = cacheKey(e.cfg)
		}
		r.cache.keep(keep)
		return true
	})
}

// Update takes what a server offers now, all pages of it, and keeps it for the
// next start. A catalogue equal to the last one changes nothing. The registry
// keeps c: the caller must not change it afterwards.
func (r *Registry) Update(server string, c *upstreams.Catalogue) {
	if c == nil {
		return // a failed listing is a Status, and the last good catalogue stays
	}
	defer r.pins.poke()
	r.change(func() bool {
		e := r.servers[server]
		if e == nil {
			r.log.Warn("catalogue of a server that is not configured is ignored", "server", server)
			return false
		}
		changed := e.fromCache
		if !sameCatalogue(e.catalogue, c) {
			e.catalogue, changed = c, true
			e.build(r.nameMax)
			for _, w := range e.part.Warnings {
				r.log.Warn("catalogue", "server", server, "warning", w)
			}
		}
		e.fromCache = false
		r.cache.put(server, cacheKey(e.cfg), e.catalogue)
		return changed
	})
}

// SetStatus takes the present state of a connection. Only its State matters
// here: the tools of a degraded server stay listed as they were last seen.
func (r *Registry) SetStatus(s upstreams.Status) {
	r.change(func() bool {
		e := r.servers[s.Server]
		if e == nil || e.state == s.State {
			return false
		}
		e.state = s.State
		return true
	})
}

// Restore loads the stored catalogue of every server that has none yet, so that
// a restart serves at once. Call it after SetServers. What cannot be loaded is
// logged and shown by Cache; the servers will be listed live instead.
func (r *Registry) Restore(ctx context.Context) {
	r.mu.Lock()
	want := map[string]string{}
	for id, e := range r.servers {
		if e.catalogue == nil {
			want[id] = cacheKey(e.cfg)
		}
	}
	r.mu.Unlock()
	found := r.cache.load(ctx, want)
	r.pins.syncAll(ctx)
	if len(found) == 0 {
		return
	}
	r.change(func() bool {
		for id, c := range found {
			// Meanwhile it may have been listed, or configured anew.
			if e := r.servers[id]; e != nil && e.catalogue == nil && cacheKey(e.cfg) == want[id] {
				e.catalogue, e.fromCache = c, true
				e.build(r.nameMax)
			}
		}
		return true
	})
	r.log.Info("catalogues restored from the store", "servers", len(found))
}

// change runs f, which alters what the registry knows and reports whether it
// did, and swaps in a snapshot of the outcome if it differs from the present
// one.
func (r *Registry) change(f func() bool) {
	r.mu.Lock()
	if !f() {
		r.mu.Unlock()
		return
	}
	old := r.snapshot.Load()
	parts := make([]*Server, 0, len(r.servers))
	for _, id := range slices.Sorted(maps.Keys(r.servers)) {
		e := r.servers[id]
		s := *e.part
		s.FromCache = e.fromCache
		s.State = cmp.Or(e.state, upstreams.Connecting)
		if s.State == upstreams.Ready && (e.catalogue == nil || e.fromCache) {
			s.State = upstreams.Connecting // ready means listed, by this process
		}
		parts = append(parts, &s)
	}
	next := assemble(old, old.Version+1, parts)
	if slices.EqualFunc(old.Servers, next.Servers, sameServer) {
		r.mu.Unlock()
		return
	}
	r.snapshot.Store(next)
	r.tell.enqueue(old, next)
	r.mu.Unlock()
	r.tell.drain()
}

// assemble makes a snapshot of the servers' parts, sorted by id.
func assemble(old *Snapshot, version uint64, servers []*Server) *Snapshot {
	s := &Snapshot{Version: version, Offers: version, Servers: servers}
	s.resources, s.apps = addressResources(old, servers)
	n := 0
	for _, srv := range servers {
		n += len(srv.Tools)
	}
	s.byID = make(map[string]*Server, len(servers))
	s.byOutward = make(map[string]*Tool, n)
	s.byIdentifier = make(map[string]*Tool, n)
	s.byIdentity = make(map[identity]*Tool, n)
	s.prompts = map[string]*Prompt{}
	s.tools = make([]*Tool, 0, n)
	for _, srv := range servers {
		s.byID[srv.ID] = srv
		for _, t := range srv.Tools {
			s.byOutward[t.Outward], s.byIdentifier[t.Identifier], s.byIdentity[identity{t.Server, t.Name}] = t, t, t
			s.tools = append(s.tools, t)
		}
		for _, p := range srv.Prompts {
			s.prompts[p.Outward] = p
		}
	}
	slices.SortFunc(s.tools, func(a, b *Tool) int { return cmp.Compare(a.Outward, b.Outward) })
	if old != nil && slices.EqualFunc(old.Servers, servers, func(a, b *Server) bool { return a.ID == b.ID && sameOffers(a, b) }) {
		s.Offers = old.Offers
	}
	if old != nil && slices.Equal(old.tools, s.tools) {
		s.index = old.index
	} else {
		s.index = &index{}
	}
	return s
}

// notifier calls subscribers in order, outside the registry's lock.
type notifier struct {
	mu    sync.Mutex
	next  int
	subs  map[int]func(old, new *Snapshot)
	queue [][2]*Snapshot
	busy  bool
}

func (n *notifier) add(f func(old, new *Snapshot)) func() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.subs == nil {
		n.subs = map[int]func(old, new *Snapshot){}
	}
	id := n.next
	n.next++
	n.subs[id] = f
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.subs, id)
	}
}

func (n *notifier) enqueue(old, new *Snapshot) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queue = append(n.queue, [2]*Snapshot{old, new})
}

// drain delivers what is queued unless another goroutine already does, which
// then delivers this too.
func (n *notifier) drain() {
	n.mu.Lock()
	if n.busy {
		n.mu.Unlock()
		return
	}
	n.busy = true
	for len(n.queue) > 0 {
		e := n.queue[0]
		n.queue = n.queue[1:]
		for _, id := range slices.Sorted(maps.Keys(n.subs)) {
			if f := n.subs[id]; f != nil { // not cancelled meanwhile
				n.mu.Unlock()
				f(e[0], e[1])
				n.mu.Lock()
			}
		}
	}
	n.busy = false
	n.mu.Unlock()
}
