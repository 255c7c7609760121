package worker

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dop251/goja"

	"github.com/mcp-portal/mcp-portal/codemode/internal/proto"
)

const (
	maxTimers  = 10_000
	maxLogItem = 8 << 10 // bytes of one printed value
	notePrefix = "[portal] "
	noteRoom   = 2 << 10 // bytes of notes kept beyond the script's own budget
)

// timer is a setTimeout or sleep under way. The gateway waits and answers, so
// that a script learns of all that happens in one order, which a replay can
// repeat.
type timer struct {
	id   int64 // as the script knows it
	fire func() (goja.Value, error)
	loud bool // that it did not fire is said
}

func (r *run) installConsole() error {
	console := r.vm.NewObject()
	for name, prefix := range map[string]string{
		"log": "", "info": "", "debug": "", "table": "", "dir": "", "trace": "", "group": "", "groupCollapsed": "",
		"warn": "[warn] ", "error": "[error] ",
	} {
		if err := console.Set(name, r.function(name, func(c goja.FunctionCall) goja.Value {
			r.print(prefix, c.Arguments)
			return goja.Undefined()
		})); err != nil {
			return fmt.Errorf("install console.%s: %w", name, err)
		}
	}
	for _, name := range []string{"groupEnd", "time", "timeEnd", "timeLog", "count", "clear"} {
		if err := console.Set(name, r.function(name, func(goja.FunctionCall) goja.Value { return goja.Undefined() })); err != nil {
			return fmt.Errorf("install console.%s: %w", name, err)
		}
	}
	if err := console.Set("assert", r.function("assert", func(c goja.FunctionCall) goja.Value {
		r.asked(c.Argument(0))
		if !c.Argument(0).ToBoolean() {
			r.print("[error] Assertion failed: ", c.Arguments[min(1, len(c.Arguments)):])
		}
		return goja.Undefined()
	})); err != nil {
		return fmt.Errorf("install console.assert: %w", err)
	}
	for name, v := range map[string]any{
		"console":      console,
		"setTimeout":   r.function("setTimeout", r.setTimeout),
		"clearTimeout": r.function("clearTimeout", r.clearTimeout),
		"sleep":        r.function("sleep", r.sleep),
	} {
		if err := r.vm.Set(name, v); err != nil {
			return fmt.Errorf("install %s: %w", name, err)
		}
	}
	return nil
}

// ownWords begin the lines that the portal itself adds to an answer. What a
// script prints, a result of some server perhaps, must not look like them.
var ownWords = regexp.MustCompile(`(?m)^[ \t]*(?:\[portal\]|(?:calls|changed|console):)`)

// print keeps one console line within the budget.
func (r *run) print(prefix string, args []goja.Value) {
	if r.logLeft <= 0 {
		r.logsCut++
		return
	}
	var b strings.Builder
	b.WriteString(prefix)
	for i, a := range args {
		if i > 0 {
			b.WriteByte(' ')
		}
		if goja.IsString(a) {
			b.WriteString(clip(a.String(), maxLogItem))
		} else if goja.IsUndefined(a) {
			b.WriteString("undefined")
		} else {
			w := newWriter(r.vm, maxLogItem)
			w.run = r
			w.value(a, 0) // a throwing getter throws at the user's console.log
			b.Write(w.b)
		}
		if b.Len() > r.logLeft {
			break
		}
	}
	line := clip(ownWords.ReplaceAllString(b.String(), "> $0"), r.logLeft)
	r.logLeft -= len(line) + 1
	r.w.link.put(proto.Log, 0, []byte(line))
}

// note adds a line of the portal's own to the console output.
func (r *run) note(format string, args ...any) {
	line := clip(notePrefix+fmt.Sprintf(format, args...), 500)
	if r.logged += len(line) + 1; r.logged > noteRoom {
		r.logsCut++
		return
	}
	r.w.link.put(proto.Log, 0, []byte(line))
}

// clip shortens text to about n bytes and says by how much.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	n = max(n, 0)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + fmt.Sprintf("… %d more characters", utf8.RuneCountInString(s[n:]))
}

