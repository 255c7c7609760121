package logins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/mcp-portal/mcp-portal/config"
)

// resourceMeta is the metadata of a protected resource (RFC 9728).
type resourceMeta struct {
	Resource string   `json:"resource"`
	Servers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported"`
}

// serverMeta is the metadata of an authorization server (RFC 8414, OpenID
// Connect Discovery 1.0).
type serverMeta struct {
	Issuer       string   `json:"issuer"`
	Authorize    string   `json:"authorization_endpoint"`
	Token        string   `json:"token_endpoint"`
	Register     string   `json:"registration_endpoint"`
	Revoke       string   `json:"revocation_endpoint"`
	Scopes       []string `json:"scopes_supported"`
	AuthMethods  []string `json:"token_endpoint_auth_methods_supported"`
	PKCE         []string `json:"code_challenge_methods_supported"`
	IssParameter bool     `json:"authorization_response_iss_parameter_supported"`
	CIMD         bool     `json:"client_id_metadata_document_supported"`

	legacy bool // of a server without metadata (2025-03-26)
}

// errAbsent means that there is no document at an address.
var errAbsent = errors.New("there is no such document")

// getJSON reads a document.
func (l *Logins) getJSON(ctx context.Context, s config.Server, from string, into any) error {
	c, err := l.client(s, from)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return errors.New("its address is not a URL")
	}
	r.Header.Set("Accept", "application/json")
	resp, err := c.Do(r)
	if err != nil {
		return plain(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return plain(err)
	}
	switch {
	case resp.StatusCode/100 == 4:
		return errAbsent
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("it answered HTTP %d", resp.StatusCode)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return errors.New("the answer is not the JSON document that was expected")
	}
	return nil
}

// plain drops the URL that net/http puts before every error.
func plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// wellKnown inserts a well-known path between host and path (RFC 8615 as RFC
// 9728 and 8414 use it).
func wellKnown(base *url.URL, name string) string {
	u := url.URL{Scheme: base.Scheme, Host: base.Host, Path: "/.well-known/" + name + strings.TrimSuffix(base.Path, "/")}
	return u.String()
}

// metadataURLs are where the metadata of an issuer may be, in the order that
// MCP prescribes (2025-11-25, authorization, "Authorization Server Metadata
// Discovery").
func metadataURLs(issuer string) []string {
	u, err := url.Parse(issuer)
	if err != nil {
		return nil
	}
	out := []string{wellKnown(u, "oauth-authorization-server"), wellKnown(u, "openid-configuration")}
	if strings.Trim(u.Path, "/") != "" {
		out = append(out, strings.TrimSuffix(issuer, "/")+"/.well-known/openid-configuration")
	}
	return out
}

// serverMetadata reads and checks the metadata of an issuer.
func (l *Logins) serverMetadata(ctx context.Context, s config.Server, issuer string) (*serverMeta, error) {
	if err := l.checkEndpoint(s, issuer); err != nil {
		return nil, fmt.Errorf("the authorization server %s %w", show(issuer), err)
	}
	for _, at := range metadataURLs(issuer) {
		var m serverMeta
		err := l.getJSON(ctx, s, at, &m)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading the metadata of the authorization server %s: %w", show(issuer), err)
		}
		if err := l.checkMeta(s, issuer, &m); err != nil {
			return nil, fmt.Errorf("the authorization server %s is not used: %w", show(issuer), err)
		}
		return &m, nil
	}
	return nil, fmt.Errorf("the authorization server %s has no metadata: %w", show(issuer), errAbsent)
}

// checkMeta refuses metadata that would lead astray: of another issuer, with
// endpoints that a browser or the portal must not open, or without PKCE.
func (l *Logins) checkMeta(s config.Server, issuer string, m *serverMeta) error {
	if strings.TrimSuffix(m.Issuer, "/") != strings.TrimSuffix(issuer, "/") {
		return fmt.Errorf("its metadata names another issuer, %s", show(m.Issuer))
	}
	for _, e := range []struct {
		name, url string
		must      bool
	}{{"authorization_endpoint", m.Authorize, s.Auth.Interactive()}, {"token_endpoint", m.Token, true}, {"registration_endpoint", m.Register, false}, {"revocation_endpoint", m.Revoke, false}} {
		if e.url == "" && !e.must {
			continue
		}
		if err := l.checkEndpoint(s, e.url); err != nil {
			return fmt.Errorf("its %s %w", e.name, err)
		}
	}
	if !s.Auth.Interactive() || slices.Contains(m.PKCE, "S256") {
		return nil
	}
	if m.PKCE == nil && s.Auth.Issuer != "" {
		return nil // the admin named it; several IdPs support S256 without saying so
	}
	return errors.New("it does not say that it supports PKCE with S256 (code_challenge_methods_supported). If it does, name it under auth.issuer of the server")
}

// checkEndpoint refuses whatever is not plain https. Plain http is for
// loopback only, and there only where the admin or development allows it.
func (l *Logins) checkEndpoint(s config.Server, raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Hostname() == "" || u.Opaque != "":
		return errors.New("is missing or not a web address")
	case u.User != nil || u.Fragment != "":
		return errors.New("holds a user name or a fragment")
	case u.Scheme == "https":
		return nil
	case u.Scheme == "http" && config.IsLoopback(u.Hostname()):
		return nil // whether it is contacted, the guarded client decides
	}
	return errors.New("is not https")
}

// show quotes a short text of the other side on one line.
func show(s string) string {
	if r := []rune(s); len(r) > 120 {
		s = string(r[:120]) + "…"
	}
	return fmt.Sprintf("%q", s)
}
