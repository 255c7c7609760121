package worker

import (
	"errors"
	"fmt"

	"github.com/dop251/goja"
)

// installJSON replaces JSON.parse by one that keeps every digit: integers
// beyond 2^53 become BigInt, as they are in results, so that the usual copy
// through text does not round an id. What is parsed already comes back as it
// is: results of tools are, and models parse them once more.
func installJSON(vm *goja.Runtime) error {
	object, ok := vm.Get("JSON").(*goja.Object)
	if !ok {
		return errors.New("there is no JSON")
	}
	syntaxError := vm.Get("SyntaxError")
	parse := vm.ToValue(func(c goja.FunctionCall) goja.Value {
		arg := c.Argument(0)
		o, isObject := arg.(*goja.Object)
		if isObject {
			if _, pending := asPromise(o); pending {
				panic(vm.NewTypeError("JSON.parse got a promise: await it first"))
			}
			if o.ClassName() == "Object" || o.ClassName() == "Array" {
				return arg
			}
		}
		text := arg.String()
		v, at, err := parseText(vm, text)
		if err != nil {
			e, failed := vm.New(syntaxError, vm.ToValue(jsonComplaint(arg, text, at, err)))
			if failed != nil {
				panic(vm.NewTypeError("JSON.parse: %s", err.Error()))
			}
			panic(e)
		}
		if revive, ok := goja.AssertFunction(c.Argument(1)); ok {
			holder := vm.NewObject()
			if err := holder.Set("", v); err != nil {
				panic(err)
			}
			return revived(vm, revive, holder, "")
		}
		return v
	})
	f, ok := parse.(*goja.Object)
	if !ok {
		return fmt.Errorf("a function became %T", parse)
	}
	if err := f.DefineDataProperty("name", vm.ToValue("parse"), goja.FLAG_FALSE, goja.FLAG_TRUE, goja.FLAG_FALSE); err != nil {
		return fmt.Errorf("name JSON.parse: %w", err)
	}
	if err := object.DefineDataProperty("parse", f, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE); err != nil {
		return fmt.Errorf("replace JSON.parse: %w", err)
	}
	return nil
}

// parseText is parseJSON that says where it stopped.
func parseText(vm *goja.Runtime, text string) (v goja.Value, at int, err error) {
	p := &jsonParser{scanner: scanner{b: []byte(text)}, vm: vm}
	v, err = p.value()
	if p.space(); err == nil && p.i != len(p.b) {
		err = errJSON
	}
	return v, p.i, err
}

func jsonComplaint(arg goja.Value, text string, at int, err error) string {
	switch {
	case !errors.Is(err, errJSON):
		return "JSON.parse: " + err.Error()
	case goja.IsUndefined(arg):
		return "JSON.parse got undefined"
	case at >= len(text):
		return "JSON.parse: the text ends too early"
	}
	return fmt.Sprintf("JSON.parse: unexpected %s at position %d of %s", clip(text[at:], 12), at, clip(text, 60))
}

// revived calls the reviver from the inside out, as the standard has it.
func revived(vm *goja.Runtime, revive goja.Callable, holder *goja.Object, key string) goja.Value {
	v := holder.Get(key)
	if o, ok := v.(*goja.Object); ok {
		for _, k := range o.Keys() {
			if n := revived(vm, revive, o, k); n == nil || goja.IsUndefined(n) {
				if err := o.Delete(k); err != nil {
					panic(err)
				}
			} else if err := o.Set(k, n); err != nil {
				panic(err)
			}
		}
	}
	n, err := revive(holder, vm.ToValue(key), v)
	if err != nil {
		panic(err)
	}
	return n
}
