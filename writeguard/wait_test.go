package writeguard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/store"
)

func TestWait(t *testing.T) {
	for name, mute := range map[string]bool{"by message": false, "message lost": true} {
		t.Run(name, func(t *testing.T) {
			st, c := newMemory(), newClock()
			st.set(false, mute)
			poll := 10 * time.Millisecond
			if !mute {
				poll = time.Hour // only a message can wake it
			}
			waiting, deciding := newApprovals(st, c, Options{Poll: poll}), newApprovals(st, c, Options{})
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			var wg sync.WaitGroup
			var approvals []*Approval
			for i := range 5 {
				approvals = append(approvals, request(t, waiting, deletion(fmt.Sprintf(`{"n":%d}`, i))))
			}
			for _, ap := range approvals {
				for range 3 {
					wg.Go(func() {
						got, err := waiting.Wait(ctx, ap.ID)
						if err != nil || got.ID != ap.ID || got.State != Approved {
							t.Errorf("Wait: %+v, %v", got, err)
						}
					})
				}
			}
			eventually(t, "one subscription for all", func() bool { return st.subscribers(channel) == 1 })
			for _, ap := range approvals {
				decideOK(t, deciding, ap.ID, true)
			}
			wg.Wait()
			eventually(t, "no subscription left", func() bool { return st.subscribers(channel) == 0 })
		})
	}
}

// TestDecidedBeforeSubscribed: what was decided while the subscription was
// still being made is seen once it is there, not at the next poll.
func TestDecidedBeforeSubscribed(t *testing.T) {
	st, c := newMemory(), newClock()
	st.gate = make(chan struct{})
	waiting, deciding := newApprovals(st, c, Options{Poll: time.Hour}), newApprovals(st, c, Options{})
	ap := request(t, waiting, deletion(`{}`))
	before := st.reads()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { _, err := waiting.Wait(ctx, ap.ID); done <- err }()
	eventually(t, "seen as pending", func() bool { return st.reads() > before })
	decideOK(t, deciding, ap.ID, true)
	close(st.gate)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestWaitEnds(t *testing.T) {
	st := newMemory()
	a := newApprovals(st, newClock(), Options{})
	ap := request(t, a, deletion(`{}`))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := a.Wait(ctx, ap.ID); done <- err }()
	eventually(t, "subscribed", func() bool { return st.subscribers(channel) == 1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if got, _ := a.Get(t.Context(), ap.ID); got.State != Pending {
		t.Errorf("the question is gone with the one who asked: %+v", got)
	}
	if _, err := a.Wait(t.Context(), "ap-"+strings.Repeat("A", 26)); !errors.Is(err, ErrNotFound) {
		t.Errorf("unknown: %v", err)
	}
}

func TestStoreDown(t *testing.T) {
	st := newMemory()
	a := newApprovals(st, newClock(), Options{})
	ap := request(t, a, deletion(`{}`))
	decideOK(t, a, ap.ID, true)
	open := request(t, a, deletion(`{"n":1}`))
	st.set(true, false)
	for name, f := range map[string]func() error{
		"Request": func() error { _, err := a.Request(t.Context(), deletion(`{}`), ask); return err },
		"Decide":  func() error { return a.Decide(t.Context(), open.ID, Answer{By: alice, Approve: true, Via: ViaWeb}) },
		"Consume": func() error { return a.Consume(t.Context(), ap) },
		"Get":     func() error { _, err := a.Get(t.Context(), ap.ID); return err },
		"ListFor": func() error { _, err := a.ListFor(t.Context(), alice.ID); return err },
	} {
		if err := f(); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s with the store down: %v", name, err)
		}
	}
	// A call that waits outlives the outage.
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		got, err := a.Wait(ctx, open.ID)
		if err == nil && got.State != Approved {
			err = fmt.Errorf("state %s", got.State)
		}
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("Wait ended while the store was down: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	st.set(false, false)
	decideOK(t, a, open.ID, true)
	if err := <-done; err != nil {
		t.Error(err)
	}
	// One that gives up meanwhile says why.
	st.set(true, false)
	short, cancel2 := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel2()
	if _, err := a.Wait(short, ap.ID); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Wait with the store down: %v", err)
	}
}
