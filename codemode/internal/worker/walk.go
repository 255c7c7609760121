package worker

import "github.com/dop251/goja/ast"

// walk calls visit for each node below n and n itself, outer ones first. visit
// may replace what a node holds: it is asked for before its parts are.
func walk(n ast.Node, visit func(ast.Node)) {
	switch x := n.(type) { // typed: nil pointers must not look like nodes
	case nil:
		return
	case *ast.BlockStatement:
		if x == nil {
			return
		}
	case *ast.FunctionLiteral:
		if x == nil {
			return
		}
	case *ast.CatchStatement:
		if x == nil {
			return
		}
	}
	visit(n)
	one := func(x ast.Node) { walk(x, visit) }
	expressions := func(list []ast.Expression) {
		for _, x := range list {
			if x != nil {
				walk(x, visit)
			}
		}
	}
	statements := func(list []ast.Statement) {
		for _, x := range list {
			walk(x, visit)
		}
	}
	bindings := func(list []*ast.Binding) {
		for _, b := range list {
			walk(b, visit)
		}
	}
	properties := func(list []ast.Property) {
		for _, p := range list {
			walk(p, visit)
		}
	}
	parameters := func(p *ast.ParameterList) {
		if p != nil {
			bindings(p.List)
			one(p.Rest)
		}
	}
	switch x := n.(type) {
	case *ast.YieldExpression:
		one(x.Argument)
	case *ast.AwaitExpression:
		one(x.Argument)
	case *ast.ArrayLiteral:
		expressions(x.Value)
	case *ast.ArrayPattern:
		expressions(x.Elements)
		one(x.Rest)
	case *ast.AssignExpression:
		one(x.Left)
		one(x.Right)
	case *ast.BinaryExpression:
		one(x.Left)
		one(x.Right)
	case *ast.BracketExpression:
		one(x.Left)
		one(x.Member)
	case *ast.CallExpression:
		one(x.Callee)
		expressions(x.ArgumentList)
	case *ast.ConditionalExpression:
		one(x.Test)
		one(x.Consequent)
		one(x.Alternate)
	case *ast.DotExpression:
		one(x.Left)
	case *ast.PrivateDotExpression:
		one(x.Left)
	case *ast.OptionalChain:
		one(x.Expression)
	case *ast.Optional:
		one(x.Expression)
	case *ast.SpreadElement:
		one(x.Expression)
	case *ast.FunctionLiteral:
		parameters(x.ParameterList)
		one(x.Body)
	case *ast.ArrowFunctionLiteral:
		parameters(x.ParameterList)
		one(x.Body)
	case *ast.ExpressionBody:
		one(x.Expression)
	case *ast.ClassLiteral:
		one(x.SuperClass)
		for _, e := range x.Body {
			one(e)
		}
	case *ast.FieldDefinition:
		one(x.Key)
		one(x.Initializer)
	case *ast.MethodDefinition:
		one(x.Key)
		one(x.Body)
	case *ast.ClassStaticBlock:
		one(x.Block)
	case *ast.NewExpression:
		one(x.Callee)
		expressions(x.ArgumentList)
	case *ast.ObjectLiteral:
		properties(x.Value)
	case *ast.ObjectPattern:
		properties(x.Properties)
		one(x.Rest)
	case *ast.PropertyShort:
		one(x.Initializer)
	case *ast.PropertyKeyed:
		one(x.Key)
		one(x.Value)
	case *ast.SequenceExpression:
		expressions(x.Sequence)
	case *ast.TemplateLiteral:
		one(x.Tag)
		expressions(x.Expressions)
	case *ast.UnaryExpression:
		one(x.Operand)
	case *ast.Binding:
		one(x.Target)
		one(x.Initializer)

	case *ast.BlockStatement:
		statements(x.List)
	case *ast.CaseStatement:
		one(x.Test)
		statements(x.Consequent)
	case *ast.CatchStatement:
		one(x.Body)
	case *ast.DoWhileStatement:
		one(x.Body)
		one(x.Test)
	case *ast.ExpressionStatement:
		one(x.Expression)
	case *ast.ForInStatement:
		one(x.Source)
		one(x.Body)
	case *ast.ForOfStatement:
		one(x.Source)
		one(x.Body)
	case *ast.ForStatement:
		switch i := x.Initializer.(type) {
		case *ast.ForLoopInitializerExpression:
			one(i.Expression)
		case *ast.ForLoopInitializerVarDeclList:
			bindings(i.List)
		case *ast.ForLoopInitializerLexicalDecl:
			bindings(i.LexicalDeclaration.List)
		}
		one(x.Test)
		one(x.Update)
		one(x.Body)
	case *ast.IfStatement:
		one(x.Test)
		one(x.Consequent)
		one(x.Alternate)
	case *ast.LabelledStatement:
		one(x.Statement)
	case *ast.ReturnStatement:
		one(x.Argument)
	case *ast.SwitchStatement:
		one(x.Discriminant)
		for _, c := range x.Body {
			one(c)
		}
	case *ast.ThrowStatement:
		one(x.Argument)
	case *ast.TryStatement:
		one(x.Body)
		one(x.Catch)
		one(x.Finally)
	case *ast.VariableStatement:
		bindings(x.List)
	case *ast.LexicalDeclaration:
		bindings(x.List)
	case *ast.WhileStatement:
		one(x.Test)
		one(x.Body)
	case *ast.WithStatement:
		one(x.Object)
		one(x.Body)
	case *ast.FunctionDeclaration:
		one(x.Function)
	case *ast.ClassDeclaration:
		one(x.Class)
	}
}
