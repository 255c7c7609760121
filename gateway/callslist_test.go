package gateway_test

import (
	"strings"
	"testing"
)

// What a script changed is listed with the ids of it; what is equal, once.
func TestChangesAreListedOnce(t *testing.T) {
	_, yaml := withPut(t)
	c := start(t, yaml, nil).client(modern, twoTools, noCaps, nil)
	got := c.code(`for (let i = 0; i < 30; i++) await s.put({id: 'same'}); for (let i = 0; i < 25; i++) await s.put({id: 'n' + i})`, "", nil)
	for _, want := range []string{`changed: s_put → ran put {"id":"same"} ×30; s_put → ran put {"id":"n0"}; `, `{"id":"n18"}; and 6 more`} {
		if !strings.Contains(got.text(), want) {
			t.Errorf("%q is not in %s", want, got.text())
		}
	}
}
