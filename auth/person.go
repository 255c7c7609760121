package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/mcp-portal/mcp-portal/auth/authserver"
	"github.com/mcp-portal/mcp-portal/auth/vault"
)

const (
	personFresh = 5 * time.Minute  // groups read so recently are not read again
	personStale = 24 * time.Hour   // how long groups serve while the IdP cannot be asked
	renewLock   = 15 * time.Second // of one replica, to renew a person's tokens
)

// personRecord is what is kept of somebody who signed in, under the digest of
// their id: who they are and, sealed, the tokens that the IdP gave. Clients'
// sign-ins live longer than the browser's, and read groups anew with it.
type personRecord struct {
	Person authserver.Person `json:"person"`
	Read   time.Time         `json:"read"`            // when the IdP last said so
	Ended  bool              `json:"ended,omitempty"` // the IdP ended the sign-in
	Out    time.Time         `json:"out,omitzero"`    // browser sessions from before are over
	Tokens string            `json:"tokens,omitempty"`
}

// idpTokens are the tokens of the IdP.
type idpTokens struct {
	ClientID string    `json:"client_id"`
	Access   string    `json:"access,omitempty"`
	Refresh  string    `json:"refresh,omitempty"`
	ID       string    `json:"id,omitempty"`
	Expires  time.Time `json:"expires,omitzero"` // of Access
}

func personKey(id string) string { return "person:" + digest(id)[:32] }

func (a *Auth) idpBox() vault.Box { return a.vault.Box("idp") }

// loadPerson gives the record and its tokens; tokens that cannot be opened any
// more are as good as none.
func (a *Auth) loadPerson(ctx context.Context, id string) (rec personRecord, tok idpTokens, raw []byte, err error) {
	raw, ok, err := a.store.Get(ctx, personKey(id))
	if err != nil {
		return rec, tok, nil, storeError("reading who somebody is", err)
	}
	if !ok {
		return rec, tok, nil, nil
	}
	if err := json.Unmarshal(raw, &rec); err != nil {
		return rec, tok, nil, fmt.Errorf("reading who somebody is: %w", err)
	}
	if rec.Tokens == "" {
		return rec, tok, raw, nil
	}
	plain, _, err := a.idpBox().Open(ctx, personKey(id), rec.Tokens)
	switch {
	case errors.Is(err, vault.ErrSealed) || errors.Is(err, vault.ErrUnknownKey):
		a.log.WarnContext(ctx, "tokens of the IdP cannot be opened; the person has to sign in again for them", "user", id, "error", err)
		return rec, tok, raw, nil
	case err != nil:
		return rec, tok, nil, storeError("opening tokens of the IdP", err)
	}
	if err := json.Unmarshal(plain, &tok); err != nil {
		return rec, tok, nil, fmt.Errorf("opening tokens of the IdP: %w", err)
	}
	return rec, tok, raw, nil
}

func (a *Auth) savePerson(ctx context.Context, s *settings, rec personRecord, tok idpTokens) error {
	rec.Tokens = ""
	if tok.Access != "" || tok.Refresh != "" || tok.ID != "" {
		plain, err := json.Marshal(tok)
		if err != nil {
			return fmt.Errorf("keeping tokens of the IdP: %w", err)
		}
		if rec.Tokens, err = a.idpBox().Seal(ctx, personKey(rec.Person.ID), plain); err != nil {
			return storeError("keeping tokens of the IdP", err)
		}
	}
	raw, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("keeping who somebody is: %w", err)
	}
	if err := a.store.Set(ctx, personKey(rec.Person.ID), raw, max(s.cfg.Auth.Tokens.Grant, s.maxAge, time.Hour)); err != nil {
		return storeError("keeping who somebody is", err)
	}
	return nil
}

// keepPerson remembers a sign-in that has just succeeded.
func (a *Auth) keepPerson(ctx context.Context, s *settings, in *signedIn) error {
	rec, before, _, err := a.loadPerson(ctx, in.who.ID)
	if err != nil {
		return err
	}
	tok := in.tokens
	if tok.Refresh == "" && before.ClientID == tok.ClientID {
		tok.Refresh = before.Refresh // an IdP that gives one only at the first consent
	}
	return a.savePerson(ctx, s, personRecord{Person: PersonOf(in.who), Read: a.now(), Out: rec.Out}, tok)
}

