package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// portalAuth checks what the portal's own authorization server needs.
func (v *validator) portalAuth() {
	a := &v.c.Auth
	if v.has("auth.accept") && !v.isBroken("auth.accept") {
		if len(a.Accept) == 0 {
			v.report("auth.accept", "is empty, so nobody could sign in; write [portal], [idp] or both, or remove the key")
		}
		if slices.Contains(a.Accept, "portal") && a.ClientID == "" {
			v.report("auth.client_id", "is required, since people sign in through the portal (auth.accept: portal); register the portal at the identity provider and write the client id, or set auth.accept: [idp]")
		}
	}
	if a.Tokens.Refresh > a.Tokens.Grant {
		v.report("auth.tokens.refresh", "is longer than auth.tokens.grant, which ends the sign-in in any case; make it shorter, or grant longer")
	}
	if a.Tokens.Access > a.Tokens.Refresh {
		v.report("auth.tokens.access", "is longer than auth.tokens.refresh; make it shorter, since an access token is checked less often")
	}
	for i, s := range a.Clients.RedirectSchemes {
		if slices.Contains(unsafeSchemes, s) {
			v.report(fmt.Sprintf("auth.clients.redirect_schemes[%d]", i), "%s is not a scheme that an application can own; remove it", s)
		}
	}
	v.staticClients()
	v.workloads()
	v.networks("auth.proxies", a.Proxies)
	v.loginParameters()
}

// unsafeSchemes run, show or fetch what follows them instead of opening an
// application, or are not for this list.
var unsafeSchemes = []string{"http", "https", "javascript", "data", "vbscript", "file", "blob", "about", "ftp", "ws", "wss", "mailto", "view-source", "filesystem"}

func (v *validator) staticClients() {
	ids := map[string]int{}
	for i, c := range v.c.Auth.Clients.Static {
		base := fmt.Sprintf("auth.clients.static[%d]", i)
		if c.ID == "" {
			v.report(base+".id", "is required; write the client_id that the client is configured with")
		} else if first, dup := ids[c.ID]; dup {
			v.report(base+".id", "%q is already used by auth.clients.static[%d]; give each client its own id", c.ID, first)
		} else {
			ids[c.ID] = i
		}
		if len(c.Redirects) == 0 {
			v.report(base+".redirects", "is required; write the redirect URIs of the client, like http://127.0.0.1/callback")
		}
		for j, r := range c.Redirects {
			path := fmt.Sprintf("%s.redirects[%d]", base, j)
			if err := CheckRedirect(r, append(slices.Clone(v.c.Auth.Clients.RedirectSchemes), schemeOf(r))); err != nil && !v.isBroken(path) {
				v.report(path, "%v", err)
			}
		}
		if c.IDJAG && c.SecretHash == "" {
			v.report(base+".id_jag", "needs secret_hash, since whoever finds an assertion could bring it otherwise; give the client a secret")
		}
		if c.Consent == "never" && c.SecretHash == "" && slices.ContainsFunc(c.Redirects, mayBeAnyone) {
			v.report(base+".consent", "cannot be never for a public client whose redirect URI any program can answer at (loopback or a private-use scheme); remove it, or give the client a secret")
		}
	}
}

// mayBeAnyone reports whether a redirect URI is answered by whoever runs on
// the person's machine.
func mayBeAnyone(raw string) bool {
	u, err := url.Parse(raw)
	return err != nil || u.Scheme != "https" || IsLoopback(u.Hostname())
}

func schemeOf(raw string) string {
	scheme, _, _ := strings.Cut(raw, ":")
	if s := strings.ToLower(scheme); !slices.Contains(unsafeSchemes, s) {
		return s
	}
	return ""
}

func (v *validator) workloads() {
	ids := map[string]bool{}
	for _, t := range v.c.Auth.ServiceTokens {
		ids[t.ID] = true
	}
	for i, w := range v.c.Auth.Workloads {
		base := fmt.Sprintf("auth.workloads[%d]", i)
		switch {
		case w.ID == "":
			v.report(base+".id", "is required; name the machine, like deploy-job")
		case ids[w.ID]:
			v.report(base+".id", "%q is already used by another workload or service token; give each its own id", w.ID)
		}
		ids[w.ID] = true
		if w.Issuer == "" {
			v.report(base+".issuer", "is required; write the iss of its tokens, like https://token.actions.githubusercontent.com")
		} else if v.webURL(base+".issuer", w.Issuer); w.Issuer == v.c.Auth.Issuer {
			v.report(base+".issuer", "is the identity provider of people; use its groups instead")
		}
		if w.JWKS != "" {
			v.webURL(base+".jwks", w.JWKS)
		}
		if len(w.Claims) == 0 {
			v.report(base+".claims", "is required; without a rule every machine of that issuer would get in. Write what its token must say, like repository: [example/portal]")
		}
		for name, patterns := range w.Claims {
			path := base + ".claims." + name
			if len(patterns) == 0 {
				v.report(path, "has no pattern; write what the claim must say")
			}
			for j, g := range patterns {
				if strings.Trim(g, "*") == "" {
					v.report(fmt.Sprintf("%s[%d]", path, j), "matches everything; write what the claim must say")
				}
			}
		}
		for j, id := range w.Servers {
			v.serverRef(fmt.Sprintf("%s.servers[%d]", base, j), id)
		}
		for j, glob := range w.Tools {
			v.toolGlob(fmt.Sprintf("%s.tools[%d]", base, j), glob)
		}
	}
}

