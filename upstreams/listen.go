package upstreams

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/mcp-portal/mcp-portal/wire"
)

func (h *hello) modern() bool { return wire.Modern(h.version) }

// listen keeps a subscriptions/listen stream of a 2026-07-28 server open, for
// the notices that it offers. The result stops it. 2025 servers tell by
// themselves.
func (s *server) listen(c conn) (stop func()) {
	h := c.hello()
	filter := wire.Object{}
	for capability, member := range map[string]string{
		"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged",
	} {
		if string(h.capability(capability).Get("listChanged")) == "true" {
			filter = filter.Set(member, json.RawMessage(`true`))
		}
	}
	if !h.modern() || len(filter) == 0 {
		return func() {}
	}
	params := wire.Object{{Key: "notifications", Value: filter.Bytes()}}.Bytes()
	ctx, cancel := context.WithCancel(s.loop)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := &backoff{min: s.opts.BackoffMin, max: s.opts.BackoffMax}
		for ctx.Err() == nil && c.why() == nil {
			started := time.Now()
			_, err := c.do(ctx, internal(methodListen, params, timing{}))
			if ctx.Err() != nil {
				return
			}
			if unsupported(err) {
				s.log.Info("the server has no subscriptions/listen: changes are found by polling")
				return
			}
			s.log.Debug("the listen stream ended: opening it again", "error", err)
			if time.Since(started) > 10*b.min {
				b.reset()
			}
			select {
			case <-time.After(b.next()):
			case <-ctx.Done():
			}
			s.nudge(false) // notices may have been missed, or the server is gone
		}
	}()
	return func() { cancel(); <-done }
}

// unsupported reports a refusal that will not change.
func unsupported(err error) bool {
	if we, ok := wire.AsError(err); ok {
		return we.Code == wire.CodeMethodNotFound || we.Code == wire.CodeInvalidParams
	}
	var ce *CallError
	if errors.As(err, &ce) {
		switch ce.Problem.HTTPStatus {
		case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
			return true
		}
	}
	return false
}
