package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/mcp-portal/mcp-portal/config"
)

// Redis is the shared store for any number of replicas. Each write is one
// command or one script that touches one key, so that it stays atomic on a
// cluster. Nothing is sent twice: a retried compare-and-swap could answer
// "lost" to the caller that won.
type Redis struct {
	client redis.UniversalClient
	prefix string
	tls    bool
	log    *slog.Logger
	health *health
	wake   chan struct{} // asks the monitor to probe now
	ctx    context.Context
	stop   context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	away    bool // not reachable at all: calls fail at once instead of waiting
	closing bool
}

const (
	networkTimeout = 2 * time.Second // of dialing, of one read, of one write
	firstProbe     = time.Second     // how long opening waits to learn the state
)

// OpenRedis opens the Redis at a redis:// or rediss:// URL. It fails only for
// a URL that cannot be used. A Redis that is down, refuses the password or
// takes no writes is a degraded store that heals by itself; Status and the log
// say why, without credentials.
func OpenRedis(ctx context.Context, url config.Secret, prefix string, log *slog.Logger) (*Redis, error) {
	opts, err := redis.ParseURL(url.Reveal())
	if err != nil {
		// The error of the library can contain the URL and so the password.
		return nil, errors.New("opening the Redis store: store.redis is not a usable URL; write it like redis://:password@host:6379/0, or rediss:// for TLS")
	}
	opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout = networkTimeout, networkTimeout, networkTimeout
	opts.PoolTimeout = networkTimeout
	opts.ContextTimeoutEnabled = true
	opts.MaxRetries = -1
	opts.DialerRetries = 1
	opts.DisableIdentity = true
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	// The library would write its own lines to standard error, in its own
	// format; every state it could speak of is reported by the monitor.
	redis.SetLogger(silent{})

	runCtx, stop := context.WithCancel(context.Background())
	r := &Redis{
		client: redis.NewClient(opts), prefix: prefix, tls: opts.TLSConfig != nil, log: log,
		health: newHealth("redis", log), wake: make(chan struct{}, 1), ctx: runCtx, stop: stop,
	}
	first, cancel := context.WithTimeout(ctx, firstProbe)
	r.probe(first)
	cancel()
	r.done.Go(r.monitor)
	return r, nil
}

// silent drops what go-redis logs.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// fail turns an error of a call into one for the caller and lets the monitor
// look. The call itself does not declare Redis broken: one connection that
// died must not make the calls beside it fail.
func (r *Redis) fail(ctx context.Context, op, key string, err error) error {
	if ctxErr := ctx.Err(); ctxErr != nil {
		// The caller gave up, perhaps because Redis hangs.
		r.nudge()
		return fmt.Errorf("store: %s %s: %w", op, kind(key), ctxErr)
	}
	reason := r.classify(err).reason
	if r.ctx.Err() != nil {
		reason = "the store is closed"
	}
	r.nudge()
	return fmt.Errorf("store: %s %s: %w: %s", op, kind(key), ErrUnavailable, reason)
}

// ready fails at once while Redis is known to be away, so that a dead address
// costs a request nothing.
func (r *Redis) ready(ctx context.Context, op, key string, ttl time.Duration) error {
	if err := check(ctx, op, key, ttl); err != nil {
		return err
	}
	r.mu.Lock()
	away := r.away
	r.mu.Unlock()
	if away {
		return fmt.Errorf("store: %s %s: %w: %s", op, kind(key), ErrUnavailable, r.health.get().Error)
	}
	return nil
}

func (r *Redis) key(key string) string { return r.prefix + key }

// Get implements Store.
func (r *Redis) Get(ctx context.Context, key string) ([]byte, bool, error) {
	return r.read(ctx, "get", key, func() *redis.StringCmd { return r.client.Get(ctx, r.key(key)) })
}

// Take implements Store.
func (r *Redis) Take(ctx context.Context, key string) ([]byte, bool, error) {
	return r.read(ctx, "take", key, func() *redis.StringCmd { return r.client.GetDel(ctx, r.key(key)) })
}

func (r *Redis) read(ctx context.Context, op, key string, cmd func() *redis.StringCmd) ([]byte, bool, error) {
	if err := r.ready(ctx, op, key, 0); err != nil {
		return nil, false, err
	}
	v, err := cmd().Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, r.fail(ctx, op, key, err)
	}
	return v, true, nil
}

