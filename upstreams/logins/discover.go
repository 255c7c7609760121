package logins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/wire"
)

// foundFor is how long what was discovered is used without asking again.
const foundFor = 10 * time.Minute

// discovered is what a server says about signing in at it.
type discovered struct {
	resource string   // its identifier
	scopes   []string // of its metadata
	meta     *serverMeta
	at       time.Time
}

// challenge is what a WWW-Authenticate header asks for.
type challenge struct {
	metadata string // resource_metadata
	scopes   []string
	code     string // error
}

// parseChallenge reads the Bearer challenge of a refusal; zero if there is
// none that can be read.
func parseChallenge(h http.Header) challenge {
	list, err := oauthex.ParseWWWAuthenticate(h.Values("WWW-Authenticate"))
	if err != nil {
		return challenge{}
	}
	for _, c := range list {
		if c.Scheme == "bearer" {
			return challenge{metadata: c.Params["resource_metadata"], scopes: scopeList(c.Params["scope"]), code: c.Params["error"]}
		}
	}
	return challenge{}
}

// scopeList splits a scope parameter, without what cannot be one.
func scopeList(s string) []string {
	var out []string
	for _, f := range strings.Fields(s) {
		if len(f) <= 200 && !strings.ContainsFunc(f, func(r rune) bool { return r <= ' ' || r == '"' || r == '\\' || r >= 0x7f }) && !slices.Contains(out, f) {
			out = append(out, f)
		}
		if len(out) == 100 {
			break
		}
	}
	return out
}

