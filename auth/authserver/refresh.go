package authserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// refreshRecord is what a refresh token stands for. It stays after use, so
// that a second use is noticed (OAuth 2.1 section 4.3.1).
type refreshRecord struct {
	Grant string    `json:"grant"`
	Used  time.Time `json:"used,omitzero"`
}

const refreshPrefix = "mcpp_rt_"

func refreshKey(token string) string { return "rt:" + digest(token) }

func (s *Server) newRefresh(ctx context.Context, set *settings, g Grant) (string, error) {
	token := refreshPrefix + random()
	raw, err := json.Marshal(refreshRecord{Grant: g.ID})
	if err != nil {
		return "", internal("making a refresh token", err)
	}
	created, err := s.store.Create(ctx, refreshKey(token), raw, ttl(set.lives(g, s.now())))
	if err != nil || !created {
		return "", internal("making a refresh token", err)
	}
	return token, nil
}

// refresh gives new tokens for a refresh token, which is used up by that.
// Clients share one among processes and refresh at the same time, so using it
// again is forgiven for a while, with tokens of the same grant; later it means
// that somebody else has it, and the grant ends.
func (s *Server) refresh(ctx context.Context, set *settings, c *Client, form url.Values) (*tokens, error) {
	token := form.Get("refresh_token")
	if token == "" {
		return nil, invalidRequest("refresh_token is missing")
	}
	rec, raw, ok, err := load[refreshRecord](ctx, s.store, refreshKey(token))
	if err != nil {
		return nil, internal("reading a refresh token", err)
	}
	if !ok {
		return nil, invalidGrant("the refresh token is not known or has expired; sign in again")
	}
	g, old, ok, err := load[Grant](ctx, s.store, grantKey(rec.Grant))
	now := s.now()
	switch {
	case err != nil:
		return nil, internal("reading a grant", err)
	case !ok || g.Used.IsZero() || set.lives(g, now) <= 0:
		return nil, invalidGrant("the sign-in has ended; sign in again")
	case g.Client != c.ID:
		return nil, invalidGrant("the refresh token belongs to another client")
	}
	scopes := g.Scopes
	if asked := strings.Fields(form.Get("scope")); len(asked) > 0 {
		if scopes = grantScopes(form.Get("scope"), func(id string) bool { return narrower([]string{ScopeServer + id}, g.Scopes) }); len(scopes) == 0 || scopes[0] == ScopeAll {
			scopes = g.Scopes // more than was granted needs a new sign-in; this keeps what there is
		}
	}
	// Without grace no clock counts: those of replicas differ.
	if grace := set.cfg.Auth.Tokens.ReuseGrace; !rec.Used.IsZero() && (grace <= 0 || now.Sub(rec.Used) > grace) {
		return nil, s.reused(ctx, g)
	}
	if err := s.renewed(ctx, set, &g, old); err != nil {
		return nil, err
	}
	if rec.Used.IsZero() {
		if err := s.useUp(ctx, set, token, raw, rec, g); err != nil {
			return nil, err
		}
	}
	return s.issue(ctx, set, g, scopes)
}

// useUp marks a refresh token as used. Losing against a parallel use is what
// the grace is for.
func (s *Server) useUp(ctx context.Context, set *settings, token string, raw []byte, rec refreshRecord, g Grant) error {
	rec.Used = s.now()
	next, err := json.Marshal(rec)
	if err != nil {
		return internal("using a refresh token", err)
	}
	won, err := s.store.Swap(ctx, refreshKey(token), raw, next, ttl(set.lives(g, s.now())))
	if err != nil {
		return internal("using a refresh token", err)
	}
	if !won && set.cfg.Auth.Tokens.ReuseGrace <= 0 {
		return s.reused(ctx, g)
	}
	return nil
}

func (s *Server) reused(ctx context.Context, g Grant) error {
	if _, err := s.endGrant(ctx, g.ID, "one of its refresh tokens was used again"); err != nil {
		return err
	}
	s.log.WarnContext(ctx, "a refresh token was used again, so the client must sign in anew", "client", g.ClientName, "user", g.Person.ID)
	return invalidGrant("the refresh token was used already; sign in again")
}

// renewed reads at the IdP who the person is now, and keeps the grant going.
func (s *Server) renewed(ctx context.Context, set *settings, g *Grant, old []byte) error {
	who, err := s.renew(ctx, g.Person, g.Created)
	switch {
	case errors.Is(err, ErrEnded):
		if _, end := s.endGrant(ctx, g.ID, err.Error()); end != nil {
			return end
		}
		return &Error{Status: 400, Code: "invalid_grant", Description: "the person's sign-in at the identity provider has ended; sign in again", cause: err}
	case err != nil:
		return &Error{Status: 503, Code: "temporarily_unavailable", Description: "the portal cannot ask its identity provider now; try again shortly", cause: err}
	case who.ID != g.Person.ID:
		return internal("renewing a grant", fmt.Errorf("the IdP names %q in place of %q", who.ID, g.Person.ID))
	}
	for range 5 {
		g.Person, g.Used = who, s.now()
		won, err := s.writeGrant(ctx, old, *g, set.lives(*g, g.Used))
		if err != nil {
			return internal("writing a grant", err)
		}
		if won {
			return nil
		}
		// A parallel refresh wrote it, or it was ended.
		next, raw, ok, err := load[Grant](ctx, s.store, grantKey(g.ID))
		if err != nil {
			return internal("reading a grant", err)
		}
		if !ok {
			return invalidGrant("the sign-in has ended; sign in again")
		}
		*g, old = next, raw
	}
	return nil // others keep it going
}
