package auth

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mcp-portal/mcp-portal/auth/clientkey"
	"github.com/mcp-portal/mcp-portal/config"
)

const defaultSessionMaxAge = 12 * time.Hour

// settings is what a configuration means here, worked out once and immutable.
type settings struct {
	cfg     *config.Config
	dev     bool     // mode none
	portal  bool     // people's clients sign in at the portal itself
	direct  bool     // access tokens of the IdP are taken
	origin  *url.URL // scheme and host of the portal, nothing else
	https   bool     // the public origin is https: cookies are Secure
	idp     *idp     // nil in mode none
	aud     map[string]bool
	skew    time.Duration
	groups  string // claim path
	maxAge  time.Duration
	service []serviceToken
	hosts   hostRules
	access  *Access
	jobs    []workload
	proxies []netip.Prefix

	key *clientkey.Key // with which the portal proves itself at the IdP; nil: by its secret
	now func() time.Time

	proxyTold atomic.Bool // that a proxy is not believed
}

// newSettings reads a configuration. The configuration was validated by its
// own package; what would open the portal if that had missed it is checked
// again here.
func (a *Auth) newSettings(cfg *config.Config) (*settings, error) {
	if cfg == nil {
		return nil, errors.New("reading sign-in settings: no configuration given")
	}
	s := &settings{cfg: cfg, skew: cfg.Auth.ClockSkew, groups: cfg.Auth.GroupsClaim, maxAge: cfg.Auth.SessionMaxAge, now: a.now}
	if s.groups == "" {
		s.groups = "groups"
	}
	if s.maxAge <= 0 {
		s.maxAge = defaultSessionMaxAge
	}
	if s.skew < 0 {
		return nil, fmt.Errorf("auth.clock_skew is %s; it cannot be negative", s.skew)
	}
	var err error
	if s.origin, err = publicOrigin(cfg); err != nil {
		return nil, err
	}
	s.https = s.origin.Scheme == "https"
	switch cfg.Auth.Mode {
	case "none":
		s.dev = true
		if host := listenHost(cfg.Listen); !isLoopback(host) {
			return nil, fmt.Errorf("auth.mode none accepts everyone, so it works on loopback only, but listen is %q; set listen to 127.0.0.1:PORT or set up auth.mode oidc", cfg.Listen)
		}
		if !isLoopback(s.origin.Hostname()) {
			return nil, fmt.Errorf("auth.mode none accepts everyone, so it works on loopback only, but url is %q; remove url or set up auth.mode oidc", cfg.URL)
		}
	case "oidc":
		if err := checkIssuer(cfg.Auth.Issuer); err != nil {
			return nil, err
		}
		if !s.https && !isLoopback(s.origin.Hostname()) {
			return nil, fmt.Errorf("url is %q; tokens and cookies would travel in clear, so it must be https (plain http is accepted on loopback only)", cfg.URL)
		}
		if cfg.Auth.PrivateKey != "" {
			if s.key, err = clientkey.New(cfg.Auth.PrivateKey, cfg.Auth.PrivateKeyID); err != nil {
				return nil, fmt.Errorf("auth.%w", err)
			}
		}
		s.idp = a.idpFor(cfg.Auth.Issuer)
		s.aud = audiences(cfg.Auth.Audience, s.origin.String())
		s.portal, s.direct = slices.Contains(cfg.Auth.Accept, "portal"), slices.Contains(cfg.Auth.Accept, "idp")
		if len(cfg.Auth.Accept) == 0 {
			s.portal, s.direct = cfg.Auth.ClientID != "", cfg.Auth.ClientID == ""
		}
		if s.portal && cfg.Auth.ClientID == "" {
			return nil, errors.New("auth.accept has portal, so people sign in through the portal, but auth.client_id is not set")
		}
		if s.jobs, err = a.workloads(cfg.Auth.Workloads); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("auth.mode is %q; it must be oidc or none", cfg.Auth.Mode)
	}
	if s.proxies, err = networks(cfg.Auth.Proxies); err != nil {
		return nil, fmt.Errorf("auth.proxies: %w", err)
	}
	if s.service, err = serviceTokens(cfg.Auth.ServiceTokens); err != nil {
		return nil, err
	}
	if s.hosts, err = newHostRules(cfg, s.origin, s.dev); err != nil {
		return nil, err
	}
	s.access = NewAccess(cfg)
	return s, nil
}

// publicOrigin is the origin under which clients know the portal.
func publicOrigin(cfg *config.Config) (*url.URL, error) {
	raw := cfg.URL
	if raw == "" {
		if cfg.Auth.Mode != "none" {
			return nil, errors.New("url is not set; sign-in needs the public https origin of the portal, e.g. https://portal.example.com")
		}
		raw = "http://" + cfg.Listen
	}
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("url is %q; it must be an origin such as https://portal.example.com", raw)
	}
	return &url.URL{Scheme: u.Scheme, Host: canonicalHost(u)}, nil
}

// canonicalHost is the host of a URL in lower case, without the port that its
// scheme implies.
func canonicalHost(u *url.URL) string {
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if (u.Scheme == "https" && port == "443") || (u.Scheme == "http" && port == "80") {
		port = ""
	}
	if port != "" {
		return net.JoinHostPort(host, port)
	}
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

func checkIssuer(issuer string) error {
	u, err := url.Parse(issuer)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		(u.Scheme != "https" && u.Scheme != "http") {
		return fmt.Errorf("auth.issuer is not an issuer URL such as https://login.example.com; copy it from the IdP's discovery document")
	}
	if u.Scheme == "http" && !isLoopback(u.Hostname()) {
		return fmt.Errorf("auth.issuer is %q; keys fetched over plain http could be replaced on the way, so it must be https (http is accepted on loopback only)", issuer)
	}
	return nil
}

// audiences gives the accepted aud values in their canonical form. Both
// resource identifiers that the metadata publishes are meant by the default.
func audiences(list []string, origin string) map[string]bool {
	out := map[string]bool{}
	for _, v := range list {
		out[canonicalAudience(v)] = true
	}
	mcp := canonicalAudience(origin + "/mcp")
	if len(out) == 0 || (len(out) == 1 && out[mcp]) {
		out[mcp] = true
		out[canonicalAudience(origin)] = true
	}
	return out
}

// canonicalAudience evens out what IdPs do to URLs: case of scheme and host,
// the default port, one trailing slash. Anything else must match exactly.
func canonicalAudience(v string) string {
	u, err := url.Parse(v)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.User != nil || u.Fragment != "" {
		return v
	}
	c := *u
	c.Host = canonicalHost(u)
	return strings.TrimSuffix(c.String(), "/")
}

// isLoopback reports whether a host name or address literal can only mean this
// machine.
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return ip != nil && ip.IsLoopback()
}

// listenHost is the host of a listen address; empty means all addresses.
func listenHost(listen string) string {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	return host
}

func decodeHash(s string) ([]byte, bool) {
	h, ok := strings.CutPrefix(s, "sha256:")
	if !ok {
		return nil, false
	}
	b, err := hex.DecodeString(h)
	return b, err == nil && len(b) == 32
}
