package config

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// validator checks what one key alone cannot know. It works on a decoded
// configuration that may already have errors, and is silent about keys that
// are broken, so that one mistake gives one message.
type validator struct {
	*decoder
	c        *Config
	warnings Errors
}

func (v *validator) run() {
	if v.broken[""] {
		return // there is no map of keys to check
	}
	v.top()
	v.auth()
	v.tokens()
	v.servers()
	v.guard()
	v.store()
	v.code()
	v.ceilings()
	v.plainSecrets()
}

// has reports whether the file gives the key.
func (v *validator) has(path string) bool { _, ok := v.keys[path]; return ok }

// place returns where a path stands in the file: its value, or the nearest
// key above it.
func (v *validator) place(path string) position {
	if p, ok := v.values[path]; ok {
		return p
	}
	for i := len(path); i > 0; i-- {
		if i == len(path) || path[i] == '.' || path[i] == '[' {
			if p, ok := v.keys[path[:i]]; ok {
				return p
			}
			if p, ok := v.values[path[:i]]; ok {
				return p
			}
		}
	}
	return position{1, 1}
}

// report adds an error unless the path is already known to be broken.
func (v *validator) report(path, format string, args ...any) {
	if !v.isBroken(path) {
		v.fail(v.place(path), path, format, args...)
	}
}

func (v *validator) warn(path, format string, args ...any) {
	at := v.place(path)
	v.warnings = append(v.warnings, Error{File: v.file, Line: at.line, Column: at.column, Path: path, Message: fmt.Sprintf(format, args...)})
}

func (v *validator) top() {
	c := v.c
	if n := utf8.RuneCountInString(c.Name); n > 100 || strings.ContainsAny(c.Name, "\n\t") {
		v.report("name", "must be one line of at most 100 characters; shorten it")
	}
	if _, _, err := splitListen(c.Listen); err != nil {
		v.report("listen", "%v; write host:port, like 127.0.0.1:8080 or 0.0.0.0:8080", err)
	}
	if c.URL != "" {
		if u := v.webURL("url", c.URL); u != nil {
			if (u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.Fragment != "" {
				v.report("url", "must be an origin without path or query; write %s", origin(u))
			}
			c.URL = origin(u)
		}
	}
	for i, h := range c.Hosts {
		if path := fmt.Sprintf("hosts[%d]", i); h != "" && !validHost(h) {
			v.report(path, "must be a host name with or without a port, as in a Host header; write portal.example.com without https:// or a path")
		}
	}
	for i, o := range c.Origins {
		path := fmt.Sprintf("origins[%d]", i)
		if o == "" || v.isBroken(path) {
			continue
		}
		u, err := url.Parse(o)
		if err != nil || u.Scheme == "" || u.Host == "" || origin(u) != strings.ToLower(o) {
			v.report(path, "must be an origin as browsers send it; write scheme://host or scheme://host:port, like https://app.example.com")
		}
	}
}

// webURL checks an absolute http or https URL that carries no credentials and,
// unless the host is this machine, is https. It returns nil after an error.
func (v *validator) webURL(path, s string) *url.URL {
	if v.isBroken(path) {
		return nil
	}
	u := v.httpURL(path, s)
	if u != nil && u.Scheme == "http" && !IsLoopback(u.Hostname()) {
		v.report(path, "must be https; write https://%s (http is only allowed for localhost)", u.Host)
		return nil
	}
	return u
}

// httpURL checks an absolute http or https URL without credentials. Messages
// never repeat the value, which may hold a password.
func (v *validator) httpURL(path, s string) *url.URL {
	if v.isBroken(path) {
		return nil
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		v.report(path, "is not a URL; write it like https://host.example.com/path")
	case u.Scheme != "http" && u.Scheme != "https":
		v.report(path, "must start with https:// or http://; write it like https://host.example.com/path")
	case u.User != nil:
		v.report(path, "must not contain a user or password; remove the part before @ and use a secret key instead")
	case u.Hostname() == "":
		v.report(path, "has no host; write it like https://host.example.com/path")
	case !validPort(u.Port()):
		v.report(path, "has a port that is not a number from 1 to 65535; correct it")
	case u.Fragment != "":
		v.report(path, "has a fragment; remove the part from #")
	default:
		return u
	}
	return nil
}

func validPort(p string) bool {
	if p == "" {
		return true
	}
	n, err := strconv.Atoi(p)
	return err == nil && n > 0 && n < 65536
}

// origin returns scheme://host[:port] in lower case.
func origin(u *url.URL) string { return strings.ToLower(u.Scheme + "://" + u.Host) }

// IsLoopback reports whether a host name or address without port means this
// machine: localhost, names below it, and the loopback addresses.
func IsLoopback(host string) bool {
	h := strings.TrimSuffix(strings.ToLower(host), ".")
	if h == "localhost" || strings.HasSuffix(h, ".localhost") {
		return true
	}
	ip := net.ParseIP(strings.Trim(h, "[]"))
	return ip != nil && ip.IsLoopback()
}

// splitListen parses host:port of a listener.
func splitListen(s string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, fmt.Errorf("is not host:port")
	}
	port, err = strconv.Atoi(p)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("has a port that is not a number from 0 to 65535")
	}
	if host != "" && net.ParseIP(host) == nil && !validHost(host) {
		return "", 0, fmt.Errorf("has a host that is neither a name nor an address")
	}
	return host, port, nil
}

