package auth

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/mcp-portal/mcp-portal/auth/authserver"
	"github.com/mcp-portal/mcp-portal/auth/outbound"
	"github.com/mcp-portal/mcp-portal/config"
)

// caller is the network address that a request comes from: the peer's or, if
// that is a proxy of auth.proxies, the last in X-Forwarded-For that is none.
// What stands before it may be the caller's invention. Invalid: it is not known.
func (s *settings) caller(r *http.Request) netip.Addr {
	ip := authserver.Peer(r)
	if !contains(s.proxies, ip) {
		return ip
	}
	list := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i, entry := range slices.Backward(list) {
		entry = strings.TrimSpace(entry)
		if entry == "" && len(list) == 1 {
			break // it names nobody: the request is the proxy's own
		}
		named, ok := parseForwarded(entry)
		if !ok {
			return netip.Addr{}
		}
		if ip = named; i == 0 || !contains(s.proxies, ip) {
			break
		}
	}
	return ip
}

// parseForwarded reads an entry of X-Forwarded-For; some proxies add the port.
func parseForwarded(s string) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	if err != nil {
		ap, err := netip.ParseAddrPort(s)
		if err != nil {
			return netip.Addr{}, false
		}
		ip = ap.Addr()
	}
	return ip.Unmap().WithZone(""), true
}

// callerOf is caller for whoever counts or logs requests by it.
func (a *Auth) callerOf(r *http.Request) netip.Addr {
	s := a.state.Load()
	if r.Header.Get("X-Forwarded-For") != "" {
		if peer := authserver.Peer(r); !outbound.Public(peer) && !contains(s.proxies, peer) && !s.proxyTold.Swap(true) {
			a.log.WarnContext(r.Context(), "a request has X-Forwarded-For, but who sent it is not among the proxies that are believed, so everybody behind it counts as one address for the limits of sign-in. If it is your reverse proxy, list it under auth.proxies", "peer", peer)
		}
	}
	return s.caller(r)
}

// remote is callerOf for the log.
func (a *Auth) remote(r *http.Request) string {
	if ip := a.state.Load().caller(r); ip.IsValid() {
		return ip.String()
	}
	return r.RemoteAddr
}

func contains(nets []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(nets, func(p netip.Prefix) bool { return p.Contains(ip) })
}

func networks(list []string) (out []netip.Prefix, err error) {
	for _, v := range list {
		p, err := config.ParseNetwork(v)
		if err != nil {
			return nil, fmt.Errorf("%q %w", v, err)
		}
		out = append(out, p)
	}
	return out, nil
}
