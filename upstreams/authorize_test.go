package upstreams

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/upstreams/logins"
)

// given gives whatever credential it holds at the moment.
type given struct{ now logins.Credential }

func (g *given) Current(context.Context, string, string) (logins.Credential, error) {
	return g.now, nil
}

func (g *given) Accepted(string, string, logins.Credential) {}

func (g *given) Refused(context.Context, string, string, logins.Credential, int, http.Header) (logins.Credential, error) {
	return g.now, nil
}

// A session that was begun with one login is never used with another, whenever
// the user signs in anew: that may be another account.
func TestSessionKeepsToItsLogin(t *testing.T) {
	request := func() *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), "POST", "https://a.example/mcp", nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	from := &given{now: logins.Credential{Login: "first", Token: "token-1"}}
	a, p := &authorizer{from: from, server: "s", user: "ann"}, newPeer("s", config.Server{})
	r := request()
	if err := a.sign(r, p); err != nil || r.Header.Get("Authorization") != "Bearer token-1" {
		t.Fatalf("%v %v", err, r.Header)
	}
	from.now.Token = "token-2" // renewed
	if err := a.sign(request(), p); err != nil {
		t.Errorf("the same login, renewed: %v", err)
	}
	from.now = logins.Credential{Login: "second", Token: "token-of-another-account"}
	r2 := request()
	if err := a.sign(r2, p); !errors.Is(err, errGone) || r2.Header.Get("Authorization") != "" {
		t.Errorf("another login: %v, sent %v", err, r2.Header)
	}
	if next, err := a.refused(r, &http.Response{StatusCode: 401, Header: http.Header{}}, p); next != nil || !errors.Is(err, errGone) {
		t.Errorf("after a refusal: %v %v", next, err)
	}
}

// greeter is a server of 2026-07-28 only, which wants a sign-in to be greeted.
type greeter struct{ p *peer }

func (g greeter) do(_ context.Context, x exchange) (json.RawMessage, error) {
	if x.Method == "server/discover" {
		return nil, g.p.unauthorized(&logins.Needed{Server: "s", User: "ann", Scopes: []string{"admin"}})
	}
	return nil, &CallError{Server: "s", Problem: Problem{Kind: KindHTTP, HTTPStatus: http.StatusBadRequest}}
}

func (greeter) setVersion(string) {}

func (greeter) initialized(context.Context) error { return nil }

// What a server wants to be greeted is not lost over the question whether it is
// of another era.
func TestGreetingThatWantsASignIn(t *testing.T) {
	_, err := handshake(t.Context(), greeter{newPeer("s", config.Server{})}, target{}, time.Second, true, nil, nil)
	var need *logins.Needed
	if !errors.As(err, &need) || len(need.Scopes) != 1 {
		t.Errorf("%v", err)
	}
}
