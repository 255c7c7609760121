package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/store"
)

// replica is the sessions of one portal process over a shared store.
func replica(t *testing.T, s store.Store, now *time.Time, limit int) *sessions {
	t.Helper()
	return &sessions{store: s, log: slog.New(slog.NewTextHandler(io.Discard, nil)), now: func() time.Time { return *now }, known: map[string]*session{},
		idle: func() time.Duration { return 24 * time.Hour }, limit: func() int { return limit }, ended: func(string, string) {}}
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
