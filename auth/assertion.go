package auth

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/mcp-portal/mcp-portal/auth/authserver"
)

const (
	typeIDJAG       = "oauth-id-jag+jwt"
	assertionLonger = time.Hour // no assertion may hold longer: its id is kept so long
)

// assertion judges an Identity Assertion JWT Authorization Grant: signed by
// the IdP, for this authorization server alone, for the client that brings it,
// and brought once.
func (a *Auth) assertion(ctx context.Context, client, raw string) (authserver.Person, string, error) {
	s := a.state.Load()
	none := authserver.Person{}
	bad := func(what string, cause error) error {
		if cause != nil {
			a.log.InfoContext(ctx, "assertion refused", "client", client, "error", cause)
		}
		return &authserver.Error{Status: 400, Code: "invalid_grant", Description: "the assertion " + what}
	}
	head, _, err := peekJWT(raw)
	if err != nil || head.Typ != typeIDJAG {
		return none, "", bad("is not of type "+typeIDJAG, err)
	}
	if s.idp == nil {
		return none, "", bad("cannot be judged without an identity provider", nil)
	}
	c, err := s.idp.verified(ctx, raw, &oidc.Config{SkipClientIDCheck: true})
	if errors.Is(err, errKeysDown) {
		return none, "", &authserver.Error{Status: 503, Code: "temporarily_unavailable", Description: "the portal cannot reach its identity provider now; try again shortly"}
	}
	if err != nil {
		return none, "", bad("does not hold", err)
	}
	aud, err := c.texts("aud")
	if err != nil || len(aud) != 1 || canonicalAudience(aud[0]) != canonicalAudience(s.origin.String()) {
		return none, "", bad("is not for this authorization server alone; its aud must be "+s.origin.String(), err)
	}
	if c.text("client_id") != client {
		return none, "", bad("was made for another client", nil)
	}
	resources, err := c.texts("resource")
	if err != nil {
		return none, "", bad("is malformed", err)
	}
	for _, r := range resources {
		if r := canonicalAudience(r); r != canonicalAudience(s.origin.String()) && r != canonicalAudience(s.resource()) {
			return none, "", bad("is for another resource; this portal's is "+s.resource(), nil)
		}
	}
	now := a.now()
	expires, err := s.checkTimes(c, now)
	if err != nil {
		return none, "", bad("is not in time: "+err.Error(), nil)
	}
	jti := c.text("jti")
	if jti == "" || expires.Sub(now) > assertionLonger {
		return none, "", bad("has no jti, or holds for more than an hour", nil)
	}
	who, err := a.assertedPerson(ctx, s, c, expires)
	if err != nil {
		var e *Error
		if errors.As(err, &e) && e.Status == 403 {
			return none, "", &authserver.Error{Status: 400, Code: "access_denied", Description: e.Description}
		}
		return none, "", err
	}
	fresh, err := a.store.Create(ctx, "assertion:"+digest(s.idp.issuer+"|"+jti), []byte("1"), expires.Add(s.skew).Sub(now)+time.Second)
	if err != nil {
		return none, "", fmt.Errorf("keeping an assertion's id: %w", err)
	}
	if !fresh {
		return none, "", bad("was used already", nil)
	}
	return who, c.text("scope"), nil
}

// assertedPerson is whom the assertion is about, with the groups that it names
// or, if it names none, those of their last sign-in.
func (a *Auth) assertedPerson(ctx context.Context, s *settings, c claims, expires time.Time) (authserver.Person, error) {
	groups, found, err := c.groupsAt(s.groups)
	if err != nil {
		return authserver.Person{}, s.groupsError(err)
	}
	p, err := c.principal(s.idp.issuer, groups, expires)
	if err != nil {
		return authserver.Person{}, &authserver.Error{Status: 400, Code: "invalid_grant", Description: "the assertion names nobody"}
	}
	if !found {
		rec, _, _, err := a.loadPerson(ctx, p.ID)
		if err != nil {
			return authserver.Person{}, err
		}
		if !rec.Ended && a.now().Sub(rec.Read) < personStale {
			p.Groups = rec.Person.Groups
		}
	}
	return PersonOf(p), s.admit(p)
}
