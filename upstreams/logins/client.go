package logins

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"github.com/mcp-portal/mcp-portal/auth/clientkey"
	"github.com/mcp-portal/mcp-portal/config"
)

// ClientDocument is the portal's client metadata document, by whose URL
// authorization servers know it that support such (draft-ietf-oauth-client-id-
// metadata-document).
func (l *Logins) ClientDocument() []byte {
	b, err := json.Marshal(map[string]any{
		"client_id":                  l.origin() + ClientPath,
		"client_name":                l.config().Name,
		"client_uri":                 l.origin(),
		"redirect_uris":              []string{l.redirectURI()},
		"grant_types":                []string{"authorization_code", "refresh_token"},
		"response_types":             []string{"code"},
		"token_endpoint_auth_method": "none",
		"application_type":           "web",
	})
	if err != nil {
		return nil // strings and lists of strings always encode
	}
	return b
}

// ServerClientPath is where the document of the portal as a client of one server
// is, where it proves itself by a key.
func ServerClientPath(server string) string {
	return strings.TrimSuffix(ClientPath, ".json") + "/" + server + ".json"
}

// ServerClientDocument is the metadata document by which the portal is known
// where it proves itself by a key; nil: there is none for this server.
func (l *Logins) ServerClientDocument(server string) []byte {
	s, err := l.server(server)
	if err != nil || s.Auth.PrivateKey == "" || s.Auth.ClientID != "" {
		return nil
	}
	key, err := clientkey.New(s.Auth.PrivateKey, s.Auth.PrivateKeyID)
	if err != nil {
		return nil // the configuration was checked
	}
	grants := []string{"authorization_code", "refresh_token"}
	if !s.Auth.Interactive() {
		grants = []string{"client_credentials"}
	}
	b, err := json.Marshal(map[string]any{
		"client_id":                       l.origin() + ServerClientPath(server),
		"client_name":                     l.config().Name,
		"client_uri":                      l.origin(),
		"redirect_uris":                   []string{l.redirectURI()},
		"grant_types":                     grants,
		"response_types":                  []string{"code"},
		"token_endpoint_auth_method":      clientkey.Method,
		"token_endpoint_auth_signing_alg": key.Algorithm(),
		"jwks_uri":                        l.origin() + KeysPath,
		"application_type":                "web",
	})
	if err != nil {
		return nil // strings and lists of strings always encode
	}
	return b
}

// Keys is the JWK set of all keys by which the portal proves itself, for who
// reads it from there: the company IdP, authorization servers of upstreams.
func (l *Logins) Keys() []byte {
	cfg := l.config()
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	add := func(secret config.Secret, id string) {
		if secret == "" {
			return
		}
		key, err := clientkey.New(secret, id)
		if err != nil {
			return // the configuration was checked
		}
		for _, k := range key.Published() {
			if !slices.ContainsFunc(set.Keys, func(have jose.JSONWebKey) bool { return have.KeyID == k.KeyID }) {
				set.Keys = append(set.Keys, k)
			}
		}
	}
	add(cfg.Auth.PrivateKey, cfg.Auth.PrivateKeyID)
	for _, id := range slices.Sorted(maps.Keys(cfg.Servers)) {
		if s := cfg.Servers[id]; s.IsEnabled() && s.Auth.Used() {
			add(s.Auth.PrivateKey, s.Auth.PrivateKeyID)
		}
	}
	b, err := json.Marshal(set)
	if err != nil {
		return nil // public keys always encode
	}
	return b
}

// clientFor is the portal as a client of an authorization server: as the admin
// registered it, by its metadata document, or as it registers itself.
func (l *Logins) clientFor(ctx context.Context, s config.Server, m *serverMeta) (client, error) {
	if s.Auth.ClientID != "" {
		return configured(s, m), nil
	}
	if s.Auth.PrivateKey != "" {
		return l.published(s, m)
	}
	if m.CIMD && l.presentable() {
		return client{ID: l.origin() + ClientPath, Method: "none"}, nil
	}
	if m.Register == "" {
		return client{}, fmt.Errorf("the authorization server %s registers no clients by itself: register the portal there with the redirect URI %s, and set auth.client_id of server %s", show(m.Issuer), l.redirectURI(), s.ID)
	}
	return l.registered(ctx, s, m)
}

