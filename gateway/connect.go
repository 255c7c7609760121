package gateway

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/mcp-portal/mcp-portal/audit"
	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/gateway/pages"
	"github.com/mcp-portal/mcp-portal/upstreams/logins"
)

// connectRoutes are the pages where people sign in at servers.
func (g *Gateway) connectRoutes(r chi.Router) {
	if g.opt.Logins == nil {
		return
	}
	r.Get(logins.ClientPath, g.clientDocument)
	r.Get(logins.ServerClientPath("{server}"), g.serverClientDocument)
	r.Get(logins.KeysPath, g.clientKeys)
	r.Get("/connect", g.signedIn(g.connectPage))
	r.Post("/connect", g.form(g.connectForm))
	r.Get(logins.ConnectPath+"{id}", g.signedIn(g.handlePage))
	r.Get(logins.CallbackPath, g.serversCallback)
	r.Post("/servers/sign-out", g.form(g.signOutForm))
}

// clientDocument tells authorization servers who the portal is. It is public.
func (g *Gateway) clientDocument(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "public, max-age=300")
	writeJSON(w, http.StatusOK, g.opt.Logins.ClientDocument())
}

// serverClientDocument is clientDocument for one server at which the portal
// proves itself by a key, and clientKeys has the keys. Both are public.
func (g *Gateway) serverClientDocument(w http.ResponseWriter, r *http.Request) {
	doc := g.opt.Logins.ServerClientDocument(chi.URLParam(r, "server"))
	if doc == nil {
		g.show(g.pages.Message(w, pages.MessageData{Frame: g.frame(nil, ""), Status: http.StatusNotFound, Title: "Not found", Text: "There is no page at this address."}))
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=300")
	writeJSON(w, http.StatusOK, doc)
}

func (g *Gateway) clientKeys(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "public, max-age=300")
	writeJSON(w, http.StatusOK, g.opt.Logins.Keys())
}

// mayConnect says what somebody may sign in to: a server that they may use and
// that wants a login of each, or, for admins, one for the portal itself.
func (g *Gateway) mayConnect(v visitor, server string, forAll bool) (config.Server, bool) {
	s, ok := v.set.cfg.Servers[server]
	if !ok || !s.IsEnabled() || !s.Auth.Interactive() || v.who.Kind == auth.KindService {
		return s, false
	}
	s.ID = server
	if forAll {
		return s, g.mayAdmin(v)
	}
	return s, s.Auth.PerUser() && v.set.access.CanServer(v.who, server)
}

func (g *Gateway) mayAdmin(v visitor) bool { return isAdmin(v.set, v.who) }

func isAdmin(set *settings, who *auth.Principal) bool {
	return who.Kind == auth.KindDev || set.access.IsAdmin(who)
}

// handlePage is the address that a call gave to its user. On another's screen
// it leads nowhere: who signs in there would lend them their account.
func (g *Gateway) handlePage(w http.ResponseWriter, r *http.Request, v visitor) {
	id := chi.URLParam(r, "id")
	h, ok := g.ownHandle(w, r, v, id)
	if !ok {
		return
	}
	s, may := g.mayConnect(v, h.Server, false)
	if !may {
		g.message(w, v, http.StatusForbidden, "Not allowed", "You may not use this server any more. Ask the portal's administrator.")
		return
	}
	g.showConnect(w, v, s, pages.ConnectData{Handle: id, Scopes: h.Scopes})
}

// ownHandle reads an address, or answers with why it cannot be used.
func (g *Gateway) ownHandle(w http.ResponseWriter, r *http.Request, v visitor, id string) (*logins.Handle, bool) {
	h, err := g.opt.Logins.Handle(r.Context(), id)
	switch {
	case err != nil:
		g.log.Warn("an address to sign in could not be read", "error", err)
		g.message(w, v, http.StatusServiceUnavailable, "Not available", "The store cannot be reached. Try again shortly.")
	case h == nil:
		g.message(w, v, http.StatusNotFound, "No such sign-in", "This address has expired. Sign in on the page of servers, or have your agent make the call again.")
	case h.User != v.who.ID:
		g.refusedConnect(r.Context(), v, h.Server, "the address of another user was opened")
		g.message(w, v, http.StatusForbidden, "Not yours", "This address was made for another user. Whoever sent it to you could use your account at the server if you signed in here. You are signed in as "+v.who.Name+".")
	default:
		return h, true
	}
	return nil, false
}

