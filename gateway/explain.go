package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/gateway/pages"
	"github.com/mcp-portal/mcp-portal/registry"
	"github.com/mcp-portal/mcp-portal/wire"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// Explained is what POST /guard/explain answers.
type Explained struct {
	writeguard.Explanation
	Outward string `json:"outward"` // the name clients see
	// Hidden is how many rules were tried that are not shown, because the
	// caller is no administrator.
	Hidden int `json:"hidden,omitempty"`
}

// ListedTool is a tool as GET /guard/tools answers it: what a policy for its
// server is made from.
type ListedTool struct {
	Tool        string          `json:"tool"` // original name
	Outward     string          `json:"outward"`
	Description string          `json:"description,omitempty"`
	Annotations json.RawMessage `json:"annotations,omitempty"`
	InputSchema json.RawMessage `json:"inputSchema,omitempty"`
}

// guardRoutes are the ways to ask what the guard would do. Nothing is called.
func (g *Gateway) guardRoutes(r chi.Router) {
	r.Post("/guard/explain", g.explain)
	r.Get("/guard/tools", g.guardTools)
	r.Get("/servers/{id}", g.signedIn(g.serverPage))
	r.Get("/tools/{name}", g.signedIn(g.toolPage))
}

// explanation judges a tool, or a call if args are given. The rules that were
// tried are for administrators: they tell about other users.
func (g *Gateway) explanation(set *settings, who *auth.Principal, t *registry.Tool, client string, mode writeguard.Mode, args json.RawMessage) Explained {
	e := Explained{Outward: t.Outward, Explanation: set.policy.Explain(writeguard.Call{Principal: who, Client: client, Mode: mode, Server: t.Server, Tool: t.Name,
		Description: t.Description, Annotations: t.Annotations, Arguments: args})}
	if who.Kind != auth.KindDev && !set.access.IsAdmin(who) {
		e.Hidden, e.Steps = len(e.Steps), nil
	}
	return e
}

// explain answers which class a tool has and what would happen to a call, with
// the bearer token that the call would be made with.
func (g *Gateway) explain(w http.ResponseWriter, r *http.Request) {
	who, err := g.opt.Auth.Authenticate(r)
	if err != nil {
		g.opt.Auth.Challenge(w, r, err)
		return
	}
	set := g.settings()
	refuse := func(status int, format string, a ...any) {
		writeJSON(w, status, wire.Encode(map[string]string{"error": fmt.Sprintf(format, a...)}))
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, set.cfg.Limits.Body))
	if err != nil {
		refuse(http.StatusBadRequest, "the question could not be read: %v", err)
		return
	}
	var q struct {
		Tool      string          `json:"tool"`
		Arguments json.RawMessage `json:"arguments"`
		Mode      writeguard.Mode `json:"mode"`
		Client    string          `json:"client"`
	}
	if err := json.Unmarshal(body, &q); err != nil || q.Tool == "" {
		refuse(http.StatusBadRequest, `the question must be {"tool":"…","arguments":{…},"mode":"direct|code"}`)
		return
	}
	if q.Mode == "" {
		q.Mode = writeguard.Direct
	}
	if q.Mode != writeguard.Direct && q.Mode != writeguard.Code {
		refuse(http.StatusBadRequest, "mode %q is none of direct, code", bounded(string(q.Mode), 40))
		return
	}
	if bytes.Equal(bytes.TrimSpace(q.Arguments), []byte("null")) {
		q.Arguments = nil
	}
	if _, err := wire.ParseObject(q.Arguments); q.Arguments != nil && err != nil {
		refuse(http.StatusBadRequest, "the arguments must be a JSON object")
		return
	}
	v := g.newView(r.Context(), set, who, "")
	t := v.named(q.Tool)
	if t == nil {
		text := fmt.Sprintf("there is no tool %q for you.", bounded(q.Tool, 80))
		if near := nearestTools(v, q.Tool, 3); len(near) > 0 {
			text += " Near: " + strings.Join(near, ", ") + "."
		}
		refuse(http.StatusNotFound, "%s", text)
		return
	}
	writeJSON(w, http.StatusOK, wire.Encode(g.explanation(set, who, t, bounded(q.Client, 120), q.Mode, q.Arguments)))
}

