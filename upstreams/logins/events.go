package logins

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Change says that a login began, was renewed, or ended.
type Change struct {
	Server string `json:"server"`
	User   string `json:"user"`            // principal; "": the admin's
	Login  string `json:"login,omitempty"` // id of the present one; "": there is none
}

const channel = "upstream-logins"

// tell lets all replicas know, this one at once.
func (l *Logins) tell(ctx context.Context, c Change) {
	l.heard(c)
	b, err := json.Marshal(c)
	if err == nil {
		err = l.store.Publish(context.WithoutCancel(ctx), channel, b)
	}
	if err != nil {
		l.log.Debug("other replicas learn of a change of a sign-in later", "server", c.Server, "error", err)
	}
}

// listen hears what other replicas tell.
func (l *Logins) listen(ctx context.Context) {
	for ctx.Err() == nil {
		messages, err := l.store.Subscribe(ctx, channel)
		if err != nil {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			continue
		}
		for b := range messages {
			var c Change
			if json.Unmarshal(b, &c) == nil && c.Server != "" {
				l.forgetCached(recordKey(c.Server, c.User))
				l.heard(c)
			}
		}
	}
}

func (l *Logins) heard(c Change) {
	l.mu.Lock()
	watching := make([]func(Change), 0, len(l.watching))
	for _, f := range l.watching {
		watching = append(watching, f)
	}
	l.mu.Unlock()
	for _, f := range watching {
		f(c)
	}
}

// Watch has f called after changes, perhaps more than once for one; it must
// not block. The returned function ends it.
func (l *Logins) Watch(f func(Change)) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := l.next
	l.next++
	l.watching[id] = f
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.watching, id)
	}
}

// Wait waits until the user can make calls to the server with another login
// than the one given ("" if there was none).
func (l *Logins) Wait(ctx context.Context, server, user, before string) error {
	changed := make(chan struct{}, 1)
	defer l.Watch(func(c Change) {
		if c.Server == server {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	})()
	for {
		cred, err := l.Current(ctx, server, user)
		var need *Needed
		if err == nil && cred.Login != before {
			return nil
		}
		if err != nil && !errors.As(err, &need) && ctx.Err() == nil {
			l.log.Debug("waiting for a sign-in", "server", server, "error", err)
		}
		select {
		case <-changed:
		case <-time.After(2 * time.Second): // a message may be lost
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
