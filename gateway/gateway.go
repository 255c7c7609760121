package gateway

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/mcp-portal/mcp-portal/audit"
	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/auth/vault"
	"github.com/mcp-portal/mcp-portal/auth/webhook"
	"github.com/mcp-portal/mcp-portal/codemode"
	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/gateway/pages"
	"github.com/mcp-portal/mcp-portal/registry"
	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/upstreams"
	"github.com/mcp-portal/mcp-portal/upstreams/logins"
	"github.com/mcp-portal/mcp-portal/upstreams/openapi"
	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// Upstreams is what the gateway needs of the connections.
type Upstreams interface {
	Get(id string) (upstreams.Upstream, bool)
	Statuses() []upstreams.Status
	CloseSession(user, session string)
	Notify(user, session, method string, params json.RawMessage)
	ListAs(ctx context.Context, id, user string, publish bool) (*upstreams.Catalogue, error)
	LoginChanged(id, user, present string)
	Document(id string) *openapi.Document
}

// Runner runs scripts; *codemode.Pool is one.
type Runner interface {
	Run(ctx context.Context, req codemode.Request, host codemode.Host) (*codemode.Outcome, error)
	Status() codemode.Status
}

// Options are the rooms that the gateway connects.
type Options struct {
	Config    *config.Config
	Version   string // of the program
	Log       *slog.Logger
	Store     store.Store
	Auth      *auth.Auth
	Registry  *registry.Registry
	Upstreams Upstreams
	Logins    *logins.Logins // nil: no server uses OAuth
	Runner    Runner
	Audit     *audit.Writer
	Vault     *vault.Vault     // seals recordings of runs; nil: none are kept
	Now       func() time.Time // nil: time.Now
}

// Gateway serves one portal.
type Gateway struct {
	opt       Options
	log       *slog.Logger
	now       func() time.Time
	started   time.Time
	pages     *pages.Pages
	sessions  *sessions
	toggles   *toggles
	listeners *listeners
	bus       *bus
	approvals *writeguard.Approvals
	hook      *webhook.Sender
	plans     *writeguard.Plans
	budgets   *writeguard.Budgets
	taints    *writeguard.Taints
	runs      *runs
	answers   answers
	urls      urls
	tasks     tasks
	load      *load
	engine    string // codemode.Version
	passing   *passing
	applying  *applying
	parked    *parking
	personal  *personal
	kept      *kept
	seen      *seen
	policy    atomic.Pointer[settings]
	calls     inflight
	drainOnce sync.Once
	stopping  context.CancelFunc // ends the streams
	stopped   <-chan struct{}    // closed by it
	stop      context.CancelFunc // ends what calls under way need: the bus, housekeeping
}

// settings is one configuration with what is compiled from it; a request uses
// one from beginning to end.
type settings struct {
	cfg    *config.Config
	policy *writeguard.Policy
	access *auth.Access
}

// New connects the rooms. It starts background work that ends with ctx or
// Close, and contacts nobody.
func New(ctx context.Context, opt Options) (*Gateway, error) {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	p, err := pages.New()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	streams, stopping := context.WithCancel(ctx)
	g := &Gateway{opt: opt, log: opt.Log, now: opt.Now, started: opt.Now(), pages: p, engine: codemode.Version(), stop: stop, stopping: stopping, stopped: streams.Done()}
	if err := g.SetConfig(opt.Config); err != nil {
		stop()
		return nil, err
	}
	g.sessions = &sessions{store: opt.Store, log: opt.Log, now: opt.Now, known: map[string]*session{},
		idle:  func() time.Duration { return g.settings().cfg.Limits.SessionIdle },
		limit: func() int { return g.settings().cfg.Limits.Sessions },
		busy:  func(key string) bool { return g.calls.any(key+"\x00") || g.listeners.of(key) != nil },
		ended: func(user, key string) {
			g.listeners.drop(key)
			g.opt.Upstreams.CloseSession(user, key)
		},
		tell: g.tellEnded}
	g.hook = webhook.New(ctx, opt.Log, 0)
	g.approvals = writeguard.NewApprovals(opt.Store, opt.Log, writeguard.Options{Expires: opt.Config.Guard.ApprovalExpires, Now: opt.Now, On: g.announce})
	g.plans = writeguard.NewPlans(opt.Store, opt.Vault, opt.Log, opt.Now)
	g.plans.SetExpires(opt.Config.Guard.PlanExpires)
	g.budgets = writeguard.NewBudgets(opt.Store, opt.Now)
	g.taints = writeguard.NewTaints(opt.Store, opt.Log, opt.Now)
	g.load = newLoad(opt.Config.Limits)
	g.bus = newBus(ctx, opt.Store, opt.Log)
	g.bus.handle("answer", func(n note) {
		if m, err := wire.ParseMessage(n.Body); err == nil {
			g.answers.deliver(n.Key, m)
		}
	})
	g.bus.handle("cancel", func(n note) { g.calls.cancel(n.Key, errCancelled) })
	g.bus.handle("roots", g.passRoots)
	g.bus.handle("ended", func(n note) {
		var user string
		if json.Unmarshal(n.Body, &user) == nil {
			g.sessionEnded(user, n.Key)
		}
	})
	g.toggles = newToggles(opt.Store, opt.Log, g.bus)
	g.listeners = newListeners(ctx, g)
	g.runs = newRuns(g)
	g.seen = newSeen(opt.Store, opt.Log, opt.Now)
	g.kept = &kept{store: opt.Store, log: opt.Log, now: opt.Now}
	g.passing = newPassing(g.bus, opt.Log, &g.calls)
	g.carry(ctx)
	g.applying = newApplying(ctx, g)
	g.parked = newParking(ctx, g)
	g.personal = newPersonal(g)
	if opt.Logins != nil {
		context.AfterFunc(ctx, opt.Logins.Watch(g.personal.changed))
	}
	opt.Registry.Subscribe(func(old, now *registry.Snapshot) {
		g.logWarnings(old, now)
		g.listeners.wake("")
	})
	go g.sweep(ctx)
	return g, nil
}

