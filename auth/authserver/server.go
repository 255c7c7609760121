package authserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/mcp-portal/mcp-portal/auth/outbound"
	"github.com/mcp-portal/mcp-portal/auth/vault"
	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/store"
)

// Person is who has signed in at the IdP.
type Person struct {
	ID     string   `json:"id"` // "<issuer>|<sub>"
	Name   string   `json:"name,omitempty"`
	Email  string   `json:"email,omitempty"`
	Groups []string `json:"groups,omitempty"`
}

// ErrEnded is what Renew wraps when the IdP has ended the person's sign-in, or
// nobody can say any more that it holds.
var ErrEnded = errors.New("the person's sign-in has ended")

// Options are what New needs.
type Options struct {
	Store store.Store
	Vault *vault.Vault
	Log   *slog.Logger
	Now   func() time.Time

	// Renew gives the person of a grant as the IdP describes them now. signed
	// is when they signed in for it. Errors wrap ErrEnded, or mean that the
	// IdP cannot be asked now.
	Renew func(ctx context.Context, p Person, signed time.Time) (Person, error)
	// Machine judges the credentials of a service token and gives when they
	// expire; zero is never.
	Machine func(r *http.Request, id, secret string) (expires time.Time, err error)
	// Assertion judges an assertion of the IdP (ID-JAG) that a client brings,
	// and gives the person it is about and the scopes it names. Errors are
	// *Error.
	Assertion func(ctx context.Context, client, raw string) (p Person, scope string, err error)
	// Caller is the network address that a request comes from, for limits and the
	// log; nil: that of the peer.
	Caller func(*http.Request) netip.Addr
	// Page shows a person why a sign-in cannot begin: nobody is sent anywhere
	// before the client is known.
	Page func(w http.ResponseWriter, r *http.Request, status int, title, text string)
}

// Server is the authorization server. It is safe for concurrent use.
type Server struct {
	store   store.Store
	vault   *vault.Vault
	log     *slog.Logger
	now     func() time.Time
	renew   func(context.Context, Person, time.Time) (Person, error)
	machine func(r *http.Request, id, secret string) (time.Time, error)
	assert  func(ctx context.Context, client, raw string) (Person, string, error)
	page    func(http.ResponseWriter, *http.Request, int, string, string)
	caller  func(*http.Request) netip.Addr
	keys    keyring
	seen    seenGrants
	limits  struct{ authorize, register, token *Limiter }
	state   atomic.Pointer[settings]
}

// settings is what a configuration means here; immutable.
type settings struct {
	cfg    *config.Config
	origin string // issuer, and where everything is
	http   *http.Client
	static map[string]*Client
}

// New makes a server that is closed until SetConfig.
func New(o Options) *Server {
	s := &Server{store: o.Store, vault: o.Vault, log: o.Log, now: o.Now, renew: o.Renew, machine: o.Machine, assert: o.Assertion, caller: o.Caller, page: o.Page}
	if s.caller == nil {
		s.caller = Peer
	}
	s.limits.authorize = NewLimiter(200*time.Millisecond, 60, o.Now)
	s.limits.register = NewLimiter(time.Second, 30, o.Now)
	s.limits.token = NewLimiter(50*time.Millisecond, 120, o.Now)
	s.state.Store(&settings{})
	return s
}

// SetConfig puts a configuration into effect for requests that begin from now
// on. origin is the portal's public one; "" closes the server.
func (s *Server) SetConfig(cfg *config.Config, origin string) error {
	next, err := s.Prepare(cfg, origin)
	if err != nil {
		return err
	}
	next()
	return nil
}

// Prepare is SetConfig in two steps: what it gives puts the configuration into
// effect and cannot fail.
func (s *Server) Prepare(cfg *config.Config, origin string) (func(), error) {
	if origin == "" {
		return func() { s.state.Store(&settings{}) }, nil
	}
	c, err := outbound.New(outbound.Options{Allow: cfg.Auth.PrivateHosts, Timeout: documentTimeout, MaxBody: maxDocument})
	if err != nil {
		return nil, fmt.Errorf("auth.private_hosts: %w", err)
	}
	set := &settings{cfg: cfg, origin: origin, http: c, static: map[string]*Client{}}
	for _, st := range cfg.Auth.Clients.Static {
		cl := &Client{ID: st.ID, Kind: KindStatic, Name: st.Name, Redirects: st.Redirects, SecretHash: st.SecretHash, NoConsent: st.Consent == "never", Asserts: st.IDJAG && st.SecretHash != ""}
		if cl.Name == "" {
			cl.Name = st.ID
		}
		set.static[st.ID] = cl
	}
	return func() { s.state.Store(set) }, nil
}

// Endpoints are the addresses of the server, for the router: path, method and
// handler. They answer 404 while the server is closed.
func (s *Server) Endpoints() []Endpoint {
	list := []Endpoint{
		{http.MethodGet, PathAuthorize, s.authorize},
		{http.MethodPost, PathToken, s.token},
		{http.MethodPost, PathRegister, s.register},
		{http.MethodPost, PathRevoke, s.revoke},
		{http.MethodGet, PathKeys, s.jwks},
	}
	for _, p := range metadataPaths {
		list = append(list, Endpoint{http.MethodGet, p, s.metadata})
	}
	for i := range list {
		list[i].Handler = s.open(list[i].Method, list[i].Handler)
	}
	return list
}

// Endpoint is one address.
type Endpoint struct {
	Method  string
	Path    string
	Handler http.HandlerFunc // also answers HEAD, OPTIONS and wrong methods
}

// Paths at the root of the origin: clients that miss the metadata guess these.
const (
	PathAuthorize = "/authorize"
	PathConfirm   = "/authorize/confirm"
	PathToken     = "/token"
	PathRegister  = "/register"
	PathRevoke    = "/revoke"
	PathKeys      = "/jwks.json"
)

func (s *Server) open(method string, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.state.Load().origin == "" {
			answer(w, http.StatusNotFound, map[string]string{"error": "not_found", "error_description": "this portal is not an authorization server; its metadata at /.well-known/oauth-protected-resource names the one to use"})
			return
		}
		switch {
		case r.Method == method, method == http.MethodGet && r.Method == http.MethodHead:
			h(w, r)
		case r.Method == http.MethodOptions:
			w.Header().Set("Access-Control-Allow-Origin", "*")
			w.Header().Set("Access-Control-Allow-Methods", method)
			w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type, MCP-Protocol-Version")
			w.WriteHeader(http.StatusNoContent)
		default:
			w.Header().Set("Allow", method+", OPTIONS")
			answer(w, http.StatusMethodNotAllowed, map[string]string{"error": "invalid_request", "error_description": "this address takes " + method + " only"})
		}
	}
}

// limited takes one request of the address from a limiter, or answers 429.
func (s *Server) limited(l *Limiter, w http.ResponseWriter, r *http.Request) bool {
	wait, ok := l.Allow(s.caller(r))
	if !ok {
		tooMany(w, int(wait/time.Second)+1)
	}
	return !ok
}
