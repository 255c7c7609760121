// Package logintest has an authorization server and an MCP server behind it
// for tests of signing in at upstreams. Unlike a real one it can be told to
// misbehave, and counts what it is asked.
package logintest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// Rig is an MCP server that takes tokens of its authorization server only.
type Rig struct {
	URL    string // of the MCP server
	Issuer string
	MCP    *upstreamtest.Server

	mu       sync.Mutex
	clients  map[string][]string // redirect URIs by client id
	codes    map[string]code
	access   map[string]grant // by access token
	refresh  map[string]grant
	spent    map[string]bool // refresh tokens used
	counts   map[string]int
	account  string
	lifetime time.Duration
	edit     map[string]func(map[string]any) // documents and answers, by name
	status   map[string]int                  // answers instead, by name
	headers  []http.Header                   // of requests to the MCP server
	want     string                          // scope that calls need
	grants   string                          // scope of new logins, whatever they ask for
	late     int                             // how often a renewed token is refused before it is known
	unknown  map[string]int                  // by access token: how often yet
	forms    []url.Values                    // of token requests
	ahead    func(form url.Values)
}

type code struct{ client, challenge, redirect, resource, scope, account string }

type grant struct {
	client, resource, scope, account string
	expires                          time.Time
}

// New starts both; they end with the test.
func New(t testing.TB, o upstreamtest.Options) *Rig {
	t.Helper()
	r := &Rig{MCP: upstreamtest.New(t, o), clients: map[string][]string{}, codes: map[string]code{}, access: map[string]grant{}, refresh: map[string]grant{},
		spent: map[string]bool{}, counts: map[string]int{}, account: "ann", lifetime: time.Hour, edit: map[string]func(map[string]any){}, status: map[string]int{}, unknown: map[string]int{}}
	as := http.NewServeMux()
	as.HandleFunc("/.well-known/oauth-authorization-server", r.metadata)
	as.HandleFunc("/register", r.register)
	as.HandleFunc("/authorize", r.authorize)
	as.HandleFunc("/token", r.token)
	as.HandleFunc("/revoke", r.revoke)
	issuer := httptest.NewServer(as)
	t.Cleanup(issuer.Close)
	r.Issuer = issuer.URL
	to, err := url.Parse(r.MCP.URL)
	if err != nil {
		t.Fatal(err)
	}
	to.Path = ""
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval = -1
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	rs := http.NewServeMux()
	rs.HandleFunc("/.well-known/oauth-protected-resource/mcp", r.resource)
	rs.Handle("/", r.guard(proxy))
	server := httptest.NewServer(rs)
	t.Cleanup(server.Close)
	r.URL = server.URL + "/mcp"
	return r
}

// Edit changes a document or answer before it is sent: "resource",
// "metadata", "token", "register", "callback". Nil takes the change back.
func (r *Rig) Edit(name string, f func(map[string]any)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.edit[name] = f
}

// Fail makes an endpoint answer with a status; 0 takes that back.
func (r *Rig) Fail(name string, status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status[name] = status
}

// Account is who signs in from now on.
func (r *Rig) Account(name string) { r.set(func() { r.account = name }) }

// Want makes calls need a scope.
func (r *Rig) Want(scope string) { r.set(func() { r.want = scope }) }

// Grant makes new logins get these scopes, whatever they ask for; "" takes
// that back.
func (r *Rig) Grant(scopes string) { r.set(func() { r.grants = scopes }) }

// Late makes the MCP server refuse each renewed token so many times before it
// knows of it.
func (r *Rig) Late(times int) { r.set(func() { r.late = times }) }

// BeforeToken is called with each token request.
func (r *Rig) BeforeToken(f func(url.Values)) { r.set(func() { r.ahead = f }) }

// Expire makes all access tokens of now invalid.
func (r *Rig) Expire() { r.set(func() { clear(r.access) }) }

// Withdraw makes all tokens of now invalid.
func (r *Rig) Withdraw() {
	r.set(func() { clear(r.access); clear(r.refresh) })
}

// WithdrawOf makes the tokens of one account invalid.
func (r *Rig) WithdrawOf(account string) {
	r.set(func() {
		of := func(_ string, g grant) bool { return g.account == account }
		maps.DeleteFunc(r.access, of)
		maps.DeleteFunc(r.refresh, of)
	})
}

// ForgetClients makes all registrations unknown.
func (r *Rig) ForgetClients() { r.set(func() { clear(r.clients); clear(r.refresh) }) }

func (r *Rig) set(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// Count is how often something was asked for: "register", "authorize",
// "token refresh_token" and the like, "revoke".
func (r *Rig) Count(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[what]
}

// Headers are those of all requests to the MCP server.
func (r *Rig) Headers() []http.Header {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.headers)
}

// Forms are the token requests so far.
func (r *Rig) Forms() []url.Values {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.forms)
}

// Tokens are all access and refresh tokens ever made that are still valid.
func (r *Rig) Tokens() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.AppendSeq(slices.Collect(maps.Keys(r.access)), maps.Keys(r.refresh))
}

func (r *Rig) answer(w http.ResponseWriter, name string, status int, doc map[string]any) {
	r.mu.Lock()
	if f := r.edit[name]; f != nil {
		f(doc)
	}
	if s := r.status[name]; s != 0 {
		status = s
	}
	r.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(doc)
}

func (r *Rig) count(what string) { r.set(func() { r.counts[what]++ }) }

func (r *Rig) resource(w http.ResponseWriter, _ *http.Request) {
	r.answer(w, "resource", 200, map[string]any{"resource": r.URL, "authorization_servers": []string{r.Issuer}, "scopes_supported": []string{"use"}})
}

