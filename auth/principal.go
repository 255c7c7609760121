package auth

import "time"

// Kind says how a principal came in.
type Kind string

const (
	KindUser    Kind = "user"    // a person, by IdP token or browser session
	KindService Kind = "service" // a machine, by service token
	KindDev     Kind = "dev"     // the one user of development mode
)

// Principal is who makes a request. ID is part of every key that belongs to a
// user: "<issuer>|<sub>" for people (never the email), "svc:<id>" for
// machines, "dev" in development mode.
type Principal struct {
	ID      string
	Kind    Kind
	Name    string // for display: name, else email, else ID
	Email   string
	Groups  []string
	Servers []string  // service token: server ids it is limited to; nil: no such limit
	Tools   []string  // service token: globs "server/tool"; nil: no such limit
	Expires time.Time // of the credential; zero: none

	// Of an access token that the portal issued; empty otherwise.
	Client string   // client_id
	Grant  string   // id of what the person allowed that client
	Scope  []string // server ids it is limited to by its scopes; nil: no such limit
}

// InGroup reports whether the principal is a member of one of the groups.
func (p *Principal) InGroup(groups ...string) bool {
	for _, want := range groups {
		for _, have := range p.Groups {
			if want == have {
				return true
			}
		}
	}
	return false
}
