package auth

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/mcp-portal/mcp-portal/auth/authserver"
)

// Server is the portal's own authorization server, for the router and the
// pages: its addresses, the request that waits for a person, their grants.
func (a *Auth) Server() *authserver.Server { return a.server }

// OnSignOut adds what else ends when a person signs out, such as their logins
// at upstream servers. An error makes the sign-out fail visibly. Call it
// before requests are served.
func (a *Auth) OnSignOut(f func(ctx context.Context, user string) error) {
	a.hooks.Lock()
	defer a.hooks.Unlock()
	a.signOut = append(a.signOut, f)
}

// PersonOf describes a signed-in principal to the authorization server.
func PersonOf(p *Principal) authserver.Person {
	return authserver.Person{ID: p.ID, Name: p.Name, Email: p.Email, Groups: p.Groups}
}

// machine judges the credentials of client_credentials.
func (a *Auth) machine(r *http.Request, id, secret string) (expires time.Time, err error) {
	p, err := a.state.Load().serviceToken(r, secret, a.now())
	if err != nil {
		return time.Time{}, err
	}
	if p.ID != "svc:"+id {
		return time.Time{}, badToken("the service token is another machine's", "send its own id as client_id", nil)
	}
	return p.Expires, nil
}

func (a *Auth) serverPage(w http.ResponseWriter, r *http.Request, status int, title, text string) {
	a.page(w, r, page{Status: status, Title: title, Text: text})
}

// ServerErrorPage shows a person an error of the authorization server.
func (a *Auth) ServerErrorPage(w http.ResponseWriter, r *http.Request, err error) {
	var e *authserver.Error
	if !errors.As(err, &e) {
		a.ErrorPage(w, r, err)
		return
	}
	status := e.Status
	if status == 401 {
		status = 400
	}
	if status >= 500 {
		a.log.ErrorContext(r.Context(), "sign-in of a client failed", "path", r.URL.Path, "error", err)
	}
	a.page(w, r, page{Status: status, Title: "Not possible", Text: sentence(e.Description), Link: "/", LinkText: "Go to the home page"})
}

// NeedScope is the refusal of a call that the token's scopes do not cover but
// another token of the same person could make: the challenge names all scopes
// to ask for, those it has and the missing one (MCP authorization, step-up).
func NeedScope(p *Principal, server string) *Error {
	scopes := make([]string, 0, len(p.Scope)+1)
	for _, id := range append(p.Scope[:len(p.Scope):len(p.Scope)], server) {
		scopes = append(scopes, authserver.ScopeServer+id)
	}
	return &Error{Status: 403, Code: CodeInsufficientScope, Description: "the access token is for other servers than " + server,
		Next: "sign in again with the scopes of this challenge", Scopes: scopes}
}
