package logins

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/mcp-portal/mcp-portal/auth/clientkey"
	"github.com/mcp-portal/mcp-portal/config"
)

// Grant types and token types (RFC 8693, RFC 7523,
// draft-ietf-oauth-identity-assertion-authz-grant).
const (
	grantExchange  = "urn:ietf:params:oauth:grant-type:token-exchange"
	grantJWTBearer = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	typePrefix     = "urn:ietf:params:oauth:token-type:"
	typeIDJAG      = typePrefix + "id-jag"
)

// machineFresh is how young a token is that another would not be better than.
const machineFresh = 5 * time.Second

// machineToken gives a token that nobody signs in for: the portal's own
// (client_credentials), or one made from the user's token of the IdP. They are
// kept in memory only, since they can be had again. old is one that the server
// refused.
func (l *Logins) machineToken(ctx context.Context, s config.Server, own, old string) (Credential, error) {
	if s.Auth.FromIDP() && own == "" {
		return Credential{}, &Needed{Server: s.ID, Reason: "its tools become known when a user calls it, since each needs a token of their own"}
	}
	key := recordKey(s.ID, own)
	have := func() (*record, bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		rec := l.machine[key]
		return rec, rec != nil && rec.valid(l.now())
	}
	rec, ok := have()
	if ok && rec.Access == old && l.now().Sub(rec.Begun) < machineFresh {
		return Credential{}, ErrHopeless
	}
	if ok && rec.Access != old {
		return Credential{Login: rec.ID, Token: rec.Access}, nil
	}
	if f, rests := l.rests(key); rests {
		return Credential{}, f
	}
	ch := l.flight.DoChan("machine:"+key, func() (any, error) {
		if rec, ok := have(); ok && rec.Access != old {
			return rec, nil
		}
		bg, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*refreshTimeout)
		defer cancel()
		t, err := l.obtain(bg, s, own)
		l.mu.Lock()
		defer l.mu.Unlock()
		if err != nil {
			l.failed[key] = failure{err, l.now()}
			return nil, err
		}
		rec := &record{ID: "machine", Access: t.Access, Expires: t.Expires, Begun: l.now()}
		if rec.Expires.IsZero() {
			rec.Expires = l.now().Add(5 * time.Minute)
		}
		if len(l.machine) >= 100_000 {
			clear(l.machine)
		}
		l.machine[key] = rec
		return rec, nil
	})
	select {
	case r := <-ch:
		if r.Err != nil {
			return Credential{}, r.Err
		}
		rec := r.Val.(*record)
		return Credential{Login: rec.ID, Token: rec.Access}, nil
	case <-ctx.Done():
		return Credential{}, fmt.Errorf("get a token for server %s: %w", s.ID, context.Cause(ctx))
	}
}

