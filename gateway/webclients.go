package gateway

import (
	"net/http"
	"net/url"

	"github.com/go-chi/chi/v5"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/auth/authserver"
	"github.com/mcp-portal/mcp-portal/gateway/pages"
)

// authRoutes adds the addresses of sign-in: the browser's, the authorization
// server's, and the pages on which people decide about clients.
func (g *Gateway) authRoutes(r chi.Router) {
	a := g.opt.Auth
	for _, p := range auth.MetadataPaths() {
		r.Handle(p, a.Metadata())
	}
	for _, e := range a.Server().Endpoints() {
		r.Handle(e.Path, e.Handler)
	}
	r.Get("/auth/login", a.Login)
	r.Get("/auth/callback", a.Callback)
	r.Post("/auth/logout", a.Logout)
	r.Post("/auth/backchannel-logout", a.BackChannelLogout)
	r.Get(authserver.PathConfirm, g.signedIn(g.consentPage))
	r.Post(authserver.PathConfirm, g.form(g.consentForm))
	r.Get("/clients", g.signedIn(g.clientsPage))
	r.Post("/clients", g.form(g.disconnectForm))
}

// may says which servers a person could use, for scopes of one server.
func (v visitor) may(server string) bool { return v.set.access.CouldServer(v.who, server) }

// consentPage asks the person about the client that waits. Clients that the
// admin trusts go on at once.
func (g *Gateway) consentPage(w http.ResponseWriter, r *http.Request, v visitor) {
	id := r.URL.Query().Get("id")
	req, err := g.opt.Auth.Server().Ask(r.Context(), id, v.may)
	if err != nil {
		g.opt.Auth.ServerErrorPage(w, r, err)
		return
	}
	if req.Client.NoConsent {
		g.decideClient(w, r, v, id, true)
		return
	}
	d := pages.ConsentData{Frame: g.frame(v.who, v.csrf), Client: req.Client.Name, Proven: req.Client.Host(), Trusted: req.Client.Kind == authserver.KindStatic,
		Host: req.Host, Local: req.Local, All: req.Servers == nil, Servers: g.titles(v, req.Servers), Action: authserver.PathConfirm, ID: id}
	if v.who.Kind != auth.KindDev {
		d.SwitchTo = "/auth/login?switch=1&return_to=" + url.QueryEscape(r.URL.RequestURI())
	}
	g.show(g.pages.Consent(w, d))
}

func (g *Gateway) titles(v visitor, ids []string) (out []string) {
	for _, id := range ids {
		if s, ok := v.set.cfg.Servers[id]; ok && s.Title != "" {
			id = s.Title
		}
		out = append(out, id)
	}
	return out
}

func (g *Gateway) consentForm(w http.ResponseWriter, r *http.Request, v visitor) {
	decision := r.PostFormValue("decision")
	if decision != "allow" && decision != "deny" {
		g.message(w, v, http.StatusBadRequest, "Not understood", "The form had no decision. Begin again in the client.")
		return
	}
	g.decideClient(w, r, v, r.PostForm.Get("id"), decision == "allow")
}

func (g *Gateway) decideClient(w http.ResponseWriter, r *http.Request, v visitor, id string, yes bool) {
	to, err := g.opt.Auth.Server().Decide(r.Context(), id, auth.PersonOf(v.who), v.may, yes)
	if err != nil {
		g.opt.Auth.ServerErrorPage(w, r, err)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer") // it holds a code
	w.Header().Set("Location", to)                   // not http.Redirect, which would clean it up: clients compare texts
	w.WriteHeader(http.StatusSeeOther)
}

func (g *Gateway) clientsPage(w http.ResponseWriter, r *http.Request, v visitor) {
	d := pages.ConnectedData{Frame: g.frame(v.who, v.csrf), Action: "/clients", SignsIn: v.set.cfg.Auth.Mode != "none"}
	list, err := g.opt.Auth.Server().Grants(r.Context(), v.who.ID)
	if err != nil {
		g.log.Warn("connected clients could not be listed", "error", err)
		d.Problem = "The store cannot be reached, so this list is not known. Try again shortly."
	}
	for _, c := range list {
		d.Clients = append(d.Clients, pages.Connected{ID: c.ID, Name: c.ClientName, Host: c.ClientHost, Where: c.Redirect, Servers: g.titles(v, authserver.ServersOf(c.Scopes)), Since: c.Created, Used: c.Used})
	}
	g.show(g.pages.Connected(w, d))
}

func (g *Gateway) disconnectForm(w http.ResponseWriter, r *http.Request, v visitor) {
	found, err := g.opt.Auth.Server().End(r.Context(), v.who.ID, r.PostForm.Get("id"))
	switch {
	case err != nil:
		g.opt.Auth.ServerErrorPage(w, r, err)
	case !found:
		g.message(w, v, http.StatusNotFound, "Not connected", "This client is not connected to your account any more.")
	default:
		http.Redirect(w, r, "/clients", http.StatusSeeOther)
	}
}
