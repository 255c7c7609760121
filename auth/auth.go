package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-portal/mcp-portal/auth/authserver"
	"github.com/mcp-portal/mcp-portal/auth/vault"
	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/store"
)

// Options are what New needs.
type Options struct {
	Config     *config.Config   // required
	Store      store.Store      // required: sign-ins under way, browser sessions, what clients were granted
	Vault      *vault.Vault     // seals tokens in the store; nil: one with a key kept in the store
	Log        *slog.Logger     // nil: nothing is logged
	HTTPClient *http.Client     // for the IdP; nil: a client with sane limits
	Now        func() time.Time // nil: time.Now
}

// Auth proves identities. It is safe for concurrent use.
type Auth struct {
	store  store.Store
	vault  *vault.Vault
	log    *slog.Logger
	http   *http.Client
	now    func() time.Time
	dev    devCSRF
	server *authserver.Server
	logins *authserver.Limiter // begun browser sign-ins
	single flightGroup         // renewals of people at the IdP

	hooks   sync.Mutex
	signOut []func(ctx context.Context, user string) error

	set   sync.Mutex // one SetConfig at a time
	state atomic.Pointer[settings]
}

// New builds an Auth without contacting anything: IdP and store may be down.
func New(o Options) (*Auth, error) {
	if o.Store == nil {
		return nil, errors.New("setting up sign-in: no store given")
	}
	a := &Auth{store: o.Store, vault: o.Vault, log: o.Log, now: o.Now, http: idpClient(o.HTTPClient)}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	if a.now == nil {
		a.now = time.Now
	}
	if a.vault == nil {
		v, err := vault.New(vault.Options{Store: o.Store, Log: a.log, Now: a.now})
		if err != nil {
			return nil, fmt.Errorf("setting up sign-in: %w", err)
		}
		a.vault = v
	}
	a.dev.key = randomBytes()
	a.logins = authserver.NewLimiter(500*time.Millisecond, 40, a.now)
	a.server = authserver.New(authserver.Options{Store: a.store, Vault: a.vault, Log: a.log, Now: a.now, Renew: a.renew, Machine: a.machine, Assertion: a.assertion, Caller: a.callerOf, Page: a.serverPage})
	if err := a.SetConfig(o.Config); err != nil {
		return nil, err
	}
	return a, nil
}

// SetConfig puts a new configuration into effect for requests that begin from
// now on. After an error the one before stays in effect. Keys of the IdP are
// kept when its issuer is the same.
func (a *Auth) SetConfig(cfg *config.Config) error {
	a.set.Lock()
	defer a.set.Unlock()
	s, err := a.newSettings(cfg)
	if err != nil {
		return fmt.Errorf("setting up sign-in: %w", err)
	}
	origin := ""
	if s.portal {
		origin = s.origin.String()
	}
	apply, err := a.server.Prepare(cfg, origin)
	if err != nil {
		return fmt.Errorf("setting up sign-in: %w", err)
	}
	a.state.Store(s)
	apply()
	return nil
}

// idpFor gives the present client of that issuer, or a new one.
func (a *Auth) idpFor(issuer string) *idp {
	if s := a.state.Load(); s != nil && s.idp != nil && s.idp.issuer == issuer {
		return s.idp
	}
	return newIDP(issuer, a.http, a.log, a.now)
}

// Access gives the access rules of the configuration in effect. Take it once
// per request.
func (a *Auth) Access() *Access { return a.state.Load().access }

// States of Status.
const (
	StateOK       = "ok"       // the last contact with the IdP succeeded
	StateDegraded = "degraded" // the last contact failed
	StateUnknown  = "unknown"  // nothing has needed the IdP yet
	StateDev      = "dev"      // mode none: there is no IdP
)

// Status is what the status page shows of sign-in. It holds no credentials.
type Status struct {
	Mode    string    `json:"mode"`             // "oidc" or "none"
	State   string    `json:"state"`            // one of the State constants
	Issuer  string    `json:"issuer,omitempty"` // of the IdP
	Keys    int       `json:"keys"`             // signing keys at hand
	KeysAt  time.Time `json:"keys_at,omitzero"` // when they were fetched
	Error   string    `json:"error,omitempty"`  // why degraded
	Since   time.Time `json:"since,omitzero"`   // of the present state
	Browser bool      `json:"browser"`          // sign-in for the portal's own pages is set up
	Accept  []string  `json:"accept,omitempty"` // whose access tokens are taken: portal, idp
	Sealed  string    `json:"sealed,omitempty"` // where the key lies that seals stored credentials: "configuration" or "store"
}

// Status says how sign-in stands right now, without contacting anything.
func (a *Auth) Status() Status {
	s := a.state.Load()
	if s.dev {
		return Status{Mode: "none", State: StateDev, Browser: true}
	}
	st := s.idp.status()
	st.Browser = s.cfg.Auth.ClientID != ""
	if s.portal {
		st.Accept = append(st.Accept, "portal")
	}
	if s.direct {
		st.Accept = append(st.Accept, "idp")
	}
	st.Sealed = "configuration"
	if a.vault.InStore() {
		st.Sealed = "store"
	}
	return st
}