// obtain asks for a token, by the grant of the server's type.
func (l *Logins) obtain(ctx context.Context, s config.Server, own string) (*tokens, error) {
	var t *tokens
	var err error
	switch s.Auth.Type {
	case config.AuthClientCredentials:
		t, err = l.clientCredentials(ctx, s)
	case config.AuthTokenExchange:
		t, err = l.exchange(ctx, s, own)
	case config.AuthIDJAG:
		t, err = l.idJAG(ctx, s, own)
	default:
		err = fmt.Errorf("auth.type %s is not known", s.Auth.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("get a token for server %s (%s): %w", s.ID, s.Auth.Type, err)
	}
	return t, nil
}

func (l *Logins) clientCredentials(ctx context.Context, s config.Server) (*tokens, error) {
	d, err := l.discover(ctx, s)
	if err != nil {
		return nil, err
	}
	c := configured(s, d.meta)
	if s.Auth.ClientID == "" {
		if c, err = l.published(s, d.meta); err != nil {
			return nil, err
		}
	}
	form := url.Values{"grant_type": {"client_credentials"}}
	l.ask(s, d, form)
	return l.tokenRequest(ctx, s, d.meta.Token, c, form)
}

// ask adds scope and resource.
func (l *Logins) ask(s config.Server, d *discovered, form url.Values) {
	scopes := s.Auth.Scopes
	if len(scopes) == 0 {
		l.mu.Lock()
		scopes = l.asked[s.ID].scopes
		l.mu.Unlock()
	}
	if len(scopes) == 0 {
		scopes = d.scopes
	}
	if len(scopes) > 0 {
		form.Set("scope", join(scopes))
	}
	if r := d.parameter(s); r != "" {
		form.Set("resource", r)
	}
}

// subject is the user's token of the IdP.
func (l *Logins) subject(ctx context.Context, user, kind string) (string, error) {
	if l.subjects == nil {
		return "", errors.New("the portal keeps no tokens of the identity provider; set auth.mode: oidc and auth.client_id")
	}
	return l.subjects.SubjectToken(ctx, user, kind)
}

// idpClient is the portal as a client of the company IdP, or as the admin says
// for this server.
func (l *Logins) idpClient(m *serverMeta) (client, error) {
	a := l.config().Auth
	if a.PrivateKey != "" {
		key, err := clientkey.New(a.PrivateKey, a.PrivateKeyID)
		if err != nil {
			return client{}, fmt.Errorf("auth.%w", err)
		}
		return client{ID: a.ClientID, Method: clientkey.Method, Audience: audienceOf(a.AssertionAud, "token_endpoint", m.Issuer, m.Token), key: key}, nil
	}
	return client{ID: a.ClientID, Secret: a.ClientSecret.Reveal(), Method: methodFor(a.ClientSecret.Reveal(), m.AuthMethods)}, nil
}

// exchange trades the user's token for one of the server (RFC 8693), at the
// IdP or at the authorization server that the admin names.
func (l *Logins) exchange(ctx context.Context, s config.Server, user string) (*tokens, error) {
	kind := s.Auth.Subject
	token, err := l.subject(ctx, user, kind)
	if err != nil {
		return nil, err
	}
	issuer := s.Auth.Issuer
	if issuer == "" {
		issuer = l.config().Auth.Issuer
	}
	m, err := l.serverMetadata(ctx, s, issuer)
	if err != nil {
		return nil, err
	}
	c, err := l.idpClient(m)
	if err != nil {
		return nil, err
	}
	if s.Auth.ClientID != "" {
		c = configured(s, m)
	}
	form := url.Values{"grant_type": {grantExchange}, "subject_token": {token}, "subject_token_type": {typePrefix + kind}, "requested_token_type": {typePrefix + "access_token"}}
	if s.Auth.Audience != "" {
		form.Set("audience", s.Auth.Audience)
	}
	switch s.Auth.Resource {
	case "omit":
	case "", "auto":
		if s.Auth.Audience == "" {
			u, err := url.Parse(s.URL)
			if err != nil {
				return nil, errors.New("its url is not a URL")
			}
			form.Set("resource", canonical(u))
		}
	default:
		form.Set("resource", s.Auth.Resource)
	}
	if len(s.Auth.Scopes) > 0 {
		form.Set("scope", join(s.Auth.Scopes))
	}
	return l.tokenRequest(ctx, s, m.Token, c, form)
}

// idJAG has the IdP vouch for the user at the server's authorization server:
// an ID token becomes an assertion at the IdP, and that an access token there.
func (l *Logins) idJAG(ctx context.Context, s config.Server, user string) (*tokens, error) {
	token, err := l.subject(ctx, user, "id_token")
	if err != nil {
		return nil, err
	}
	d, err := l.discover(ctx, s)
	if err != nil {
		return nil, err
	}
	idp, err := l.serverMetadata(ctx, s, l.config().Auth.Issuer)
	if err != nil {
		return nil, err
	}
	form := url.Values{"grant_type": {grantExchange}, "requested_token_type": {typeIDJAG}, "subject_token": {token}, "subject_token_type": {typePrefix + "id_token"},
		"audience": {d.meta.Issuer}}
	l.ask(s, d, form)
	c, err := l.idpClient(idp)
	if err != nil {
		return nil, err
	}
	assertion, err := l.tokenRequest(ctx, s, idp.Token, c, form)
	if err != nil {
		return nil, fmt.Errorf("at the identity provider: %w", err)
	}
	if assertion.Issued != "" && assertion.Issued != typeIDJAG {
		return nil, fmt.Errorf("the identity provider gave a token of the type %s instead of an ID-JAG", show(assertion.Issued))
	}
	form = url.Values{"grant_type": {grantJWTBearer}, "assertion": {assertion.Access}}
	if len(s.Auth.Scopes) > 0 {
		form.Set("scope", join(s.Auth.Scopes))
	}
	t, err := l.tokenRequest(ctx, s, d.meta.Token, configured(s, d.meta), form)
	if err != nil {
		return nil, fmt.Errorf("at the server's authorization server: %w", err)
	}
	return t, nil
}