func joinHostPort(host string, port int) string {
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// validHost checks host or host:port as a Host header carries it.
func validHost(s string) bool {
	u, err := url.Parse("http://" + s)
	return err == nil && u.Host == s && u.Hostname() != "" && u.User == nil && validPort(u.Port()) &&
		!strings.ContainsAny(u.Hostname(), "*?_ ,;'\"!$&()+=") && !strings.HasSuffix(s, ":")
}

func (v *validator) auth() {
	a := &v.c.Auth
	if v.isBroken("auth.mode") || v.isBroken("auth") {
		return
	}
	if a.Mode == "none" {
		v.authNone()
		return
	}
	if a.Issuer == "" {
		v.report("auth.issuer", "is required; write the issuer URL of your identity provider, or auth.mode: none to develop on this machine")
	} else if u := v.webURL("auth.issuer", a.Issuer); u != nil && u.RawQuery != "" {
		v.report("auth.issuer", "has a query; write the issuer exactly as its tokens say it")
	} else if before, _, wellKnown := strings.Cut(a.Issuer, "/.well-known/"); wellKnown {
		v.report("auth.issuer", "is the address of its metadata; write the issuer, which is %s", before)
	}
	if v.c.URL == "" {
		v.report("url", "is required with sign-in; write the public origin of the portal, like https://portal.example.com")
	}
	for i, s := range a.Audience {
		if strings.ContainsAny(s, " \t\n") {
			v.report(fmt.Sprintf("auth.audience[%d]", i), "contains a space; write one audience per item")
		}
	}
	v.privateKey("auth", a.PrivateKey, a.ClientSecret)
	if a.PrivateKey != "" && a.ClientID == "" {
		v.report("auth.client_id", "is required with private_key; write the client id the identity provider gave you")
	}
	if a.ClientSecret != "" && a.ClientID == "" {
		v.report("auth.client_id", "is required with client_secret; write the client id the identity provider gave you")
	}
	if a.ClientID != "" && !contains(a.Scopes, "openid") && len(a.Scopes) > 0 {
		v.report("auth.scopes", "must contain openid for browser sign-in; add it")
	}
	for i, s := range a.Scopes {
		if strings.ContainsAny(s, " \t\n\"\\") {
			v.report(fmt.Sprintf("auth.scopes[%d]", i), "a scope cannot contain spaces or quotes; write one scope per item")
		}
	}
	v.portalAuth()
	for _, k := range []string{"dev_user", "dev_groups"} {
		if path := "auth." + k; v.has(path) {
			v.report(path, "is only for auth.mode: none; remove it")
		}
	}
}

// authNone guards the mode without sign-in: whoever reaches the port is the
// developer, so nobody else may reach it.
func (v *validator) authNone() {
	if host, _, err := splitListen(v.c.Listen); err == nil && !IsLoopback(host) {
		v.report("listen", "auth.mode is none, so anyone who reaches this address could use every tool; listen on 127.0.0.1, or set up sign-in with auth.mode: oidc")
	}
	if u, err := url.Parse(v.c.URL); v.c.URL != "" && err == nil && !IsLoopback(u.Hostname()) {
		v.report("url", "auth.mode is none, which is for this machine only, but the URL is public; remove url, or set up sign-in with auth.mode: oidc")
	}
	for _, k := range []string{"issuer", "audience", "client_id", "client_secret", "private_key", "allow_groups", "accept", "tokens", "clients", "workloads"} {
		if path := "auth." + k; v.has(path) {
			v.warn(path, "has no effect while auth.mode is none")
		}
	}
	v.warn("auth.mode", "there is no sign-in; everyone on this machine is the development user")
}

func (v *validator) tokens() {
	v.encryption()
	ids, hashes := map[string]int{}, map[string]int{}
	for i, t := range v.c.Auth.ServiceTokens {
		base := fmt.Sprintf("auth.service_tokens[%d]", i)
		if t.ID == "" {
			v.report(base+".id", "is required; name the machine, like ci-deploy")
		} else if first, dup := ids[t.ID]; dup {
			v.report(base+".id", "%q is already used by auth.service_tokens[%d]; give each token its own id", t.ID, first)
		} else {
			ids[t.ID] = i
		}
		if t.Hash == "" {
			v.report(base+".hash", "is required; make a token and its hash with: mcp-portal token <id>")
		} else if first, dup := hashes[t.Hash]; dup {
			v.report(base+".hash", "is the same as in auth.service_tokens[%d]; give each machine its own token", first)
		} else {
			hashes[t.Hash] = i
		}
		if (t.PreviousHash == "") != t.PreviousUntil.IsZero() {
			v.report(base+".previous_until", "previous_hash and previous_until belong together; write both, or remove both when every machine has the new token")
		} else if t.PreviousHash != "" && t.PreviousHash == t.Hash {
			v.report(base+".previous_hash", "is the same as hash; it is for the token before")
		}
		v.networks(base+".from", t.From)
		if t.Hash == emptyHash {
			v.report(base+".hash", "is the hash of an empty token; hash the real one")
		}
		for j, id := range t.Servers {
			v.serverRef(fmt.Sprintf("%s.servers[%d]", base, j), id)
		}
		for j, glob := range t.Tools {
			v.toolGlob(fmt.Sprintf("%s.tools[%d]", base, j), glob)
		}
		if !t.Expires.IsZero() && !t.Expires.After(time.Now()) {
			v.warn(base+".expires", "the service token %q has expired and is refused; renew or remove it", t.ID)
		}
	}
}

// emptyHash is what sha256sum prints when the variable was empty.
const emptyHash = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
