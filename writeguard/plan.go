package writeguard

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/config"
)

// Plan is what a dry run found: calls in order, none of which has been sent. It
// never changes; Progress says what became of it.
type Plan struct {
	ID       string     `json:"id"`
	User     string     `json:"user"`      // principal id
	UserName string     `json:"user_name"` // for display
	Client   string     `json:"client,omitempty"`
	Mode     Mode       `json:"mode"`
	Run      string     `json:"run,omitempty"` // whose stage it is; empty: a direct call, which is its only step
	Stage    int        `json:"stage"`         // from 1
	Created  time.Time  `json:"created"`
	Ends     string     `json:"ends,omitempty"` // why the dry run went no further; empty: the code ended
	Reads    int        `json:"reads"`          // calls that only looked, made after a step had been collected
	Steps    []PlanStep `json:"steps"`
	Marker   string     `json:"marker,omitempty"` // of references in arguments
}

// PlanStep is one call of a plan.
type PlanStep struct {
	Question  int               `json:"question"` // its number in the recording of the run
	Seq       int               `json:"seq"`      // its number among the calls of the run
	Server    string            `json:"server"`
	Tool      string            `json:"tool"` // original name
	Class     Class             `json:"class"`
	Why       string            `json:"why"` // of the class
	Rule      string            `json:"rule"`
	Reason    string            `json:"reason"`
	Arguments json.RawMessage   `json:"arguments"` // canonical; Refs stand where answers of earlier steps will
	Approvers *config.Approvers `json:"approvers,omitempty"`
	From      string            `json:"from,omitempty"` // "web" or "client" only; empty: either
	Before    Facts             `json:"before"`         // what the run had called before it
	// Given says that the code went on with a placeholder for its answer.
	Given bool `json:"given,omitempty"`
	// Preview is what was there when the plan was made; nil: nobody looked.
	Preview *Preview `json:"preview,omitempty"`
	// Refs are the answers of earlier steps that the arguments take something from.
	Refs []StepRef `json:"refs,omitempty"`
}

// Preview is what a call was to change looked like before.
type Preview struct {
	Tool   string          `json:"tool"`
	Value  json.RawMessage `json:"value,omitempty"`
	Cut    bool            `json:"cut,omitempty"`    // Value is not all of it
	Hash   string          `json:"hash,omitempty"`   // of all of it
	Reason string          `json:"reason,omitempty"` // why it could not be looked at
}

// StepRef is a reference to the answer of an earlier step.
type StepRef struct {
	Step     int    `json:"step"` // from 0; -1: there is no such step
	Question int    `json:"question"`
	Path     string `json:"path,omitempty"` // names of members, with dots; empty: all of it
}

// StepState is what became of a step.
type StepState string

// The states of a step. It goes from open to approved or removed by a person,
// and from approved through sending to one of the others, each time by
// compare-and-swap: what is not approved is not sent, and nothing twice.
const (
	StepOpen     StepState = "open"
	StepApproved StepState = "approved"
	StepRemoved  StepState = "removed"
	StepSending  StepState = "sending"
	StepDone     StepState = "done"
	StepFailed   StepState = "failed"   // the server, or the portal, refused it
	StepUnknown  StepState = "unknown"  // it may have been carried out
	StepNotSent  StepState = "not_sent" // what it builds on did not happen, or the plan stopped before it
)

// PlanState is where a plan stands.
type PlanState string

// The states of a plan.
const (
	PlanOpen     PlanState = "open"     // some steps are not decided
	PlanReady    PlanState = "ready"    // all are, and some approved
	PlanDenied   PlanState = "denied"   // all steps were removed
	PlanApplying PlanState = "applying" // somebody is at it
	PlanApplied  PlanState = "applied"  // all approved steps were carried out, or could not be for want of a removed one
	PlanStopped  PlanState = "stopped"  // a step failed or its outcome is unknown
	PlanExpired  PlanState = "expired"
)

// Progress is what became of a plan so far.
type Progress struct {
	Expires time.Time      `json:"expires"`           // of the present state; an applied plan stays
	Attempt string         `json:"attempt,omitempty"` // who applies it
	Over    bool           `json:"over,omitempty"`    // applying has ended
	Why     string         `json:"why,omitempty"`     // it stopped
	Steps   []StepProgress `json:"steps"`
}

// StepProgress is what became of one step.
type StepProgress struct {
	State  StepState `json:"state"`
	By     string    `json:"by,omitempty"` // principal id of who decided
	ByName string    `json:"by_name,omitempty"`
	At     time.Time `json:"at,omitzero"` // of the decision
	Via    string    `json:"via,omitempty"`
	Note   string    `json:"note,omitempty"`
	Error  string    `json:"error,omitempty"`
	Sent   time.Time `json:"sent,omitzero"`
	Ended  time.Time `json:"ended,omitzero"`

	Settled   string `json:"settled,omitempty"`    // what a person says about an outcome that was unknown: SettledDone, SettledNot
	SettledBy string `json:"settled_by,omitempty"` // for display

	Undo      StepState `json:"undo,omitempty"` // of a step that was taken back, or was to be: sending, done, failed, unknown
	UndoError string    `json:"undo_error,omitempty"`
	UndoBy    string    `json:"undo_by,omitempty"` // for display
}

