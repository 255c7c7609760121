package auth

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
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
		return s.serviceToken(token, a.now())
	}
	return s.accessToken(r.Context(), token, a.now())
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
	a.log.InfoContext(r.Context(), "request refused", "path", r.URL.Path, "remote", r.RemoteAddr, "error", err)
}