// guardTools lists a server's tools as the caller sees them, as their server
// defines them.
func (g *Gateway) guardTools(w http.ResponseWriter, r *http.Request) {
	who, err := g.opt.Auth.Authenticate(r)
	if err != nil {
		g.opt.Auth.Challenge(w, r, err)
		return
	}
	v := g.newView(r.Context(), g.settings(), who, "")
	id := r.URL.Query().Get("server")
	s := v.snap.Server(id)
	if s == nil || !v.shows(id) {
		writeJSON(w, http.StatusNotFound, wire.Encode(map[string]string{"error": fmt.Sprintf("there is no server %q for you. %s", bounded(id, 60), serverSentence(v, 600))}))
		return
	}
	out := []ListedTool{}
	for _, t := range s.Tools {
		if v.sees(t) {
			out = append(out, ListedTool{t.Name, t.Outward, t.Description, t.Annotations, t.InputSchema})
		}
	}
	writeJSON(w, http.StatusOK, wire.Encode(map[string]any{"server": id, "state": s.State, "tools": out}))
}

// serverPage lists the tools of a server with what the guard would do.
func (g *Gateway) serverPage(w http.ResponseWriter, r *http.Request, v visitor) {
	view := g.newView(r.Context(), v.set, v.who, "")
	id := chi.URLParam(r, "id")
	s := view.snap.Server(id)
	if s == nil || !view.shows(id) {
		g.message(w, v, http.StatusNotFound, "No such server", "There is no server of that name for you. It may have been removed, or you may not use it.")
		return
	}
	d := pages.ToolsData{Frame: g.frame(v.who, v.csrf), Server: id, Label: s.Title}
	for _, t := range s.Tools {
		if view.sees(t) {
			e := g.explanation(v.set, v.who, t, "", writeguard.Direct, nil)
			d.Tools = append(d.Tools, pages.ToolRow{Path: "/tools/" + url.PathEscape(t.Outward), Name: t.Outward, Description: firstSentence(t.Description, 200), Guard: e.Explanation})
		}
	}
	g.show(g.pages.Tools(w, d))
}

// toolPage says of one tool, and of a call if arguments are given, which class
// it has, who says so, and what the guard would do. It calls nothing.
func (g *Gateway) toolPage(w http.ResponseWriter, r *http.Request, v visitor) {
	view := g.newView(r.Context(), v.set, v.who, "")
	t, ok := view.tool(chi.URLParam(r, "name"))
	if !ok {
		g.message(w, v, http.StatusNotFound, "No such tool", "There is no tool of that name for you. Look it up under Servers.")
		return
	}
	q := r.URL.Query()
	d := pages.ToolData{Frame: g.frame(v.who, v.csrf), Name: t.Outward, Own: t.Name, Server: t.Server, Description: t.Description, Arguments: q.Get("arguments"), Mode: q.Get("mode")}
	mode := writeguard.Direct
	if d.Mode == string(writeguard.Code) {
		mode = writeguard.Code
	}
	var args json.RawMessage
	if text := strings.TrimSpace(d.Arguments); text != "" {
		args = json.RawMessage(text)
		if _, err := wire.ParseObject(args); err != nil {
			args, d.Problem = nil, "The arguments must be a JSON object. What is shown is what holds for the tool whatever they are."
		}
	}
	e := g.explanation(v.set, v.who, t, "", mode, args)
	d.Guard, d.Hidden, d.Judged = e.Explanation, e.Hidden, args != nil
	g.show(g.pages.Tool(w, d))
}
