package writeguard

import (
	"context"
	"fmt"
	"time"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/wire"
)

// noteMax bounds what a person says with a decision, in bytes.
const noteMax = 1000

// Decide answers a pending approval on behalf of by, who must be the user that
// the call belongs to. Of decisions that race exactly one succeeds. An
// approval given may be used for as long again as it could be answered.
//
// Errors: ErrNotFound, ErrNotYours, ErrClosed (already answered, used or
// expired), or the store's; after the latter the answer may or may not have
// been kept, and Get tells.
func (a *Approvals) Decide(ctx context.Context, id string, by *auth.Principal, approve bool, via, note string) error {
	doing := func(err error) error { return fmt.Errorf("decide approval %s: %w", Visible(id), err) }
	if via != ViaElicitation && via != ViaWeb {
		return doing(fmt.Errorf("unknown way %q", via))
	}
	for attempt := 0; ; attempt++ {
		ap, raw, err := a.load(ctx, id)
		if err != nil {
			return doing(err)
		}
		if !ap.OwnedBy(by) {
			return doing(ErrNotYours)
		}
		if ap.State != Pending {
			return doing(fmt.Errorf("%w: it is %s", ErrClosed, ap.State))
		}
		now, ttl := a.opts.Now(), time.Duration(a.expires.Load())
		ap.State, ap.DecidedBy, ap.DecidedAt, ap.Via, ap.Note = Denied, by.ID, now, via, clip(note, noteMax)
		if approve {
			ap.State, ap.Expires = Approved, now.Add(ttl)
		}
		keep := 2*ttl + keptAfter
		ok, err := a.store.Swap(ctx, recordKey(id), raw, wire.Encode(ap), keep)
		if err != nil {
			return doing(err)
		}
		if ok {
			a.log.Info("approval decided", "approval", id, "state", ap.State, "via", via,
				"server", ap.Server, "tool", ap.Tool, "user", ap.User)
			// The decision stands; telling about it must not end with the
			// request that made it.
			ctx := context.WithoutCancel(ctx)
			a.announce(ctx, id)
			a.indexClose(ctx, ap, keep)
			return nil
		}
		if err := backoff(ctx, attempt); err != nil {
			return doing(err)
		}
	}
}

// Consume uses an approved approval: of all callers on all replicas exactly
// one gets nil, and only that one may send the call, once. Everybody else gets
// ErrUnusable, or the store's error, and must not send; Request again then
// asks for the next call. The caller makes sure that the approval Covers the
// call.
func (a *Approvals) Consume(ctx context.Context, ap *Approval) error {
	if ap == nil {
		return fmt.Errorf("use approval: %w", ErrNotFound)
	}
	doing := func(err error) error { return fmt.Errorf("use approval %s: %w", Visible(ap.ID), err) }
	for attempt := 0; ; attempt++ {
		now, raw, err := a.load(ctx, ap.ID)
		if err != nil {
			return doing(err)
		}
		if now.User != ap.User || now.Server != ap.Server || now.Tool != ap.Tool || now.Hash != ap.Hash {
			return doing(fmt.Errorf("%w: it is for another call", ErrUnusable))
		}
		if now.State != Approved {
			return doing(fmt.Errorf("%w: it is %s", ErrUnusable, now.State))
		}
		now.State, now.UsedAt = Used, a.opts.Now()
		ok, err := a.store.Swap(ctx, recordKey(ap.ID), raw, wire.Encode(now), keptAfter)
		if err != nil {
			return doing(err)
		}
		if ok {
			return nil
		}
		if err := backoff(ctx, attempt); err != nil {
			return doing(err)
		}
	}
}

// clip shortens text to at most n bytes at a character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	cut := 0
	for i := range s {
		if i > n {
			break
		}
		cut = i
	}
	return s[:cut]
}
