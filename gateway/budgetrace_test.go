package gateway_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// together is a store in which the first two who use an approval do so at the
// same moment.
type together struct {
	store.Store
	both sync.WaitGroup
	mu   sync.Mutex
	left int
}

func (s *together) Swap(ctx context.Context, key string, old, next []byte, ttl time.Duration) (bool, error) {
	if strings.HasPrefix(key, "approval:") && bytes.Contains(next, []byte(`"state":"used"`)) {
		s.mu.Lock()
		wait := s.left > 0
		s.left--
		s.mu.Unlock()
		if wait {
			s.both.Done()
			s.both.Wait()
		}
	}
	return s.Store.Swap(ctx, key, old, next, ttl)
}

// Of two equal calls that use one approval at the same moment one is sent, and
// one counts.
func TestBudgetCountsWhatWinsItsApproval(t *testing.T) {
	v := serve(t, upstreamtest.Legacy, nil)
	s := &together{left: 2}
	s.both.Add(2)
	p := start(t, trusted(v)+"guard: {rules: [{name: two, tools: [kill], action: approve, budget: {per_hour: 2}}]}\n", func(st store.Store) store.Store { s.Store = st; return s })
	c := p.client(legacy, "", noCaps, nil)
	kill := func() answer { return c.call("s_kill", `{"id":"1"}`, "", nil) }
	p.approve(kill().approvals()[0])
	got := make(chan answer, 2)
	for range 2 {
		go func() { got <- kill() }()
	}
	var asked []string
	for range 2 {
		asked = append(asked, (<-got).approvals()...)
	}
	if len(asked) != 1 || len(v.calls()) != 1 {
		t.Fatalf("%d calls arrived, %q is asked for", len(v.calls()), asked)
	}
	p.approve(asked[0])
	if a := kill(); !strings.HasPrefix(a.text(), "ran kill") {
		t.Errorf("the second of two: %s", a.Raw)
	}
	if a := kill(); !strings.Contains(a.text(), "2 calls of one user in any hour") {
		t.Errorf("a third: %s", a.Raw)
	}
}
