package writeguard

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/wire"
)

// State is where an approval stands.
type State string

const (
	Pending  State = "pending"  // asked, not answered
	Approved State = "approved" // releases one call until it expires
	Denied   State = "denied"
	Used     State = "used"    // its one call was released
	Expired  State = "expired" // not answered, or not used, in time
)

// Ways a decision came in.
const (
	ViaElicitation = "elicitation" // the client's form
	ViaWeb         = "web"         // the portal's page
)

// Errors of Approvals. Each is wrapped with what was being done.
var (
	ErrNotFound = errors.New("there is no such approval")
	ErrNotYours = errors.New("the approval is not yours to answer")
	ErrClosed   = errors.New("the approval is not open any more") // Decide: answered, used or expired
	ErrGrant    = errors.New("that many calls cannot be approved at once")
	ErrUnusable = errors.New("the approval does not release this call")    // Consume: not approved, used or expired
	ErrTooMany  = errors.New("too many calls wait for this user's answer") // Request
	ErrTooLarge = errors.New("the arguments are too large to be approved") // Request
)

// Approval is the record of one call that waits, or waited, for a person.
type Approval struct {
	ID        string          `json:"id"`
	User      string          `json:"user"`      // principal id
	UserName  string          `json:"user_name"` // for display
	Client    string          `json:"client,omitempty"`
	Server    string          `json:"server"`
	Tool      string          `json:"tool"` // original name
	Class     Class           `json:"class"`
	Source    string          `json:"source"` // of the class
	Why       string          `json:"why"`    // of the class
	Rule      string          `json:"rule"`
	Reason    string          `json:"reason"`
	Arguments json.RawMessage `json:"arguments"` // canonical
	Hash      string          `json:"hash"`      // HashArguments(Arguments)
	Mode      Mode            `json:"mode"`
	Run       string          `json:"run,omitempty"`    // run id, when asked from inside code
	Others    []string        `json:"others,omitempty"` // further runs that wait with an equal call
	Created   time.Time       `json:"created"`
	Expires   time.Time       `json:"expires"` // of the present state
	State     State           `json:"state"`
	DecidedBy string          `json:"decided_by,omitempty"` // principal id
	DecidedAt time.Time       `json:"decided_at,omitzero"`
	Via       string          `json:"via,omitempty"`  // ViaElicitation, ViaWeb
	Note      string          `json:"note,omitempty"` // what the person said, or why it counts as no
	UsedAt    time.Time       `json:"used_at,omitzero"`

	Approvers   *config.Approvers `json:"approvers,omitempty"`    // nil: the user answers
	From        string            `json:"from,omitempty"`         // "web" or "client" only; empty: either
	GrantMax    int               `json:"grant_max,omitempty"`    // most calls of the run that the approver may release
	Granted     int               `json:"granted,omitempty"`      // how many the approver did release; 0: this one
	DeciderName string            `json:"decider_name,omitempty"` // of DecidedBy, for display
}

// Covers reports whether the approval is for exactly this call: same user,
// server, tool and canonical arguments. It says nothing about the state.
func (a *Approval) Covers(c Call) bool {
	canonical, err := Canonical(c.Arguments)
	return err == nil && c.Principal != nil && a.User == c.Principal.ID &&
		a.Server == c.Server && a.Tool == c.Tool && a.Hash == HashArguments(canonical)
}

// OwnedBy reports whether the call is one of the principal's own.
func (a *Approval) OwnedBy(p *auth.Principal) bool { return p != nil && p.ID != "" && p.ID == a.User }

// MayDecide reports whether the principal may answer: the user whose agent
// asks or, where the rule names approvers, one of these. Machines never.
func (a *Approval) MayDecide(p *auth.Principal) bool {
	switch {
	case p == nil || p.ID == "" || p.Kind == auth.KindService:
		return false
	case a.Approvers == nil:
		return a.OwnedBy(p)
	case a.OwnedBy(p):
		return a.Approvers.Requester
	}
	return p.InGroup(a.Approvers.Groups...) || isOneOf(a.Approvers.Users, p)
}

