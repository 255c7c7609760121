package writeguard

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/wire"
)

// indexEntry is one approval in the list of its user. The record is the
// truth; Open only saves reading every record to count.
type indexEntry struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	Open    bool      `json:"open"` // not answered yet
}

// closedKept is how many answered or expired approvals a user's list keeps.
const closedKept = 50

// openPerApprover is how many open approvals of others a list of an approver
// holds.
const openPerApprover = 1000

func indexKey(list string) string {
	sum := sha256.Sum256([]byte(list))
	return "approvals:" + hex.EncodeToString(sum[:])
}

// The lists of approvers stand beside those of users. No principal id begins
// like that.
func groupList(g string) string    { return "\x00approvers of group " + g }
func approverList(u string) string { return "\x00approver " + strings.ToLower(u) }

// lists are the lists that an approval stands in besides that of its user.
func (a *Approval) lists() (out []string) {
	if a.Approvers == nil {
		return nil
	}
	for _, g := range a.Approvers.Groups {
		out = append(out, groupList(g))
	}
	for _, u := range a.Approvers.Users {
		out = append(out, approverList(u))
	}
	return out
}

// indexAdd puts a new approval into the list of its user and those of its
// approvers, or fails with ErrTooMany.
func (a *Approvals) indexAdd(ctx context.Context, ap *Approval, ttl time.Duration) error {
	if err := a.indexAddTo(ctx, ap.User, a.opts.MaxPending, ap, ttl); err != nil {
		return err
	}
	for _, list := range ap.lists() {
		if err := a.indexAddTo(ctx, list, openPerApprover, ap, ttl); err != nil {
			a.indexClose(context.WithoutCancel(ctx), ap, ttl)
			return err
		}
	}
	return nil
}

func (a *Approvals) indexAddTo(ctx context.Context, list string, most int, ap *Approval, ttl time.Duration) error {
	return a.indexChange(ctx, list, ttl, func(list []indexEntry) ([]indexEntry, error) {
		open, now := 0, a.opts.Now()
		for _, e := range list {
			if e.Open && now.Before(e.Expires) {
				open++
			}
		}
		if open >= most {
			return nil, fmt.Errorf("%w (%d); answer or let expire some of them first", ErrTooMany, open)
		}
		return append(list, indexEntry{ap.ID, ap.Created, ap.Expires, true}), nil
	})
}

// indexClose marks an approval as answered. Should it fail, the approval
// counts as open until it expires, which errs on the safe side.
func (a *Approvals) indexClose(ctx context.Context, ap *Approval, ttl time.Duration) {
	for _, list := range append([]string{ap.User}, ap.lists()...) {
		err := a.indexChange(ctx, list, ttl, func(list []indexEntry) ([]indexEntry, error) {
			for i := range list {
				if list[i].ID == ap.ID {
					list[i].Open = false
				}
			}
			return list, nil
		})
		if err != nil {
			a.log.Warn("an answered approval counts as open until it expires", "approval", ap.ID, "error", err)
		}
	}
}

// indexChange edits one list by compare-and-swap. The oldest closed
// entries beyond closedKept leave the list.
func (a *Approvals) indexChange(ctx context.Context, name string, ttl time.Duration, edit func([]indexEntry) ([]indexEntry, error)) error {
	key := indexKey(name)
	for attempt := 0; ; attempt++ {
		raw, ok, err := a.store.Get(ctx, key)
		if err != nil {
			return err
		}
		list, err := parseIndex(raw, ok)
		if err != nil {
			return err
		}
		if list, err = edit(list); err != nil {
			return err
		}
		next := wire.Encode(a.prune(list))
		if ok {
			ok, err = a.store.Swap(ctx, key, raw, next, ttl)
		} else {
			ok, err = a.store.Create(ctx, key, next, ttl)
		}
		if err != nil || ok {
			return err
		}
		if err := backoff(ctx, attempt); err != nil {
			return err
		}
	}
}

