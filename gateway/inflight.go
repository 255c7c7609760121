package gateway

import (
	"context"
	"errors"
	"runtime/debug"
	"strings"
	"sync"
)

// inflight knows the requests under way: to cancel one by its client's id, and
// to let all finish at shutdown.
type inflight struct {
	mu      sync.Mutex
	byID    map[string]context.CancelCauseFunc // session key + request id
	all     map[*context.CancelCauseFunc]struct{}
	closing bool
	idle    chan struct{}
}

// begin registers a request. The key may be empty (2026-07-28: the closed
// connection cancels). The error is errDuplicateID or errClosing.
func (f *inflight) begin(ctx context.Context, key string) (context.Context, func(), error) {
	ctx, cancel := context.WithCancelCause(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closing {
		cancel(nil)
		return nil, nil, errClosing
	}
	if f.byID == nil {
		f.byID, f.all = map[string]context.CancelCauseFunc{}, map[*context.CancelCauseFunc]struct{}{}
	}
	if key != "" {
		if _, dup := f.byID[key]; dup {
			cancel(nil)
			return nil, nil, errDuplicateID
		}
		f.byID[key] = cancel
	}
	f.all[&cancel] = struct{}{}
	return ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if key != "" {
			delete(f.byID, key)
		}
		delete(f.all, &cancel)
		cancel(nil)
		if f.idle != nil && len(f.all) == 0 {
			close(f.idle)
			f.idle = nil
		}
	}, nil
}

var (
	errClosing     = errors.New("this portal process is shutting down: send the request again")
	errDuplicateID = errors.New("a request with this id is already under way in this session: use another id")
)

// cancel ends one request; it reports whether it was here.
func (f *inflight) cancel(key string, cause error) bool {
	f.mu.Lock()
	cancel, ok := f.byID[key]
	f.mu.Unlock()
	if ok {
		cancel(cause)
	}
	return ok
}

// count is how many requests are under way.
func (f *inflight) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.all)
}

// any reports whether a request is under way whose key begins so.
func (f *inflight) any(prefix string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key := range f.byID {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// cancelAll ends the requests whose key begins so.
func (f *inflight) cancelAll(prefix string, cause error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, cancel := range f.byID {
		if strings.HasPrefix(key, prefix) {
			cancel(cause)
		}
	}
}

// drain lets nothing new begin, waits for all, and cancels what is left when
// ctx ends.
func (f *inflight) drain(ctx context.Context) {
	f.mu.Lock()
	f.closing = true
	if len(f.all) == 0 {
		f.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	f.idle = idle
	f.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
		f.mu.Lock()
		for c := range f.all {
			(*c)(context.Cause(ctx))
		}
		f.mu.Unlock()
	}
}

func stack() string { return string(debug.Stack()) }
