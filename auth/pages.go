package auth

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// page is one of the plain pages of sign-in.
type page struct {
	Status         int
	Title, Text    string
	Detail         string // in a box: what the IdP said
	Link, LinkText string
	Retry          time.Duration
}

const pageStyle = `body{font:16px/1.5 system-ui,sans-serif;max-width:36rem;margin:15vh auto;padding:0 1rem;color:#1b1b1f;background:#fff}` +
	`h1{font-size:1.4rem}pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#f0f0f4;padding:.7rem;border-radius:.3rem}` +
	`@media(prefers-color-scheme:dark){body{color:#e8e8ee;background:#17171b}pre{background:#26262c}a{color:#9db8ff}}`

var pageTemplate = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{.Title}} – {{.Portal}}</title><style>` + pageStyle + `</style></head>
<body><main><h1>{{.Title}}</h1><p>{{.Text}}</p>{{if .Detail}}<pre>{{.Detail}}</pre>{{end}}{{if .Link}}<p><a href="{{.Link}}">{{.LinkText}}</a></p>{{end}}</main></body></html>
`))

// pagePolicy lets a page do nothing but show itself (Content Security Policy).
func pagePolicy() string {
	sum := sha256.Sum256([]byte(pageStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

func (a *Auth) page(w http.ResponseWriter, r *http.Request, p page) {
	name := a.state.Load().cfg.Name
	if name == "" {
		name = "MCP Portal"
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", pagePolicy())
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if p.Retry > 0 {
		h.Set("Retry-After", strconv.Itoa(int((p.Retry+time.Second-1)/time.Second)))
	}
	w.WriteHeader(p.Status)
	if err := pageTemplate.Execute(w, struct {
		page
		Portal string
	}{p, name}); err != nil {
		a.log.DebugContext(r.Context(), "page not sent", "title", p.Title, "error", err)
	}
}

func (a *Auth) idpDown(w http.ResponseWriter, r *http.Request, s *settings) {
	a.page(w, r, page{Status: 503, Title: "Sign-in is not possible right now",
		Text: "The portal cannot reach the identity provider at " + s.issuerHost() + ". Who is signed in stays so. Try again in a moment; the portal heals by itself once the identity provider answers.",
		Link: "/auth/login", LinkText: "Try again", Retry: failureBackoff})
}

// loginFailed shows why a sign-in came to nothing.
func (a *Auth) loginFailed(w http.ResponseWriter, r *http.Request, err error) {
	var ans *idpAnswer
	if errors.As(err, &ans) {
		a.log.WarnContext(r.Context(), "sign-in failed at the IdP", "error", err)
		status := 502
		if ans.code == "access_denied" {
			status = 403
		}
		detail := limit(display(ans.code), 100)
		if ans.text != "" {
			detail += "\n" + limit(display(ans.text), 500)
		}
		a.page(w, r, page{Status: status, Title: "Sign-in failed", Text: "The identity provider did not sign you in. It said:", Detail: detail, Link: "/auth/login", LinkText: "Try again"})
		return
	}
	a.ErrorPage(w, r, err)
}

// ErrorPage shows an error of this package to a browser: the description of an
// *Error, the sign-in page for ErrNoSession (for GET), and for anything else
// only that it failed.
func (a *Auth) ErrorPage(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, ErrNoSession) {
		if r.Method == http.MethodGet {
			redirect(w, r, "/auth/login?return_to="+template.URLQueryEscaper(r.URL.RequestURI()))
			return
		}
		a.page(w, r, page{Status: 401, Title: "Your session has ended", Text: "Nothing was done. Sign in and try again.", Link: "/auth/login", LinkText: "Sign in"})
		return
	}
	var e *Error
	if !errors.As(err, &e) {
		a.log.ErrorContext(r.Context(), "sign-in failed", "path", r.URL.Path, "error", err)
		a.page(w, r, page{Status: 500, Title: "Something went wrong", Text: "The portal failed to do this; its log says why.", Link: "/", LinkText: "Go to the home page"})
		return
	}
	a.log.InfoContext(r.Context(), "page refused", "path", r.URL.Path, "remote", a.remote(r), "error", err)
	p := page{Status: e.Status, Title: "Not possible", Text: sentence(e.Description) + " " + sentence(e.Next), Link: "/auth/login", LinkText: "Sign in again", Retry: e.RetryAfter}
	switch e.Status {
	case 403:
		p.Title = "Not allowed"
	case 503:
		p.Title = "Not possible right now"
	}
	if e.Code == CodeCSRF {
		p.Link, p.LinkText = "/", "Go to the home page"
	}
	a.page(w, r, p)
}

// sentence begins with a capital letter and ends with a full stop.
func sentence(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

func limit(s string, n int) string {
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "") + "…"
	}
	return s
}
