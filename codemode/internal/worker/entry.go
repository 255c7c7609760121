package worker

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/file"
	"github.com/dop251/goja/unistring"
)

// entryFinder decides which value a program means and makes the wrapper return
// it. It changes the tree, never the text, so that all positions stay exact.
//
//	only a function expression   → it is called
//	only declarations            → the entry function is called, or the last
//	                               variable is the value
//	ends in an expression        → that is the value
//	export default X             → X, called if it is a function
//	an explicit return           → as written
type entryFinder struct {
	text  string
	entry string // of export default
	has   func(name string) bool
	notes []string
}

func (e *entryFinder) apply(body *ast.BlockStatement) error {
	list := body.List
	if e.entry != "" {
		return e.exported(body)
	}
	if only := single(list); only != nil {
		switch s := only.(type) {
		case *ast.ExpressionStatement:
			if isFunction(s.Expression) {
				body.List = []ast.Statement{returning(e.called(s.Expression))}
				return nil
			}
		case *ast.ReturnStatement:
			if s.Argument != nil && isFunction(s.Argument) {
				s.Argument = e.called(s.Argument)
				return nil
			}
		}
	}
	if onlyDeclarations(list) {
		return e.declared(body)
	}
	e.last(list, false)
	return nil
}

// isDirective recognises "use strict" and its like.
func isDirective(s ast.Statement) bool {
	x, ok := s.(*ast.ExpressionStatement)
	if !ok {
		return false
	}
	l, ok := x.Expression.(*ast.StringLiteral)
	return ok && strings.HasPrefix(l.Value.String(), "use ")
}

func single(list []ast.Statement) ast.Statement {
	var only ast.Statement
	for i, s := range list {
		if _, empty := s.(*ast.EmptyStatement); empty || i == 0 && len(list) > 1 && isDirective(s) {
			continue
		}
		if only != nil {
			return nil
		}
		only = s
	}
	return only
}

func isFunction(x ast.Expression) bool {
	switch x.(type) {
	case *ast.ArrowFunctionLiteral, *ast.FunctionLiteral:
		return true
	}
	return false
}

func returning(x ast.Expression) *ast.ReturnStatement {
	return &ast.ReturnStatement{Return: x.Idx0(), Argument: x}
}

// called makes a call of a function, with what its parameters ask for: models
// write async (codemode) => …, async ({crm}) => … as well as async () => ….
func (e *entryFinder) called(f ast.Expression) ast.Expression {
	var params *ast.ParameterList
	switch x := f.(type) {
	case *ast.ArrowFunctionLiteral:
		params = x.ParameterList
	case *ast.FunctionLiteral:
		params = x.ParameterList
	}
	call := &ast.CallExpression{Callee: f, LeftParenthesis: f.Idx0(), RightParenthesis: f.Idx0()}
	if params == nil {
		return call
	}
	for i, p := range params.List {
		name := "codemode"
		switch t := p.Target.(type) {
		case *ast.Identifier:
			if e.has(t.Name.String()) {
				name = t.Name.String()
			} else if i > 0 || p.Initializer != nil {
				name = "undefined"
			}
		case *ast.ObjectPattern:
			name = "globalThis"
		}
		call.ArgumentList = append(call.ArgumentList, identifier(name, f.Idx0()))
	}
	return call
}

func identifier(name string, idx file.Idx) *ast.Identifier {
	return &ast.Identifier{Name: unistring.NewFromString(name), Idx: idx}
}

func onlyDeclarations(list []ast.Statement) bool {
	found := false
	for i, s := range list {
		if i == 0 && isDirective(s) {
			continue
		}
		switch s.(type) {
		case *ast.FunctionDeclaration, *ast.ClassDeclaration, *ast.LexicalDeclaration, *ast.VariableStatement:
			found = true
		case *ast.EmptyStatement:
		default:
			return false
		}
	}
	return found
}

type declaration struct {
	name string
	fn   ast.Expression // the function it declares; nil for a value
	idx  file.Idx
}

