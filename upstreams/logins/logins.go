package logins

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/mcp-portal/mcp-portal/auth/outbound"
	"github.com/mcp-portal/mcp-portal/auth/vault"
	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/store"
)

// CallbackPath is where authorization servers send browsers back to, and
// ClientPath where the portal's client metadata document is served.
const (
	CallbackPath = "/servers-callback"
	ClientPath   = "/.well-known/mcp-portal-client.json"
	KeysPath     = "/.well-known/mcp-portal-client-keys.json" // of Keys
)

// Subjects gives tokens of the company IdP that can be exchanged.
type Subjects interface {
	// SubjectToken gives a valid token of the user: kind is "access_token" or
	// "id_token". An error says what the user can do about it.
	SubjectToken(ctx context.Context, user, kind string) (string, error)
}

// Options are what New needs.
type Options struct {
	Config   *config.Config
	Store    store.Store
	Vault    *vault.Vault
	Log      *slog.Logger     // nil: nothing is logged
	Now      func() time.Time // nil: time.Now
	Subjects Subjects         // nil: token_exchange and id_jag are refused

	// Client, if given, replaces the guarded client, for tests of what it
	// guards against alone.
	Client *http.Client
}

// Logins knows who is signed in where. It is safe for concurrent use.
type Logins struct {
	store    store.Store
	clients  vault.Box // of registrations
	tokens   vault.Box // of logins
	flows    vault.Box // of sign-ins under way
	log      *slog.Logger
	now      func() time.Time
	subjects Subjects
	given    *http.Client

	flight singleflight.Group

	mu       sync.Mutex
	cfg      *config.Config
	http     map[string]*http.Client // by what they may contact
	found    map[string]*discovered  // by server
	cache    map[string]*cached      // by record name
	machine  map[string]*record      // tokens nobody signed in for
	failed   map[string]failure      // refreshes that failed a moment ago
	asked    map[string]challenge    // what servers last asked for
	doubts   map[string]doubt        // by record name: renewed tokens that were refused
	accepted map[string]string       // by record name: digest of the token that the server last took
	watching map[int]func(Change)
	next     int
}

// New makes Logins. It contacts nobody; its subscription ends with ctx.
func New(ctx context.Context, o Options) (*Logins, error) {
	if o.Config == nil || o.Store == nil || o.Vault == nil {
		return nil, errors.New("setting up sign-in at servers: configuration, store and vault are needed")
	}
	l := &Logins{store: o.Store, clients: o.Vault.Box("upstream client"), tokens: o.Vault.Box("upstream login"), flows: o.Vault.Box("upstream flow"),
		log: o.Log, now: o.Now, subjects: o.Subjects, given: o.Client, asked: map[string]challenge{}, doubts: map[string]doubt{}, accepted: map[string]string{}, watching: map[int]func(Change){}}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	if l.now == nil {
		l.now = time.Now
	}
	l.SetConfig(o.Config)
	go l.listen(ctx)
	return l, nil
}

// SetConfig puts another configuration into effect. What was found out about
// servers is found out anew.
func (l *Logins) SetConfig(cfg *config.Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cfg = cfg
	l.http, l.found, l.cache = map[string]*http.Client{}, map[string]*discovered{}, map[string]*cached{}
	l.machine, l.failed = map[string]*record{}, map[string]failure{}
}

func (l *Logins) config() *config.Config {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cfg
}

// server is the configuration of one server that uses OAuth.
func (l *Logins) server(id string) (config.Server, error) {
	s, ok := l.config().Servers[id]
	if !ok || !s.IsEnabled() || !s.Auth.Used() {
		return config.Server{}, fmt.Errorf("server %s: no sign-in is configured for it", id)
	}
	s.ID = id
	return s, nil
}

// owner is whose login serves a user's calls: the user's own, or "", the one
// of the admin.
func owner(s config.Server, user string) string {
	if s.Auth.PerUser() {
		return user
	}
	return ""
}

// Needed says that somebody has to sign in at a server before a call can be
// made. Nothing was sent, or the server refused it unseen.
type Needed struct {
	Server string
	User   string   // principal; "": an admin
	Reason string   // one clause: "you have not signed in there yet"
	Scopes []string // rights that the server asked for in addition
}

// Error names the server and why.
func (n *Needed) Error() string { return "server " + n.Server + ": " + n.Text() }

// Text is Error without the server's name.
func (n *Needed) Text() string {
	if n.User == "" {
		return "sign-in needed: " + n.Reason + ". An administrator signs the portal in on its page of servers"
	}
	return "sign-in needed: " + n.Reason
}

// client is the HTTP client for one address: that of the server, of the IdP,
// or one that they named.
func (l *Logins) client(s config.Server, target string) (*http.Client, error) {
	if l.given != nil {
		return l.given, nil
	}
	cfg := l.config()
	allow := append([]string(nil), cfg.Auth.PrivateHosts...)
	for _, raw := range []string{s.URL, s.Auth.Issuer, cfg.Auth.Issuer} {
		if raw != "" {
			allow = append(allow, originOf(raw))
		}
	}
	if devLoopback(cfg, s.URL) && devLoopback(cfg, target) {
		// On a developer's machine a server and its sign-in are two ports.
		allow = append(allow, originOf(target))
	}
	key := strings.Join(allow, " ")
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.http[key]; c != nil {
		return c, nil
	}
	c, err := outbound.New(outbound.Options{Allow: allow})
	if err != nil {
		return nil, err
	}
	l.http[key] = c
	return c, nil
}

// devLoopback reports whether an address is on this machine and the portal is
// one of development.
func devLoopback(cfg *config.Config, raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && cfg.Auth.Mode == "none" && config.IsLoopback(u.Hostname())
}

func originOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return ""
	}
	return strings.ToLower(u.Scheme + "://" + u.Host)
}

// origin is that of the portal.
func (l *Logins) origin() string {
	cfg := l.config()
	if cfg.URL != "" {
		return strings.TrimSuffix(cfg.URL, "/")
	}
	return "http://" + cfg.Listen
}

// Address is a path of the portal as people open it.
func (l *Logins) Address(path string) string { return l.origin() + path }

func (l *Logins) redirectURI() string { return l.origin() + CallbackPath }

// hash shortens what may be long or hold any character for use in keys.
func hash(parts ...string) string {
	h := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(h[:16])
}

// digest is of secrets: who can read the store cannot use them.
func digest(secret string) string {
	h := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(h[:])
}
