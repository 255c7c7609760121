package gateway

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/wire"
)

// note is what replicas tell each other.
type note struct {
	Kind string          `json:"kind"` // answer, cancel, toggled
	Key  string          `json:"key"`
	Body json.RawMessage `json:"body,omitempty"`
}

// bus carries notes between replicas over one store channel, and to handlers
// in this process.
type bus struct {
	ctx   context.Context
	store store.Store
	log   *slog.Logger

	mu       sync.Mutex
	handlers map[string]func(note)
}

const busChannel = "gateway"

func newBus(ctx context.Context, s store.Store, log *slog.Logger) *bus {
	b := &bus{ctx: ctx, store: s, log: log, handlers: map[string]func(note){}}
	go b.listen()
	return b
}

func (b *bus) handle(kind string, f func(note)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.handlers[kind] = f
}

func (b *bus) listen() {
	for b.ctx.Err() == nil {
		ch, err := b.store.Subscribe(b.ctx, busChannel)
		if err != nil {
			b.log.Warn("not listening to other replicas until the store is back", "error", err)
			select {
			case <-b.ctx.Done():
			case <-time.After(2 * time.Second):
			}
			continue
		}
		for raw := range ch {
			var n note
			if err := json.Unmarshal(raw, &n); err != nil {
				b.log.Warn("unreadable note from another replica", "error", err)
				continue
			}
			b.mu.Lock()
			f := b.handlers[n.Kind]
			b.mu.Unlock()
			if f != nil {
				f(n)
			}
		}
	}
}

// tell sends a note to all replicas, this one included.
func (b *bus) tell(ctx context.Context, n note) error {
	return b.store.Publish(ctx, busChannel, wire.Encode(n))
}
