package writeguard

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/store/storetest"
)

// onStores runs a test as two replicas would see it: sharing the embedded file
// within one process, and with a connection each to one Redis.
func onStores(t *testing.T, f func(t *testing.T, one, two store.Store)) {
	t.Run("memory", func(t *testing.T) { st := newMemory(); f(t, st, st) })
	t.Run("file", func(t *testing.T) {
		st, err := store.OpenFile(filepath.Join(t.TempDir(), "portal.db"), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = st.Close() })
		f(t, st, st)
	})
	t.Run("redis", func(t *testing.T) {
		r := storetest.StartRedis(t)
		f(t, openRedis(t, r), openRedis(t, r))
	})
}

func openRedis(t *testing.T, r *storetest.Redis) store.Store {
	t.Helper()
	st, err := store.OpenRedis(t.Context(), config.Secret(r.URL()), "t:", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return st
}

// TestWaitOnStores: a call that waits on one replica is woken by the decision
// on another, by message alone.
func TestWaitOnStores(t *testing.T) {
	onStores(t, func(t *testing.T, first, second store.Store) {
		c := newClock()
		waiting, deciding := newApprovals(first, c, Options{Poll: time.Hour}), newApprovals(second, c, Options{})
		ap := request(t, waiting, deletion(`{}`))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := make(chan error, 1)
		go func() {
			got, err := waiting.Wait(ctx, ap.ID)
			if err == nil && got.State != Denied {
				err = errors.New("state " + string(got.State))
			}
			done <- err
		}()
		decideOK(t, deciding, ap.ID, false)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestRedisGone: while Redis is away nothing is released and the error says
// so; one that comes back empty releases nothing either.
func TestRedisGone(t *testing.T) {
	r := storetest.StartRedis(t)
	a := newApprovals(openRedis(t, r), newClock(), Options{})
	ap := request(t, a, deletion(`{}`))
	decideOK(t, a, ap.ID, true)
	r.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, f := range map[string]func() error{
		"Request": func() error { _, err := a.Request(ctx, deletion(`{}`), ask); return err },
		"Decide":  func() error { return a.Decide(ctx, ap.ID, Answer{By: alice, Approve: true, Via: ViaWeb}) },
		"Consume": func() error { return a.Consume(ctx, ap) },
		"ListFor": func() error { _, err := a.ListFor(ctx, alice.ID); return err },
	} {
		if err := f(); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s without Redis: %v", name, err)
		}
	}
	r.Restart()
	storetest.Eventually(t, "Redis is back", func() bool {
		_, err := a.ListFor(t.Context(), alice.ID)
		return err == nil
	})
	if err := a.Consume(t.Context(), ap); !errors.Is(err, ErrNotFound) {
		t.Errorf("an approval that Redis forgot: %v", err)
	}
	if got := request(t, a, deletion(`{}`)); got.State != Pending || got.ID == ap.ID {
		t.Errorf("asked anew: %+v", got)
	}
}
