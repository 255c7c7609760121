package clientkey

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"errors"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// algorithms are those with which clients may sign: asymmetric ones only.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.PS256, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA}

// Algorithms names them, for metadata.
func Algorithms() (out []string) {
	for _, a := range algorithms {
		out = append(out, string(a))
	}
	return out
}

const (
	longest = 10 * time.Minute // that an assertion may hold: its id is kept so long
	skew    = 30 * time.Second
	maxJWT  = 8 << 10 // bytes
)

// ErrNoKey means that none of the keys is the one that the assertion names.
var ErrNoKey = errors.New("it is signed by none of the client's keys")

// Proof is an assertion that was read, but not judged.
type Proof struct {
	Subject string // who it says it is; not proven
	KeyID   string
	token   *jwt.JSONWebToken
}

// Read parses an assertion.
func Read(raw string) (*Proof, error) {
	if len(raw) > maxJWT {
		return nil, errors.New("it is too long")
	}
	tok, err := jwt.ParseSigned(raw, algorithms)
	if err != nil || len(tok.Headers) != 1 {
		return nil, errors.New("it is no JWT that is signed with an algorithm that is taken")
	}
	var c jwt.Claims
	if err := tok.UnsafeClaimsWithoutVerification(&c); err != nil {
		return nil, errors.New("its claims cannot be read")
	}
	return &Proof{Subject: c.Subject, KeyID: tok.Headers[0].KeyID, token: tok}, nil
}

// Verify judges it: signed by one of the keys with the algorithm alg ("" is any),
// by and about the client, for exactly one of the audiences, and in time. It
// gives the id, which must be taken once only, and until when.
func (p *Proof) Verify(keys []jose.JSONWebKey, alg, client string, audiences []string, now time.Time) (id string, until time.Time, err error) {
	var c jwt.Claims
	found := false
	for _, k := range keys {
		if p.KeyID != "" && k.KeyID != p.KeyID || !usable(k) || k.Algorithm != "" && k.Algorithm != p.token.Headers[0].Algorithm {
			continue
		}
		if p.token.Claims(k.Key, &c) == nil {
			found = true
			break
		}
	}
	switch {
	case !found:
		return "", until, ErrNoKey
	case alg != "" && alg != p.token.Headers[0].Algorithm:
		return "", until, errors.New("it is signed with another algorithm than the client's metadata names")
	case c.Issuer != client || c.Subject != client:
		return "", until, errors.New("its iss and sub are not both the client_id")
	case len(c.Audience) != 1 || !slices.Contains(audiences, c.Audience[0]):
		return "", until, errors.New("its aud is not this authorization server alone")
	case c.Expiry == nil:
		return "", until, errors.New("it has no exp")
	}
	until = c.Expiry.Time().Add(skew)
	switch {
	case !now.Before(until):
		return "", until, errors.New("it has expired")
	case c.Expiry.Time().Sub(now) > longest:
		return "", until, errors.New("it holds for too long")
	case c.NotBefore != nil && now.Add(skew).Before(c.NotBefore.Time()), c.IssuedAt != nil && now.Add(skew).Before(c.IssuedAt.Time()):
		return "", until, errors.New("it is of the future")
	case c.ID == "" || len(c.ID) > 500:
		return "", until, errors.New("it has no jti, or a very long one")
	}
	return c.ID, until, nil
}

// usable reports whether a key may verify: a public one for signatures, of a
// length that is worth something.
func usable(k jose.JSONWebKey) bool {
	return k.Valid() && k.IsPublic() && (k.Use == "" || k.Use == "sig") && longEnough(k)
}

const minRSABits = 2048 // RFC 7518 section 3.3

func longEnough(k jose.JSONWebKey) bool {
	switch key := k.Key.(type) {
	case *rsa.PublicKey:
		return key.N.BitLen() >= minRSABits
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return true
	}
	return false
}
