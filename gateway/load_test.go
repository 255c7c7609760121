package gateway

import (
	"context"
	"errors"
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
)

// One user cannot take the room of all, and a body that was announced large,
// or not announced, holds only what it turned out to be.
func TestBodiesAreShared(t *testing.T) {
	ctx := context.Background()
	l := newLoad(config.Limits{Body: 1000})
	var all []*held
	for range bodiesPerUser {
		h, err := l.receive(ctx, "mallory", -1)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
	}
	hurried, cancel := context.WithCancel(ctx)
	cancel()
	var full *busy
	if _, err := l.receive(hurried, "mallory", 1000); !errors.As(err, &full) {
		t.Errorf("one body more of the same user: %v", err)
	}
	alice, err := l.receive(ctx, "alice", 1000)
	if err != nil {
		t.Fatalf("another user: %v", err)
	}
	alice.leave()
	for _, h := range all {
		h.received(10)
	}
	h, err := l.receive(ctx, "mallory", -1)
	if err != nil {
		t.Fatalf("after the bodies turned out small: %v", err)
	}
	for _, x := range append(all, h) {
		x.leave()
		x.leave() // harmless
	}
	if len(l.users) != 0 || !l.bodies.TryAcquire(bodiesAtOnce*1000) {
		t.Errorf("left behind: %v", l.users)
	}
}
