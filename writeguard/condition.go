package writeguard

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"

	"github.com/mcp-portal/mcp-portal/auth"
)

// Bounds of conditions: how much one may cost to evaluate, in the units of
// CEL's own cost model (about a nanosecond to a few each), and how long it may
// be in characters.
const (
	conditionCost = 100_000
	conditionMax  = 4000
)

// condition is a compiled `when:`.
type condition struct {
	text    string
	program cel.Program
	args    bool // it looks at the arguments
	run     bool // it looks at what happened before
	others  bool // it looks at something besides the arguments
	taints  bool // of that, at what the session has read
}

// celEnv declares what a condition can look at. The names have dots, so that a
// misspelt one is found when the configuration is loaded.
var celEnv = sync.OnceValues(func() (*cel.Env, error) {
	list := cel.ListType(cel.StringType)
	return cel.NewEnv(
		cel.Variable("args", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("user.id", cel.StringType),
		cel.Variable("user.name", cel.StringType),
		cel.Variable("user.email", cel.StringType),
		cel.Variable("user.kind", cel.StringType),
		cel.Variable("user.groups", list),
		cel.Variable("tool.name", cel.StringType),
		cel.Variable("tool.class", cel.StringType),
		cel.Variable("tool.labels", list),
		cel.Variable("server.id", cel.StringType),
		cel.Variable("client", cel.StringType),
		cel.Variable("mode", cel.StringType),
		cel.Variable("run.id", cel.StringType),
		cel.Variable("run.calls", cel.IntType),
		cel.Variable("run.tool_calls", cel.IntType),
		cel.Variable("run.taints", list),
		cel.CrossTypeNumericComparisons(true),
		cel.ParserExpressionSizeLimit(conditionMax),
	)
})

// compileCondition checks a condition and its types. The message of the error
// says what is wrong and where in the condition.
func compileCondition(text string) (*condition, error) {
	env, err := celEnv()
	if err != nil {
		return nil, fmt.Errorf("prepare conditions: %w", err)
	}
	ast, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		var parts []string
		for _, e := range issues.Errors() {
			if len(parts) > 0 && strings.HasPrefix(e.Message, "Syntax error") {
				break // a consequence of the first
			}
			at := ""
			if strings.Contains(text, "\n") {
				at = fmt.Sprintf("line %d, ", e.Location.Line())
			}
			parts = append(parts, fmt.Sprintf("%scharacter %d: %s", at, e.Location.Column()+1, plainIssue(text, e.Location.Line(), e.Location.Column(), strings.Join(strings.Fields(e.Message), " "))))
		}
		return nil, errors.New(strings.Join(parts, "; "))
	}
	if ast.OutputType() != cel.BoolType {
		return nil, fmt.Errorf("it gives %s, not true or false; compare with something", ast.OutputType())
	}
	options := []cel.ProgramOption{cel.EvalOptions(cel.OptOptimize)}
	// Counting the cost takes longer than a plain condition itself, so it is
	// counted only where arguments of some size could make it too large.
	if most, err := env.EstimateCost(ast, sizes{}); err != nil || most.Max > conditionCost {
		options = append(options, cel.CostLimit(conditionCost))
	}
	program, err := env.Program(ast, options...)
	if err != nil {
		return nil, err
	}
	c := &condition{text: text, program: program}
	for _, ref := range ast.NativeRep().ReferenceMap() {
		c.args = c.args || ref.Name == "args"
		c.others = c.others || ref.Name != "args" && slices.Contains(conditionVariables(), ref.Name)
		c.taints = c.taints || ref.Name == "run.taints"
		c.run = c.run || strings.HasPrefix(ref.Name, "run.") && ref.Name != "run.id"
	}
	return c, nil
}

// sizes says how large what a condition looks at can be. What a client sends
// may be of any size; a user's groups and names come from the IdP.
type sizes struct{}

