package store

import (
	"context"
	"errors"
	"time"
)

// ErrUnavailable wraps every error that means the backend cannot be reached
// now, so that callers can degrade visibly instead of inventing an answer.
var ErrUnavailable = errors.New("store unavailable")

// Store is shared state: key-value with expiry, compare-and-swap, and
// channels. Redis and the embedded file implement it alike; one conformance
// test runs against both. Keys are ASCII, colon separated ("approval:<id>").
// A ttl of 0 means no expiry. All methods are safe for concurrent use.
type Store interface {
	// Get returns the value and true, or nil and false when there is none.
	Get(ctx context.Context, key string) ([]byte, bool, error)
	// Set writes unconditionally.
	Set(ctx context.Context, key string, value []byte, ttl time.Duration) error
	// Create writes only if the key is absent and reports whether it did.
	Create(ctx context.Context, key string, value []byte, ttl time.Duration) (bool, error)
	// Swap writes new only if the current value equals old, and reports
	// whether it did. The ttl replaces the old one.
	Swap(ctx context.Context, key string, old, new []byte, ttl time.Duration) (bool, error)
	// Take returns the value and deletes it in one step.
	Take(ctx context.Context, key string) ([]byte, bool, error)
	// Delete removes the key; absent is no error.
	Delete(ctx context.Context, key string) error
	// Touch sets a new ttl and reports whether the key exists.
	Touch(ctx context.Context, key string, ttl time.Duration) (bool, error)
	// Keys lists keys with the prefix, sorted.
	Keys(ctx context.Context, prefix string) ([]string, error)
	// Publish sends to whoever subscribes to the channel now.
	Publish(ctx context.Context, channel string, message []byte) error
	// Subscribe returns a channel of messages until ctx ends. Messages that a
	// slow reader cannot take are dropped after a bounded buffer. After the
	// backend was lost and is back, the subscription goes on.
	Subscribe(ctx context.Context, channel string) (<-chan []byte, error)
	// Status says which backend is in use and whether it works right now.
	Status() Status
	Close() error
}

// Status is what the status page and the log show of the store.
type Status struct {
	Backend  string    `json:"backend"`         // "redis" or "file"
	Degraded bool      `json:"degraded"`        // true while the backend cannot be reached
	Error    string    `json:"error,omitempty"` // why, without credentials
	Since    time.Time `json:"since"`           // of the present state
}
