package authserver

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"unicode"
)

// random gives 256 bits as 43 characters that are safe in URLs.
func random() string {
	b := make([]byte, 32)
	rand.Read(b)
	return base64.RawURLEncoding.EncodeToString(b)
}

// digest names a secret in the store without giving it away.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// hashed is how secrets of clients are kept.
func hashed(secret string) string { return "sha256:" + digest(secret) }

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// hiddenRune covers control characters and those that change the direction of
// text, with which one name can be made to look like another.
func hiddenRune(r rune) bool {
	return r == unicode.ReplacementChar || unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
}
