package upstreams

import (
	"context"
	"encoding/json"

	"github.com/mcp-portal/mcp-portal/wire"
)

// Notify passes a notification of a 2025 client to the sessions that 2025
// servers have with it, such as notifications/roots/list_changed. It does not
// wait; nobody answers a notification.
func (m *Manager) Notify(user, session, method string, params json.RawMessage) {
	for _, s := range m.all() {
		for _, c := range s.pool.sessionsOf(user, session) {
			if h := c.hello(); h == nil || h.modern() {
				continue
			}
			go func() {
				b := c.base()
				ctx, cancel := context.WithTimeout(b.life, politeness)
				defer cancel()
				if err := c.notice(ctx, wire.Message{Method: method, Params: params}); err != nil {
					s.log.Info("a notification did not reach the server", "method", method, "error", err)
				}
			}()
		}
	}
}

func (c *streamable) notice(ctx context.Context, m wire.Message) error { return c.send(ctx, m) }

func (p *pipe) notice(ctx context.Context, m wire.Message) error {
	_, err := p.write(ctx, m.Bytes())
	return err
}

// sessionsOf lists the sessions that serve one portal session, alone or with all
// others of its user.
func (p *pool) sessionsOf(user, session string) []conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []conn
	for k, s := range p.slots {
		select {
		case <-s.ready:
		default:
			continue
		}
		if k.user == user && (k.session == session || k.session == "") && s.c != nil && s.c.why() == nil {
			out = append(out, s.c)
		}
	}
	return out
}
