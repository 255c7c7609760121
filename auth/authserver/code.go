package authserver

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"time"
)

// codeRecord is what a code stands for. It stays after use, so that a second
// use is noticed (RFC 6749 section 4.1.2).
type codeRecord struct {
	Grant     string    `json:"grant"`
	Client    string    `json:"client"`
	Redirect  string    `json:"redirect"`          // as asked for at /authorize
	Implied   bool      `json:"implied,omitempty"` // it was not asked for
	Challenge string    `json:"challenge"`         // PKCE S256
	Expires   time.Time `json:"expires"`
	Spent     bool      `json:"spent,omitempty"`
}

const spentKept = 30 * time.Minute // how long a second use is noticed

func codeKey(code string) string { return "code:" + digest(code) }

func (s *Server) newCode(ctx context.Context, p pending, g Grant) (string, error) {
	code := "mcpp_ac_" + random()
	raw, err := json.Marshal(codeRecord{Grant: g.ID, Client: g.Client, Redirect: p.Redirect, Implied: p.Implied, Challenge: p.Challenge, Expires: s.now().Add(pendingFor)})
	if err != nil {
		return "", internal("making a code", err)
	}
	created, err := s.store.Create(ctx, codeKey(code), raw, spentKept)
	if err != nil || !created {
		return "", internal("making a code", err)
	}
	return code, nil
}

// exchange turns a code into tokens (RFC 6749 section 4.1.3). The client has
// proven itself already: a code is not used up by whom it was not made for.
func (s *Server) exchange(ctx context.Context, set *settings, c *Client, form url.Values) (*tokens, error) {
	code := form.Get("code")
	if code == "" {
		return nil, invalidRequest("code is missing")
	}
	rec, raw, ok, err := load[codeRecord](ctx, s.store, codeKey(code))
	switch {
	case err != nil:
		return nil, internal("reading a code", err)
	case !ok:
		return nil, invalidGrant("the code is not known or has expired")
	case rec.Client != c.ID:
		return nil, invalidGrant("the code was made for another client")
	}
	if rec.Spent {
		return nil, s.replayed(ctx, rec)
	}
	asked := form.Get("redirect_uri")
	if asked != rec.Redirect && !(asked == "" && rec.Implied) {
		return nil, invalidGrant("redirect_uri is not that of the authorization request")
	}
	if !proves(form.Get("code_verifier"), rec.Challenge) {
		return nil, invalidGrant("code_verifier is not that of the code_challenge")
	}
	if !s.now().Before(rec.Expires) {
		return nil, invalidGrant("the code has expired")
	}
	rec.Spent = true
	next, err := json.Marshal(rec)
	if err != nil {
		return nil, internal("using a code", err)
	}
	won, err := s.store.Swap(ctx, codeKey(code), raw, next, spentKept)
	if err != nil {
		return nil, internal("using a code", err)
	}
	if !won {
		return nil, s.replayed(ctx, rec)
	}
	g, old, ok, err := load[Grant](ctx, s.store, grantKey(rec.Grant))
	if err != nil {
		return nil, internal("reading a grant", err)
	}
	if !ok {
		return nil, invalidGrant("the sign-in has ended")
	}
	g.Used = s.now()
	// Ended in this moment means ended: writing fails then.
	if won, err = s.writeGrant(ctx, old, g, set.lives(g, g.Used)); err != nil {
		return nil, internal("writing a grant", err)
	}
	if !won {
		return nil, invalidGrant("the sign-in has ended")
	}
	s.log.InfoContext(ctx, "client signed in", "client", g.ClientName, "user", g.Person.ID, "scope", g.Scopes)
	return s.issue(ctx, set, g, g.Scopes)
}

// replayed ends what a code stood for, since one of the two who used it stole
// it.
func (s *Server) replayed(ctx context.Context, rec codeRecord) error {
	if _, err := s.endGrant(ctx, rec.Grant, "its code was used twice"); err != nil {
		return err
	}
	return invalidGrant("the code was used already; what it gave is not valid any more")
}

// proves checks a PKCE verifier (RFC 7636 section 4.6).
func proves(verifier, challenge string) bool {
	if len(verifier) < 43 || len(verifier) > 128 {
		return false
	}
	sum := sha256.Sum256([]byte(verifier))
	return same(base64.RawURLEncoding.EncodeToString(sum[:]), challenge)
}
