package auth

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
	"github.com/mcp-portal/mcp-portal/config"
)

// portal is a small portal around an Auth: a home page with a form, an action
// behind it, and /mcp.
type portal struct {
	*rig
	srv *httptest.Server
	cfg *config.Config
}

// startPortal serves over https like in production, or over http on loopback.
func startPortal(t *testing.T, https bool, configure func(url string) *config.Config) *portal {
	t.Helper()
	p := &portal{}
	mux := http.NewServeMux()
	srv := httptest.NewUnstartedServer(mux)
	if https {
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	p.srv, p.cfg = srv, configure(srv.URL)
	p.rig = newRig(t, p.cfg)
	mux.Handle("/", p.GuardHost(p.handler()))
	return p
}

func (p *portal) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/auth/login", p.Login)
	mux.HandleFunc("/auth/callback", p.Callback)
	mux.HandleFunc("/auth/logout", p.Logout)
	mux.HandleFunc("GET /home", func(w http.ResponseWriter, r *http.Request) {
		who, csrf, err := p.Session(r)
		if err != nil {
			p.ErrorPage(w, r, err)
			return
		}
		fmt.Fprintf(w, "user=%s name=%s groups=%s kind=%s csrf=[%s]", who.ID, who.Name, strings.Join(who.Groups, ","), who.Kind, csrf)
	})
	mux.HandleFunc("GET /form", func(w http.ResponseWriter, r *http.Request) {
		_, csrf, err := p.Session(r)
		if err != nil {
			p.ErrorPage(w, r, err)
			return
		}
		w.Header().Set("Referrer-Policy", r.URL.Query().Get("policy"))
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<form method="post" action="/do"><input type="hidden" name="csrf" value="%s"><input type="hidden" name="what" value="it"><button>Go</button></form>`, csrf)
	})
	mux.HandleFunc("POST /do", func(w http.ResponseWriter, r *http.Request) {
		if err := p.CheckCSRF(r); err != nil {
			p.ErrorPage(w, r, err)
			return
		}
		fmt.Fprintf(w, "done %s", r.PostForm.Get("what"))
	})
	return mux
}

// browser gives a browser that trusts the portal's certificate.
func (p *portal) browser(t *testing.T, user string) *authtest.Browser {
	t.Helper()
	b := authtest.NewBrowser(t, user)
	tr := http.DefaultTransport.(*http.Transport).Clone()
	if p.srv.TLS != nil {
		pool := x509.NewCertPool()
		pool.AddCert(p.srv.Certificate())
		tr.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	t.Cleanup(tr.CloseIdleConnections)
	b.HTTP.Transport = tr
	return b
}

func (p *portal) url(path string) string { return p.srv.URL + path }

var csrfRe = regexp.MustCompile(`csrf=\[([^\]]*)\]`)

// csrfOf reads the token from the home page.
func csrfOf(t *testing.T, page *authtest.Page) string {
	t.Helper()
	m := csrfRe.FindStringSubmatch(page.Body)
	if page.Status != 200 || m == nil {
		t.Fatalf("no home page: %d %s", page.Status, page.Body)
	}
	return m[1]
}

// cookies gives the cookies that a browser holds for the portal.
func (p *portal) cookies(t *testing.T, b *authtest.Browser) map[string]string {
	t.Helper()
	u, err := url.Parse(p.srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, c := range b.HTTP.Jar.Cookies(u) {
		out[c.Name] = c.Value
	}
	return out
}

func fakePortal(t *testing.T, https bool, change func(*config.Config)) (*portal, *authtest.IdP) {
	t.Helper()
	idp := authtest.StartFakeIdP(t)
	p := startPortal(t, https, func(url string) *config.Config {
		cfg := oidcConfig(idp)
		cfg.URL = url
		if change != nil {
			change(cfg)
		}
		return cfg
	})
	idp.SetClock(p.clock.now)
	return p, idp
}
