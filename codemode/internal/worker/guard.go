package worker

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/file"
	"github.com/dop251/goja/token"
)

// In a guarded run answers of planned calls are stood in for. A stand-in notices
// most of what is done with it, since it is a Proxy; what a Proxy cannot notice
// (a test for truth, ===, typeof, ??, ?., switch, …) is made to ask first: the
// guard puts a call of lookName around what is tested. Code for which that is not
// possible is not run guarded at all.

// lookName is the function that a guarded script calls with what it tests. It
// gives the value back, or does not return.
const lookName = "$portal$look"

// errUnguarded says that code cannot be guarded.
var errUnguarded = errors.New("the code cannot be guarded")

type guard struct {
	seen   map[any]bool
	failed error
}

// guarded changes a program so that every test asks first.
func guarded(prg *ast.Program, text string) error {
	if strings.Contains(text, lookName) {
		return fmt.Errorf("%w: it uses the name %s", errUnguarded, lookName)
	}
	g := &guard{seen: map[any]bool{}}
	for _, s := range prg.Body {
		g.walk(reflect.ValueOf(s))
	}
	return g.failed
}

func (g *guard) fail(what string) {
	if g.failed == nil {
		g.failed = fmt.Errorf("%w: %s", errUnguarded, what)
	}
}

var nodeType = reflect.TypeFor[ast.Node]()

// walk visits all nodes below v, inner ones first. Reflection makes sure that
// none is left out, whatever the parser makes of the code.
func (g *guard) walk(v reflect.Value) {
	switch v.Kind() {
	case reflect.Interface:
		if !v.IsNil() {
			g.walk(v.Elem())
		}
	case reflect.Pointer:
		if v.IsNil() || v.Type().Elem().Kind() != reflect.Struct || v.Type() == reflect.TypeFor[*file.File]() || g.seen[v.Interface()] {
			return
		}
		g.seen[v.Interface()] = true
		g.walk(v.Elem())
		if v.Type().Implements(nodeType) {
			g.node(v.Interface())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				g.walk(f)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			g.walk(v.Index(i))
		}
	}
}

// look puts the question around an expression, unless that is never a stand-in.
func look(x ast.Expression) ast.Expression {
	switch e := x.(type) {
	case nil:
		return nil
	case *ast.BooleanLiteral, *ast.NullLiteral, *ast.NumberLiteral, *ast.StringLiteral, *ast.RegExpLiteral, *ast.ArrayLiteral, *ast.ObjectLiteral,
		*ast.FunctionLiteral, *ast.ArrowFunctionLiteral, *ast.ClassLiteral, *ast.SuperExpression:
		return x
	case *ast.UnaryExpression:
		return x // each gives a value of its own
	case *ast.BinaryExpression:
		switch e.Operator {
		case token.LOGICAL_AND, token.LOGICAL_OR, token.COALESCE:
		default:
			return x
		}
	case *ast.TemplateLiteral:
		if e.Tag == nil {
			return x
		}
	}
	return &ast.CallExpression{Callee: identifier(lookName, x.Idx0()), LeftParenthesis: x.Idx0(), ArgumentList: []ast.Expression{x}, RightParenthesis: x.Idx1()}
}

func lookStatement(name ast.Identifier) ast.Statement {
	return &ast.ExpressionStatement{Expression: look(&ast.Identifier{Name: name.Name, Idx: name.Idx})}
}

func (g *guard) node(n any) {
	switch n := n.(type) {
	case *ast.IfStatement:
		n.Test = look(n.Test)
	case *ast.WhileStatement:
		n.Test = look(n.Test)
	case *ast.DoWhileStatement:
		n.Test = look(n.Test)
	case *ast.ForStatement:
		n.Test = look(n.Test)
	case *ast.ForInStatement:
		n.Source = look(n.Source)
	case *ast.ForOfStatement:
		n.Source = look(n.Source)
	case *ast.SwitchStatement:
		n.Discriminant = look(n.Discriminant)
	case *ast.CaseStatement:
		n.Test = look(n.Test)
	case *ast.WithStatement:
		g.fail("with")
	case *ast.ConditionalExpression:
		n.Test = look(n.Test)
	case *ast.UnaryExpression:
		g.unary(n)
	case *ast.BinaryExpression:
		switch n.Operator {
		case token.LOGICAL_AND, token.LOGICAL_OR, token.COALESCE, token.INSTANCEOF:
			n.Left = look(n.Left)
		case token.EQUAL, token.NOT_EQUAL, token.STRICT_EQUAL, token.STRICT_NOT_EQUAL:
			n.Left, n.Right = look(n.Left), look(n.Right)
		case token.IN:
			n.Right = look(n.Right)
		}
	case *ast.AssignExpression:
		switch n.Operator {
		case token.LOGICAL_AND, token.LOGICAL_OR, token.COALESCE:
			g.fail("an assignment that tests")
		}
	case *ast.DotExpression:
		if o, ok := n.Left.(*ast.Optional); ok {
			o.Expression = look(o.Expression)
		}
		if n.Identifier.Name.String() == "then" {
			n.Left = look(n.Left)
		}
	case *ast.BracketExpression:
		if o, ok := n.Left.(*ast.Optional); ok {
			o.Expression = look(o.Expression)
		}
		switch m := n.Member.(type) {
		case *ast.NumberLiteral:
		case *ast.StringLiteral:
			if m.Value.String() == "then" {
				n.Left = look(n.Left)
			}
		default: // it might be "then"
			if _, optional := n.Left.(*ast.Optional); !optional {
				n.Left = look(n.Left)
			}
		}
	case *ast.PrivateDotExpression:
		if o, ok := n.Left.(*ast.Optional); ok {
			o.Expression = look(o.Expression)
		}
	case *ast.SpreadElement:
		n.Expression = look(n.Expression)
	case *ast.YieldExpression:
		if n.Delegate {
			n.Argument = look(n.Argument)
		}
	case *ast.ClassLiteral:
		n.SuperClass = look(n.SuperClass)
	case *ast.MethodDefinition:
		if k, ok := n.Key.(*ast.StringLiteral); ok && k.Value.String() == "constructor" {
			g.constructor(n.Body)
		}
	case *ast.PropertyKeyed:
		if k, ok := n.Key.(*ast.StringLiteral); ok && k.Value.String() == "__proto__" {
			n.Value = look(n.Value)
		}
	case *ast.ObjectPattern:
		g.pattern(n)
	case *ast.ArrayPattern:
		g.pattern(n)
	case *ast.FunctionLiteral:
		n.Body.List = afterDirectives(n.Body.List, g.parameters(n.ParameterList))
	case *ast.ArrowFunctionLiteral:
		if tests := g.parameters(n.ParameterList); len(tests) > 0 {
			switch b := n.Body.(type) {
			case *ast.BlockStatement:
				b.List = afterDirectives(b.List, tests)
			case *ast.ExpressionBody:
				ret := &ast.ReturnStatement{Return: b.Expression.Idx0(), Argument: b.Expression}
				n.Body = &ast.BlockStatement{LeftBrace: b.Idx0(), List: append(tests, ret), RightBrace: b.Expression.Idx1()}
			}
		}
	}
}