// configured is the portal as a client with the id that the admin wrote.
func configured(s config.Server, m *serverMeta) client {
	if s.Auth.PrivateKey != "" {
		return client{ID: s.Auth.ClientID, Method: clientkey.Method, Audience: audienceOf(s.Auth.AssertionAud, "issuer", m.Issuer, m.Token)}
	}
	secret := s.Auth.ClientSecret.Reveal()
	return client{ID: s.Auth.ClientID, Secret: secret, Method: methodFor(secret, m.AuthMethods)}
}

// published is the portal as a client that is known by a metadata document,
// which names the key that it proves itself by.
func (l *Logins) published(s config.Server, m *serverMeta) (client, error) {
	switch {
	case !l.presentable():
		return client{}, fmt.Errorf("with private_key and no client_id the portal is known by a metadata document, which needs url to be public https; register it at the authorization server %s and set auth.client_id of server %s", show(m.Issuer), s.ID)
	case !m.CIMD:
		return client{}, fmt.Errorf("the authorization server %s takes no client metadata documents: register the portal there with the keys at %s, and set auth.client_id of server %s", show(m.Issuer), l.origin()+KeysPath, s.ID)
	}
	return client{ID: l.origin() + ServerClientPath(s.ID), Method: clientkey.Method, Audience: audienceOf(s.Auth.AssertionAud, "issuer", m.Issuer, m.Token)}, nil
}

// audienceOf is whom an assertion names. The issuer was checked; a token
// endpoint is what the other side says, and could be that of another one.
func audienceOf(chosen, otherwise, issuer, token string) string {
	if chosen == "" {
		chosen = otherwise
	}
	if chosen == "token_endpoint" {
		return token
	}
	return issuer
}

// renewedClient is a client of the admin's as it is configured today.
func renewedClient(s config.Server, c client, rec *record) client {
	switch {
	case s.Auth.PrivateKey != "":
		c.Secret, c.Method, c.Audience = "", clientkey.Method, audienceOf(s.Auth.AssertionAud, "issuer", rec.Issuer, rec.Token)
	case s.Auth.ClientSecret != "":
		c.Secret = s.Auth.ClientSecret.Reveal()
		if c.Method == clientkey.Method || c.Method == "none" {
			c.Method = methodFor(c.Secret, nil)
		}
	}
	return c
}

// presentable reports whether an authorization server could read the portal's
// metadata document.
func (l *Logins) presentable() bool {
	u, err := url.Parse(l.origin())
	return err == nil && u.Scheme == "https" && !config.IsLoopback(u.Hostname())
}

// registrationKey names a registration: one per issuer and redirect URI, since
// a portal that moved cannot use the one of its old address.
func (l *Logins) registrationKey(issuer string) string {
	return "upstream-client:" + hash(issuer, l.redirectURI())
}

// registered is the portal's registration at an issuer, made now if there is
// none. Replicas that register at once agree on one.
func (l *Logins) registered(ctx context.Context, s config.Server, m *serverMeta) (client, error) {
	key := l.registrationKey(m.Issuer)
	for range 3 {
		raw, ok, err := l.store.Get(ctx, key)
		if err != nil {
			return client{}, fmt.Errorf("read the registration at %s: %w", show(m.Issuer), err)
		}
		if ok {
			var c client
			plain, _, err := l.clients.Open(ctx, key, string(raw))
			if err == nil && json.Unmarshal(plain, &c) == nil && c.ID != "" {
				return c, nil
			}
			if _, err := l.store.Swap(ctx, key, raw, []byte("-"), 1); err != nil { // unreadable: as if it were not there
				return client{}, fmt.Errorf("drop the unreadable registration at %s: %w", show(m.Issuer), err)
			}
			if err := l.store.Delete(ctx, key); err != nil {
				return client{}, fmt.Errorf("drop the unreadable registration at %s: %w", show(m.Issuer), err)
			}
		}
		c, err := l.register(ctx, s, m)
		if err != nil {
			return client{}, fmt.Errorf("register the portal at the authorization server %s: %w", show(m.Issuer), err)
		}
		plain, err := json.Marshal(c)
		if err != nil {
			return client{}, err
		}
		sealed, err := l.clients.Seal(ctx, key, plain)
		if err != nil {
			return client{}, fmt.Errorf("keep the registration at %s: %w", show(m.Issuer), err)
		}
		created, err := l.store.Create(ctx, key, []byte(sealed), 0)
		if err != nil {
			return client{}, fmt.Errorf("keep the registration at %s: %w", show(m.Issuer), err)
		}
		if created {
			l.log.Info("registered at an authorization server", "server", s.ID, "issuer", m.Issuer)
			return c, nil
		}
	}
	return client{}, fmt.Errorf("keep the registration at %s: others keep changing it", show(m.Issuer))
}

