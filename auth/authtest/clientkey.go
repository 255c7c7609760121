package authtest

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/mcp-portal/mcp-portal/config"
)

// PrivateKey makes a key for a client in PEM: "RSA", "Ed25519" or a P-256 one.
func PrivateKey(t testing.TB, kind string) config.Secret {
	t.Helper()
	var key any
	var err error
	switch kind {
	case "RSA":
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	case "Ed25519":
		_, key, err = ed25519.GenerateKey(rand.Reader)
	default:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return config.Secret(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// Assertion judges an assertion by which a client proves itself (RFC 7523
// section 3) as an authorization server at audience does, at the time now, and
// gives its jti.
func Assertion(raw string, keys []jose.JSONWebKey, client, audience string, now time.Time) (jti string, err error) {
	tok, err := jwt.ParseSigned(raw, []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA})
	if err != nil {
		return "", err
	}
	var c jwt.Claims
	set := jose.JSONWebKeySet{Keys: keys}
	found := set.Key(tok.Headers[0].KeyID)
	switch {
	case len(found) != 1:
		return "", fmt.Errorf("%d keys are published under the kid %q", len(found), tok.Headers[0].KeyID)
	case !found[0].IsPublic() || found[0].Use != "sig" || found[0].Algorithm != tok.Headers[0].Algorithm:
		return "", fmt.Errorf("signed with %s, published for %s and %s", tok.Headers[0].Algorithm, found[0].Use, found[0].Algorithm)
	}
	if err := tok.Claims(found[0].Key, &c); err != nil {
		return "", err
	}
	switch {
	case c.Issuer != client || c.Subject != client:
		return "", fmt.Errorf("iss %q and sub %q are not both the client %q", c.Issuer, c.Subject, client)
	case len(c.Audience) != 1 || c.Audience[0] != audience:
		return "", fmt.Errorf("aud is %q, not %q alone", c.Audience, audience)
	case c.Expiry == nil || !now.Before(c.Expiry.Time()) || c.Expiry.Time().Sub(now) > 2*time.Minute:
		return "", fmt.Errorf("exp is %v, not within two minutes from %s", c.Expiry, now)
	case c.ID == "":
		return "", errors.New("it has no jti")
	}
	return c.ID, nil
}
