package audit

import (
	"strings"
	"testing"
)

func TestFindSecrets(t *testing.T) {
	gh := "ghp" + "_" + strings.Repeat("a1B2", 9)
	for _, c := range []struct{ in, want string }{
		{"push with " + gh + " now", "push with # now"},
		{"Authorization: Bearer abcdef0123456789", "Authorization: #"},
		{"https://user:pw@host/x", "https://#@host/x"},
		{"password=hunter2 and token: abc123", "password=# and token: #"},
		{"next_page_token=abcdef&access_token=xyz", "next_page_token=abcdef&access_token=#"},
		{"nothing here, max_tokens=5", "nothing here, max_tokens=5"},
		{"", ""},
	} {
		var b strings.Builder
		last := 0
		for _, x := range FindSecrets(c.in) {
			b.WriteString(c.in[last:x[0]] + "#")
			last = x[1]
		}
		b.WriteString(c.in[last:])
		if b.String() != c.want {
			t.Errorf("%q: %q, want %q", c.in, b.String(), c.want)
		}
	}
	for name, want := range map[string]bool{"password": true, "api_key": true, "access_token": true, "next_page_token": false, "name": false, "cursor_token": false} {
		if SecretMember(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}
