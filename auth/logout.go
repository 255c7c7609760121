package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

// Logout ends a person's sign-in (POST /auth/logout with the CSRF token): what
// they allowed their clients, what OnSignOut names, the tokens that the IdP
// gave, the browser session, and then, if the IdP offers it, the session there
// (OpenID Connect RP-Initiated Logout 1.0). Should one of the first fail, the
// session stays, so that it can be tried again.
func (a *Auth) Logout(w http.ResponseWriter, r *http.Request) {
	s := a.state.Load()
	if !allowMethod(w, r, http.MethodPost) {
		return
	}
	if err := a.CheckCSRF(r); err != nil {
		a.ErrorPage(w, r, err)
		return
	}
	if s.dev {
		a.page(w, r, page{Status: 200, Title: "Development mode", Text: "There is no sign-in in development mode, so there is nothing to sign out of.", Link: "/", LinkText: "Go to the home page"})
		return
	}
	who, _, err := a.Session(r)
	if err != nil {
		a.ErrorPage(w, r, err)
		return
	}
	_, tok, _, err := a.loadPerson(r.Context(), who.ID)
	if err == nil {
		err = a.endPerson(r.Context(), s, who.ID, "the person signed out", false)
	}
	if err == nil {
		err = a.endSession(r, s)
	}
	if err != nil {
		a.ServerErrorPage(w, r, err)
		return
	}
	http.SetCookie(w, s.cookie(sessionCookie, "", 0))
	a.log.InfoContext(r.Context(), "signed out", "user", who.ID)
	if to := s.endSessionURL(tok); to != "" {
		redirect(w, r, to)
		return
	}
	a.page(w, r, page{Status: 200, Title: "Signed out", Text: "You are signed out of this portal, and so are your clients. You may still be signed in at " + s.issuerHost() + ".", Link: "/auth/login", LinkText: "Sign in again"})
}

// endPerson ends all that hangs on a person's sign-in; with sessions also
// every browser session that they have now.
func (a *Auth) endPerson(ctx context.Context, s *settings, user, why string, sessions bool) error {
	if err := a.server.EndAll(ctx, user, why); err != nil {
		return err
	}
	a.hooks.Lock()
	hooks := a.signOut
	a.hooks.Unlock()
	for _, f := range hooks {
		if err := f(ctx, user); err != nil {
			return fmt.Errorf("signing out: %w", err)
		}
	}
	if !sessions {
		if err := a.store.Delete(ctx, personKey(user)); err != nil {
			return storeError("forgetting tokens of the IdP", err)
		}
		return nil
	}
	rec, _, _, err := a.loadPerson(ctx, user)
	if err != nil {
		return err
	}
	rec.Person.ID, rec.Ended, rec.Out = user, true, a.now()
	return a.savePerson(ctx, s, rec, idpTokens{})
}

// endSessionURL is where the IdP ends its session. Nothing tells it to send
// the browser back, since that address would have to be registered there.
func (s *settings) endSessionURL(tok idpTokens) string {
	good, _ := s.idp.peek()
	if good == nil || good.meta.EndSession == "" || s.idp.checkEndpoint(good.meta.EndSession) != nil {
		return ""
	}
	u, err := url.Parse(good.meta.EndSession)
	if err != nil {
		return ""
	}
	q := u.Query()
	q.Set("client_id", s.cfg.Auth.ClientID)
	if tok.ID != "" {
		q.Set("id_token_hint", tok.ID)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// logoutEvent marks a logout token (OpenID Connect Back-Channel Logout 1.0
// section 2.4).
const logoutEvent = "http://schemas.openid.net/event/backchannel-logout"

// BackChannelLogout is where the IdP says that it ended a person's sign-in
// (POST /auth/backchannel-logout). All that hangs on it here ends as well. The
// token names the subject or the session at the IdP; one whose session is not
// known here has nothing left to end.
func (a *Auth) BackChannelLogout(w http.ResponseWriter, r *http.Request) {
	s := a.state.Load()
	w.Header().Set("Cache-Control", "no-store")
	if !allowMethod(w, r, http.MethodPost) {
		return
	}
	if s.dev || s.cfg.Auth.ClientID == "" {
		writeError(w, &Error{Status: 404, Code: CodeInvalidRequest, Description: "there is no sign-in at an identity provider here"})
		return
	}
	r.Body = http.MaxBytesReader(nil, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		writeError(w, badRequest("the form cannot be read", "send logout_token as a form"))
		return
	}
	user, err := a.loggedOut(r.Context(), s, r.PostForm.Get("logout_token"))
	if err == nil && user != "" {
		err = a.endPerson(r.Context(), s, user, "the identity provider ended the sign-in", true)
	}
	var e *Error
	switch {
	case errors.As(err, &e):
		a.log.WarnContext(r.Context(), "logout token refused", "remote", a.remote(r), "error", err)
		writeError(w, e)
	case err != nil:
		a.log.ErrorContext(r.Context(), "back-channel logout failed", "error", err)
		writeError(w, &Error{Status: 500, Code: CodeInternal, Description: "the portal failed to do this; its log says why"})
	default:
		w.WriteHeader(http.StatusOK)
	}
}

// loggedOut gives whose sign-in has ended; nobody's: "".
func (a *Auth) loggedOut(ctx context.Context, s *settings, raw string) (user string, err error) {
	bad := func(what string) error {
		return badRequest("the logout token "+what, "see the settings of this client at the IdP")
	}
	head, _, err := peekJWT(raw)
	if err != nil {
		return "", bad("cannot be read")
	}
	if head.Typ != "" && head.Typ != "logout+jwt" && head.Typ != "JWT" {
		return "", bad("is of another kind")
	}
	c, err := s.idp.verified(ctx, raw, &oidc.Config{ClientID: s.cfg.Auth.ClientID})
	if errors.Is(err, errKeysDown) {
		return "", idpUnavailable(err)
	}
	if err != nil {
		e := badRequest("the logout token does not hold", "see the portal's log")
		e.cause = err
		return "", e
	}
	events, _ := c["events"].(map[string]any)
	if _, ok := events[logoutEvent].(map[string]any); !ok || c.has("nonce") {
		return "", bad("is none")
	}
	iat, ok, err := c.time("iat")
	if now := a.now(); err != nil || !ok || now.Sub(iat) > 5*time.Minute || iat.Sub(now) > 5*time.Minute {
		return "", bad("is too old or has no time")
	}
	if exp, ok, err := c.time("exp"); err != nil || ok && !a.now().Before(exp.Add(s.skew)) {
		return "", bad("has expired")
	}
	jti := c.text("jti")
	if jti == "" {
		return "", bad("has no jti")
	}
	sid := c.text("sid")
	sub, err := c.subject()
	if err != nil && (c.has("sub") || sid == "") {
		return "", bad("names neither a subject nor a session; let the IdP put sub or sid into it")
	}
	marker, err := json.Marshal(a.now())
	if err != nil {
		return "", fmt.Errorf("keeping a logout token's id: %w", err)
	}
	fresh, err := a.store.Create(ctx, "logout:"+digest(jti), marker, 15*time.Minute)
	if err != nil {
		return "", storeError("keeping a logout token's id", err)
	}
	if !fresh {
		return "", bad("was used already")
	}
	if sub != "" {
		return s.idp.issuer + "|" + sub, nil
	}
	whose, _, err := a.store.Take(ctx, idpSessionKey(s.idp.issuer, sid))
	if err != nil {
		return "", storeError("finding whose session at the IdP ended", err)
	}
	return string(whose), nil
}