// Set implements Store.
func (r *Redis) Set(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	if err := r.ready(ctx, "set", key, ttl); err != nil {
		return err
	}
	if err := r.client.Set(ctx, r.key(key), value, whole(ttl)).Err(); err != nil {
		return r.fail(ctx, "set", key, err)
	}
	return nil
}

// Create implements Store.
func (r *Redis) Create(ctx context.Context, key string, value []byte, ttl time.Duration) (bool, error) {
	if err := r.ready(ctx, "create", key, ttl); err != nil {
		return false, err
	}
	err := r.client.SetArgs(ctx, r.key(key), value, redis.SetArgs{Mode: "NX", TTL: whole(ttl)}).Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	if err != nil {
		return false, r.fail(ctx, "create", key, err)
	}
	return true, nil
}

// whole rounds up to milliseconds, because Redis refuses less.
func whole(ttl time.Duration) time.Duration {
	return time.Duration(millis(ttl)) * time.Millisecond
}

// Swap implements Store.
func (r *Redis) Swap(ctx context.Context, key string, old, new []byte, ttl time.Duration) (bool, error) {
	return r.script(ctx, "swap", key, ttl, `
		if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
		if ARGV[3] == '0' then redis.call('SET', KEYS[1], ARGV[2])
		else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
		return 1`, old, new, millis(ttl))
}

// Touch implements Store.
func (r *Redis) Touch(ctx context.Context, key string, ttl time.Duration) (bool, error) {
	return r.script(ctx, "touch", key, ttl, `
		if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
		if ARGV[1] == '0' then redis.call('PERSIST', KEYS[1])
		else redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
		return 1`, millis(ttl))
}

func (r *Redis) script(ctx context.Context, op, key string, ttl time.Duration, lua string, args ...any) (bool, error) {
	if err := r.ready(ctx, op, key, ttl); err != nil {
		return false, err
	}
	for i, a := range args {
		if b, ok := a.([]byte); ok && b == nil {
			args[i] = []byte{}
		}
	}
	n, err := redis.NewScript(lua).Run(ctx, r.client, []string{r.key(key)}, args...).Int()
	if err != nil {
		return false, r.fail(ctx, op, key, err)
	}
	return n == 1, nil
}

// Delete implements Store.
func (r *Redis) Delete(ctx context.Context, key string) error {
	if err := r.ready(ctx, "delete", key, 0); err != nil {
		return err
	}
	if err := r.client.Del(ctx, r.key(key)).Err(); err != nil {
		return r.fail(ctx, "delete", key, err)
	}
	return nil
}

// Keys implements Store. It walks the keyspace in steps and never blocks Redis.
func (r *Redis) Keys(ctx context.Context, prefix string) ([]string, error) {
	if err := r.ready(ctx, "keys", prefix+"*", 0); err != nil {
		return nil, err
	}
	pattern := globEscape.Replace(r.key(prefix)) + "*"
	keys := []string{}
	var cursor uint64
	for {
		page, next, err := r.client.Scan(ctx, cursor, pattern, 500).Result()
		if err != nil {
			return nil, r.fail(ctx, "keys", prefix, err)
		}
		for _, k := range page {
			keys = append(keys, strings.TrimPrefix(k, r.prefix))
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys), nil // SCAN may return a key twice
}

var globEscape = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// Publish implements Store.
func (r *Redis) Publish(ctx context.Context, channel string, message []byte) error {
	if err := r.ready(ctx, "publish", channel, 0); err != nil {
		return err
	}
	if err := r.client.Publish(ctx, r.key(channel), message).Err(); err != nil {
		return r.fail(ctx, "publish", channel, err)
	}
	return nil
}

// Status implements Store.
func (r *Redis) Status() Status { return r.health.get() }

// Close ends subscriptions and connections.
func (r *Redis) Close() error {
	r.mu.Lock()
	if r.closing {
		r.mu.Unlock()
		return nil
	}
	r.closing = true
	r.mu.Unlock()
	r.stop()
	r.done.Wait()
	if err := r.client.Close(); err != nil {
		return fmt.Errorf("closing the Redis store: %w", err)
	}
	return nil
}

var _ Store = (*Redis)(nil)
