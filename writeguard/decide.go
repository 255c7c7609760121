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

// Answer is what a person says to an approval.
type Answer struct {
	By      *auth.Principal
	Approve bool
	Via     string // ViaElicitation, ViaWeb
	Note    string // for the agent
	// Grant releases that many calls of the tool in the run that asks, this one
	// included; 0 and 1 release this one. More than the rule allows is an error.
	Grant int
}

// Decide answers a pending approval: the user that the call belongs to does,
// or those whom the rule names. Of answers that race exactly one counts. An
// approval given may be used for as long again as it could be answered.
//
// Errors: ErrNotFound, ErrNotYours (to answer, or not in this way), ErrClosed
// (already answered, used or expired), ErrGrant, or the store's; after the
// latter the answer may or may not have been kept, and Get tells.
func (a *Approvals) Decide(ctx context.Context, id string, by Answer) error {
	doing := func(err error) error { return fmt.Errorf("decide approval %s: %w", Visible(id), err) }
	if by.Via != ViaElicitation && by.Via != ViaWeb {
		return doing(fmt.Errorf("unknown way %q", by.Via))
	}
	for attempt := 0; ; attempt++ {
		ap, raw, err := a.load(ctx, id)
		if err != nil {
			return doing(err)
		}
		if err := ap.takes(by); err != nil {
			return doing(err)
		}
		now, ttl := a.opts.Now(), time.Duration(a.expires.Load())
		ap.State, ap.DecidedBy, ap.DeciderName, ap.DecidedAt, ap.Via, ap.Note = Denied, by.By.ID, by.By.Name, now, by.Via, clip(by.Note, noteMax)
		if by.Approve {
			ap.State, ap.Expires, ap.Granted = Approved, now.Add(ttl), by.Grant
		}
		keep := 2*ttl + keptAfter
		ok, err := a.store.Swap(ctx, recordKey(id), raw, wire.Encode(ap), keep)
		if err != nil {
			return doing(err)
		}
		if ok {
			a.log.Info("approval decided", "approval", id, "state", ap.State, "via", by.Via,
				"server", ap.Server, "tool", ap.Tool, "user", ap.User, "by", by.By.ID, "calls", max(1, ap.Granted))
			// The decision stands; telling about it must not end with the
			// request that made it.
			ctx := context.WithoutCancel(ctx)
			a.tell(ap)
			var failed error
			if ap.State == Approved && ap.Granted > 1 {
				failed = a.grant(ctx, ap, by)
			}
			a.announce(ctx, id)
			a.indexClose(ctx, ap, keep)
			if failed != nil {
				return doing(fmt.Errorf("this call is approved, but the further ones could not be noted: %w", failed))
			}
			return nil
		}
		if err := backoff(ctx, attempt); err != nil {
			return doing(err)
		}
	}
}

// takes says why an approval cannot be answered so; nil: it can.
func (a *Approval) takes(by Answer) error {
	switch {
	case !a.MayDecide(by.By):
		return ErrNotYours
	case by.Via == ViaElicitation && (a.From == "web" || !a.OwnedBy(by.By)):
		return fmt.Errorf("%w in a client: it is answered on the portal's page", ErrNotYours)
	case by.Via == ViaWeb && a.From == "client":
		return fmt.Errorf("%w on the page: it is answered in the client that asks", ErrNotYours)
	case a.State != Pending:
		return fmt.Errorf("%w: it is %s", ErrClosed, a.State)
	case by.Grant < 0 || by.Grant > max(1, a.GrantMax) || by.Grant > 1 && by.Via != ViaWeb:
		return fmt.Errorf("%w: at most %d", ErrGrant, max(1, a.GrantMax))
	}
	return nil
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
