package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/mcp-portal/mcp-portal/auth/outbound"
)

const (
	idpTimeout     = 10 * time.Second // of one request to the IdP
	idpBodyLimit   = 1 << 20          // bytes of one answer of the IdP
	metaMaxAge     = time.Hour        // then discovery is read again
	keysMaxAge     = time.Hour        // then keys are fetched again; withdrawn ones are gone
	keysStaleMax   = 24 * time.Hour   // how long keys serve while the IdP is down
	unknownEvery   = 10 * time.Second // fetches caused by tokens that no key fits: one per this
	failureBackoff = 2 * time.Second  // after a failed fetch, until the next
	loginFresh     = 30 * time.Second // a sign-in is begun only if the IdP answered this recently
)

// idp is the company IdP as seen from here: its discovery document and keys,
// fetched when first needed. One fetch runs at a time; whoever needs one
// meanwhile waits for it. After a failure the last good state stays.
type idp struct {
	issuer string
	http   *http.Client
	log    *slog.Logger
	now    func() time.Time

	keysOnly bool   // it signs for machines: it has keys, but nobody signs in there
	keysAt   string // where they are; empty: its discovery document says it

	mu          sync.Mutex
	good        *idpState // last good; immutable
	flight      *flight
	lastErr     error     // of the last fetch; nil: it succeeded or there was none
	tried       time.Time // end of the last fetch
	since       time.Time // of the present state, for Status
	lastUnknown time.Time // last fetch caused by a token that no key fits
}

// idpState is what one successful fetch gave.
type idpState struct {
	provider *oidc.Provider
	meta     idpMeta
	metaAt   time.Time
	keys     []jose.JSONWebKey
	keysAt   time.Time
}

// idpMeta are the members of the discovery document (OpenID Connect Discovery
// 1.0 section 3, RFC 9207 section 3) that go-oidc does not offer.
type idpMeta struct {
	JWKS        string   `json:"jwks_uri"`
	AuthMethods []string `json:"token_endpoint_auth_methods_supported"`
	IssParam    bool     `json:"authorization_response_iss_parameter_supported"`
	EndSession  string   `json:"end_session_endpoint"` // OpenID Connect RP-Initiated Logout 1.0
}

type flight struct {
	done chan struct{}
	err  error
}

func newIDP(issuer string, c *http.Client, log *slog.Logger, now func() time.Time) *idp {
	return &idp{issuer: issuer, http: c, log: log, now: now}
}

// idpClient bounds time and size of what the IdP answers.
func idpClient(given *http.Client) *http.Client {
	c := http.Client{}
	if given != nil {
		c = *given
	}
	if c.Timeout == 0 {
		c.Timeout = idpTimeout
	}
	base := c.Transport
	if base == nil {
		base = http.DefaultTransport
	}
	c.Transport = outbound.Limit(base, idpBodyLimit)
	return &c
}

// refresh fetches now, or waits for the fetch that runs. After a failure it
// repeats that failure for a moment instead of asking again.
func (p *idp) refresh(ctx context.Context) error {
	f, err := p.begin(ctx)
	if err != nil {
		return err
	}
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return fmt.Errorf("waiting for the IdP %s: %w", p.issuer, ctx.Err())
	}
}

// begin starts a fetch unless one runs, and gives the one that runs.
func (p *idp) begin(ctx context.Context) (*flight, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.flight != nil {
		return p.flight, nil
	}
	if p.lastErr != nil && p.now().Sub(p.tried) < failureBackoff {
		return nil, p.lastErr
	}
	f := &flight{done: make(chan struct{})}
	p.flight = f
	// Not the request's context: others wait for the same answer.
	go p.run(context.WithoutCancel(ctx), f, p.good)
	return f, nil
}

func (p *idp) run(ctx context.Context, f *flight, last *idpState) {
	next, err := p.fetch(ctx, last)
	p.mu.Lock()
	now := p.now()
	switch {
	case err != nil:
		if p.lastErr == nil {
			p.since = now
			p.log.Warn("IdP cannot be reached; sign-in is degraded until it can", "issuer", p.issuer, "error", err)
		}
	default:
		p.good = next
		if p.lastErr != nil || p.since.IsZero() {
			p.since = now
			p.log.Info("IdP reached", "issuer", p.issuer, "keys", len(next.keys))
		}
	}
	p.lastErr, p.tried, p.flight, f.err = err, now, nil, err
	p.mu.Unlock()
	close(f.done)
}

func (p *idp) fetch(ctx context.Context, last *idpState) (*idpState, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*idpTimeout)
	defer cancel()
	next := &idpState{}
	now := p.now()
	if last != nil {
		*next = *last
	}
	if last == nil || now.Sub(last.metaAt) >= metaMaxAge {
		if err := p.discover(ctx, next); err != nil {
			return nil, err
		}
		next.metaAt = now
	}
	keys, err := p.fetchKeys(ctx, next.meta.JWKS)
	if err != nil {
		return nil, err
	}
	next.keys, next.keysAt = keys, now
	return next, nil
}

