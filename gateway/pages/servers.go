package pages

import (
	"net/http"
	"time"
)

// Server is one server as a page shows it.
type Server struct {
	ID          string
	Title       string // may be empty
	Description string
	State       string    // "ready", "connecting", "degraded", "login_needed", "disabled"
	Reason      string    // why it is not ready: one sentence without credentials
	Since       time.Time // of the state; zero: unknown
	NextTry     time.Time // zero: none planned
	Listed      time.Time // last full listing; zero: never
	FromCache   bool      // the list is of an earlier run of the portal
	Transport   string    // streamable-http, sse, stdio; may be empty
	Tools       int       // how many tools this user may use
	Warnings    []string  // withheld tools and the like
	Toggle      *Toggle   // nil: no switch
	Logins      []Login   // of the user and, for admins, of the portal; empty: nobody signs in there
}

// Label is the title, else the id.
func (s Server) Label() string {
	if s.Title != "" {
		return s.Title
	}
	return s.ID
}

// StateText is the state for people.
func (s Server) StateText() string {
	if s.State == "login_needed" {
		return "sign-in needed"
	}
	return s.State
}

// Toggle is the user's own switch of a server.
type Toggle struct {
	Action string // path the form posts to
	On     bool
}

// ServersData is the page of servers.
type ServersData struct {
	Frame
	Servers []Server
	Problem string // why the list is not complete or not known; empty: it is
}

// Servers shows every server the user may use, how it is, and why.
func (p *Pages) Servers(w http.ResponseWriter, d ServersData) error {
	return p.render(w, http.StatusOK, "servers", "Servers", d.Frame, d)
}
