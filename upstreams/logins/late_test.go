package logins_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/logins"
)

// A server that has not heard of a renewed token yet costs nobody their login:
// the same token is tried again, and no other is asked for meanwhile.
func TestRenewedTokenThatIsNotKnownYet(t *testing.T) {
	s := behind(t)
	r := open(t, portalConfig(s.URL, personal))
	if err := r.signIn(ann); err != nil {
		t.Fatal(err)
	}
	refused := func(c logins.Credential) (logins.Credential, error) {
		return r.Refused(t.Context(), "s", "ann", c, http.StatusUnauthorized, http.Header{})
	}
	first, err := r.Current(t.Context(), "s", "ann")
	if err != nil {
		t.Fatal(err)
	}
	renewed, err := refused(first)
	if err != nil || renewed.Token == first.Token || renewed.Wait != 0 {
		t.Fatalf("refused once: %+v %v", renewed, err)
	}
	for range 5 {
		again, err := refused(renewed)
		if err != nil || again.Token != renewed.Token || again.Login != first.Login || again.Wait <= 0 {
			t.Fatalf("the renewed token was refused: %+v %v", again, err)
		}
	}
	if n := s.Count("token refresh_token"); n != 1 {
		t.Errorf("%d renewals, want 1", n)
	}
	// Nor does one that has taken it wait for it: what it takes and then refuses
	// is no longer good.
	r.Accepted("s", "ann", renewed)
	if next, err := refused(renewed); err != nil || next.Token == renewed.Token || next.Wait != 0 {
		t.Fatalf("a young token that the server took before: %+v %v", next, err)
	} else {
		renewed = next
	}
	// Hours later it is an ordinary refusal, and what was is forgotten.
	for range 4 {
		r.now.Add(3600)
		next, err := refused(renewed)
		if err != nil || next.Token == renewed.Token {
			t.Fatalf("an old token: %+v %v", next, err)
		}
		if again, err := refused(next); err != nil || again.Wait <= 0 {
			t.Fatalf("late, hour after hour: %+v %v", again, err)
		}
		renewed = next
	}
	// One that refuses each new token, one after the other, has ended it.
	var need *logins.Needed
	for range 10 {
		r.now.Add(40)
		r.Accepted("s", "ann", renewed) // its greeting, which it asks nobody's token for
		next, err := refused(renewed)
		if err == nil {
			_, err = refused(next)
		}
		if err == nil {
			_, err = refused(next)
		}
		if err != nil {
			if !errors.As(err, &need) || need.User != "ann" {
				t.Fatalf("a server that refuses all: %v", err)
			}
			break
		}
		renewed = next
	}
	if need == nil {
		t.Fatal("a login that the server never takes is renewed for ever")
	}
	if _, err := r.Current(t.Context(), "s", "ann"); !errors.As(err, &need) {
		t.Errorf("afterwards: %v", err)
	}
}
