package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
)

func TestForgedKeyIDsDoNotFloodTheIdP(t *testing.T) {
	for _, parallel := range []bool{false, true} {
		t.Run(fmt.Sprintf("parallel %v", parallel), func(t *testing.T) {
			idp := authtest.StartFakeIdP(t)
			r := newRig(t, oidcConfig(idp))
			claims := map[string]any{"iss": idp.Issuer, "sub": "eve", "aud": mcpAud, "exp": time.Now().Add(time.Minute).Unix()}
			var wg sync.WaitGroup
			for i := range 200 {
				token := forge(t, fmt.Sprintf("forged-%d", i), claims)
				try := func() {
					_, err := r.call("Bearer " + token)
					if e, ok := err.(*Error); !ok || e.Status != 401 {
						t.Errorf("forged token %d: %v", i, err)
					}
				}
				if parallel {
					wg.Go(try)
				} else {
					try()
				}
			}
			wg.Wait()
			if n := idp.Fetches(); n < 1 || n > 2 {
				t.Errorf("200 forged key ids caused %d fetches, want 1 or 2", n)
			}
			// Real users are not harmed meanwhile.
			if _, err := r.call("Bearer " + idp.Token(map[string]any{"aud": mcpAud})); err != nil {
				t.Error(err)
			}
			// Later a fetch is allowed again, once.
			r.clock.add(unknownEvery)
			before := idp.Fetches()
			for range 5 {
				_, _ = r.call("Bearer " + forge(t, "late", claims))
			}
			if n := idp.Fetches() - before; n != 1 {
				t.Errorf("after the pause %d fetches, want 1", n)
			}
		})
	}
}

func TestForeignIssuerCausesNoFetch(t *testing.T) {
	idp := authtest.StartFakeIdP(t)
	r := newRig(t, oidcConfig(idp))
	_, err := r.call("Bearer " + idp.Token(map[string]any{"aud": mcpAud, "iss": "https://evil.example"}))
	wantError(t, err, 401, CodeInvalidToken)
	if n := idp.Requests(); n != 0 {
		t.Errorf("%d requests to the IdP, want none", n)
	}
}

// B118: the IdP says its keys may be cached for a week and rotates them at once.
func TestKeyRotation(t *testing.T) {
	idp := authtest.StartFakeIdP(t)
	r := newRig(t, oidcConfig(idp))
	token := func() string { return "Bearer " + idp.Token(map[string]any{"aud": mcpAud}) }
	old := token()
	if _, err := r.call(old); err != nil {
		t.Fatal(err)
	}
	idp.AddKey()
	if _, err := r.call(token()); err != nil {
		t.Fatalf("token of the added key: %v", err)
	}
	if _, err := r.call(old); err != nil {
		t.Fatalf("token of the key before, still published: %v", err)
	}
	r.clock.add(unknownEvery)
	idp.RotateKeys()
	if _, err := r.call(token()); err != nil {
		t.Fatalf("token of the new key: %v", err)
	}
	_, err := r.call(old)
	wantError(t, err, 401, CodeInvalidToken)
}

func TestWithdrawnKeyIsDroppedAtMaxAge(t *testing.T) {
	idp := authtest.StartFakeIdP(t)
	r := newRig(t, oidcConfig(idp))
	stolen := "Bearer " + idp.Token(map[string]any{"aud": mcpAud, "exp": time.Now().Add(100 * time.Hour).Unix()})
	if _, err := r.call(stolen); err != nil {
		t.Fatal(err)
	}
	idp.RotateKeys()
	r.clock.add(keysMaxAge - time.Second)
	if _, err := r.call(stolen); err != nil {
		t.Fatalf("before max age nothing is fetched, so it is still good: %v", err)
	}
	r.clock.add(time.Second)
	_, err := r.call(stolen)
	wantError(t, err, 401, CodeInvalidToken)
}

