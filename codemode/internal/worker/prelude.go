package worker

import (
	_ "embed"
	"fmt"

	"github.com/dop251/goja"
	"github.com/dop251/goja/parser"
)

//go:embed prelude.js
var preludeSource string

// PreludeSource is the text of the built-ins that goja lacks: what a script does
// may depend on it.
func PreludeSource() string { return preludeSource + paginateSource + specSource + guardSource }

// maxCallStack is the depth of JavaScript calls. Unwinding a deeper stack is
// quadratic in goja, and native recursion uses Go's stack beside it.
const maxCallStack = 1000

//go:embed paginate.js
var paginateSource string

//go:embed spec.js
var specSource string

//go:embed guard.js
var guardSource string

// prelude makes runtimes with the built-ins that goja lacks.
type prelude struct {
	program, paginate, spec *goja.Program
	guard                   *goja.Program // nil: not a guarded one
}

func compilePrelude() prelude {
	return prelude{program: goja.MustCompile("prelude", preludeSource, true), paginate: goja.MustCompile("paginate", paginateSource, true), spec: goja.MustCompile("spec", specSource, true)} // part of this program, not input
}

// guardedPrelude is the prelude for guarded runs: its own code asks, too.
func guardedPrelude() (prelude, error) {
	var p prelude
	for _, x := range []struct {
		name, text string
		into       **goja.Program
		asks       bool
	}{{"prelude", preludeSource, &p.program, true}, {"paginate", paginateSource, &p.paginate, true}, {"spec", specSource, &p.spec, true}, {"guard", guardSource, &p.guard, false}} {
		prg, err := goja.Parse(x.name, x.text, parser.WithDisableSourceMaps)
		if err == nil && x.asks {
			err = guarded(prg, x.text)
		}
		if err == nil {
			*x.into, err = goja.CompileAST(prg, true)
		}
		if err != nil {
			return prelude{}, fmt.Errorf("compile the guarded %s: %w", x.name, err)
		}
	}
	return p, nil
}

// newRuntime makes a fresh realm; nothing of another run is in it.
func (p prelude) newRuntime() *goja.Runtime {
	vm := goja.New()
	// The default would read the file that a sourceMappingURL comment names.
	vm.SetParserOptions(parser.WithDisableSourceMaps)
	vm.SetMaxCallStackSize(maxCallStack)
	if p.guard != nil { // the real one comes with the run
		same := vm.ToValue(func(c goja.FunctionCall) goja.Value { return c.Argument(0) })
		if err := vm.GlobalObject().DefineDataProperty(lookName, same, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE); err != nil {
			panic(err)
		}
	}
	if _, err := vm.RunProgram(p.program); err != nil {
		panic(err) // as above: caught by the test of the prelude
	}
	if err := installJSON(vm); err != nil {
		panic(err) // as above
	}
	return vm
}
