package logins

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
)

const (
	refreshTimeout = 10 * time.Second      // of one refresh
	lockFor        = 20 * time.Second      // longer than a refresh may take
	lockPoll       = 50 * time.Millisecond // of who waits for another replica's refresh
	failureRest    = 2 * time.Second       // after a failed refresh, until the next
)

// failure is a refresh that failed for a reason that may pass.
type failure struct {
	err error
	at  time.Time
}

// renew gives the login with another access token than the one given. However
// many calls need it at once, on however many replicas, the authorization
// server is asked once: many of them take a refresh token once only.
func (l *Logins) renew(ctx context.Context, s config.Server, own, old string) (*record, error) {
	key := recordKey(s.ID, own)
	ch := l.flight.DoChan(key, func() (any, error) {
		// Not the caller's context: others wait for the same outcome.
		bg, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockFor+2*refreshTimeout)
		defer cancel()
		return l.renewLocked(bg, s, own, key, old)
	})
	select {
	case r := <-ch:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*record), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("renew the sign-in at server %s: %w", s.ID, context.Cause(ctx))
	}
}

func (l *Logins) renewLocked(ctx context.Context, s config.Server, own, key, old string) (*record, error) {
	lock, me := "lock:"+key, []byte(rand.Text())
	for {
		rec, done, err := l.renewed(ctx, s, own, old)
		switch {
		case err != nil:
			return nil, err
		case done:
			return rec, nil
		case rec.Refresh == "":
			return nil, l.bury(ctx, s, own, rec, "the sign-in has expired")
		}
		if f, ok := l.rests(key); ok {
			return nil, f
		}
		got, err := l.store.Create(ctx, lock, me, lockFor)
		if err != nil {
			return nil, fmt.Errorf("renew the sign-in at server %s: %w", s.ID, err)
		}
		if got {
			break
		}
		select {
		case <-time.After(lockPoll):
		case <-ctx.Done():
			return nil, fmt.Errorf("renew the sign-in at server %s: another replica does not come to an end with it", s.ID)
		}
	}
	defer func() {
		// Only our own lock; an expired one may be another's by now.
		if _, err := l.store.Swap(context.WithoutCancel(ctx), lock, me, me, time.Millisecond); err != nil {
			l.log.Debug("a lock was not released and will expire", "lock", lock, "error", err)
		}
	}()
	// Again under the lock: who held it before may have done it.
	rec, done, err := l.renewed(ctx, s, own, old)
	if err != nil || done {
		return rec, err
	}
	return l.refresh(ctx, s, own, key, rec)
}

// renewed reads the login from the store; done says that another has renewed it
// since it had the access token old. A *Needed error says that it is over.
func (l *Logins) renewed(ctx context.Context, s config.Server, own, old string) (rec *record, done bool, err error) {
	rec, err = l.load(ctx, s, own, true)
	switch {
	case err != nil:
		return nil, false, err
	case rec == nil:
		return nil, false, &Needed{Server: s.ID, User: own, Reason: neverReason(own)}
	case rec.Dead != "":
		return nil, false, &Needed{Server: s.ID, User: own, Reason: rec.Dead}
	}
	return rec, rec.Access != old && rec.valid(l.now()), nil
}

// refresh asks for another access token. Only a clear no ends the login:
// whatever may pass leaves it as it is.
func (l *Logins) refresh(ctx context.Context, s config.Server, own, key string, rec *record) (*record, error) {
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {rec.Refresh}}
	if rec.Resource != "" {
		form.Set("resource", rec.Resource)
	}
	c := rec.Client
	if s.Auth.ClientID == c.ID {
		c = renewedClient(s, c, rec) // it may have been changed since
	}
	call, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	t, err := l.tokenRequest(call, s, rec.Token, c, form)
	var no *refused
	switch {
	case errors.As(err, &no) && no.Code == "invalid_grant":
		return nil, l.bury(ctx, s, own, rec, "the sign-in has expired or was revoked")
	case errors.As(err, &no) && (no.Code == "invalid_client" || no.Code == "unauthorized_client"):
		l.forgetClient(ctx, rec.Issuer, rec.Client)
		return nil, l.bury(ctx, s, own, rec, "the authorization server does not know the portal any more")
	case errors.As(err, &no) && !no.passes():
		// Some say in words of their own that a refresh token has ended. The
		// login stays, should it be something else; its owner can sign in anew.
		level := l.log.Warn
		if own == "" {
			level = l.log.Error
		}
		level("a sign-in at a server is not renewed; it is tried again, and asked for anew", "server", s.ID, "user", own, "error", err)
		err = &Needed{Server: s.ID, User: own, Reason: "the sign-in there was not renewed (" + no.Error() + ")"}
		l.mu.Lock()
		l.failed[key] = failure{err, l.now()}
		l.mu.Unlock()
		return nil, err
	case err != nil:
		err = fmt.Errorf("renew the sign-in at server %s: %w. It is kept and tried again", s.ID, err)
		l.mu.Lock()
		l.failed[key] = failure{err, l.now()}
		l.mu.Unlock()
		l.log.Warn("a sign-in at a server could not be renewed now", "server", s.ID, "error", err)
		return nil, err
	}
	next := *rec
	next.take(t, l.now())
	// The old refresh token may be spent: losing the new one would end the
	// login, so it is worth some patience.
	var ok bool
	for try := 0; ; try++ {
		if ok, err = l.replace(ctx, key, rec, &next); err == nil || try == 5 {
			break
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	switch {
	case err != nil:
		l.remember(key, &next) // this process at least
		l.log.Error("a renewed sign-in could not be stored; it is known to this process only", "server", s.ID, "error", err)
	case !ok:
		// Signed out, or in anew, while the request was under way.
		l.revoke(context.WithoutCancel(ctx), s, &next)
		now, err := l.load(ctx, s, own, true)
		if err != nil {
			return nil, err
		}
		if now == nil || !now.valid(l.now()) {
			return nil, &Needed{Server: s.ID, User: own, Reason: "the sign-in there ended a moment ago"}
		}
		return now, nil
	}
	l.tell(ctx, Change{Server: s.ID, User: own, Login: next.ID})
	return &next, nil
}

// rests gives the error of a refresh that failed a moment ago.
func (l *Logins) rests(key string) (error, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, ok := l.failed[key]
	if ok && l.now().Sub(f.at) < failureRest {
		return f.err, true
	}
	delete(l.failed, key)
	return nil, false
}
