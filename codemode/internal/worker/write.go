package worker

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dop251/goja"
)

const (
	maxWriteDepth = 100
	maxBinary     = 1024 // bytes of a buffer shown in a value
)

// writer turns a JavaScript value into JSON within a byte budget. It never
// gives up on an odd value, except in strict mode, which is for arguments of
// tools: there an odd value is a TypeError that names the place.
//
// Getters, toJSON and Proxy traps run as script code: call it inside run.try or
// from a native function.
type writer struct {
	vm     *goja.Runtime
	b      []byte
	max    int
	strict bool
	cut    bool
	open   []*goja.Object
	path   []string // strict only

	blocks    []json.RawMessage // content blocks found; nil: leave them in place
	blockLeft int
	unsettled []*goja.Promise
	rejected  *goja.Promise

	promises  map[*goja.Promise]bool // that stood in the value
	functions []string               // names of functions that did, 100 at most

	run        *run // whose stand-ins may be among the values; nil: there are none
	noStandIns bool // a stand-in is looked at

	absent *absent // what was undefined; nil: not of interest
}

func newWriter(vm *goja.Runtime, max int) *writer {
	return &writer{vm: vm, max: max}
}

func (w *writer) full() bool {
	if len(w.b) > w.max {
		w.cut = true
	}
	return w.cut && len(w.b) > w.max
}

// odd writes a description in place of a value JSON does not have.
func (w *writer) odd(what, hint string) {
	if w.strict {
		at := "the arguments"
		if len(w.path) > 0 {
			at = strings.Join(w.path, ".")
		}
		if hint != "" {
			hint = ": " + hint
		}
		panic(w.vm.NewTypeError("cannot pass %s to a tool (at %s)%s", what, at, hint))
	}
	w.text("[" + what + "]")
}

// text writes a string, shortened when the budget ends inside it.
func (w *writer) text(s string) {
	if room := w.max - len(w.b); len(s) > room+64 {
		w.cut = true
		s = clip(s, room)
	}
	w.b = appendString(w.b, s)
}

func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				b = append(b, s[from:i]...)
				b = append(b, "\ufffd"...)
				from = i + 1
			}
			i += n
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' {
			i++
			continue
		}
		b = append(b, s[from:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\t':
			b = append(b, '\\', 't')
		case '\r':
			b = append(b, '\\', 'r')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		from = i
	}
	b = append(b, s[from:]...)
	return append(b, '"')
}

func (w *writer) value(v goja.Value, depth int) {
	if w.full() {
		if len(w.b) > 0 && w.b[len(w.b)-1] != '"' {
			w.b = append(w.b, `"…"`...)
		}
		return
	}
	if v == nil || goja.IsUndefined(v) || goja.IsNull(v) {
		w.b = append(w.b, "null"...)
		return
	}
	o, isObject := v.(*goja.Object)
	if !isObject {
		w.primitive(v)
		return
	}
	if s := w.run.standsIn(o); s != nil {
		w.writeStandIn(s)
		return
	}
	if depth > maxWriteDepth {
		w.odd("nested too deeply", "")
		return
	}
	for _, p := range w.open {
		if p == o {
			if w.strict {
				w.odd("a circular structure", "")
			}
			w.text("[Circular]")
			return
		}
	}
	w.open = append(w.open, o)
	w.object(o, depth)
	w.open = w.open[:len(w.open)-1]
}

func (w *writer) primitive(v goja.Value) {
	if goja.IsBigInt(v) {
		w.b = append(w.b, v.String()...) // an exact JSON integer
		return
	}
	if symbol, ok := v.(*goja.Symbol); ok {
		w.odd("Symbol("+clip(symbol.String(), 80)+")", "")
		return
	}
	switch x := v.Export().(type) {
	case bool:
		w.b = strconv.AppendBool(w.b, x)
	case int64:
		w.b = strconv.AppendInt(w.b, x, 10)
	case float64:
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			w.b = append(w.b, v.String()...)
		} else if w.strict {
			w.odd(v.String(), "JSON has no such number")
		} else {
			w.text(v.String())
		}
	case string:
		w.text(x)
	default:
		w.odd(clip(v.String(), 80), "")
	}
}

func (w *writer) object(o *goja.Object, depth int) {
	class := o.ClassName()
	if p, ok := asPromise(o); ok {
		w.promise(p, depth)
		return
	}
	if class != "Date" {
		if f, ok := goja.AssertFunction(o.Get("toJSON")); ok {
			r, err := f(o, w.vm.ToValue(""))
			if err != nil {
				panic(err)
			}
			if r != goja.Value(o) {
				w.value(r, depth+1)
				return
			}
		}
	}
	if _, ok := goja.AssertFunction(o); ok {
		name := "function"
		if n := o.Get("name"); n != nil && goja.IsString(n) && n.String() != "" {
			name += " " + clip(n.String(), 80)
		}
		if len(w.functions) < 100 {
			w.functions = append(w.functions, strings.TrimSpace(strings.TrimPrefix(name, "function")))
		}
		w.odd(name, "call it and pass what it returns")
		return
	}
	switch class {
	case "Array":
		w.array(o, depth)
	case "Date":
		f, _ := goja.AssertFunction(o.Get("toISOString"))
		r, err := f(o)
		if err != nil {
			w.odd("Invalid Date", "")
			return
		}
		w.text(r.String())
	case "RegExp":
		w.text(o.String())
	case "Error":
		w.failure(o, depth)
	case "String", "Number", "Boolean":
		f, ok := goja.AssertFunction(o.Get("valueOf"))
		if !ok {
			w.odd(class, "")
			return
		}
		r, err := f(o)
		if err != nil {
			panic(err)
		}
		w.value(r, depth+1)
	default:
		switch typ := o.ExportType(); typ {
		case typeMap, typeSet:
			if w.strict && typ == typeMap {
				w.odd("a Map", "use Object.fromEntries(map)")
			}
			w.iterate(o, depth)
			return
		}
		if w.binary(o, depth) {
			return
		}
		if w.iterator(o, depth) {
			return
		}
		if w.blocks != nil && w.block(o) {
			return
		}
		w.members(o, depth)
	}
}

