package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/upstreams"
)

const (
	pinPrefix  = "pins:"
	pinChannel = "pins"
	pinTimeout = 10 * time.Second // of one exchange with the store
	pinRetry   = 5 * time.Second  // while the store is away
)

// ErrNotPending means that there is no such definition to release, or not any
// more.
var ErrNotPending = errors.New("this definition does not wait for a release: it was released, or the server has changed it again")

// pinRecord is what the store has of a server. It belongs to the server's id,
// also when its URL changes, and does not expire.
type pinRecord struct {
	Tools map[string]pinOf `json:"tools"`
}

type pinOf struct {
	Definition json.RawMessage `json:"definition"`
	By         string          `json:"by,omitempty"` // who released it; empty: as first seen
	At         time.Time       `json:"at"`
}

func (r *pinRecord) approved() map[string]json.RawMessage {
	out := make(map[string]json.RawMessage, len(r.Tools))
	for name, p := range r.Tools {
		out[name] = p.Definition
	}
	return out
}

// pinKeeper keeps approved definitions in the store, the same for all
// replicas. Reading and writing are asynchronous: lists do not wait for them.
type pinKeeper struct {
	r     *Registry
	store store.Store

	stop context.CancelFunc
	done chan struct{}
	wake chan struct{}
}

func newPinKeeper(r *Registry, s store.Store) *pinKeeper {
	ctx, stop := context.WithCancel(context.Background())
	k := &pinKeeper{r: r, store: s, stop: stop, done: make(chan struct{}), wake: make(chan struct{}, 1)}
	if s == nil {
		close(k.done)
		return k
	}
	go k.run(ctx)
	return k
}

func (k *pinKeeper) close() {
	k.stop()
	<-k.done
}

