package config

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
)

// PrivateKey is a key with which the portal proves itself as an OAuth client.
type PrivateKey struct {
	Signer      crypto.Signer // *rsa.PrivateKey, *ecdsa.PrivateKey or ed25519.PrivateKey
	Certificate []byte        // DER; nil: none was given with it
}

// ParsePrivateKeys reads the keys of a private_key: PEM (PKCS #8, PKCS #1 or SEC
// 1), at least one, perhaps with certificates of theirs. The first one signs.
// The error does not repeat anything of it.
func ParsePrivateKeys(s Secret) ([]PrivateKey, error) {
	text := strings.TrimSpace(s.Reveal())
	if !strings.Contains(text, "\n") { // as some tools write it into the environment
		text = strings.ReplaceAll(text, `\n`, "\n")
	}
	var out []PrivateKey
	var certs []*x509.Certificate
	for rest := []byte(text); ; {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			if len(bytes.TrimSpace(rest)) > 0 {
				return nil, errors.New("has something that is not PEM; give it as a file: file:/etc/mcp-portal/client-key.pem")
			}
			break
		}
		switch b.Type {
		case "EC PARAMETERS":
			continue
		case "CERTIFICATE":
			c, err := x509.ParseCertificate(b.Bytes)
			if err != nil {
				return nil, errors.New("has a certificate that cannot be read")
			}
			certs = append(certs, c)
			continue
		}
		key, err := parsePrivateKey(b)
		if err != nil {
			return nil, err
		}
		out = append(out, PrivateKey{Signer: key})
	}
	if len(out) == 0 {
		return nil, errors.New("holds no private key; make one with: openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256")
	}
	for i, k := range out {
		public, ok := k.Signer.Public().(interface{ Equal(crypto.PublicKey) bool })
		for _, c := range certs {
			if ok && public.Equal(c.PublicKey) {
				out[i].Certificate = c.Raw
			}
		}
	}
	return out, nil
}

func parsePrivateKey(b *pem.Block) (crypto.Signer, error) {
	var key any
	var err error
	switch b.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(b.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(b.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(b.Bytes)
	case "ENCRYPTED PRIVATE KEY":
		return nil, errors.New("is encrypted; write it without a passphrase: openssl pkcs8 -in KEY -nocrypt")
	default:
		return nil, errors.New("holds something else than a private key; give the key in PEM")
	}
	if err != nil {
		return nil, errors.New("holds a key that cannot be read; give it in PEM (PKCS #8)")
	}
	switch k := key.(type) {
	case *rsa.PrivateKey:
		if k.N.BitLen() < 2048 {
			return nil, errors.New("is an RSA key of less than 2048 bits; make a longer one")
		}
		return k, nil
	case *ecdsa.PrivateKey:
		if c := k.Curve; c == elliptic.P256() || c == elliptic.P384() || c == elliptic.P521() {
			return k, nil
		}
	case ed25519.PrivateKey:
		return k, nil
	}
	return nil, errors.New("is a key of a kind that cannot sign here; use RSA, P-256, P-384, P-521 or Ed25519")
}
