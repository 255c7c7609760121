package auth

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/mcp-portal/mcp-portal/auth/authserver"
)

// Authenticate says who sends a request to /mcp or an API. The credential
// decides by its shape who judges it; no verifier is tried after another one
// has refused. Cookies count for nothing here. Every error is an *Error: give
// it to Challenge.
func (a *Auth) Authenticate(r *http.Request) (*Principal, error) {
	s := a.state.Load()
	p, err := a.authenticate(s, r)
	if err == nil {
		err = s.admit(p)
	}
	if err != nil {
		a.logRefusal(r, err)
		return nil, err
	}
	return p, nil
}

func (a *Auth) authenticate(s *settings, r *http.Request) (*Principal, error) {
	if s.dev {
		return s.devPrincipal(), nil
	}
	token, refused := bearer(r)
	switch {
	case refused != nil:
		return nil, refused
	case token == "":
		return nil, noToken()
	case strings.HasPrefix(token, servicePrefix):
		return s.serviceToken(r, token, a.now())
	}
	return a.jwt(r, s, token)
}

// jwt judges a token by who says that it issued it.
func (a *Auth) jwt(r *http.Request, s *settings, token string) (*Principal, error) {
	ctx := r.Context()
	_, body, err := peekJWT(token)
	if err != nil {
		return nil, badToken("this is no access token that the portal can read; it takes its own, service tokens and, where set up, signed JWTs of its IdP",
			"get a new access token from the authorization server named in resource_metadata", err)
	}
	iss := body.text("iss")
	switch job := s.jobOf(iss); {
	case s.portal && iss == s.origin.String():
		return a.portalToken(r, s, token)
	case job:
		return s.workloadToken(ctx, iss, token, a.now())
	case s.direct:
		return s.accessToken(ctx, token, a.now())
	}
	return nil, badToken("the token is from another issuer", signInAgain, fmt.Errorf("iss is %s; accepted are tokens of the portal itself", short(iss)))
}

// portalToken judges an access token that the portal issued.
func (a *Auth) portalToken(r *http.Request, s *settings, token string) (*Principal, error) {
	t, err := a.server.Verify(r.Context(), token)
	var e *authserver.Error
	switch {
	case errors.As(err, &e) && e.Status == 401:
		return nil, badToken(e.Description, "use the refresh token, or sign in again at the authorization server named in resource_metadata", e.Unwrap())
	case errors.As(err, &e) && e.Status == 503:
		return nil, unavailable("the portal cannot reach its store, so it cannot check now whether the sign-in still holds", failureBackoff, err)
	case err != nil:
		return nil, fmt.Errorf("checking an access token: %w", err)
	case t.Machine != "":
		return s.serviceByID(r, t.Machine, t.Expires, a.now())
	}
	if iss, _, _ := strings.Cut(t.Person.ID, "|"); iss != s.idp.issuer {
		return nil, badToken("the sign-in was at another identity provider than the portal has now", "sign in again", nil)
	}
	p := person(t.Person)
	p.Expires, p.Client, p.Grant, p.Scope = t.Expires, t.Client, t.Grant, authserver.ServersOf(t.Scopes)
	return p, nil
}

// person is the principal of somebody who signed in at the IdP.
func person(w authserver.Person) *Principal {
	return &Principal{ID: w.ID, Kind: KindUser, Name: w.Name, Email: w.Email, Groups: slices.Clone(w.Groups)}
}

// admit applies auth.allow_groups.
func (s *settings) admit(p *Principal) error {
	allow := s.cfg.Auth.AllowGroups
	if len(allow) == 0 || p.InGroup(allow...) {
		return nil
	}
	e := denied("you are signed in, but in none of the groups that may use this portal",
		"ask the portal's admin for access; signing in again does not help unless your groups have changed")
	switch {
	case p.Kind == KindService:
		e.Next = "ask the portal's admin to add one of auth.allow_groups to the groups of this service token"
	case p.Kind == KindDev:
		e.Next = "add one of auth.allow_groups to auth.dev_groups"
	case len(p.Groups) == 0:
		e.Description = fmt.Sprintf("you are signed in, but the IdP says of no group that you are in it (claim %q), and this portal is for members of certain groups", s.groups)
	}
	return e
}

// logRefusal keeps the ordinary first request of every client, which has no
// token yet, out of the log.
func (a *Auth) logRefusal(r *http.Request, err error) {
	var e *Error
	if errors.As(err, &e) && e.Code == "" {
		return
	}
	a.log.InfoContext(r.Context(), "request refused", "path", r.URL.Path, "remote", a.remote(r), "error", err)
}
