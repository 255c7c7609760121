package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/mcp-portal/mcp-portal/audit"
	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/auth/vault"
	"github.com/mcp-portal/mcp-portal/codemode"
	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/gateway"
	"github.com/mcp-portal/mcp-portal/registry"
	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/upstreams"
	"github.com/mcp-portal/mcp-portal/upstreams/logins"
	"github.com/mcp-portal/mcp-portal/wire"
)

// portal is one running portal: the rooms, wired.
type portal struct {
	cfg      *config.Config
	booted   *config.Config // what was in force at start
	log      *slog.Logger
	store    store.Store
	audit    *audit.Writer
	vault    *vault.Vault
	auth     *auth.Auth
	registry *registry.Registry
	logins   *logins.Logins
	manager  *upstreams.Manager
	pool     *codemode.Pool
	gateway  *gateway.Gateway
	server   *http.Server
	listener net.Listener
	stop     context.CancelFunc
	cleanup  func() // after close; nil: nothing
}

// start brings a portal up. It needs nothing but the configuration: IdP,
// Redis and every upstream may be down.
func start(ctx context.Context, cfg *config.Config, ln net.Listener, log *slog.Logger) (p *portal, err error) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	p = &portal{cfg: cfg, booted: cfg, log: log, listener: ln, stop: stop}
	defer func() {
		if err != nil {
			p.close(time.Second)
		}
	}()
	if p.store, err = store.Open(ctx, cfg.Store, cfg.Path, log); err != nil {
		return p, err
	}
	if p.audit, err = audit.Open(cfg.Audit, cfg.Path, log); err != nil {
		return p, err
	}
	if p.vault, err = vault.New(vault.Options{Keys: cfg.Auth.EncryptionKeys, Store: p.store, Log: log}); err != nil {
		return p, err
	}
	if p.auth, err = auth.New(auth.Options{Config: cfg, Store: p.store, Vault: p.vault, Log: log}); err != nil {
		return p, err
	}
	p.registry = registry.New(registry.Options{Store: p.store, Log: log, Catalog: cfg.Catalog})
	p.registry.SetServers(cfg.Servers)
	restored := make(chan struct{})
	go func() {
		defer close(restored)
		p.registry.Restore(ctx)
	}()
	select {
	case <-restored: // so that the first request sees what was known
	case <-time.After(time.Second): // a store that is away must not delay the start
	}
	if p.pool, err = codemode.NewPool(ctx, codemode.PoolOptions{Code: cfg.Code, Log: log}); err != nil {
		return p, err
	}
	if p.logins, err = logins.New(ctx, logins.Options{Config: cfg, Store: p.store, Vault: p.vault, Log: log, Subjects: p.auth}); err != nil {
		return p, err
	}
	p.auth.OnSignOut(p.logins.SignOutAll)
	p.manager = upstreams.NewManager(ctx, upstreams.Options{
		Credentials: p.logins,
		Log:         log, Limits: cfg.Limits, Poll: cfg.Catalog.Poll,
		ClientInfo:  wire.Encode(map[string]string{"name": "mcp-portal", "title": cfg.Name, "version": version}),
		OnStatus:    p.registry.SetStatus,
		OnCatalogue: p.registry.Update,
		OnNotification: func(server, user, session, method string, params json.RawMessage) {
			p.gateway.FromServer(server, user, session, method, params) // it is there before the first server is
		},
	})
	if p.gateway, err = gateway.New(ctx, gateway.Options{
		Config: cfg, Version: version, Log: log, Store: p.store, Auth: p.auth,
		Registry: p.registry, Upstreams: p.manager, Logins: p.logins, Runner: p.pool, Audit: p.audit, Vault: p.vault,
	}); err != nil {
		return p, err
	}
	p.manager.Apply(cfg.Servers, nil)
	p.server = &http.Server{
		Handler:           p.gateway.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	go func() {
		if err := p.server.Serve(ln); err != nil && !errors.Is(err, http.ErrServerClosed) {
			log.Error("the listener failed", "error", err)
		}
	}()
	return p, nil
}

