package upstreams

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/mcp-portal/mcp-portal/upstreams/logins"
)

// Credentials authorize requests to servers that use OAuth; *logins.Logins is
// one. User "" is the portal itself.
type Credentials interface {
	Current(ctx context.Context, server, user string) (logins.Credential, error)
	Refused(ctx context.Context, server, user string, c logins.Credential, status int, h http.Header) (logins.Credential, error)
	Accepted(server, user string, c logins.Credential)
}

// authorizer puts the token of one user on the requests of one session. Nil:
// the server uses no OAuth.
type authorizer struct {
	from         Credentials
	server, user string

	mu    sync.Mutex
	login string   // the session's; it serves no other
	used  []string // tokens of late, to keep them out of texts
	taken string   // the token that the server last took
}

// kept is how many tokens are kept out of texts: those before the present one
// may be on their way still.
const kept = 4

func (s *server) authorizer(user string) *authorizer {
	if !s.cfg.Auth.Used() {
		return nil
	}
	return &authorizer{from: s.opts.Credentials, server: s.cfg.ID, user: user}
}

// tokens are those used of late.
func (a *authorizer) tokens() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.used...)
}

func (a *authorizer) note(token string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := len(a.used); n > 0 && a.used[n-1] == token {
		return
	}
	if a.used = append(a.used, token); len(a.used) > kept {
		a.used = a.used[1:]
	}
}

// sign authorizes a request with the present token.
func (a *authorizer) sign(r *http.Request, p *peer) error {
	if a == nil {
		return nil
	}
	c, err := a.from.Current(r.Context(), a.server, a.user)
	if err != nil {
		return p.unauthorized(err)
	}
	if !a.mine(c) {
		return p.fail("", KindLogin, false, errGone, "the session belongs to an earlier sign-in")
	}
	a.put(r, c)
	return nil
}

// mine reports whether a credential is of the login that the session was begun
// with. Another login may be another account at the server.
func (a *authorizer) mine(c logins.Credential) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.login == "" {
		a.login = c.Login
	}
	return a.login == c.Login
}

type credentialKey struct{}

func (a *authorizer) put(r *http.Request, c logins.Credential) {
	a.note(c.Token)
	r.Header.Set("Authorization", "Bearer "+c.Token)
	*r = *r.WithContext(context.WithValue(r.Context(), credentialKey{}, c))
}

// refused looks at an answer. A request that the server refused for its token
// may be sent again with next; an error says why that would be of no use. With
// neither the answer is to be taken as it is.
func (a *authorizer) refused(r *http.Request, resp *http.Response, p *peer) (next *logins.Credential, err error) {
	if a == nil {
		return nil, nil
	}
	used, _ := r.Context().Value(credentialKey{}).(logins.Credential)
	if resp.StatusCode < http.StatusBadRequest {
		a.accepted(used)
	}
	if resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden {
		return nil, nil
	}
	c, err := a.from.Refused(r.Context(), a.server, a.user, used, resp.StatusCode, resp.Header)
	switch {
	case errors.Is(err, logins.ErrHopeless):
		return nil, nil
	case err != nil:
		e := p.unauthorized(err)
		e.Problem.HTTPStatus = resp.StatusCode
		return nil, e
	}
	if !a.mine(c) {
		return nil, p.fail("", KindLogin, false, errGone, "the session belongs to an earlier sign-in")
	}
	return &c, nil
}

// accepted notes a token that the server took.
func (a *authorizer) accepted(c logins.Credential) {
	a.mu.Lock()
	known := a.taken == c.Token
	a.taken = c.Token
	a.mu.Unlock()
	if !known {
		a.from.Accepted(a.server, a.user, c)
	}
}

// resend decides on a request that was refused for its token and was sent again
// so many times before: whether it goes out once more with next. An error says
// that the login is kept although the server does not take its token.
func (p *peer) resend(next *logins.Credential, resent, status int) (bool, error) {
	switch {
	case next == nil:
		return false, nil
	case resent == 0, next.Wait > 0 && resent < maxResends:
		return true, nil
	case next.Wait > 0:
		return false, p.notYet(status)
	}
	return false, nil
}

// other reports whether the session was begun with another login.
func (a *authorizer) other(present string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.login != "" && a.login != present
}

// unauthorized is the error of a request that could not be authorized. It was
// not carried out.
func (p *peer) unauthorized(err error) *CallError {
	var need *logins.Needed
	if errors.As(err, &need) {
		return &CallError{Server: p.server, Err: err, Problem: Problem{Kind: KindLogin, Message: p.clean(need.Text())}}
	}
	return p.fail("", KindAuth, false, err, "%v", err)
}

// notYet is the error of a request whose token the server refuses although it
// was renewed a moment ago. The login stays.
func (p *peer) notYet(status int) *CallError {
	e := p.fail("", KindAuth, false, nil, "the server refuses the token that was renewed a moment ago. The sign-in is kept: make the call again shortly. If it stays so, sign out of the server and in again on the portal's page of servers")
	e.Problem.HTTPStatus = status
	return e
}

// fetch sends a request without a body, and again with another token if its own
// was refused.
func (c *streamable) fetch(r *http.Request) (*http.Response, error) {
	for resent := 0; ; resent++ {
		resp, err := c.client.Do(r)
		if err != nil {
			return nil, err
		}
		next, err := c.auth.refused(r, resp, c.peer)
		again := false
		if err == nil {
			again, err = c.peer.resend(next, resent, resp.StatusCode)
		}
		if err == nil && !again {
			return resp, nil
		}
		resp.Body.Close()
		if err == nil {
			err = pauseFor(r.Context(), next.Wait)
		}
		if err != nil {
			return nil, err
		}
		r = r.Clone(r.Context())
		c.auth.put(r, *next)
	}
}
