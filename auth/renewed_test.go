package auth

import (
	"testing"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
)

// An IdP that answers a renewal with somebody else's ID token has not answered:
// the person and groups stay as they were, for a day at most.
func TestRenewalIsAboutTheSamePerson(t *testing.T) {
	p, idp := serving(t, nil)
	idp.SetUser(authtest.User{Sub: "alice", Name: "Alice", Groups: []string{"eng"}})
	c := newMCPClient(t, p)
	c.signIn(t, p.browser(t, "alice"))
	idp.EditIDTokens(func(m map[string]any) { m["sub"], m["groups"] = "bob", []string{"boss"} })
	p.clock.add(personFresh)
	status, v := c.renew(t)
	c.keep(t, status, v)
	if who, err := c.who(); err != nil || idp.Renewals() != 1 || who.Name != "Alice" || !who.InGroup("eng") || who.InGroup("boss") {
		t.Errorf("after %d renewals the client acts for %+v (%v)", idp.Renewals(), who, err)
	}
	p.clock.add(personStale)
	if status, v := c.renew(t); status == 200 {
		t.Errorf("the groups of before hold for longer than a day: %d %v", status, v)
	}
}
