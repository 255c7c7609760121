package auth

import "testing"

func TestInGroup(t *testing.T) {
	p := &Principal{Groups: []string{"eng", "mcp-users"}}
	for _, c := range []struct {
		ask  []string
		want bool
	}{
		{nil, false}, {[]string{"eng"}, true}, {[]string{"sales", "mcp-users"}, true},
		{[]string{"ENG"}, false}, {[]string{""}, false}, {[]string{"sales"}, false},
	} {
		if got := p.InGroup(c.ask...); got != c.want {
			t.Errorf("InGroup(%q) = %v, want %v", c.ask, got, c.want)
		}
	}
}
