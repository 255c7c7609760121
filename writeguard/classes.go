package writeguard

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/mcp-portal/mcp-portal/config"
)

// A tool that does many things behind one argument has a class for each call:
// servers.<id>.tools.<name>.classes, of which the first line counts whose
// condition over the arguments holds.

// classLine is one compiled line.
type classLine struct {
	class Class
	word  string // as the configuration writes it
	when  *condition
}

// Places in a tool's lines besides those of the lines themselves.
const (
	noLine      = -1 // none holds: what is known of the tool without them
	unjudgeable = -2 // a condition could not be judged
	unknownArgs = -3 // the arguments are not known: the strictest of all
)

// compileClasses compiles the lines of a tool. They look at the arguments only:
// a class is what a call does, whoever makes it.
func compileClasses(lines []config.ToolClass) (out []classLine, at int, err error) {
	for i, l := range lines {
		k, ok := parseClass(l.Class)
		if !ok {
			return nil, i, fmt.Errorf("class: %q is none of read, write, destructive, external", l.Class)
		}
		c, err := compileCondition(l.When)
		switch {
		case l.When == "":
			return nil, i, errors.New("when: write a condition over args, for example args.action == \"list\"; what no line matches has the tool's class")
		case err != nil:
			return nil, i, fmt.Errorf("when: %w", err)
		case !c.args || c.others:
			return nil, i, errors.New("when: it looks at something else than args; who may do what is for guard.rules")
		}
		out = append(out, classLine{k, l.Class, c})
	}
	return out, 0, nil
}

// line tells which line of its tool a call falls under.
func (p *Policy) line(c *Call) int {
	lines := p.classes[[2]string{c.Server, c.Tool}]
	switch {
	case lines == nil:
		return noLine
	case c.Arguments == nil:
		return unknownArgs
	}
	in := inputs{call: c}
	for i, l := range lines {
		holds, err := l.when.holds(&in)
		switch {
		case err != nil:
			return unjudgeable
		case holds:
			return i
		}
	}
	return noLine
}

// underLine is the classification of a call that falls under a line of its tool;
// k is the one without lines.
func (p *Policy) underLine(c *Call, k Classification, line int) Classification {
	lines := p.classes[[2]string{c.Server, c.Tool}]
	as := func(class Class, word, why string) {
		k.Class, k.Source, k.Why = class, "config", why
		if word == classExternal && !k.Labels.Has(External) {
			k.Labels, k.ExternalWhy = k.Labels|External, "the configuration says so of such calls"
		}
	}
	switch {
	case line == unjudgeable:
		as(Destructive, "", "a condition of its classes cannot be judged with these arguments")
	case line == unknownArgs:
		for _, l := range lines {
			if stricter(l.class, k.Class) || l.word == classExternal {
				as(maxClass(l.class, k.Class), l.word, "its class depends on the arguments; this is the strictest")
			}
		}
	case line >= 0:
		as(lines[line].class, lines[line].word, "the configuration says so of calls with "+Visible(short(lines[line].when.text, 200)))
	}
	return k
}

var strictness = map[Class]int{Read: 0, Write: 1, Destructive: 2}

func stricter(a, b Class) bool { return strictness[a] > strictness[b] }

func maxClass(a, b Class) Class {
	if stricter(a, b) {
		return a
	}
	return b
}

// worstLine judges a tool under each line that a call of it could fall under, and
// gives the strictest action, and whether it differs.
func (p *Policy) worstLine(c Call, judge func(*knownTool) Action) (worst Action, differs bool) {
	strict := map[Action]int{Allow: 0, ToPlan: 1, Approve: 2, Deny: 3}
	worst = judge(p.toolAt(&c, unknownArgs))
	for i := noLine; i < len(p.classes[[2]string{c.Server, c.Tool}]); i++ {
		a := judge(p.toolAt(&c, i))
		differs = differs || a != worst
		if strict[a] > strict[worst] {
			worst = a
		}
	}
	return worst, differs
}

// actionArguments are names of arguments that say what a tool does.
var actionArguments = []string{"action", "operation", "op", "method", "command", "verb", "mode"}

// suggestClasses proposes lines for a tool whose schema names its actions, if
// these are of different classes. A destructive tool's other actions stay its own
// class unless their names read.
func suggestClasses(schema json.RawMessage, class Class) (lines []config.ToolClass, of Class) {
	var s struct {
		Properties map[string]struct {
			Enum []string `json:"enum"`
		} `json:"properties"`
	}
	if json.Unmarshal(schema, &s) != nil {
		return nil, class
	}
	for _, name := range actionArguments {
		values := s.Properties[name].Enum
		if len(values) < 2 {
			continue
		}
		by := map[Class][]string{}
		for _, v := range values {
			k := Write
			switch {
			case nameVerb(v) != "":
				k = Destructive
			case readingName(v) != "":
				k = Read
			}
			by[k] = append(by[k], v)
		}
		if len(by) < 2 {
			continue
		}
		strictest := maxClass(class, Write)
		if len(by[Destructive]) > 0 {
			strictest = Destructive
		}
		for _, k := range []Class{Read, Write} {
			// What is not read by its name is loosened only from what another
			// action's name made of the tool, not from what the tool's own says.
			if len(by[k]) == 0 || k == Write && class == Destructive || !stricter(strictest, k) {
				continue
			}
			list, err := json.Marshal(by[k])
			if err != nil {
				continue
			}
			lines = append(lines, config.ToolClass{Class: string(k), When: fmt.Sprintf("has(args.%[1]s) && args.%[1]s in %s", name, list)})
		}
		return lines, strictest
	}
	return nil, class
}