func declarations(list []ast.Statement) []declaration {
	var out []declaration
	bind := func(bs []*ast.Binding) {
		for _, b := range bs {
			id, ok := b.Target.(*ast.Identifier)
			if !ok {
				out = append(out, declaration{idx: b.Idx0()})
				continue
			}
			d := declaration{name: id.Name.String(), idx: b.Idx0()}
			if b.Initializer != nil && isFunction(b.Initializer) {
				d.fn = b.Initializer
			}
			out = append(out, d)
		}
	}
	for _, s := range list {
		switch s := s.(type) {
		case *ast.FunctionDeclaration:
			out = append(out, declaration{name: s.Function.Name.Name.String(), fn: s.Function, idx: s.Idx0()})
		case *ast.LexicalDeclaration:
			bind(s.List)
		case *ast.VariableStatement:
			bind(s.List)
		}
	}
	return out
}

// entryNames are what models call the function that is to be run.
var entryNames = []string{"main", "run", "execute", "handler", "solve", "default_1", "script"}

// declared handles a program that only declares.
func (e *entryFinder) declared(body *ast.BlockStatement) error {
	all := declarations(body.List)
	var fns []declaration
	for _, d := range all {
		if d.fn != nil && e.uses(d.name) == 1 {
			fns = append(fns, d)
		}
	}
	for _, want := range entryNames {
		if i := slices.IndexFunc(fns, func(d declaration) bool { return strings.EqualFold(d.name, want) }); i >= 0 {
			e.callEntry(body, fns[i])
			return nil
		}
	}
	if len(all) > 0 && all[len(all)-1].fn == nil {
		e.lastVariable(body)
		return nil
	}
	switch len(fns) {
	case 1:
		e.callEntry(body, fns[0])
	case 0:
		if len(all) == 1 && all[0].fn != nil { // it calls itself
			e.callEntry(body, all[0])
			return nil
		}
		return &adviceError{"the code only declares things and calls nothing: end with return await yourFunction()"}
	default:
		names := make([]string, len(fns))
		for i, f := range fns {
			names[i] = f.name
		}
		return &adviceError{fmt.Sprintf("the code declares the functions %s and calls none: end with return await %s()", strings.Join(names, ", "), names[len(names)-1])}
	}
	return nil
}

// uses counts how often a name stands in the text.
func (e *entryFinder) uses(name string) int {
	re, err := regexp.Compile(`(?:^|[^\w$.])` + regexp.QuoteMeta(name) + `(?:$|[^\w$])`)
	if err != nil {
		return 0
	}
	return len(re.FindAllStringIndex(e.text, -1))
}

func (e *entryFinder) callEntry(body *ast.BlockStatement, d declaration) {
	call, _ := e.called(d.fn).(*ast.CallExpression)
	call.Callee = identifier(d.name, d.idx)
	body.List = append(body.List, returning(call))
}

// lastVariable makes the last declared variable the value.
func (e *entryFinder) lastVariable(body *ast.BlockStatement) {
	for i := len(body.List) - 1; i >= 0; i-- {
		var list []*ast.Binding
		switch s := body.List[i].(type) {
		case *ast.LexicalDeclaration:
			list = s.List
		case *ast.VariableStatement:
			list = s.List
		default:
			continue
		}
		b := list[len(list)-1]
		names := boundNames(b.Target)
		if len(names) == 0 {
			return
		}
		idx := b.Idx0()
		var value ast.Expression = identifier(names[0], idx)
		if len(names) > 1 {
			o := &ast.ObjectLiteral{LeftBrace: idx, RightBrace: idx}
			for _, n := range names {
				o.Value = append(o.Value, &ast.PropertyShort{Name: *identifier(n, idx)})
			}
			value = o
		}
		e.notes = append(e.notes, "the code ends without return; the value is that of "+strings.Join(names, ", "))
		body.List = append(body.List, &ast.ReturnStatement{Return: idx, Argument: value})
		return
	}
}

func boundNames(t ast.Expression) []string {
	switch t := t.(type) {
	case *ast.Identifier:
		return []string{t.Name.String()}
	case *ast.ObjectPattern:
		var out []string
		for _, p := range t.Properties {
			switch p := p.(type) {
			case *ast.PropertyShort:
				out = append(out, p.Name.Name.String())
			case *ast.PropertyKeyed:
				out = append(out, boundNames(p.Value)...)
			}
		}
		if t.Rest != nil {
			out = append(out, boundNames(t.Rest)...)
		}
		return out
	case *ast.ArrayPattern:
		var out []string
		for _, x := range t.Elements {
			if x != nil {
				out = append(out, boundNames(x)...)
			}
		}
		if t.Rest != nil {
			out = append(out, boundNames(t.Rest)...)
		}
		return out
	case *ast.AssignExpression:
		return boundNames(t.Left)
	}
	return nil
}

