package clientkey_test

import (
	"crypto"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
	"github.com/mcp-portal/mcp-portal/auth/clientkey"
	"github.com/mcp-portal/mcp-portal/config"
)

const (
	clientID = "https://agent.example.com/client.json"
	issuer   = "https://portal.example.com"
)

var noon = time.Date(2026, 12, 3, 12, 0, 0, 0, time.UTC)

// Of several keys the first signs, and all are published, so that one can
// follow another without a moment in which none is known.
func TestKeysInSuccession(t *testing.T) {
	next, last := authtest.PrivateKey(t, "EC"), authtest.PrivateKey(t, "RSA")
	k, err := clientkey.New(config.Secret(next.Reveal()+last.Reveal()), "next")
	if err != nil {
		t.Fatal(err)
	}
	pub := k.Published()
	if len(pub) != 2 || pub[0].KeyID != "next" || pub[0].Algorithm != "ES256" || pub[1].KeyID == "next" || pub[1].Algorithm != "RS256" || k.Algorithm() != "ES256" {
		t.Fatalf("published %+v", pub)
	}
	form := url.Values{}
	if err := k.Prove(form, clientID, issuer, noon); err != nil {
		t.Fatal(err)
	}
	raw := form.Get("client_assertion")
	if _, err := authtest.Assertion(raw, pub, clientID, issuer, noon); err != nil {
		t.Error(err)
	}
	if _, err := authtest.Assertion(raw, pub[1:], clientID, issuer, noon); err == nil {
		t.Error("the second key signs")
	}
	doc, err := json.Marshal(pub)
	if err != nil || strings.Contains(string(doc), `"d"`) {
		t.Errorf("what is published holds a private part, or %v", err)
	}
}

// Entra ID finds the key by the thumbprints of its certificate.
func TestCertificateIsNamed(t *testing.T) {
	secret := authtest.PrivateKey(t, "RSA")
	keys, err := config.ParsePrivateKeys(secret)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, keys[0].Signer.Public(), keys[0].Signer)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := config.ParsePrivateKeys(authtest.PrivateKey(t, "RSA"))
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := x509.CreateCertificate(rand.Reader, template, template, stranger[0].Signer.Public(), stranger[0].Signer)
	if err != nil {
		t.Fatal(err)
	}
	block := func(der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	short, long := sha1.Sum(der), sha256.Sum256(der)
	for name, c := range map[string]struct{ pem, x5t, x5t256 string }{
		"its own":       {secret.Reveal() + block(der), base64.RawURLEncoding.EncodeToString(short[:]), base64.RawURLEncoding.EncodeToString(long[:])},
		"another key's": {secret.Reveal() + block(foreign), "", ""},
		"none":          {secret.Reveal(), "", ""},
	} {
		k, err := clientkey.New(config.Secret(c.pem), "")
		if err != nil {
			t.Fatal(err)
		}
		form := url.Values{}
		if err := k.Prove(form, clientID, issuer, noon); err != nil {
			t.Fatal(err)
		}
		raw, err := base64.RawURLEncoding.DecodeString(strings.Split(form.Get("client_assertion"), ".")[0])
		if err != nil {
			t.Fatal(err)
		}
		var head map[string]string
		if err := json.Unmarshal(raw, &head); err != nil {
			t.Fatal(err)
		}
		if head["x5t"] != c.x5t || head["x5t#S256"] != c.x5t256 || head["typ"] != "JWT" || head["kid"] == "" {
			t.Errorf("certificate %s: header %v", name, head)
		}
	}
}

func TestKeyThatCannotBeUsedIsNotRepeated(t *testing.T) {
	for _, secret := range []config.Secret{"canary", "-----BEGIN PRIVATE KEY-----\nY2FuYXJ5\n-----END PRIVATE KEY-----\n"} {
		if _, err := clientkey.New(secret, ""); err == nil || strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "Y2Fu") {
			t.Errorf("got %v", err)
		}
	}
}

// Only forms that go to the token endpoint are proven, and a proof replaces
// whatever else they had.
func TestTransport(t *testing.T) {
	type seen struct {
		form url.Values
		auth string
	}
	got := make(chan seen, 1)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		f, _ := url.ParseQuery(string(b))
		got <- seen{f, r.Header.Get("Authorization")}
	}))
	t.Cleanup(s.Close)
	k, err := clientkey.New(authtest.PrivateKey(t, "EC"), "")
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: &clientkey.Transport{Base: http.DefaultTransport, Key: k, Client: clientID, Endpoint: s.URL + "/token", Audience: issuer, Now: func() time.Time { return noon }}}
	send := func(method, path string) seen {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(url.Values{"code": {"c&=+"}, "client_id": {"x"}}.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth("x", "y")
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return <-got
	}
	proven := send(http.MethodPost, "/token")
	if proven.auth != "" || proven.form.Get("code") != "c&=+" || len(proven.form["client_id"]) != 1 || proven.form.Get("client_id") != clientID {
		t.Fatalf("got %+v", proven)
	}
	if _, err := authtest.Assertion(proven.form.Get("client_assertion"), k.Published(), clientID, issuer, noon); err != nil {
		t.Error(err)
	}
	for _, at := range [][2]string{{http.MethodPost, "/userinfo"}, {http.MethodPost, "/token/x"}, {http.MethodPut, "/token"}} {
		if other := send(at[0], at[1]); other.form.Has("client_assertion") || other.auth == "" {
			t.Errorf("%s %s: %+v", at[0], at[1], other)
		}
	}
}

// Each kind of key proves the client, with an assertion of its own each time.
func TestProve(t *testing.T) {
	for kind, alg := range map[string]string{"RSA": "RS256", "EC": "ES256", "Ed25519": "EdDSA"} {
		for _, id := range []string{"", "chosen"} {
			k, err := clientkey.New(authtest.PrivateKey(t, kind), id)
			if err != nil {
				t.Fatal(err)
			}
			pub := k.Published()[0]
			sum, err := pub.Thumbprint(crypto.SHA256)
			if err != nil {
				t.Fatal(err)
			}
			if want := base64.RawURLEncoding.EncodeToString(sum); k.Algorithm() != alg || !pub.IsPublic() || pub.Use != "sig" || pub.Algorithm != alg || id == "" && pub.KeyID != want || id != "" && pub.KeyID != id {
				t.Errorf("%s %q: signs with %s, published %+v", kind, id, k.Algorithm(), pub)
			}
			seen := map[string]bool{}
			for range 2 {
				form := url.Values{"grant_type": {"client_credentials"}}
				if err := k.Prove(form, clientID, issuer, noon); err != nil {
					t.Fatal(err)
				}
				if form.Get("client_id") != clientID || form.Get("client_assertion_type") != clientkey.AssertionType || form.Get("grant_type") != "client_credentials" {
					t.Errorf("%s: the form is %v", kind, form)
				}
				raw := form.Get("client_assertion")
				jti, err := authtest.Assertion(raw, k.Published(), clientID, issuer, noon)
				if err != nil || seen[jti] {
					t.Errorf("%s: id %q again, or %v", kind, jti, err)
				}
				seen[jti] = true
				if _, err := authtest.Assertion(raw, k.Published(), clientID, issuer, noon.Add(2*time.Minute)); err == nil {
					t.Errorf("%s: it holds for more than two minutes", kind)
				}
			}
		}
	}
}
