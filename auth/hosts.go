package auth

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/mcp-portal/mcp-portal/config"
)

// hostRules say by which names the portal may be reached and from which web
// pages. Without them a page could reach a portal in the user's network by a
// name of its own that it points there (DNS rebinding).
type hostRules struct {
	names    map[string]bool // host names accepted with any port
	exact    map[string]bool // host:port accepted
	loopback bool            // the listener is on loopback: so are its names
	origins  map[string]bool // foreign origins accepted
	public   *url.URL
	dev      bool
}

func newHostRules(cfg *config.Config, public *url.URL, dev bool) (hostRules, error) {
	h := hostRules{names: map[string]bool{}, exact: map[string]bool{}, origins: map[string]bool{}, public: public, dev: dev}
	h.names[public.Hostname()] = true
	if host := listenHost(cfg.Listen); host != "" {
		if ip := net.ParseIP(host); ip == nil || !ip.IsUnspecified() {
			h.names[strings.ToLower(host)] = true
		}
		h.loopback = isLoopback(host)
	}
	for _, v := range cfg.Hosts {
		name, port, ok := splitHost(v)
		switch {
		case !ok:
			return h, fmt.Errorf("hosts: %q is not a host name or host:port", v)
		case port != "":
			h.exact[net.JoinHostPort(name, port)] = true
		default:
			h.names[name] = true
		}
	}
	for _, v := range cfg.Origins {
		o, ok := canonicalOrigin(v)
		if !ok {
			return h, fmt.Errorf("origins: %q is not an origin such as https://app.example.com", v)
		}
		h.origins[o] = true
	}
	return h, nil
}

// GuardHost refuses requests by a Host name that is not the portal's, and from
// web pages that are not its own or configured under origins. It is the
// outermost layer of everything the portal serves. Origins configured by name
// get the CORS headers that a browser client needs; cookies are never shared
// with them.
func (a *Auth) GuardHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := a.state.Load()
		if e := s.hosts.check(r); e != nil {
			a.log.WarnContext(r.Context(), "request refused", "host", short(r.Host), "origin", short(r.Header.Get("Origin")), "remote", a.remote(r), "reason", e.Description)
			writeError(w, e)
			return
		}
		if s.hosts.cors(w, r) {
			return
		}
		if s.dev {
			r = a.dev.prepare(w, r)
		}
		next.ServeHTTP(w, r)
	})
}

func (h *hostRules) check(r *http.Request) *Error {
	name, port, ok := splitHost(r.Host)
	if !ok || !h.knows(name, port) {
		return &Error{Status: 403, Code: CodeHost,
			Description: "the portal does not answer under the host name " + short(r.Host),
			Next:        "if it should, the portal's admin adds that name to hosts: in portal.yaml, or sets url: to the public address"}
	}
	origins := r.Header.Values("Origin")
	switch len(origins) {
	case 0:
		return nil
	case 1:
		if hiddenOwn(origins[0], r) {
			return nil
		}
		if o, ok := canonicalOrigin(origins[0]); ok && h.originOK(o, r) {
			return nil
		}
	}
	return &Error{Status: 403, Code: CodeOrigin,
		Description: "the portal does not take requests from the web page origin " + short(strings.Join(origins, ", ")),
		Next:        "if it should, the portal's admin adds that origin to origins: in portal.yaml"}
}

func (h *hostRules) knows(name, port string) bool {
	return h.names[name] || (port != "" && h.exact[net.JoinHostPort(name, port)]) || (h.loopback && isLoopback(name))
}

func (h *hostRules) originOK(origin string, r *http.Request) bool {
	if h.own(origin, r) || h.origins[origin] {
		return true
	}
	if !h.dev {
		return false
	}
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && isLoopback(u.Hostname())
}

// hiddenOwn reports whether the request is by a page of this very origin that
// was served with Referrer-Policy: no-referrer. Browsers then send Origin:
// null with its forms, as they do for pages without an origin, but say
// same-origin in a header that no page can set (Fetch Metadata).
func hiddenOwn(origin string, r *http.Request) bool {
	return origin == "null" && r.Header.Get("Sec-Fetch-Site") == "same-origin"
}

// own reports whether the origin is that of the portal's own pages: the public
// one, or the one this request came to. TLS may end at a proxy, so the scheme
// of the public origin holds for every name except those of this machine.
func (h *hostRules) own(origin string, r *http.Request) bool {
	if origin == h.public.String() {
		return true
	}
	name, port, ok := splitHost(r.Host)
	if !ok {
		return false
	}
	u := &url.URL{Scheme: "http", Host: name}
	if r.TLS != nil || (h.public.Scheme == "https" && !isLoopback(name)) {
		u.Scheme = "https"
	}
	if strings.Contains(name, ":") {
		u.Host = "[" + name + "]"
	}
	if port != "" {
		u.Host = net.JoinHostPort(name, port)
	}
	own, ok := canonicalOrigin(u.String())
	return ok && own == origin
}

// splitHost reads a Host header value: name in lower case and without
// brackets, port or "".
func splitHost(s string) (name, port string, ok bool) {
	if s == "" || len(s) > 300 || strings.ContainsAny(s, "/\\@?#%, \t") {
		return "", "", false
	}
	u, err := url.Parse("//" + s)
	if err != nil || u.Host != s || u.Hostname() == "" || strings.HasSuffix(s, ":") {
		return "", "", false
	}
	return strings.ToLower(u.Hostname()), u.Port(), true
}

// canonicalOrigin reads a serialized origin (RFC 6454 section 6.2). "null" is
// none. Schemes of browser extensions and editors have origins too.
func canonicalOrigin(s string) (string, bool) {
	if len(s) > 300 || strings.ContainsAny(s, "\\@?#%, \t") {
		return "", false
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Host == "" || u.Hostname() == "" || u.Path != "" || u.User != nil || strings.HasSuffix(u.Host, ":") {
		return "", false
	}
	return u.Scheme + "://" + canonicalHost(u), true
}
