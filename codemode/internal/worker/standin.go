package worker

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/dop251/goja"

	"github.com/mcp-portal/mcp-portal/codemode/internal/proto"
)

// A stand-in takes the place of the answer to a call that is planned. It can be
// kept, passed on, taken apart by name and given to another call as an argument.
// Whoever wants to know what it is does not get to know: the look never returns,
// and the stage of the run ends there. Nothing about the answer is made up.

// standIn is one of them, or a part of one.
type standIn struct {
	ref   proto.Ref
	parts map[string]*goja.Object
}

// standInFor makes the stand-in for a reference.
func (r *run) standInFor(ref proto.Ref) (*goja.Object, error) {
	if len(ref.Path) > proto.MaxPath {
		r.look(ref)
	}
	target, err := r.vm.RunString("()=>{}")
	if err != nil {
		return nil, fmt.Errorf("make a stand-in: %w", err)
	}
	s := &standIn{ref: ref, parts: map[string]*goja.Object{}}
	part := func(key string) goja.Value {
		if key == "then" { // asked for by await; written as .then it was looked at before
			return goja.Undefined()
		}
		if o := s.parts[key]; o != nil {
			return o
		}
		sub := ref
		sub.Path = append(append([]string(nil), ref.Path...), key)
		o, err := r.standInFor(sub)
		if err != nil {
			panic(r.vm.NewGoError(err))
		}
		s.parts[key] = o
		return o
	}
	looked := func() { r.look(ref) }
	v := r.vm.ToValue(r.vm.NewProxy(target.ToObject(r.vm), &goja.ProxyTrapConfig{
		Get:    func(_ *goja.Object, key string, _ goja.Value) goja.Value { return part(key) },
		GetIdx: func(_ *goja.Object, i int, _ goja.Value) goja.Value { return part(strconv.Itoa(i)) },
		GetSym: func(*goja.Object, *goja.Symbol, goja.Value) goja.Value { looked(); return nil },
		Has:    func(*goja.Object, string) bool { looked(); return false },
		HasIdx: func(*goja.Object, int) bool { looked(); return false },
		HasSym: func(*goja.Object, *goja.Symbol) bool { looked(); return false },
		Set:    func(*goja.Object, string, goja.Value, goja.Value) bool { looked(); return false },
		SetIdx: func(*goja.Object, int, goja.Value, goja.Value) bool { looked(); return false },
		SetSym: func(*goja.Object, *goja.Symbol, goja.Value, goja.Value) bool { looked(); return false },

		DeleteProperty:              func(*goja.Object, string) bool { looked(); return false },
		DeletePropertyIdx:           func(*goja.Object, int) bool { looked(); return false },
		DeletePropertySym:           func(*goja.Object, *goja.Symbol) bool { looked(); return false },
		DefineProperty:              func(*goja.Object, string, goja.PropertyDescriptor) bool { looked(); return false },
		DefinePropertyIdx:           func(*goja.Object, int, goja.PropertyDescriptor) bool { looked(); return false },
		DefinePropertySym:           func(*goja.Object, *goja.Symbol, goja.PropertyDescriptor) bool { looked(); return false },
		GetOwnPropertyDescriptor:    func(*goja.Object, string) (d goja.PropertyDescriptor) { looked(); return d },
		GetOwnPropertyDescriptorIdx: func(*goja.Object, int) (d goja.PropertyDescriptor) { looked(); return d },
		GetOwnPropertyDescriptorSym: func(*goja.Object, *goja.Symbol) (d goja.PropertyDescriptor) { looked(); return d },

		OwnKeys:           func(*goja.Object) *goja.Object { looked(); return nil },
		GetPrototypeOf:    func(*goja.Object) *goja.Object { looked(); return nil },
		SetPrototypeOf:    func(*goja.Object, *goja.Object) bool { looked(); return false },
		IsExtensible:      func(*goja.Object) bool { looked(); return false },
		PreventExtensions: func(*goja.Object) bool { looked(); return false },
		Apply:             func(*goja.Object, goja.Value, []goja.Value) goja.Value { looked(); return nil },
		Construct:         func(*goja.Object, []goja.Value, *goja.Object) *goja.Object { looked(); return nil },
	}))
	o, ok := v.(*goja.Object)
	if !ok {
		return nil, fmt.Errorf("a stand-in became %T", v)
	}
	r.standIns[o] = s
	return o, nil
}

// standsIn returns the stand-in that a value is; nil: it is something else.
func (r *run) standsIn(v goja.Value) *standIn {
	if o, ok := v.(*goja.Object); ok && r != nil {
		return r.standIns[o]
	}
	return nil
}

// look tells the gateway that the script wants to know what it cannot know, and
// waits for the end of this process.
func (r *run) look(ref proto.Ref) {
	at := r.here()
	msg, err := json.Marshal(proto.LookMsg{Taken: r.taken, Question: ref.Question, At: at})
	if err != nil {
		msg = []byte("{}")
	}
	r.asleep.Store(true)
	r.w.link.put(proto.Look, r.id, msg)
	r.w.link.flush()
	select {}
}

// installGuard gives a guarded script the function that its tests call, and
// makes built-ins ask as well.
func (r *run) installGuard() error {
	ask := r.function(lookName, func(c goja.FunctionCall) goja.Value {
		v := c.Argument(0)
		if s := r.standsIn(v); s != nil {
			r.look(s.ref)
		}
		return v
	})
	if err := r.vm.GlobalObject().DefineDataProperty(lookName, ask, goja.FLAG_FALSE, goja.FLAG_FALSE, goja.FLAG_FALSE); err != nil {
		return fmt.Errorf("install the guard: %w", err)
	}
	is := r.function("isStandIn", func(c goja.FunctionCall) goja.Value { return r.vm.ToValue(r.standsIn(c.Argument(0)) != nil) })
	v, err := r.vm.RunProgram(r.prelude.guard)
	if err != nil {
		return fmt.Errorf("install the guard: %w", err)
	}
	install, ok := goja.AssertFunction(v)
	if !ok {
		return fmt.Errorf("install the guard: it is %s", v)
	}
	if _, err := install(goja.Undefined(), ask, is); err != nil {
		return fmt.Errorf("install the guard: %w", err)
	}
	return nil
}

// asked looks at the stand-ins among values: for functions of this program,
// which would take one for an object.
func (r *run) asked(values ...goja.Value) {
	for _, v := range values {
		if s := r.standsIn(v); s != nil {
			r.look(s.ref)
		}
	}
}

// writeStandIn writes a stand-in: in arguments as the reference that it is, in
// what people read as words.
func (w *writer) writeStandIn(s *standIn) {
	if w.strict && w.run.msg.Marker != "" && !w.noStandIns {
		ref, err := json.Marshal(map[string]proto.Ref{w.run.msg.Marker: s.ref})
		if err != nil {
			panic(w.vm.NewGoError(err))
		}
		w.b = append(w.b, ref...)
		return
	}
	if w.strict {
		w.run.look(s.ref)
	}
	w.text("[answer of a planned call]")
}
