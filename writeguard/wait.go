package writeguard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/store"
)

// channel carries the ids of approvals that were just decided.
const channel = "approval-decided"

// hub shares one subscription among all that wait on this replica, since a
// subscription may be a connection. It runs while somebody waits.
type hub struct {
	mu      sync.Mutex
	waiting map[string]map[chan struct{}]bool // by approval id
	stop    context.CancelFunc
}

// Wait returns the approval once it is not pending any more: approved, denied,
// used, or expired. It is woken by the decision on any replica and looks by
// itself from time to time, in case a message was lost. A store that cannot be
// reached is waited for. The error is ErrNotFound, or ctx's with the store's.
func (a *Approvals) Wait(ctx context.Context, id string) (*Approval, error) {
	wake, leave := a.join(id)
	defer leave()
	tick := time.NewTicker(a.opts.Poll)
	defer tick.Stop()
	for {
		ap, _, err := a.load(ctx, id)
		switch {
		case err == nil && ap.State != Pending:
			return ap, nil
		case err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrUnavailable):
			return nil, fmt.Errorf("wait for approval %s: %w", Visible(id), err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for approval %s: %w", Visible(id), errors.Join(context.Cause(ctx), err))
		case <-wake:
		case <-tick.C:
		}
	}
}

// join registers for messages about one approval. leave ends it.
func (a *Approvals) join(id string) (wake <-chan struct{}, leave func()) {
	h := &a.hub
	ch := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting == nil {
		h.waiting = map[string]map[chan struct{}]bool{}
	}
	if h.waiting[id] == nil {
		h.waiting[id] = map[chan struct{}]bool{}
	}
	h.waiting[id][ch] = true
	if h.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		h.stop = stop
		go a.listen(ctx)
	}
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.waiting[id], ch)
		if len(h.waiting[id]) == 0 {
			delete(h.waiting, id)
		}
		if len(h.waiting) == 0 {
			h.stop()
			h.stop = nil
		}
	}
}

// listen passes messages on until ctx ends. Without a subscription those who
// wait still look by themselves.
func (a *Approvals) listen(ctx context.Context) {
	for {
		messages, err := a.store.Subscribe(ctx, channel)
		if err == nil {
			a.wakeAll() // decided while nobody was subscribed
			for m := range messages {
				a.wake(string(m))
			}
		}
		if ctx.Err() != nil {
			return
		}
		a.log.Warn("decisions on other replicas are noticed late", "poll", a.opts.Poll, "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(a.opts.Poll):
		}
	}
}

func (a *Approvals) announce(ctx context.Context, id string) {
	a.wake(id)
	if err := a.store.Publish(ctx, channel, []byte(id)); err != nil {
		a.log.Warn("a decision is noticed late on other replicas", "approval", id, "poll", a.opts.Poll, "error", err)
	}
}

func (a *Approvals) wake(id string) {
	a.hub.mu.Lock()
	defer a.hub.mu.Unlock()
	for ch := range a.hub.waiting[id] {
		nudge(ch)
	}
}

func (a *Approvals) wakeAll() {
	a.hub.mu.Lock()
	defer a.hub.mu.Unlock()
	for _, chans := range a.hub.waiting {
		for ch := range chans {
			nudge(ch)
		}
	}
}

func nudge(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
