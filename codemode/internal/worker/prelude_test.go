package worker

import "testing"

// What stands in the prelude must also stand in guarded runs: without it plans
// end at their first wait, and only that would show it.
func TestThePreludeCanBeGuarded(t *testing.T) {
	p, err := guardedPrelude()
	if err != nil {
		t.Fatal(err)
	}
	vm := p.newRuntime()
	v, err := vm.RunString("[(1234.5).toLocaleString(), new Date(0).toLocaleDateString('en-US', {month: 'short', day: 'numeric'})].join()")
	if err != nil || v.String() != "1,234.5,Jan 1" {
		t.Errorf("%v, %v", v, err)
	}
}
