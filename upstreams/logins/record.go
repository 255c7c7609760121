package logins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mcp-portal/mcp-portal/auth/vault"
	"github.com/mcp-portal/mcp-portal/config"
)

const (
	keepFor  = 90 * 24 * time.Hour // a login that nobody uses is forgotten after
	cacheFor = 5 * time.Second     // a replica that missed a change knows of it after
)

// record is a login as the store keeps it, sealed under its own name.
type record struct {
	ID       string    `json:"id"`
	Origin   string    `json:"origin"` // of the server it is for: it goes nowhere else
	Issuer   string    `json:"issuer"`
	Resource string    `json:"resource,omitempty"` // resource parameter
	Token    string    `json:"token_url"`
	Revoke   string    `json:"revoke_url,omitempty"`
	Client   client    `json:"client"`
	Access   string    `json:"access"`
	Refresh  string    `json:"refresh,omitempty"`
	Expires  time.Time `json:"expires,omitzero"`
	Scopes   []string  `json:"scopes,omitempty"` // granted, as far as known
	Asked    []string  `json:"asked,omitempty"`  // what the sign-in asked for; not all of it may have been granted
	Begun    time.Time `json:"begun"`
	Renewed  time.Time `json:"renewed,omitzero"`
	Kept     time.Time `json:"kept"`           // when it was written
	Dead     string    `json:"dead,omitempty"` // why it cannot be used any more
	By       string    `json:"by,omitempty"`   // of an admin's: who signed in

	raw []byte // as the store has it; nil: not known
}

// cached is a record that was read a moment ago; rec nil: there is none.
type cached struct {
	rec *record
	at  time.Time
}

// recordKey names the login of an owner at a server.
func recordKey(server, owner string) string {
	if owner == "" {
		return "upstream-login:" + server + ":admin"
	}
	return "upstream-login:" + server + ":" + hash(owner)
}

// load reads a login; nil if there is none, or none for the server as it is
// configured now. fresh asks the store in any case.
func (l *Logins) load(ctx context.Context, s config.Server, owner string, fresh bool) (*record, error) {
	key := recordKey(s.ID, owner)
	l.mu.Lock()
	c := l.cache[key]
	l.mu.Unlock()
	if c != nil && !fresh && l.now().Sub(c.at) < cacheFor {
		return c.rec, nil
	}
	raw, ok, err := l.store.Get(ctx, key)
	if err != nil {
		if c != nil && !fresh {
			return c.rec, nil // the store is away: what was known last counts
		}
		return nil, fmt.Errorf("read the sign-in at server %s: %w", s.ID, err)
	}
	var rec *record
	if ok {
		if rec, err = l.open(ctx, key, raw); err != nil {
			return nil, fmt.Errorf("read the sign-in at server %s: %w", s.ID, err)
		}
	}
	if rec != nil && rec.Origin != originOf(s.URL) {
		rec = nil // given for another server under the same id
	}
	l.remember(key, rec)
	return rec, nil
}

// open unseals a record. One that cannot be read is none: its owner signs in
// again.
func (l *Logins) open(ctx context.Context, key string, raw []byte) (*record, error) {
	plain, stale, err := l.tokens.Open(ctx, key, string(raw))
	if errors.Is(err, vault.ErrSealed) || errors.Is(err, vault.ErrUnknownKey) {
		l.log.Warn("a stored sign-in cannot be read and counts as none", "record", key, "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var rec record
	if json.Unmarshal(plain, &rec) != nil || rec.ID == "" {
		l.log.Warn("a stored sign-in is damaged and counts as none", "record", key)
		return nil, nil
	}
	rec.raw = raw
	if stale || l.now().Sub(rec.Kept) > 24*time.Hour {
		// Sealed with an old key, or not written for a day: written anew.
		rec.Kept = l.now()
		if sealed, err := l.seal(ctx, key, &rec); err == nil {
			if swapped, err := l.store.Swap(ctx, key, raw, sealed, keepFor); err != nil {
				l.log.Debug("a stored sign-in was not written anew", "record", key, "error", err)
			} else if swapped {
				rec.raw = sealed
			}
		}
	}
	return &rec, nil
}

func (l *Logins) seal(ctx context.Context, key string, rec *record) ([]byte, error) {
	plain, err := json.Marshal(rec)
	if err != nil {
		return nil, err
	}
	sealed, err := l.tokens.Seal(ctx, key, plain)
	return []byte(sealed), err
}

// save writes a new login in place of whatever was there.
func (l *Logins) save(ctx context.Context, key string, rec *record) error {
	rec.Kept = l.now()
	sealed, err := l.seal(ctx, key, rec)
	if err == nil {
		err = l.store.Set(ctx, key, sealed, keepFor)
	}
	if err != nil {
		return err
	}
	rec.raw = sealed
	l.remember(key, rec)
	return nil
}

// replace writes next in place of the login as it was read. False: somebody
// signed out or in anew meanwhile, and that counts.
func (l *Logins) replace(ctx context.Context, key string, was, next *record) (bool, error) {
	next.Kept = l.now()
	sealed, err := l.seal(ctx, key, next)
	if err != nil {
		return false, err
	}
	ok, err := l.store.Swap(ctx, key, was.raw, sealed, keepFor)
	if err != nil || !ok {
		l.forgetCached(key)
		return false, err
	}
	next.raw = sealed
	l.remember(key, next)
	return true, nil
}

func (l *Logins) remember(key string, rec *record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.cache) >= 100_000 {
		clear(l.cache)
	}
	l.cache[key] = &cached{rec, l.now()}
}

func (l *Logins) forgetCached(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.cache, key)
}

// valid reports whether the access token can be used for a while.
func (r *record) valid(now time.Time) bool {
	return r.Dead == "" && r.Access != "" && (r.Expires.IsZero() || now.Before(r.Expires.Add(-r.margin())))
}

// margin is how long before its end a token is renewed.
func (r *record) margin() time.Duration {
	from := r.Begun
	if !r.Renewed.IsZero() {
		from = r.Renewed
	}
	return min(30*time.Second, r.Expires.Sub(from)/10)
}

// missing are those of the scopes that the login is not known to hold.
func (r *record) missing(scopes []string) (out []string) {
	for _, s := range scopes {
		if !slices.Contains(r.Scopes, s) {
			out = append(out, s)
		}
	}
	return out
}

// asked reports whether the sign-in asked for all the scopes.
func (r *record) asked(scopes []string) bool {
	for _, s := range scopes {
		if !slices.Contains(r.Asked, s) {
			return false
		}
	}
	return true
}

// take puts an answer of the token endpoint into the record.
func (r *record) take(t *tokens, now time.Time) {
	r.Access, r.Expires, r.Dead = t.Access, t.Expires, ""
	if t.Refresh != "" {
		r.Refresh = t.Refresh
	}
	if t.Scope != "" {
		r.Scopes = scopeList(t.Scope)
	}
	r.Renewed = now
}

func join(scopes []string) string { return strings.Join(scopes, " ") }
