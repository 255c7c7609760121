package pages

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/mcp-portal/mcp-portal/writeguard"
)

// PlanData is the page of a plan.
type PlanData struct {
	Frame
	Plan      *writeguard.Plan
	Progress  *writeguard.Progress
	State     writeguard.PlanState
	Action    string // path the decision posts to; empty: it can only be read
	Steps     []PlanStep
	Problem   string // what went wrong with a decision just made; empty: nothing
	Undo      string // path that takes back what was done posts to; empty: it cannot be
	UndoSteps int    // how many
	Settle    string // path that says what became of a step posts to; empty: nothing is to be said
	Foreign   bool   // the plan is of another user's agent
}

// PlanStep is one step as the viewer sees it.
type PlanStep struct {
	Index    int // from 0, as the form names it
	Step     writeguard.PlanStep
	Shown    json.RawMessage // its arguments, with words where answers of earlier steps will stand
	Progress writeguard.StepProgress
	Mine     bool   // the viewer may decide it now
	Settle   bool   // the viewer may say what became of it
	Waits    string // for whom it waits, if not for the viewer
}

// Number counts from 1.
func (s PlanStep) Number() int { return s.Index + 1 }

// StateText is the state in words.
func (s PlanStep) StateText() string {
	switch s.Progress.State {
	case writeguard.StepOpen:
		return "not decided"
	case writeguard.StepSending:
		return "being sent"
	case writeguard.StepUnknown:
		return "outcome unknown"
	case writeguard.StepNotSent:
		return "not sent"
	case writeguard.StepDone:
		if s.Progress.Settled == writeguard.SettledDone {
			return "done, as " + writeguard.Visible(s.Progress.SettledBy) + " says"
		}
	case writeguard.StepApproved:
		if s.Progress.Settled == writeguard.SettledNot {
			return "to be sent again: " + writeguard.Visible(s.Progress.SettledBy) + " says it did not happen"
		}
	}
	return string(s.Progress.State)
}

// Tone is the class of the state for colours.
func (s PlanStep) Tone() string {
	switch s.Progress.State {
	case writeguard.StepApproved:
		return "approved"
	case writeguard.StepDone:
		return "used"
	case writeguard.StepRemoved, writeguard.StepFailed, writeguard.StepUnknown:
		return "denied"
	case writeguard.StepNotSent:
		return "expired"
	}
	return "pending"
}

// Hidden reports whether the arguments hold characters shown as escapes.
func (s PlanStep) Hidden() bool {
	plain := string(s.Arguments())
	return writeguard.Visible(plain) != plain
}

// Arguments are those of the step as they are shown.
func (s PlanStep) Arguments() json.RawMessage {
	if s.Shown == nil {
		return s.Step.Arguments
	}
	return s.Shown
}

// Uses says which answers of earlier steps the arguments take something from.
func (s PlanStep) Uses() (out []string) {
	for _, ref := range s.Step.Refs {
		text := fmt.Sprintf("the answer of step %d", ref.Step+1)
		if ref.Path != "" {
			text = "." + ref.Path + " of " + text
		}
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// Changes are the members of what is there that the step asks to be different.
func (s PlanStep) Changes() []writeguard.Change {
	if s.Step.Preview == nil || s.Step.Preview.Value == nil {
		return nil
	}
	return writeguard.Changes(s.Step.Preview.Value, s.Step.Arguments)
}

// Taken says in words how taking the step back came out; empty: nobody tried.
func (s PlanStep) Taken() string {
	who := ""
	if s.Progress.UndoBy != "" {
		who = " by " + s.Progress.UndoBy
	}
	switch s.Progress.Undo {
	case writeguard.StepDone:
		return "taken back" + who
	case writeguard.StepSending:
		return "being taken back"
	case writeguard.StepUnknown:
		return "taking it back has an unknown outcome: " + s.Progress.UndoError
	case writeguard.StepFailed:
		return "could not be taken back: " + s.Progress.UndoError
	}
	return ""
}

// TakenBack counts the steps that were taken back, and those that should have
// been.
func (d PlanData) TakenBack() string {
	done, failed := 0, 0
	for _, s := range d.Progress.Steps {
		switch s.Undo {
		case writeguard.StepDone:
			done++
		case writeguard.StepFailed, writeguard.StepUnknown:
			failed++
		}
	}
	switch {
	case done+failed == 0:
		return ""
	case failed == 0:
		return fmt.Sprintf("%d taken back.", done)
	}
	return fmt.Sprintf("%d taken back, %d could not be: see the steps.", done, failed)
}

// Open reports whether the viewer can decide something now.
func (d PlanData) Open() bool {
	if d.Action == "" || d.State != writeguard.PlanOpen {
		return false
	}
	for _, s := range d.Steps {
		if s.Mine {
			return true
		}
	}
	return false
}

// Destructive counts the steps that destroy.
func (d PlanData) Destructive() int {
	n := 0
	for _, s := range d.Steps {
		if s.Step.Class == writeguard.Destructive {
			n++
		}
	}
	return n
}

// Done counts the steps that were carried out.
func (d PlanData) Done() int { return d.Progress.Count()[writeguard.StepDone] }

// Expires is until when it can be decided or applied.
func (d PlanData) Expires() time.Time { return d.Progress.Expires }

func planTitle(s writeguard.PlanState) string {
	switch s {
	case writeguard.PlanOpen:
		return "Apply this plan?"
	case writeguard.PlanReady:
		return "Plan approved"
	case writeguard.PlanDenied:
		return "Plan denied"
	case writeguard.PlanApplying:
		return "Plan being applied"
	case writeguard.PlanApplied:
		return "Plan applied"
	case writeguard.PlanStopped:
		return "Plan stopped"
	}
	return "Plan expired"
}

// Plan shows a plan with all its steps and, while it is open, the form.
func (p *Pages) Plan(w http.ResponseWriter, d PlanData) error {
	return p.render(w, http.StatusOK, "plan", planTitle(d.State), d.Frame, d)
}