func TestIdPDownAtStartThenUp(t *testing.T) {
	idp := authtest.StartFakeIdP(t)
	idp.Down()
	r := newRig(t, oidcConfig(idp))
	if n := idp.Requests(); n != 0 {
		t.Errorf("New made %d requests to the IdP", n)
	}
	if st := r.Status(); st.State != StateUnknown {
		t.Errorf("status before anything is %+v", st)
	}
	good := "Bearer " + idp.Token(map[string]any{"aud": mcpAud})
	_, err := r.call(good)
	if e := wantError(t, err, 503, CodeUnavailable); e.RetryAfter < time.Second {
		t.Errorf("RetryAfter is %v", e.RetryAfter)
	}
	if st := r.Status(); st.State != StateDegraded || !strings.Contains(st.Error, "discovery document") || st.Since.IsZero() {
		t.Errorf("status while down is %+v", st)
	}
	n := idp.Requests()
	for range 20 {
		_, err := r.call(good)
		wantError(t, err, 503, CodeUnavailable)
	}
	if idp.Requests() != n {
		t.Errorf("%d more requests right after a failure, want none", idp.Requests()-n)
	}
	idp.Up()
	r.clock.add(failureBackoff)
	if _, err := r.call(good); err != nil {
		t.Fatalf("after the IdP is up: %v", err)
	}
	if st := r.Status(); st.State != StateOK || st.Error != "" || st.Keys != 1 {
		t.Errorf("status after is %+v", st)
	}
}

func TestLastGoodKeysServeWhileTheIdPIsDown(t *testing.T) {
	idp := authtest.StartFakeIdP(t)
	r := newRig(t, oidcConfig(idp))
	token := "Bearer " + idp.Token(map[string]any{"aud": mcpAud, "exp": time.Now().Add(100 * time.Hour).Unix()})
	if _, err := r.call(token); err != nil {
		t.Fatal(err)
	}
	idp.Down()
	r.clock.add(2 * keysMaxAge)
	for range 3 {
		if _, err := r.call(token); err != nil {
			t.Fatalf("while down: %v", err)
		}
	}
	if st := r.Status(); st.State != StateDegraded || st.Keys != 1 {
		t.Errorf("status while down is %+v", st)
	}
	// A key that may be new cannot be judged now: not the client's fault.
	r.clock.add(failureBackoff)
	_, err := r.call("Bearer " + forge(t, "new", map[string]any{"iss": idp.Issuer, "sub": "alice", "aud": mcpAud, "exp": time.Now().Add(100 * time.Hour).Unix()}))
	wantError(t, err, 503, CodeUnavailable)
	// But not for ever.
	r.clock.add(keysStaleMax)
	_, err = r.call(token)
	wantError(t, err, 503, CodeUnavailable)
	idp.Up()
	r.clock.add(failureBackoff)
	if _, err := r.call(token); err != nil {
		t.Fatalf("after it is up: %v", err)
	}
}

// A request that gives up must not spoil the fetch for those who wait with it.
func TestFetchOutlivesTheRequestThatBeganIt(t *testing.T) {
	idp := authtest.StartFakeIdP(t)
	r := newRig(t, oidcConfig(idp))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, portalURL+"/mcp", nil)
	req.Header.Set("Authorization", "Bearer "+idp.Token(map[string]any{"aud": mcpAud}))
	if _, err := r.Authenticate(req); err != nil {
		wantError(t, err, 503, CodeUnavailable) // or it was quick enough
	}
	if _, err := r.call("Bearer " + idp.Token(map[string]any{"aud": mcpAud})); err != nil {
		t.Fatalf("the next request: %v", err)
	}
	if n := idp.Fetches(); n != 1 {
		t.Errorf("%d fetches, want 1", n)
	}
}

// serveIdP serves a discovery document and what else the handler does.
func serveIdP(t *testing.T, edit func(doc map[string]any), keys http.HandlerFunc) string {
	t.Helper()
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	mux.HandleFunc("/keys", keys)
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		doc := map[string]any{"issuer": srv.URL, "jwks_uri": srv.URL + "/keys", "authorization_endpoint": srv.URL + "/a", "token_endpoint": srv.URL + "/t"}
		edit(doc)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(doc)
	})
	return srv.URL
}

