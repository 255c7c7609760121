package upstreams

import (
	"context"
	"reflect"

	"github.com/mcp-portal/mcp-portal/config"
)

// Apply makes the servers those of the configuration: new ones are connected,
// removed ones drained and closed, changed ones replaced. The others, their
// connections and their calls in flight are not touched. It does not wait for
// connections. When it returns, nothing of an old generation begins any more:
// no session that was being made for it survives.
//
// between, if given, runs when the old generation has said its last and the new
// one nothing yet: whoever keeps what servers report by their ids changes over
// then, and loses and mixes up nothing.
func (m *Manager) Apply(servers map[string]config.Server, between func()) {
	m.applying.Lock()
	defer m.applying.Unlock()

	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return
	}
	var old, fresh []*server
	for id, s := range m.servers {
		cfg, ok := servers[id]
		cfg.ID = id
		if ok && sameConnection(s.cfg, cfg) {
			continue
		}
		delete(m.servers, id)
		old = append(old, s)
	}
	for id, cfg := range servers {
		if m.servers[id] != nil {
			continue
		}
		cfg.ID = id
		s := newServer(cfg, &m.opts, m.changed)
		m.servers[id] = s
		fresh = append(fresh, s)
	}
	m.mu.Unlock()

	for _, s := range old {
		s.retire()
		m.drain(s)
	}
	if between != nil {
		between()
	}
	for _, s := range fresh {
		go s.run()
	}
	m.changed()
}

// drain lets a retired server finish its calls, in the background.
func (m *Manager) drain(s *server) {
	m.draining.Add(1)
	go func() {
		defer m.draining.Done()
		ctx, cancel := context.WithTimeout(m.hard, s.timing().ceiling)
		defer cancel()
		s.drain(ctx)
	}()
}

// sameConnection reports whether a changed configuration leaves the connection
// as it is: titles, policies and the like do not concern it.
func sameConnection(a, b config.Server) bool {
	type link struct {
		Enabled        bool
		URL, Transport string
		Headers, Query map[string]config.Secret
		Bearer         config.Secret
		Command        []string
		Env            map[string]config.Secret
		Dir, Sessions  string
		Connect, Call  int64
		Ceiling        int64
		Auth           config.ServerAuth
		OpenAPI        string
		Operations     config.Operations
		Trust          bool
	}
	of := func(c config.Server) link {
		l := link{c.IsEnabled(), c.URL, c.Transport, c.Headers, c.Query, c.Bearer, c.Command, c.Env, c.Dir, c.Sessions, int64(c.ConnectTimeout), int64(c.CallTimeout), int64(c.CallCeiling), c.Auth, c.OpenAPI, c.Operations, c.OpenAPI != "" && c.TrustAnnotations}
		if len(l.Headers) == 0 {
			l.Headers = nil
		}
		if len(l.Query) == 0 {
			l.Query = nil
		}
		if len(l.Env) == 0 {
			l.Env = nil
		}
		return l
	}
	return reflect.DeepEqual(of(a), of(b))
}

// Close ends all servers: calls in flight may finish until ctx ends, then they
// are cut off. It returns when no connection and no child process is left.
func (m *Manager) Close(ctx context.Context) {
	m.applying.Lock()
	defer m.applying.Unlock()
	m.mu.Lock()
	m.closed = true
	old := m.servers
	m.servers = map[string]*server{}
	m.mu.Unlock()
	stop := context.AfterFunc(ctx, m.cut)
	defer stop()
	for _, s := range old {
		s.retire()
		m.drain(s)
	}
	m.draining.Wait()
	m.cut()
	m.changed()
}
