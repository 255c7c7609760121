package gateway

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/mcp-portal/mcp-portal/config"
)

// load bounds what requests may hold at once: how many requests one user may
// have under way, how many bytes of bodies one user and all together. Answers
// and notifications count by their bytes only: a user whose every request waits
// for an answer must be able to give it.
type load struct {
	most   int64 // largest body
	bodies *semaphore.Weighted

	mu    sync.Mutex
	users map[string]*userLoad
}

// userLoad is what one user holds; it exists while somebody refers to it.
type userLoad struct {
	bodies *semaphore.Weighted
	refs   int
	calls  int
}

const (
	bodiesAtOnce  = 64 // largest bodies held at once
	bodiesPerUser = 16 // of one user
	bodyPatience  = 10 * time.Second
)

func newLoad(l config.Limits) *load {
	return &load{most: l.Body, bodies: semaphore.NewWeighted(bodiesAtOnce * l.Body), users: map[string]*userLoad{}}
}

// busy means that a request cannot be taken now.
type busy struct{ message string }

func (b *busy) Error() string { return b.message }

// held is what one message holds of the load.
type held struct {
	load    *load
	user    string
	of      *userLoad
	bytes   int64
	counted bool
	once    sync.Once
}

// receive makes room for a body before it is read. Size is -1 when the client
// does not say. What is returned must be let go of with leave.
func (l *load) receive(ctx context.Context, user string, size int64) (*held, error) {
	if size < 0 || size > l.most {
		size = l.most // what is longer is refused while it is read
	}
	l.mu.Lock()
	u := l.users[user]
	if u == nil {
		u = &userLoad{bodies: semaphore.NewWeighted(bodiesPerUser * l.most)}
		l.users[user] = u
	}
	u.refs++
	l.mu.Unlock()
	h := &held{load: l, user: user, of: u}
	wait, cancel := context.WithTimeout(ctx, bodyPatience)
	defer cancel()
	if err := u.bodies.Acquire(wait, size); err != nil {
		h.leave()
		return nil, &busy{"you have as many large requests under way as one user may: send this again when some have ended"}
	}
	if err := l.bodies.Acquire(wait, size); err != nil {
		u.bodies.Release(size)
		h.leave()
		return nil, &busy{"the portal holds as many large requests as it can: send this again in a moment"}
	}
	h.bytes = size
	return h, nil
}

// received gives back what was kept for a body beyond its real size.
func (h *held) received(size int64) {
	if over := h.bytes - size; over > 0 {
		h.bytes = size
		h.of.bodies.Release(over)
		h.load.bodies.Release(over)
	}
}

// request counts the message as a request under way.
func (h *held) request(perUser int) error {
	h.load.mu.Lock()
	defer h.load.mu.Unlock()
	if h.of.calls >= perUser {
		return &busy{fmt.Sprintf("you already have %d requests under way (limits.calls_per_user): wait for some to end, or put many calls into one portal_execute", perUser)}
	}
	h.of.calls++
	h.counted = true
	return nil
}

// leave lets go of everything; it may be called more than once.
func (h *held) leave() {
	h.once.Do(func() {
		if h.bytes > 0 {
			h.of.bodies.Release(h.bytes)
			h.load.bodies.Release(h.bytes)
		}
		h.load.mu.Lock()
		defer h.load.mu.Unlock()
		if h.counted {
			h.of.calls--
		}
		if h.of.refs--; h.of.refs == 0 {
			delete(h.load.users, h.user)
		}
	})
}
