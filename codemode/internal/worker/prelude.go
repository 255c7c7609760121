package worker

import (
	_ "embed"

	"github.com/dop251/goja"
	"github.com/dop251/goja/parser"
)

//go:embed prelude.js
var preludeSource string

// PreludeSource is the text of the built-ins that goja lacks: what a script does
// may depend on it.
func PreludeSource() string { return preludeSource + paginateSource }

// maxCallStack is the depth of JavaScript calls. Unwinding a deeper stack is
// quadratic in goja, and native recursion uses Go's stack beside it.
const maxCallStack = 1000

//go:embed paginate.js
var paginateSource string

// prelude makes runtimes with the built-ins that goja lacks.
type prelude struct{ program, paginate *goja.Program }

func compilePrelude() prelude {
	return prelude{goja.MustCompile("prelude", preludeSource, true), goja.MustCompile("paginate", paginateSource, true)} // part of this program, not input
}

// newRuntime makes a fresh realm; nothing of another run is in it.
func (p prelude) newRuntime() *goja.Runtime {
	vm := goja.New()
	// The default would read the file that a sourceMappingURL comment names.
	vm.SetParserOptions(parser.WithDisableSourceMaps)
	vm.SetMaxCallStackSize(maxCallStack)
	if _, err := vm.RunProgram(p.program); err != nil {
		panic(err) // as above: caught by the test of the prelude
	}
	if err := installJSON(vm); err != nil {
		panic(err) // as above
	}
	return vm
}
