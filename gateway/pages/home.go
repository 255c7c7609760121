package pages

import (
	"fmt"
	"net/http"
	"net/url"
)

// HomeData is the home page.
type HomeData struct {
	Frame
	Endpoint  string // URL of the MCP endpoint without query, e.g. https://portal.example.com/mcp
	AllTools  bool   // instructions for all tools instead of the two (?tools=all)
	SignsIn   bool   // a client has to sign in when it first connects
	Servers   []Server
	ToolCount int    // tools this user may use, over all servers
	Problem   string // why the list of servers is not known; empty: it is
}

// home is HomeData with what follows from it.
type home struct {
	HomeData
	URL     string // what a client is given
	Clients []Client
}

// Home shows the endpoint, how to add it to a client, the servers, and who the
// user is. It fails if the endpoint is not an http or https URL.
func (p *Pages) Home(w http.ResponseWriter, d HomeData) error {
	u, err := url.Parse(d.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		err = fmt.Errorf("render page home: the endpoint %q is not an http or https URL", d.Endpoint)
		_ = p.Message(w, MessageData{Frame: d.Frame, Status: http.StatusInternalServerError, Title: "The portal's address is not known",
			Text: "Tell the portal's administrator to set url in its configuration."})
		return err
	}
	if !d.AllTools {
		q := u.Query()
		q.Set("optimize_context", "search_and_execute")
		u.RawQuery = q.Encode()
	}
	h := home{HomeData: d, URL: u.String()}
	h.Clients = clients(ClientName(d.Portal), h.URL, d.SignsIn)
	return p.render(w, http.StatusOK, "home", d.Portal, d.Frame, h)
}
