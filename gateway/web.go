package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/gateway/pages"
	"github.com/mcp-portal/mcp-portal/registry"
	"github.com/mcp-portal/mcp-portal/upstreams"
	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// web adds the pages and their forms.
func (g *Gateway) web(r chi.Router) {
	g.authRoutes(r)
	r.Handle("/assets/*", g.pages.Assets())
	r.Get("/favicon.ico", g.pages.Favicon) // asked for without a page: beside a file, or by other programs
	r.Get("/", g.signedIn(g.home))
	r.Get("/servers", g.signedIn(g.serversPage))
	r.Post("/servers", g.form(g.toggleForm))
	r.Get("/approvals", g.signedIn(g.approvalsPage))
	r.Get("/approvals/{id}", g.signedIn(g.approvalPage))
	r.Post("/approvals/{id}", g.form(g.decideForm))
	r.Get("/approvals/run/{run}", g.signedIn(g.runPage))
	r.Post("/approvals/run/{run}", g.form(g.runForm))
	r.Get("/plans/{id}", g.signedIn(g.planPage))
	r.Post("/plans/{id}", g.form(g.planForm))
	r.Post("/plans/{id}/undo", g.form(g.undoForm))
	r.Post("/plans/{id}/settle", g.form(g.settleForm))
	r.Get("/status", g.status)
	g.connectRoutes(r)
	g.guardRoutes(r)
	g.pinRoutes(r)
	r.NotFound(func(w http.ResponseWriter, r *http.Request) {
		g.message(w, g.whoever(r), http.StatusNotFound, "Not found", "There is no page at this address.")
	})
	// Addresses of forms and of programs have no page of their own. A person who
	// opens one anyway would see an empty window.
	r.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			if chi.RouteContext(r.Context()).Routes.Match(chi.NewRouteContext(), m, r.URL.Path) {
				w.Header().Add("Allow", m)
			}
		}
		if r.Method != http.MethodGet || !strings.Contains(r.Header.Get("Accept"), "text/html") {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		g.message(w, g.whoever(r), http.StatusMethodNotAllowed, "Nothing to see here", "This address is for a button of another page, or for programs. Begin on the home page.")
	})
}

// whoever is the visitor of a page that is for everybody.
func (g *Gateway) whoever(r *http.Request) visitor {
	who, csrf, err := g.opt.Auth.Session(r)
	if err != nil {
		who, csrf = nil, ""
	}
	return visitor{who, csrf, g.settings()}
}

// show logs what could not be rendered; the response is already under way.
func (g *Gateway) show(err error) {
	if err != nil {
		g.log.Warn("a page could not be rendered to its end", "error", err)
	}
}

// baseURL is the public origin of the portal.
func (g *Gateway) baseURL() string {
	cfg := g.settings().cfg
	if cfg.URL != "" {
		return strings.TrimSuffix(cfg.URL, "/")
	}
	return "http://" + cfg.Listen
}

type visitor struct {
	who  *auth.Principal
	csrf string
	set  *settings
}

// signedIn sends people without a session to the sign-in and back.
func (g *Gateway) signedIn(page func(http.ResponseWriter, *http.Request, visitor)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, csrf, err := g.opt.Auth.Session(r)
		if err != nil {
			if errors.Is(err, auth.ErrNoSession) {
				http.Redirect(w, r, "/auth/login?return_to="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
				return
			}
			g.opt.Auth.ErrorPage(w, r, err)
			return
		}
		page(w, r, visitor{who, csrf, g.settings()})
	}
}

// form takes a POST of a signed-in person's own page.
func (g *Gateway) form(page func(http.ResponseWriter, *http.Request, visitor)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
		who, csrf, err := g.opt.Auth.Session(r)
		if err != nil {
			g.opt.Auth.ErrorPage(w, r, err)
			return
		}
		if err := g.opt.Auth.CheckCSRF(r); err != nil {
			g.opt.Auth.ErrorPage(w, r, err)
			return
		}
		page(w, r, visitor{who, csrf, g.settings()})
	}
}