// reload switches to another configuration. Calls under way finish with the
// old one; only servers whose connection settings changed reconnect.
func (p *portal) reload(next *config.Config) {
	next = bound(next, p.listener)
	change := config.Diff(p.cfg, next)
	if change.Empty() {
		return
	}
	if err := p.vault.SetKeys(next.Auth.EncryptionKeys); err != nil {
		p.log.Error("the new configuration was refused, the old one stays in use", "error", err)
		return
	}
	if err := p.auth.SetConfig(next); err != nil {
		p.log.Error("the new configuration was refused, the old one stays in use", "error", err)
		return
	}
	if err := p.pool.SetConfig(next.Code); err != nil {
		_ = p.auth.SetConfig(p.cfg)
		p.log.Error("the new configuration was refused, the old one stays in use", "error", err)
		return
	}
	if err := p.gateway.SetConfig(next); err != nil {
		_ = p.auth.SetConfig(p.cfg)
		_ = p.pool.SetConfig(p.cfg.Code)
		p.log.Error("the new configuration was refused, the old one stays in use", "error", err)
		return
	}
	p.logins.SetConfig(next)
	p.registry.SetCatalog(next.Catalog)
	p.manager.Apply(next.Servers, func() { p.registry.SetServers(next.Servers) })
	p.cfg = next
	p.log.Info("configuration reloaded", "added", change.Added, "removed", change.Removed, "reconnected", change.Reconnect, "changed", change.Toggled, "sections", change.Sections)
	if restart := config.Diff(p.booted, next).Restart; len(restart) > 0 { // its listener, store and files are made once
		p.log.Warn("these keys differ from those at start and take effect at the next one", "keys", restart)
	}
}

// close ends streams, lets calls finish for a while, and releases everything.
func (p *portal) close(drain time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	if p.server != nil {
		// The listener closes first, so that nothing new comes. After the
		// deadline the calls are cancelled, and have a moment to say so.
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			last, cancel := context.WithTimeout(context.Background(), drain+time.Second)
			defer cancel()
			if err := p.server.Shutdown(last); err != nil {
				_ = p.server.Close()
			}
		}()
		if p.gateway != nil {
			p.gateway.Close(ctx)
		}
		<-closed
	} else if p.listener != nil {
		_ = p.listener.Close()
	}
	if p.pool != nil {
		p.pool.Close()
	}
	if p.manager != nil {
		p.manager.Close(ctx)
	}
	if p.registry != nil {
		// What was listed a moment ago is to be there at the next start.
		flush, done := context.WithTimeout(context.Background(), 2*time.Second)
		if err := p.registry.Flush(flush); err != nil {
			p.log.Warn("some catalogues are not in the store, they will be listed anew", "error", err)
		}
		done()
		p.registry.Close()
	}
	p.stop()
	if p.audit != nil {
		_ = p.audit.Close()
	}
	if p.store != nil {
		_ = p.store.Close()
	}
	if p.cleanup != nil {
		p.cleanup()
	}
}

// newLog is the program's log on standard error.
func newLog(c config.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		level = slog.LevelInfo
	}
	opt := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, opt))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, opt))
}

// endpoint is the URL that agents connect to.
func endpoint(cfg *config.Config) string {
	if cfg.URL != "" {
		return strings.TrimSuffix(cfg.URL, "/") + "/mcp"
	}
	return "http://" + cfg.Listen + "/mcp"
}

// bound is the configuration with the port that was really taken, where the
// file leaves the choice to the system (port 0).
func bound(cfg *config.Config, ln net.Listener) *config.Config {
	host, port, err := net.SplitHostPort(cfg.Listen)
	if err != nil || port != "0" {
		return cfg
	}
	_, taken, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		return cfg
	}
	own := *cfg
	own.Listen = net.JoinHostPort(host, taken)
	return &own
}

func listen(addr string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w. Choose another address with listen; port 0 takes a free one", addr, err)
	}
	return ln, nil
}
