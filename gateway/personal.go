package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/registry"
	"github.com/mcp-portal/mcp-portal/upstreams/logins"
)

// personal reads what servers list for one user, where everybody has a login
// of their own and the portal has none: when the user first looks, and again
// when that is old.
type personal struct {
	g *Gateway

	mu    sync.Mutex
	under map[personalKey]chan struct{} // closed when the listing is over
	tried map[personalKey]time.Time     // listings that failed
	of    map[personalKey]string        // id of the login that a list was read with
}

type personalKey struct{ server, user string }

const (
	listPatience = 5 * time.Second  // of a request for a list that is being read
	listCeiling  = time.Minute      // of reading it
	listRest     = 30 * time.Second // after a failure, until the next attempt
)

func newPersonal(g *Gateway) *personal {
	return &personal{g: g, under: map[personalKey]chan struct{}{}, tried: map[personalKey]time.Time{}, of: map[personalKey]string{}}
}

// changed hears of a login that began, was renewed or ended.
func (p *personal) changed(c logins.Change) {
	p.g.opt.Upstreams.LoginChanged(c.Server, c.User, c.Login)
	if c.User == "" {
		return
	}
	k := personalKey{c.Server, c.User}
	p.mu.Lock()
	delete(p.tried, k)
	of, known := p.of[k]
	if known && of != c.Login {
		delete(p.of, k)
	}
	p.mu.Unlock()
	if !known || of != c.Login { // renewed logins see what they saw
		p.g.opt.Registry.DropFor(c.Server, c.User)
		p.g.listeners.wake("")
	}
	cfg := p.g.settings().cfg
	if s := cfg.Servers[c.Server]; c.Login != "" && s.Auth.PerUser() && s.Auth.Catalog == "shared" && !p.g.listedLately(c.Server, cfg.Catalog.Poll) {
		// On every replica: whoever comes there next may be another user.
		go p.begin(context.Background(), c.Server, c.User, true)
	}
}

// snapshot is what there is for a principal, with what is theirs alone.
func (p *personal) snapshot(ctx context.Context, set *settings, who *auth.Principal) *registry.Snapshot {
	reg := p.g.opt.Registry
	if p.g.opt.Logins == nil || who.Kind == auth.KindService {
		return reg.Snapshot()
	}
	var wait []chan struct{}
	for id, s := range set.cfg.Servers {
		if !s.IsEnabled() || !s.Auth.PerUser() || !set.access.CanServer(who, id) {
			continue
		}
		shared, at := reg.Personal(id, who.ID)
		lent := s.Auth.Catalog == "shared"
		fresh := p.g.now().Sub(at) < set.cfg.Catalog.Poll
		switch {
		case shared && !lent, !shared && fresh:
			continue
		case shared && p.g.listedLately(id, set.cfg.Catalog.Poll):
			continue
		}
		if done := p.begin(ctx, id, who.ID, lent); done != nil && !shared && at.IsZero() {
			wait = append(wait, done)
		}
	}
	limit := time.NewTimer(listPatience)
	defer limit.Stop()
	for _, done := range wait {
		select {
		case <-done:
		case <-limit.C:
			return reg.SnapshotFor(who.ID) // it follows; the client is told
		case <-ctx.Done():
			return reg.SnapshotFor(who.ID)
		}
	}
	return reg.SnapshotFor(who.ID)
}

// listedLately reports whether a list that a user's login was lent for is of
// late, or kept fresh by the portal's own login.
func (g *Gateway) listedLately(server string, poll time.Duration) bool {
	up, ok := g.opt.Upstreams.Get(server)
	return ok && g.now().Sub(up.Status().Listed) < poll
}

// begin reads a list in the background, if the user has a login to read it
// with. Nil: nothing is under way.
func (p *personal) begin(ctx context.Context, server, user string, publish bool) chan struct{} {
	k := personalKey{server, user}
	p.mu.Lock()
	done, failed := p.under[k], p.tried[k]
	p.mu.Unlock()
	if done != nil {
		return done
	}
	if p.g.now().Sub(failed) < listRest {
		return nil
	}
	cred, err := p.g.opt.Logins.Current(ctx, server, user)
	if err != nil {
		return nil // there is nothing to list with; the status says so
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.under[k] != nil {
		return p.under[k]
	}
	done = make(chan struct{})
	p.under[k] = done
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listCeiling)
		defer cancel()
		c, err := p.g.opt.Upstreams.ListAs(ctx, server, user, publish)
		if err == nil && !publish {
			p.g.opt.Registry.UpdateFor(server, user, c)
		}
		p.mu.Lock()
		delete(p.under, k)
		if err != nil {
			p.tried[k] = p.g.now()
		} else {
			delete(p.tried, k)
			p.of[k] = cred.Login
		}
		p.mu.Unlock()
		if err != nil {
			p.g.log.Warn("a server could not be listed for a user", "server", server, "user", user, "error", err)
			return
		}
		p.g.listeners.wake("")
	}()
	return done
}