func (r *Rig) metadata(w http.ResponseWriter, _ *http.Request) {
	r.answer(w, "metadata", 200, map[string]any{"issuer": r.Issuer, "authorization_endpoint": r.Issuer + "/authorize", "token_endpoint": r.Issuer + "/token",
		"registration_endpoint": r.Issuer + "/register", "revocation_endpoint": r.Issuer + "/revoke", "code_challenge_methods_supported": []string{"S256"},
		"token_endpoint_auth_methods_supported": []string{"none"}, "authorization_response_iss_parameter_supported": true})
}

func (r *Rig) register(w http.ResponseWriter, req *http.Request) {
	var ask struct {
		Redirects []string `json:"redirect_uris"`
	}
	_ = json.NewDecoder(req.Body).Decode(&ask)
	id := "client-" + rand.Text()
	r.set(func() { r.clients[id] = ask.Redirects; r.counts["register"]++ })
	r.answer(w, "register", 201, map[string]any{"client_id": id, "redirect_uris": ask.Redirects, "token_endpoint_auth_method": "none"})
}

// authorize signs the account in without a page and sends the browser back.
func (r *Rig) authorize(w http.ResponseWriter, req *http.Request) {
	q := req.URL.Query()
	r.mu.Lock()
	known := slices.Contains(r.clients[q.Get("client_id")], q.Get("redirect_uri"))
	r.counts["authorize"]++
	c := rand.Text()
	r.codes[c] = code{q.Get("client_id"), q.Get("code_challenge"), q.Get("redirect_uri"), q.Get("resource"), q.Get("scope"), r.account}
	r.mu.Unlock()
	if !known || q.Get("code_challenge_method") != "S256" {
		http.Error(w, "unknown client, redirect or no PKCE", http.StatusBadRequest)
		return
	}
	back := map[string]any{"code": c, "state": q.Get("state"), "iss": r.Issuer}
	r.mu.Lock()
	if f := r.edit["callback"]; f != nil {
		f(back)
	}
	r.mu.Unlock()
	out := url.Values{}
	for k, v := range back {
		out.Set(k, v.(string))
	}
	http.Redirect(w, req, q.Get("redirect_uri")+"?"+out.Encode(), http.StatusSeeOther)
}

func (r *Rig) token(w http.ResponseWriter, req *http.Request) {
	_ = req.ParseForm()
	kind := req.PostForm.Get("grant_type")
	r.mu.Lock()
	r.counts["token "+kind]++
	r.forms = append(r.forms, req.PostForm)
	ahead := r.ahead
	r.mu.Unlock()
	if ahead != nil {
		ahead(req.PostForm)
	}
	no := func(status int, code string) {
		r.answer(w, "token error", status, map[string]any{"error": code})
	}
	r.mu.Lock()
	down := r.status["token"]
	var g grant
	ok := false
	switch kind {
	case "authorization_code":
		c, found := r.codes[req.PostForm.Get("code")]
		delete(r.codes, req.PostForm.Get("code"))
		sum := sha256.Sum256([]byte(req.PostForm.Get("code_verifier")))
		ok = found && c.challenge == base64.RawURLEncoding.EncodeToString(sum[:]) && c.redirect == req.PostForm.Get("redirect_uri") && c.client == req.PostForm.Get("client_id")
		g = grant{client: c.client, resource: c.resource, scope: c.scope, account: c.account}
		if r.grants != "" {
			g.scope = r.grants
		}
	case "refresh_token":
		t := req.PostForm.Get("refresh_token")
		if down == 0 {
			g, ok = r.refresh[t]
			delete(r.refresh, t) // strictly once
		}
	}
	_, registered := r.clients[req.PostForm.Get("client_id")]
	life := r.lifetime
	r.mu.Unlock()
	switch {
	case down != 0:
		no(down, "temporarily_unavailable")
		return
	case !registered:
		no(401, "invalid_client")
		return
	case !ok:
		no(400, "invalid_grant")
		return
	}
	g.expires = time.Now().Add(life)
	a, f := "at-"+rand.Text(), "rt-"+rand.Text()
	r.set(func() {
		r.access[a], r.refresh[f] = g, g
		if kind == "refresh_token" {
			r.unknown[a] = r.late
		}
	})
	r.answer(w, "token", 200, map[string]any{"access_token": a, "token_type": "Bearer", "expires_in": int(life.Seconds()), "refresh_token": f, "scope": g.scope})
}

func (r *Rig) revoke(w http.ResponseWriter, req *http.Request) {
	t := req.PostFormValue("token")
	r.set(func() { r.counts["revoke"]++; delete(r.access, t); delete(r.refresh, t) })
	w.WriteHeader(200)
}

// guard lets requests with a token of this resource through.
func (r *Rig) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		token, _ := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
		r.mu.Lock()
		r.headers = append(r.headers, req.Header.Clone())
		g, ok := r.access[token]
		if r.unknown[token] > 0 {
			ok = false
			r.unknown[token]--
		}
		want := r.want
		r.mu.Unlock()
		meta := strings.Replace(r.URL, "/mcp", "/.well-known/oauth-protected-resource/mcp", 1)
		switch {
		case !ok || time.Now().After(g.expires) || g.resource != r.URL:
			r.count("401")
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+meta+`", scope="use"`)
			http.Error(w, "who are you, bearer of "+token, http.StatusUnauthorized)
		case want != "" && !slices.Contains(strings.Fields(g.scope), want):
			w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="`+want+`", resource_metadata="`+meta+`"`)
			http.Error(w, "not enough", http.StatusForbidden)
		default:
			req.Header.Set("X-Account", g.account)
			next.ServeHTTP(w, req)
		}
	})
}