// Types by which goja tells built-in objects apart whose class is "Object".
// Asking for the type runs no script code; exporting an object would.
var (
	typePromise = reflect.TypeFor[*goja.Promise]()
	typeMap     = reflect.TypeFor[[][2]any]()
	typeSet     = reflect.TypeFor[[]any]()
	typeBuffer  = reflect.TypeFor[goja.ArrayBuffer]()
)

func asPromise(o *goja.Object) (*goja.Promise, bool) {
	if o.ExportType() != typePromise {
		return nil, false
	}
	p, ok := o.Export().(*goja.Promise)
	return p, ok
}

func isArray(o *goja.Object) bool { return o.ClassName() == "Array" }

// promise writes what a promise became. A pending one is remembered: the run
// waits for it and writes again.
func (w *writer) promise(p *goja.Promise, depth int) {
	if w.strict {
		w.odd("a promise", "await it first")
	}
	if w.promises == nil {
		w.promises = map[*goja.Promise]bool{}
	}
	w.promises[p] = true
	switch p.State() {
	case goja.PromiseStateFulfilled:
		w.value(p.Result(), depth+1)
	case goja.PromiseStateRejected:
		if w.rejected == nil {
			w.rejected = p
		}
		w.text("[Promise: failed]")
	default:
		w.unsettled = append(w.unsettled, p)
		w.text("[Promise: never settled, is an await missing?]")
	}
}

func (w *writer) array(o *goja.Object, depth int) {
	w.b = append(w.b, '[')
	n := o.Get("length").ToInteger()
	gone := n > 0
	for i := int64(0); i < n; i++ {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		if w.full() {
			w.b = appendString(w.b, fmt.Sprintf("… %d more items", n-i))
			break
		}
		key := strconv.FormatInt(i, 10)
		w.enter(key)
		v := o.Get(key)
		gone = gone && (v == nil || goja.IsUndefined(v))
		w.value(v, depth+1)
		w.leave()
	}
	if gone && w.absent != nil {
		w.absent.lists++
	}
	w.b = append(w.b, ']')
}

func (w *writer) enter(key string) {
	if w.strict {
		w.path = append(w.path, clip(key, 40))
	}
}

func (w *writer) leave() {
	if w.strict {
		w.path = w.path[:len(w.path)-1]
	}
}

func (w *writer) members(o *goja.Object, depth int) {
	w.b = append(w.b, '{')
	first := true
	keys := o.Keys()
	for i, k := range keys {
		if w.full() {
			if !first {
				w.b = append(w.b, ',')
			}
			w.b = appendString(w.b, "…")
			w.b = append(w.b, ':')
			w.b = appendString(w.b, fmt.Sprintf("%d more fields", len(keys)-i))
			break
		}
		v := o.Get(k)
		w.absent.field(k, v == nil || goja.IsUndefined(v))
		if v == nil || goja.IsUndefined(v) {
			continue
		}
		if !first {
			w.b = append(w.b, ',')
		}
		first = false
		w.text(k)
		w.b = append(w.b, ':')
		w.enter(k)
		w.value(v, depth+1)
		w.leave()
	}
	w.b = append(w.b, '}')
}

func (w *writer) failure(o *goja.Object, depth int) {
	w.b = append(w.b, '{')
	first := true
	for _, k := range []string{"name", "message", "code", "cause", "errors"} {
		v := o.Get(k)
		if v == nil || goja.IsUndefined(v) {
			continue
		}
		if !first {
			w.b = append(w.b, ',')
		}
		first = false
		w.b = appendString(w.b, k)
		w.b = append(w.b, ':')
		w.value(v, depth+1)
	}
	w.b = append(w.b, '}')
}

// iterate writes a Map as pairs and a Set as an array.
func (w *writer) iterate(o *goja.Object, depth int) {
	w.b = append(w.b, '[')
	first := true
	n := 0
	w.vm.ForOf(o, func(v goja.Value) bool {
		if !first {
			w.b = append(w.b, ',')
		}
		first = false
		if w.full() {
			more := "… more items"
			if size := o.Get("size"); size != nil && goja.IsNumber(size) {
				more = fmt.Sprintf("… %d more items", size.ToInteger()-int64(n))
			}
			w.b = appendString(w.b, more)
			return false
		}
		n++
		w.value(v, depth+1)
		return true
	})
	w.b = append(w.b, ']')
}

// iterator writes what an iterator or generator has still to give. Its fields
// would be {}.
func (w *writer) iterator(o *goja.Object, depth int) bool {
	if _, ok := goja.AssertFunction(o.Get("next")); !ok {
		return false
	}
	if o.GetSymbol(goja.SymIterator) == nil {
		if len(o.Keys()) > 0 { // an object of the script's own
			return false
		}
		w.odd("iterator", "collect it with for await first")
		return true
	}
	if w.strict {
		w.odd("an iterator", "use Array.from(it)")
	}
	w.iterate(o, depth)
	return true
}
