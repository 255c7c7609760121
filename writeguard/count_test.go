package writeguard

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/store"
)

// counting counts the records of approvals that are read.
type counting struct {
	store.Store
	records atomic.Int64
}

func (c *counting) Get(ctx context.Context, key string) ([]byte, bool, error) {
	if strings.HasPrefix(key, "approval:") {
		c.records.Add(1)
	}
	return c.Store.Get(ctx, key)
}

// The number on every page counts what the person can answer there, and reads
// nothing of what is answered.
func TestCountForReadsOnlyWhatIsOpen(t *testing.T) {
	st := &counting{Store: newMemory()}
	clk := newClock()
	a := newApprovals(st, clk, Options{})
	for i := range 12 {
		ap := request(t, a, deletion(fmt.Sprintf(`{"id":%d}`, i)))
		if i < 9 {
			decideOK(t, a, ap.ID, i%2 == 0)
		}
	}
	for i, terms := range []*Terms{{Via: "client"}, {Approvers: config.Approvers{Users: []string{bob.ID}}}} {
		if _, err := a.Request(t.Context(), deletion(fmt.Sprintf(`{"id":"t%d"}`, i)), Decision{Action: Approve, Terms: terms}); err != nil {
			t.Fatal(err)
		}
	}
	st.records.Store(0)
	n, err := a.CountFor(t.Context(), alice)
	if err != nil || n != 3 || st.records.Load() != 5 {
		t.Errorf("alice: %d, %v, %d records read; want 3, 5 records", n, err, st.records.Load())
	}
	if n, err := a.CountFor(t.Context(), bob); err != nil || n != 1 {
		t.Errorf("bob: %d, %v", n, err)
	}
	clk.add(24 * 3600e9)
	st.records.Store(0)
	if n, err := a.CountFor(t.Context(), alice); err != nil || n != 0 || st.records.Load() != 0 {
		t.Errorf("a day later: %d, %v, %d records read", n, err, st.records.Load())
	}
}
