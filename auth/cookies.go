package auth

import (
	"encoding/base64"
	"net/http"
	"time"
)

const (
	sessionCookie = "mcp_portal"
	loginCookie   = "mcp_portal_login" // binds a sign-in under way to its browser
	devCookie     = "mcp_portal_dev"   // mode none: what the CSRF token belongs to
)

// cookieName adds the prefix that makes browsers refuse the cookie unless it
// is Secure, of this very host and for all paths. Browsers that see the portal
// by plain http, on loopback, would refuse it always.
func (s *settings) cookieName(name string) string {
	if s.https {
		return "__Host-" + name
	}
	return name
}

// cookie builds a cookie that scripts cannot read and other sites cannot make
// a browser send, except by a link. Lax and not Strict: the browser comes back
// from the IdP by such a link.
func (s *settings) cookie(name, value string, age time.Duration) *http.Cookie {
	c := &http.Cookie{Name: s.cookieName(name), Value: value, Path: "/", HttpOnly: true, Secure: s.https,
		SameSite: http.SameSiteLaxMode, MaxAge: int(age / time.Second)}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

// readCookie gives the value of one of our cookies, "" if it is missing or not
// of the form we give out, so that only plausible values cost a look-up.
func (s *settings) readCookie(r *http.Request, name string) string {
	c, err := r.Cookie(s.cookieName(name))
	if err != nil || !isRandom(c.Value) {
		return ""
	}
	return c.Value
}

// isRandom reports whether s has the form of random().
func isRandom(s string) bool {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	return err == nil && len(b) == 32
}
