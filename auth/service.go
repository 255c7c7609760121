package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
)

// servicePrefix begins every service token, so that the portal and secret
// scanners know one when they see it.
const servicePrefix = "mcpp_st_"

var serviceID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// serviceToken is one configured token, ready to compare.
type serviceToken struct {
	conf     config.ServiceToken
	from     []netip.Prefix // empty: anywhere
	hash     []byte
	previous []byte // of the token before, while machines change over; nil: none
}

// NewServiceToken makes a token for a machine: mcpp_st_<id>_<secret> with a
// secret of 256 random bits. The hash goes into auth.service_tokens of
// portal.yaml; the token is shown once and kept by the machine only.
func NewServiceToken(id string) (token, hash string, err error) {
	if !serviceID.MatchString(id) {
		return "", "", fmt.Errorf("making a service token: id %q must be 1 to 64 letters, digits, dots, dashes or underscores and begin with a letter or digit", id)
	}
	token = servicePrefix + id + "_" + hex.EncodeToString(randomBytes())
	sum := sha256.Sum256([]byte(token))
	return token, "sha256:" + hex.EncodeToString(sum[:]), nil
}

func serviceTokens(list []config.ServiceToken) ([]serviceToken, error) {
	var out []serviceToken
	seen := map[string]bool{}
	for _, c := range list {
		hash, ok := decodeHash(c.Hash)
		switch {
		case !serviceID.MatchString(c.ID):
			return nil, fmt.Errorf("auth.service_tokens: id %q must be 1 to 64 letters, digits, dots, dashes or underscores and begin with a letter or digit", c.ID)
		case seen[c.ID]:
			return nil, fmt.Errorf("auth.service_tokens: id %q is there twice", c.ID)
		case !ok:
			return nil, fmt.Errorf("auth.service_tokens: hash of %q must be sha256: and 64 hexadecimal digits, as printed when the token was made", c.ID)
		}
		for _, g := range c.Tools {
			if !strings.Contains(g, "/") {
				return nil, fmt.Errorf("auth.service_tokens: tools of %q has %q, which must have the form server/tool, e.g. github/*", c.ID, g)
			}
		}
		seen[c.ID] = true
		t := serviceToken{conf: c, hash: hash}
		var err error
		if t.from, err = networks(c.From); err != nil {
			return nil, fmt.Errorf("auth.service_tokens: from of %q: %w", c.ID, err)
		}
		if c.PreviousHash != "" {
			if t.previous, ok = decodeHash(c.PreviousHash); !ok || c.PreviousUntil.IsZero() {
				return nil, fmt.Errorf("auth.service_tokens: previous_hash of %q must be sha256: and 64 hexadecimal digits, with previous_until beside it", c.ID)
			}
		}
		out = append(out, t)
	}
	return out, nil
}

// serviceToken judges a service token. The hash covers the whole token, so
// its id needs no parsing; every configured hash is compared, and always in
// the same time.
func (s *settings) serviceToken(r *http.Request, token string, now time.Time) (*Principal, error) {
	sum := sha256.Sum256([]byte(token))
	var hit *serviceToken
	for i := range s.service {
		t := &s.service[i]
		known := subtle.ConstantTimeCompare(sum[:], t.hash)
		if t.previous != nil && now.Before(t.conf.PreviousUntil) {
			known |= subtle.ConstantTimeCompare(sum[:], t.previous)
		}
		if known == 1 && strings.HasPrefix(token, servicePrefix+t.conf.ID+"_") {
			hit = t
		}
	}
	if hit == nil {
		return nil, badToken("the service token is not known here", "ask the portal's admin for a new one", nil)
	}
	return hit.principal(s, r, now)
}

// serviceByID gives the machine of a token that the portal issued for its
// service token, as the configuration has it now.
func (s *settings) serviceByID(r *http.Request, id string, expires, now time.Time) (*Principal, error) {
	for i := range s.service {
		if t := &s.service[i]; t.conf.ID == id {
			p, err := t.principal(s, r, now)
			if err == nil && (p.Expires.IsZero() || expires.Before(p.Expires)) {
				p.Expires = expires
			}
			return p, err
		}
	}
	return nil, badToken("the service token behind this token is not known here any more", "ask the portal's admin for a new one", nil)
}

func (t *serviceToken) principal(s *settings, r *http.Request, now time.Time) (*Principal, error) {
	c := t.conf
	if from := s.caller(r); len(t.from) > 0 && !contains(t.from, from) {
		e := denied("the service token may not be used from this network address", "use it where the portal's admin meant it to be used, or ask for another")
		e.cause = fmt.Errorf("token %q was sent from %s", c.ID, from)
		return nil, e
	}
	if !c.Expires.IsZero() && !now.Before(c.Expires) {
		return nil, badToken("the service token has expired", "ask the portal's admin for a new one", fmt.Errorf("token %q expired at %s", c.ID, c.Expires.Format(time.RFC3339)))
	}
	p := &Principal{ID: "svc:" + c.ID, Kind: KindService, Name: c.ID, Groups: slices.Clone(c.Groups), Expires: c.Expires}
	if len(c.Servers) > 0 {
		p.Servers = slices.Clone(c.Servers)
	}
	if len(c.Tools) > 0 {
		p.Tools = slices.Clone(c.Tools)
	}
	return p, nil
}

// randomBytes gives 256 bits; crypto/rand never fails on a supported system.
func randomBytes() []byte {
	b := make([]byte, 32)
	rand.Read(b)
	return b
}

// random gives 256 bits as 43 characters that are safe in URLs and cookies.
func random() string { return base64.RawURLEncoding.EncodeToString(randomBytes()) }

// digest names a secret in the store without giving it away.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
