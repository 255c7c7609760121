package auth

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

const signInAgain = "get a new access token from the authorization server named in resource_metadata"

// accessToken judges an access token of the IdP (RFC 9068 where the IdP
// follows it, and what IdPs do where it does not).
func (s *settings) accessToken(ctx context.Context, raw string, now time.Time) (*Principal, error) {
	head, body, err := peekJWT(raw)
	if err != nil {
		return nil, badToken("this is no access token that the portal can read; it takes signed JWTs of its IdP and service tokens",
			"ask the IdP for a JWT access token for this portal: send its resource identifier when signing in", err)
	}
	// Before anything is fetched: who claims to be another's needs no keys.
	if iss := body.text("iss"); iss != s.idp.issuer {
		return nil, badToken("the token is from another issuer", signInAgain, fmt.Errorf("iss is %s, expected %q", short(iss), s.idp.issuer))
	}
	if !allowedAlg(head.Alg) {
		return nil, badToken("the token is signed in a way that is not accepted", "the IdP must sign access tokens with RS, PS, ES or EdDSA", fmt.Errorf("alg is %s", short(head.Alg)))
	}
	c, err := s.idp.verified(ctx, raw, &oidc.Config{SkipClientIDCheck: true})
	if err != nil {
		return nil, tokenError(err)
	}
	if err := s.checkAudience(head.Typ, c); err != nil {
		return nil, err
	}
	if why := s.notAccessToken(head.Typ, c); why != "" {
		return nil, badToken(why, "send the access token, not the ID token or another token of the sign-in", nil)
	}
	expires, err := s.checkTimes(c, now)
	if err != nil {
		return nil, badToken(err.Error(), signInAgain, nil)
	}
	groups, _, err := c.groupsAt(s.groups)
	if err != nil {
		return nil, s.groupsError(err)
	}
	p, err := c.principal(s.idp.issuer, groups, expires)
	if err != nil {
		return nil, badToken(err.Error(), signInAgain, nil)
	}
	return p, nil
}

// verified checks signature and issuer with go-oidc over our keys and gives
// the claims. Times are checked apart, since go-oidc allows no clock skew for
// exp and five minutes for nbf.
func (p *idp) verified(ctx context.Context, raw string, conf *oidc.Config) (claims, error) {
	conf.SkipExpiryCheck = true
	conf.SupportedSigningAlgs = make([]string, len(signingAlgs))
	for i, alg := range signingAlgs {
		conf.SupportedSigningAlgs[i] = string(alg)
	}
	// go-oidc gives its key set's errors as text only.
	keys := &keySetErr{idp: p}
	tok, err := oidc.NewVerifier(p.issuer, keys, conf).Verify(ctx, raw)
	if keys.err != nil {
		return nil, keys.err
	}
	if err != nil {
		return nil, fmt.Errorf("verifying the token: %s", shortErr(err))
	}
	var payload json.RawMessage
	if err := tok.Claims(&payload); err != nil {
		return nil, fmt.Errorf("reading the claims of the token: %w", err)
	}
	c, err := parseClaims(payload)
	if err != nil {
		return nil, err
	}
	if c.text("iss") != p.issuer {
		return nil, errors.New("iss of the token is not exactly the issuer")
	}
	return c, nil
}

type keySetErr struct {
	idp *idp
	err error
}

func (k *keySetErr) VerifySignature(ctx context.Context, raw string) ([]byte, error) {
	payload, err := k.idp.VerifySignature(ctx, raw)
	k.err = err
	return payload, err
}

func tokenError(err error) *Error {
	switch {
	case errors.Is(err, errKeysDown):
		return unavailable("the portal cannot reach its identity provider, so it cannot verify the token now", failureBackoff, err)
	case errors.Is(err, errUnknownKey):
		return badToken("the signature of the token is not by a key of the IdP", signInAgain, err)
	}
	return badToken("the token is not valid", signInAgain, err)
}

