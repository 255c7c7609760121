package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mcp-portal/mcp-portal/codemode"
	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// A stage can be made longer: the run is begun again, told what it was told, and
// given stand-ins for the answers of the calls that are planned. What it can do
// with those without knowing what they are (use them as arguments, keep them,
// leave them alone) it does; at the first look the longer stage ends, just before
// the answer after which the script looked. All that is a dry run as before.

// longer begins the run of a stage again with stand-ins. Nil: that is not
// possible, or was done.
func (g *Gateway) longer(ctx context.Context, r *request, x *run) *run {
	if x.guarded || isClosed(x.done) || !x.recording.whole() {
		return nil
	}
	events, err := g.eventsOf(ctx, x)
	if err != nil {
		g.log.Warn("a stage ends earlier than it had to: its recording cannot be read", "run", x.id, "error", err)
		return nil
	}
	c := &recording{head: x.recording.head, stored: x.recording.stored, life: x.recording.life, epoch: x.recording.epoch, stage: x.recording.stage, events: slices.Clone(events)}
	if x.recording.chunks > 0 {
		c.epoch++ // what is in the store stays whole until the record is written anew
	}
	for _, ev := range events {
		c.bytes += len(ev.Data) + len(ev.Name) + 64
	}
	y := g.runs.make(x.id, r, c)
	x.mu.Lock()
	y.made, y.earlier, y.waited = append([]madeCall(nil), x.made...), x.earlier, true
	x.mu.Unlock()
	x.plan.mu.Lock()
	y.plan.steps = slices.Clone(x.plan.steps)
	y.plan.reads, y.plan.wants = x.plan.reads, maps.Clone(x.plan.wants)
	x.plan.mu.Unlock()
	y.guarded, y.before = true, x
	g.runs.release(x)
	<-x.done // its place is free, and it adds nothing more
	g.runs.begin(y, &codemode.Recording{Version: c.head.Version, Seed: c.head.Seed, Start: c.head.Start, Events: events})
	return y
}

// eventsOf is the whole recording of a run, stored or not.
func (g *Gateway) eventsOf(ctx context.Context, x *run) ([]codemode.Event, error) {
	c := x.recording
	c.keep.Lock()
	defer c.keep.Unlock()
	var events []codemode.Event
	for n := 1; n < c.chunks; n++ {
		var some []codemode.Event
		if err := g.chunk(ctx, x.id, c.epoch, n, &some); err != nil {
			return nil, err
		}
		events = append(events, some...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return append(events, c.events...), nil
}

// stageEnd is why a stage ends where it does.
type stageEnd struct {
	ended   bool // the script did
	waiting bool // calls want to know what the plan will have done
	look    *codemode.Looked
}

func (x *run) stageEnds(waiting int) stageEnd {
	e := stageEnd{waiting: waiting > 0}
	if isClosed(x.done) && x.out != nil {
		e.ended, e.look = x.out.Looked == nil && x.out.Error == nil, x.out.Looked
	}
	return e
}

func (e stageEnd) text(steps []writeguard.PlanStep) string {
	switch {
	case e.ended:
		return ""
	case e.look != nil:
		for i, s := range steps {
			if s.Question == e.look.Question {
				text := fmt.Sprintf("the code looks into the answer of step %d", i+1)
				if line, _, ok := strings.Cut(e.look.At, ":"); ok {
					text += " (line " + line + ")"
				}
				return text
			}
		}
		return "the code looks into an answer"
	case e.waiting:
		return "the code looks again at what the plan changes"
	}
	return "the code waits for the answers of its calls"
}

// fit cuts a recording before the answer after which the script looked, and
// gives the steps that are left, marked where a stand-in was given.
func (c *recording) fit(steps []writeguard.PlanStep, look *codemode.Looked) []writeguard.PlanStep {
	c.mu.Lock()
	defer c.mu.Unlock()
	if look != nil {
		told := 0
		for i, ev := range c.events {
			if ev.Kind != codemode.EventAnswer {
				continue
			}
			if told++; told == look.Answers {
				c.events = c.events[:i:i]
				break
			}
		}
	}
	asked, given := map[int]bool{}, map[int]bool{}
	for _, ev := range c.events {
		if ev.Kind != codemode.EventAnswer {
			asked[ev.N] = true
		} else if ev.Later {
			given[ev.N] = true
		}
	}
	var out []writeguard.PlanStep
	for _, s := range steps {
		if look == nil || asked[s.Question] {
			s.Given = given[s.Question]
			out = append(out, s)
		}
	}
	return out
}

// refer notes which steps a step takes something from.
func refer(plan *writeguard.Plan, marker string) {
	at := map[int]int{}
	for i, s := range plan.Steps {
		at[s.Question] = i
	}
	plan.Marker = marker
	for i := range plan.Steps {
		s := &plan.Steps[i]
		for _, ref := range codemode.Refs(marker, s.Arguments) {
			k, ok := at[ref.Question]
			if !ok {
				k = -1 // of an earlier stage, which no stand-in outlives
			}
			s.Refs = append(s.Refs, writeguard.StepRef{Step: k, Question: ref.Question, Path: strings.Join(ref.Path, ".")})
		}
	}
}

// longerEnded makes the plan of a guarded run that has ended, or, if it failed,
// of the stage as it was before: that is sound in any case.
func (g *Gateway) longerEnded(ctx context.Context, r *request, x *run) (json.RawMessage, *wire.Error) {
	if isClosed(x.done) && x.err == nil && (x.out.Looked != nil || x.out.Error == nil) && x.collecting() {
		return g.planOf(ctx, r, x)
	}
	if !isClosed(x.done) { // it waits for a person in another way than with its plan
		x.cancel(errLetGo)
		<-x.done
	} else if x.err == nil && x.out.Error != nil {
		g.log.Info("a stage ends earlier than it had to", "run", x.id, "why", x.out.Error.Message)
	}
	g.runs.release(x)
	return g.planOf(ctx, r, x.before)
}
