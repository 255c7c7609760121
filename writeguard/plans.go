package writeguard

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/auth/vault"
	"github.com/mcp-portal/mcp-portal/store"
	"github.com/mcp-portal/mcp-portal/wire"
)

// Bounds of a plan: a person reads all of it.
const (
	planSteps     = 500
	planArguments = 2 << 20 // bytes of all steps
	plansListed   = 50
)

// ErrPlanTooLarge means that a plan has more than a person can be asked about.
var ErrPlanTooLarge = errors.New("the plan is too large")

// Plans keeps plans in the shared store, sealed. A plan and its progress are two
// records: the second changes with each step, by compare-and-swap. It is safe
// for concurrent use.
type Plans struct {
	store   store.Store
	vault   *vault.Vault
	log     *slog.Logger
	now     func() time.Time
	expires atomic.Int64
}

// NewPlans returns plans kept in st and sealed by v. A nil v makes every
// operation fail: arguments are not kept in the clear.
func NewPlans(st store.Store, v *vault.Vault, log *slog.Logger, now func() time.Time) *Plans {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if now == nil {
		now = time.Now
	}
	p := &Plans{store: st, vault: v, log: log, now: now}
	p.SetExpires(0)
	return p
}

// SetExpires changes how long plans made from now on may wait for a decision,
// and decided ones to be applied. Zero means the default, one hour.
func (p *Plans) SetExpires(d time.Duration) {
	if d <= 0 {
		d = time.Hour
	}
	p.expires.Store(int64(d))
}

var planID = regexp.MustCompile(`^pl-[A-Z2-7]{26}$`)

// kept is how long the records of a plan can be read.
func (p *Plans) kept() time.Duration { return 2*time.Duration(p.expires.Load()) + keptAfter }

// Make keeps a new plan and gives it its id. Errors: ErrPlanTooLarge, or the
// store's; then there is no plan.
func (p *Plans) Make(ctx context.Context, plan *Plan) error {
	if err := p.write(ctx, plan); err != nil {
		return err
	}
	p.enlist(ctx, plan)
	return nil
}

// write keeps the records of a new plan, which nobody finds yet.
func (p *Plans) write(ctx context.Context, plan *Plan) error {
	n := 0
	for _, s := range plan.Steps {
		n += len(s.Arguments)
	}
	if len(plan.Steps) == 0 || len(plan.Steps) > planSteps || n > planArguments {
		return fmt.Errorf("make a plan: %w: %d steps with %d bytes of arguments, at most %d and %d are possible; plan less at once", ErrPlanTooLarge, len(plan.Steps), n, planSteps, planArguments)
	}
	plan.ID, plan.Created = "pl-"+rand.Text(), p.now()
	g := &Progress{Expires: plan.Created.Add(time.Duration(p.expires.Load())), Steps: make([]StepProgress, len(plan.Steps))}
	for i := range g.Steps {
		g.Steps[i].State = StepOpen
	}
	if err := p.set(ctx, "plan:"+plan.ID, plan); err != nil {
		return fmt.Errorf("make a plan: %w", err)
	}
	if err := p.set(ctx, "plan-progress:"+plan.ID, g); err != nil {
		return fmt.Errorf("make a plan: %w", err)
	}
	return nil
}

// enlist puts a new plan into the lists of those who decide on it.
func (p *Plans) enlist(ctx context.Context, plan *Plan) {
	for _, list := range plan.lists() {
		if err := p.list(ctx, list, plan.ID); err != nil {
			p.log.Warn("a plan is missing from a list of plans", "plan", plan.ID, "error", err)
		}
	}
}

func (p *Plans) seal(ctx context.Context, key string, v any) ([]byte, error) {
	if p.vault == nil {
		return nil, errors.New("plans need the portal's encryption, which is not set up")
	}
	s, err := p.vault.Box("plan").Seal(ctx, key, wire.Encode(v))
	return []byte(s), err
}

func (p *Plans) set(ctx context.Context, key string, v any) error {
	sealed, err := p.seal(ctx, key, v)
	if err != nil {
		return err
	}
	return p.store.Set(ctx, key, sealed, p.kept())
}

// get reads a record into v and returns it as it is in the store.
func (p *Plans) get(ctx context.Context, key string, v any) ([]byte, error) {
	raw, ok, err := p.store.Get(ctx, key)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, ErrNotFound
	case p.vault == nil:
		return nil, errors.New("plans need the portal's encryption, which is not set up")
	}
	plain, _, err := p.vault.Box("plan").Open(ctx, key, string(raw))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(plain, v); err != nil {
		return nil, fmt.Errorf("the record is damaged: %w", err)
	}
	return slices.Clone(raw), nil
}

// Get returns a plan and what became of it so far. It does not check whose it
// is. The error is ErrNotFound or the store's.
func (p *Plans) Get(ctx context.Context, id string) (*Plan, *Progress, error) {
	plan, g, _, err := p.load(ctx, id)
	if err != nil {
		return nil, nil, fmt.Errorf("read plan %s: %w", Visible(id), err)
	}
	return plan, g, nil
}

