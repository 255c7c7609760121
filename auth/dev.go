package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"time"
)

// devPrincipal is the one user of mode none.
func (s *settings) devPrincipal() *Principal {
	name := s.cfg.Auth.DevUser
	if name == "" {
		name = "dev@localhost"
	}
	id := s.cfg.Auth.DevID
	if id == "" {
		id = "dev"
	}
	p := &Principal{ID: id, Kind: KindDev, Name: name, Groups: slices.Clone(s.cfg.Auth.DevGroups)}
	if strings.Contains(name, "@") {
		p.Email = name
	}
	return p
}

// devCSRF makes CSRF tokens where there is no session. Any web page can make a
// browser send requests to loopback, so the pages of mode none are protected
// as the others are: a token belongs to a cookie, and only who has the key of
// this process can make it from the cookie. Other servers on this machine
// share the browser's cookies, ports do not separate them, but not the key.
type devCSRF struct{ key []byte }

func (d devCSRF) token(cookie string) string {
	m := hmac.New(sha256.New, d.key)
	m.Write([]byte(cookie))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// prepare sees to it that the browser has the cookie, and that the handlers of
// the very first request see it as well.
func (d devCSRF) prepare(w http.ResponseWriter, r *http.Request) *http.Request {
	if c, err := r.Cookie(devCookie); err == nil && isRandom(c.Value) {
		return r
	}
	if r.Method != http.MethodGet || !mayShowPage(r.Header.Get("Accept")) {
		return r
	}
	// Lax: the way back from a server's sign-in comes from another site.
	c := &http.Cookie{Name: devCookie, Value: random(), Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: int((30 * 24 * time.Hour) / time.Second)}
	http.SetCookie(w, c)
	r = r.Clone(r.Context())
	var keep []string
	for _, have := range r.Cookies() {
		if have.Name != devCookie {
			keep = append(keep, have.String())
		}
	}
	r.Header.Set("Cookie", strings.Join(append(keep, devCookie+"="+c.Value), "; "))
	return r
}

func (d devCSRF) of(r *http.Request) string {
	c, err := r.Cookie(devCookie)
	if err != nil || !isRandom(c.Value) {
		return ""
	}
	return d.token(c.Value)
}

// mayShowPage tells who might look at a page from MCP clients and scripts,
// which ask for something else by name.
func mayShowPage(accept string) bool {
	return accept == "" || strings.Contains(accept, "text/html") || strings.Contains(accept, "*/*")
}
