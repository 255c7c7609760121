package auth

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

var errStateTaken = errors.New("the new state is taken")

// Callback is where the IdP sends the browser back to (GET /auth/callback). It
// accepts an answer once, from the browser that began the sign-in, and begins
// a new session.
func (a *Auth) Callback(w http.ResponseWriter, r *http.Request) {
	s := a.state.Load()
	if !allowMethod(w, r, http.MethodGet) {
		return
	}
	if s.dev {
		redirect(w, r, "/")
		return
	}
	q := r.URL.Query()
	txn, err := a.takeLogin(r, s, q)
	if err != nil {
		a.loginFailed(w, r, err)
		return
	}
	in, err := a.exchange(r.Context(), s, txn, q)
	if err == nil {
		err = s.admit(in.who)
	}
	if err == nil {
		err = a.keepPerson(r.Context(), s, in)
	}
	if err == nil {
		err = a.startSession(w, r, s, in)
	}
	if err != nil {
		a.loginFailed(w, r, err)
		return
	}
	a.log.InfoContext(r.Context(), "signed in", "user", in.who.ID)
	redirect(w, r, txn.ReturnTo)
}

// takeLogin finds the sign-in that the answer belongs to. Who else's it is
// must not matter: an attacker who lets a victim's browser open the callback
// of the attacker's own sign-in would sign the victim in as the attacker.
func (a *Auth) takeLogin(r *http.Request, s *settings, q url.Values) (*loginTxn, error) {
	for _, name := range []string{"state", "code", "error", "iss"} {
		if len(q[name]) > 1 {
			return nil, badRequest("the answer of the identity provider names "+name+" twice", "sign in again")
		}
	}
	state, bind := q.Get("state"), s.readCookie(r, loginCookie)
	if !isRandom(state) {
		return nil, badRequest("this address is only for the way back from the identity provider", "sign in again")
	}
	if bind == "" {
		return nil, badRequest("this sign-in was not begun in this browser, or more than ten minutes ago", "sign in again")
	}
	raw, ok, err := a.store.Take(r.Context(), loginKey(state))
	if err != nil {
		return nil, storeError("finding the sign-in under way", err)
	}
	if !ok {
		return nil, badRequest("this sign-in is over: it was used already or took more than ten minutes", "sign in again")
	}
	var txn loginTxn
	if err := json.Unmarshal(raw, &txn); err != nil {
		return nil, fmt.Errorf("finding the sign-in under way: %w", err)
	}
	if subtle.ConstantTimeCompare([]byte(txn.Bind), []byte(digest(bind))) != 1 {
		return nil, badRequest("this sign-in was not begun in this browser", "sign in again")
	}
	if txn.Issuer != s.idp.issuer || txn.ClientID != s.cfg.Auth.ClientID {
		return nil, badRequest("the portal's sign-in settings changed meanwhile", "sign in again")
	}
	return &txn, nil
}

// signedIn is a sign-in at the IdP that succeeded.
type signedIn struct {
	who    *Principal
	tokens idpTokens
	sid    string // of the session at the IdP, if it has told
}