func (p *Plans) load(ctx context.Context, id string) (*Plan, *Progress, []byte, error) {
	if !planID.MatchString(id) {
		return nil, nil, nil, ErrNotFound
	}
	var plan Plan
	var g Progress
	if _, err := p.get(ctx, "plan:"+id, &plan); err != nil {
		return nil, nil, nil, err
	}
	raw, err := p.get(ctx, "plan-progress:"+id, &g)
	if err != nil {
		return nil, nil, nil, err
	}
	if plan.ID != id || len(g.Steps) != len(plan.Steps) {
		return nil, nil, nil, errors.New("the record is damaged: it does not fit its plan")
	}
	return &plan, &g, raw, nil
}

// Change edits the progress of a plan by compare-and-swap. edit may be called
// several times; its error ends the change and is returned as it is.
func (p *Plans) Change(ctx context.Context, id string, edit func(*Plan, *Progress) error) (*Progress, error) {
	for attempt := 0; ; attempt++ {
		plan, g, raw, err := p.load(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("read plan %s: %w", Visible(id), err)
		}
		if err := edit(plan, g); err != nil {
			return nil, err
		}
		sealed, err := p.seal(ctx, "plan-progress:"+id, g)
		if err != nil {
			return nil, fmt.Errorf("keep the progress of plan %s: %w", id, err)
		}
		ok, err := p.store.Swap(ctx, "plan-progress:"+id, raw, sealed, p.kept())
		if err != nil {
			return nil, fmt.Errorf("keep the progress of plan %s: %w", id, err)
		}
		if ok {
			return g, nil
		}
		if err := backoff(ctx, attempt); err != nil {
			return nil, fmt.Errorf("keep the progress of plan %s: %w", id, err)
		}
	}
}