// frame is what every page shows around its content.
func (g *Gateway) frame(who *auth.Principal, csrf string) pages.Frame {
	set := g.settings()
	f := pages.Frame{Portal: set.cfg.Name, CSRF: csrf}
	if who != nil {
		f.User, f.Pending = who, g.waitingFor(who)
		if who.Kind != auth.KindDev {
			f.SignOut = "/auth/logout"
		}
	}
	if set.cfg.Auth.Mode == "none" {
		f.Warnings = append(f.Warnings, "Development mode: no sign-in. Everyone on this machine is "+set.cfg.Auth.DevUser+".")
	}
	if set.policy.Observes() {
		f.Warnings = append(f.Warnings, "The guard only observes (guard.observe): it logs what rules and filters would do, and every call runs.")
	}
	if st := g.opt.Store.Status(); st.Degraded {
		f.Warnings = append(f.Warnings, "The store ("+st.Backend+") cannot be reached: nothing can be approved until it is back.")
	}
	f.Warnings = append(f.Warnings, g.adminLogins(context.Background(), visitor{who, csrf, set})...)
	f.Warnings = append(f.Warnings, g.pinWarnings(visitor{who, csrf, set})...)
	return f
}

func (g *Gateway) home(w http.ResponseWriter, r *http.Request, v visitor) {
	list, n := g.serverRows(r.Context(), v, "")
	g.show(g.pages.Home(w, pages.HomeData{Frame: g.frame(v.who, v.csrf), Endpoint: g.baseURL() + "/mcp", AllTools: r.URL.Query().Get("tools") == "all",
		SignsIn: v.set.cfg.Auth.Mode != "none", Servers: list, ToolCount: n}))
}

// serverRows lists the servers a person may use. With a grant they have
// switches.
func (g *Gateway) serverRows(ctx context.Context, v visitor, grant string) (rows []pages.Server, tools int) {
	view := g.newView(ctx, v.set, v.who, grant)
	status := map[string]upstreams.Status{}
	for _, s := range g.opt.Upstreams.Statuses() {
		status[s.Server] = s
	}
	for _, s := range view.allowed() {
		st := status[s.ID]
		n := len(slices.DeleteFunc(slices.Clone(s.Tools), func(t *registry.Tool) bool { return !v.set.access.CanTool(v.who, s.ID, t.Name) }))
		tools += n
		row := pages.Server{ID: s.ID, Title: s.Title, Description: s.Description, State: string(st.State), Since: st.Since, NextTry: st.NextTry, Listed: st.Listed,
			FromCache: s.FromCache, Transport: st.Transport, Tools: n, Warnings: s.Warnings}
		if st.Error != nil {
			row.Reason = reason(g.mayAdmin(v), s.ID, st.Error)
		}
		if own := v.set.cfg.Servers[s.ID]; own.Auth.Used() {
			own.ID = s.ID
			row.Logins = g.loginRows(ctx, v, own)
			if s.State == upstreams.Ready && st.State == upstreams.LoginNeeded { // for this user it is
				row.State, row.Reason, row.NextTry = string(s.State), "", time.Time{}
			}
		}
		if grant != "" {
			row.Toggle = &pages.Toggle{Action: "/servers?grant=" + url.QueryEscape(grant), On: !view.off[s.ID]}
		}
		rows = append(rows, row)
	}
	return rows, tools
}

// reason says why a server does not work, on a page and to an agent. What stands
// behind it (addresses, paths, the last words of a program) is for those who can
// mend it.
func reason(admin bool, server string, p *upstreams.Problem) string {
	switch {
	case p.Kind == upstreams.KindLogin || admin:
		return strings.TrimPrefix(p.Message, "server "+server+": ") // it stands beside its name
	case p.Kind == upstreams.KindConnect || p.Kind == upstreams.KindTimeout || p.Kind == upstreams.KindProcess:
		return "It cannot be reached right now. The portal tries again by itself."
	}
	return "It does not work right now. The portal's administrators see on its page what to do."
}

// togglesURL is the page where a person switches servers for one client.
func (g *Gateway) togglesURL(grant string) string {
	return g.baseURL() + "/servers?grant=" + url.QueryEscape(grant)
}

// ownGrant checks that a grant key of an address belongs to the person.
func ownGrant(who *auth.Principal, grant string) bool {
	return strings.HasPrefix(strings.TrimPrefix(grant, "mcp-session:"), shortHash(who.ID)+":") && len(grant) < 200
}

