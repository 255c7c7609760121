package store

import (
	"log/slog"
	"sync"
	"time"
)

// health is the present state of a backend. It logs each change once.
type health struct {
	backend string
	log     *slog.Logger

	mu     sync.Mutex
	status Status
	known  bool // a first result is there
}

func newHealth(backend string, log *slog.Logger) *health {
	return &health{backend: backend, log: log, status: Status{Backend: backend, Since: time.Now()}}
}

func (h *health) get() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.status
}

func (h *health) degraded() bool { return h.get().Degraded }

// fail records why the backend does not work.
func (h *health) fail(reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.status
	h.known = true
	if was.Degraded && was.Error == reason {
		return
	}
	h.status.Degraded, h.status.Error = true, reason
	if !was.Degraded {
		h.status.Since = time.Now()
		h.log.Warn("store degraded", "backend", h.backend, "error", reason)
		return
	}
	h.log.Warn("store still degraded, for another reason", "backend", h.backend, "error", reason)
}

// work records that the backend takes writes.
func (h *health) work() {
	h.mu.Lock()
	defer h.mu.Unlock()
	was, known := h.status, h.known
	h.known = true
	if known && !was.Degraded {
		return
	}
	h.status.Degraded, h.status.Error, h.status.Since = false, "", time.Now()
	if known {
		h.log.Info("store healthy again", "backend", h.backend, "after", time.Since(was.Since).Round(time.Millisecond))
		return
	}
	h.log.Info("store ready", "backend", h.backend)
}
