package clientkey

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1" // x5t is defined so, RFC 7515 section 4.1.7
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/mcp-portal/mcp-portal/config"
)

const (
	// Method is the name of this client authentication in metadata.
	Method = "private_key_jwt"
	// AssertionType is the client_assertion_type of requests.
	AssertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

	life = time.Minute
)

// Key signs the portal's assertions.
type Key struct {
	signer    jose.Signer
	alg       jose.SignatureAlgorithm
	published []jose.JSONWebKey
}

// New reads a configured private_key; id is its kid, by default the thumbprint
// of RFC 7638. Errors do not repeat the key.
func New(secret config.Secret, id string) (*Key, error) {
	keys, err := config.ParsePrivateKeys(secret)
	if err != nil {
		return nil, fmt.Errorf("private_key %w", err)
	}
	k := &Key{}
	for i, p := range keys {
		jwk := jose.JSONWebKey{Key: p.Signer.Public(), Use: "sig"}
		sum, err := jwk.Thumbprint(crypto.SHA256)
		if err != nil {
			return nil, errors.New("private_key: its thumbprint cannot be made")
		}
		jwk.KeyID = base64.RawURLEncoding.EncodeToString(sum)
		if i == 0 && id != "" {
			jwk.KeyID = id
		}
		alg := algorithm(p.Signer)
		jwk.Algorithm = string(alg)
		k.published = append(k.published, jwk)
		if i > 0 {
			continue
		}
		o := (&jose.SignerOptions{}).WithType("JWT").WithHeader(jose.HeaderKey("kid"), jwk.KeyID)
		if p.Certificate != nil { // Entra ID goes by these
			short, long := sha1.Sum(p.Certificate), sha256.Sum256(p.Certificate)
			o = o.WithHeader("x5t", base64.RawURLEncoding.EncodeToString(short[:])).WithHeader("x5t#S256", base64.RawURLEncoding.EncodeToString(long[:]))
		}
		k.alg = alg
		if k.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: p.Signer}, o); err != nil {
			return nil, errors.New("private_key cannot sign")
		}
	}
	return k, nil
}

func algorithm(s crypto.Signer) jose.SignatureAlgorithm {
	switch k := s.(type) {
	case *rsa.PrivateKey:
		return jose.RS256
	case *ecdsa.PrivateKey:
		switch k.Curve.Params().BitSize {
		case 384:
			return jose.ES384
		case 521:
			return jose.ES512
		}
		return jose.ES256
	case ed25519.PrivateKey:
		return jose.EdDSA
	}
	return ""
}

// Algorithm is how the key signs, such as ES256.
func (k *Key) Algorithm() string { return string(k.alg) }

// Published are the public keys, for a JWK set. The first belongs to the key
// that signs; the others are on their way in or out.
func (k *Key) Published() []jose.JSONWebKey { return k.published }

// Prove adds to a request what proves the client: its id and an assertion for
// the audience.
func (k *Key) Prove(form url.Values, client, audience string, now time.Time) error {
	raw, err := jwt.Signed(k.signer).Claims(jwt.Claims{Issuer: client, Subject: client, Audience: jwt.Audience{audience}, ID: rand.Text(),
		IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(life))}).Serialize()
	if err != nil {
		return errors.New("signing a proof of who the portal is failed")
	}
	form.Set("client_id", client)
	form.Set("client_assertion_type", AssertionType)
	form.Set("client_assertion", raw)
	return nil
}
