package logins

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
)

// Credential authorizes requests of one user to one server.
type Credential struct {
	Login string // id of the login; part of the key of sessions
	Token string // for Authorization: Bearer

	// Wait is how long to wait before the request is sent again with it: the
	// server may not have heard of the token yet. Zero: not at all.
	Wait time.Duration
}

// Current gives what authorizes a user's requests to a server now, renewing it
// first if it is about to expire. User "" is the portal itself. The error is
// *Needed when somebody has to sign in; any other may pass.
func (l *Logins) Current(ctx context.Context, server, user string) (Credential, error) {
	s, err := l.server(server)
	if err != nil {
		return Credential{}, err
	}
	own := owner(s, user)
	if !s.Auth.Interactive() {
		return l.machineToken(ctx, s, own, "")
	}
	rec, err := l.load(ctx, s, own, false)
	if err != nil {
		return Credential{}, err
	}
	if rec == nil {
		return Credential{}, &Needed{Server: server, User: own, Reason: neverReason(own)}
	}
	if rec.Dead != "" {
		return Credential{}, &Needed{Server: server, User: own, Reason: rec.Dead}
	}
	if !rec.valid(l.now()) {
		if rec, err = l.renew(ctx, s, own, rec.Access); err != nil {
			return Credential{}, err
		}
	}
	return Credential{Login: rec.ID, Token: rec.Access}, nil
}

func neverReason(owner string) string {
	if owner == "" {
		return "nobody has signed the portal in there yet"
	}
	return "you have not signed in there yet"
}

// Refused takes a server's 401 or 403 to a request that carried c, which the
// server has not carried out. It gives another credential with which the
// request may be sent once more, or an error: *Needed when somebody has to
// sign in (again, or for more rights), ErrHopeless when signing in would not
// help.
func (l *Logins) Refused(ctx context.Context, server, user string, c Credential, status int, h http.Header) (Credential, error) {
	s, err := l.server(server)
	if err != nil {
		return Credential{}, err
	}
	own := owner(s, user)
	ch := parseChallenge(h)
	if status == http.StatusForbidden {
		return Credential{}, l.wantsMore(ctx, s, own, ch)
	}
	if len(ch.scopes) > 0 || ch.metadata != "" {
		l.mu.Lock()
		l.asked[s.ID] = ch
		l.mu.Unlock()
	}
	if !s.Auth.Interactive() {
		return l.machineToken(ctx, s, own, c.Token)
	}
	rec, err := l.load(ctx, s, own, true)
	switch {
	case err != nil:
		return Credential{}, err
	case rec == nil:
		return Credential{}, &Needed{Server: server, User: own, Reason: neverReason(own)}
	case rec.Dead != "":
		return Credential{}, &Needed{Server: server, User: own, Reason: rec.Dead}
	case rec.Access != c.Token:
		return Credential{Login: rec.ID, Token: rec.Access}, nil // renewed meanwhile
	case rec.Refresh == "":
		return Credential{}, l.bury(ctx, s, own, rec, notAccepted)
	case l.now().Sub(rec.Renewed) < fresh && rec.valid(l.now()) && !l.wasAccepted(s, own, rec.Access):
		return l.notYet(ctx, s, own, rec)
	}
	if rec, err = l.renew(ctx, s, own, c.Token); err != nil {
		return Credential{}, err
	}
	return Credential{Login: rec.ID, Token: rec.Access}, nil
}

// Accepted notes that a server took c. A token that it knew once and refuses
// now is no longer good, however young it is.
func (l *Logins) Accepted(server, user string, c Credential) {
	s, err := l.server(server)
	if err != nil || !s.Auth.Interactive() {
		return
	}
	key, token := recordKey(s.ID, owner(s, user)), digest(c.Token)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.accepted) >= 100_000 {
		clear(l.accepted)
	}
	l.accepted[key] = token
}

func (l *Logins) wasAccepted(s config.Server, own, token string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.accepted[recordKey(s.ID, own)] == digest(token)
}

// fresh is how young a token is that does not get better by another.
const fresh = 10 * time.Second

const (
	notAccepted  = "the server does not accept the sign-in any more"
	settles      = 500 * time.Millisecond // until a fresh token is tried again
	maxDoubts    = 4                      // renewed tokens in a row that a server may refuse
	doubtsExpire = 5 * time.Minute
)