func (a *Approvals) prune(list []indexEntry) []indexEntry {
	now, closed := a.opts.Now(), 0
	for i := len(list) - 1; i >= 0; i-- { // newest last
		if e := list[i]; e.Open && now.Before(e.Expires) {
			continue
		}
		if closed++; closed > closedKept {
			list = slices.Delete(list, i, i+1)
		}
	}
	return list
}

func parseIndex(raw []byte, ok bool) ([]indexEntry, error) {
	var list []indexEntry
	if !ok {
		return nil, nil
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("the list of approvals is damaged: %w", err)
	}
	return list, nil
}

// ListFor returns the approvals of a user's own agents (principal id): pending
// ones first, newest first. Answered, used and expired ones stay for about a
// day, at most fifty of them. An error means that the list is not known, not
// that it is empty.
func (a *Approvals) ListFor(ctx context.Context, user string) ([]*Approval, error) {
	return a.list(ctx, []string{user}, false, func(ap *Approval) bool { return ap.User == user })
}

// ListOthers returns the approvals of other users that the principal may
// answer, in the same order and for as long.
func (a *Approvals) ListOthers(ctx context.Context, p *auth.Principal) ([]*Approval, error) {
	return a.list(ctx, listsOf(p)[1:], false, func(ap *Approval) bool { return !ap.OwnedBy(p) && ap.MayDecide(p) })
}

// CountFor counts what waits for the principal's answer on the page, own and of
// others. It reads no record of what is answered or expired.
func (a *Approvals) CountFor(ctx context.Context, p *auth.Principal) (int, error) {
	list, err := a.list(ctx, listsOf(p), true, func(ap *Approval) bool {
		return ap.State == Pending && ap.From != "client" && ap.MayDecide(p)
	})
	return len(list), err
}

// listsOf are all lists that may hold something for a principal to answer.
func listsOf(p *auth.Principal) []string {
	lists := []string{p.ID, approverList(p.ID)}
	if p.Email != "" && !strings.EqualFold(p.Email, p.ID) {
		lists = append(lists, approverList(p.Email))
	}
	for _, g := range p.Groups {
		lists = append(lists, groupList(g))
	}
	return lists
}

// list reads what is in lists; of that only what may be open, if open says so.
func (a *Approvals) list(ctx context.Context, lists []string, open bool, want func(*Approval) bool) ([]*Approval, error) {
	var out []*Approval
	seen := map[string]bool{}
	for _, list := range lists {
		raw, ok, err := a.store.Get(ctx, indexKey(list))
		if err != nil {
			return nil, fmt.Errorf("list approvals: %w", err)
		}
		entries, err := parseIndex(raw, ok)
		if err != nil {
			return nil, fmt.Errorf("list approvals: %w", err)
		}
		for _, e := range entries {
			if seen[e.ID] || open && (!e.Open || !a.opts.Now().Before(e.Expires)) {
				continue
			}
			seen[e.ID] = true
			ap, _, err := a.load(ctx, e.ID)
			switch {
			case errors.Is(err, ErrNotFound): // its time is over
				continue
			case err != nil:
				return nil, fmt.Errorf("list approvals: read %s: %w", e.ID, err)
			case !want(ap):
				continue
			}
			out = append(out, ap)
		}
	}
	slices.SortStableFunc(out, func(x, y *Approval) int {
		if px, py := x.State == Pending, y.State == Pending; px != py {
			if px {
				return -1
			}
			return 1
		}
		return cmp.Or(y.Created.Compare(x.Created), cmp.Compare(x.ID, y.ID))
	})
	return out, nil
}

// attemptsMax bounds compare-and-swap loops. Each lost round means that
// somebody else's was won.
const attemptsMax = 300

// backoff waits a little before another round of compare-and-swap.
func backoff(ctx context.Context, attempt int) error {
	if attempt >= attemptsMax {
		return errors.New("the store stays busy; try again")
	}
	t := time.NewTimer(time.Duration(rand.Int64N(int64(min(attempt+1, 20)) * int64(time.Millisecond))))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
