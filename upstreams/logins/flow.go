package logins

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/mcp-portal/mcp-portal/config"
)

// flowFor is how long a person may take at the authorization server.
const flowFor = 10 * time.Minute

// Person is who signs in, and in which browser session.
type Person struct {
	User    string // principal
	Name    string // for an admin's login: who it was
	Session string // a secret of the browser session, such as its CSRF token
}

// Request is a sign-in that a person begins.
type Request struct {
	Server string
	Admin  bool     // for the portal itself, not for the person
	Scopes []string // in addition to what the server asks for
	Return string   // path of the portal to show afterwards
}

// flow is a sign-in under way, sealed in the store under the digest of its
// state and taken out by the first callback that names it.
type flow struct {
	Person   string   `json:"person"` // principal who began it
	Name     string   `json:"name"`
	Bind     string   `json:"bind"`  // digest of the browser session
	Owner    string   `json:"owner"` // whose login it will be
	Server   string   `json:"server"`
	Origin   string   `json:"origin"` // of the server
	Issuer   string   `json:"issuer"` // whom the browser was sent to
	IssMust  bool     `json:"iss_must"`
	Token    string   `json:"token_url"`
	Revoke   string   `json:"revoke_url"`
	Client   client   `json:"client"`
	Redirect string   `json:"redirect"`
	Resource string   `json:"resource"`
	Scopes   []string `json:"scopes"`
	Verifier string   `json:"verifier"` // PKCE
	Return   string   `json:"return"`
}

func flowKey(state string) string { return "upstream-flow:" + digest(state) }

// Begin finds out how to sign in at a server and gives the address to send the
// browser to. The answer is accepted once, from the same browser session of
// the same person.
func (l *Logins) Begin(ctx context.Context, p Person, r Request) (string, error) {
	s, err := l.server(r.Server)
	if err != nil {
		return "", err
	}
	switch {
	case !s.Auth.Interactive():
		return "", fmt.Errorf("server %s: nobody signs in there, the portal does so by itself (auth.type %s)", s.ID, s.Auth.Type)
	case !r.Admin && !s.Auth.PerUser():
		return "", fmt.Errorf("server %s: one sign-in of an administrator serves everybody", s.ID)
	case p.User == "" || p.Session == "":
		return "", errors.New("a sign-in belongs to a person in a browser session")
	}
	d, err := l.discover(ctx, s)
	if err != nil {
		return "", err
	}
	self := p.User
	if r.Admin {
		self = ""
	}
	if wants := l.wants(ctx, s.ID, self); len(wants) > 0 {
		if rec, err := l.load(ctx, s, self, false); err == nil && rec != nil {
			wants = append(slices.Clone(rec.Scopes), wants...) // besides what there is
		}
		r.Scopes = append(slices.Clone(r.Scopes), wants...)
	}
	c, err := l.clientFor(ctx, s, d.meta)
	if err != nil {
		return "", fmt.Errorf("sign in at server %s: %w", s.ID, err)
	}
	f := flow{Person: p.User, Name: p.Name, Bind: digest(p.Session), Server: s.ID, Origin: originOf(s.URL), Issuer: d.meta.Issuer, IssMust: d.meta.IssParameter,
		Token: d.meta.Token, Revoke: d.meta.Revoke, Client: c, Redirect: l.redirectURI(), Resource: d.parameter(s),
		Scopes: l.scopesFor(s, d, r.Scopes), Verifier: oauth2.GenerateVerifier(), Return: r.Return}
	f.Owner = self
	state := rand.Text() + rand.Text()
	key := flowKey(state)
	raw, err := json.Marshal(f)
	if err != nil {
		return "", err
	}
	sealed, err := l.flows.Seal(ctx, key, raw)
	if err == nil {
		_, err = l.store.Create(ctx, key, []byte(sealed), flowFor)
	}
	if err != nil {
		return "", fmt.Errorf("keep the sign-in at server %s that is under way: %w", s.ID, err)
	}
	return authorizeURL(d.meta.Authorize, f, state)
}

