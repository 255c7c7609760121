package pages

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

// TestText puts hostile text everywhere: it must come out as text.
func TestText(t *testing.T) {
	p := newPages(t)
	for _, evil := range []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onfocus=alert(1) autofocus '`, `javascript:alert(1)`,
		`</style><script>alert(1)</script>`, `</title><script>alert(1)</script>`, `{{.CSRF}}`, `&lt;script&gt;`, "</pre>\x00<svg/onload=alert(1)>", `--><b>`,
	} {
		f := Frame{Portal: evil, CSRF: evil, SignOut: evil, SignIn: evil, Warnings: []string{evil},
			User: &auth.Principal{ID: evil, Name: evil, Email: "x" + evil, Groups: []string{evil}}}
		quoted, _ := json.Marshal(map[string]string{"a": evil, evil: "b"})
		a := &writeguard.Approval{ID: evil, User: evil, UserName: evil, Client: evil, Server: evil, Tool: evil, Class: writeguard.Class(evil), Why: evil, Rule: evil,
			Reason: evil, Arguments: quoted, Mode: writeguard.Code, Run: evil, State: writeguard.Pending, DecidedBy: evil, Note: evil, Created: noon, Expires: noon}
		s := []Server{{ID: evil, Title: evil, Description: evil, State: evil, Reason: evil, Transport: evil, Warnings: []string{evil}, Toggle: &Toggle{Action: evil}}}
		for name, page := range map[string]func(http.ResponseWriter) error{
			"home": func(w http.ResponseWriter) error {
				return p.Home(w, HomeData{Frame: f, Endpoint: "https://x.example/mcp", Servers: s, Problem: evil})
			},
			"approval": func(w http.ResponseWriter) error {
				return p.Approval(w, ApprovalData{Frame: f, Approval: a, Action: evil, Problem: evil})
			},
			"approvals": func(w http.ResponseWriter) error {
				return p.Approvals(w, ApprovalsData{Frame: f, Approvals: []*writeguard.Approval{a}, Path: evil, Problem: evil})
			},
			"servers": func(w http.ResponseWriter) error {
				return p.Servers(w, ServersData{Frame: f, Servers: s, Problem: evil})
			},
			"message": func(w http.ResponseWriter) error {
				return p.Message(w, MessageData{Frame: f, Status: 400, Title: evil, Text: evil, Link: evil, Label: evil})
			},
		} {
			doc, _ := get(t, page)
			if n := len(doc.all("script")); n != 1 {
				t.Errorf("%s with %q: %d scripts", name, evil, n)
			}
			if len(doc.all("img"))+len(doc.all("b", "onload", "alert(1)"))+len(doc.all("title"))-1 != 0 {
				t.Errorf("%s with %q: an element was made of text", name, evil)
			}
			if n := len(doc.all("svg")); n != 1 {
				t.Errorf("%s with %q: %d svg", name, evil, n)
			}
			noHandlers(t, name+" with "+evil, doc)
			if !strings.Contains(doc.text, writeguard.Visible(evil)) {
				t.Errorf("%s does not show %q", name, evil)
			}
		}
	}
}

func noHandlers(t *testing.T, what string, n *node) {
	t.Helper()
	for k, v := range n.attrs {
		if strings.HasPrefix(k, "on") || k == "style" || k == "autofocus" || (k == "href" || k == "action" || k == "src") && strings.HasPrefix(strings.ToLower(v), "javascript:") {
			t.Errorf("%s: <%s %s=%q>", what, n.name, k, v)
		}
	}
	for _, k := range n.kids {
		noHandlers(t, what, k)
	}
}

func TestHeaders(t *testing.T) {
	p := newPages(t)
	for name, page := range map[string]func(http.ResponseWriter) error{
		"home": func(w http.ResponseWriter) error { return p.Home(w, homeData()) },
		"approval": func(w http.ResponseWriter) error {
			return p.Approval(w, ApprovalData{Frame: frame(), Approval: approval()})
		},
		"approvals": func(w http.ResponseWriter) error { return p.Approvals(w, ApprovalsData{Frame: frame()}) },
		"servers":   func(w http.ResponseWriter) error { return p.Servers(w, ServersData{Frame: frame()}) },
		"message":   func(w http.ResponseWriter) error { return p.Message(w, MessageData{Frame: frame(), Status: 404}) },
	} {
		_, w := get(t, page)
		h := w.Header()
		for k, want := range map[string]string{"X-Frame-Options": "DENY", "Referrer-Policy": "same-origin", "Cache-Control": "no-store",
			"X-Content-Type-Options": "nosniff", "Content-Type": "text/html; charset=utf-8"} {
			if h.Get(k) != want {
				t.Errorf("%s: %s is %q", name, k, h.Get(k))
			}
		}
		csp := h.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "style-src 'sha256-"} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: no %s in %s", name, want, csp)
			}
		}
		if strings.Contains(csp, "unsafe") || strings.Contains(csp, "form-action 'self'") != (name != "home") {
			t.Errorf("%s: %s", name, csp)
		}
		if strings.Contains(w.Body.String(), "http://") || strings.Count(w.Body.String(), "https://") > 0 && name != "home" {
			t.Errorf("%s refers to another address", name)
		}
	}
}
