package worker

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/token"
)

// A promise that nobody awaited is always true, equal to nothing and without
// members of its own. The language asks it nothing when it is tested, compared
// or spread, so no trap behind its prototype (see trap) can speak up there.
// Where the program could do that, the tree is given a question: a call of one
// of these globals, whose names no program text can write.
//
//	{...x}, for (k in x)           %members: an error, they would be none
//	if (crm.has())                 %tested: an error, the promise is lost there
//	list.filter(async x => …)      %predicate: an error at the first answer
//	const r = crm.has(); if (r)    %suspect: a hint at the end, unless somebody
//	                               awaited it after all, as caches do
//
// A question costs a call, so it is asked only where a promise can be: of calls
// of tools and of functions that return promises, and of variables that hold
// what those gave.
const (
	askMembers   = "%members"
	askTested    = "%tested"
	askSuspect   = "%suspect"
	askPredicate = "%predicate"
	askMisused   = "%misused"
)

// Ways in which a promise is taken for a value.
const (
	useTested   = "used as a condition, which is always true"
	useCompared = "compared, which is never equal"
	useLooked   = "looked for in a list or asked what it is, which finds nothing"
	useCallback = "callback " // and the method
	useMembers  = "taken for an object, which has no fields"
)

// mistakes asks the questions of one program.
type mistakes struct {
	server  func(name string) bool
	names   map[string]bool // functions and methods that give promises
	holders map[string]bool // variables that may hold a promise nobody awaited
	tools   map[string]bool // variables that may hold a tool, perhaps one that does not exist
	spaces  map[string]bool // variables that may hold codemode or a server
	forEach bool            // forEach is given an async function
}

// question puts the questions into a program.
func (m *mistakes) question(body ast.Node) {
	m.names, m.holders, m.tools, m.spaces = map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	known := func() int { return len(m.names) + len(m.holders) + len(m.tools) + len(m.spaces) }
	for before := -1; before < known(); { // functions that call such functions
		before = known()
		walk(body, m.learn)
	}
	walk(body, m.ask)
}

func (m *mistakes) learn(n ast.Node) {
	name := func(x ast.Expression) string {
		switch k := x.(type) {
		case *ast.Identifier:
			return k.Name.String()
		case *ast.StringLiteral:
			return k.Value.String()
		}
		return ""
	}
	switch x := n.(type) {
	case *ast.FunctionDeclaration:
		if x.Function.Name != nil && m.givesPromises(x.Function) {
			m.names[x.Function.Name.Name.String()] = true
		}
	case *ast.Binding:
		switch to := x.Target.(type) {
		case *ast.Identifier:
			if x.Initializer != nil {
				m.bind(to.Name.String(), x.Initializer)
			}
		case *ast.ObjectPattern: // const { list } = crm
			if x.Initializer != nil && m.ofTools(x.Initializer) {
				m.taken(to)
			}
		}
	case *ast.AssignExpression:
		switch to := x.Left.(type) {
		case *ast.Identifier:
			m.bind(to.Name.String(), x.Right)
		case *ast.DotExpression:
			if m.givesPromises(x.Right) {
				m.names[to.Identifier.Name.String()] = true
			}
		}
	case *ast.PropertyKeyed:
		if m.givesPromises(x.Value) {
			m.names[name(x.Key)] = true
		}
	case *ast.MethodDefinition:
		if m.givesPromises(x.Body) {
			m.names[name(x.Key)] = true
		}
	case *ast.FieldDefinition:
		if x.Initializer != nil && m.givesPromises(x.Initializer) {
			m.names[name(x.Key)] = true
		}
	}
}

func (m *mistakes) bind(name string, value ast.Expression) {
	if m.givesPromises(value) {
		m.names[name] = true
	}
	if m.promise(value) {
		m.holders[name] = true
	}
	if m.looksUp(value) {
		m.tools[name] = true
	}
	if m.ofTools(value) {
		m.spaces[name] = true
	}
}

// taken learns the variables that a pattern takes from codemode or a server.
func (m *mistakes) taken(p *ast.ObjectPattern) {
	for _, prop := range p.Properties {
		switch x := prop.(type) {
		case *ast.PropertyShort:
			m.tools[x.Name.Name.String()] = true
		case *ast.PropertyKeyed:
			if id, ok := x.Value.(*ast.Identifier); ok {
				m.tools[id.Name.String()] = true
			}
		}
	}
}