// checkAudience demands that the token was made for this portal.
func (s *settings) checkAudience(typ string, c claims) error {
	aud, err := c.texts("aud")
	if err != nil {
		return badToken("the token is malformed", signInAgain, err)
	}
	if !slices.ContainsFunc(aud, func(v string) bool { return s.aud[canonicalAudience(v)] }) {
		return badToken("the token was made for another audience than this portal",
			"ask the IdP for a token for "+s.resource()+" (parameter resource, or what the IdP calls audience)",
			fmt.Errorf("aud is %s", short(strings.Join(aud, " "))))
	}
	return nil
}

// notAccessToken says why a token that the IdP signed for us is of another
// class: every token of an IdP has the same issuer and keys. RFC 9068 marks
// access tokens by their type; before it nobody did.
func (s *settings) notAccessToken(typ string, c claims) string {
	typ = strings.TrimPrefix(strings.ToLower(typ), "application/")
	marked := typ == "at+jwt"
	if !marked && typ != "" && typ != "jwt" {
		return "the token is of a kind that is not accepted here"
	}
	if c.has("events") {
		return "this is a logout or event token, not an access token"
	}
	switch strings.ToLower(c.text("typ")) { // Keycloak
	case "id", "refresh", "offline", "logout":
		return "this is not an access token"
	}
	if strings.EqualFold(c.text("token_use"), "id") { // Cognito
		return "this is an ID token, not an access token"
	}
	if marked {
		return ""
	}
	if c.has("nonce") || c.has("at_hash") || c.has("c_hash") {
		return "this is an ID token, not an access token"
	}
	aud, _ := c.texts("aud")
	id := s.cfg.Auth.ClientID
	if id != "" && slices.Contains(aud, id) && !s.aud[canonicalAudience(id)] {
		return "this is a token for the portal's own sign-in, not an access token"
	}
	return ""
}

// checkTimes allows for clocks that differ a little, both ways.
func (s *settings) checkTimes(c claims, now time.Time) (expires time.Time, err error) {
	exp, ok, err := c.time("exp")
	switch {
	case err != nil:
		return exp, err
	case !ok:
		return exp, errors.New("the token has no expiry (claim exp)")
	case !now.Before(exp.Add(s.skew)):
		return exp, errors.New("the token has expired")
	}
	nbf, ok, err := c.time("nbf")
	if err != nil {
		return exp, err
	}
	if ok && now.Add(s.skew).Before(nbf) {
		return exp, errors.New("the token is not valid yet (claim nbf)")
	}
	iat, ok, err := c.time("iat")
	if err != nil {
		return exp, err
	}
	if ok && now.Add(s.skew).Before(iat) {
		return exp, errors.New("the token is from the future (claim iat): the clock of the IdP or of the portal is wrong")
	}
	return exp, nil
}

func (s *settings) groupsError(err error) *Error {
	e := denied(fmt.Sprintf("the groups in the token cannot be read (claim %q), so nothing can be allowed", s.groups),
		"ask the portal's admin to check auth.groups_claim against what the IdP sends")
	if errors.Is(err, errOverage) {
		e.Description = "you are in more groups than the IdP puts into a token, so it left all of them out and nothing can be allowed"
		e.Next = "ask the IdP's admin to put only the groups assigned to this application into the token (Entra: \"Groups assigned to the application\", or use app roles and groups_claim: roles)"
	}
	e.cause = err
	return e
}

type joseHead struct {
	Alg string `json:"alg"`
	Typ string `json:"typ"`
}

// peekJWT reads a compact JWS without trusting it.
func peekJWT(raw string) (head joseHead, body claims, err error) {
	parts := strings.Split(raw, ".")
	if len(parts) == 5 {
		return head, nil, errors.New("the token is encrypted (JWE)")
	}
	if len(parts) != 3 {
		return head, nil, errors.New("the token is not a JWT")
	}
	h, err := base64.RawURLEncoding.DecodeString(parts[0])
	if err == nil {
		err = json.Unmarshal(h, &head)
	}
	if err != nil {
		return head, nil, errors.New("the header of the token cannot be read")
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return head, nil, errors.New("the payload of the token cannot be read")
	}
	body, err = parseClaims(b)
	return head, body, err
}

func allowedAlg(alg string) bool {
	for _, a := range signingAlgs {
		if string(a) == alg {
			return true
		}
	}
	return false
}