// renew is how the authorization server asks who a person is now; signed is
// when they signed in for the grant.
func (a *Auth) renew(ctx context.Context, p authserver.Person, signed time.Time) (authserver.Person, error) {
	s := a.state.Load()
	if s.dev || s.idp == nil {
		return p, fmt.Errorf("%w: there is no identity provider", authserver.ErrEnded)
	}
	rec, tok, raw, err := a.loadPerson(ctx, p.ID)
	switch {
	case err != nil:
		return p, err
	case rec.Ended:
		return p, fmt.Errorf("%w at the identity provider", authserver.ErrEnded)
	case raw != nil:
		p = rec.Person
		signed = rec.Read
	}
	now := a.now()
	if tok.Refresh == "" || tok.ClientID != s.cfg.Auth.ClientID {
		// Nobody can say whether the groups still hold: no longer than a
		// browser session.
		if !now.Before(signed.Add(s.maxAge)) {
			return p, fmt.Errorf("%w: it is older than auth.session_max_age, and the IdP gave no refresh token to ask again (scope offline_access)", authserver.ErrEnded)
		}
		return p, nil
	}
	if now.Sub(rec.Read) < personFresh {
		return p, nil
	}
	rec, _, err = a.renewed(ctx, s, p.ID, func(rec personRecord, _ idpTokens) bool { return a.now().Sub(rec.Read) < personFresh })
	var ans *idpAnswer
	var e *Error
	switch {
	case err == nil:
		return rec.Person, nil
	case errors.Is(err, authserver.ErrEnded):
		return p, err
	case errors.As(err, &e) && e.Status == 403: // groups that cannot be read
		return p, fmt.Errorf("%w: %s", authserver.ErrEnded, e.Description)
	case errors.As(err, &ans):
		a.log.WarnContext(ctx, "the IdP does not renew a sign-in", "user", p.ID, "error", err)
	}
	if now.Sub(signed) < personStale {
		a.log.WarnContext(ctx, "the IdP cannot be asked; groups are those it named last", "user", p.ID, "read", signed, "error", err)
		return p, nil
	}
	return p, err
}

// renewed gives a person's record and tokens after asking the IdP for new
// ones, unless enough says that those kept will do. One asks at a time, over
// all replicas: IdPs rotate refresh tokens, and who comes second with the old
// one would end the sign-in.
func (a *Auth) renewed(ctx context.Context, s *settings, id string, enough func(personRecord, idpTokens) bool) (personRecord, idpTokens, error) {
	type result struct {
		rec personRecord
		tok idpTokens
	}
	v, err := a.single.do(ctx, id, func(ctx context.Context) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*renewLock)
		defer cancel()
		lock := "personlock:" + digest(id)[:32]
		mine := []byte(random())
		for {
			rec, tok, _, err := a.loadPerson(ctx, id)
			if err != nil {
				return nil, err
			}
			if rec.Ended {
				return nil, fmt.Errorf("%w at the identity provider", authserver.ErrEnded)
			}
			if tok.Refresh == "" || enough(rec, tok) {
				return result{rec, tok}, nil
			}
			won, err := a.store.Create(ctx, lock, mine, renewLock)
			if err != nil {
				return nil, storeError("renewing a sign-in", err)
			}
			if won {
				break
			}
			select { // another replica asks
			case <-ctx.Done():
				return nil, unavailable("the portal cannot renew the sign-in at its identity provider now", failureBackoff, ctx.Err())
			case <-time.After(100 * time.Millisecond):
			}
		}
		defer func() {
			// Only if it is still ours; if that fails it is over by itself.
			free := context.WithoutCancel(ctx)
			if ours, err := a.store.Swap(free, lock, mine, []byte("-"), time.Second); err == nil && ours {
				_ = a.store.Delete(free, lock)
			}
		}()
		rec, tok, _, err := a.loadPerson(ctx, id) // again: it may have been done meanwhile
		if err != nil || enough(rec, tok) {
			return result{rec, tok}, err
		}
		rec, tok, err = a.askIDP(ctx, s, rec, tok)
		return result{rec, tok}, err
	})
	if err != nil {
		return personRecord{}, idpTokens{}, err
	}
	r := v.(result)
	return r.rec, r.tok, nil
}

// expires is when an access token of the IdP ends, by the portal's clock: the
// library goes by that of the machine.
func (a *Auth) expires(t *oauth2.Token) time.Time {
	if t.Expiry.IsZero() {
		return time.Time{}
	}
	return a.now().Add(time.Until(t.Expiry))
}

