package worker

import (
	"errors"
	"regexp"
	"strings"

	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/parser"
	"github.com/evanw/esbuild/pkg/api"
)

// The code runs as the body of an async function, so that await and return work
// at its top level. The wrapper shares the first line: no line number changes.
const (
	bodyPrefix = "(async()=>{"
	bodySuffix = "\n})()"
	exprPrefix = "(async()=>{return ("
	exprSuffix = "\n)\n})()"
)

// typeArguments finds f<T>(x), which is valid JavaScript for two comparisons.
var typeArguments = regexp.MustCompile(`[\w$)\]]\s*<[^;={}()]{1,200}>\s*\(`)

var expressionStart = regexp.MustCompile(`^(?:\s|//[^\n]*\n|/\*(?s:.*?)\*/)*(?:\{|(?:async\s+)?function\b\s*\*?\s*\()`)

// compile finds the program in what the model sent. goja alone is tried first:
// it takes most code at a tenth of the cost and with exact positions.
func (r *run) compile() (*goja.Program, error) {
	r.src = newSource(r.msg.Code)
	if strings.TrimSpace(r.src.text) == "" {
		return nil, &syntaxError{message: "the code is empty: " + speaks}
	}
	if r.src.fencedForSure() {
		if _, err := r.src.unfence(); err != nil {
			return nil, err
		}
	}
	if err := r.src.refuse(); err != nil {
		return nil, err
	}
	entry, _ := r.src.commonJS()
	prg, err := r.program(entry)
	if err == nil {
		return prg, nil
	}
	// It does not compile as it is. What else could it be?
	whole := *r.src
	if ok, fenceErr := r.src.unfence(); ok {
		if fenceErr != nil {
			return nil, fenceErr
		}
		prg, err = r.program("")
		if err == nil {
			return prg, nil
		}
	}
	if entry, changed := r.src.unexport(); changed {
		if prg, err2 := r.program(entry); err2 == nil {
			return prg, nil
		} else {
			err = err2
		}
	}
	var advice *adviceError
	if errors.As(err, &advice) {
		return nil, err
	}
	if other := otherLanguage(r.src.text); other != nil {
		return nil, other
	}
	if imp := imported(r.src.text); imp != nil {
		return nil, imp
	}
	if jsx.MatchString(r.src.text) {
		return nil, &syntaxError{message: "JSX is not available: there is nothing to render to; return data", line: r.src.lineOf(jsx)}
	}
	if len(fences(whole.text)) == 0 && looksLikeProse(whole.text) {
		return nil, &syntaxError{message: "this is text, not code: " + speaks, line: 1}
	}
	for _, other := range mangled(r.src.text) {
		r.src.set(other.text)
		if prg, err := r.program(""); err == nil {
			r.src.notes = append(r.src.notes, other.note)
			return prg, nil
		}
	}
	r.src.set(whole.text)
	return nil, err
}

// program compiles the current source. entry names the function or value that
// the module exports as default.
func (r *run) program(entry string) (*goja.Program, error) {
	text := r.src.text
	if expressionStart.MatchString(text) && entry == "" {
		// {a: 1} is a block to the language and an object to whoever wrote it.
		if prg := r.expression(text); prg != nil {
			return prg, nil
		}
	}
	r.src.prefix = bodyPrefix
	if !typeArguments.MatchString(text) && !strings.Contains(text, `\p{`) {
		if prg, err := goja.Parse(sourceName, bodyPrefix+text+bodySuffix, parser.WithDisableSourceMaps); err == nil {
			if body := wrapped(prg, len(bodyPrefix+text+bodySuffix)); body != nil {
				out, err := r.finishProgram(prg, body, entry)
				// The compiler refuses what the parser knows: async generators.
				if err == nil || !strings.Contains(err.Error(), "not supported") {
					return out, err
				}
			}
		}
	}
	return r.transformed(text, entry)
}

func (r *run) expression(text string) *goja.Program {
	text = strings.TrimRight(text, "; \t\r\n")
	full := exprPrefix + text + exprSuffix
	prg, err := goja.Parse(sourceName, full, parser.WithDisableSourceMaps)
	if err != nil {
		return nil
	}
	body := wrapped(prg, len(full))
	if body == nil || len(body.List) != 1 {
		return nil
	}
	ret, ok := body.List[0].(*ast.ReturnStatement)
	if !ok {
		return nil
	}
	switch ret.Argument.(type) {
	case *ast.ObjectLiteral, *ast.FunctionLiteral:
	default:
		return nil
	}
	r.src.prefix = exprPrefix
	out, err := r.finishProgram(prg, body, "")
	if err != nil {
		return nil
	}
	return out
}