// after makes a timer; what is left of the run bounds it.
func (r *run) after(ms float64, fire func() (goja.Value, error)) (int64, error) {
	if r.waits >= maxTimers {
		return 0, fmt.Errorf("more than %d timers at once", maxTimers)
	}
	if math.IsNaN(ms) || ms < 0 {
		ms = 0
	}
	payload, err := proto.EncodeCall(proto.TimerQuery, strconv.AppendInt(nil, int64(min(ms, proto.MaxTimerMillis)), 10))
	if err != nil {
		return 0, err
	}
	r.waits++
	r.timerSeq++
	r.next++
	id := proto.CallID(r.id, r.next)
	r.timers[id] = &timer{id: r.timerSeq, fire: fire}
	r.w.link.put(proto.Query, id, payload)
	return r.timerSeq, nil
}

func (r *run) setTimeout(c goja.FunctionCall) goja.Value {
	f, ok := goja.AssertFunction(c.Argument(0))
	if !ok {
		panic(r.vm.NewTypeError("setTimeout takes a function, not text"))
	}
	var args []goja.Value
	if len(c.Arguments) > 2 {
		args = c.Arguments[2:]
	}
	id, err := r.after(c.Argument(1).ToFloat(), func() (goja.Value, error) {
		v, err := f(goja.Undefined(), args...)
		if o, ok := v.(*goja.Object); ok && err == nil {
			if p, ok := asPromise(o); ok && p.State() == goja.PromiseStatePending {
				r.begun = append(r.begun, p)
			}
		}
		return v, err
	})
	if err != nil {
		panic(r.vm.NewTypeError(err.Error()))
	}
	r.timers[proto.CallID(r.id, r.next)].loud = r.loud(c.Argument(0))
	return r.vm.ToValue(id)
}

// explainTimers says what timers would still have done: nobody waits for them.
func (r *run) explainTimers() {
	n := 0
	for _, t := range r.timers {
		if t.loud {
			n++
		}
	}
	if n > 0 {
		r.note("%s not fired when the script ended, and did nothing: await sleep(ms) before the work instead of setTimeout", plural(n, "timer had", "timers had"))
	}
	n = 0
	for _, p := range r.begun {
		if p.State() == goja.PromiseStatePending {
			n++
		}
	}
	if n > 0 {
		r.note("%s not done when the script ended, and whether it would have failed is not known: await sleep(ms) and the work itself instead of setTimeout", plural(n, "async callback of setTimeout was", "async callbacks of setTimeout were"))
	}
}

// loud tells whether it is said that a callback of setTimeout was never called. A
// timer that settles a promise is a time limit or a wait: whoever needs it awaits
// the promise. So in code that makes promises only async callbacks count.
func (r *run) loud(f goja.Value) bool {
	if !strings.Contains(r.msg.Code, "new Promise") && !strings.Contains(r.msg.Code, "withResolvers") {
		return true
	}
	o, ok := f.(*goja.Object)
	async := false
	_ = r.try(func() {
		tag := o.GetSymbol(goja.SymToStringTag)
		async = tag != nil && goja.IsString(tag) && tag.String() == "AsyncFunction"
	})
	return ok && async
}

func (r *run) clearTimeout(c goja.FunctionCall) goja.Value {
	if goja.IsNumber(c.Argument(0)) {
		r.dropTimer(c.Argument(0).ToInteger())
	}
	return goja.Undefined()
}

func (r *run) sleep(c goja.FunctionCall) goja.Value {
	p, resolve, _ := r.vm.NewPromise()
	if _, err := r.after(c.Argument(0).ToFloat(), func() (goja.Value, error) { return nil, resolve(goja.Undefined()) }); err != nil {
		panic(r.vm.NewTypeError(err.Error()))
	}
	return r.vm.ToValue(p)
}

// dropTimer forgets a timer; the gateway's answer is then for nobody.
func (r *run) dropTimer(id int64) {
	for k, t := range r.timers {
		if t.id == id {
			delete(r.timers, k)
			r.cleared[k] = struct{}{}
			return
		}
	}
}

var errDeadlock = errors.New("the script waits for a promise that nothing will ever settle")