func (g *Gateway) serversPage(w http.ResponseWriter, r *http.Request, v visitor) {
	grant := r.URL.Query().Get("grant")
	if grant != "" && !ownGrant(v.who, grant) {
		g.message(w, v, http.StatusForbidden, "Not yours", "This address belongs to another user. Ask your agent for an address of your own (portal_toggle_servers).")
		return
	}
	rows, _ := g.serverRows(r.Context(), v, grant)
	g.show(g.pages.Servers(w, pages.ServersData{Frame: g.frame(v.who, v.csrf), Servers: rows}))
}

func (g *Gateway) toggleForm(w http.ResponseWriter, r *http.Request, v visitor) {
	grant, server, on := r.URL.Query().Get("grant"), r.PostFormValue("server"), r.PostFormValue("enabled")
	known := slices.ContainsFunc(g.newView(r.Context(), v.set, v.who, "").allowed(), func(s *registry.Server) bool { return s.ID == server })
	switch {
	case !ownGrant(v.who, grant):
		g.message(w, v, http.StatusForbidden, "Not yours", "This address belongs to another user.")
	case !known || (on != "true" && on != "false"):
		g.message(w, v, http.StatusBadRequest, "Not understood", "The form named an unknown server or choice. Open the page again.")
	default:
		if err := g.toggles.set(r.Context(), grant, server, on == "false"); err != nil {
			g.message(w, v, http.StatusServiceUnavailable, "Not saved", "The store cannot be reached. Try again shortly.")
			return
		}
		http.Redirect(w, r, "/servers?grant="+url.QueryEscape(grant), http.StatusSeeOther)
	}
}

func (g *Gateway) message(w http.ResponseWriter, v visitor, status int, title, text string) {
	g.show(g.pages.Message(w, pages.MessageData{Frame: g.frame(v.who, v.csrf), Status: status, Title: title, Text: text}))
}

func (g *Gateway) approvalsPage(w http.ResponseWriter, r *http.Request, v visitor) {
	d := pages.ApprovalsData{Frame: g.frame(v.who, v.csrf), Path: "/approvals/"}
	list, err := g.approvals.ListFor(r.Context(), v.who.ID)
	if err != nil {
		g.log.Warn("approvals could not be listed", "error", err)
		d.Problem = "The store cannot be reached, so this list is not known. Try again shortly."
	}
	d.Approvals = list
	if d.Others, err = g.approvals.ListOthers(r.Context(), v.who); err != nil {
		g.log.Warn("approvals of others could not be listed", "error", err)
		d.Problem = "The store cannot be reached, so this list is not known. Try again shortly."
	}
	if d.Plans, err = g.plans.ListFor(r.Context(), v.who); err != nil {
		g.log.Warn("plans could not be listed", "error", err)
		d.Problem = "The store cannot be reached, so this list is not known. Try again shortly."
	}
	g.show(g.pages.Approvals(w, d))
}

// seenApproval reads an approval that the person may see, or answers with why
// not. An approval of another user is not found, unless a rule names the person
// as one who approves.
func (g *Gateway) seenApproval(w http.ResponseWriter, r *http.Request, v visitor) *writeguard.Approval {
	a, err := g.approvals.Get(r.Context(), chi.URLParam(r, "id"))
	switch {
	case err == nil && a.MaySee(v.who):
		return a
	case err == nil || errors.Is(err, writeguard.ErrNotFound):
		g.message(w, v, http.StatusNotFound, "No such request", "This request is not open for you: it may have expired, or belong to another account. You are signed in as "+v.who.Name+".")
	default:
		g.log.Warn("an approval could not be read", "error", err)
		g.message(w, v, http.StatusServiceUnavailable, "Not available", "The store cannot be reached. Try again shortly; nothing was run.")
	}
	return nil
}

// approvalData is the page of an approval as the person sees it.
func (g *Gateway) approvalData(v visitor, a *writeguard.Approval) pages.ApprovalData {
	d := pages.ApprovalData{Frame: g.frame(v.who, v.csrf), Approval: a, Foreign: !a.OwnedBy(v.who)}
	if a.MayDecide(v.who) && a.From != "client" {
		d.Action = "/approvals/" + a.ID
	}
	return d
}

func (g *Gateway) approvalPage(w http.ResponseWriter, r *http.Request, v visitor) {
	if a := g.seenApproval(w, r, v); a != nil {
		g.show(g.pages.Approval(w, g.approvalData(v, a)))
	}
}

