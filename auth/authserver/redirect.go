package authserver

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/mcp-portal/mcp-portal/config"
)

// checkRedirect says why a client may not register a redirect URI.
func checkRedirect(c config.Clients, raw string) error {
	if err := config.CheckRedirect(raw, c.RedirectSchemes); err != nil {
		return err
	}
	u, err := url.Parse(raw)
	if err != nil {
		return errors.New("is not a URI")
	}
	if u.Scheme != "https" || isLoopback(u.Hostname()) || len(c.RedirectHosts) == 0 {
		return nil
	}
	for _, g := range c.RedirectHosts {
		if config.Match(g, strings.ToLower(u.Hostname())) {
			return nil
		}
	}
	return fmt.Errorf("leads to %s, which is not allowed here; the portal's admin can add it to auth.clients.redirect_hosts", u.Hostname())
}

// redirect gives the redirect URI to use for a client, if the one asked for is
// its own and the rules of today allow it. The admin's own clients are as the
// admin wrote them.
func (set *settings) redirect(c *Client, asked string) (string, bool) {
	to, ok := matchRedirect(c.Redirects, asked)
	if ok && c.Kind != KindStatic {
		ok = checkRedirect(set.cfg.Auth.Clients, to) == nil
	}
	return to, ok
}

// matchRedirect gives the redirect URI to use, if the one that is asked for is
// among those registered: equal as text or, for http on loopback, equal but
// for the port (RFC 8252 section 7.3), which native clients choose when they
// run. Nothing asked for means the only one registered.
func matchRedirect(registered []string, asked string) (string, bool) {
	if asked == "" {
		if len(registered) == 1 && config.CheckRedirect(registered[0], []string{schemeOf(registered[0])}) == nil {
			return registered[0], true
		}
		return "", false
	}
	for _, r := range registered {
		if r == asked {
			return asked, true
		}
	}
	if config.CheckRedirect(asked, nil) != nil {
		return "", false
	}
	a, ok := withoutPort(asked)
	if !ok {
		return "", false
	}
	for _, r := range registered {
		if b, ok := withoutPort(r); ok && a == b {
			return asked, true
		}
	}
	return "", false
}

// withoutPort gives an http loopback URI without its port, else false.
func withoutPort(raw string) (string, bool) {
	rest, ok := strings.CutPrefix(raw, "http://")
	if !ok {
		return "", false
	}
	u, err := url.Parse(raw)
	if err != nil || u.User != nil || !isLoopback(u.Hostname()) {
		return "", false
	}
	authority := rest
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority = rest[:i]
	}
	if authority != u.Host {
		return "", false
	}
	host := strings.TrimSuffix(authority, ":"+u.Port())
	return "http://" + host + rest[len(authority):], true
}

func schemeOf(raw string) string {
	scheme, _, _ := strings.Cut(raw, ":")
	return strings.ToLower(scheme)
}

// isLoopback is strict: names below localhost are resolved by some systems.
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// local reports whether whoever runs on the person's machine may answer at a
// redirect URI.
func local(raw string) bool {
	u, err := url.Parse(raw)
	return err != nil || u.Scheme != "https" || isLoopback(u.Hostname())
}

// redirectHost is what a person is shown of where a code goes.
func redirectHost(raw string) string {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return raw
	case u.Scheme == "http" || u.Scheme == "https":
		return u.Host
	}
	return u.Scheme + ":"
}
