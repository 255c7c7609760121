package authserver

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// accessClaims are those of RFC 9068 section 2.2 and the grant behind them.
type accessClaims struct {
	Issuer   string `json:"iss"`
	Subject  string `json:"sub"`
	Audience string `json:"aud"`
	Expires  int64  `json:"exp"`
	Issued   int64  `json:"iat"`
	ID       string `json:"jti"`
	Client   string `json:"client_id"`
	Scope    string `json:"scope"`
	Grant    string `json:"gid,omitempty"` // none: a machine
}

const tokenType = "at+jwt"

// mint signs an access token.
func (s *Server) mint(ctx context.Context, set *settings, c accessClaims, life time.Duration) (string, error) {
	key, err := s.keys.current(ctx, s)
	if err != nil {
		return "", internal("signing an access token", err)
	}
	now := s.now()
	c.Issuer, c.Audience, c.ID = set.origin, set.resource(), random()
	c.Issued, c.Expires = now.Unix(), now.Add(life).Unix()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key.private},
		(&jose.SignerOptions{}).WithType(tokenType).WithHeader(jose.HeaderKey("kid"), key.ID))
	if err != nil {
		return "", internal("signing an access token", err)
	}
	raw, err := jwt.Signed(signer).Claims(c).Serialize()
	if err != nil {
		return "", internal("signing an access token", err)
	}
	return raw, nil
}

// Token is an access token that holds.
type Token struct {
	Machine string // id of the service token; empty: a person's
	Person  Person
	Client  string // client_id
	Grant   string // id of the grant
	Scopes  []string
	Expires time.Time
}

// Verify judges an access token of this server: signature, type, issuer,
// audience, time, and whether the person's grant still stands. Errors are
// *Error: invalid_token with 401, or 503.
func (s *Server) Verify(ctx context.Context, raw string) (*Token, error) {
	set := s.state.Load()
	if set.origin == "" {
		return nil, badToken("the portal issues no tokens now", nil)
	}
	c, err := s.claims(ctx, set, raw)
	if err != nil {
		return nil, err
	}
	t := &Token{Client: c.Client, Grant: c.Grant, Scopes: strings.Fields(c.Scope), Expires: time.Unix(c.Expires, 0)}
	if c.Grant == "" {
		id, ok := strings.CutPrefix(c.Subject, "svc:")
		if !ok || id == "" {
			return nil, badToken("the token belongs to no sign-in", nil)
		}
		t.Machine = id
		return t, nil
	}
	if !set.takes(c.Client) {
		return nil, badToken("the client that the token was made for may not be used here any more", nil)
	}
	g, ok, err := s.active(ctx, c.Grant)
	if err != nil {
		return nil, err
	}
	if !ok || g.Person.ID != c.Subject || g.Client != c.Client {
		return nil, badToken("the sign-in that the token belongs to has ended", nil)
	}
	t.Person = g.Person
	return t, nil
}

func (s *Server) claims(ctx context.Context, set *settings, raw string) (c accessClaims, err error) {
	tok, err := jwt.ParseSigned(raw, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil || len(tok.Headers) != 1 {
		return c, badToken("the token is not one that the portal made", err)
	}
	key, ok, err := s.keys.find(ctx, s, tok.Headers[0].KeyID)
	switch {
	case err != nil:
		return c, internal("reading the signing keys", err)
	case !ok:
		return c, badToken("the token is signed with a key that is not known", nil)
	}
	if err := tok.Claims(&key.private.PublicKey, &c); err != nil {
		return c, badToken("the token does not hold", err)
	}
	now := s.now().Unix()
	switch typ, _ := tok.Headers[0].ExtraHeaders[jose.HeaderType].(string); {
	case typ != tokenType:
		return c, badToken("the token is of a kind that is not accepted here", nil)
	case c.Issuer != set.origin || c.Audience != set.resource():
		return c, badToken("the token was made for another portal", nil)
	case now >= c.Expires:
		return c, badToken("the token has expired", nil)
	case c.Subject == "":
		return c, badToken("the token names nobody", nil)
	}
	return c, nil
}

func badToken(what string, cause error) *Error {
	return &Error{Status: 401, Code: "invalid_token", Description: what, cause: cause}
}

// tokens is RFC 6749 section 5.1.
type tokens struct {
	Access  string `json:"access_token"`
	Type    string `json:"token_type"`
	Expires int64  `json:"expires_in"`
	Refresh string `json:"refresh_token,omitempty"`
	Scope   string `json:"scope"`
}

// issue makes the tokens of a grant that was just used.
func (s *Server) issue(ctx context.Context, set *settings, g Grant, scopes []string) (*tokens, error) {
	life := min(set.cfg.Auth.Tokens.Access, set.lives(g, s.now()))
	if life < time.Second {
		return nil, invalidGrant("the sign-in is over; sign in again")
	}
	scope := strings.Join(scopes, " ")
	access, err := s.mint(ctx, set, accessClaims{Subject: g.Person.ID, Client: g.Client, Scope: scope, Grant: g.ID}, life)
	if err != nil {
		return nil, err
	}
	refresh, err := s.newRefresh(ctx, set, g)
	if err != nil {
		return nil, fmt.Errorf("issuing tokens: %w", err)
	}
	return &tokens{Access: access, Type: "Bearer", Expires: int64(life / time.Second), Refresh: refresh, Scope: scope}, nil
}
