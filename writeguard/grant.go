package writeguard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/wire"
)

// grantFor is how long what is left of a grant can be used. No run lasts
// longer.
const grantFor = 24 * time.Hour

// granted is what is left of an approval for several calls of one tool in one
// run.
type granted struct {
	Approval string `json:"approval"`
	Rule     string `json:"rule"` // under which it was given
	Left     int    `json:"left"`
	Given    int    `json:"given"` // calls that it was for, the first included

	// Whom the rule named then, and where they answer.
	Approvers *config.Approvers `json:"approvers,omitempty"`
	From      string            `json:"from,omitempty"`
}

// holds reports whether a grant still counts under the terms of the rule that
// decides now: it was given by those whom the rule names, and the rule allows
// one more.
func (g *granted) holds(d Decision, run string) bool {
	was := &Approval{Run: run, Approvers: g.Approvers, From: g.From}
	return g.Left > 0 && g.Rule == d.Rule && was.SameTerms(d.Terms) && g.Given-g.Left < d.Terms.Grant
}

func grantKey(user, run, server, tool string) string {
	h := sha256.New()
	for _, s := range []string{user, run, server, tool} {
		fmt.Fprintf(h, "%d:%s,", len(s), s)
	}
	return "grant:" + hex.EncodeToString(h.Sum(nil))
}

// grant releases the calls that an approval covers besides its own: first
// those that wait already, then those still to come.
func (a *Approvals) grant(ctx context.Context, ap *Approval, by Answer) error {
	left := ap.Granted - 1
	waiting, err := a.ListFor(ctx, ap.User)
	if err != nil {
		return err
	}
	one := by
	one.Grant, one.Note = 0, "released together with "+ap.ID
	for _, w := range waiting {
		if left == 0 {
			break
		}
		if w.ID == ap.ID || w.State != Pending || w.Run != ap.Run || w.Server != ap.Server || w.Tool != ap.Tool || w.Rule != ap.Rule {
			continue
		}
		if a.Decide(ctx, w.ID, one) == nil {
			left--
		}
	}
	if left == 0 {
		return nil
	}
	return a.store.Set(ctx, grantKey(ap.User, ap.Run, ap.Server, ap.Tool), wire.Encode(granted{ap.ID, ap.Rule, left, ap.Granted, ap.Approvers, ap.From}), grantFor)
}

// UseGrant takes one call from what a person released for this tool in this
// run, under the rule that decides now, and returns the approval that did. An
// empty id without an error: nothing is left, the call needs its own approval.
func (a *Approvals) UseGrant(ctx context.Context, c Call, d Decision) (string, error) {
	if c.Run == "" || c.Principal == nil || d.Terms == nil || d.Terms.Grant < 2 {
		return "", nil
	}
	key := grantKey(c.Principal.ID, c.Run, c.Server, c.Tool)
	// A call that a person has approved itself uses that up: when a run begins
	// anew, the call that was granted with the others comes here first.
	switch own, err := a.approvedItself(ctx, c, d); {
	case err != nil:
		return "", fmt.Errorf("look up what was granted to the run: %w", err)
	case own:
		return "", nil
	}
	for attempt := 0; ; attempt++ {
		raw, held, err := a.store.Get(ctx, key)
		if err != nil {
			return "", fmt.Errorf("look up what was granted to the run: %w", err)
		}
		var g granted
		if !held || json.Unmarshal(raw, &g) != nil || !g.holds(d, c.Run) {
			return "", nil
		}
		g.Left--
		ok, err := a.store.Swap(ctx, key, raw, wire.Encode(g), grantFor)
		if err != nil {
			return "", fmt.Errorf("use what was granted to the run: %w", err)
		}
		if ok {
			return g.Approval, nil
		}
		if err := backoff(ctx, attempt); err != nil {
			return "", err
		}
	}
}

// approvedItself reports whether there is an unused yes to exactly this call.
func (a *Approvals) approvedItself(ctx context.Context, c Call, d Decision) (bool, error) {
	args, err := Canonical(c.Arguments)
	if err != nil {
		return false, err
	}
	holder, held, err := a.store.Get(ctx, callKey(c, HashArguments(args)))
	if err != nil || !held {
		return false, err
	}
	ap, err := a.Get(ctx, string(holder))
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil && ap.State == Approved && ap.SameTerms(d.Terms), err
}
