package pages

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

//go:embed templates/*.html
var templateFiles embed.FS

// Pages holds the parsed templates. It is immutable and safe for concurrent
// use.
type Pages struct {
	byName map[string]*template.Template
	assets assets
	style  template.CSS
	csp    string // without form-action
	now    func() time.Time
}

// Frame is what every page shows around its content.
type Frame struct {
	Portal   string          // the portal's name
	User     *auth.Principal // nil: nobody is signed in
	CSRF     string          // value of the csrf field of every form
	SignOut  string          // where the sign-out form posts to; empty: there is no signing out
	SignIn   string          // link to sign in, shown when User is nil; may be empty
	Warnings []string        // banner on top: development mode, store degraded
	Pending  int             // open approvals of the user, shown in the navigation
}

// view is what a template gets.
type view struct {
	Frame
	Title string
	Page  string // name of the template, marks the place in the navigation
	Style template.CSS
	JS    string // path of the script
	Icon  string // path of the icon
	Data  any
}

// New parses the embedded templates.
func New() (*Pages, error) {
	a, err := loadAssets()
	if err != nil {
		return nil, fmt.Errorf("load pages: %w", err)
	}
	p := &Pages{byName: map[string]*template.Template{}, assets: a, now: time.Now}
	p.style = template.CSS(a.css)
	p.csp = contentSecurityPolicy(a.css)
	funcs := template.FuncMap{
		"visible":     writeguard.Visible,
		"visibleJSON": writeguard.VisibleJSON,
		"glance":      glance,
		"time":        func(t time.Time) string { return t.UTC().Format("2 Jan 2006, 15:04:05 UTC") },
		"iso":         func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"span":        p.span,
		"pair":        func(path string, a *writeguard.Approval) listed { return listed{path, a} },
		"plural":      plural,
		"destructive": destructive,
	}
	for _, name := range []string{"home", "approval", "approvals", "run", "plan", "servers", "consent", "connected", "message", "connect", "tools", "tool", "pins"} {
		t, err := template.New("layout.html").Funcs(funcs).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html", "templates/"+name+".html")
		if err != nil {
			return nil, fmt.Errorf("load pages: %w", err)
		}
		p.byName[name] = t.Option("missingkey=error")
	}
	return p, nil
}

// glance is the beginning of arguments, to tell calls apart in a list. It is
// nothing to decide on: the page of the approval shows all.
func glance(args json.RawMessage) string {
	const most = 140
	r := []rune(writeguard.Visible(string(args)))
	if len(r) > most {
		return string(r[:most]) + "…"
	}
	return string(r)
}

// span says how far away a moment is: "in 14 min", "3 h ago".
func (p *Pages) span(t time.Time) string {
	d := t.Sub(p.now()).Round(time.Second)
	past := d < 0
	if past {
		d = -d
	}
	var s string
	switch {
	case d < time.Second:
		return "just now"
	case d < time.Minute:
		s = fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		s = fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		s = fmt.Sprintf("%d h", int(d.Hours()))
	default:
		s = fmt.Sprintf("%d days", int(d.Hours()/24))
	}
	if past {
		return s + " ago"
	}
	return "in " + s
}

// render writes a whole page or, should the template fail, an error page and
// the error: never half a page with a 200.
func (p *Pages) render(w http.ResponseWriter, status int, page, title string, f Frame, data any) error {
	var b bytes.Buffer
	v := view{Frame: f, Title: title, Page: page, Style: p.style, JS: p.assets.path("copy.js"), Icon: p.assets.path("icon.svg"), Data: data}
	// Forms of these lead on to other sites: Chromium holds form-action against
	// the whole chain of redirects.
	p.headers(w.Header(), page != "home" && page != "consent" && page != "connect")
	if err := p.byName[page].ExecuteTemplate(&b, "layout.html", v); err != nil {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = fmt.Fprintln(w, "This page could not be made. The portal's log says why.")
		return fmt.Errorf("render page %s: %w", page, err)
	}
	w.WriteHeader(status)
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("send page %s: %w", page, err)
	}
	return nil
}

// MessageData is a page that only says something.
type MessageData struct {
	Frame
	Status int    // HTTP status
	Title  string // headline
	Text   string // what happened and what to do next
	Link   string // where to go on; empty: the home page
	Label  string // of Link
}

// Message shows one sentence under a headline with the status.
func (p *Pages) Message(w http.ResponseWriter, d MessageData) error {
	if d.Status < 200 || d.Status > 599 {
		d.Status = http.StatusInternalServerError
	}
	if d.Link == "" {
		d.Link, d.Label = "/", "Home"
	}
	return p.render(w, d.Status, "message", d.Title, d.Frame, d)
}
