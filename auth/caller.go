package auth

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/mcp-portal/mcp-portal/config"
)

// caller is the network address that a request comes from: the peer's or, if
// that is a proxy of auth.proxies, the one that it names last. What stands
// before the last in X-Forwarded-For may be the caller's invention. Invalid: it
// is not known.
func (s *settings) caller(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	ip := peer.Addr().Unmap().WithZone("")
	if !contains(s.proxies, ip) {
		return ip
	}
	list := strings.Join(r.Header.Values("X-Forwarded-For"), ",")
	if strings.TrimSpace(list) == "" {
		return ip
	}
	named, err := netip.ParseAddr(strings.TrimSpace(list[strings.LastIndex(list, ",")+1:]))
	if err != nil {
		return netip.Addr{}
	}
	return named.Unmap().WithZone("")
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
