package logins

import (
	"context"
	"fmt"
	"net/url"
	"sort"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
)

// State says how a login stands, for pages. It holds no credential.
type State struct {
	SignedIn bool
	Ended    string    // why it cannot be used any more; "": it can, or there is none
	Since    time.Time // of the sign-in
	By       string    // of the admin's login: who signed in
	Where    string    // host of the authorization server
	Scopes   []string
	Wants    []string // rights that the server refused it for since
}

// State reads how the login of a user ("": the admin's) at a server stands.
func (l *Logins) State(ctx context.Context, server, user string) (State, error) {
	s, err := l.server(server)
	if err != nil {
		return State{}, err
	}
	rec, err := l.load(ctx, s, user, false)
	if err != nil || rec == nil {
		return State{}, err
	}
	st := State{Wants: l.wants(ctx, s.ID, user), SignedIn: rec.Dead == "", Ended: rec.Dead, Since: rec.Begun, By: rec.By, Scopes: rec.Scopes}
	if u, err := url.Parse(rec.Issuer); err == nil {
		st.Where = u.Host
	}
	return st, nil
}

// SignOut forgets the login of a user ("": the admin's) at a server, and
// revokes its tokens there (RFC 7009) as far as that is possible. The sessions
// that used it are closed by who watches.
func (l *Logins) SignOut(ctx context.Context, server, user string) error {
	s, err := l.server(server)
	if err != nil {
		return err
	}
	key := recordKey(s.ID, user)
	raw, ok, err := l.store.Take(ctx, key)
	if err != nil {
		return fmt.Errorf("sign out of server %s: %w", server, err)
	}
	l.mu.Lock()
	delete(l.machine, key)
	l.mu.Unlock()
	l.remember(key, nil)
	l.forgetWants(ctx, s.ID, user)
	l.tell(ctx, Change{Server: server, User: user})
	if !ok {
		return nil
	}
	rec, err := l.open(ctx, key, raw)
	if err != nil || rec == nil {
		return nil // what cannot be read cannot be revoked, and open has said so
	}
	l.log.Info("signed out of a server", "server", server, "user", user)
	l.revoke(context.WithoutCancel(ctx), s, rec)
	return nil
}

// SignOutAll is SignOut of all servers where the user has a login, for the
// end of their sign-in at the portal.
func (l *Logins) SignOutAll(ctx context.Context, user string) error {
	var first error
	for _, s := range l.perUser() {
		if err := l.SignOut(ctx, s.ID, user); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// perUser lists the servers where each user has a login.
func (l *Logins) perUser() []config.Server {
	var out []config.Server
	for id, s := range l.config().Servers {
		if s.IsEnabled() && s.Auth.PerUser() {
			s.ID = id
			out = append(out, s)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].ID < out[j].ID })
	return out
}

// revoke tells the authorization server that the tokens are not used any more.
// Nothing depends on it: the portal has forgotten them.
func (l *Logins) revoke(ctx context.Context, s config.Server, rec *record) {
	if rec.Revoke == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	for _, t := range []struct{ token, kind string }{{rec.Refresh, "refresh_token"}, {rec.Access, "access_token"}} {
		if t.token == "" {
			continue
		}
		form, err := l.prove(s, rec.Client, url.Values{"token": {t.token}, "token_type_hint": {t.kind}})
		status := 0
		if err == nil {
			_, status, err = l.postForm(ctx, s, rec.Revoke, rec.Client, form)
		}
		if err == nil && status/100 != 2 {
			err = fmt.Errorf("HTTP %d", status)
		}
		if err != nil {
			l.log.Warn("a token was forgotten but not revoked at its authorization server", "server", s.ID, "error", err)
			return
		}
	}
}
