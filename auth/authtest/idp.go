package authtest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// IdP is an identity provider in this process. It signs in whoever SetUser
// named last without asking. All methods are safe for concurrent use.
type IdP struct {
	Issuer       string // its URL
	ClientID     string // client of the portal's browser sign-in
	ClientSecret string

	srv *httptest.Server

	mu       sync.Mutex
	keys     []signingKey // published; the last one signs
	user     User
	now      func() time.Time
	down     bool
	refusal  url.Values
	edit     func(claims map[string]any)
	discover func(doc map[string]any)
	codes    map[string]code
	refresh  map[string]bool // refresh tokens that hold; each is used up by its use
	renewals int
	fetches  int
	requests int
}

// User is who the IdP signs in.
type User struct {
	Sub, Name, Email string
	Groups           []string
}

type signingKey struct {
	id  string
	key *ecdsa.PrivateKey
}

type code struct {
	challenge, nonce, redirect string
	offline                    bool
}

// StartFakeIdP starts an IdP that is up and signs in "alice" of the groups
// "eng" and "mcp-users". It ends with the test.
func StartFakeIdP(t testing.TB) *IdP {
	t.Helper()
	p := &IdP{ClientID: "portal", ClientSecret: "fake-idp-secret", codes: map[string]code{}, refresh: map[string]bool{}, now: time.Now,
		user: User{Sub: "alice", Name: "Alice Example", Email: "alice@corp.test", Groups: []string{"eng", "mcp-users"}}}
	p.RotateKeys()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.discovery)
	mux.HandleFunc("GET /keys", p.jwks)
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	mux.HandleFunc("GET /logout", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("signed out at the IdP")) })
	p.srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.requests++
		down := p.down
		p.mu.Unlock()
		if down {
			panic(http.ErrAbortHandler) // the connection breaks, as that of a dying server does
		}
		mux.ServeHTTP(w, r)
	}))
	p.Issuer = p.srv.URL
	t.Cleanup(p.srv.Close)
	return p
}

// Down makes every connection break until Up.
func (p *IdP) Down() { p.set(func() { p.down = true }) }

// Up ends Down.
func (p *IdP) Up() { p.set(func() { p.down = false }) }

// SetClock says what time it is in tokens; time.Now unless set.
func (p *IdP) SetClock(now func() time.Time) { p.set(func() { p.now = now }) }

// SetUser says who is signed in from now on.
func (p *IdP) SetUser(u User) { p.set(func() { p.user = u }) }

// Refuse makes the authorize endpoint answer with an error; an empty code ends
// that.
func (p *IdP) Refuse(code, description string) {
	p.set(func() {
		p.refusal = nil
		if code != "" {
			p.refusal = url.Values{"error": {code}, "error_description": {description}}
		}
	})
}

// EditIDTokens lets a test change the claims of ID tokens before they are
// signed; nil ends that.
func (p *IdP) EditIDTokens(f func(claims map[string]any)) { p.set(func() { p.edit = f }) }

// EditDiscovery lets a test change the discovery document; nil ends that.
func (p *IdP) EditDiscovery(f func(doc map[string]any)) { p.set(func() { p.discover = f }) }

// RotateKeys signs with a new key from now on and withdraws those before.
func (p *IdP) RotateKeys() { p.addKey(true) }

// AddKey signs with a new key from now on and still publishes those before.
func (p *IdP) AddKey() { p.addKey(false) }

func (p *IdP) addKey(only bool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(fmt.Sprintf("authtest: generating a key: %v", err))
	}
	p.set(func() {
		if only {
			p.keys = nil
		}
		p.keys = append(p.keys, signingKey{id: "fake-" + random()[:8], key: key})
	})
}

func (p *IdP) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// Fetches is how often the keys were served.
func (p *IdP) Fetches() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fetches
}

// Requests is how many requests came in, those while down included.
func (p *IdP) Requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

// Key gives the key that signs now and its id, for tests that forge.
func (p *IdP) Key() (crypto.Signer, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.keys[len(p.keys)-1]
	return k.key, k.id
}

// Token gives an access token of the user who is set: issuer, subject, name,
// email, groups, valid for five minutes. The claims given replace or add to
// these; nil takes one away. At least aud must be given.
func (p *IdP) Token(claims map[string]any) string {
	p.mu.Lock()
	u, now := p.user, p.now()
	p.mu.Unlock()
	all := map[string]any{"iss": p.Issuer, "sub": u.Sub, "name": u.Name, "email": u.Email, "groups": u.Groups,
		"iat": now.Unix(), "exp": now.Add(5 * time.Minute).Unix()}
	maps.Copy(all, claims)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	return p.Sign("at+jwt", all)
}

