package upstreams

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// lateError ends what took too long; the text says which limit ended it.
type lateError struct{ text string }

func lateIdle(d time.Duration) error {
	return &lateError{fmt.Sprintf("no sign of life for %v (call_timeout)", d)}
}

func lateCeiling(d time.Duration) error {
	return &lateError{fmt.Sprintf("no answer within %v (call_ceiling)", d)}
}

func lateConnect(d time.Duration) error {
	return &lateError{fmt.Sprintf("no connection within %v (connect_timeout)", d)}
}

func (e *lateError) Error() string { return e.text }

// Timeout makes it a timeout to whoever asks, as net.Error does.
func (e *lateError) Timeout() bool { return true }

// watch is the deadline of one call: an idle deadline that signs of life push
// back and that rests while the server waits for us, and a hard ceiling.
type watch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	idle    time.Duration
	held    int
	stopped bool
	timer   *time.Timer
	ceiling *time.Timer
}

// newWatch starts both clocks; zero means none.
func newWatch(parent context.Context, idle, ceiling time.Duration) *watch {
	ctx, cancel := context.WithCancelCause(parent)
	w := &watch{ctx: ctx, cancel: cancel, idle: idle}
	if idle > 0 {
		w.timer = time.AfterFunc(idle, w.expire)
	}
	if ceiling > 0 {
		w.ceiling = time.AfterFunc(ceiling, func() { cancel(lateCeiling(ceiling)) })
	}
	return w
}

func (w *watch) expire() {
	w.mu.Lock()
	dead := w.held == 0 && !w.stopped
	w.mu.Unlock()
	if dead {
		w.cancel(lateIdle(w.idle))
	}
}

// touch is a sign of life.
func (w *watch) touch() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil && w.held == 0 && !w.stopped {
		w.timer.Reset(w.idle)
	}
}

// hold rests the idle deadline until as many releases: it is us who are slow.
func (w *watch) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held++
	if w.timer != nil {
		w.timer.Stop()
	}
}

func (w *watch) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held--
	if w.timer != nil && w.held == 0 && !w.stopped {
		w.timer.Reset(w.idle)
	}
}

func (w *watch) stop() {
	w.mu.Lock()
	w.stopped = true
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.ceiling != nil {
		w.ceiling.Stop()
	}
	w.mu.Unlock()
	w.cancel(context.Canceled)
}