// authorizeURL is where the browser goes.
func authorizeURL(endpoint string, f flow, state string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", errors.New("the authorization endpoint is not a URL")
	}
	q := u.Query()
	q.Set("response_type", "code")
	q.Set("client_id", f.Client.ID)
	q.Set("redirect_uri", f.Redirect)
	q.Set("state", state)
	q.Set("code_challenge", oauth2.S256ChallengeFromVerifier(f.Verifier))
	q.Set("code_challenge_method", "S256")
	if len(f.Scopes) > 0 {
		q.Set("scope", join(f.Scopes))
	}
	if f.Resource != "" {
		q.Set("resource", f.Resource)
	}
	if slices.Contains(f.Scopes, "offline_access") {
		q.Set("prompt", "consent") // without it OpenID providers give no refresh token
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// scopesFor chooses what to ask for: what the admin wrote, else what the
// server's challenge names, else what its metadata does; a refresh token where
// it has to be asked for; and what the call needs besides.
func (l *Logins) scopesFor(s config.Server, d *discovered, more []string) []string {
	l.mu.Lock()
	asked := l.asked[s.ID]
	l.mu.Unlock()
	var out []string
	switch {
	case len(s.Auth.Scopes) > 0:
		out = slices.Clone(s.Auth.Scopes)
	case len(asked.scopes) > 0:
		out = slices.Clone(asked.scopes)
	default:
		out = slices.Clone(d.scopes)
	}
	if slices.Contains(d.meta.Scopes, "offline_access") && len(s.Auth.Scopes) == 0 {
		more = append(slices.Clone(more), "offline_access")
	}
	for _, sc := range more {
		if !slices.Contains(out, sc) {
			out = append(out, sc)
		}
	}
	return out
}

// Done is a sign-in that has succeeded.
type Done struct {
	Server string
	Admin  bool
	Return string
}

// Problem is why a sign-in came to nothing, fit to be shown to the person.
type Problem struct {
	Server string // "" if not known
	Text   string // what happened and what to do
	Detail string // what the other side said, bounded
	// Foreign reports that the answer does not belong to this person or browser:
	// somebody may have been led here.
	Foreign bool
}

// Error is the text.
func (p *Problem) Error() string {
	if p.Detail != "" {
		return p.Text + " (" + p.Detail + ")"
	}
	return p.Text
}

// Finish takes the answer that a browser brings back from an authorization
// server and keeps the login. Errors of the type *Problem are for the person.
func (l *Logins) Finish(ctx context.Context, p Person, q url.Values) (*Done, error) {
	for _, name := range []string{"state", "code", "error", "iss"} {
		if len(q[name]) > 1 {
			return nil, &Problem{Text: "The answer names " + name + " twice, so it was not used. Begin again on the page of servers."}
		}
	}
	f, err := l.takeFlow(ctx, p, q.Get("state"))
	if err != nil {
		return nil, err
	}
	again := func(format string, args ...any) *Problem {
		return &Problem{Server: f.Server, Text: fmt.Sprintf(format, args...) + " Nothing was kept. Begin again on the page of servers."}
	}
	s, err := l.server(f.Server)
	if err != nil || originOf(s.URL) != f.Origin {
		return nil, again("The server was changed in the configuration meanwhile.")
	}
	// RFC 9207: an answer of another authorization server than the one that
	// was asked must not be used, whatever it says.
	if iss := q.Get("iss"); iss != f.Issuer && (iss != "" || f.IssMust) {
		return nil, again("The answer is not from the authorization server that was asked.")
	}
	if code := q.Get("error"); code != "" {
		problem := again("The server did not sign you in.")
		problem.Detail = strings.TrimSpace(show(code) + " " + show(q.Get("error_description")))
		return nil, problem
	}
	if q.Get("code") == "" {
		return nil, again("The answer holds neither a code nor an error.")
	}
	form := url.Values{"grant_type": {"authorization_code"}, "code": {q.Get("code")}, "redirect_uri": {f.Redirect}, "code_verifier": {f.Verifier}}
	if f.Resource != "" {
		form.Set("resource", f.Resource)
	}
	t, err := l.tokenRequest(ctx, s, f.Token, f.Client, form)
	if err != nil {
		var no *refused
		if errors.As(err, &no) && (no.Code == "invalid_client" || no.Code == "unauthorized_client") {
			l.forgetClient(ctx, f.Issuer, f.Client)
		}
		l.log.Warn("a sign-in at a server failed", "server", s.ID, "user", p.User, "error", err)
		problem := again("The authorization server gave no token for the sign-in.")
		problem.Detail = err.Error()
		return nil, problem
	}
	rec := &record{ID: rand.Text(), Origin: f.Origin, Issuer: f.Issuer, Resource: f.Resource, Token: f.Token, Revoke: f.Revoke, Client: f.Client,
		Begun: l.now(), Scopes: f.Scopes, Asked: f.Scopes}
	rec.take(t, l.now())
	rec.Renewed = time.Time{}
	if f.Owner == "" {
		rec.By = f.Name
	}
	if err := l.save(ctx, recordKey(s.ID, f.Owner), rec); err != nil {
		return nil, fmt.Errorf("keep the sign-in at server %s: %w", s.ID, err)
	}
	l.forgetWants(ctx, s.ID, f.Owner)
	l.log.Info("signed in at a server", "server", s.ID, "user", p.User, "for_all", f.Owner == "")
	l.tell(ctx, Change{Server: s.ID, User: f.Owner, Login: rec.ID})
	return &Done{Server: s.ID, Admin: f.Owner == "", Return: f.Return}, nil
}

// takeFlow finds the sign-in that an answer belongs to. Only the browser that
// began it may bring it: otherwise a stranger's answer could make a person use
// the stranger's account, or the stranger get the person's.
func (l *Logins) takeFlow(ctx context.Context, p Person, state string) (*flow, error) {
	over := &Problem{Text: "This sign-in is over: it was finished already, or took more than ten minutes. Begin again on the page of servers."}
	if len(state) < 26 || len(state) > 100 {
		return nil, &Problem{Text: "This address is only for the way back from a server's sign-in. Begin on the page of servers."}
	}
	key := flowKey(state)
	raw, ok, err := l.store.Take(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("find the sign-in under way: %w", err)
	}
	if !ok {
		return nil, over
	}
	plain, _, err := l.flows.Open(ctx, key, string(raw))
	var f flow
	if err != nil || json.Unmarshal(plain, &f) != nil {
		return nil, over
	}
	if f.Person != p.User || subtle.ConstantTimeCompare([]byte(f.Bind), []byte(digest(p.Session))) != 1 {
		return nil, &Problem{Server: f.Server, Foreign: true, Text: "This sign-in was not begun by you in this browser, so it was not used. Begin again on the page of servers."}
	}
	return &f, nil
}
