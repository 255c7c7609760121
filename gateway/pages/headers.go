package pages

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
)

// contentSecurityPolicy allows our one style sheet by its hash and scripts
// from /assets/ only: no inline script, no other origin, no framing.
func contentSecurityPolicy(css string) string {
	sum := sha256.Sum256([]byte(css))
	return "default-src 'none'; script-src 'self'; img-src 'self'; style-src 'sha256-" +
		base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; frame-ancestors 'none'"
}

// headers sets what every page needs: nothing is cached or framed, no address
// leaks to where a link leads, no script of others runs.
func (p *Pages) headers(h http.Header, bindForms bool) {
	csp := p.csp
	if bindForms {
		csp += "; form-action 'self'"
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", csp)
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=()")
	h.Set("Cache-Control", "no-store")
}