// forgetClient drops a registration that the authorization server does not
// know any more, so that the next sign-in registers anew.
func (l *Logins) forgetClient(ctx context.Context, issuer string, c client) {
	if !c.Registered {
		return
	}
	key := l.registrationKey(issuer)
	raw, ok, err := l.store.Get(ctx, key)
	if err != nil || !ok {
		return
	}
	var have client
	if plain, _, err := l.clients.Open(ctx, key, string(raw)); err == nil && json.Unmarshal(plain, &have) == nil && have.ID != c.ID {
		return // there is a newer one
	}
	if err := l.store.Delete(ctx, key); err != nil {
		l.log.Warn("a registration that does not hold any more was not removed", "issuer", issuer, "error", err)
	}
}

// register makes a registration (RFC 7591).
func (l *Logins) register(ctx context.Context, s config.Server, m *serverMeta) (client, error) {
	method := "none"
	if len(m.AuthMethods) > 0 && !slices.Contains(m.AuthMethods, "none") {
		method = methodFor("wanted", m.AuthMethods)
	}
	kind := "web"
	if u, err := url.Parse(l.redirectURI()); err == nil && config.IsLoopback(u.Hostname()) {
		kind = "native" // only these may have loopback redirect URIs (OpenID Connect Registration 1.0)
	}
	ask := map[string]any{
		"client_name": l.config().Name, "client_uri": l.origin(), "redirect_uris": []string{l.redirectURI()},
		"grant_types": []string{"authorization_code", "refresh_token"}, "response_types": []string{"code"},
		"token_endpoint_auth_method": method, "application_type": kind,
	}
	if u, err := url.Parse(l.origin()); err == nil && u.Scheme != "https" {
		delete(ask, "client_uri") // some demand https
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return client{}, err
	}
	hc, err := l.client(s, m.Register)
	if err != nil {
		return client{}, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.Register, bytes.NewReader(body))
	if err != nil {
		return client{}, errors.New("the address of its registration endpoint is not a URL")
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	resp, err := hc.Do(r)
	if err != nil {
		return client{}, plain(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return client{}, plain(err)
	}
	return parseRegistration(b, resp.StatusCode, m.AuthMethods)
}

// parseRegistration reads an answer of a registration endpoint (RFC 7591
// section 3.2). methods are those that the token endpoint knows.
func parseRegistration(b []byte, status int, methods []string) (client, error) {
	var a struct {
		ID     string `json:"client_id"`
		Secret string `json:"client_secret"`
		Method string `json:"token_endpoint_auth_method"`
		Error  string `json:"error"`
		Text   string `json:"error_description"`
	}
	_ = json.Unmarshal(b, &a) // what cannot be read has no client_id
	switch {
	case status/100 != 2:
		why := strings.TrimSpace(a.Error + " " + a.Text)
		if why != "" {
			why = ": " + show(why)
		}
		return client{}, fmt.Errorf("it answered HTTP %d%s. Register the portal there by hand and set auth.client_id of the server", status, why)
	case a.ID == "":
		return client{}, errors.New("its answer names no client_id")
	}
	c := client{ID: a.ID, Secret: a.Secret, Method: a.Method, Registered: true}
	switch c.Method {
	case "none", "client_secret_basic", "client_secret_post":
	default:
		c.Method = methodFor(c.Secret, methods)
	}
	if c.Secret == "" {
		c.Method = "none"
	}
	return c, nil
}
