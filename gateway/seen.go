package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/codemode"
	"github.com/mcp-portal/mcp-portal/registry"
	"github.com/mcp-portal/mcp-portal/store"
)

// Bounds of learning what results look like. It is a convenience: whatever
// would cost something is left out.
const (
	seenFor      = 30 * 24 * time.Hour
	seenEach     = 12               // results of a tool that are all looked at
	seenPause    = 10 * time.Minute // between later ones
	seenFresh    = 30 * time.Second // until the store is asked again
	seenBytes    = 512 << 10        // of a result
	seenFirst    = 4 << 20          // of the first result
	seenCached   = 5000
	seenPatience = 2 * time.Second
)

// seen learns what the results of tools without a declared type look like, and
// tells those who write code. See codemode.Seen for what it keeps.
type seen struct {
	store store.Store
	log   *slog.Logger
	now   func() time.Time
	busy  chan struct{} // holds one token: one result is looked at at a time

	mu  sync.Mutex
	all map[string]*seenEntry
}

type seenEntry struct {
	shape  codemode.Seen
	loaded time.Time
	added  time.Time
}

func newSeen(s store.Store, log *slog.Logger, now func() time.Time) *seen {
	return &seen{store: s, log: log, now: now, busy: make(chan struct{}, 1), all: map[string]*seenEntry{}}
}

// seenKey is that of a tool with this definition: another one may answer
// otherwise.
func seenKey(t *registry.Tool) string {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(t.Server), []byte(t.Name), []byte(t.Description), t.InputSchema} {
		_, _ = h.Write(part) // never fails
		_, _ = h.Write([]byte{0})
	}
	return "seen:" + hex.EncodeToString(h.Sum(nil)[:16])
}

// seenMark tells one user from another without naming either.
func seenMark(user string) string { return userKey(user)[:12] }

// learn takes a result of a tool into account, beside the call: in a moment,
// if nothing else is being learned.
func (s *seen) learn(t *registry.Tool, user string, result json.RawMessage) {
	if t.OutputSchema != nil || len(result) > seenFirst {
		return
	}
	key := seenKey(t)
	s.mu.Lock()
	e := s.all[key]
	if e != nil && e.shape.Results > 0 && (len(result) > seenBytes || e.shape.Results >= seenEach && s.now().Sub(e.added) < seenPause) {
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	select {
	case s.busy <- struct{}{}:
	default:
		return
	}
	go func() {
		defer func() { <-s.busy }()
		value, ok := codemode.Plain(result)
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), seenPatience)
		defer cancel()
		s.add(ctx, key, t, user, value)
	}()
}

func (s *seen) add(ctx context.Context, key string, t *registry.Tool, user string, value json.RawMessage) {
	words := codemode.Words(t.Server, t.Name, t.Title, t.Description, string(t.InputSchema))
	for range 5 {
		old, had, err := s.store.Get(ctx, key)
		if err != nil {
			return // another result will come
		}
		var shape codemode.Seen
		if had && json.Unmarshal(old, &shape) != nil {
			shape = codemode.Seen{}
		}
		shape.Add(value, seenMark(user), words)
		next, err := json.Marshal(&shape)
		if err != nil {
			s.log.Warn("what a result looks like could not be noted", "server", t.Server, "tool", t.Name, "error", err)
			return
		}
		var done bool
		if had {
			done, err = s.store.Swap(ctx, key, old, next, seenFor)
		} else {
			done, err = s.store.Create(ctx, key, next, seenFor)
		}
		if err != nil {
			return
		}
		if done {
			s.remember(key, shape, s.now())
			return
		}
	}
}

func (s *seen) remember(key string, shape codemode.Seen, added time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) >= seenCached {
		clear(s.all) // it is all in the store
	}
	e := &seenEntry{shape: shape, loaded: s.now(), added: added}
	if before := s.all[key]; added.IsZero() && before != nil {
		e.added = before.added
	}
	s.all[key] = e
}

// declare renders a tool for a user, with the type of what was seen of its
// results if its server declares none.
func (s *seen) declare(ctx context.Context, t *registry.Tool, user string) string {
	if t.OutputSchema != nil {
		return codemode.Declare(t.Identifier, t.Description, t.InputSchema, t.OutputSchema)
	}
	key := seenKey(t)
	s.mu.Lock()
	e := s.all[key]
	s.mu.Unlock()
	if (e == nil || s.now().Sub(e.loaded) > seenFresh) && !s.store.Status().Degraded {
		ctx, cancel := context.WithTimeout(ctx, seenPatience)
		defer cancel()
		raw, ok, err := s.store.Get(ctx, key)
		var shape codemode.Seen
		if err == nil && (!ok || json.Unmarshal(raw, &shape) == nil) {
			s.remember(key, shape, time.Time{})
			e = &seenEntry{shape: shape}
		}
	}
	if e == nil {
		return codemode.Declare(t.Identifier, t.Description, t.InputSchema, nil)
	}
	return codemode.DeclareSeen(t.Identifier, t.Description, t.InputSchema, e.shape.Type(seenMark(user)), e.shape.Results)
}
