package gateway

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/mcp-portal/mcp-portal/config"
)

// load bounds what requests may hold at once: how many one user may have under
// way, and how many bytes of bodies all together.
type load struct {
	bodies *semaphore.Weighted
	total  int64

	mu    sync.Mutex
	users map[string]int
}

const (
	bodiesAtOnce = 64 // largest bodies held at once
	bodyPatience = 10 * time.Second
)

func newLoad(l config.Limits) *load {
	total := bodiesAtOnce * l.Body
	return &load{bodies: semaphore.NewWeighted(total), total: total, users: map[string]int{}}
}

// busy means that a request cannot be taken now.
type busy struct{ message string }

func (b *busy) Error() string { return b.message }

// enter admits a request of a user with a body of so many bytes. The returned
// function, which may be called more than once, ends it.
func (l *load) enter(ctx context.Context, user string, perUser int, bytes int64) (leave func(), err error) {
	l.mu.Lock()
	if l.users[user] >= perUser {
		l.mu.Unlock()
		return nil, &busy{fmt.Sprintf("you already have %d requests under way (limits.calls_per_user): wait for some to end, or put many calls into one portal_execute", perUser)}
	}
	l.users[user]++
	l.mu.Unlock()
	bytes = min(bytes, l.total)
	wait, cancel := context.WithTimeout(ctx, bodyPatience)
	defer cancel()
	if err := l.bodies.Acquire(wait, bytes); err != nil {
		l.forget(user)
		return nil, &busy{"the portal holds as many large requests as it can: send this again in a moment"}
	}
	return sync.OnceFunc(func() {
		l.bodies.Release(bytes)
		l.forget(user)
	}), nil
}

func (l *load) forget(user string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users[user]--; l.users[user] == 0 {
		delete(l.users, user)
	}
}
