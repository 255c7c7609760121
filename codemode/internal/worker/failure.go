package worker

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/dop251/goja"

	"github.com/mcp-portal/mcp-portal/codemode/internal/proto"
)

// maxMessage is how much of an error's text goes back, in bytes.
const maxMessage = 4000

// thrown is a value that the script threw.
type thrown struct{ value goja.Value }

func (t *thrown) Error() string { return "uncaught exception" }

// limitError is a stop while the script was waiting.
type limitError struct{ kind, waiting string }

func (l *limitError) Error() string { return l.kind }

// syntaxError is why the code could not be compiled.
type syntaxError struct {
	message      string
	line, column int
}

func (s *syntaxError) Error() string { return s.message }

// adviceError is a mistake of the script that no exception stands for.
type adviceError struct{ message string }

func (a *adviceError) Error() string { return a.message }

// readError is a failure while the returned value was serialised.
type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }
func (e *readError) Unwrap() error { return e.err }

// asError turns a recovered panic into an error.
func asError(p any) error {
	switch x := p.(type) {
	case error:
		return x
	case goja.Value:
		return &thrown{x}
	default:
		return fmt.Errorf("%v", p)
	}
}

// returnedFunctions is not nil when the value is a function, or an object of
// nothing but functions: somebody forgot to call one.
func (r *run) returnedFunctions(v goja.Value) error {
	o, ok := v.(*goja.Object)
	if !ok {
		return nil
	}
	if _, isFunc := goja.AssertFunction(o); isFunc {
		if message := r.absentTools[o]; message != nil {
			return &adviceError{message()}
		}
		return returnedFunction(o)
	}
	var advice error
	err := r.try(func() {
		if _, pending := asPromise(o); pending || o.ClassName() != "Object" || o.Get("toJSON") != nil {
			return
		}
		if _, steps := goja.AssertFunction(o.Get("next")); steps && r.asyncIterator != nil && o.GetSymbol(r.asyncIterator) != nil {
			advice = &adviceError{"the script returned an async generator: collect it first, for await (const x of it) list.push(x)"}
			return
		}
		keys := o.Keys()
		for _, k := range keys[:min(len(keys), 20)] {
			if _, isFunc := goja.AssertFunction(o.Get(k)); !isFunc {
				return
			}
		}
		if len(keys) > 0 {
			advice = &adviceError{fmt.Sprintf("the script returned functions (%s) without calling them: call one and return its result", clip(strings.Join(keys[:min(len(keys), 5)], ", "), 200))}
		}
	})
	if err != nil {
		return nil // writing the value says what it is
	}
	return advice
}

func returnedFunction(o *goja.Object) error {
	name := ""
	if n := o.Get("name"); n != nil && goja.IsString(n) {
		name = n.String()
	}
	if strings.Contains(name, ".") {
		return &adviceError{fmt.Sprintf("the script returned the tool %s without calling it: end with return await %s({…})", name, name)}
	}
	if name == "" {
		return &adviceError{"the script returned a function without calling it: call it, or return its result"}
	}
	return &adviceError{fmt.Sprintf("the script returned the function %s without calling it: end with return await %s()", name, name)}
}

func (r *run) limitText(kind string) string {
	switch kind {
	case kindWall:
		return "the time limit of " + seconds(r.msg.WallMillis) + " was reached"
	case kindCPU:
		return "the processor time limit of " + seconds(r.msg.CPUMillis) + " was reached"
	case kindMemory:
		return fmt.Sprintf("the memory limit of %d MB was reached", r.msg.MemoryMB)
	default:
		return "the limit " + kind + " was reached"
	}
}

func seconds(ms int) string {
	return strconv.FormatFloat(float64(ms)/1000, 'f', -1, 64) + " s"
}

func limitAdvice(kind string) string {
	switch kind {
	case kindMemory:
		return ": keep only the fields you need and work page by page"
	case kindCPU:
		return ": look for an endless loop or a slow regular expression"
	case kindWall:
		return ": do less in one run, and independent calls at once with Promise.all"
	}
	return ""
}

