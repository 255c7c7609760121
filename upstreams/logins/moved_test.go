package logins_test

import (
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/logins"
)

// An answer for the server of before is not used for the one that has its name
// now.
func TestServerMovedMeanwhile(t *testing.T) {
	s, other := behind(t), behind(t)
	r := open(t, portalConfig(s.URL, personal))
	to, err := r.Begin(t.Context(), ann, logins.Request{Server: "s"})
	if err != nil {
		t.Fatal(err)
	}
	q := visit(t, to)
	r.SetConfig(portalConfig(other.URL, personal))
	if _, err := r.Finish(t.Context(), ann, q); err == nil || s.Count("token authorization_code")+other.Count("token authorization_code") != 0 {
		t.Errorf("finished: %v, the code was sent to %d and %d", err, s.Count("token authorization_code"), other.Count("token authorization_code"))
	}
	r.SetConfig(portalConfig(s.URL, personal))
	if _, err := r.Current(t.Context(), "s", "ann"); err == nil {
		t.Error("a login was kept")
	}
}