// doubt is what speaks against a login: renewed tokens that the server refused
// from the beginning.
type doubt struct {
	token string // digest of the last one
	n     int    // how many in a row
	last  time.Time
}

// notYet judges a refusal of a token that was made a moment ago. A server that
// learns of new tokens late will take it soon, and that must not cost a login.
// One that goes on refusing each new token does not want this login any more.
func (l *Logins) notYet(ctx context.Context, s config.Server, own string, rec *record) (Credential, error) {
	key, now, token := recordKey(s.ID, own), l.now(), digest(rec.Access)
	l.mu.Lock()
	d := l.doubts[key]
	if now.Sub(d.last) > doubtsExpire {
		d = doubt{}
	}
	again := d.token == token
	if !again {
		d.token, d.n = token, d.n+1
	}
	d.last = now
	if len(l.doubts) >= 100_000 {
		clear(l.doubts)
	}
	l.doubts[key] = d
	l.mu.Unlock()
	if d.n >= maxDoubts && again {
		return Credential{}, l.bury(ctx, s, own, rec, notAccepted)
	}
	return Credential{Login: rec.ID, Token: rec.Access, Wait: settles}, nil
}

// ErrHopeless means that the server refuses what no sign-in would change.
var ErrHopeless = errors.New("the server refuses this, signed in or not")

// NotGranted means that a server wants rights that the sign-in there asked for
// and the authorization server did not give.
type NotGranted struct {
	Server string
	Scopes []string
}

// Error names the rights and what to do.
func (n *NotGranted) Error() string {
	return "it wants rights (" + show(join(n.Scopes)) + ") that were asked for and not granted. Ask whoever runs the server to grant them, then sign in again on the portal's page of servers"
}

// wantsMore makes of a 403 what it means: rights that could be asked for
// (step-up), or a plain no.
func (l *Logins) wantsMore(ctx context.Context, s config.Server, own string, ch challenge) error {
	if ch.code != "insufficient_scope" || len(ch.scopes) == 0 || !s.Auth.Interactive() {
		return ErrHopeless
	}
	rec, err := l.load(ctx, s, own, false)
	if err != nil {
		return err
	}
	if rec == nil {
		return ErrHopeless
	}
	missing := rec.missing(ch.scopes)
	switch {
	case len(missing) == 0:
		return ErrHopeless // asking again for what was granted would never end
	case rec.asked(missing):
		l.forgetWants(ctx, s.ID, own)
		// Nor would asking again for what was asked for and not given.
		return &NotGranted{Server: s.ID, Scopes: missing}
	}
	l.noteWants(ctx, s, own, missing)
	want := append([]string(nil), rec.Scopes...)
	for _, sc := range ch.scopes {
		if !slices.Contains(want, sc) {
			want = append(want, sc)
		}
	}
	return &Needed{Server: s.ID, User: own, Reason: "the server wants more rights for this (" + show(join(ch.scopes)) + ")", Scopes: want}
}

// bury marks a login as of no use. It stays, so that its owner learns why.
func (l *Logins) bury(ctx context.Context, s config.Server, own string, rec *record, why string) error {
	l.mu.Lock()
	delete(l.found, s.ID) // the next sign-in may be at another authorization server
	l.mu.Unlock()
	dead := *rec
	dead.Dead, dead.Access, dead.Refresh = why, "", ""
	key := recordKey(s.ID, own)
	ok, err := l.replace(ctx, key, rec, &dead)
	if err != nil {
		return fmt.Errorf("note that the sign-in at server %s has ended (%s): %w", s.ID, why, err)
	}
	if !ok {
		return &Needed{Server: s.ID, User: own, Reason: "the sign-in there changed a moment ago"}
	}
	if own == "" {
		l.log.Error("the portal's own sign-in at a server does not hold any more: an administrator must sign in again on the page of servers", "server", s.ID, "reason", why)
	} else {
		l.log.Info("a user's sign-in at a server has ended", "server", s.ID, "user", own, "reason", why)
	}
	l.tell(ctx, Change{Server: s.ID, User: own})
	return &Needed{Server: s.ID, User: own, Reason: why}
}
