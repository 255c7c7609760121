package authserver

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mcp-portal/mcp-portal/store"
)

// Grant is what a person has allowed one client. Its id is also its key in the
// store: "<digest of the user>.<random>", so that a user's can be listed.
type Grant struct {
	ID         string    `json:"id"`
	Client     string    `json:"client"` // client_id
	ClientName string    `json:"client_name"`
	ClientHost string    `json:"client_host,omitempty"` // of its metadata document
	Redirect   string    `json:"redirect"`
	Scopes     []string  `json:"scopes"`
	Person     Person    `json:"person"` // as of the last sign-in or refresh
	Created    time.Time `json:"created"`
	Used       time.Time `json:"used"` // last time tokens were issued; zero: the code has not been exchanged yet
}

// pendingFor is how long a code may wait, and with it the grant it stands for.
const pendingFor = time.Minute

func grantKey(id string) string { return "grant:" + id }

func userPart(user string) string { return digest(user)[:32] }

func newGrantID(user string) string { return userPart(user) + "." + random() }

// lives is how long a grant goes on from now without being used.
func (set *settings) lives(g Grant, now time.Time) time.Duration {
	t := set.cfg.Auth.Tokens
	return min(t.Refresh, g.Created.Add(t.Grant).Sub(now))
}

func (s *Server) writeGrant(ctx context.Context, old []byte, g Grant, life time.Duration) (bool, error) {
	raw, err := json.Marshal(g)
	if err != nil {
		return false, err
	}
	if old == nil {
		return s.store.Create(ctx, grantKey(g.ID), raw, ttl(life))
	}
	return s.store.Swap(ctx, grantKey(g.ID), old, raw, ttl(life))
}

// Grants lists what a person has allowed, the last used first.
func (s *Server) Grants(ctx context.Context, user string) ([]Grant, error) {
	keys, err := s.store.Keys(ctx, grantKey(userPart(user)+"."))
	if err != nil {
		return nil, internal("listing grants", err)
	}
	var out []Grant
	for _, k := range keys {
		g, _, ok, err := load[Grant](ctx, s.store, k)
		if err != nil {
			return nil, internal("listing grants", err)
		}
		if ok && !g.Used.IsZero() && g.Person.ID == user {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b Grant) int { return b.Used.Compare(a.Used) })
	return out, nil
}

// End ends one grant of a person, and with it all its tokens. One that is not
// theirs is not found.
func (s *Server) End(ctx context.Context, user, id string) (found bool, err error) {
	if !strings.HasPrefix(id, userPart(user)+".") {
		return false, nil
	}
	return s.endGrant(ctx, id, "the person ended it")
}

// EndAll ends all grants of a person.
func (s *Server) EndAll(ctx context.Context, user, why string) error {
	keys, err := s.store.Keys(ctx, grantKey(userPart(user)+"."))
	if err != nil {
		return internal("ending grants", err)
	}
	for _, k := range keys {
		if _, err := s.endGrant(ctx, strings.TrimPrefix(k, "grant:"), why); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) endGrant(ctx context.Context, id, why string) (bool, error) {
	s.seen.forget(id)
	_, ok, err := s.store.Take(ctx, grantKey(id))
	if err != nil {
		return false, internal("ending a grant", err)
	}
	if ok {
		s.log.InfoContext(ctx, "sign-in of a client ended", "grant", short(id), "reason", why)
	}
	return ok, nil
}

// short names a grant in logs.
func short(id string) string {
	if len(id) > 12 {
		return id[:8] + "…" + id[len(id)-4:]
	}
	return id
}

// seenGrants bridges a store that is away for a moment: who was served a
// moment ago goes on being served. Longer than that a grant that was ended
// could live on, so nobody is.
type seenGrants struct {
	mu sync.Mutex
	m  map[string]seenGrant
}

type seenGrant struct {
	grant Grant
	at    time.Time
}

const (
	seenFor = time.Minute
	maxSeen = 10000
)

func (c *seenGrants) keep(g Grant, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil || len(c.m) >= maxSeen {
		c.m = map[string]seenGrant{}
	}
	c.m[g.ID] = seenGrant{g, now}
}

func (c *seenGrants) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.m, id)
}

func (c *seenGrants) recent(id string, now time.Time) (Grant, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.m[id]
	return e.grant, ok && now.Sub(e.at) < seenFor
}

// active gives the grant of an access token that is being used.
func (s *Server) active(ctx context.Context, id string) (Grant, bool, error) {
	g, _, ok, err := load[Grant](ctx, s.store, grantKey(id))
	if errors.Is(err, store.ErrUnavailable) {
		if g, ok := s.seen.recent(id, s.now()); ok {
			return g, true, nil
		}
	}
	if err != nil {
		return g, false, internal("checking the sign-in of a client", err)
	}
	if !ok || g.Used.IsZero() {
		s.seen.forget(id)
		return g, false, nil
	}
	s.seen.keep(g, s.now())
	return g, true, nil
}
