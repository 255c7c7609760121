package logins

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/mcp-portal/mcp-portal/config"
)

// What a server wants rights for may not be a call that could ask for them: it
// may be the greeting or the list. So what was refused is kept until its user
// signs in there again, which then asks for it.

const maxWants = 50 // scopes kept for one login

func wantsKey(server, owner string) string { return "wants:" + recordKey(server, owner) }

// wants are the rights that a server refused somebody for since they signed in
// there. It is no reason to fail if they cannot be read.
func (l *Logins) wants(ctx context.Context, server, owner string) (out []string) {
	raw, ok, err := l.store.Get(ctx, wantsKey(server, owner))
	if err != nil {
		l.log.Debug("what a server wants more rights for is not known", "server", server, "error", err)
	}
	if ok && json.Unmarshal(raw, &out) != nil {
		return nil
	}
	return out
}

func (l *Logins) noteWants(ctx context.Context, s config.Server, owner string, scopes []string) {
	have := l.wants(ctx, s.ID, owner)
	next := slices.Clone(have)
	for _, sc := range scopes {
		if len(next) < maxWants && !slices.Contains(next, sc) {
			next = append(next, sc)
		}
	}
	if len(next) == len(have) {
		return
	}
	raw, err := json.Marshal(next)
	if err == nil {
		err = l.store.Set(ctx, wantsKey(s.ID, owner), raw, keepFor)
	}
	if err != nil {
		l.log.Debug("what a server wants more rights for is not kept", "server", s.ID, "error", err)
	}
	l.log.Info("a server wants more rights than its sign-in has", "server", s.ID, "user", owner, "scopes", scopes)
}

func (l *Logins) forgetWants(ctx context.Context, server, owner string) {
	if err := l.store.Delete(ctx, wantsKey(server, owner)); err != nil {
		l.log.Debug("what a server wanted more rights for is not forgotten", "server", server, "error", err)
	}
}