// refusedConnect leaves a trace of what may have been an attack.
func (g *Gateway) refusedConnect(ctx context.Context, v visitor, server, why string) {
	g.log.Warn("a sign-in at a server was refused", "server", server, "user", v.who.ID, "reason", why)
	g.opt.Audit.Record(context.WithoutCancel(ctx), audit.Event{ID: randomID(), Time: g.now(), User: v.who.ID, Method: "sign-in", Server: server, Status: "denied", Decision: "deny", Error: why})
}

func (g *Gateway) connectPage(w http.ResponseWriter, r *http.Request, v visitor) {
	forAll := r.URL.Query().Get("for") == "all"
	s, may := g.mayConnect(v, r.URL.Query().Get("server"), forAll)
	if !may {
		g.message(w, v, http.StatusNotFound, "Nothing to sign in to", "There is no such server for you that wants a sign-in. Look at the page of servers.")
		return
	}
	owner := v.who.ID
	if forAll {
		owner = ""
	}
	st, err := g.opt.Logins.State(r.Context(), s.ID, owner)
	if err != nil {
		g.log.Debug("how a sign-in stands is not known", "server", s.ID, "error", err)
	}
	g.showConnect(w, v, s, pages.ConnectData{ForAll: forAll, Scopes: st.Wants})
}

func (g *Gateway) showConnect(w http.ResponseWriter, v visitor, s config.Server, d pages.ConnectData) {
	d.Frame, d.Server, d.Title = g.frame(v.who, v.csrf), s.ID, s.Title
	if u, err := url.Parse(s.URL); err == nil {
		d.Host = u.Host
	}
	g.show(g.pages.Connect(w, d))
}

