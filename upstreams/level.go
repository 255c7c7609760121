package upstreams

import (
	"context"
	"encoding/json"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
)

// levelPatience is how long a call waits for its server to take a log level.
const levelPatience = 10 * time.Second

// sessionCapabilities are what a session begun for the call declares.
func (c *Call) sessionCapabilities() json.RawMessage {
	if c.SessionCapabilities != nil {
		return c.SessionCapabilities
	}
	return c.Capabilities
}

// setLevel tells a 2025 server from which level on messages are wanted, before
// a call that wants another than the one before. (In 2026-07-28 each request
// says so itself.) A session that several users share only ever gets more
// talkative: each caller is passed what it asked for. A server that refuses
// goes on as before, the call with it.
func (s *server) setLevel(ctx context.Context, c conn, level string) {
	h := c.hello()
	if level == "" || h == nil || h.modern() || h.capability("logging") == nil {
		return
	}
	b := c.base()
	b.levelMu.Lock()
	defer b.levelMu.Unlock()
	if b.level == level || !b.personal && b.level != "" && wire.LogRank(b.level) <= wire.LogRank(level) {
		return
	}
	b.level = level
	params := wire.Object{{Key: "level", Value: wire.Quote(level)}}.Bytes()
	if _, err := c.do(ctx, internal("logging/setLevel", params, timing{idle: levelPatience, ceiling: levelPatience})); err != nil {
		s.log.Info("the server did not take the log level", "level", level, "error", err)
	}
}