// givesPromises tells whether an expression is a function that returns promises.
func (m *mistakes) givesPromises(x ast.Expression) bool {
	switch f := x.(type) {
	case *ast.ArrowFunctionLiteral:
		if f.Async {
			return true
		}
		switch b := f.Body.(type) {
		case *ast.ExpressionBody:
			return m.promise(b.Expression)
		case *ast.BlockStatement:
			return m.returnsPromise(b)
		}
	case *ast.FunctionLiteral:
		return f != nil && !f.Generator && (f.Async || m.returnsPromise(f.Body))
	}
	return false
}

func (m *mistakes) returnsPromise(b *ast.BlockStatement) bool {
	if b == nil {
		return false
	}
	for _, s := range b.List {
		if r, ok := s.(*ast.ReturnStatement); ok && r.Argument != nil && m.promise(r.Argument) {
			return true
		}
	}
	return false
}

// promise tells whether an expression may well be a promise that nobody awaited.
func (m *mistakes) promise(x ast.Expression) bool {
	switch x := x.(type) {
	case *ast.BinaryExpression:
		return x.Operator == token.LOGICAL_AND && m.promise(x.Right) || (x.Operator == token.LOGICAL_OR || x.Operator == token.COALESCE) && (m.promise(x.Left) || m.promise(x.Right))
	case *ast.ConditionalExpression:
		return m.promise(x.Consequent) || m.promise(x.Alternate)
	case *ast.Identifier:
		return m.holders[x.Name.String()]
	case *ast.CallExpression:
		return m.call(x)
	case *ast.OptionalChain:
		return m.promise(x.Expression)
	}
	return false
}

// call tells whether a call may well give a promise.
func (m *mistakes) call(c *ast.CallExpression) bool {
	callee := c.Callee
	if o, ok := callee.(*ast.Optional); ok {
		callee = o.Expression
	}
	switch f := callee.(type) {
	case *ast.Identifier:
		return m.names[f.Name.String()] || m.tools[f.Name.String()] || f.Name == "sleep"
	case *ast.DotExpression:
		return m.names[f.Identifier.Name.String()] || m.ofTools(f.Left)
	case *ast.BracketExpression:
		return m.ofTools(f.Left)
	}
	return false
}

// ofTools recognises codemode and the servers.
func (m *mistakes) ofTools(x ast.Expression) bool {
	switch o := x.(type) {
	case *ast.Identifier:
		return o.Name != "console" && m.server(o.Name.String()) || m.spaces[o.Name.String()]
	case *ast.DotExpression: // codemode.crm.list()
		return m.isCodemode(o.Left)
	case *ast.BracketExpression: // codemode[server].list()
		return m.isCodemode(o.Left)
	case *ast.Optional:
		return m.ofTools(o.Expression)
	}
	return false
}

func (m *mistakes) isCodemode(x ast.Expression) bool {
	if o, ok := x.(*ast.Optional); ok {
		x = o.Expression
	}
	id, ok := x.(*ast.Identifier)
	return ok && (id.Name == "codemode" || m.spaces[id.Name.String()])
}

// lookups are methods that compare their argument with what they hold.
var lookups = map[string]bool{"includes": true, "indexOf": true, "has": true, "isArray": true}

// predicates are methods whose callback answers yes or no.
var predicates = map[string]bool{"filter": true, "some": true, "every": true, "find": true, "findIndex": true, "findLast": true, "findLastIndex": true}

// named tells whether an expression names a tool or a function that gives
// promises.
func (m *mistakes) named(x ast.Expression) bool {
	switch f := x.(type) {
	case *ast.Identifier:
		return m.names[f.Name.String()]
	case *ast.DotExpression:
		return m.names[f.Identifier.Name.String()] || m.ofTools(f.Left)
	}
	return false
}