func (p *idp) discover(ctx context.Context, next *idpState) error {
	if p.keysOnly {
		return p.discoverKeys(ctx, next)
	}
	prov, err := oidc.NewProvider(oidc.ClientContext(ctx, p.http), p.issuer)
	var mismatch *oidc.IssuerMismatchError
	if errors.As(err, &mismatch) {
		return fmt.Errorf("the IdP at auth.issuer %q calls itself %s; set auth.issuer to exactly that", p.issuer, short(mismatch.Discovered))
	}
	if err != nil {
		return fmt.Errorf("reading the discovery document of the IdP %s: %s", p.issuer, shortErr(err))
	}
	var m idpMeta
	if err := prov.Claims(&m); err != nil {
		return fmt.Errorf("reading the discovery document of the IdP %s: %s", p.issuer, shortErr(err))
	}
	for name, raw := range map[string]string{"jwks_uri": m.JWKS, "authorization_endpoint": prov.Endpoint().AuthURL, "token_endpoint": prov.Endpoint().TokenURL} {
		if err := p.checkEndpoint(raw); err != nil {
			return fmt.Errorf("the discovery document of the IdP %s: %s %w", p.issuer, name, err)
		}
	}
	next.provider, next.meta = prov, m
	return nil
}

// discoverKeys finds the keys of an issuer that signs for machines only: its
// document has no more than that.
func (p *idp) discoverKeys(ctx context.Context, next *idpState) error {
	if p.keysAt != "" {
		next.meta.JWKS = p.keysAt
		return nil
	}
	fail := func(err error) error {
		return fmt.Errorf("reading the discovery document of the issuer %s: %s; set jwks of auth.workloads if it has none", p.issuer, shortErr(err))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(p.issuer, "/")+"/.well-known/openid-configuration", nil)
	if err != nil {
		return fail(err)
	}
	res, err := p.http.Do(req)
	if err != nil {
		return fail(err)
	}
	defer res.Body.Close()
	var doc struct {
		Issuer string `json:"issuer"`
		JWKS   string `json:"jwks_uri"`
	}
	if res.StatusCode != http.StatusOK {
		return fail(fmt.Errorf("it answered %s", res.Status))
	}
	if err := json.NewDecoder(res.Body).Decode(&doc); err != nil {
		return fail(err)
	}
	if doc.Issuer != p.issuer {
		return fail(fmt.Errorf("it calls itself %s", short(doc.Issuer)))
	}
	if err := p.checkEndpoint(doc.JWKS); err != nil {
		return fail(fmt.Errorf("its jwks_uri %w", err))
	}
	next.meta.JWKS = doc.JWKS
	return nil
}

// checkEndpoint refuses what would leave https, or is no web address at all.
func (p *idp) checkEndpoint(raw string) error {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" || u.User != nil {
		return errors.New("is missing or not a URL")
	}
	if u.Scheme == "https" || (u.Scheme == "http" && strings.HasPrefix(p.issuer, "http://")) {
		return nil
	}
	return errors.New("is not https")
}

// current gives the last good state, fetching first if there is none or it is
// too old. While the IdP is known to be down, tokens that the old keys can
// verify do not wait for it.
func (p *idp) current(ctx context.Context) (*idpState, error) {
	good, age := p.peek()
	if good != nil && age < keysMaxAge {
		return good, nil
	}
	if good != nil && age < keysStaleMax && p.failing() != nil {
		_, _ = p.begin(ctx) // heals in the background; its failure shows in Status
		return good, nil
	}
	err := p.refresh(ctx)
	if good, age = p.peek(); good != nil && age < keysStaleMax {
		return good, nil
	}
	if err == nil {
		err = errors.New("the keys fetched last are too old")
	}
	return nil, err
}

// failing gives the error of the last fetch, nil if it succeeded.
func (p *idp) failing() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastErr
}

// reachable gives the state only if the IdP answered a moment ago.
func (p *idp) reachable(ctx context.Context) (*idpState, error) {
	good, age := p.peek()
	if good != nil && age < loginFresh {
		return good, nil
	}
	if err := p.refresh(ctx); err != nil {
		return nil, err
	}
	good, _ = p.peek()
	return good, nil
}

func (p *idp) peek() (*idpState, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.good == nil {
		return nil, 0
	}
	return p.good, p.now().Sub(p.good.keysAt)
}

func (p *idp) status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Status{Mode: "oidc", Issuer: p.issuer, State: StateUnknown, Since: p.since}
	if p.good != nil {
		s.State, s.Keys, s.KeysAt = StateOK, len(p.good.keys), p.good.keysAt
	}
	if p.lastErr != nil {
		s.State, s.Error = StateDegraded, p.lastErr.Error()
	}
	return s
}

// short bounds foreign text that goes into a message, and keeps it on one line.
func short(s string) string {
	const limit = 200
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}

func shortErr(err error) string {
	s := err.Error()
	const limit = 300
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}
