package registry

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/upstreams"
)

const (
	cachePrefix  = "catalogue:"
	cacheTTL     = 30 * 24 * time.Hour // so that removed servers do not stay for ever
	cacheRefresh = 24 * time.Hour      // an unchanged catalogue is written again after this
	cacheMax     = 256 << 20           // bytes of one catalogue, unpacked
	cacheTimeout = 20 * time.Second    // of one exchange with the store
)

// CacheStatus says whether the store has a server's present catalogue.
type CacheStatus struct {
	Server   string    `json:"server"`
	Stored   time.Time `json:"stored,omitzero"` // last successful write by this process
	Pending  bool      `json:"pending"`         // a write is due or being tried again
	Attempts int       `json:"attempts,omitempty"`
	Error    string    `json:"error,omitempty"` // why the last write or load failed
}

// cache keeps the last good catalogue of each server in the store. Writing is
// asynchronous and tried until it succeeds or a newer catalogue replaces it.
type cache struct {
	store              store.Store
	log                *slog.Logger
	now                func() time.Time
	retry, retryAtMost time.Duration

	stop context.CancelFunc
	done chan struct{}
	wake chan struct{}

	mu      sync.Mutex
	slots   map[string]*slot
	changed chan struct{} // closed and replaced whenever a slot settles
}

// slot is the cache's view of one server.
type slot struct {
	key      string
	want     *upstreams.Catalogue // to be written; nil: nothing to do
	have     *upstreams.Catalogue // last written
	stored   time.Time
	attempts int
	err      error
	due      time.Time
}

func newCache(s store.Store, log *slog.Logger, now func() time.Time) *cache {
	ctx, stop := context.WithCancel(context.Background())
	c := &cache{
		store: s, log: log, now: now, retry: time.Second, retryAtMost: time.Minute,
		stop: stop, done: make(chan struct{}), wake: make(chan struct{}, 1),
		slots: map[string]*slot{}, changed: make(chan struct{}),
	}
	if s == nil {
		close(c.done)
		return c
	}
	go c.write(ctx)
	return c
}

func (c *cache) close() {
	c.stop()
	<-c.done
}

// connectionOf is what makes a server that server: where it is reached and
// how. Credentials are left out, they change without making it another one; but
// a list that was everybody's must not outlive the rule that made it so.
func connectionOf(s config.Server) string {
	of := []any{s.URL, s.Transport, s.Command, s.Dir}
	if s.Auth.PerUser() {
		of = append(of, s.Auth.Type, s.Auth.Catalog)
	}
	if s.OpenAPI != "" {
		of = append(of, s.OpenAPI, s.Operations.Include, s.Operations.Exclude, s.Operations.AnyRequest)
	}
	b, _ := json.Marshal(of) // strings always encode
	return string(b)
}

// cacheKey is the store key of a server's catalogue. The connection is part of
// it, hashed: a list cached from another server under the same id is never
// found, and a URL shows nothing in the store's key list.
func cacheKey(s config.Server) string {
	sum := sha256.Sum256([]byte(connectionOf(s)))
	return cachePrefix + s.ID + ":" + hex.EncodeToString(sum[:12])
}

// stored is what a cache entry holds. gob and not JSON, because encoding JSON
// would reformat the raw definitions.
type stored struct {
	Format    int
	Catalogue upstreams.Catalogue
}

const storedFormat = 1

func encodeCatalogue(c *upstreams.Catalogue) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := gob.NewEncoder(z).Encode(stored{storedFormat, *c}); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func decodeCatalogue(b []byte) (*upstreams.Catalogue, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	var s stored
	if err := gob.NewDecoder(io.LimitReader(z, cacheMax)).Decode(&s); err != nil {
		return nil, err
	}
	if s.Format != storedFormat {
		return nil, fmt.Errorf("format %d is not known", s.Format)
	}
	return &s.Catalogue, nil
}

// keep forgets servers that are not configured any more, or are others now.
func (c *cache) keep(keys map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, s := range c.slots {
		if keys[id] != s.key {
			delete(c.slots, id)
		}
	}
	c.settle()
}

// put has a catalogue written soon.
func (c *cache) put(id, key string, cat *upstreams.Catalogue) {
	if c.store == nil {
		return
	}
	c.mu.Lock()
	s := c.slots[id]
	if s == nil || s.key != key {
		s = &slot{key: key}
		c.slots[id] = s
	}
	if s.want == cat || s.want == nil && s.have == cat && c.now().Sub(s.stored) < cacheRefresh {
		c.mu.Unlock()
		return
	}
	s.want, s.due = cat, time.Time{}
	c.mu.Unlock()
	c.poke()
}

// again writes every catalogue once more: the store may have come back without
// what it held.
func (c *cache) again() {
	c.mu.Lock()
	for _, s := range c.slots {
		if s.want == nil && s.have != nil {
			s.want, s.due = s.have, time.Time{}
		}
	}
	c.mu.Unlock()
	c.poke()
}