// exported handles a module with a default export.
func (e *entryFinder) exported(body *ast.BlockStatement) error {
	for _, d := range declarations(body.List) {
		if d.name != e.entry {
			continue
		}
		if d.fn != nil {
			e.callEntry(body, d)
			return nil
		}
		// export default name
		if init := initializer(body.List, e.entry); init != nil {
			if id, ok := init.(*ast.Identifier); ok {
				for _, o := range declarations(body.List) {
					if o.name == id.Name.String() && o.fn != nil {
						e.callEntry(body, o)
						return nil
					}
				}
			}
		}
		body.List = append(body.List, &ast.ReturnStatement{Return: d.idx, Argument: identifier(d.name, d.idx)})
		return nil
	}
	return &adviceError{fmt.Sprintf("the exported name %s is not declared", e.entry)}
}

func initializer(list []ast.Statement, name string) ast.Expression {
	for _, s := range list {
		l, ok := s.(*ast.LexicalDeclaration)
		if !ok {
			continue
		}
		for _, b := range l.List {
			if id, ok := b.Target.(*ast.Identifier); ok && id.Name.String() == name {
				return b.Initializer
			}
		}
	}
	return nil
}

// last turns the final expression into the value, looking into the blocks that
// can stand at the end. Function declarations after it do not hide it.
func (e *entryFinder) last(list []ast.Statement, inTry bool) {
	for i := len(list) - 1; i >= 0; i-- {
		switch s := list[i].(type) {
		case *ast.EmptyStatement, *ast.FunctionDeclaration, *ast.ClassDeclaration:
			continue
		default:
			list[i] = e.lastStatement(s, inTry)
			return
		}
	}
}

func (e *entryFinder) lastStatement(s ast.Statement, inTry bool) ast.Statement {
	switch s := s.(type) {
	case *ast.ExpressionStatement:
		x := s.Expression
		if inTry { // a catch beside it is meant to see its failure
			x = &ast.AwaitExpression{Await: x.Idx0(), Argument: x}
		}
		return &ast.ReturnStatement{Return: s.Idx0(), Argument: x}
	case *ast.BlockStatement:
		if o := objectOf(s); o != nil {
			return &ast.ReturnStatement{Return: s.LeftBrace, Argument: o}
		}
		e.last(s.List, inTry)
	case *ast.IfStatement:
		s.Consequent = e.lastStatement(s.Consequent, inTry)
		if s.Alternate != nil {
			s.Alternate = e.lastStatement(s.Alternate, inTry)
		}
	case *ast.TryStatement:
		e.last(s.Body.List, true)
		if s.Catch != nil {
			e.last(s.Catch.Body.List, inTry)
		}
	}
	return s
}

// objectOf reads a final block such as {total: n} as the object it looks like.
func objectOf(b *ast.BlockStatement) *ast.ObjectLiteral {
	if len(b.List) != 1 {
		return nil
	}
	o := &ast.ObjectLiteral{LeftBrace: b.LeftBrace, RightBrace: b.RightBrace}
	switch s := b.List[0].(type) {
	case *ast.LabelledStatement:
		x, ok := s.Statement.(*ast.ExpressionStatement)
		if !ok {
			return nil
		}
		values := []ast.Expression{x.Expression}
		if seq, ok := x.Expression.(*ast.SequenceExpression); ok {
			values = seq.Sequence
		}
		o.Value = append(o.Value, &ast.PropertyKeyed{
			Key:  &ast.StringLiteral{Idx: s.Label.Idx, Literal: s.Label.Name.String(), Value: s.Label.Name},
			Kind: ast.PropertyKindValue, Value: values[0],
		})
		return withShorthand(o, values[1:])
	case *ast.ExpressionStatement:
		seq, ok := s.Expression.(*ast.SequenceExpression)
		if !ok {
			return nil
		}
		return withShorthand(o, seq.Sequence)
	}
	return nil
}

func withShorthand(o *ast.ObjectLiteral, names []ast.Expression) *ast.ObjectLiteral {
	for _, n := range names {
		id, ok := n.(*ast.Identifier)
		if !ok {
			return nil
		}
		o.Value = append(o.Value, &ast.PropertyShort{Name: *id})
	}
	return o
}