// failure describes how the run failed, in the user's coordinates.
func (r *run) failure(err error) (d proto.DoneMsg) {
	var (
		syntax    *syntaxError
		limit     *limitError
		interrupt *goja.InterruptedError
		overflow  *goja.StackOverflowError
		exception *goja.Exception
		value     *thrown
		advice    *adviceError
	)
	switch {
	case errors.As(err, &syntax):
		d = proto.DoneMsg{Kind: kindSyntax, Name: "SyntaxError", Message: syntax.message + r.syntaxHint(syntax.message), Line: syntax.line, Column: syntax.column}
	case errors.As(err, &limit):
		d = proto.DoneMsg{Kind: limit.kind, Name: "LimitError", Message: r.limitText(limit.kind)}
		if limit.waiting != "" {
			d.Message += " while waiting for " + limit.waiting
		}
		d.Message += limitAdvice(limit.kind)
	case errors.As(err, &interrupt):
		kind, _ := interrupt.Value().(string)
		d = proto.DoneMsg{Kind: kind, Name: "LimitError", Message: r.limitText(kind) + limitAdvice(kind)}
		r.position(&d, interrupt.Stack())
	case errors.As(err, &overflow):
		d = proto.DoneMsg{Kind: kindStack, Name: "RangeError", Message: fmt.Sprintf("too much recursion, the limit is %d calls deep: does the function end for every input?", maxCallStack)}
		r.position(&d, overflow.Stack())
	case errors.As(err, &exception):
		d = r.exception(exception.Value())
		if d.Line == 0 {
			r.position(&d, exception.Stack())
		}
	case errors.As(err, &value):
		d = r.exception(value.value)
	case errors.As(err, &advice):
		d = proto.DoneMsg{Kind: kindException, Name: "TypeError", Message: advice.message}
	case errors.Is(err, errDeadlock):
		d = proto.DoneMsg{Kind: kindDeadlock, Name: "DeadlockError", Message: err.Error() + ": is a resolve() missing?"}
	default:
		d = proto.DoneMsg{Kind: kindEngine, Name: "EngineError", Message: "the script engine failed: " + clip(err.Error(), maxMessage)}
	}
	var reading *readError
	if errors.As(err, &reading) && d.Kind == kindException {
		d.Message = "reading the returned value: " + d.Message
	}
	return d
}

// exception describes a thrown value. Reading it can run script code again.
func (r *run) exception(v goja.Value) (d proto.DoneMsg) {
	d.Kind, d.Name = kindException, "Error"
	err := r.try(func() {
		o, ok := v.(*goja.Object)
		if !ok || o.ClassName() != "Error" {
			w := newWriter(r.vm, maxMessage)
			w.value(v, 0)
			d.Name = "thrown"
			d.Message = "the script threw " + string(w.b)
			if goja.IsString(v) {
				d.Message = "the script threw the text " + string(w.b)
			}
			return
		}
		d.Name = text(o, "name", "Error")
		d.Message = clip(text(o, "message", ""), maxMessage)
		if d.Code = clip(text(o, "code", ""), 80); d.Code == kindCalls && r.spent {
			d.Kind = kindCalls
		}
		d.Message = engineTerms.ReplaceAllString(d.Message, "an object")
		d.Line, d.Column = r.stackPosition(text(o, "stack", ""))
		d.Message += r.nested(o)
		if d.Message == "" {
			d.Message = "the error has no message"
		}
	})
	if err != nil {
		// The text of this error would run the same script code once more.
		d.Message = "the script threw an error whose description fails"
	}
	d.Message = clip(d.Message+r.hint(d.Name, d.Message), maxMessage+500)
	return d
}

// lastFields says what the last answered call gave: code that reads fields
// which are not there was written without having seen them.
func (r *run) lastFields() string {
	if r.lastResult == nil {
		return ""
	}
	what := ""
	if r.try(func() { what = outline(r.lastResult, 3) }) != nil || what == "" {
		return ""
	}
	return fmt.Sprintf("; the last result, of %s, was %s", r.lastLabel, clip(what, 400))
}