// logWarnings logs what is newly odd about a server, such as a switch for a
// tool that it does not have.
func (g *Gateway) logWarnings(old, now *registry.Snapshot) {
	for _, s := range now.Servers {
		var known []string
		if before := old.Server(s.ID); before != nil {
			known = before.Warnings
		}
		for _, w := range s.Warnings {
			if !slices.Contains(known, w) {
				g.log.Warn("something about a server needs a look", "server", s.ID, "warning", w)
			}
		}
	}
}

// SetConfig switches to another configuration. Requests under way finish with
// the one they began with.
func (g *Gateway) SetConfig(cfg *config.Config) error {
	policy, err := writeguard.Compile(cfg)
	if err != nil {
		return err
	}
	if policy.Observes() {
		g.log.Warn("THE GUARD ONLY OBSERVES: rules and filters stop nothing, every call runs. Remove guard.observe to enforce them")
	}
	g.policy.Store(&settings{cfg: cfg, policy: policy, access: auth.NewAccess(cfg)})
	if g.listeners != nil { // not while New sets up
		g.approvals.SetExpires(cfg.Guard.ApprovalExpires)
		g.plans.SetExpires(cfg.Guard.PlanExpires)
		g.listeners.wake("")
	}
	return nil
}

func (g *Gateway) settings() *settings { return g.policy.Load() }

// Handler is the whole HTTP surface.
func (g *Gateway) Handler() http.Handler {
	r := chi.NewRouter()
	r.Use(g.recoverer, g.pace)
	r.Get("/healthz", g.healthz)
	r.Get("/readyz", g.readyz)
	r.Group(func(r chi.Router) {
		r.Use(g.opt.Auth.GuardHost)
		r.Post("/mcp", g.post)
		r.Get("/mcp", g.get)
		r.Delete("/mcp", g.del)
		// The guard answers the preflights of configured origins, but only of
		// addresses and methods that have a route.
		r.Options("/mcp", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", "POST, GET, DELETE")
			w.WriteHeader(http.StatusMethodNotAllowed)
		})
		g.web(r)
	})
	return r
}

// sweep does the housekeeping that nothing else triggers.
func (g *Gateway) sweep(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	away := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			now := g.opt.Store.Status().Degraded
			if away && !now {
				// It may have lost everything: what this process knows goes back.
				g.sessions.storeBack()
				g.opt.Registry.StoreAgain()
				g.taints.Flush(ctx)
			}
			if away = now; !away {
				g.sessions.sweep(ctx)
			}
			g.runs.sweep()
		}
	}
}

// Close ends streams and waits until calls under way are done or ctx ends;
// then it cancels them. Until then other replicas reach this one: answers of
// people and results of runs go that way.
func (g *Gateway) Close(ctx context.Context) {
	g.drainOnce.Do(func() {
		g.stopping()
		g.calls.drain(ctx)
		g.parked.close()
		g.runs.close()
		g.stop()
	})
}

// recoverer keeps a panic to its own request.
func (g *Gateway) recoverer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil {
				if v == http.ErrAbortHandler {
					panic(v)
				}
				g.log.Error("a request failed inside the portal", "path", r.URL.Path, "panic", v, "stack", stack())
				http.Error(w, "internal error of the portal; it was logged", http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}
