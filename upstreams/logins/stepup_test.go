package logins_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/logins"
)

// refusedFor is a server's refusal that names scopes.
func refusedFor(scopes string) http.Header {
	return http.Header{"Www-Authenticate": {`Bearer error="insufficient_scope", scope="` + scopes + `"`}}
}

// A server that wants more rights has its user asked once for what they had
// and these. What the authorization server will not give is not asked for over
// and over.
func TestStepUpEnds(t *testing.T) {
	for name, c := range map[string]struct {
		granted any // scope of the answer; nil: it does not say
		again   string
	}{
		"granted":                    {"use admin", ""},
		"granted, in silence":        {nil, ""},
		"granted, as a list":         {[]string{"use", "admin"}, ""},
		"not granted":                {"use", "not granted"},
		"granted, and more wanted":   {"use admin", "more"},
		"not granted, other is next": {"use", "more"},
	} {
		t.Run(name, func(t *testing.T) {
			s := behind(t)
			r := open(t, portalConfig(s.URL, personal))
			if err := r.signIn(ann); err != nil {
				t.Fatal(err)
			}
			refuse := func(scopes string) error {
				cred, err := r.Current(t.Context(), "s", "ann")
				if err != nil {
					t.Fatal(err)
				}
				_, err = r.Refused(t.Context(), "s", "ann", cred, http.StatusForbidden, refusedFor(scopes))
				return err
			}
			var need *logins.Needed
			if !asNeeded(refuse("admin"), &need) || !slices.Equal(need.Scopes, []string{"use", "admin"}) {
				t.Fatalf("the first refusal asks for %+v", need)
			}
			s.Edit("token", func(m map[string]any) {
				if m["scope"] = c.granted; c.granted == nil {
					delete(m, "scope")
				}
			})
			to, err := r.Begin(t.Context(), ann, logins.Request{Server: "s", Scopes: need.Scopes})
			if err != nil || !strings.Contains(to, "scope=use+admin") {
				t.Fatalf("%s %v", to, err)
			}
			if _, err := r.Finish(t.Context(), ann, visit(t, to)); err != nil {
				t.Fatal(err)
			}
			switch err := refuse("admin"); c.again {
			case "":
				if !errors.Is(err, logins.ErrHopeless) {
					t.Errorf("refused with what was granted: %v", err)
				}
			case "not granted":
				var no *logins.NotGranted
				if !errors.As(err, &no) || !strings.Contains(err.Error(), `"admin"`) {
					t.Errorf("asked again for what was not granted: %v", err)
				}
			case "more":
				if err := refuse("admin owner"); !asNeeded(err, &need) || !slices.Contains(need.Scopes, "owner") {
					t.Errorf("another right: %v", err)
				}
			}
			// Signing in anew on the page begins from the beginning.
			if err := r.signIn(ann); err != nil {
				t.Fatal(err)
			}
			if c.again == "not granted" {
				if err := refuse("admin"); !asNeeded(err, &need) {
					t.Errorf("after a sign-in of its own accord: %v", err)
				}
			}
		})
	}
	// A refusal that names no right is a plain no.
	s := behind(t)
	r := open(t, portalConfig(s.URL, personal))
	if err := r.signIn(ann); err != nil {
		t.Fatal(err)
	}
	cred, _ := r.Current(t.Context(), "s", "ann")
	for _, h := range []http.Header{{}, {"Www-Authenticate": {`Bearer error="insufficient_scope"`}}, {"Www-Authenticate": {`Bearer error="invalid_token", scope="x"`}}} {
		if _, err := r.Refused(t.Context(), "s", "ann", cred, http.StatusForbidden, h); !errors.Is(err, logins.ErrHopeless) {
			t.Errorf("%v: %v", h, err)
		}
	}
}