// Decide records what a person says to steps of a plan. Of answers that race for
// a step one counts. Once all steps are decided, there is as long again to apply
// the plan. Errors: ErrNotFound, ErrNotYours, ErrClosed, or the store's.
func (p *Plans) Decide(ctx context.Context, id string, a PlanAnswer) (*Progress, error) {
	if a.Via != ViaElicitation && a.Via != ViaWeb {
		return nil, fmt.Errorf("decide plan %s: unknown way %q", Visible(id), a.Via)
	}
	g, err := p.Change(ctx, id, func(plan *Plan, g *Progress) error {
		now := p.now()
		if err := plan.take(g, a, now); err != nil {
			return err
		}
		if g.Count()[StepOpen] == 0 {
			g.Expires = now.Add(time.Duration(p.expires.Load()))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("decide plan %s: %w", Visible(id), err)
	}
	p.log.Info("plan decided", "plan", id, "by", a.By.ID, "via", a.Via, "approved", len(a.Approve), "removed", len(a.Remove))
	return g, nil
}

// KeepAnswer keeps what a step answered; Answer reads it.
func (p *Plans) KeepAnswer(ctx context.Context, id string, step int, answer json.RawMessage) error {
	return p.set(ctx, answerKey(id, step), answer)
}

// Answer returns what a step answered.
func (p *Plans) Answer(ctx context.Context, id string, step int) (json.RawMessage, error) {
	var answer json.RawMessage
	if _, err := p.get(ctx, answerKey(id, step), &answer); err != nil {
		return nil, fmt.Errorf("read the answer of step %d of plan %s: %w", step+1, Visible(id), err)
	}
	return answer, nil
}

func answerKey(id string, step int) string { return fmt.Sprintf("plan-answer:%s:%d", id, step) }

// OfCall returns the plan of a direct call, if one is there that is not over:
// the same user, tool and arguments under the same terms.
func (p *Plans) OfCall(ctx context.Context, c Call, d Decision) (*Plan, *Progress, error) {
	key, err := planCallKey(c)
	if err != nil {
		return nil, nil, err
	}
	id, ok, err := p.store.Get(ctx, key)
	if err != nil || !ok {
		return nil, nil, err
	}
	return p.stillOf(ctx, string(id), c, d)
}

// stillOf is the plan of that id, if it is one of the call that is not over.
func (p *Plans) stillOf(ctx context.Context, id string, c Call, d Decision) (*Plan, *Progress, error) {
	plan, g, err := p.Get(ctx, id)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	case plan.User != c.Principal.ID || !plan.SameTerms(0, d.Terms):
		return nil, nil, nil
	}
	switch st := g.State(p.now()); {
	case st == PlanOpen, st == PlanReady, st == PlanApplying:
		return plan, g, nil
	case st == PlanDenied && p.now().Before(g.Steps[0].At.Add(time.Minute)):
		return plan, g, nil // a no holds for a while
	}
	return nil, nil, nil
}

// MakeOfCall makes the plan of a direct call. Of equal calls that meet, on all
// replicas, one makes it; it returns the plan that counts, which is another one
// if another call was faster.
func (p *Plans) MakeOfCall(ctx context.Context, plan *Plan, c Call, d Decision) (*Plan, error) {
	key, err := planCallKey(c)
	if err != nil {
		return nil, err
	}
	if err := p.write(ctx, plan); err != nil {
		return nil, err
	}
	for attempt := 0; ; attempt++ {
		holder, held, err := p.store.Get(ctx, key)
		var first *Plan
		if err == nil && held {
			first, _, err = p.stillOf(ctx, string(holder), c, d)
		}
		won := false
		switch {
		case err != nil || first != nil:
		case held:
			won, err = p.store.Swap(ctx, key, holder, []byte(plan.ID), p.kept())
		default:
			won, err = p.store.Create(ctx, key, []byte(plan.ID), p.kept())
		}
		if won {
			p.enlist(ctx, plan)
			return plan, nil
		}
		if err == nil && first == nil {
			err = backoff(ctx, attempt)
		}
		if err == nil && first == nil {
			continue
		}
		for _, k := range []string{"plan:", "plan-progress:"} {
			if derr := p.store.Delete(context.WithoutCancel(ctx), k+plan.ID); derr != nil {
				p.log.Warn("a plan that nobody finds stays until it expires", "plan", plan.ID, "error", derr)
			}
		}
		return first, err
	}
}

func planCallKey(c Call) (string, error) {
	args, err := Canonical(c.Arguments)
	if err != nil {
		return "", err
	}
	return "plan-of-" + callKey(c, HashArguments(args)), nil
}

// lists are those that a plan stands in: of its user and of its approvers.
func (p *Plan) lists() []string {
	out := []string{p.User}
	for i := range p.Steps {
		out = append(out, p.asApproval(i).lists()...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func planListKey(list string) string {
	sum := sha256.Sum256([]byte(list))
	return "plans:" + hex.EncodeToString(sum[:])
}

// list puts a plan at the head of a list.
func (p *Plans) list(ctx context.Context, list, id string) error {
	key := planListKey(list)
	for attempt := 0; ; attempt++ {
		raw, ok, err := p.store.Get(ctx, key)
		if err != nil {
			return err
		}
		var ids []string
		if ok && json.Unmarshal(raw, &ids) != nil {
			ids = nil
		}
		ids = append([]string{id}, ids...)
		next := wire.Encode(ids[:min(len(ids), plansListed)])
		if ok {
			ok, err = p.store.Swap(ctx, key, raw, next, p.kept())
		} else {
			ok, err = p.store.Create(ctx, key, next, p.kept())
		}
		if err != nil || ok {
			return err
		}
		if err := backoff(ctx, attempt); err != nil {
			return err
		}
	}
}

// Listed is a plan in a list.
type Listed struct {
	Plan     *Plan
	Progress *Progress
	State    PlanState
}

// CountFor counts the plans that wait for the principal's answer on the page. Of
// plans that are not open it reads no more than how far they are.
func (p *Plans) CountFor(ctx context.Context, who *auth.Principal) (int, error) {
	n := 0
	list, err := p.listed(ctx, who, func(id string) (bool, error) {
		var g Progress
		_, err := p.get(ctx, "plan-progress:"+id, &g)
		return err == nil && g.State(p.now()) == PlanOpen, err
	})
	for _, l := range list {
		for i := range l.Plan.Steps {
			if l.State == PlanOpen && l.Progress.Steps[i].State == StepOpen && l.Plan.MayDecide(who, i) {
				n++
				break
			}
		}
	}
	return n, err
}

// ListFor returns the plans that a principal may see, newest first.
func (p *Plans) ListFor(ctx context.Context, who *auth.Principal) ([]Listed, error) {
	return p.listed(ctx, who, func(string) (bool, error) { return true, nil })
}

// listed reads those plans of the principal's lists that want says yes to.
func (p *Plans) listed(ctx context.Context, who *auth.Principal, want func(id string) (bool, error)) ([]Listed, error) {
	var out []Listed
	seen := map[string]bool{}
	for _, list := range listsOf(who) {
		raw, _, err := p.store.Get(ctx, planListKey(list))
		if err != nil {
			return nil, fmt.Errorf("list plans: %w", err)
		}
		var ids []string
		_ = json.Unmarshal(raw, &ids) // none: there is no list
		for _, id := range ids {
			if seen[id] {
				continue
			}
			seen[id] = true
			wanted, err := want(id)
			if err == nil && !wanted || errors.Is(err, ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("list plans: %w", err)
			}
			plan, g, err := p.Get(ctx, id)
			switch {
			case errors.Is(err, ErrNotFound):
			case err != nil:
				return nil, fmt.Errorf("list plans: %w", err)
			case plan.MaySee(who):
				out = append(out, Listed{plan, g, g.State(p.now())})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Listed) int { return b.Plan.Created.Compare(a.Plan.Created) })
	return out, nil
}