func (m *mistakes) ask(n ast.Node) {
	switch x := n.(type) {
	case *ast.ObjectLiteral:
		for _, p := range x.Value {
			if s, ok := p.(*ast.SpreadElement); ok {
				s.Expression = asking(askMembers, s.Expression, useMembers)
			}
		}
	case *ast.ForInStatement:
		x.Source = asking(askMembers, x.Source, useMembers)
	case *ast.IfStatement:
		x.Test = m.test(x.Test, useTested)
	case *ast.WhileStatement:
		x.Test = m.test(x.Test, useTested)
	case *ast.DoWhileStatement:
		x.Test = m.test(x.Test, useTested)
	case *ast.ForStatement:
		x.Test = m.test(x.Test, useTested)
	case *ast.ConditionalExpression:
		x.Test = m.test(x.Test, useTested)
	case *ast.UnaryExpression:
		switch x.Operator {
		case token.NOT:
			x.Operand = m.test(x.Operand, useTested)
		case token.TYPEOF:
			x.Operand = m.test(x.Operand, useLooked)
		}
	case *ast.AwaitExpression:
		if m.looksUp(x.Argument) {
			x.Argument = asking(askCalled, x.Argument, "")
		}
	case *ast.ExpressionStatement:
		if m.looksUp(x.Expression) {
			x.Expression = asking(askCalled, x.Expression, "")
		}
	case *ast.BinaryExpression:
		switch x.Operator {
		case token.LOGICAL_AND:
			x.Left = m.test(x.Left, useTested)
		case token.LOGICAL_OR, token.COALESCE:
			x.Left = m.feature(x.Left)
		case token.INSTANCEOF:
			if id, ok := x.Right.(*ast.Identifier); !ok || id.Name != "Promise" {
				x.Left = m.test(x.Left, useLooked)
			}
		case token.STRICT_EQUAL, token.STRICT_NOT_EQUAL, token.EQUAL, token.NOT_EQUAL:
			x.Left, x.Right = m.test(x.Left, useCompared), m.test(x.Right, useCompared)
		case token.IN:
			x.Right = m.test(x.Right, useLooked)
		}
	case *ast.SwitchStatement:
		x.Discriminant = m.test(x.Discriminant, useCompared)
	case *ast.CallExpression:
		switch f := x.Callee.(type) {
		case *ast.Optional:
			f.Expression = m.feature(f.Expression)
		case *ast.Identifier:
			if f.Name == "Boolean" && len(x.ArgumentList) == 1 {
				x.ArgumentList[0] = m.test(x.ArgumentList[0], useTested)
			}
		case *ast.DotExpression:
			method := f.Identifier.Name.String()
			if lookups[method] && len(x.ArgumentList) > 0 {
				x.ArgumentList[0] = m.test(x.ArgumentList[0], useLooked)
			}
			if predicates[method] && len(x.ArgumentList) > 0 && (m.givesPromises(x.ArgumentList[0]) || m.named(x.ArgumentList[0])) {
				x.ArgumentList[0] = asking(askPredicate, x.ArgumentList[0], useCallback+method)
			}
			if method == "forEach" && len(x.ArgumentList) > 0 && m.givesPromises(x.ArgumentList[0]) {
				m.forEach = true
			}
		}
	}
}

// test asks about an expression whose value is only looked at.
func (m *mistakes) test(x ast.Expression, use string) ast.Expression {
	switch x := x.(type) {
	case *ast.CallExpression:
		if m.call(x) {
			return asking(askTested, x, use)
		}
	case *ast.Identifier:
		if m.holders[x.Name.String()] {
			return asking(askSuspect, m.feature(x), use)
		}
		return m.feature(x)
	case *ast.DotExpression, *ast.BracketExpression:
		return m.feature(x)
	case *ast.OptionalChain:
		if m.promise(x) {
			return asking(askTested, x, use)
		}
		return m.feature(x)
	case *ast.BinaryExpression:
		switch x.Operator {
		case token.LOGICAL_AND, token.LOGICAL_OR, token.COALESCE:
			x.Left, x.Right = m.test(x.Left, use), m.test(x.Right, use)
		}
	case *ast.ConditionalExpression:
		x.Consequent, x.Alternate = m.test(x.Consequent, use), m.test(x.Alternate, use)
	}
	return x
}

func asking(question string, x ast.Expression, use string) ast.Expression {
	idx := x.Idx0()
	return &ast.CallExpression{
		Callee:          identifier(question, idx),
		LeftParenthesis: idx, RightParenthesis: x.Idx1(),
		ArgumentList: []ast.Expression{x, &ast.StringLiteral{Idx: idx, Literal: use, Value: identifier(use, idx).Name}},
	}
}

// suspect is a promise that was taken for a value while nobody had awaited it.
type suspect struct {
	object *goja.Object
	at     string // "line:column"
	use    string
}

// maxSuspects is how many are remembered; a loop could make any number.
const maxSuspects = 20