// exchange turns the answer of the IdP into a principal.
func (a *Auth) exchange(ctx context.Context, s *settings, txn *loginTxn, q url.Values) (*signedIn, error) {
	idp, err := s.idp.current(ctx)
	if err != nil {
		return nil, idpUnavailable(err)
	}
	// RFC 9207: an answer that another server sent is not for us.
	if iss := q.Get("iss"); (iss != "" || idp.meta.IssParam) && iss != s.idp.issuer {
		return nil, badRequest("the answer is not from the identity provider that was asked", "sign in again")
	}
	if q.Get("error") != "" {
		return nil, &idpAnswer{code: q.Get("error"), text: q.Get("error_description")}
	}
	if q.Get("code") == "" {
		return nil, badRequest("the answer of the identity provider holds neither a code nor an error", "sign in again")
	}
	ctx = s.atIDP(ctx, idp)
	tok, err := s.oauth(idp).Exchange(ctx, q.Get("code"), oauth2.VerifierOption(txn.Verifier))
	if err != nil {
		return nil, exchangeError(err)
	}
	raw, _ := tok.Extra("id_token").(string)
	if raw == "" {
		return nil, &idpAnswer{code: "no_id_token", text: "the identity provider sent no ID token"}
	}
	now := a.now()
	c, err := s.idp.verified(ctx, raw, &oidc.Config{ClientID: txn.ClientID})
	if errors.Is(err, errKeysDown) {
		return nil, idpUnavailable(err)
	}
	if err != nil {
		return nil, badIDToken(err)
	}
	if subtle.ConstantTimeCompare([]byte(c.text("nonce")), []byte(txn.Nonce)) != 1 {
		return nil, badIDToken(errors.New("its nonce is not that of this sign-in"))
	}
	if aud, err := c.texts("aud"); err != nil || (len(aud) > 1 && !c.has("azp")) || (c.has("azp") && c.text("azp") != txn.ClientID) {
		return nil, badIDToken(errors.New("it was made for another client"))
	}
	if _, err := s.checkTimes(c, now); err != nil {
		return nil, badIDToken(err)
	}
	p, err := s.fromIDToken(ctx, idp, tok, c)
	if err != nil {
		return nil, err
	}
	return &signedIn{who: p, sid: c.text("sid"), tokens: idpTokens{ClientID: txn.ClientID, Access: tok.AccessToken, Refresh: tok.RefreshToken, ID: raw, Expires: a.expires(tok)}}, nil
}

// fromIDToken reads who signed in. IdPs that keep ID tokens small give the
// groups at the userinfo endpoint only (OpenID Connect Core 1.0 section 5.4).
func (s *settings) fromIDToken(ctx context.Context, idp *idpState, tok *oauth2.Token, c claims) (*Principal, error) {
	groups, found, err := c.groupsAt(s.groups)
	if err != nil {
		return nil, s.groupsError(err)
	}
	if !found && idp.provider.UserInfoEndpoint() != "" {
		more, err := userInfo(ctx, idp, tok, c.text("sub"))
		if err != nil {
			return nil, err
		}
		if groups, _, err = more.groupsAt(s.groups); err != nil {
			return nil, s.groupsError(err)
		}
		for _, name := range []string{"name", "preferred_username", "email"} {
			if !c.has(name) && more.has(name) {
				c[name] = more[name]
			}
		}
	}
	p, err := c.principal(s.idp.issuer, groups, tok.Expiry)
	if err != nil {
		return nil, badIDToken(err)
	}
	return p, nil
}

func userInfo(ctx context.Context, idp *idpState, tok *oauth2.Token, sub string) (claims, error) {
	info, err := idp.provider.UserInfo(ctx, oauth2.StaticTokenSource(tok))
	if err != nil {
		return nil, unavailable("the identity provider did not say in which groups you are (userinfo)", failureBackoff, errors.New(shortErr(err)))
	}
	if info.Subject != sub {
		return nil, badIDToken(errors.New("userinfo is about another subject"))
	}
	var payload json.RawMessage
	if err := info.Claims(&payload); err != nil {
		return nil, fmt.Errorf("reading userinfo: %w", err)
	}
	return parseClaims(payload)
}

// idpAnswer is an error that the IdP itself gave, to be shown as it is.
type idpAnswer struct{ code, text string }

func (e *idpAnswer) Error() string {
	return "the IdP answered " + short(e.code) + " " + short(e.text)
}

// exchangeError keeps the body of the token endpoint's answer out of pages and
// logs; it is not known what it holds.
func exchangeError(err error) error {
	var re *oauth2.RetrieveError
	if errors.As(err, &re) {
		code := re.ErrorCode
		if code == "" && re.Response != nil {
			code = re.Response.Status
		}
		return &idpAnswer{code: code, text: re.ErrorDescription}
	}
	var ue *url.Error
	if errors.As(err, &ue) {
		return idpUnavailable(ue)
	}
	return fmt.Errorf("exchanging the code at the IdP: %s", shortErr(err))
}

func idpUnavailable(err error) *Error {
	return unavailable("the portal cannot reach its identity provider, so nobody can sign in now", failureBackoff, err)
}

func badIDToken(err error) *Error {
	return &Error{Status: 502, Code: CodeInvalidToken, Description: "the identity provider sent an ID token that does not hold",
		Next: "sign in again; if it stays, the portal's log says why", cause: err}
}
