package upstreams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os/exec"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/upstreams/openapi"
	"github.com/mcp-portal/mcp-portal/wire"
)

// Options configure a Manager. The callbacks of one server come one at a time;
// they must return soon and must not call Apply or Close.
type Options struct {
	Log    *slog.Logger  // nil: discards
	Limits config.Limits // zero fields: the defaults of config

	// ClientInfo is how the portal calls itself to servers (Implementation of
	// MCP). Nil: mcp-portal.
	ClientInfo json.RawMessage

	// Capabilities are those of the sessions that the portal begins for itself,
	// for listing and for servers shared by all (ClientCapabilities of MCP).
	// Some servers list certain tools only to clients that can be asked, so nil
	// is: elicitation, sampling, roots and MCP apps. Sessions of users have their
	// client's.
	Capabilities json.RawMessage

	// Credentials authorize requests to servers that use OAuth. Nil: such
	// servers cannot be connected to.
	Credentials Credentials

	// RoundTripper wraps the HTTP transport of one server, for metrics or
	// credentials of another kind. The base never sends a request twice.
	RoundTripper func(server string, base http.RoundTripper) http.RoundTripper

	OnStatus      func(Status)                      // at every change
	OnCatalogue   func(server string, c *Catalogue) // after every full listing
	OnListChanged func(server string)               // the server said that it changed; a listing follows by itself; must not block

	// OnNotification gets what belongs to no call: updated resources, messages
	// of a session. User and session are empty unless it came on a session of
	// theirs. The reader of the connection calls it: it must not block.
	OnNotification func(server, user, session, method string, params json.RawMessage)

	Poll            time.Duration // backstop listing, default 5m
	BackoffMin      time.Duration // first pause after a failure, default 1s
	BackoffMax      time.Duration // longest pause, default 60s
	Debounce        time.Duration // between a notice and the listing, default 200ms
	DiscoverTimeout time.Duration // for servers that never answer server/discover, default 5s
	SessionIdle     time.Duration // upstream sessions of users end after, default 10m
	MaxSessions     int           // HTTP sessions per server, default 1000
	MaxChildren     int           // child processes of users per server, default 32
	Grace           time.Duration // between the steps of ending a child, default 2s

	spawn func(*exec.Cmd) error // starts children
}

func (o *Options) fill() {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.ClientInfo == nil {
		o.ClientInfo = json.RawMessage(`{"name":"mcp-portal","version":"1"}`)
	}
	if o.Capabilities == nil {
		o.Capabilities = json.RawMessage(`{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{},"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}`)
	}
	def(&o.Limits.ConnectTimeout, 20*time.Second)
	def(&o.Limits.CallTimeout, time.Minute)
	def(&o.Limits.CallCeiling, 15*time.Minute)
	if o.Limits.Message <= 0 {
		o.Limits.Message = 32 << 20
	}
	def(&o.Poll, 5*time.Minute)
	def(&o.BackoffMin, time.Second)
	def(&o.BackoffMax, time.Minute)
	def(&o.Debounce, 200*time.Millisecond)
	def(&o.DiscoverTimeout, 5*time.Second)
	def(&o.SessionIdle, 10*time.Minute)
	def(&o.Grace, 2*time.Second)
	if o.MaxSessions <= 0 {
		o.MaxSessions = 1000
	}
	if o.MaxChildren <= 0 {
		o.MaxChildren = 32
	}
}

// Manager keeps the connections to all servers.
type Manager struct {
	opts Options

	applying sync.Mutex // one Apply or Close at a time

	mu      sync.Mutex
	servers map[string]*server
	closed  bool
	pulse   chan struct{}

	draining sync.WaitGroup
	hard     context.Context // ends when draining must
	cut      context.CancelFunc
}

// NewManager makes a manager without servers; see Apply. When ctx ends,
// everything is cut off; Close ends it in order.
func NewManager(ctx context.Context, o Options) *Manager {
	o.fill()
	m := &Manager{opts: o, servers: map[string]*server{}, pulse: make(chan struct{})}
	m.hard, m.cut = context.WithCancel(ctx)
	m.opts.spawn = newSpawner(m.hard)
	context.AfterFunc(ctx, func() { m.Close(ctx) })
	return m
}

// Get returns the server with the id. It stays good across reconfigurations:
// a call goes to the generation that is current when it begins.
func (m *Manager) Get(id string) (Upstream, bool) {
	if m.server(id) == nil {
		return nil, false
	}
	return &upstream{m, id}, true
}

func (m *Manager) server(id string) *server {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.servers[id]
}

func (m *Manager) all() []*server {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*server, 0, len(m.servers))
	for _, s := range m.servers {
		out = append(out, s)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].cfg.ID < out[j].cfg.ID })
	return out
}

