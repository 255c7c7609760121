package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-jose/go-jose/v4"
)

const (
	maxKeys    = 100  // of one key set
	minRSABits = 2048 // RFC 7518 section 3.3
)

// signingAlgs are the signatures accepted: asymmetric ones only. "none" and
// HS*, where whoever knows the public key could sign, are not among them.
var signingAlgs = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

var (
	errUnknownKey = errors.New("signed by no key of the IdP")
	errKeysDown   = errors.New("keys of the IdP cannot be fetched")
)

// fetchKeys reads a key set (RFC 7517 section 5). Keys that cannot verify a
// signature here are left out one by one: a set may hold encryption keys and
// kinds of later standards.
func (p *idp) fetchKeys(ctx context.Context, uri string) ([]jose.JSONWebKey, error) {
	fail := func(err error) error {
		return fmt.Errorf("fetching the signing keys of the IdP %s: %s", p.issuer, shortErr(err))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, uri, nil)
	if err != nil {
		return nil, fail(err)
	}
	req.Header.Set("Accept", "application/json")
	res, err := p.http.Do(req)
	if err != nil {
		return nil, fail(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fail(fmt.Errorf("it answered %s", res.Status))
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.NewDecoder(res.Body).Decode(&set); err != nil {
		return nil, fail(err)
	}
	if len(set.Keys) > maxKeys {
		return nil, fail(fmt.Errorf("the set holds %d keys, more than %d", len(set.Keys), maxKeys))
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		var k jose.JSONWebKey
		if err := json.Unmarshal(raw, &k); err != nil {
			p.log.Debug("key of the IdP left out", "issuer", p.issuer, "error", shortErr(err))
			continue
		}
		if why := unusable(k); why != "" {
			p.log.Debug("key of the IdP left out", "issuer", p.issuer, "kid", short(k.KeyID), "reason", why)
			continue
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, fail(fmt.Errorf("none of its %d keys can verify a signature", len(set.Keys)))
	}
	return keys, nil
}

func unusable(k jose.JSONWebKey) string {
	if k.Use != "" && k.Use != "sig" {
		return "not for signatures"
	}
	switch key := k.Key.(type) {
	case *rsa.PublicKey:
		if key.N.BitLen() < minRSABits {
			return fmt.Sprintf("RSA key of only %d bits", key.N.BitLen())
		}
	case *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		return "not a public signing key"
	}
	if !k.Valid() {
		return "not valid"
	}
	return ""
}

// VerifySignature checks a compact JWS against the IdP's keys and gives its
// payload; it makes idp a go-oidc KeySet. When no key fits, the keys may have
// been rotated: they are fetched again, but rarely, since anyone can send
// tokens with invented key ids.
func (p *idp) VerifySignature(ctx context.Context, raw string) ([]byte, error) {
	jws, err := jose.ParseSignedCompact(raw, signingAlgs)
	if err != nil {
		return nil, fmt.Errorf("parsing the token: %w", err)
	}
	if len(jws.Signatures) != 1 {
		return nil, errors.New("parsing the token: it needs exactly one signature")
	}
	state, err := p.current(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errKeysDown, err)
	}
	if payload, ok := state.verify(jws); ok {
		return payload, nil
	}
	if !p.mayRefetch() {
		return nil, p.noKeyFits()
	}
	if err := p.refresh(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", errKeysDown, err)
	}
	if state, _ = p.peek(); state != nil {
		if payload, ok := state.verify(jws); ok {
			return payload, nil
		}
	}
	return nil, errUnknownKey
}

// noKeyFits tells a token nobody signed from one that cannot be judged while
// the IdP is down.
func (p *idp) noKeyFits() error {
	if err := p.failing(); err != nil {
		return fmt.Errorf("%w: %w", errKeysDown, err)
	}
	return errUnknownKey
}

// mayRefetch allows one fetch per interval, and joining one that runs.
func (p *idp) mayRefetch() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.flight != nil {
		return true
	}
	now := p.now()
	if !p.lastUnknown.IsZero() && now.Sub(p.lastUnknown) < unknownEvery {
		return false
	}
	p.lastUnknown = now
	return true
}

// verify tries the keys that the header allows: that of its kid, or without a
// kid all of them; of the algorithm that the key itself names, if it names one.
func (s *idpState) verify(jws *jose.JSONWebSignature) ([]byte, bool) {
	h := jws.Signatures[0].Protected
	for _, k := range s.keys {
		if (h.KeyID != "" && k.KeyID != h.KeyID) || (k.Algorithm != "" && k.Algorithm != h.Algorithm) {
			continue
		}
		if payload, err := jws.Verify(k.Key); err == nil {
			return payload, true
		}
	}
	return nil, false
}
