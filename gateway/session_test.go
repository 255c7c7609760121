package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/store"
)

// replica is the sessions of one portal process over a shared store.
func replica(t *testing.T, s store.Store, now *time.Time, limit int) *sessions {
	t.Helper()
	return &sessions{store: s, log: slog.New(slog.NewTextHandler(io.Discard, nil)), now: func() time.Time { return *now }, known: map[string]*session{},
		idle: func() time.Duration { return 24 * time.Hour }, limit: func() int { return limit }, ended: func(string, string) {}, tell: func(string, string) {}}
}

func openStore(t *testing.T) store.Store {
	t.Helper()
	s, err := store.OpenFile(filepath.Join(t.TempDir(), "portal.db"), slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// A store that came back without its data gets the sessions that live in
// memory again; one that was ended stays ended, on every replica.
func TestSessionsOutliveALostStore(t *testing.T) {
	ctx := context.Background()
	s, now := openStore(t), time.Now()
	a, b := replica(t, s, &now, 10), replica(t, s, &now, 10)
	one := a.create(ctx, sessionRecord{User: "u", Version: "2025-11-25"})
	two := a.create(ctx, sessionRecord{User: "u", Version: "2025-11-25"})
	for _, n := range []*session{one, two} {
		if _, err := b.get(ctx, "u", n.id); err != nil {
			t.Fatalf("the other replica: %v", err)
		}
	}
	if err := s.Delete(ctx, one.key); err != nil { // lost
		t.Fatal(err)
	}
	if err := a.end(ctx, two.key); err != nil { // ended
		t.Fatal(err)
	}
	now = now.Add(31 * time.Second) // both look into the store again
	if _, err := a.get(ctx, "u", one.id); err != nil {
		t.Errorf("a lost session at the replica that knew it: %v", err)
	}
	if _, ok, _ := s.Get(ctx, one.key); !ok {
		t.Error("the lost session was not written back")
	}
	for name, r := range map[string]*sessions{"a": a, "b": b} {
		if _, err := r.get(ctx, "u", two.id); !errors.Is(err, errNoSession) {
			t.Errorf("an ended session at replica %s: %v", name, err)
		}
		if _, err := r.get(ctx, "u", "never"); !errors.Is(err, errNoSession) {
			t.Errorf("an unknown session at replica %s: %v", name, err)
		}
		if _, err := r.get(ctx, "v", one.id); !errors.Is(err, errNoSession) {
			t.Errorf("another user's session at replica %s: %v", name, err)
		}
	}
	b.storeBack()
	if _, err := b.get(ctx, "u", "never"); !errors.Is(err, errSessionUnavailable) {
		t.Errorf("just after an outage an unknown session is %v, want try again", err)
	}
	now = now.Add(20 * time.Second)
	if _, err := b.get(ctx, "u", "never"); !errors.Is(err, errNoSession) {
		t.Errorf("later: %v", err)
	}
}

// A session with a request or a stream open is not idle, however long that takes:
// neither here nor, by what the store says, elsewhere.
func TestBusySessionsAreNotIdle(t *testing.T) {
	ctx := context.Background()
	s, now := openStore(t), time.Now()
	a, b := replica(t, s, &now, 1000), replica(t, s, &now, 1000)
	long, idle, gone := a.create(ctx, sessionRecord{User: "u"}), a.create(ctx, sessionRecord{User: "u"}), a.create(ctx, sessionRecord{User: "v"})
	busy := map[string]bool{long.key: true, gone.key: true}
	var over []string
	a.busy, a.ended = func(key string) bool { return busy[key] }, func(_, key string) { over = append(over, key) }
	for range 100 {
		now = now.Add(30 * time.Minute)
		a.sweep(ctx)
	}
	if len(over) != 1 || over[0] != idle.key {
		t.Errorf("ended: %q, want the idle one alone", over)
	}
	if n, err := b.get(ctx, "u", long.id); err != nil || now.Sub(n.Seen) != 0 {
		t.Errorf("the busy session on another replica: %v", err)
	}
	raw, _, _ := s.Get(ctx, long.key)
	var rec sessionRecord
	if err := json.Unmarshal(raw, &rec); err != nil || now.Sub(rec.Seen) > time.Hour {
		t.Errorf("in the store it was last used %v ago: %v", now.Sub(rec.Seen), err)
	}
	// Ended elsewhere it ends here, too.
	if err := b.end(ctx, gone.key); err != nil {
		t.Fatal(err)
	}
	now = now.Add(30 * time.Minute)
	a.sweep(ctx)
	if over[len(over)-1] != gone.key {
		t.Errorf("ended: %q, without the one that was ended elsewhere", over)
	}
	// One that the store has lost is there again.
	if err := s.Delete(ctx, long.key); err != nil {
		t.Fatal(err)
	}
	now = now.Add(30 * time.Minute)
	a.sweep(ctx)
	if _, found, _ := s.Get(ctx, long.key); !found {
		t.Error("the lost session was not written back")
	}
	// Nor is it the one that makes room for others.
	for range 3 {
		now = now.Add(time.Second)
		a.create(ctx, sessionRecord{User: "u"})
	}
	a.limit = func() int { return 2 }
	a.trim(ctx, "u")
	if _, err := a.get(ctx, "u", long.id); err != nil {
		t.Errorf("the busy session beyond the limit: %v", err)
	}
	busy[long.key] = false
	now = now.Add(25 * time.Hour)
	if a.sweep(ctx); !slices.Contains(over, long.key) {
		t.Error("idle for a day it goes on")
	}
}

// Beyond the limit the session idle longest ends.
func TestSessionLimit(t *testing.T) {
	ctx := context.Background()
	s, now := openStore(t), time.Now()
	a := replica(t, s, &now, 3)
	var all []*session
	for range 8 {
		all = append(all, a.create(ctx, sessionRecord{User: "u"}))
		now = now.Add(time.Minute)
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		live := 0
		for _, n := range all {
			if _, err := a.get(ctx, "u", n.id); err == nil {
				live++
			}
		}
		if live == 3 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d sessions live, want 3", live)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := a.get(ctx, "u", all[7].id); err != nil {
		t.Errorf("the newest session: %v", err)
	}
}

// away is a store that can be cut off.
type away struct {
	store.Store
	cut atomic.Bool
}

var errAway = errors.New("away")

func (a *away) Get(ctx context.Context, key string) ([]byte, bool, error) {
	if a.cut.Load() {
		return nil, false, errAway
	}
	return a.Store.Get(ctx, key)
}

func (a *away) Set(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	if a.cut.Load() {
		return errAway
	}
	return a.Store.Set(ctx, key, value, ttl)
}

func (a *away) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	if a.cut.Load() {
		return false, errAway
	}
	return a.Store.Swap(ctx, key, old, value, ttl)
}

func (a *away) Create(ctx context.Context, key string, value []byte, ttl time.Duration) (bool, error) {
	if a.cut.Load() {
		return false, errAway
	}
	return a.Store.Create(ctx, key, value, ttl)
}

// A session that one replica ended stays ended, whatever another one that
// knows it still writes.
func TestEndedStaysEnded(t *testing.T) {
	ctx := context.Background()
	level := func(r *sessionRecord) { r.Level = "debug" }
	for _, c := range []struct {
		name string
		do   func(b *sessions, n *session, end func(), cut *atomic.Bool)
	}{
		{"changed after it", func(b *sessions, n *session, end func(), _ *atomic.Bool) {
			end()
			b.update(ctx, n, level)
		}},
		{"changed before it while the store was away", func(b *sessions, n *session, end func(), cut *atomic.Bool) {
			cut.Store(true)
			b.update(ctx, n, level)
			end()
			cut.Store(false)
			b.sweep(ctx)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, now := openStore(t), time.Now()
			far := &away{Store: s}
			a, b := replica(t, s, &now, 10), replica(t, far, &now, 10)
			one := a.create(ctx, sessionRecord{User: "u"})
			n, err := b.get(ctx, "u", one.id)
			if err != nil {
				t.Fatal(err)
			}
			c.do(b, n, func() {
				if err := a.end(ctx, one.key); err != nil {
					t.Fatal(err)
				}
			}, &far.cut)
			for name, r := range map[string]*sessions{"a": a, "b": b} {
				if _, err := r.get(ctx, "u", one.id); !errors.Is(err, errNoSession) {
					t.Errorf("replica %s: %v", name, err)
				}
			}
		})
	}
}

// A replica that did not reach the store for longer than the mark of an ended
// session stays cannot tell a lost one from an ended one.
func TestLongCutOffReplicaRestoresNothing(t *testing.T) {
	ctx := context.Background()
	s, now := openStore(t), time.Now()
	far := &away{Store: s}
	a, b := replica(t, s, &now, 10), replica(t, far, &now, 10)
	one := a.create(ctx, sessionRecord{User: "u"})
	if _, err := b.get(ctx, "u", one.id); err != nil {
		t.Fatal(err)
	}
	far.cut.Store(true)
	for range 180 { // in use all the time
		now = now.Add(time.Minute)
		if _, err := b.get(ctx, "u", one.id); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Delete(ctx, one.key); err != nil { // ended, and the mark expired
		t.Fatal(err)
	}
	a.forget(one.key)
	far.cut.Store(false)
	now = now.Add(31 * time.Second)
	for name, r := range map[string]*sessions{"b": b, "a": a} {
		if _, err := r.get(ctx, "u", one.id); !errors.Is(err, errNoSession) {
			t.Errorf("replica %s: %v", name, err)
		}
	}
}

// What a client set while the store was away holds, here and in the store.
func TestChangeDuringAnOutageHolds(t *testing.T) {
	ctx := context.Background()
	s, now := openStore(t), time.Now()
	far := &away{Store: s}
	a := replica(t, far, &now, 10)
	one := a.create(ctx, sessionRecord{User: "u"})
	far.cut.Store(true)
	a.update(ctx, one, func(r *sessionRecord) { r.Level = "debug" })
	far.cut.Store(false)
	now = now.Add(31 * time.Second) // looked up before the next sweep
	n, err := a.get(ctx, "u", one.id)
	if err != nil {
		t.Fatal(err)
	}
	a.sweep(ctx)
	m, err := replica(t, s, &now, 10).get(ctx, "u", one.id)
	if err != nil {
		t.Fatal(err)
	}
	if a.record(n).Level != "debug" || m.Level != "debug" {
		t.Errorf("level here %q, in the store %q", a.record(n).Level, m.Level)
	}
}

// Requests of one session at the same time, while its record is missing.
func TestMissingRecordAtOnce(t *testing.T) {
	ctx := context.Background()
	s := openStore(t)
	a := replica(t, s, new(time.Time), 10)
	a.now = time.Now
	one := a.create(ctx, sessionRecord{User: "u"})
	for range 20 {
		if err := s.Delete(ctx, one.key); err != nil {
			t.Fatal(err)
		}
		a.mu.Lock()
		one.read = time.Now().Add(-time.Minute)
		a.mu.Unlock()
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if _, err := a.get(ctx, "u", one.id); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
}
