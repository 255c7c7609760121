package pages

import (
	"net/http"
	"time"
)

// ConsentData asks a person whether a client may act for them.
type ConsentData struct {
	Frame
	Client   string   // name of the client; foreign text unless Trusted
	Proven   string   // host that the client's id is at, empty: it only says who it is
	Trusted  bool     // the admin registered it
	Host     string   // where the browser goes on to
	Local    bool     // to a program on the person's own machine
	Servers  []string // titles of the only servers asked for; empty: All
	All      bool     // everything the person may use
	Action   string   // path that the form posts to
	ID       string   // of the request
	SwitchTo string   // where to sign in as somebody else; empty: nowhere
}

// Consent shows who asks for what. It has no form-action in its policy:
// browsers apply that to every hop after the form, and clients go on from
// their redirect URI to where they like.
func (p *Pages) Consent(w http.ResponseWriter, d ConsentData) error {
	return p.render(w, http.StatusOK, "consent", "Connect a client?", d.Frame, d)
}

// Connected is a client that a person has allowed to act for them.
type Connected struct {
	ID      string // of the grant
	Name    string
	Host    string   // of its metadata document; may be empty
	Where   string   // host its sign-in led to
	Servers []string // the only servers; empty: all
	Since   time.Time
	Used    time.Time
}

// ConnectedData is the list of a person's clients.
type ConnectedData struct {
	Frame
	Clients []Connected
	Action  string // path that the forms post to
	SignsIn bool   // clients have to sign in; else none is listed
	Problem string // why the list is not known; empty: it is
}

// Connected lists the clients of a person, each with a button to end it.
func (p *Pages) Connected(w http.ResponseWriter, d ConnectedData) error {
	return p.render(w, http.StatusOK, "connected", "Connected clients", d.Frame, d)
}
