package worker

import (
	"fmt"
	"strings"

	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/token"
)

// A tool that does not exist is a function nonetheless: calling it is a
// rejection that names the nearest ones. So the language takes it for something
// that is there wherever a script only asks whether it is:
//
//	if (crm.find), typeof crm.find, crm.find ?? crm.list, crm.find?.({})
//
// Where the program can ask that, the tree is given a question of these names.
const (
	askFeature = "%feature" // of the object: its twin, in which absent tools are undefined
	askAbsent  = "%absent"  // of a variable that holds what such an object gave
	askCalled  = "%called"  // await crm.list: the tool was meant to be called
)

// looksUp tells whether an expression takes a tool from codemode or a server.
func (m *mistakes) looksUp(x ast.Expression) bool {
	switch x := x.(type) {
	case *ast.DotExpression:
		return m.ofTools(x.Left)
	case *ast.BracketExpression:
		return m.ofTools(x.Left)
	case *ast.OptionalChain:
		return m.looksUp(x.Expression)
	case *ast.Optional:
		return m.looksUp(x.Expression)
	case *ast.BinaryExpression:
		return (x.Operator == token.LOGICAL_OR || x.Operator == token.COALESCE) && (m.looksUp(x.Left) || m.looksUp(x.Right))
	case *ast.ConditionalExpression:
		return m.looksUp(x.Consequent) || m.looksUp(x.Alternate)
	}
	return false
}

// feature asks whether there is what an expression takes for granted. The
// object is asked, not the tool, so that a method of the script's own that is
// called this way keeps its this.
func (m *mistakes) feature(x ast.Expression) ast.Expression {
	var twin func(o ast.Expression) ast.Expression
	twin = func(o ast.Expression) ast.Expression {
		at := o
		if opt, ok := o.(*ast.Optional); ok {
			at = opt.Expression
		}
		if hasOptional(at) { // codemode?.crm would leave the chain from inside a call
			switch x := at.(type) {
			case *ast.DotExpression:
				x.Left = twin(x.Left)
			case *ast.BracketExpression:
				x.Left = twin(x.Left)
			}
			return o
		}
		at = asking(askFeature, at, "")
		if opt, ok := o.(*ast.Optional); ok {
			opt.Expression = at
			return opt
		}
		return at
	}
	switch x := x.(type) {
	case *ast.DotExpression:
		if m.ofTools(x.Left) {
			x.Left = twin(x.Left)
		}
	case *ast.BracketExpression:
		if m.ofTools(x.Left) {
			x.Left = twin(x.Left)
		}
	case *ast.OptionalChain:
		x.Expression = m.feature(x.Expression)
	case *ast.Identifier:
		if m.tools[x.Name.String()] {
			return asking(askAbsent, x, "")
		}
	}
	return x
}

func hasOptional(x ast.Expression) bool {
	switch x := x.(type) {
	case *ast.Optional:
		return true
	case *ast.DotExpression:
		return hasOptional(x.Left)
	case *ast.BracketExpression:
		return hasOptional(x.Left)
	}
	return false
}

// maxAbsences is how many tests for absent tools are told at the end.
const maxAbsences = 5

// twinOf gives for codemode or a server the object in which absent tools are
// undefined, and any other value back.
func (r *run) twinOf(v goja.Value) goja.Value {
	o, ok := v.(*goja.Object)
	if !ok || r.spaces[o] == nil {
		return v
	}
	if r.spaces[o].twin == nil {
		n := *r.spaces[o]
		get := n.get
		n.get = func(key string) goja.Value { return r.twinOf(r.present(get(key))) }
		r.spaces[o].twin = r.vm.NewDynamicObject(&n)
	}
	return r.spaces[o].twin
}

// present is undefined for what stands for an absent tool, and says so.
func (r *run) present(v goja.Value) goja.Value {
	o, ok := v.(*goja.Object)
	if !ok || r.absentTools[o] == nil {
		return v
	}
	if r.tested == nil {
		r.tested = map[*goja.Object]bool{}
	}
	if !r.tested[o] && len(r.tested) < maxAbsences {
		r.tested[o] = true
		line, _, _ := strings.Cut(r.here(), ":")
		r.src.notes = append(r.src.notes, fmt.Sprintf("line %s tests for a tool: %s", line, r.absentTools[o]()))
	}
	return goja.Undefined()
}

// uncalled refuses a tool where its answer was meant.
func (r *run) uncalled(c goja.FunctionCall) goja.Value {
	v := c.Argument(0)
	o, ok := v.(*goja.Object)
	if !ok || r.toolTrap == nil || o.Prototype() != r.toolTrap {
		return v
	}
	if message := r.absentTools[o]; message != nil {
		panic(r.vm.NewTypeError("%s", message()))
	}
	name := text(o, "name", "the tool")
	panic(r.vm.NewTypeError("the tool %s was named without being called: write await %s({…})", name, name))
}