// outline names the parts of a value without what is in them.
func outline(v goja.Value, depth int) string {
	o, ok := v.(*goja.Object)
	switch {
	case v == nil || goja.IsUndefined(v) || goja.IsNull(v):
		return "null"
	case goja.IsString(v):
		return "text"
	case goja.IsBigInt(v):
		return "bigint"
	case goja.IsNumber(v):
		return "number"
	case !ok:
		return "boolean"
	case isArray(o):
		n := o.Get("length").ToInteger()
		if n == 0 || depth == 0 {
			return fmt.Sprintf("a list of %d", n)
		}
		return fmt.Sprintf("a list of %d, the first %s", n, outline(o.Get("0"), depth-1))
	}
	keys := o.Keys()
	if depth == 0 || len(keys) == 0 {
		return "{…}"
	}
	var parts []string
	for i, k := range keys {
		if i == 12 {
			parts = append(parts, fmt.Sprintf("%d more", len(keys)-i))
			break
		}
		parts = append(parts, clip(k, 40)+": "+outline(o.Get(k), depth-1))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// nested adds the cause and the parts of an AggregateError.
func (r *run) nested(o *goja.Object) string {
	var parts []string
	if c, ok := o.Get("cause").(*goja.Object); ok && c.ClassName() == "Error" {
		parts = append(parts, "caused by "+clip(text(c, "name", "Error")+": "+text(c, "message", ""), 300))
	}
	if list, ok := o.Get("errors").(*goja.Object); ok && list.ClassName() == "Array" {
		n := list.Get("length").ToInteger()
		for i := int64(0); i < min(n, 3); i++ {
			if e, ok := list.Get(strconv.FormatInt(i, 10)).(*goja.Object); ok {
				parts = append(parts, clip(text(e, "name", "Error")+": "+text(e, "message", ""), 300))
			}
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, "; ") + ")"
}

func text(o *goja.Object, name, fallback string) string {
	v := o.Get(name)
	if v == nil || goja.IsUndefined(v) || goja.IsNull(v) {
		return fallback
	}
	if _, isObject := v.(*goja.Object); isObject {
		return fallback // its toString is script code and says nothing
	}
	return v.String()
}

var (
	// What goja says when a field is not there, or is not what it was taken for.
	aboutAbsence = regexp.MustCompile(`(?i)undefined|null|has no member|not iterable|not a function|convert`)

	// Go's view of a value, with its address, in texts of the engine.
	engineTerms = regexp.MustCompile(`&\{.*\}(?: \(\*goja\.\w+\))?`)

	notDefined = regexp.MustCompile(`^([\w$]+) is not defined$`)
	scriptLine = regexp.MustCompile(`\b` + sourceName + `:(\d+):(\d+)`)
)

// position finds the innermost frame of the user's code.
func (r *run) position(d *proto.DoneMsg, st []goja.StackFrame) {
	for _, f := range st {
		if p := f.Position(); p.Line > 0 && strings.HasSuffix(f.SrcName(), sourceName) {
			d.Line, d.Column = r.userPosition(p.Line, p.Column)
			return
		}
	}
}

// here is where the script is now, as "line:column" in the user's coordinates.
func (r *run) here() string {
	var d proto.DoneMsg
	r.position(&d, r.vm.CaptureCallStack(16, nil))
	if d.Line == 0 {
		return ""
	}
	return fmt.Sprintf("%d:%d", d.Line, d.Column)
}

func (r *run) stackPosition(stack string) (line, column int) {
	m := scriptLine.FindStringSubmatch(stack)
	if m == nil {
		return 0, 0
	}
	line, err1 := strconv.Atoi(m[1])
	column, err2 := strconv.Atoi(m[2])
	if err1 != nil || err2 != nil {
		return 0, 0
	}
	return r.userPosition(line, column)
}

// userPosition takes the wrapper away again.
func (r *run) userPosition(line, column int) (int, int) {
	if r.src == nil {
		return line, column
	}
	if line == 1 {
		column = max(1, column-len(r.src.prefix))
	}
	return min(line, r.src.lines), column
}

// callError is the Error object a failed call rejects with. A rejection has no
// JavaScript frame of its own, so the position of the call is written into it.
func (r *run) callError(p *pendingCall, code, message string) *goja.Object {
	e := r.newError(code, message)
	if line, column, ok := strings.Cut(p.at, ":"); ok {
		n, _ := strconv.Atoi(line)
		c, _ := strconv.Atoi(column)
		if n == 1 && r.src != nil {
			c += len(r.src.prefix) // userPosition takes it away again
		}
		_ = e.Set("stack", fmt.Sprintf("Error: %s\n\tat %s (%s:%d:%d)", clip(message, 500), p.label, sourceName, n, c))
	}
	_ = e.Set("tool", p.label)
	return e
}

// newError makes an Error with a code.
func (r *run) newError(code, message string) *goja.Object {
	e, err := r.vm.New(r.errorClass, r.vm.ToValue(clip(message, maxMessage)))
	if err != nil {
		e = r.vm.NewTypeError(clip(message, maxMessage))
	}
	if code != "" {
		_ = e.Set("code", code)
	}
	return e
}

// rejected is a promise that failed with a code.
func (r *run) rejected(code, message string) goja.Value {
	if code == kindCalls {
		r.spent = true
	}
	p, _, reject := r.vm.NewPromise()
	e := r.newError(code, message)
	if err := reject(e); err != nil {
		panic(err)
	}
	return r.vm.ToValue(p)
}

func (r *run) rejectType(message string) goja.Value {
	p, _, reject := r.vm.NewPromise()
	if err := reject(r.vm.NewTypeError("%s", message)); err != nil {
		panic(err)
	}
	return r.vm.ToValue(p)
}

// rejectWith rejects with what reading the arguments threw; an interrupt goes on.
func (r *run) rejectWith(err error) goja.Value {
	var ex *goja.Exception
	var t *thrown
	p, _, reject := r.vm.NewPromise()
	var reason goja.Value
	switch {
	case errors.As(err, &ex):
		reason = ex.Value()
	case errors.As(err, &t):
		reason = t.value
	default:
		panic(err)
	}
	if err := reject(reason); err != nil {
		panic(err)
	}
	return r.vm.ToValue(p)
}

func oneLine(name, message string, line int) string {
	s := name + ": " + clip(message, 300)
	if line > 0 {
		s += fmt.Sprintf(" (line %d)", line)
	}
	return strings.Join(strings.Fields(s), " ")
}
