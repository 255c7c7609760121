package writeguard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/wire"
)

// ErrBudget means that a rule lets no more calls through now. The error's text
// says how many it lets through and when there is room again.
var ErrBudget = errors.New("the budget is used up")

// Budgets count the calls that rules with a budget let through, per user and
// in the shared store, so that all replicas count together. A call that cannot
// be counted must not be sent.
type Budgets struct {
	store store.Store
	now   func() time.Time
}

// NewBudgets returns budgets counted in st. now nil means time.Now.
func NewBudgets(st store.Store, now func() time.Time) *Budgets {
	if now == nil {
		now = time.Now
	}
	return &Budgets{st, now}
}

// window is a span in which calls are counted, in slots: what counts is the
// present slot and all that are not a whole span older, so that in no span of
// that length, wherever it begins, more calls go through than allowed.
type window struct {
	name string
	span time.Duration
	slot time.Duration
}

var (
	minute = window{"minute", time.Minute, time.Second}
	hour   = window{"hour", time.Hour, time.Minute}
	// A run ends within a day, and what it called before is over then.
	wholeRun = window{"run", 48 * time.Hour, 24 * time.Hour}
)

// counts are calls by slot number.
type counts map[int64]int

// Take counts one call of the user under the rule that decided. It returns an
// error that wraps ErrBudget when there is no room, or the store's; in both
// cases nothing may be sent. run is the id of the run, empty outside code.
func (b *Budgets) Take(ctx context.Context, user string, t *Terms, run string) error {
	// A call that one span has no room for is not counted in the others.
	if err := b.Room(ctx, user, t, run); err != nil {
		return err
	}
	return b.through(ctx, user, t, run, 1)
}

// Room is Take without counting: whether there is room for a call now.
func (b *Budgets) Room(ctx context.Context, user string, t *Terms, run string) error {
	return b.through(ctx, user, t, run, 0)
}

// GiveBack takes back what Take counted, for a call that was not sent after all.
// Should it fail, one call more counts than was sent, which errs on the safe
// side.
func (b *Budgets) GiveBack(ctx context.Context, user string, t *Terms, run string) error {
	return b.through(ctx, user, t, run, -1)
}

func (b *Budgets) through(ctx context.Context, user string, t *Terms, run string, n int) error {
	if t == nil {
		return nil
	}
	doing := func(err error) error { return fmt.Errorf("count a call under %s: %w", t.Rule, err) }
	for _, w := range []struct {
		window
		limit int
	}{{wholeRun, t.Budget.PerRun}, {minute, t.Budget.PerMinute}, {hour, t.Budget.PerHour}} {
		whose := user
		if w.window == wholeRun {
			whose = run
		}
		if w.limit == 0 || whose == "" {
			continue
		}
		if err := b.take(ctx, whose, t.Rule, w.window, w.limit, n); err != nil {
			return doing(err)
		}
	}
	return nil
}

func (b *Budgets) take(ctx context.Context, user, rule string, w window, limit, n int) error {
	h := sha256.New()
	for _, s := range []string{user, rule, w.name} {
		fmt.Fprintf(h, "%d:%s,", len(s), s)
	}
	key := "budget:" + hex.EncodeToString(h.Sum(nil))
	for attempt := 0; ; attempt++ {
		raw, held, err := b.store.Get(ctx, key)
		if err != nil {
			return err
		}
		have := counts{}
		if held {
			if err := json.Unmarshal(raw, &have); err != nil {
				return fmt.Errorf("the count is damaged: %w", err)
			}
		}
		now := b.now()
		slot := now.UnixNano() / int64(w.slot)
		total, first := 0, slot
		for s, calls := range have {
			if s <= slot-int64(w.span/w.slot)-1 {
				delete(have, s)
				continue
			}
			total += calls
			first = min(first, s)
		}
		if n < 0 {
			// The oldest goes, whichever it was: what stays counts longer then,
			// never shorter.
			if len(have) == 0 {
				return nil
			}
			total, slot = 0, first
		}
		if total >= limit && w == wholeRun {
			return fmt.Errorf("%w: it lets through %d calls of one run. Do the rest in another run, if the user wants it", ErrBudget, limit)
		}
		if total >= limit {
			free := time.Unix(0, (first+1)*int64(w.slot)).Add(w.span)
			return fmt.Errorf("%w: it lets through %d calls of one user in any %s. There is room again in about %s", ErrBudget, limit, w.name, max(time.Second, free.Sub(now).Round(time.Second)))
		}
		if n == 0 {
			return nil
		}
		if have[slot] += n; have[slot] == 0 {
			delete(have, slot)
		}
		next := wire.Encode(have)
		var ok bool
		if held {
			ok, err = b.store.Swap(ctx, key, raw, next, 2*w.span)
		} else {
			ok, err = b.store.Create(ctx, key, next, 2*w.span)
		}
		if err != nil {
			return err
		}
		if ok {
			return nil
		}
		if err := backoff(ctx, attempt); err != nil {
			return err
		}
	}
}