func (g *Gateway) decideForm(w http.ResponseWriter, r *http.Request, v visitor) {
	a := g.seenApproval(w, r, v)
	if a == nil {
		return
	}
	answer := writeguard.Answer{By: v.who, Via: writeguard.ViaWeb, Note: bounded(r.PostFormValue("note"), 500)}
	problem := ""
	switch r.PostFormValue("decision") {
	case "approve":
		answer.Approve = true
	case "grant":
		n, err := strconv.Atoi(r.PostFormValue("calls"))
		if err != nil || n < 1 || n > a.GrantMax {
			problem = fmt.Sprintf("Nothing was decided: the number of calls must be from 1 to %d.", a.GrantMax)
		}
		answer.Approve, answer.Grant = true, n
	case "deny":
	default:
		g.message(w, v, http.StatusBadRequest, "Not understood", "The form had no decision. Open the page again.")
		return
	}
	if problem == "" {
		err := g.approvals.Decide(r.Context(), a.ID, answer)
		switch {
		case err == nil:
			http.Redirect(w, r, "/approvals/"+a.ID, http.StatusSeeOther)
			return
		case errors.Is(err, writeguard.ErrClosed):
			problem = "This request was already answered or has expired."
		case errors.Is(err, writeguard.ErrNotYours):
			problem = "This request is not yours to answer: ask " + a.Who() + "."
			if a.From == "client" {
				problem = "This request is answered in the client that asks, not here."
			}
		default:
			problem = "The decision could not be saved. Try again."
			g.log.Warn("a decision could not be saved", "approval", a.ID, "error", err)
		}
	}
	if now, err := g.approvals.Get(r.Context(), a.ID); err == nil {
		a = now
	}
	d := g.approvalData(v, a)
	d.Problem = problem
	g.show(g.pages.Approval(w, d))
}

// healthz says that the process serves.
func (g *Gateway) healthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, []byte(`{"status":"ok"}`))
}

// readyz says that the portal can answer: it needs no upstream for that. It is
// degraded, not unready, while the store is away.
func (g *Gateway) readyz(w http.ResponseWriter, _ *http.Request) {
	select {
	case <-g.stopped:
		writeJSON(w, http.StatusServiceUnavailable, []byte(`{"status":"shutting down"}`))
	default:
		state := "ready"
		if g.opt.Store.Status().Degraded {
			state = "degraded"
		}
		writeJSON(w, http.StatusOK, wire.Encode(map[string]string{"status": state}))
	}
}

// status is the state of everything, as JSON: for admins by browser session or
// bearer token, and for everyone in development mode.
func (g *Gateway) status(w http.ResponseWriter, r *http.Request) {
	who, _, err := g.opt.Auth.Session(r)
	if err != nil {
		if who, err = g.opt.Auth.Authenticate(r); err != nil {
			g.opt.Auth.Challenge(w, r, err)
			return
		}
	}
	set := g.settings()
	if who.Kind != auth.KindDev && !set.access.IsAdmin(who) {
		writeJSON(w, http.StatusForbidden, []byte(`{"error":"the status is for members of a group in auth.admins"}`))
		return
	}
	snap := g.opt.Registry.Snapshot()
	all, paused := g.runs.count()
	warnings := map[string][]string{}
	tools := 0
	for _, s := range snap.Servers {
		tools += len(s.Tools)
		if len(s.Warnings) > 0 {
			warnings[s.ID] = s.Warnings
		}
	}
	body, err := json.MarshalIndent(map[string]any{
		"version": g.opt.Version, "started": g.started, "uptime_s": int(g.now().Sub(g.started) / time.Second),
		"store": g.opt.Store.Status(), "audit": g.opt.Audit.Status(), "auth": g.opt.Auth.Status(),
		"catalogue_cache": g.opt.Registry.Cache(), "sandbox": g.opt.Runner.Status(),
		"servers": g.opt.Upstreams.Statuses(), "logins_wanted": g.portalLogins(r.Context(), set), "warnings": warnings, "tools": tools, "snapshot": snap.Version,
		"guard":   g.guardStatus(set),
		"process": readProcess(), "sessions": g.sessions.count(), "requests": g.calls.count(), "streams": g.listeners.count(), "runs": all, "runs_paused": paused,
	}, "", "  ")
	if err != nil {
		http.Error(w, "the status could not be written", http.StatusInternalServerError)
		return
	}
	writeJSON(w, http.StatusOK, append(body, '\n'))
}
