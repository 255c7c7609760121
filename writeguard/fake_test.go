package writeguard

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/store"
)

// memory is a store for these tests: it can be switched off, can lose
// messages, and counts compare-and-swaps that were lost.
type memory struct {
	mu    sync.Mutex
	data  map[string][]byte
	subs  map[string][]chan []byte
	down  bool
	mute  bool // messages are lost
	wrote int
	read  int
	gate  chan struct{} // if set, Subscribe waits for it
}

func newMemory() *memory {
	return &memory{data: map[string][]byte{}, subs: map[string][]chan []byte{}}
}

func (m *memory) set(down, mute bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down, m.mute = down, mute
}

func (m *memory) enter(ctx context.Context) error {
	m.mu.Lock()
	if m.down {
		return fmt.Errorf("dial: %w", store.ErrUnavailable)
	}
	return ctx.Err()
}

func (m *memory) Get(ctx context.Context, key string) ([]byte, bool, error) {
	err := m.enter(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return nil, false, err
	}
	m.read++
	v, ok := m.data[key]
	return bytes.Clone(v), ok, nil
}

func (m *memory) Set(ctx context.Context, key string, value []byte, _ time.Duration) error {
	err := m.enter(ctx)
	defer m.mu.Unlock()
	if err == nil {
		m.data[key] = bytes.Clone(value)
		m.wrote++
	}
	return err
}

func (m *memory) Create(ctx context.Context, key string, value []byte, _ time.Duration) (bool, error) {
	err := m.enter(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return false, err
	}
	if _, ok := m.data[key]; ok {
		return false, nil
	}
	m.data[key] = bytes.Clone(value)
	m.wrote++
	return true, nil
}

func (m *memory) Swap(ctx context.Context, key string, old, value []byte, _ time.Duration) (bool, error) {
	err := m.enter(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return false, err
	}
	if v, ok := m.data[key]; !ok || !bytes.Equal(v, old) {
		return false, nil
	}
	m.data[key] = bytes.Clone(value)
	m.wrote++
	return true, nil
}

func (m *memory) Take(ctx context.Context, key string) ([]byte, bool, error) {
	err := m.enter(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return nil, false, err
	}
	v, ok := m.data[key]
	delete(m.data, key)
	return v, ok, nil
}

func (m *memory) Delete(ctx context.Context, key string) error {
	err := m.enter(ctx)
	defer m.mu.Unlock()
	if err == nil {
		delete(m.data, key)
	}
	return err
}

func (m *memory) Touch(ctx context.Context, key string, _ time.Duration) (bool, error) {
	err := m.enter(ctx)
	defer m.mu.Unlock()
	_, ok := m.data[key]
	return ok, err
}

func (m *memory) Keys(ctx context.Context, prefix string) ([]string, error) {
	err := m.enter(ctx)
	defer m.mu.Unlock()
	var out []string
	for k := range m.data {
		if strings.HasPrefix(k, prefix) {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out, err
}

func (m *memory) Publish(ctx context.Context, channel string, message []byte) error {
	err := m.enter(ctx)
	defer m.mu.Unlock()
	if err != nil || m.mute {
		return err
	}
	for _, c := range m.subs[channel] {
		select {
		case c <- message:
		default:
		}
	}
	return nil
}

func (m *memory) Subscribe(ctx context.Context, channel string) (<-chan []byte, error) {
	if m.gate != nil {
		<-m.gate
	}
	err := m.enter(ctx)
	defer m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	c := make(chan []byte, 16)
	m.subs[channel] = append(m.subs[channel], c)
	context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.subs[channel] = slices.DeleteFunc(m.subs[channel], func(x chan []byte) bool { return x == c })
		close(c)
	})
	return c, nil
}

func (m *memory) reads() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.read
}

func (m *memory) subscribers(channel string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.subs[channel])
}

func (m *memory) Status() store.Status { return store.Status{Backend: "memory"} }
func (m *memory) Close() error         { return nil }

// clock is a clock that stands still until it is moved.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 12, 2, 9, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
