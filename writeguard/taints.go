package writeguard

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/store"
)

const (
	taintsFor     = 24 * time.Hour   // kept that long after the last reading
	taintsRefresh = 30 * time.Minute // how often a reading prolongs them
	taintsKnown   = 20_000           // sessions remembered by one replica
)

// Taints remember what each session has read, in the shared store. They only
// grow, until the session was idle for a day. A replica also remembers what it
// has seen itself, so that a store that is away hides nothing of it; what
// other replicas have seen is then not known, and asking is an error.
type Taints struct {
	store store.Store
	log   *slog.Logger
	now   func() time.Time

	mu    sync.Mutex
	known map[string]taint
}

type taint struct {
	have  Labels
	saved Labels // of have, what the store has
	when  time.Time
}

// NewTaints returns the taints kept in st. now nil means time.Now.
func NewTaints(st store.Store, log *slog.Logger, now func() time.Time) *Taints {
	if now == nil {
		now = time.Now
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Taints{store: st, log: log, now: now, known: map[string]taint{}}
}

func taintKey(session string) string { return "taint:" + session }

// Of returns what the session has read. The error is the store's, when that
// could add something to what this replica knows.
func (t *Taints) Of(ctx context.Context, session string) (Labels, error) {
	t.mu.Lock()
	have := t.known[session].have
	t.mu.Unlock()
	if have.Has(Private | Untrusted) {
		return have, nil
	}
	raw, ok, err := t.store.Get(ctx, taintKey(session))
	if err != nil {
		return have, fmt.Errorf("look up what the session has read: %w", err)
	}
	if !ok {
		return have, nil
	}
	n, err := strconv.ParseUint(string(raw), 10, 8)
	if err != nil {
		return Private | Untrusted, fmt.Errorf("what the session has read is damaged: %w", err)
	}
	return have | Labels(n), nil
}

// Add notes that the session reads data with these labels. It is called before
// the reading, so that nothing read can be used before it is noted. When the
// store is away this replica keeps the note and writes it later.
func (t *Taints) Add(ctx context.Context, session string, l Labels) {
	if l &= Private | Untrusted; l == 0 {
		return
	}
	t.mu.Lock()
	k, was := t.known[session]
	k.have |= l
	fresh := k.saved == k.have && t.now().Sub(k.when) < taintsRefresh
	if !was && len(t.known) >= taintsKnown {
		for s, x := range t.known {
			if x.saved == x.have {
				delete(t.known, s)
			}
		}
	}
	t.known[session] = k
	t.mu.Unlock()
	if fresh {
		return
	}
	// Also for a client that has gone meanwhile: it has read what it has read.
	if err := t.save(context.WithoutCancel(ctx), session, k.have); err != nil {
		t.log.Warn("what a session has read is known to this process only, until the store is back", "error", err)
	}
}

// save adds to what the store has.
func (t *Taints) save(ctx context.Context, session string, l Labels) error {
	key := taintKey(session)
	for attempt := 0; ; attempt++ {
		raw, held, err := t.store.Get(ctx, key)
		if err != nil {
			return err
		}
		all := l
		var ok bool
		if held {
			n, err := strconv.ParseUint(string(raw), 10, 8)
			if err != nil {
				n = uint64(Private | Untrusted)
			}
			all |= Labels(n)
			ok, err = t.store.Swap(ctx, key, raw, []byte(strconv.Itoa(int(all))), taintsFor)
			if err != nil {
				return err
			}
		} else if ok, err = t.store.Create(ctx, key, []byte(strconv.Itoa(int(all))), taintsFor); err != nil {
			return err
		}
		if ok {
			t.mu.Lock()
			k := t.known[session]
			k.have |= all
			k.saved, k.when = all, t.now()
			t.known[session] = k
			t.mu.Unlock()
			return nil
		}
		if err := backoff(ctx, attempt); err != nil {
			return err
		}
	}
}

// Flush writes what the store could not take before.
func (t *Taints) Flush(ctx context.Context) {
	t.mu.Lock()
	late := map[string]Labels{}
	for s, k := range t.known {
		if k.saved != k.have {
			late[s] = k.have
		}
	}
	t.mu.Unlock()
	for s, l := range late {
		if err := t.save(ctx, s, l); err != nil {
			return
		}
	}
}
