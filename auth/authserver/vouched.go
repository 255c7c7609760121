package authserver

import (
	"context"
	"net/url"
	"strings"
)

const (
	grantAssertion = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	profileIDJAG   = "urn:ietf:params:oauth:grant-profile:id-jag"
)

// vouched gives a client tokens for a person for whom the company's IdP
// vouches (Identity Assertion JWT Authorization Grant; RFC 7523 section 2.1).
// Only clients of the admin that have a secret may come so. There is no
// refresh token: the client gets another assertion, and with it the IdP says
// again that the person may.
func (s *Server) vouched(ctx context.Context, set *settings, c *Client, form url.Values) (*tokens, error) {
	if !c.Asserts || s.assert == nil {
		return nil, fail(400, "unauthorized_client", "this client may not bring assertions; the portal's admin sets id_jag of a client under auth.clients.static")
	}
	raw := form.Get("assertion")
	if raw == "" {
		return nil, invalidRequest("assertion is missing")
	}
	who, scope, err := s.assert(ctx, c.ID, raw)
	if err != nil {
		return nil, err
	}
	any := func(string) bool { return true } // what the person may use is judged with each call
	scopes := grantScopes(scope, any)
	if asked := form.Get("scope"); asked != "" {
		if less := grantScopes(asked, any); narrower(less, scopes) {
			scopes = less
		}
	}
	life := set.cfg.Auth.Tokens.Access
	now := s.now()
	g := Grant{ID: newGrantID(who.ID), Client: c.ID, ClientName: c.Name, Redirect: "through the identity provider", Scopes: scopes, Person: who, Created: now, Used: now}
	if created, err := s.writeGrant(ctx, nil, g, life); err != nil || !created {
		return nil, internal("writing a grant", err)
	}
	s.log.InfoContext(ctx, "client signed in by an assertion of the IdP", "client", c.Name, "user", who.ID, "scope", scopes)
	text := strings.Join(scopes, " ")
	access, err := s.mint(ctx, set, accessClaims{Subject: who.ID, Client: c.ID, Scope: text, Grant: g.ID}, life)
	if err != nil {
		return nil, err
	}
	return &tokens{Access: access, Type: "Bearer", Expires: int64(life.Seconds()), Scope: text}, nil
}
