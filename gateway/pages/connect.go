package pages

import (
	"net/http"
	"time"
)

// ConnectData is the page before a person is sent to a server's sign-in.
type ConnectData struct {
	Frame
	Server string   // id
	Title  string   // may be empty
	Host   string   // of the server
	ForAll bool     // the portal itself is signed in, for everybody
	Handle string   // id of the address that a call gave; empty: from the page of servers
	Scopes []string // rights that the server asked for
}

// Label is the title, else the id.
func (d ConnectData) Label() string {
	if d.Title != "" {
		return d.Title
	}
	return d.Server
}

// Connect asks before a person leaves for a server's sign-in.
func (p *Pages) Connect(w http.ResponseWriter, d ConnectData) error {
	return p.render(w, http.StatusOK, "connect", "Sign in at "+d.Label(), d.Frame, d)
}

// Login is how one login at a server stands.
type Login struct {
	ForAll   bool // the portal's own
	SignedIn bool
	Ended    string // why it cannot be used any more
	Since    time.Time
	By       string   // of the portal's: who signed in
	Where    string   // host of the authorization server
	Wants    []string // rights that the server refused it for
	SignIn   string   // link
	SignOut  string   // where the form posts to
}