// State is where the plan stands at a moment.
func (p *Progress) State(now time.Time) PlanState {
	n := p.Count()
	switch {
	case p.Over && (n[StepFailed] > 0 || n[StepUnknown] > 0 || p.Why != ""):
		return PlanStopped
	case p.Over:
		return PlanApplied
	case p.Attempt != "":
		return PlanApplying
	case n[StepRemoved] == len(p.Steps):
		return PlanDenied
	case !now.Before(p.Expires):
		return PlanExpired
	case n[StepOpen] > 0:
		return PlanOpen
	}
	return PlanReady
}

// Count tells how many steps are in each state.
func (p *Progress) Count() map[StepState]int {
	n := map[StepState]int{}
	for _, s := range p.Steps {
		n[s.State]++
	}
	return n
}

// OwnedBy reports whether it is a plan of the principal's own agent.
func (p *Plan) OwnedBy(who *auth.Principal) bool {
	return who != nil && who.ID != "" && who.ID == p.User
}

// asApproval lets a step be answered by the rules of approvals.
func (p *Plan) asApproval(i int) *Approval {
	s := p.Steps[i]
	return &Approval{User: p.User, State: Pending, Approvers: s.Approvers, From: s.From}
}

// MayDecide reports whether the principal may answer for a step, on the page.
func (p *Plan) MayDecide(who *auth.Principal, i int) bool {
	return p.Steps[i].From != "client" && p.asApproval(i).MayDecide(who)
}

// MaySee reports whether the principal may look at the plan.
func (p *Plan) MaySee(who *auth.Principal) bool {
	if p.OwnedBy(who) {
		return true
	}
	for i := range p.Steps {
		if p.asApproval(i).MayDecide(who) {
			return true
		}
	}
	return false
}

// InClient reports whether the user may answer for the whole plan in the
// client's form.
func (p *Plan) InClient(who *auth.Principal) bool {
	for i, s := range p.Steps {
		if s.From == "web" || !p.OwnedBy(who) || !p.asApproval(i).MayDecide(who) {
			return false
		}
	}
	return true
}

// Who names who may answer for a step.
func (p *Plan) Who(i int) string { return p.asApproval(i).Who() }

// SameTerms reports whether those who may answer for a step now are those whom
// the plan asked.
func (p *Plan) SameTerms(i int, t *Terms) bool { return p.asApproval(i).SameTerms(t) }

// Servers are those that the steps go to, each once, in order.
func (p *Plan) Servers() []string {
	var out []string
	for _, s := range p.Steps {
		if !slices.Contains(out, s.Server) {
			out = append(out, s.Server)
		}
	}
	return out
}

// Class is the strictest of the steps.
func (p *Plan) Class() Class {
	worst := Read
	for _, s := range p.Steps {
		worst = maxClass(worst, s.Class)
	}
	return worst
}

// Others are the people besides the user whom steps wait for, by name.
func (p *Plan) Others() []string {
	var out []string
	for i := range p.Steps {
		if a := p.asApproval(i); a.OthersOnly() && !slices.Contains(out, a.Who()) {
			out = append(out, a.Who())
		}
	}
	return out
}

// PlanAnswer is what a person says to a plan: to some steps yes, to some no.
type PlanAnswer struct {
	By      *auth.Principal
	Via     string // ViaElicitation, ViaWeb
	Approve []int
	Remove  []int
	Note    string
}

// take puts an answer into the progress.
func (p *Plan) take(g *Progress, a PlanAnswer, now time.Time) error {
	if st := g.State(now); st != PlanOpen {
		return fmt.Errorf("%w: it is %s", ErrClosed, st)
	}
	set := func(list []int, to StepState) error {
		for _, i := range list {
			switch {
			case i < 0 || i >= len(g.Steps):
				return fmt.Errorf("%w: it has no step %d", ErrNotFound, i+1)
			case g.Steps[i].State != StepOpen:
				return fmt.Errorf("%w: step %d is %s", ErrClosed, i+1, g.Steps[i].State)
			}
			if err := p.asApproval(i).takes(Answer{By: a.By, Via: a.Via}); err != nil {
				return fmt.Errorf("step %d: %w", i+1, err)
			}
			g.Steps[i] = StepProgress{State: to, By: a.By.ID, ByName: a.By.Name, At: now, Via: a.Via, Note: clip(a.Note, noteMax)}
		}
		return nil
	}
	if err := set(a.Approve, StepApproved); err != nil {
		return err
	}
	return set(a.Remove, StepRemoved)
}

// StepOf is a call as a step of a plan. The error says why it cannot be shown
// to a person.
func StepOf(c Call, d Decision) (PlanStep, error) {
	if len(c.Arguments) > mostArguments {
		return PlanStep{}, tooLarge(len(c.Arguments), mostArguments)
	}
	args, err := Canonical(c.Arguments)
	if err != nil {
		return PlanStep{}, err
	}
	a := &Approval{}
	a.setTerms(d.Terms)
	return PlanStep{Server: c.Server, Tool: c.Tool, Class: d.Class, Why: d.Why, Rule: d.Rule, Reason: d.Reason, Arguments: args, Approvers: a.Approvers, From: a.From}, nil
}