// Sign signs just these claims with the present key; typ is the type in the
// header.
func (p *IdP) Sign(typ string, claims map[string]any) string {
	key, id := p.Key()
	opts := (&jose.SignerOptions{}).WithHeader(jose.HeaderKey("kid"), id)
	if typ != "" {
		opts = opts.WithType(jose.ContentType(typ))
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, opts)
	if err != nil {
		panic(fmt.Sprintf("authtest: making a signer: %v", err))
	}
	raw, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		panic(fmt.Sprintf("authtest: signing a token: %v", err))
	}
	return raw
}

func (p *IdP) discovery(w http.ResponseWriter, r *http.Request) {
	doc := map[string]any{
		"issuer": p.Issuer, "jwks_uri": p.Issuer + "/keys",
		"authorization_endpoint": p.Issuer + "/authorize", "token_endpoint": p.Issuer + "/token",
		"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
		"id_token_signing_alg_values_supported":          []string{"ES256"},
		"code_challenge_methods_supported":               []string{"S256"},
		"token_endpoint_auth_methods_supported":          []string{"client_secret_basic"},
		"authorization_response_iss_parameter_supported": true,
		"end_session_endpoint":                           p.Issuer + "/logout",
	}
	p.mu.Lock()
	if p.discover != nil {
		p.discover(doc)
	}
	p.mu.Unlock()
	answer(w, http.StatusOK, doc)
}

func (p *IdP) jwks(w http.ResponseWriter, r *http.Request) {
	var set jose.JSONWebKeySet
	p.mu.Lock()
	p.fetches++
	for _, k := range p.keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: &k.key.PublicKey, KeyID: k.id, Algorithm: "ES256", Use: "sig"})
	}
	p.mu.Unlock()
	w.Header().Set("Cache-Control", "max-age=604800") // as some IdPs do; it must not delay a rotation
	answer(w, http.StatusOK, set)
}

func (p *IdP) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || back.Host == "" || q.Get("client_id") != p.ClientID {
		http.Error(w, "unknown client or no redirect_uri", http.StatusBadRequest)
		return
	}
	out := url.Values{"state": {q.Get("state")}, "iss": {p.Issuer}}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.refusal != nil:
		maps.Copy(out, p.refusal)
	case q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || q.Get("code_challenge") == "":
		maps.Copy(out, url.Values{"error": {"invalid_request"}, "error_description": {"code flow with PKCE S256 is required"}})
	default:
		c := random()
		p.codes[c] = code{challenge: q.Get("code_challenge"), nonce: q.Get("nonce"), redirect: q.Get("redirect_uri"),
			offline: strings.Contains(q.Get("scope"), "offline_access")}
		out.Set("code", c)
	}
	back.RawQuery = out.Encode()
	http.Redirect(w, r, back.String(), http.StatusSeeOther)
}

func (p *IdP) token(w http.ResponseWriter, r *http.Request) {
	id, secret, _ := r.BasicAuth()
	if id != p.ClientID || secret != p.ClientSecret {
		answer(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client", "error_description": "unknown client or wrong secret"})
		return
	}
	p.mu.Lock()
	c, ok := p.codes[r.PostFormValue("code")]
	delete(p.codes, r.PostFormValue("code"))
	old := r.PostFormValue("refresh_token")
	renews := r.PostFormValue("grant_type") == "refresh_token" && p.refresh[old]
	if renews {
		delete(p.refresh, old)
		p.renewals++
	}
	u, edit, now := p.user, p.edit, p.now()
	p.mu.Unlock()
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if !renews && (!ok || c.redirect != r.PostFormValue("redirect_uri") || c.challenge != base64.RawURLEncoding.EncodeToString(sum[:])) {
		answer(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	claims := map[string]any{"iss": p.Issuer, "sub": u.Sub, "aud": p.ClientID, "nonce": c.nonce, "name": u.Name, "email": u.Email,
		"groups": u.Groups, "iat": now.Unix(), "exp": now.Add(5 * time.Minute).Unix()}
	if renews {
		delete(claims, "nonce")
	}
	if edit != nil {
		edit(claims)
		maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	}
	out := map[string]any{"access_token": random(), "token_type": "Bearer", "expires_in": 300, "id_token": p.Sign("JWT", claims)}
	if renews || c.offline {
		next := random()
		p.set(func() { p.refresh[next] = true })
		out["refresh_token"] = next
	}
	answer(w, http.StatusOK, out)
}

// EndSessions makes every refresh token invalid.
func (p *IdP) EndSessions() { p.set(func() { clear(p.refresh) }) }

// Renewals is how often a refresh token was used.
func (p *IdP) Renewals() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.renewals
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func random() string { return rand.Text() }