// discover finds out where one signs in for a server.
func (l *Logins) discover(ctx context.Context, s config.Server) (*discovered, error) {
	l.mu.Lock()
	d := l.found[s.ID]
	l.mu.Unlock()
	if d != nil && l.now().Sub(d.at) < foundFor {
		return d, nil
	}
	d, err := l.look(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("find out how to sign in at server %s: %w", s.ID, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cfg.Servers[s.ID].URL == s.URL {
		l.found[s.ID] = d
	}
	return d, nil
}

func (l *Logins) look(ctx context.Context, s config.Server) (*discovered, error) {
	base, err := url.Parse(s.URL)
	if err != nil {
		return nil, errors.New("its url is not a URL")
	}
	d := &discovered{resource: canonical(base), at: l.now()}
	meta, err := l.resourceMetadata(ctx, s, base)
	if err != nil && !errors.Is(err, errAbsent) && s.Auth.Issuer == "" {
		return nil, err // with an issuer of the admin's choice it is not needed
	}
	issuer := s.Auth.Issuer
	if meta != nil {
		if meta.Resource != "" {
			if !covers(meta.Resource, base) {
				return nil, fmt.Errorf("its metadata is about another resource, %s", show(meta.Resource))
			}
			d.resource = meta.Resource
		}
		d.scopes = scopeList(strings.Join(meta.Scopes, " "))
		if issuer == "" && len(meta.Servers) > 0 {
			issuer = meta.Servers[0]
		}
	}
	if issuer != "" {
		d.meta, err = l.serverMetadata(ctx, s, issuer)
		return d, err
	}
	// Servers of 2025-03-26 are their own authorization servers, at their
	// origin, with or without metadata.
	issuer = originOf(s.URL)
	d.meta, err = l.serverMetadata(ctx, s, issuer)
	if errors.Is(err, errAbsent) {
		d.meta, err = &serverMeta{Issuer: issuer, Authorize: issuer + "/authorize", Token: issuer + "/token", Register: issuer + "/register", legacy: true}, nil
	}
	return d, err
}

// resourceMetadata reads the metadata of the server as a protected resource:
// where its challenge says, else at the well-known places. errAbsent: none.
func (l *Logins) resourceMetadata(ctx context.Context, s config.Server, base *url.URL) (*resourceMeta, error) {
	c, err := l.challengeOf(ctx, s)
	if err != nil {
		return nil, err
	}
	try := []string{wellKnown(base, "oauth-protected-resource")}
	if strings.Trim(base.Path, "/") != "" {
		try = append(try, wellKnown(&url.URL{Scheme: base.Scheme, Host: base.Host}, "oauth-protected-resource"))
	}
	if c.metadata != "" {
		if err := l.checkEndpoint(s, c.metadata); err != nil {
			return nil, fmt.Errorf("the resource_metadata of its challenge %w", err)
		}
		try = []string{c.metadata}
	}
	for _, at := range try {
		var m resourceMeta
		err := l.getJSON(ctx, s, at, &m)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading its metadata: %w", err)
		}
		return &m, nil
	}
	return nil, errAbsent
}

// challengeOf asks the server without a token and reads the refusal. Some
// servers let anybody begin a session and refuse what is asked in it.
func (l *Logins) challengeOf(ctx context.Context, s config.Server) (challenge, error) {
	c, err := l.client(s, s.URL)
	if err != nil {
		return challenge{}, err
	}
	const who = `{"name":"mcp-portal","version":"1"}`
	resp, err := l.probe(ctx, c, s, http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+wire.Version20251125+`","capabilities":{},"clientInfo":`+who+`}}`, nil)
	if err != nil {
		return challenge{}, err
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
	case http.StatusOK:
		h := http.Header{wire.HeaderProtocolVersion: {wire.Version20251125}}
		if id := resp.Header.Get(wire.HeaderSessionID); id != "" {
			h.Set(wire.HeaderSessionID, id)
			defer func() { _, _ = l.probe(context.WithoutCancel(ctx), c, s, http.MethodDelete, "", h) }() // it ends by itself otherwise
		}
		resp, err = l.probe(ctx, c, s, http.MethodPost, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, h)
	default: // perhaps it is of 2026 only
		h := http.Header{wire.HeaderProtocolVersion: {wire.Version20260728}, wire.HeaderMethod: {"tools/list"}}
		resp, err = l.probe(ctx, c, s, http.MethodPost, `{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{"`+wire.MetaProtocolVersion+`":"`+wire.Version20260728+`","`+
			wire.MetaClientInfo+`":`+who+`,"`+wire.MetaClientCapabilities+`":{}}}}`, h)
	}
	if err != nil {
		return challenge{}, err
	}
	if resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden {
		return challenge{}, nil // whatever it is, the well-known places may help
	}
	ch := parseChallenge(resp.Header)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked[s.ID] = ch
	return ch, nil
}

// probe sends one request without a token. The answer's body is read already.
func (l *Logins) probe(ctx context.Context, c *http.Client, s config.Server, method, body string, h http.Header) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.URL, strings.NewReader(body))
	if err != nil {
		return nil, errors.New("its url is not a URL")
	}
	for k, v := range h {
		r.Header[k] = v
	}
	r.Header.Set("Content-Type", wire.TypeJSON)
	r.Header.Set("Accept", wire.TypeJSON+", "+wire.TypeEventStream)
	for k, v := range s.Headers {
		r.Header.Set(k, v.Reveal()) // a gateway before it may want them
	}
	resp, err := c.Do(r)
	if err != nil {
		return nil, fmt.Errorf("asking it: %w", plain(err))
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 4096)
	return resp, nil
}

// canonical is the identifier of a server that names none (MCP, "Canonical
// Server URI").
func canonical(u *url.URL) string {
	c := url.URL{Scheme: strings.ToLower(u.Scheme), Host: strings.ToLower(u.Host), Path: u.Path, RawQuery: u.RawQuery}
	if c.Path == "/" {
		c.Path = ""
	}
	return c.String()
}

// covers reports whether a resource identifier is that of the server or of
// something above it on the same origin (RFC 9728 section 3.3: metadata of
// another resource must not be used).
func covers(resource string, server *url.URL) bool {
	r, err := url.Parse(resource)
	if err != nil || !strings.EqualFold(r.Scheme, server.Scheme) || !strings.EqualFold(r.Host, server.Host) || r.User != nil || r.Fragment != "" {
		return false
	}
	have, want := strings.TrimSuffix(r.Path, "/"), strings.TrimSuffix(server.Path, "/")
	if r.RawQuery != "" && r.RawQuery != server.RawQuery {
		return false
	}
	return have == want || strings.HasPrefix(want, have+"/")
}

// resource is the resource parameter for a server; "" sends none.
func (d *discovered) parameter(s config.Server) string {
	switch s.Auth.Resource {
	case "omit":
		return ""
	case "", "auto":
		return d.resource
	}
	return s.Auth.Resource
}
