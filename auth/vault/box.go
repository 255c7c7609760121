package vault

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// ErrUnknownKey says that a value was sealed with a key that is not in the
// ring; ErrSealed that it was changed, moved from another record, or never
// sealed here. Either way it is lost: treat the record as missing.
var (
	ErrUnknownKey = errors.New("sealed with a key that is not in the ring")
	ErrSealed     = errors.New("the sealed value does not hold")
)

// Box seals for one purpose. It is a value; make one where it is needed.
type Box struct {
	vault   *Vault
	purpose string
}

// Box gives the box of a purpose, e.g. "refresh" or "upstream". Values of one
// purpose cannot be opened with another.
func (v *Vault) Box(purpose string) Box { return Box{v, purpose} }

// Seal encrypts for the record of that name, which must be its full key:
// kind, user, server. The result is printable: "<key id>.<base64url>".
func (b Box) Seal(ctx context.Context, name string, plain []byte) (string, error) {
	ring, err := b.vault.keys(ctx)
	if err != nil {
		return "", err
	}
	aead, err := b.aead(ring[0])
	if err != nil {
		return "", err
	}
	return ring[0].ID + "." + base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, plain, b.data(name))), nil
}

// Open decrypts what Seal made for the record of that name. stale means that
// another key is the first by now: seal it anew at the next occasion. Errors
// wrap ErrUnknownKey or ErrSealed, or store.ErrUnavailable.
func (b Box) Open(ctx context.Context, name, sealed string) (plain []byte, stale bool, err error) {
	id, text, ok := strings.Cut(sealed, ".")
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if !ok || err != nil || !keyID.MatchString(id) {
		return nil, false, fmt.Errorf("opening a %s value: %w", b.purpose, ErrSealed)
	}
	for again := true; again; again = b.vault.lost() {
		ring, err := b.vault.keys(ctx)
		if err != nil {
			return nil, false, err
		}
		for i, k := range ring {
			if k.ID != id {
				continue
			}
			aead, err := b.aead(k)
			if err != nil {
				return nil, false, err
			}
			plain, err := aead.Open(nil, nil, raw, b.data(name))
			if err != nil {
				return nil, false, fmt.Errorf("opening a %s value: %w", b.purpose, ErrSealed)
			}
			return plain, i > 0, nil
		}
	}
	return nil, false, fmt.Errorf("opening a %s value: %w", b.purpose, ErrUnknownKey)
}

func (b Box) data(name string) []byte { return []byte(b.purpose + "\x00" + name) }

func (b Box) aead(k key) (cipher.AEAD, error) {
	sub, err := hkdf.Key(sha256.New, k.Secret, nil, "mcp-portal "+b.purpose, keyBytes)
	if err != nil {
		return nil, fmt.Errorf("deriving the key for %s: %w", b.purpose, err)
	}
	block, err := aes.NewCipher(sub)
	if err != nil {
		return nil, fmt.Errorf("deriving the key for %s: %w", b.purpose, err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("deriving the key for %s: %w", b.purpose, err)
	}
	return aead, nil
}