func (c *cache) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// settle tells flush that something changed; c.mu is held.
func (c *cache) settle() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// write is the one goroutine that writes.
func (c *cache) write(ctx context.Context) {
	defer close(c.done)
	for {
		id, s, cat, wait := c.pick()
		if s == nil {
			timer := time.NewTimer(wait)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-c.wake:
			case <-timer.C:
			}
			timer.Stop()
			continue
		}
		err := c.writeOne(ctx, s.key, cat)
		if ctx.Err() != nil {
			return
		}
		c.wrote(id, s, cat, err)
	}
}

// pick returns a slot whose write is due, or how long to wait for one.
func (c *cache) pick() (id string, s *slot, cat *upstreams.Catalogue, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wait, now := time.Hour, time.Now()
	for _, id := range slices.Sorted(maps.Keys(c.slots)) {
		s := c.slots[id]
		if s.want == nil {
			continue
		}
		if d := s.due.Sub(now); d > 0 {
			wait = min(wait, d)
			continue
		}
		return id, s, s.want, 0
	}
	return "", nil, nil, wait
}

func (c *cache) writeOne(ctx context.Context, key string, cat *upstreams.Catalogue) error {
	b, err := encodeCatalogue(cat)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, cacheTimeout)
	defer cancel()
	return c.store.Set(ctx, key, b, cacheTTL)
}

// wrote notes the outcome of one write.
func (c *cache) wrote(id string, s *slot, cat *upstreams.Catalogue, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.settle()
	if err != nil {
		s.attempts++
		pause := min(c.retryAtMost, c.retry<<min(s.attempts-1, 10))
		s.due, s.err = time.Now().Add(pause), err
		if s.attempts == 1 {
			c.log.Warn("catalogue is not stored: a restart would begin without it; trying again until it is", "server", id, "error", err)
		} else {
			c.log.Debug("catalogue is still not stored", "server", id, "attempts", s.attempts, "error", err)
		}
		return
	}
	if s.attempts > 0 {
		c.log.Info("catalogue is stored after all", "server", id, "attempts", s.attempts)
	}
	s.have, s.stored, s.attempts, s.err = cat, c.now(), 0, nil
	if s.want == cat {
		s.want = nil
	}
}

// flush has every pending write tried now and waits for the outcome.
func (c *cache) flush(ctx context.Context) error {
	if c.store == nil {
		return nil
	}
	c.mu.Lock()
	before := map[*slot]int{}
	for _, s := range c.slots {
		if s.want != nil {
			before[s], s.due = s.attempts, time.Time{}
		}
	}
	c.mu.Unlock()
	c.poke()
	for {
		c.mu.Lock()
		waiting, errs := false, []error(nil)
		for _, id := range slices.Sorted(maps.Keys(c.slots)) {
			s := c.slots[id]
			if s.want == nil {
				continue
			}
			if s.attempts > before[s] {
				errs = append(errs, fmt.Errorf("store catalogue of server %s: %w", id, s.err))
			} else {
				waiting = true
			}
		}
		changed := c.changed
		c.mu.Unlock()
		if !waiting {
			return errors.Join(errs...)
		}
		select {
		case <-changed:
		case <-c.done:
			return errors.New("store catalogues: the registry is closed")
		case <-ctx.Done():
			return fmt.Errorf("store catalogues: %w", ctx.Err())
		}
	}
}

// load reads the catalogues under the keys, by server id. A store that is down
// is asked once, not once per server.
func (c *cache) load(ctx context.Context, keys map[string]string) map[string]*upstreams.Catalogue {
	found := map[string]*upstreams.Catalogue{}
	if c.store == nil {
		return found
	}
	for _, id := range slices.Sorted(maps.Keys(keys)) {
		cat, err := c.loadOne(ctx, keys[id])
		if err == nil {
			if cat != nil {
				found[id] = cat
			}
			c.loaded(id, keys[id], nil)
			continue
		}
		if errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil {
			for _, id := range slices.Sorted(maps.Keys(keys)) {
				if found[id] == nil {
					c.loaded(id, keys[id], err)
				}
			}
			c.log.Warn("stored catalogues cannot be read: servers are listed live instead", "error", err)
			return found
		}
		c.loaded(id, keys[id], err)
		c.log.Warn("stored catalogue cannot be read: the server is listed live instead", "server", id, "error", err)
	}
	return found
}

func (c *cache) loadOne(ctx context.Context, key string) (*upstreams.Catalogue, error) {
	ctx, cancel := context.WithTimeout(ctx, cacheTimeout)
	defer cancel()
	b, ok, err := c.store.Get(ctx, key)
	if err != nil || !ok {
		return nil, err
	}
	cat, err := decodeCatalogue(b)
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	return cat, nil
}

// loaded notes the outcome of a load, unless a write knows better.
func (c *cache) loaded(id, key string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.slots[id]
	if s == nil {
		s = &slot{key: key}
		c.slots[id] = s
	}
	if s.key == key && s.want == nil && s.have == nil {
		s.err = err
	}
}

func (c *cache) status() []CacheStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]CacheStatus, 0, len(c.slots))
	for _, id := range slices.Sorted(maps.Keys(c.slots)) {
		s := c.slots[id]
		st := CacheStatus{Server: id, Stored: s.stored, Pending: s.want != nil, Attempts: s.attempts}
		if s.err != nil {
			st.Error = s.err.Error()
		}
		out = append(out, st)
	}
	return out
}
