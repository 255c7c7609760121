package outbound

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// special are networks in the global ranges that are not the Internet: shared,
// for documentation, for benchmarks, or ones that lead to other addresses
// (IANA special-purpose registries; RFC 6890, 6052, 3056, 4380).
var special = func() (out []netip.Prefix) {
	for _, p := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
		"192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16",
		"192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
		"2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
	} {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}()

// global6 is all of IPv6 that is given out for the Internet. Loopback, unique
// local, link local, mapped, translated (64:ff9b::) and discard-only addresses
// lie outside it.
var global6 = netip.MustParsePrefix("2000::/3")

// Public reports whether an address is one of the Internet.
func Public(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	if !ip.IsValid() || (ip.Is6() && !global6.Contains(ip)) {
		return false
	}
	for _, p := range special {
		if p.Contains(ip) {
			return false
		}
	}
	return true
}

// allowed is the admin's list of what may be contacted besides public https.
type allowed struct {
	origins map[string]bool // scheme://host:port
	hosts   map[string]bool // host, https only
	nets    []netip.Prefix  // https only
}

func parseAllowed(list []string) (allowed, error) {
	a := allowed{origins: map[string]bool{}, hosts: map[string]bool{}}
	for _, v := range list {
		if p, err := netip.ParsePrefix(v); err == nil {
			a.nets = append(a.nets, p.Masked())
			continue
		}
		raw, isOrigin := v, strings.Contains(v, "://")
		if !isOrigin {
			raw = "https://" + v
		}
		u, err := url.Parse(raw)
		if err != nil || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" ||
			(u.Scheme != "https" && u.Scheme != "http") || strings.ContainsAny(u.Host, "*?") {
			return a, fmt.Errorf("%q is not an origin such as https://auth.internal:8443, a host, or a network such as 10.1.0.0/16", v)
		}
		if isOrigin || u.Port() != "" {
			a.origins[originOf(u)] = true
		} else {
			a.hosts[strings.ToLower(u.Hostname())] = true
		}
	}
	return a, nil
}

// names reports whether the admin listed this very place.
func (a allowed) names(u *url.URL) bool {
	return a.origins[originOf(u)] || (u.Scheme == "https" && a.hosts[strings.ToLower(u.Hostname())])
}

func (a allowed) contains(ip netip.Addr) bool {
	for _, p := range a.nets {
		if p.Contains(ip.Unmap().WithZone("")) {
			return true
		}
	}
	return false
}

func originOf(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
