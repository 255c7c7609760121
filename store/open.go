package store

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
)

// Open opens the store that the configuration asks for: Redis, or a file,
// which is portal.db beside the configuration file unless named otherwise;
// relative paths start there too. It fails when a file cannot be opened, and
// not when Redis is down: that is visible in Status and heals by itself.
func Open(ctx context.Context, c config.Store, configPath string, log *slog.Logger) (Store, error) {
	if c.Redis != "" {
		r, err := OpenRedis(ctx, c.Redis, c.Prefix, log)
		if err != nil {
			return nil, err
		}
		return r, nil
	}
	path := c.File
	if path == "" {
		path = "portal.db"
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(configPath), path)
	}
	f, err := OpenFile(path, log)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// kind is the part of a key that may be named in an error or a log line. What
// follows the first colon can be a secret, such as the id of a session.
func kind(key string) string {
	head, rest, ok := strings.Cut(key, ":")
	if !ok {
		return head
	}
	if rest == "" {
		return head + ":"
	}
	return head + ":…"
}

// check refuses what the backends would treat differently.
func check(ctx context.Context, op, key string, ttl time.Duration) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("store: %s %s: %w", op, kind(key), err)
	}
	if key == "" {
		return fmt.Errorf("store: %s: the key is empty", op)
	}
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' {
			return fmt.Errorf("store: %s: the key has a character that is not printable ASCII at %d", op, i)
		}
	}
	if ttl < 0 {
		return fmt.Errorf("store: %s %s: the ttl %s is negative", op, kind(key), ttl)
	}
	return nil
}

// millis rounds a ttl up to whole milliseconds, the unit of both backends, so
// that a tiny ttl never becomes "no expiry".
func millis(ttl time.Duration) int64 {
	return int64((ttl + time.Millisecond - 1) / time.Millisecond)
}