// unary guards ! and typeof. typeof of a name that does not exist must not fail.
func (g *guard) unary(n *ast.UnaryExpression) {
	switch n.Operator {
	case token.NOT:
		n.Operand = look(n.Operand)
	case token.TYPEOF:
		id, ok := n.Operand.(*ast.Identifier)
		if !ok {
			n.Operand = look(n.Operand)
			return
		}
		// typeof (typeof x === "undefined" ? undefined : look(x))
		plain := &ast.UnaryExpression{Operator: token.TYPEOF, Idx: n.Idx, Operand: &ast.Identifier{Name: id.Name, Idx: id.Idx}}
		absent := &ast.BinaryExpression{Operator: token.STRICT_EQUAL, Left: plain, Comparison: true,
			Right: &ast.StringLiteral{Idx: id.Idx, Literal: `"undefined"`, Value: "undefined"}}
		n.Operand = &ast.ConditionalExpression{Test: absent, Consequent: &ast.UnaryExpression{Operator: token.VOID, Idx: id.Idx, Operand: &ast.NumberLiteral{Idx: id.Idx, Literal: "0", Value: int64(0)}}, Alternate: look(id)}
	}
}

// constructor guards what a constructor returns: an object replaces the new one.
func (g *guard) constructor(f *ast.FunctionLiteral) {
	if returns(reflect.ValueOf(f.Body)) {
		g.fail("a constructor that returns a value")
	}
}

func returns(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Interface:
		return !v.IsNil() && returns(v.Elem())
	case reflect.Pointer:
		if v.IsNil() {
			return false
		}
		switch n := v.Interface().(type) {
		case *ast.ReturnStatement:
			return n.Argument != nil
		case *ast.FunctionLiteral, *ast.ArrowFunctionLiteral, *ast.ClassLiteral, *file.File:
			return false
		}
		return v.Elem().Kind() == reflect.Struct && returns(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && returns(v.Field(i)) {
				return true
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if returns(v.Index(i)) {
				return true
			}
		}
	}
	return false
}

// parameters are the tests of those with a default, which is a test itself: of
// a value for being undefined.
func (g *guard) parameters(list *ast.ParameterList) (tests []ast.Statement) {
	if list == nil {
		return nil
	}
	for _, p := range list.List {
		if p.Initializer == nil {
			continue
		}
		id, ok := p.Target.(*ast.Identifier)
		if !ok {
			if isEmptyLiteral(p.Initializer) { // ({a, b} = {}): what is taken apart is noticed
				continue
			}
			g.fail("a parameter with a pattern and a default")
			return nil
		}
		tests = append(tests, lookStatement(*id))
	}
	return tests
}

// afterDirectives puts tests at the beginning of a body.
func afterDirectives(body, tests []ast.Statement) []ast.Statement {
	i := 0
	for i < len(body) && isDirective(body[i]) {
		i++
	}
	return slices.Insert(slices.Clone(body), i, tests...)
}

func isEmptyLiteral(x ast.Expression) bool {
	o, ok := x.(*ast.ObjectLiteral)
	return ok && len(o.Value) == 0
}

// pattern refuses defaults inside patterns: they test what nobody can ask about
// before, and names that a promise would have.
func (g *guard) pattern(p ast.Node) {
	check := func(x ast.Expression) {
		if a, ok := x.(*ast.AssignExpression); ok && a != nil {
			g.fail("a default in a pattern")
		}
	}
	switch p := p.(type) {
	case *ast.ObjectPattern:
		for _, prop := range p.Properties {
			switch prop := prop.(type) {
			case *ast.PropertyShort:
				if prop.Initializer != nil {
					g.fail("a default in a pattern")
				}
				if prop.Name.Name.String() == "then" {
					g.fail("a pattern with then")
				}
			case *ast.PropertyKeyed:
				check(prop.Value)
				if k, ok := prop.Key.(*ast.StringLiteral); !ok || prop.Computed || k.Value.String() == "then" {
					g.fail("a pattern with a computed name")
				}
			}
		}
	case *ast.ArrayPattern:
		for _, x := range p.Elements {
			if x != nil {
				check(x)
			}
		}
	}
}