// groupsMost is how many groups, or characters of a name, an IdP may send
// before conditions over them could cost more than is counted here.
const groupsMost = 5000

func (sizes) EstimateSize(of checker.AstNode) *checker.SizeEstimate {
	switch path := of.Path(); {
	case len(path) == 0:
	case path[0] == "tool.labels", path[0] == "run.taints":
		return &checker.SizeEstimate{Max: uint64(len(labelNames))}
	case strings.HasPrefix(path[0], "user."):
		return &checker.SizeEstimate{Max: groupsMost}
	}
	return nil
}

func (sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

// Variables of conditions, for messages and documentation.
func conditionVariables() []string {
	env, err := celEnv()
	if err != nil {
		return nil
	}
	var out []string
	for _, v := range env.Variables() {
		out = append(out, v.Name())
	}
	sort.Strings(out)
	return out
}

// errUnknown means that a condition cannot be judged because what it looks at
// is not known: the arguments, or what happened before.
var errUnknown = errors.New("not known")

// inputs is what conditions see of one call. It decodes the arguments and asks
// for the facts at most once, and only if a condition looks at them.
type inputs struct {
	call  *Call
	class Classification

	args    map[string]any
	value   any // args as conditions take them
	argsErr error
	argsGot bool

	facts    Facts
	factsErr error
	factsGot bool
}

// holds evaluates a condition. Any error means that it cannot be judged.
func (c *condition) holds(in *inputs) (bool, error) {
	if c.args {
		if _, err := in.arguments(); err != nil {
			return false, err
		}
	}
	if c.run {
		f, err := in.before()
		if err == nil && c.taints && f.NoTaints {
			err = fmt.Errorf("what the session has read is %w", errUnknown)
		}
		if err != nil {
			return false, err
		}
	}
	out, _, err := c.program.Eval(in)
	if err != nil {
		return false, err
	}
	b, ok := out.(types.Bool)
	if !ok {
		return false, fmt.Errorf("it gave %s, not true or false", out.Type().TypeName())
	}
	return bool(b), nil
}

func (in *inputs) arguments() (map[string]any, error) {
	if !in.argsGot {
		in.argsGot = true
		if in.call.Arguments == nil {
			in.argsErr = fmt.Errorf("the arguments are %w", errUnknown)
		} else {
			in.args, in.argsErr = decodeArguments(in.call.Arguments)
			in.value = types.DefaultTypeAdapter.NativeToValue(in.args)
		}
	}
	return in.args, in.argsErr
}

func (in *inputs) before() (Facts, error) {
	if !in.factsGot {
		in.factsGot = true
		if in.call.Facts == nil {
			in.factsErr = fmt.Errorf("what happened before is %w", errUnknown)
		} else {
			in.facts, in.factsErr = in.call.Facts()
		}
	}
	return in.facts, in.factsErr
}

// ResolveName gives the condition the value of a variable.
func (in *inputs) ResolveName(name string) (any, bool) {
	p, c := in.call.Principal, in.call
	switch name {
	case "args":
		return in.value, true
	case "user.id":
		return p.ID, true
	case "user.name":
		return p.Name, true
	case "user.email":
		if p.Kind == auth.KindService {
			return "", true
		}
		return p.Email, true
	case "user.kind":
		return string(p.Kind), true
	case "user.groups":
		return p.Groups, true
	case "tool.name":
		return c.Tool, true
	case "tool.class":
		return string(in.class.Class), true
	case "tool.labels":
		return in.class.Labels.List(), true
	case "server.id":
		return c.Server, true
	case "client":
		return c.Client, true
	case "mode":
		return string(c.Mode), true
	case "run.id":
		return c.Run, true
	case "run.calls":
		return in.facts.Calls, true
	case "run.tool_calls":
		return in.facts.ToolCalls, true
	case "run.taints":
		return in.facts.Taints.List(), true
	}
	return nil, false
}

// Parent is nil: there is nothing besides.
func (in *inputs) Parent() cel.Activation { return nil }
