package logins

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"
)

// handleFor is how long the address of a sign-in can be opened.
const handleFor = 15 * time.Minute

// ConnectPath is where the addresses lead that calls give to people.
const ConnectPath = "/connect/"

// Handle is an address under which one user can sign in at one server. Others
// who open it are refused: who signs in on a stranger's address would give the
// stranger's calls their own account.
type Handle struct {
	User   string   `json:"user"` // principal
	Server string   `json:"server"`
	Scopes []string `json:"scopes,omitempty"`
}

func handleKey(id string) string { return "upstream-connect:" + digest(id) }

// NewHandle makes the address for what is needed, and returns its id.
func (l *Logins) NewHandle(ctx context.Context, need *Needed) (id, address string, err error) {
	id = rand.Text() + rand.Text()
	b, err := json.Marshal(Handle{need.User, need.Server, need.Scopes})
	if err == nil {
		_, err = l.store.Create(ctx, handleKey(id), b, handleFor)
	}
	if err != nil {
		return "", "", fmt.Errorf("make the address to sign in at server %s: %w", need.Server, err)
	}
	return id, l.origin() + ConnectPath + id, nil
}

// Handle reads an address; nil: it does not exist, or not any more.
func (l *Logins) Handle(ctx context.Context, id string) (*Handle, error) {
	if len(id) < 26 || len(id) > 100 {
		return nil, nil
	}
	raw, ok, err := l.store.Get(ctx, handleKey(id))
	if err != nil {
		return nil, fmt.Errorf("find the sign-in that this address is for: %w", err)
	}
	var h Handle
	if !ok || json.Unmarshal(raw, &h) != nil {
		return nil, nil
	}
	return &h, nil
}