func TestStrangeIdPs(t *testing.T) {
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	usable, err := json.Marshal(jose.JSONWebKey{Key: &ec.PublicKey, KeyID: "ok", Use: "sig"})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GODEBUG", "rsa1024min=0")
	weakKey, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := json.Marshal(jose.JSONWebKey{Key: &weakKey.PublicKey, KeyID: "weak"})
	if err != nil {
		t.Fatal(err)
	}
	body := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) }
	}
	same := func(map[string]any) {}
	for _, c := range []struct {
		name string
		edit func(map[string]any)
		keys http.HandlerFunc
		says string // in the status; empty: the set is fine
	}{
		{"kinds of keys to come", same, body(`{"keys":[{"kty":"AKP","alg":"ML-DSA-44","pub":"x"},` + string(usable) + `,{"kty":"oct","k":"c2VjcmV0"},7]}`), ""},
		{"only a shared secret", same, body(`{"keys":[{"kty":"oct","k":"c2VjcmV0","alg":"HS256"}]}`), "none of its 1 keys"},
		{"only an encryption key", same, body(`{"keys":[` + strings.Replace(string(usable), `"sig"`, `"enc"`, 1) + `]}`), "none of its 1 keys"},
		{"only a weak key", same, body(`{"keys":[` + string(weak) + `]}`), "none of its 1 keys"},
		{"no keys", same, body(`{}`), "none of its 0 keys"},
		{"endless keys", same, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"keys":[`)
			for range idpBodyLimit / 1000 {
				_, _ = io.WriteString(w, strings.Repeat(" ", 1100))
			}
			_, _ = io.WriteString(w, string(usable)+`]}`)
		}, "longer than"},
		{"very many keys", same, body(`{"keys":[` + strings.Repeat(string(usable)+",", 200) + string(usable) + `]}`), "more than 100"},
		{"not JSON", same, body("<html>"), "signing keys"},
		{"error page", same, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "secret-internal-detail", 500) }, "500"},
		{"issuer of someone else", func(d map[string]any) { d["issuer"] = "https://evil.example" }, body(""), "calls itself"},
		{"script instead of a sign-in page", func(d map[string]any) { d["authorization_endpoint"] = "javascript:alert(1)" }, body(""), "authorization_endpoint"},
		{"keys from a file", func(d map[string]any) { d["jwks_uri"] = "file:///etc/passwd" }, body(""), "jwks_uri"},
		{"no keys named", func(d map[string]any) { delete(d, "jwks_uri") }, body(""), "jwks_uri"},
	} {
		t.Run(c.name, func(t *testing.T) {
			issuer := serveIdP(t, c.edit, c.keys)
			cfg := oidcConfig(&authtest.IdP{Issuer: issuer})
			r := newRig(t, cfg)
			err := r.state.Load().idp.refresh(t.Context())
			st := r.Status()
			if c.says == "" {
				if err != nil || st.State != StateOK || st.Keys != 1 {
					t.Errorf("error %v, status %+v", err, st)
				}
				return
			}
			if err == nil || st.State != StateDegraded || !strings.Contains(st.Error, c.says) || strings.Contains(st.Error, "secret-internal") {
				t.Errorf("error %v, status %+v, want one that says %q", err, st, c.says)
			}
		})
	}
}

func TestHTTPSIssuerMustNotLeadToPlainHTTP(t *testing.T) {
	p := &idp{issuer: "https://login.example.com"}
	if p.checkEndpoint("http://login.example.com/keys") == nil {
		t.Error("http endpoint of an https issuer was accepted")
	}
	if err := p.checkEndpoint("https://keys.example.com/keys"); err != nil {
		t.Error(err)
	}
}

// A key that says for which algorithm it is serves no other (RFC 7517 section
// 4.4), nor does a key serve under another name.
func TestKeysServeTheirAlgorithmOnly(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "k", Algorithm: "RS256", Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	issuer := serveIdP(t, func(map[string]any) {}, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(set) })
	r := newRig(t, oidcConfig(&authtest.IdP{Issuer: issuer}))
	claims := map[string]any{"iss": issuer, "sub": "alice", "aud": mcpAud, "exp": time.Now().Add(time.Minute).Unix()}
	if _, err := r.call("Bearer " + signAs(t, jose.RS256, key, "k", claims)); err != nil {
		t.Errorf("RS256: %v", err)
	}
	_, err = r.call("Bearer " + signAs(t, jose.PS256, key, "k", claims))
	wantError(t, err, 401, CodeInvalidToken)
}