// MaySee reports whether the principal may look at the approval.
func (a *Approval) MaySee(p *auth.Principal) bool { return a.OwnedBy(p) || a.MayDecide(p) }

// OthersOnly reports whether the user whose agent asks may not answer.
func (a *Approval) OthersOnly() bool { return a.Approvers != nil && !a.Approvers.Requester }

// Who names who may answer, for people and agents.
func (a *Approval) Who() string {
	if a.Approvers == nil {
		return "the user"
	}
	var who []string
	for _, g := range a.Approvers.Groups {
		who = append(who, "a member of "+Visible(g))
	}
	for _, u := range a.Approvers.Users {
		who = append(who, Visible(u))
	}
	if a.Approvers.Requester {
		who = append([]string{"the user"}, who...)
	}
	return strings.Join(who, " or ")
}

// Options of Approvals. Zero values mean the defaults.
type Options struct {
	Expires      time.Duration    // to answer, and once more to use the answer; default 15m
	DeniedFor    time.Duration    // how long the same call stays denied without asking again; default 60s
	MaxPending   int              // open approvals per user; default 100
	MaxArguments int              // bytes; default 1048576, as much as a script may send
	Poll         time.Duration    // backstop of Wait, should a message be lost; default 2s
	Now          func() time.Time // clock; default time.Now
	// On, if not nil, is told of each new approval and of each that was decided,
	// by the one replica that made it so. It must not block.
	On func(*Approval)
}

// Approvals keeps approvals in the shared store, so that a call asked for on
// one replica can be answered on a second and used on a third. It is safe for
// concurrent use. Whatever the store cannot answer is an error, and a call
// without a consumed approval must not be sent.
type Approvals struct {
	store   store.Store
	log     *slog.Logger
	opts    Options
	expires atomic.Int64
	hub     hub
}