// encryption checks the keys that seal, and the hosts that may be contacted.
func (v *validator) encryption() {
	seen := map[string]bool{}
	for i, k := range v.c.Auth.EncryptionKeys {
		path := fmt.Sprintf("auth.encryption_keys[%d]", i)
		if v.isBroken(path) {
			continue
		}
		id, _, err := ParseKey(k)
		switch {
		case err != nil:
			v.report(path, "%v", err)
		case seen[id]:
			v.report(path, "has the id %s of another key; give each its own", id)
		}
		seen[id] = true
	}
	for i, h := range v.c.Auth.PrivateHosts {
		path := fmt.Sprintf("auth.private_hosts[%d]", i)
		if _, err := netip.ParsePrefix(h); err == nil || v.isBroken(path) {
			continue
		}
		if host := h; !strings.Contains(h, "://") {
			if !validHost(host) {
				v.report(path, "is not an origin, a host or a network; write https://auth.internal:8443, auth.internal or 10.1.0.0/16")
			}
			continue
		}
		if u := v.httpURL(path, h); u != nil && (strings.Trim(u.Path, "/") != "" || u.RawQuery != "") {
			v.report(path, "must be an origin without path or query; write %s", origin(u))
		}
	}
}

// ParseNetwork reads a network such as 10.1.0.0/16, or one address.
func ParseNetwork(s string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Masked(), nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, errors.New("is not a network; write it like 10.1.0.0/16, or one address")
	}
	return netip.PrefixFrom(a, a.BitLen()), nil
}

func (v *validator) networks(path string, list []string) {
	for i, n := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		if _, err := ParseNetwork(n); err != nil && !v.isBroken(at) {
			v.report(at, "%v", err)
		}
	}
}

// ownLoginParameters are those of the portal's own request to the IdP.
var ownLoginParameters = []string{"response_type", "client_id", "redirect_uri", "scope", "state", "nonce", "code_challenge", "code_challenge_method", "response_mode", "request", "request_uri"}

func (v *validator) loginParameters() {
	for name := range v.c.Auth.LoginParams {
		if path := join("auth.login_parameters", name); slices.Contains(ownLoginParameters, strings.ToLower(name)) {
			v.report(path, "is for the portal to say; remove it")
		}
	}
}

var keyIDPattern = regexp.MustCompile(`^[A-Za-z0-9-]{1,32}$`)

// ParseKey reads one of auth.encryption_keys: "id:base64" with 32 bytes. The
// error does not repeat it.
func ParseKey(s Secret) (id string, key []byte, err error) {
	id, text, ok := strings.Cut(strings.TrimSpace(s.Reveal()), ":")
	key, err = base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if !ok || err != nil || len(key) != 32 || !keyIDPattern.MatchString(id) {
		return "", nil, errors.New("is not a key of the form id:base64 with 32 bytes; make one with: mcp-portal key")
	}
	return id, key, nil
}

// CheckRedirect reports why a redirect URI could lead a code to somebody else
// than the client: it must be https, http on loopback (RFC 8252 section 7.3),
// or of one of the private-use schemes given (section 7.1), without fragment,
// user or wildcard.
func CheckRedirect(raw string, schemes []string) error {
	for i := range len(raw) {
		if c := raw[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("\\\"<>^`{|}*", c) >= 0 {
			return errors.New("has a character that a redirect URI cannot have; write it out plainly, percent-encoded where needed")
		}
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Scheme == "" || len(raw) > 2048:
		return errors.New("is not an absolute URI of at most 2048 bytes; write it like https://client.example.com/callback or http://127.0.0.1/callback")
	case u.Fragment != "" || strings.Contains(raw, "#"):
		return errors.New("has a fragment; remove the part from #")
	case u.User != nil:
		return errors.New("has a user; remove the part before @")
	case u.Scheme == "https" || u.Scheme == "http":
		if u.Hostname() == "" || u.Opaque != "" || !validPort(u.Port()) || strings.HasSuffix(u.Host, ":") {
			return errors.New("has no usable host; write it like https://client.example.com/callback")
		}
		if u.Scheme == "http" && !loopbackRedirect(u.Hostname()) {
			return errors.New("is http, which is for loopback only; write https, or http://127.0.0.1")
		}
		for _, seg := range strings.Split(u.EscapedPath(), "/") {
			if d, err := url.PathUnescape(seg); err != nil || d == "." || d == ".." {
				return errors.New("has a path with dot segments; write it out plainly")
			}
		}
		return nil
	case slices.Contains(unsafeSchemes, u.Scheme) || !slices.Contains(schemes, u.Scheme):
		return fmt.Errorf("has the scheme %s, which is not allowed; use https or http://127.0.0.1, or let the portal's admin add the scheme to auth.clients.redirect_schemes", u.Scheme)
	case u.Host == "" && u.Path == "" && u.Opaque == "":
		return errors.New("leads nowhere; write scheme://host/path or scheme:/path")
	}
	return nil
}

// loopbackRedirect is stricter than IsLoopback: names below localhost are
// resolved by some systems.
func loopbackRedirect(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