// Statuses are the present states, sorted by id.
func (m *Manager) Statuses() []Status {
	var out []Status
	for _, s := range m.all() {
		out = append(out, s.snapshot())
	}
	return out
}

// Document is the OpenAPI document of a server that is an HTTP API; nil: it is
// none, or its document has not been read yet.
func (m *Manager) Document(id string) *openapi.Document {
	s := m.server(id)
	if s == nil || s.source == nil {
		return nil
	}
	if state := s.source.known(); state != nil {
		return state.doc
	}
	return nil
}

// Refresh lists a server soon, without waiting: reconnecting at once if it is
// degraded. Unknown ids are ignored.
func (m *Manager) Refresh(id string) {
	if s := m.server(id); s != nil {
		s.refresh()
	}
}

// List lists a server now, and waits for the outcome. It is published like any
// other listing.
func (m *Manager) List(ctx context.Context, id string) (*Catalogue, error) {
	s := m.server(id)
	if s == nil {
		return nil, fmt.Errorf("list server %s: no such server in the configuration", id)
	}
	select {
	case l := <-s.refresh():
		if l.err != nil {
			return nil, fmt.Errorf("list server %s: %w", id, l.err)
		}
		return l.cat, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("list server %s: %w", id, ctx.Err())
	}
}

// ListAs lists a server with the login of a user, for servers that the portal
// itself has no login for, and waits. publish makes it the list of the server,
// as if the portal had listed it.
func (m *Manager) ListAs(ctx context.Context, id, user string, publish bool) (*Catalogue, error) {
	s := m.server(id)
	if s == nil || !s.enter() {
		return nil, fmt.Errorf("list server %s: no such server in the configuration", id)
	}
	defer s.leave()
	c, err := s.listAs(ctx, user, publish)
	if err != nil {
		return nil, fmt.Errorf("list server %s: %w", id, err)
	}
	return c, nil
}

// LoginChanged ends the sessions that were begun with another login of a user
// ("": of the portal) than the present one ("": there is none). Calls in flight
// end first. It does not block.
func (m *Manager) LoginChanged(id, user, present string) {
	if s := m.server(id); s != nil {
		s.loginChanged(user, present)
	}
}

// CloseSession ends the upstream sessions that served one portal session. Calls
// in flight end first.
func (m *Manager) CloseSession(user, session string) {
	if session == "" {
		return
	}
	for _, s := range m.all() {
		s.pool.closeSession(user, session)
	}
}

// WaitReady waits until the servers are ready, or all enabled ones if none is
// named. The error says which are not, and why.
func (m *Manager) WaitReady(ctx context.Context, ids ...string) error {
	for {
		m.mu.Lock()
		pulse := m.pulse
		m.mu.Unlock()
		var missing []string
		for _, st := range m.pick(ids) {
			if st.State == Ready {
				continue
			}
			why := string(st.State)
			if st.Error != nil {
				why += " (" + st.Error.Message + ")"
			}
			missing = append(missing, st.Server+" is "+why)
		}
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-pulse:
		case <-ctx.Done():
			return fmt.Errorf("wait for servers: %s: %w", strings.Join(missing, "; "), ctx.Err())
		}
	}
}

// pick returns the states of the named servers, or of all enabled ones.
func (m *Manager) pick(ids []string) []Status {
	var out []Status
	if len(ids) == 0 {
		for _, st := range m.Statuses() {
			if st.State != Disabled {
				out = append(out, st)
			}
		}
		return out
	}
	for _, id := range ids {
		st := Status{Server: id, State: "not configured"}
		if s := m.server(id); s != nil {
			st = s.snapshot()
		}
		out = append(out, st)
	}
	return out
}

func (m *Manager) changed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.pulse)
	m.pulse = make(chan struct{})
}

// upstream is the handle on a server: it outlives generations.
type upstream struct {
	m  *Manager
	id string
}

func (u *upstream) ID() string { return u.id }

func (u *upstream) Status() Status {
	if s := u.m.server(u.id); s != nil {
		return s.snapshot()
	}
	return Status{Server: u.id, State: Disabled}
}

func (u *upstream) Do(ctx context.Context, c *Call) (json.RawMessage, error) {
	var s *server
	for range 5 { // more reconfigurations than that within one call are an accident
		next := u.m.server(u.id)
		if next == nil || next == s {
			break
		}
		s = next
		if !s.enter() {
			continue
		}
		res, err := s.call(ctx, c)
		s.leave()
		var ce *CallError
		if errors.As(err, &ce) && ce.Err == errRetired && !ce.Sent {
			continue // the next generation may carry it: it was not sent
		}
		return res, err
	}
	return nil, &CallError{Server: u.id, Tool: c.Name, Err: errRetired,
		Problem: Problem{Kind: KindConfig, Message: "the server is not in the configuration any more"}}
}

var (
	_ Upstream = (*upstream)(nil)
	_ error    = (*wire.Error)(nil)
)
