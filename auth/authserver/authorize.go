package authserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	pendingAge = 10 * time.Minute // how long a person may take
	maxState   = 4 << 10
)

// pending is an authorization request that waits for a person, kept under the
// digest of a random id that only their browser has.
type pending struct {
	Client    string `json:"client"`
	Redirect  string `json:"redirect"`
	Implied   bool   `json:"implied,omitempty"`
	State     string `json:"state,omitempty"`
	Challenge string `json:"challenge"`
	Scope     string `json:"scope"`
}

func pendingKey(id string) string { return "authz:" + digest(id) }

// authorize begins a sign-in (OAuth 2.1 section 4.1.1). Until the client and
// its redirect URI are known to be right nothing is sent there: errors are
// pages.
func (s *Server) authorize(w http.ResponseWriter, r *http.Request) {
	set := s.state.Load()
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	if wait, ok := s.limits.authorize.Allow(s.caller(r)); !ok {
		w.Header().Set("Retry-After", "2")
		s.page(w, r, http.StatusTooManyRequests, "Too many sign-ins", "From this network address too many sign-ins were begun. Try again in "+(wait+time.Second).Truncate(time.Second).String()+".")
		return
	}
	q, err := single(r.URL.RawQuery)
	if err != nil {
		s.bad(w, r, err)
		return
	}
	c, err := s.client(r.Context(), set, q.Get("client_id"))
	if err != nil {
		s.bad(w, r, err)
		return
	}
	redirect, ok := set.redirect(c, q.Get("redirect_uri"))
	if !ok {
		s.bad(w, r, fail(400, "invalid_request", "the redirect_uri is not one of those that the client registered"))
		return
	}
	p := pending{Client: c.ID, Redirect: redirect, Implied: q.Get("redirect_uri") == "", State: q.Get("state"), Challenge: q.Get("code_challenge"), Scope: q.Get("scope")}
	if err := s.checkRequest(set, q); err != nil {
		s.back(w, r, set, p, err)
		return
	}
	raw, err := json.Marshal(p)
	id := random()
	if err == nil {
		var created bool
		if created, err = s.store.Create(r.Context(), pendingKey(id), raw, pendingAge); err == nil && !created {
			err = errors.New("its id is taken")
		}
	}
	if err != nil {
		s.back(w, r, set, p, internal("keeping an authorization request", err))
		return
	}
	http.Redirect(w, r, PathConfirm+"?id="+id, http.StatusSeeOther)
}

// single reads a query in which nothing is there twice (RFC 6749 section 3.1),
// except resource, of which all must mean this portal.
func single(raw string) (url.Values, error) {
	if len(raw) > 16<<10 {
		return nil, invalidRequest("the request is too long")
	}
	q, err := url.ParseQuery(raw)
	if err != nil {
		return nil, invalidRequest("the request is malformed")
	}
	for name, v := range q {
		if len(v) > 1 && name != "resource" {
			return nil, invalidRequest("%s is there more than once", printable(name, 50))
		}
	}
	return q, nil
}

// checkRequest judges what may be told to the client.
func (s *Server) checkRequest(set *settings, q url.Values) error {
	switch {
	case len(q.Get("state")) > maxState:
		return invalidRequest("state is longer than %d bytes", maxState)
	case q.Has("request") || q.Has("request_uri"):
		return fail(400, "request_not_supported", "request objects are not supported")
	case q.Get("response_type") == "":
		return invalidRequest("response_type is missing")
	case q.Get("response_type") != "code":
		return fail(400, "unsupported_response_type", "only response_type=code is supported")
	case q.Has("response_mode") && q.Get("response_mode") != "query":
		return invalidRequest("only response_mode=query is supported")
	case q.Get("code_challenge") == "":
		return invalidRequest("code_challenge is missing: PKCE is required")
	case q.Get("code_challenge_method") != "S256":
		return invalidRequest("code_challenge_method must be S256")
	case !isChallenge(q.Get("code_challenge")):
		return invalidRequest("code_challenge is not one of S256")
	case slices.Contains(strings.Fields(q.Get("prompt")), "none"):
		return fail(400, "interaction_required", "a person confirms each sign-in, so prompt=none cannot succeed")
	case len(q.Get("scope")) > 2000:
		return fail(400, "invalid_scope", "scope is too long")
	}
	return checkResources(set, q["resource"])
}

func checkResources(set *settings, list []string) error {
	for _, res := range list {
		if !canonicalResource(set.origin, res) {
			return fail(400, "invalid_target", "resource is not this portal; its resource is %s", set.resource())
		}
	}
	return nil
}

func isChallenge(s string) bool {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	return err == nil && len(b) == 32
}

