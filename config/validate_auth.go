package config

import (
	"fmt"
	"net/textproto"
	"net/url"
	"strings"
)

// privateKey checks how the portal proves itself as a client.
func (v *validator) privateKey(base string, key, secret Secret) {
	path := base + ".private_key"
	if v.isBroken(path) {
		return
	}
	if key == "" {
		for _, k := range []string{".private_key_id", ".assertion_audience"} {
			if v.has(base + k) {
				v.report(base+k, "is only for private_key; remove it")
			}
		}
		return
	}
	if secret != "" {
		v.report(path, "private_key and client_secret are both given; keep one of them")
	}
	if _, err := ParsePrivateKeys(key); err != nil {
		v.report(path, "%v", err)
	}
}

// serverAuth checks how the portal signs in at a remote server.
func (v *validator) serverAuth(path string, s Server, u *url.URL) {
	base := path + ".auth"
	key := func(name string) string { return base + "." + name }
	a := s.Auth
	if v.isBroken(base) || v.isBroken(key("type")) || !v.has(base) {
		return
	}
	if !a.Used() {
		for _, k := range []string{"on_behalf", "catalog", "issuer", "client_id", "client_secret", "private_key", "private_key_id", "assertion_audience", "scopes", "resource", "audience", "subject"} {
			if v.has(key(k)) {
				v.report(key(k), "has no meaning without auth.type; write type: oauth beside it, or remove it")
			}
		}
		return
	}
	if s.Bearer != "" {
		v.report(path+".bearer", "bearer and auth.type %s are both given; keep one of them", a.Type)
	}
	for name := range s.Headers {
		if textproto.CanonicalMIMEHeaderKey(name) == "Authorization" {
			v.report(join(path+".headers", name), "Authorization and auth.type %s are both given; keep one of them", a.Type)
		}
	}
	if u != nil && u.Scheme == "http" && !IsLoopback(u.Hostname()) {
		v.report(path+".url", "must be https, because auth sends tokens there; write https://%s", u.Host)
	}
	only := func(name string, types ...string) {
		if v.has(key(name)) && !contains(types, a.Type) {
			v.report(key(name), "is only for type %s; remove it", strings.Join(types, " and "))
		}
	}
	only("on_behalf", AuthOAuth)
	only("audience", AuthTokenExchange)
	only("subject", AuthTokenExchange)
	if v.has(key("catalog")) && !a.PerUser() {
		v.report(key("catalog"), "is only for servers where each user has a token of their own (on_behalf, token_exchange, id_jag); remove it")
	}
	if a.Issuer != "" {
		if iss := v.webURL(key("issuer"), a.Issuer); iss != nil && iss.RawQuery != "" {
			v.report(key("issuer"), "has a query; write the issuer as its metadata says it")
		}
	}
	if a.ClientSecret != "" && a.ClientID == "" {
		v.report(key("client_id"), "is required with client_secret; write the id of the client it belongs to")
	}
	v.privateKey(base, a.PrivateKey, a.ClientSecret)
	switch {
	case a.PrivateKey != "" && a.ClientID == "" && a.FromIDP():
		v.report(key("client_id"), "is required with private_key for type %s; write the id of the client it belongs to", a.Type)
	case a.PrivateKey != "":
	case a.Type == AuthClientCredentials, a.Type == AuthIDJAG:
		if a.ClientID == "" {
			v.report(key("client_id"), "is required for type %s; register the portal at the server's authorization server", a.Type)
		} else if a.ClientSecret == "" && a.Type == AuthClientCredentials {
			v.report(key("client_secret"), "is required for type %s, or private_key", a.Type)
		}
	}
	if a.FromIDP() {
		switch {
		case v.c.Auth.Mode == "none":
			v.report(key("type"), "%s needs sign-in, because it is the user's token of the identity provider that is exchanged; set auth.mode: oidc", a.Type)
		case v.c.Auth.ClientID == "" && (a.Type == AuthIDJAG || a.ClientID == ""):
			v.report(key("type"), "%s needs the portal to be a client of the identity provider; set auth.client_id and auth.client_secret", a.Type)
		}
	}
	if a.Resource != "auto" && a.Resource != "omit" && !v.isBroken(key("resource")) {
		r, err := url.Parse(a.Resource)
		if err != nil || !r.IsAbs() || r.Fragment != "" {
			v.report(key("resource"), "is not a resource; write auto, omit or an absolute URI without a fragment, like https://tracker.example.com/mcp or api://tracker")
		}
	}
	for i, sc := range a.Scopes {
		if strings.ContainsAny(sc, " \t\n\"\\") {
			v.report(fmt.Sprintf("%s[%d]", key("scopes"), i), "a scope cannot contain spaces or quotes; write one scope per item")
		}
	}
}