// NewApprovals returns approvals kept in st.
func NewApprovals(st store.Store, log *slog.Logger, o Options) *Approvals {
	if o.DeniedFor <= 0 {
		o.DeniedFor = time.Minute
	}
	if o.MaxPending <= 0 {
		o.MaxPending = 100
	}
	if o.MaxArguments <= 0 {
		o.MaxArguments = mostArguments
	}
	if o.Poll <= 0 {
		o.Poll = 2 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	a := &Approvals{store: st, log: log, opts: o}
	a.SetExpires(o.Expires)
	return a
}

// SetExpires changes how long approvals made from now on may wait, as after a
// reload of the configuration. Zero means the default, 15 minutes.
func (a *Approvals) SetExpires(d time.Duration) {
	if d <= 0 {
		d = 15 * time.Minute
	}
	a.expires.Store(int64(d))
}

// keptAfter is how long a record can be read after it expired, was used or
// was denied: a person who opens its page late is told what happened.
const keptAfter = 24 * time.Hour

// Request returns the approval of a call that policy wants approved: the open
// one if the same call was asked for before (pending, approved and not yet
// used, or denied less than DeniedFor ago), else a new pending one. Concurrent
// requests for the same call share one record, on all replicas.
//
// What to do with it follows from its State: Approved → Consume, then send;
// Pending → ask, or tell the agent where to; Denied → refuse.
//
// Errors: ErrTooLarge, ErrTooMany, arguments that cannot be compared, or the
// store. In each case the call must not be sent.
func (a *Approvals) Request(ctx context.Context, c Call, d Decision) (*Approval, error) {
	doing := func(err error) error {
		return fmt.Errorf("ask for approval of %s/%s: %w", Visible(c.Server), Visible(c.Tool), err)
	}
	if c.Principal == nil || c.Principal.ID == "" || c.Server == "" || c.Tool == "" {
		return nil, doing(errors.New("the call has no user or no tool"))
	}
	if d.Action != Approve {
		return nil, doing(fmt.Errorf("policy says %q, not %q", d.Action, Approve))
	}
	if len(c.Arguments) > a.opts.MaxArguments {
		return nil, doing(tooLarge(len(c.Arguments), a.opts.MaxArguments))
	}
	args, err := Canonical(c.Arguments)
	if err != nil {
		return nil, doing(err)
	}
	hash := HashArguments(args)
	key := callKey(c, hash)
	for attempt := 0; ; attempt++ {
		holder, held, err := a.store.Get(ctx, key)
		if err != nil {
			return nil, doing(err)
		}
		if held {
			switch got, err := a.Get(ctx, string(holder)); {
			case err == nil && a.answers(got) && got.SameTerms(d.Terms):
				if got, err = a.share(ctx, got, c.Run); err != nil {
					return nil, doing(err)
				}
				return got, nil
			case err != nil && !errors.Is(err, ErrNotFound):
				return nil, doing(err)
			}
		}
		now, ttl := a.opts.Now(), time.Duration(a.expires.Load())
		fresh := &Approval{
			ID: "ap-" + rand.Text(), User: c.Principal.ID, UserName: c.Principal.Name, Client: c.Client,
			Server: c.Server, Tool: c.Tool, Class: d.Class, Source: d.Source, Why: d.Why, Rule: d.Rule, Reason: d.Reason,
			Arguments: args, Hash: hash, Mode: c.Mode, Run: c.Run,
			Created: now, Expires: now.Add(ttl), State: Pending,
		}
		fresh.setTerms(d.Terms)
		won, err := a.claim(ctx, key, holder, held, fresh, ttl)
		if err != nil {
			return nil, doing(err)
		}
		if won {
			a.tell(fresh)
			return fresh, nil
		}
		if err := backoff(ctx, attempt); err != nil {
			return nil, doing(err)
		}
	}
}

// mostArguments is how many bytes of arguments are shown to a person.
const mostArguments = 1 << 20

func tooLarge(n, most int) error {
	return fmt.Errorf("%w: %d bytes, at most %d can be shown to a person; send less per call, or have an administrator allow this tool without approval", ErrTooLarge, n, most)
}

// mostOthers is how many further runs an approval names.
const mostOthers = 16

// share notes that another run waits with an equal call.
func (a *Approvals) share(ctx context.Context, ap *Approval, run string) (*Approval, error) {
	for attempt := 0; ap.State == Pending && run != "" && !ap.WaitedForBy(run) && len(ap.Others) < mostOthers; attempt++ {
		now, raw, err := a.load(ctx, ap.ID)
		if err != nil {
			return nil, err
		}
		if ap = now; ap.State != Pending || ap.WaitedForBy(run) {
			break
		}
		ap.Others = append(ap.Others, run)
		if ok, err := a.store.Swap(ctx, recordKey(ap.ID), raw, wire.Encode(ap), 2*time.Duration(a.expires.Load())+keptAfter); err != nil || ok {
			return ap, err
		}
		if err := backoff(ctx, attempt); err != nil {
			return nil, err
		}
	}
	return ap, nil
}

// WaitedForBy reports whether a run waits, or waited, with this call.
func (a *Approval) WaitedForBy(run string) bool {
	return run != "" && (a.Run == run || slices.Contains(a.Others, run))
}

func (a *Approvals) tell(ap *Approval) {
	if a.opts.On != nil {
		a.opts.On(ap)
	}
}

// answers reports whether the call of an approval need not be asked for anew.
func (a *Approvals) answers(ap *Approval) bool {
	switch ap.State {
	case Pending, Approved:
		return true
	case Denied:
		return a.opts.Now().Before(ap.DecidedAt.Add(a.opts.DeniedFor))
	}
	return false
}

// setTerms takes over what the rule says about answering.
func (a *Approval) setTerms(t *Terms) {
	if t == nil {
		return
	}
	if len(t.Approvers.Groups)+len(t.Approvers.Users) > 0 {
		who := t.Approvers
		a.Approvers = &who
	}
	if t.Via != "any" {
		a.From = t.Via
	}
	if a.Run != "" {
		a.GrantMax = t.Grant
	}
}

// SameTerms reports whether an approval asked for earlier was asked of those
// that the rule names now. An answer of others does not count any more.
func (a *Approval) SameTerms(t *Terms) bool {
	now := &Approval{Run: a.Run}
	now.setTerms(t)
	return reflect.DeepEqual(a.Approvers, now.Approvers) && a.From == now.From
}

// Answerable reports whether a person may answer, on the page, for a call of
// that user under these terms.
func (t *Terms) Answerable(user string, who *auth.Principal) bool {
	a := &Approval{User: user, State: Pending}
	a.setTerms(t)
	return a.takes(Answer{By: who, Via: ViaWeb}) == nil
}

// claim writes the record first and then makes the call's key point at it, so
// that the key never points at something that will still come. It reports
// whether this record is the one.
func (a *Approvals) claim(ctx context.Context, key string, holder []byte, held bool, ap *Approval, ttl time.Duration) (bool, error) {
	keep := 2*ttl + keptAfter
	if err := a.store.Set(ctx, recordKey(ap.ID), wire.Encode(ap), keep); err != nil {
		return false, err
	}
	var won bool
	var err error
	if held {
		won, err = a.store.Swap(ctx, key, holder, []byte(ap.ID), keep)
	} else {
		won, err = a.store.Create(ctx, key, []byte(ap.ID), keep)
	}
	if err == nil && won {
		// Last, so that requests for one call that meet count once. A record
		// that finds no room goes away, and its key with it: refused requests
		// must not fill the store.
		if err = a.indexAdd(ctx, ap, keep); err == nil {
			return true, nil
		}
		if derr := a.store.Delete(context.WithoutCancel(ctx), key); derr != nil {
			a.log.Warn("the key of a refused approval stays until it expires", "error", derr)
		}
	}
	if derr := a.store.Delete(context.WithoutCancel(ctx), recordKey(ap.ID)); derr != nil {
		a.log.Warn("an approval that nobody asked for stays until it expires", "approval", ap.ID, "error", derr)
	}
	return false, err
}

// Get returns an approval by its id, as its state is now. It does not check
// whose it is: see OwnedBy. The error is ErrNotFound or the store's.
func (a *Approvals) Get(ctx context.Context, id string) (*Approval, error) {
	ap, _, err := a.load(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read approval %s: %w", Visible(id), err)
	}
	return ap, nil
}

var idPattern = regexp.MustCompile(`^ap-[A-Z2-7]{26}$`)

// load returns the record with its time-dependent state, and its bytes for a
// swap.
func (a *Approvals) load(ctx context.Context, id string) (*Approval, []byte, error) {
	if !idPattern.MatchString(id) {
		return nil, nil, ErrNotFound
	}
	raw, ok, err := a.store.Get(ctx, recordKey(id))
	if err != nil {
		return nil, nil, err
	}
	if !ok {
		return nil, nil, ErrNotFound
	}
	var ap Approval
	if err := json.Unmarshal(raw, &ap); err != nil {
		return nil, nil, fmt.Errorf("the record is damaged: %w", err)
	}
	if ap.ID != id || HashArguments(ap.Arguments) != ap.Hash {
		return nil, nil, errors.New("the record is damaged: it does not match its hash")
	}
	if (ap.State == Pending || ap.State == Approved) && !a.opts.Now().Before(ap.Expires) {
		ap.State = Expired
	}
	return &ap, bytes.Clone(raw), nil
}

func recordKey(id string) string { return "approval:" + id }

// callKey is the identity of a call: who, what, with which arguments.
func callKey(c Call, hash string) string {
	h := sha256.New()
	for _, s := range []string{c.Principal.ID, c.Server, c.Tool, hash} {
		fmt.Fprintf(h, "%d:%s,", len(s), s)
	}
	return "approval-call:" + hex.EncodeToString(h.Sum(nil))
}