// poke has the store looked at soon, if anything is pinned.
func (k *pinKeeper) poke() {
	if k.store == nil || !k.r.pinsAny() {
		return
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *pinKeeper) run(ctx context.Context) {
	defer close(k.done)
	select {
	case <-ctx.Done():
		return
	case <-k.wake: // nothing is asked of the store before something is pinned
	}
	var told <-chan []byte
	for ctx.Err() == nil {
		if told == nil {
			told, _ = k.store.Subscribe(ctx, pinChannel) // an error: the timer comes back to it
		}
		if k.syncAll(ctx) {
			timer := time.NewTimer(time.Minute) // a message may be lost
			select {
			case <-ctx.Done():
			case <-k.wake:
			case _, ok := <-told:
				if !ok {
					told = nil
				}
			case <-timer.C:
			}
			timer.Stop()
			continue
		}
		timer := time.NewTimer(pinRetry)
		select {
		case <-ctx.Done():
		case <-k.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// syncAll brings what is known of all servers and the store together, and
// reports whether that was possible.
func (k *pinKeeper) syncAll(ctx context.Context) bool {
	ok := true
	k.r.mu.Lock()
	ids := slices.Sorted(maps.Keys(k.r.servers))
	k.r.mu.Unlock()
	for _, id := range ids {
		if err := k.sync(ctx, id); err != nil && ctx.Err() == nil {
			k.r.log.Warn("approved definitions of tools cannot be kept in step with the store; tried again", "server", id, "error", err)
			k.r.pinsFailed(id)
			ok = false
		}
	}
	return ok
}

// sync reads what was approved of one server. What is seen first is approved;
// with pin: warn, so is every new tool. A store that lost it gets back what
// this process knows.
func (k *pinKeeper) sync(ctx context.Context, id string) error {
	if k.store == nil {
		return nil
	}
	mode, lists, known := k.r.pinState(id)
	if mode == pinOff {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pinTimeout)
	defer cancel()
	for range 5 {
		raw, found, err := k.store.Get(ctx, pinPrefix+id)
		if err != nil {
			return fmt.Errorf("read the approved definitions: %w", err)
		}
		rec := pinRecord{Tools: map[string]pinOf{}}
		if found {
			if err := json.Unmarshal(raw, &rec); err != nil {
				return fmt.Errorf("the record %s in the store is damaged; remove it to approve what the server lists now: %w", pinPrefix+id, err)
			}
		}
		add := map[string]json.RawMessage{}
		if _, have := rec.Tools[itself]; found && !have && len(lists) > 0 && lists[0][itself] != nil {
			add[itself] = lists[0][itself] // a record of before they were pinned
		}
		switch {
		case !found && known != nil:
			add = known
		case !found && len(lists) == 0:
			return nil // not listed yet
		case !found || mode == pinWarn:
			for _, list := range lists {
				for name, def := range list {
					if _, have := rec.Tools[name]; !have {
						add[name] = def
					}
				}
			}
		}
		if len(add) == 0 && found {
			k.r.setPins(id, rec.approved())
			return nil
		}
		now := k.r.now()
		for name, def := range add {
			rec.Tools[name] = pinOf{Definition: def, At: now}
		}
		next, err := json.Marshal(rec)
		if err != nil {
			return err
		}
		var done bool
		if found {
			done, err = k.store.Swap(ctx, pinPrefix+id, raw, next, 0)
		} else {
			done, err = k.store.Create(ctx, pinPrefix+id, next, 0)
		}
		if err != nil {
			return fmt.Errorf("keep the approved definitions: %w", err)
		}
		if done {
			k.r.setPins(id, rec.approved())
			k.r.log.Info("definitions of tools are pinned as they are", "server", id, "definitions", len(add))
			return nil
		}
	}
	return errors.New("keep the approved definitions: others keep changing them")
}

// Release approves a definition that is pending, named by its digest so that
// nothing is released that was not looked at. Every replica follows.
func (r *Registry) Release(ctx context.Context, server, tool, digest, by string) error {
	var p *Pending
	for _, x := range r.Pending() {
		if x.Server == server && x.Tool == tool && x.Digest == digest {
			p = x
		}
	}
	if p == nil || r.pins.store == nil {
		return ErrNotPending
	}
	for range 5 {
		raw, found, err := r.pins.store.Get(ctx, pinPrefix+server)
		if err != nil {
			return fmt.Errorf("release the definition of %s/%s: %w", server, tool, err)
		}
		if !found {
			if err := r.pins.sync(ctx, server); err != nil {
				return fmt.Errorf("release the definition of %s/%s: %w", server, tool, err)
			}
			continue
		}
		var rec pinRecord
		if err := json.Unmarshal(raw, &rec); err != nil {
			return fmt.Errorf("release the definition of %s/%s: the record %s is damaged: %w", server, tool, pinPrefix+server, err)
		}
		if rec.Tools == nil {
			rec.Tools = map[string]pinOf{}
		}
		rec.Tools[tool] = pinOf{Definition: p.Now, By: by, At: r.now()}
		next, err := json.Marshal(rec)
		if err != nil {
			return err
		}
		done, err := r.pins.store.Swap(ctx, pinPrefix+server, raw, next, 0)
		if err != nil {
			return fmt.Errorf("release the definition of %s/%s: %w", server, tool, err)
		}
		if done {
			r.setPins(server, rec.approved())
			r.log.Info("a definition was released", "server", server, "tool", tool, "digest", digest, "by", by)
			if err := r.pins.store.Publish(ctx, pinChannel, []byte(server)); err != nil {
				r.log.Debug("other replicas learn of a released definition later", "server", server, "error", err)
			}
			return nil
		}
	}
	return fmt.Errorf("release the definition of %s/%s: others keep changing the record; try again", server, tool)
}

// pinsFailed notes that what was approved cannot be read now.
func (r *Registry) pinsFailed(id string) {
	r.change(func() bool {
		e := r.servers[id]
		if e == nil || !e.pins.unread() || e.pins.failed {
			return false
		}
		e.pins = &pinned{mode: e.pins.mode, failed: true}
		e.build(r.nameMax)
		return true
	})
}

// pinsAny reports whether any server is pinned.
func (r *Registry) pinsAny() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.servers {
		if r.pinMode(e.cfg) != pinOff {
			return true
		}
	}
	return false
}

// pinState is how a server is pinned, what its lists say now, and what is
// known to be approved.
func (r *Registry) pinState(id string) (mode string, lists []map[string]json.RawMessage, known map[string]json.RawMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.servers[id]
	if e == nil {
		return pinOff, nil, nil
	}
	mode = r.pinMode(e.cfg)
	if e.pins != nil {
		known = e.pins.approved
	}
	add := func(c *upstreams.Catalogue) {
		list := map[string]json.RawMessage{}
		for _, raw := range c.Tools {
			t, _, _, err := outerTool(id, raw, naming{max: r.nameMax})
			if t == nil || err != nil {
				continue
			}
			if def, err := pinDefinition(raw); err == nil && list[t.Name] == nil {
				list[t.Name] = def
			}
		}
		lists = append(lists, list)
	}
	if e.catalogue != nil {
		add(e.catalogue)
		lists[0][itself] = introductionOf(e.catalogue).definition() // those to one user are not pinned
	}
	for _, own := range e.own {
		add(own.list.catalogue)
	}
	return mode, lists, known
}

// setPins puts into effect what was approved.
func (r *Registry) setPins(id string, approved map[string]json.RawMessage) {
	r.change(func() bool {
		e := r.servers[id]
		if e == nil {
			return false
		}
		same := func(a, b json.RawMessage) bool { return string(a) == string(b) }
		if mode := r.pinMode(e.cfg); e.pins != nil && e.pins.mode == mode && e.pins.approved != nil && maps.EqualFunc(e.pins.approved, approved, same) {
			return false
		}
		e.pins = &pinned{mode: r.pinMode(e.cfg), approved: approved}
		e.build(r.nameMax)
		r.mixedOf = nil // lists of users may have changed with it
		return true
	})
}