// connectForm sends the browser to the server's sign-in.
func (g *Gateway) connectForm(w http.ResponseWriter, r *http.Request, v visitor) {
	req := logins.Request{Server: r.PostFormValue("server"), Admin: r.PostFormValue("for") == "all", Return: "/servers"}
	if id := r.PostFormValue("handle"); id != "" {
		h, ok := g.ownHandle(w, r, v, id)
		if !ok {
			return
		}
		req = logins.Request{Server: h.Server, Scopes: h.Scopes, Return: ""}
	}
	if _, may := g.mayConnect(v, req.Server, req.Admin); !may {
		g.message(w, v, http.StatusForbidden, "Not allowed", "There is no such server for you that wants a sign-in.")
		return
	}
	to, err := g.opt.Logins.Begin(r.Context(), person(v), req)
	if err != nil {
		g.log.Warn("a sign-in at a server could not be begun", "server", req.Server, "user", v.who.ID, "error", err)
		g.message(w, v, http.StatusBadGateway, "Signing in is not possible now", "The portal could not begin the sign-in: "+bounded(err.Error(), 600)+". Nothing was changed.")
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// person is who looks at a page, in this browser session.
func person(v visitor) logins.Person {
	return logins.Person{User: v.who.ID, Name: v.who.Name, Session: v.csrf}
}

// serversCallback takes the answer of an authorization server. Without a
// session it is nobody's: it is not carried through a sign-in.
func (g *Gateway) serversCallback(w http.ResponseWriter, r *http.Request) {
	who, csrf, err := g.opt.Auth.Session(r)
	v := visitor{who, csrf, g.settings()}
	if err != nil || csrf == "" {
		if err != nil && !errors.Is(err, auth.ErrNoSession) {
			g.opt.Auth.ErrorPage(w, r, err)
			return
		}
		g.message(w, visitor{set: v.set}, http.StatusBadRequest, "Not signed in", "This sign-in was not begun in this browser, or your session has ended meanwhile. Nothing was kept. Sign in to the portal and begin again on its page of servers.")
		return
	}
	done, err := g.opt.Logins.Finish(r.Context(), person(v), r.URL.Query())
	var problem *logins.Problem
	switch {
	case errors.As(err, &problem):
		if problem.Foreign {
			g.refusedConnect(r.Context(), v, problem.Server, "the answer of a sign-in that another began")
		}
		text := problem.Text
		if problem.Detail != "" {
			text += " It said: " + bounded(problem.Detail, 300)
		}
		g.message(w, v, http.StatusBadRequest, "Not signed in", text)
	case err != nil:
		g.log.Warn("a sign-in at a server could not be kept", "user", v.who.ID, "error", err)
		g.message(w, v, http.StatusServiceUnavailable, "Not signed in", "The portal could not keep the sign-in. Begin again on the page of servers.")
	default:
		g.opt.Audit.Record(context.WithoutCancel(r.Context()), audit.Event{ID: randomID(), Time: g.now(), User: v.who.ID, Method: "sign-in", Server: done.Server, Status: "ok"})
		if done.Return != "" {
			http.Redirect(w, r, done.Return, http.StatusSeeOther)
			return
		}
		g.show(g.pages.Message(w, pages.MessageData{Frame: g.frame(v.who, v.csrf), Status: http.StatusOK, Title: "Signed in",
			Text: "You are signed in at " + done.Server + ". Go back to your client: what you asked for goes on there by itself.", Link: "/servers", Label: "Servers"}))
	}
}

// signOutForm ends a login of the person or, for admins, of the portal.
func (g *Gateway) signOutForm(w http.ResponseWriter, r *http.Request, v visitor) {
	server, forAll := r.PostFormValue("server"), r.PostFormValue("for") == "all"
	if _, may := g.mayConnect(v, server, forAll); !may {
		g.message(w, v, http.StatusForbidden, "Not allowed", "There is no such sign-in of yours.")
		return
	}
	user := v.who.ID
	if forAll {
		user = ""
	}
	if err := g.opt.Logins.SignOut(r.Context(), server, user); err != nil {
		g.log.Warn("a sign-out of a server failed", "server", server, "error", err)
		g.message(w, v, http.StatusServiceUnavailable, "Not signed out", "The store cannot be reached. Try again shortly.")
		return
	}
	g.opt.Audit.Record(context.WithoutCancel(r.Context()), audit.Event{ID: randomID(), Time: g.now(), User: v.who.ID, Method: "sign-out", Server: server, Status: "ok"})
	back := "/servers"
	if q := r.URL.RawQuery; strings.HasPrefix(q, "grant=") {
		back += "?" + q
	}
	http.Redirect(w, r, back, http.StatusSeeOther)
}

// loginRows is how the person's login and, for admins, the portal's stand.
func (g *Gateway) loginRows(ctx context.Context, v visitor, s config.Server) (rows []pages.Login) {
	if g.opt.Logins == nil || !s.Auth.Interactive() {
		return nil
	}
	for _, forAll := range []bool{false, true} {
		if _, may := g.mayConnect(v, s.ID, forAll); !may {
			continue
		}
		user, link := v.who.ID, "/connect?server="+url.QueryEscape(s.ID)
		if forAll {
			user, link = "", link+"&for=all"
		}
		st, err := g.opt.Logins.State(ctx, s.ID, user)
		row := pages.Login{ForAll: forAll, SignedIn: st.SignedIn, Ended: st.Ended, Since: st.Since, By: st.By, Where: st.Where, Wants: st.Wants, SignIn: link, SignOut: "/servers/sign-out"}
		if err != nil {
			row.Ended = "not known: the store cannot be reached"
		}
		rows = append(rows, row)
	}
	return rows
}

// portalLogin is a login of the portal itself that is missing or over.
type portalLogin struct {
	Server string `json:"server"`
	State  string `json:"state"` // "ended", "more_rights" (then Reason names them), or "missing" where nothing works without it
	Reason string `json:"reason,omitempty"`
	SignIn string `json:"sign_in"` // where an admin signs in
}

// portalLogins are the servers whose login of the portal does not hold.
func (g *Gateway) portalLogins(ctx context.Context, set *settings) (out []portalLogin) {
	if g.opt.Logins == nil {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(set.cfg.Servers)) {
		s := set.cfg.Servers[id]
		if !s.IsEnabled() || !s.Auth.Interactive() {
			continue
		}
		st, err := g.opt.Logins.State(ctx, id, "")
		l := portalLogin{Server: id, Reason: st.Ended, SignIn: g.opt.Logins.Address("/connect?server=" + url.QueryEscape(id) + "&for=all")}
		switch {
		case err != nil:
		case st.SignedIn && len(st.Wants) > 0:
			l.State, l.Reason = "more_rights", strings.Join(st.Wants, " ")
			out = append(out, l)
		case st.SignedIn:
		case st.Ended != "":
			l.State = "ended"
			out = append(out, l)
		case !s.Auth.PerUser():
			l.State = "missing"
			out = append(out, l)
		}
	}
	return out
}

// adminLogins are portalLogins for admins to see on every page.
func (g *Gateway) adminLogins(ctx context.Context, v visitor) (out []string) {
	if v.who == nil || !g.mayAdmin(v) {
		return nil
	}
	for _, l := range g.portalLogins(ctx, v.set) {
		switch l.State {
		case "more_rights":
			out = append(out, "The portal's sign-in at "+l.Server+" was refused for want of rights ("+bounded(l.Reason, 200)+"). Sign in for more rights on the page of servers.")
		case "ended":
			out = append(out, "The portal's sign-in at "+l.Server+" does not hold any more ("+l.Reason+"). Sign in again on the page of servers.")
		default:
			out = append(out, "Nobody has signed the portal in at "+l.Server+" yet, so it cannot be used. Sign in on the page of servers.")
		}
	}
	return out
}