// askIDP uses the refresh token and reads the groups anew.
func (a *Auth) askIDP(ctx context.Context, s *settings, rec personRecord, tok idpTokens) (personRecord, idpTokens, error) {
	idp, err := s.idp.current(ctx)
	if err != nil {
		return rec, tok, idpUnavailable(err)
	}
	next, err := s.oauth(idp).TokenSource(s.atIDP(ctx, idp), &oauth2.Token{RefreshToken: tok.Refresh}).Token()
	if err != nil {
		err = exchangeError(err)
		var ans *idpAnswer
		if errors.As(err, &ans) && ans.code == "invalid_grant" {
			rec.Ended = true
			if err := a.savePerson(ctx, s, rec, idpTokens{}); err != nil {
				return rec, tok, err
			}
			return rec, tok, fmt.Errorf("%w: the IdP answered invalid_grant", authserver.ErrEnded)
		}
		return rec, tok, err
	}
	tok.Access, tok.Expires = next.AccessToken, a.expires(next)
	if next.RefreshToken != "" {
		tok.Refresh = next.RefreshToken
	}
	// Kept before anything else can fail: the old one may be used up.
	if err := a.savePerson(ctx, s, rec, tok); err != nil {
		return rec, tok, err
	}
	c := claims{"sub": rec.subject()}
	if raw, _ := next.Extra("id_token").(string); raw != "" {
		if c, err = s.idp.verified(ctx, raw, &oidc.Config{ClientID: tok.ClientID}); err != nil {
			return rec, tok, badIDToken(err)
		}
		tok.ID = raw
	}
	if !c.has("iss") && idp.provider.UserInfoEndpoint() == "" {
		// It renews without saying anything new: the sign-in holds.
		rec.Read = a.now()
		return rec, tok, a.savePerson(ctx, s, rec, tok)
	}
	who, err := s.fromIDToken(oidc.ClientContext(ctx, s.idp.http), idp, next, c)
	if err != nil {
		return rec, tok, err
	}
	if who.ID != rec.Person.ID {
		return rec, tok, badIDToken(errors.New("it is about another subject"))
	}
	fresh := PersonOf(who)
	if fresh.Name == fresh.ID || fresh.Name == "" {
		fresh.Name = rec.Person.Name
	}
	if fresh.Email == "" {
		fresh.Email = rec.Person.Email
	}
	rec.Person, rec.Read = fresh, a.now()
	return rec, tok, a.savePerson(ctx, s, rec, tok)
}

func (r personRecord) subject() string {
	for i := range len(r.Person.ID) {
		if r.Person.ID[i] == '|' {
			return r.Person.ID[i+1:]
		}
	}
	return ""
}

// SubjectToken gives a valid token that the IdP made for a user, to be
// exchanged for one of another server: kind is "access_token" or "id_token".
// The error says what the user can do.
func (a *Auth) SubjectToken(ctx context.Context, user, kind string) (string, error) {
	s := a.state.Load()
	if s.dev || s.idp == nil {
		return "", errors.New("there is no identity provider in development mode, so there is no token to exchange")
	}
	valid := func(_ personRecord, tok idpTokens) bool {
		now := a.now().Add(30 * time.Second)
		switch kind {
		case "access_token":
			return tok.Access != "" && (tok.Expires.IsZero() || now.Before(tok.Expires))
		case "id_token":
			if tok.ID == "" {
				return false
			}
			_, c, err := peekJWT(tok.ID)
			if err != nil {
				return false
			}
			exp, ok, err := c.time("exp")
			return err == nil && ok && now.Before(exp)
		}
		return false
	}
	rec, tok, raw, err := a.loadPerson(ctx, user)
	if err == nil && raw != nil && !rec.Ended && !valid(rec, tok) {
		rec, tok, err = a.renewed(ctx, s, user, valid)
	}
	switch {
	case errors.Is(err, authserver.ErrEnded) || rec.Ended || err == nil && (raw == nil || !valid(rec, tok)):
		return "", fmt.Errorf("the portal has no valid %s of the identity provider for this user; sign in at %s/auth/login and try again", kind, s.origin)
	case err != nil:
		return "", err
	case kind == "id_token":
		return tok.ID, nil
	}
	return tok.Access, nil
}

// flightGroup lets one of several callers with the same key do the work. The
// work goes on when a caller leaves.
type flightGroup struct {
	mu sync.Mutex
	m  map[string]*call
}

type call struct {
	done chan struct{}
	v    any
	err  error
}

func (g *flightGroup) do(ctx context.Context, key string, f func(context.Context) (any, error)) (any, error) {
	g.mu.Lock()
	c := g.m[key]
	if c == nil {
		c = &call{done: make(chan struct{})}
		if g.m == nil {
			g.m = map[string]*call{}
		}
		g.m[key] = c
		go func() {
			c.v, c.err = f(context.WithoutCancel(ctx))
			g.mu.Lock()
			delete(g.m, key)
			g.mu.Unlock()
			close(c.done)
		}()
	}
	g.mu.Unlock()
	select {
	case <-c.done:
		return c.v, c.err
	case <-ctx.Done():
		return nil, unavailable("the request ended while the sign-in was renewed", failureBackoff, ctx.Err())
	}
}