// bad shows an error to the person: there is nobody to send them to.
func (s *Server) bad(w http.ResponseWriter, r *http.Request, err error) {
	e := internal("beginning a sign-in", err)
	next := ""
	if e.Status == 401 {
		e.Status, next = 400, " In the client, remove the portal and add it again."
	}
	s.log.InfoContext(r.Context(), "sign-in of a client not begun", "remote", s.caller(r), "error", e)
	if e.Status >= 500 {
		s.page(w, r, e.Status, "Not possible right now", e.Description+".")
		return
	}
	s.page(w, r, e.Status, "This client cannot sign you in", "The portal was asked to sign you in to a client, but "+e.Description+". Nothing was sent anywhere."+next)
}

// back sends an error to the client, with who says so (RFC 9207).
func (s *Server) back(w http.ResponseWriter, r *http.Request, set *settings, p pending, err error) {
	e := internal("authorizing a client", err)
	if e.Status >= 500 {
		s.log.ErrorContext(r.Context(), "sign-in of a client failed", "error", e)
	}
	http.Redirect(w, r, location(set, p, url.Values{"error": {e.Code}, "error_description": {e.Description}}), http.StatusSeeOther)
}

// location is the redirect URI with the answer. What its query holds already
// stays (RFC 6749 section 3.1.2).
func location(set *settings, p pending, v url.Values) string {
	if p.State != "" {
		v.Set("state", p.State)
	}
	v.Set("iss", set.origin)
	sep := "?"
	if strings.Contains(p.Redirect, "?") {
		sep = "&"
	}
	return p.Redirect + sep + v.Encode()
}

// Request is what a person is asked.
type Request struct {
	ID       string // of the request; secret, part of the form
	Client   *Client
	Host     string   // where the code goes
	Local    bool     // any program on the person's machine could take it
	Servers  []string // the only servers asked for; nil: all
	scopes   []string
	pending  pending
	settings *settings
}

// Ask gives the request that waits under an id. may says which servers the
// person may use. Errors are *Error.
func (s *Server) Ask(ctx context.Context, id string, may func(server string) bool) (*Request, error) {
	set := s.state.Load()
	if set.origin == "" {
		return nil, fail(404, "not_found", "this portal is not an authorization server")
	}
	p, _, ok, err := load[pending](ctx, s.store, pendingKey(id))
	if err != nil {
		return nil, internal("reading an authorization request", err)
	}
	if !ok || id == "" {
		return nil, fail(400, "invalid_request", "this sign-in is over: it was answered already or took more than ten minutes. Begin again in the client")
	}
	return s.request(ctx, set, id, p, may)
}

func (s *Server) request(ctx context.Context, set *settings, id string, p pending, may func(string) bool) (*Request, error) {
	c, err := s.client(ctx, set, p.Client)
	if err != nil {
		return nil, err
	}
	if _, ok := set.redirect(c, p.Redirect); !ok {
		return nil, fail(400, "invalid_request", "the redirect_uri was withdrawn meanwhile. Begin again in the client")
	}
	scopes := grantScopes(p.Scope, may)
	return &Request{ID: id, Client: c, Host: redirectHost(p.Redirect), Local: local(p.Redirect), Servers: ServersOf(scopes), scopes: scopes, pending: p, settings: set}, nil
}

// Decide takes the request out, once, and gives where the browser is sent: to
// the client with a code for the person, or with access_denied.
func (s *Server) Decide(ctx context.Context, id string, who Person, may func(string) bool, yes bool) (string, error) {
	set := s.state.Load()
	if set.origin == "" {
		return "", fail(404, "not_found", "this portal is not an authorization server")
	}
	raw, ok, err := s.store.Take(ctx, pendingKey(id))
	if err != nil {
		return "", internal("reading an authorization request", err)
	}
	var p pending
	if !ok || json.Unmarshal(raw, &p) != nil {
		return "", fail(400, "invalid_request", "this sign-in is over: it was answered already or took more than ten minutes. Begin again in the client")
	}
	req, err := s.request(ctx, set, id, p, may)
	if err != nil {
		return "", err
	}
	if !yes {
		s.log.InfoContext(ctx, "client refused by the person", "client", req.Client.Name, "user", who.ID)
		return location(set, p, url.Values{"error": {"access_denied"}, "error_description": {"the person refused"}}), nil
	}
	if len(req.scopes) == 0 {
		return location(set, p, url.Values{"error": {"invalid_scope"}, "error_description": {"none of the servers asked for can be used by this person"}}), nil
	}
	g := Grant{ID: newGrantID(who.ID), Client: req.Client.ID, ClientName: req.Client.Name, ClientHost: req.Client.Host(), Redirect: req.Host,
		Scopes: req.scopes, Person: who, Created: s.now()}
	created, err := s.writeGrant(ctx, nil, g, pendingFor+10*time.Second)
	if err != nil || !created {
		return "", internal("writing a grant", err)
	}
	code, err := s.newCode(ctx, p, g)
	if err != nil {
		return "", err
	}
	return location(set, p, url.Values{"code": {code}}), nil
}