// wrapped returns the body of the wrapper if the program is the wrapper and
// nothing else: text that closes it early would otherwise run beside it.
func wrapped(prg *ast.Program, size int) *ast.BlockStatement {
	if len(prg.Body) == 0 {
		return nil
	}
	for _, s := range prg.Body[:len(prg.Body)-1] {
		if !isHelper(s) {
			return nil
		}
	}
	st, ok := prg.Body[len(prg.Body)-1].(*ast.ExpressionStatement)
	if !ok {
		return nil
	}
	call, ok := st.Expression.(*ast.CallExpression)
	if !ok || len(call.ArgumentList) != 0 {
		return nil
	}
	arrow, ok := call.Callee.(*ast.ArrowFunctionLiteral)
	if !ok || !arrow.Async || len(arrow.ParameterList.List) != 0 {
		return nil
	}
	if size > 0 && int(call.RightParenthesis) < size-1 {
		return nil
	}
	body, _ := arrow.Body.(*ast.BlockStatement)
	return body
}

// isHelper recognises the functions that esbuild puts before the program.
func isHelper(s ast.Statement) bool {
	v, ok := s.(*ast.VariableStatement)
	if !ok {
		return false
	}
	for _, b := range v.List {
		id, ok := b.Target.(*ast.Identifier)
		if !ok || !strings.HasPrefix(id.Name.String(), "__") {
			return false
		}
	}
	return true
}

func (r *run) finishProgram(prg *ast.Program, body *ast.BlockStatement, entry string) (*goja.Program, error) {
	e := &entryFinder{text: r.src.text, entry: entry, has: r.knows}
	if err := e.apply(body); err != nil {
		return nil, err
	}
	r.reads = readFields(body)
	m := &mistakes{server: r.knows}
	m.question(body)
	r.forEach = m.forEach
	if r.msg.Marker != "" {
		if err := guarded(prg, r.src.text); err != nil {
			return nil, err
		}
	}
	out, err := goja.CompileAST(prg, false)
	if err != nil {
		return nil, r.compileError(err)
	}
	r.src.notes = e.notes
	return out, nil
}

// knows tells whether a name is one of the script's globals.
func (r *run) knows(name string) bool {
	return name == "codemode" || name == "console" || r.names.servers[name] != nil
}

func (r *run) compileError(err error) error {
	s := &syntaxError{message: err.Error()}
	var c *goja.CompilerSyntaxError
	if errors.As(err, &c) && c.File != nil {
		p := c.File.Position(c.Offset)
		s.message = c.Message
		s.line, s.column = r.userPosition(p.Line, p.Column)
	}
	return s
}

// features esbuild must rewrite because goja lacks them.
var features = map[string]bool{
	"async-generator": false, "for-await": false, "using": false, "decorators": false,
	"regexp-unicode-property-escapes": false, "top-level-await": true,
}

func transform(text string) api.TransformResult {
	return api.Transform(text, api.TransformOptions{
		Loader: api.LoaderTS, Target: api.ES2022, Supported: features, Sourcefile: sourceName,
		Sourcemap: api.SourceMapExternal, SourcesContent: api.SourcesContentExclude, LogLevel: api.LogLevelSilent,
		TsconfigRaw: `{"compilerOptions":{"verbatimModuleSyntax":true}}`,
	})
}

func (r *run) transformed(text, entry string) (*goja.Program, error) {
	r.src.prefix = bodyPrefix
	tr := transform(bodyPrefix + text + bodySuffix)
	if len(tr.Errors) > 0 {
		return nil, r.transformError(tr.Errors[0])
	}
	prg, err := goja.Parse(sourceName, string(tr.Code)+"\n//# sourceMappingURL=map", parser.WithSourceMapLoader(func(string) ([]byte, error) { return tr.Map, nil }))
	if err != nil {
		s := &syntaxError{message: "the engine does not support this syntax: " + clip(err.Error(), 300)}
		var list parser.ErrorList
		if errors.As(err, &list) && len(list) > 0 {
			s.message = "the engine does not support this syntax: " + list[0].Message
			s.line, s.column = r.userPosition(list[0].Position.Line, list[0].Position.Column)
		}
		return nil, s
	}
	body := wrapped(prg, 0)
	if body == nil {
		return nil, r.unbalanced(text)
	}
	return r.finishProgram(prg, body, entry)
}

func (r *run) transformError(m api.Message) error {
	s := &syntaxError{message: m.Text}
	if m.Location == nil {
		return s
	}
	s.line, s.column = m.Location.Line, m.Location.Column+1
	if s.line > r.src.lines {
		// The place is the wrapper's: the code ended too early.
		s.line, s.column = r.src.lines, 0
		s.message = "unexpected end of the code (is a closing bracket or quote missing?): " + m.Text
		return s
	}
	if s.line == 1 {
		s.column = max(1, s.column-len(r.src.prefix))
	}
	if line := strings.TrimSpace(clip(m.Location.LineText, 200)); line != "" {
		s.message += " in: " + clip(strings.TrimPrefix(line, bodyPrefix), 120)
	}
	return s
}

// unbalanced reports code that closes the wrapper: it holds a bracket too many.
func (r *run) unbalanced(text string) error {
	s := &syntaxError{message: "a closing bracket has no opening one"}
	if tr := transform(text); len(tr.Errors) > 0 && tr.Errors[0].Location != nil {
		s.line, s.column = tr.Errors[0].Location.Line, tr.Errors[0].Location.Column+1
	}
	return s
}
