package worker

import (
	"fmt"

	"github.com/dop251/goja"
)

// trap makes what stands for a value that is not there yet speak up: a promise
// nobody awaited and a tool nobody called have none of the fields a script
// looks for, and undefined would hide that until the end.
//
// It stands in the chain of prototypes behind the built-in one, so that it is
// asked only for what no promise or function has.
//
// base is what the chain goes on with, and holder the prototype whose own
// members may be looked for.
func (r *run) trap(base, holder *goja.Object, refuse func(o *goja.Object, key string) string) (*goja.Object, error) {
	get := func(target *goja.Object, key string, receiver goja.Value) goja.Value {
		o, ok := receiver.(*goja.Object)
		if !ok || o == holder {
			return target.Get(key)
		}
		if key == "__proto__" {
			if p := o.Prototype(); p != nil {
				return p
			}
			return goja.Null()
		}
		if v := target.Get(key); v != nil && (key != "length" || holder != nil) { // a function has one, but a list was meant
			return v
		}
		if message := refuse(o, key); message != "" {
			panic(r.vm.NewTypeError("%s", message))
		}
		return goja.Undefined()
	}
	p := r.vm.NewProxy(base, &goja.ProxyTrapConfig{
		Get: get,
		GetIdx: func(target *goja.Object, i int, receiver goja.Value) goja.Value {
			return get(target, fmt.Sprint(i), receiver)
		},
		GetSym: func(target *goja.Object, s *goja.Symbol, receiver goja.Value) goja.Value {
			o, ok := receiver.(*goja.Object)
			if v := target.GetSymbol(s); v != nil || !ok || o == holder {
				return v
			}
			if what := r.traversal(s); what != "" {
				if message := refuse(o, what); message != "" {
					panic(r.vm.NewTypeError("%s", message))
				}
			}
			return goja.Undefined()
		},
	})
	o, ok := r.vm.ToValue(p).(*goja.Object)
	if !ok {
		return nil, fmt.Errorf("a proxy became %T", p)
	}
	return o, nil
}

// Uses of a value that ask for a symbol.
const (
	asList = "as a list"
	asText = "as text or a number"
)

func (r *run) traversal(s *goja.Symbol) string {
	switch s {
	case goja.SymIterator, r.asyncIterator:
		return asList
	case goja.SymToPrimitive:
		return asText
	}
	return ""
}

// installTraps makes forgotten awaits and calls visible.
func (r *run) installTraps() error {
	prototypeOf := func(name string) *goja.Object {
		if class, ok := r.vm.Get(name).(*goja.Object); ok {
			if p, ok := class.Get("prototype").(*goja.Object); ok {
				return p
			}
		}
		return nil
	}
	if s, ok := r.vm.Get("Symbol").(*goja.Object); ok {
		r.asyncIterator, _ = s.Get("asyncIterator").(*goja.Symbol)
	}
	promise, function := prototypeOf("Promise"), prototypeOf("Function")
	if promise == nil || function == nil {
		return fmt.Errorf("the built-in classes are missing")
	}
	t, err := r.trap(promise.Prototype(), promise, r.promiseMisused)
	if err != nil {
		return err
	}
	if err := promise.SetPrototype(t); err != nil {
		return fmt.Errorf("watch promises: %w", err)
	}
	// Only tools get this one: functions of the script stay as they are.
	if err := r.installQuestions(); err != nil {
		return err
	}
	if r.toolTrap, err = r.trap(function, nil, r.toolMisused); err != nil {
		return fmt.Errorf("watch tools: %w", err)
	}
	return nil
}

// probes are members that libraries look for on anything.
var probes = map[string]bool{"inspect": true, "nodeType": true, "$$typeof": true, "asymmetricMatch": true}

// promiseMisused says what is wrong with reading key of a promise.
func (r *run) promiseMisused(o *goja.Object, key string) string {
	if _, ok := asPromise(o); !ok {
		return ""
	}
	label := r.promised[o]
	if key == "toJSON" {
		if label == "" {
			return "JSON.stringify got a promise, which would become {}: await it first"
		}
		return fmt.Sprintf("JSON.stringify got the promise of %s, which would become {}: await it first", label)
	}
	if probes[key] {
		return ""
	}
	what := "." + clip(key, 60) + " was read of"
	example := fmt.Sprintf("(await %s).%s", called(label), clip(key, 60))
	if key == asList || key == asText {
		what, example = "a promise was used "+key+" instead of", "await "+called(label)
	}
	if label == "" {
		if key == asList || key == asText {
			return fmt.Sprintf("a promise was used %s: await it first (for several at once, await Promise.all(list))", key)
		}
		return fmt.Sprintf(".%s was read of a promise, which has no such member: await it first, as in %s", clip(key, 60), example)
	}
	if label == helperPaginate && key == asList {
		return "codemode.paginate gives the promise of one array with all items, no pages: write for (const item of await codemode.paginate(…))"
	}
	if key == asList || key == asText {
		return fmt.Sprintf("the promise of %s was used %s: an await is missing, write %s", label, key, example)
	}
	return fmt.Sprintf("%s the promise of %s: an await is missing, write %s", what, label, example)
}

func called(label string) string {
	if label == "" {
		return "f()"
	}
	if label[len(label)-1] == ')' { // codemode.call("name")
		return label
	}
	return label + "(…)"
}

// toolMisused says what is wrong with reading key of a tool.
func (r *run) toolMisused(o *goja.Object, key string) string {
	if protocolNames[key] && key != "length" || key == "arguments" || key == "caller" {
		return ""
	}
	label := ""
	if n := o.Get("name"); n != nil {
		label = n.String()
	}
	if message := r.absentTools[o]; message != nil {
		return message()
	}
	if label == "codemode.tools" {
		if t := r.names.find(key); t != nil {
			return "codemode.tools lists the tools: call one with codemode." + t.Identifier + "({…})"
		}
	}
	if key == asList || key == asText {
		return fmt.Sprintf("the tool %s was used %s: call it, await %s({…})", label, key, label)
	}
	return fmt.Sprintf("%s is a function without .%s: call it and await the result, (await %s({…})).%s", label, clip(key, 60), label, clip(key, 60))
}

// watched gives a function for a tool the trap.
func (r *run) watched(v goja.Value) *goja.Object {
	o, ok := v.(*goja.Object)
	if ok && r.toolTrap != nil {
		_ = o.SetPrototype(r.toolTrap) // it stays usable without
		_ = o.Delete("length")         // that of a list was meant
	}
	return o
}