// installQuestions gives the questions their answers.
func (r *run) installQuestions() error {
	global := r.vm.GlobalObject()
	refuse := func(c goja.FunctionCall) goja.Value {
		if o, _ := promiseIn(c.Argument(0)); o != nil {
			panic(r.vm.NewTypeError("%s", r.mistaken(o, c.Argument(1).String())))
		}
		return c.Argument(0)
	}
	for name, f := range map[string]func(goja.FunctionCall) goja.Value{
		askMembers:   refuse,
		askTested:    refuse,
		askMisused:   refuse,
		askFeature:   func(c goja.FunctionCall) goja.Value { return r.twinOf(c.Argument(0)) },
		askAbsent:    func(c goja.FunctionCall) goja.Value { return r.present(c.Argument(0)) },
		askCalled:    r.uncalled,
		askPredicate: r.predicate,
		askSuspect: func(c goja.FunctionCall) goja.Value {
			if o, p := promiseIn(c.Argument(0)); o != nil && !awaited(p) && len(r.suspects) < maxSuspects {
				r.suspects = append(r.suspects, suspect{o, r.here(), c.Argument(1).String()})
			}
			return c.Argument(0)
		},
	} {
		if err := global.DefineDataProperty(name, r.function(name, f), goja.FLAG_FALSE, goja.FLAG_FALSE, goja.FLAG_FALSE); err != nil {
			return fmt.Errorf("install %s: %w", name, err)
		}
	}
	return nil
}

// predicate wraps a callback whose answers are only looked at.
func (r *run) predicate(c goja.FunctionCall) goja.Value {
	f, ok := goja.AssertFunction(c.Argument(0))
	if !ok {
		return c.Argument(0)
	}
	use := c.Argument(1).String() // arguments are gone when this returns
	return r.function("", func(in goja.FunctionCall) goja.Value {
		list, ofList := in.Argument(2).(*goja.Object)
		v, err := f(in.This, in.Arguments...)
		if err != nil {
			panic(err)
		}
		if o, _ := promiseIn(v); o != nil && ofList && isArray(list) { // else the method is the script's own
			panic(r.vm.NewTypeError("%s", r.mistaken(o, use)))
		}
		return v
	})
}

func promiseIn(v goja.Value) (*goja.Object, *goja.Promise) {
	if o, ok := v.(*goja.Object); ok {
		if p, ok := asPromise(o); ok {
			return o, p
		}
	}
	return nil, nil
}

func (r *run) mistaken(o *goja.Object, use string) string {
	label := r.promised[o]
	if method, ok := strings.CutPrefix(use, useCallback); ok {
		of := ""
		if label != "" {
			of = " (of " + label + ")"
		}
		return fmt.Sprintf("the callback of %s gave a promise%s, which counts as true, since %s does not wait: first const keep = await Promise.all(list.map(f)), then %s((x, i) => keep[i])", method, of, method, method)
	}
	if label == "" {
		return fmt.Sprintf("a promise was %s: await it first", use)
	}
	return fmt.Sprintf("the promise of %s was %s: an await is missing, write await %s", label, use, called(label))
}

// awaited tells whether anything was ever attached to a promise. goja keeps that
// to itself; a test of this package fails should it rename it.
func awaited(p *goja.Promise) bool {
	return reflect.ValueOf(p).Elem().FieldByName("handled").Bool()
}

// explainUnawaited names the promises that nobody awaited although something
// was done with them, and the answers that nobody looked at.
func (r *run) explainUnawaited(w *writer) {
	said := map[*goja.Object]bool{}
	inValue := func(p *goja.Promise) bool { return w.promises[p] }
	for _, s := range r.suspects {
		p, ok := asPromise(s.object)
		if !ok || awaited(p) || inValue(p) || said[s.object] {
			continue
		}
		said[s.object] = true
		line, _, _ := strings.Cut(s.at, ":")
		r.note("line %s: %s", line, r.mistaken(s.object, s.use))
	}
	lost := 0
	for _, c := range r.sent {
		p, ok := asPromise(c.promise)
		if !ok || said[c.promise] || p.State() != goja.PromiseStateFulfilled || awaited(p) || inValue(p) {
			continue
		}
		if lost++; lost > 3 {
			continue
		}
		line, _, _ := strings.Cut(c.at, ":")
		r.note("the answer of %s (line %s) was never awaited, so nothing was done with it: write await %s", c.label, line, called(c.label))
	}
	if lost > 3 {
		r.note("%d more answers were never awaited", lost-3)
	}
}
