package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/mcp-portal/mcp-portal/audit"
	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/gateway/pages"
	"github.com/mcp-portal/mcp-portal/registry"
	"github.com/mcp-portal/mcp-portal/wire"
)

// pinRoutes are for admins: what servers have changed about their tools.
func (g *Gateway) pinRoutes(r chi.Router) {
	r.Get("/pins", g.signedIn(g.pinsPage))
	r.Post("/pins", g.form(g.releaseForm))
	r.Get("/pins/list", g.pinsList)
	r.Post("/pins/release", g.pinsRelease)
}

func (g *Gateway) pinsPage(w http.ResponseWriter, r *http.Request, v visitor) {
	g.showPins(w, v, http.StatusOK, "", "")
}

func (g *Gateway) showPins(w http.ResponseWriter, v visitor, status int, problem, done string) {
	if !g.mayAdmin(v) {
		g.message(w, v, http.StatusForbidden, "Not allowed", "Changed definitions are for members of a group in auth.admins.")
		return
	}
	d := pages.PinsData{Frame: g.frame(v.who, v.csrf), Problem: problem, Done: done}
	for _, p := range g.opt.Registry.Pending() {
		d.Pins = append(d.Pins, pages.PinRow{Server: p.Server, Tool: p.Tool, Digest: p.Digest, New: p.New, Held: p.Held, Differences: registry.Differences(p.Was, p.Now)})
	}
	g.show(g.pages.Pins(w, status, d))
}

func (g *Gateway) releaseForm(w http.ResponseWriter, r *http.Request, v visitor) {
	if !g.mayAdmin(v) {
		g.showPins(w, v, http.StatusForbidden, "", "")
		return
	}
	server, tool := r.PostFormValue("server"), r.PostFormValue("tool")
	switch err := g.releasePin(r.Context(), v.who, server, tool, r.PostFormValue("digest")); {
	case errors.Is(err, registry.ErrNotPending):
		g.showPins(w, v, http.StatusConflict, pinName(server, tool)+": "+err.Error()+". This is how things are now.", "")
	case err != nil:
		g.log.Warn("a definition could not be released", "server", server, "tool", tool, "error", err)
		g.showPins(w, v, http.StatusServiceUnavailable, "Nothing was released: the store cannot be reached. Try again shortly.", "")
	default:
		g.showPins(w, v, http.StatusOK, "", pinName(server, tool))
	}
}

// pinName names a definition: that of a tool, or the words of a server itself.
func pinName(server, tool string) string {
	if tool == "" {
		return server
	}
	return server + "/" + tool
}

// releasePin approves a definition and leaves a line in the audit.
func (g *Gateway) releasePin(ctx context.Context, who *auth.Principal, server, tool, digest string) error {
	err := g.opt.Registry.Release(ctx, server, tool, digest, who.ID)
	ev := audit.Event{ID: randomID(), Time: g.now(), User: who.ID, Method: "pin-release", Server: server, Capability: tool, Status: "ok"}
	if err != nil {
		ev.Status, ev.Error = "error", bounded(err.Error(), 200)
	}
	g.opt.Audit.Record(context.WithoutCancel(ctx), ev)
	return err
}

// adminOf is the admin whose bearer token a request carries, or answers why
// there is none.
func (g *Gateway) adminOf(w http.ResponseWriter, r *http.Request) (*auth.Principal, bool) {
	who, err := g.opt.Auth.Authenticate(r)
	if err != nil {
		g.opt.Auth.Challenge(w, r, err)
		return nil, false
	}
	if !g.mayAdmin(visitor{who: who, set: g.settings()}) {
		writeJSON(w, http.StatusForbidden, []byte(`{"error":"changed definitions are for members of a group in auth.admins"}`))
		return nil, false
	}
	return who, true
}

// pinsList answers what is pending as JSON, for the command line.
func (g *Gateway) pinsList(w http.ResponseWriter, r *http.Request) {
	if _, ok := g.adminOf(w, r); !ok {
		return
	}
	list := g.opt.Registry.Pending()
	if list == nil {
		list = []*registry.Pending{}
	}
	writeJSON(w, http.StatusOK, wire.Encode(list))
}

// pinsRelease releases one definition, for the command line. A form of another
// site cannot have this content type.
func (g *Gateway) pinsRelease(w http.ResponseWriter, r *http.Request) {
	who, ok := g.adminOf(w, r)
	if !ok {
		return
	}
	refuse := func(status int, text string) {
		writeJSON(w, status, wire.Encode(map[string]string{"error": text}))
	}
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != wire.TypeJSON {
		refuse(http.StatusUnsupportedMediaType, "send application/json")
		return
	}
	var q struct{ Server, Tool, Digest string }
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
	if err != nil || json.Unmarshal(body, &q) != nil || q.Server == "" || q.Digest == "" {
		refuse(http.StatusBadRequest, `the body must be {"server":"…","tool":"…","digest":"…"}; an empty tool is the server itself`)
		return
	}
	switch err := g.releasePin(r.Context(), who, q.Server, q.Tool, q.Digest); {
	case errors.Is(err, registry.ErrNotPending):
		refuse(http.StatusConflict, pinName(q.Server, q.Tool)+": "+err.Error())
	case err != nil:
		refuse(http.StatusServiceUnavailable, err.Error())
	default:
		writeJSON(w, http.StatusOK, wire.Encode(map[string]string{"released": pinName(q.Server, q.Tool)}))
	}
}

// pinWarnings tell admins on every page that something waits for them.
func (g *Gateway) pinWarnings(v visitor) []string {
	if v.who == nil || !g.mayAdmin(v) {
		return nil
	}
	held, changed := 0, 0
	for _, p := range g.opt.Registry.Pending() {
		if p.Held {
			held++
		} else if !p.New {
			changed++
		}
	}
	var out []string
	if held > 0 {
		out = append(out, fmt.Sprintf("Held back because servers changed what they say about their tools or themselves, or list tools newly: %d. Look at the changes on the page /pins.", held))
	}
	if changed > 0 {
		out = append(out, fmt.Sprintf("In use although servers changed what they say about their tools or themselves: %d. Look at the changes on the page /pins.", changed))
	}
	return out
}
