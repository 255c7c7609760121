package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/mcp-portal/mcp-portal/store"
)

// session is what the store keeps of a signed-in browser. Its key is the
// digest of the cookie, so that who can read the store cannot sign in.
type session struct {
	Issuer  string    `json:"issuer"`
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Email   string    `json:"email,omitempty"`
	Groups  []string  `json:"groups,omitempty"`
	CSRF    string    `json:"csrf"`
	Created time.Time `json:"created"`
}

func idpSessionKey(issuer, sid string) string { return "idpsession:" + digest(issuer+"|"+sid) }

func sessionKey(cookie string) string { return "session:" + digest(cookie) }

// Browser says who looks at one of the portal's pages and gives the CSRF token
// that forms on it must carry. ok is false without a valid session: send the
// browser to /auth/login. In mode none it is always the one user. Session
// also says why there is none.
func (a *Auth) Browser(r *http.Request) (p *Principal, csrf string, ok bool) {
	p, csrf, err := a.Session(r)
	if err != nil && !errors.Is(err, ErrNoSession) {
		a.log.WarnContext(r.Context(), "browser session not accepted", "path", r.URL.Path, "error", err)
	}
	return p, csrf, err == nil
}

// Session is Browser with the reason: ErrNoSession, or an *Error with status
// 403 (not in auth.allow_groups any more) or 503 (the store cannot be
// reached). ErrorPage shows either kind.
func (a *Auth) Session(r *http.Request) (p *Principal, csrf string, err error) {
	s := a.state.Load()
	if s.dev {
		p, csrf = s.devPrincipal(), a.dev.of(r)
	} else {
		cookie := s.readCookie(r, sessionCookie)
		if cookie == "" {
			return nil, "", ErrNoSession
		}
		sess, err := a.loadSession(r.Context(), s, cookie)
		if err != nil {
			return nil, "", err
		}
		p = &Principal{ID: sess.ID, Kind: KindUser, Name: sess.Name, Email: sess.Email, Groups: sess.Groups, Expires: sess.Created.Add(s.maxAge)}
		csrf = sess.CSRF
	}
	if err := s.admit(p); err != nil {
		return nil, "", err
	}
	return p, csrf, nil
}

func (a *Auth) loadSession(ctx context.Context, s *settings, cookie string) (*session, error) {
	raw, ok, err := a.store.Get(ctx, sessionKey(cookie))
	if err != nil {
		return nil, storeError("reading the browser session", err)
	}
	if !ok {
		return nil, ErrNoSession
	}
	var sess session
	if err := json.Unmarshal(raw, &sess); err != nil {
		return nil, fmt.Errorf("reading the browser session: %w", err)
	}
	// The store drops it on time; a shorter max age or another IdP in a new
	// configuration holds for sessions that exist already.
	if sess.Issuer != s.idp.issuer || !a.now().Before(sess.Created.Add(s.maxAge)) {
		return nil, ErrNoSession
	}
	// The IdP may have ended all of a person's sessions.
	rec, _, _, err := a.loadPerson(ctx, sess.ID)
	if err != nil {
		return nil, err
	}
	if !rec.Out.IsZero() && !sess.Created.After(rec.Out) {
		return nil, ErrNoSession
	}
	return &sess, nil
}

// startSession begins a new session under a new id and ends the one the
// browser came with, whoever gave it that.
func (a *Auth) startSession(w http.ResponseWriter, r *http.Request, s *settings, in *signedIn) error {
	p := in.who
	sess := session{Issuer: s.idp.issuer, ID: p.ID, Name: p.Name, Email: p.Email, Groups: p.Groups, CSRF: random(), Created: a.now()}
	raw, err := json.Marshal(sess)
	if err != nil {
		return fmt.Errorf("writing the browser session: %w", err)
	}
	if err := a.endSession(r, s); err != nil {
		return err
	}
	id := random()
	created, err := a.store.Create(r.Context(), sessionKey(id), raw, s.maxAge)
	if err != nil {
		return storeError("writing the browser session", err)
	}
	if !created {
		return errors.New("writing the browser session: its new id is taken")
	}
	if in.sid != "" {
		// Logout tokens may name no more than that session.
		life := max(s.cfg.Auth.Tokens.Grant, s.maxAge)
		if err := a.store.Set(r.Context(), idpSessionKey(s.idp.issuer, in.sid), []byte(p.ID), life); err != nil {
			return storeError("keeping which session at the IdP this is", err)
		}
	}
	http.SetCookie(w, s.cookie(sessionCookie, id, s.maxAge))
	return nil
}

func (a *Auth) endSession(r *http.Request, s *settings) error {
	old := s.readCookie(r, sessionCookie)
	if old == "" {
		return nil
	}
	if err := a.store.Delete(r.Context(), sessionKey(old)); err != nil {
		return storeError("ending the browser session", err)
	}
	return nil
}

// storeError is a refusal that says no more than that it may pass.
func storeError(doing string, err error) error {
	if errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		return unavailable("the portal cannot reach its store, so it cannot check or keep sign-ins now", failureBackoff, fmt.Errorf("%s: %w", doing, err))
	}
	return fmt.Errorf("%s: %w", doing, err)
}
