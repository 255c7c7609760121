package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
)

// clientIDs are identities of clients that need no registration: metadata
// documents at https addresses, and ids that the admin wrote into portal.yaml.
type clientIDs struct {
	config               string // lines below auth of a portal that knows them
	public, confidential string // client_id
	secret               string // of confidential

	srv  *httptest.Server
	mu   sync.Mutex
	docs map[string][]byte
}

// publishClients serves documents with a certificate that programs started
// from now on trust.
func publishClients(t *testing.T) *clientIDs {
	t.Helper()
	c := &clientIDs{public: "ide", confidential: "assistant", secret: "a&b +secret/of:the%client", docs: map[string][]byte{}}
	c.srv = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		doc, ok := c.docs[r.URL.Path]
		c.mu.Unlock()
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(doc)
	}))
	t.Cleanup(c.srv.Close)
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_FILE", roots)
	t.Setenv("NODE_EXTRA_CA_CERTS", roots)
	sum := sha256.Sum256([]byte(c.secret))
	c.config = fmt.Sprintf(`  private_hosts: [%q]
  clients:
    static:
    - {id: %s, name: The IDE, redirects: ["http://127.0.0.1/callback", "http://127.0.0.1/oauth/callback", "http://localhost/oauth/callback"]}
    - {id: %s, name: The assistant, secret_hash: "sha256:%s", redirects: ["http://127.0.0.1/callback", "http://127.0.0.1/oauth/callback"]}
`, c.srv.URL, c.public, c.confidential, hex.EncodeToString(sum[:]))
	return c
}

// document publishes a client with these redirect URIs and gives its id.
func (c *clientIDs) document(t *testing.T, redirects ...string) string {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	path := fmt.Sprintf("/clients/%d.json", len(c.docs))
	doc, err := json.Marshal(map[string]any{"client_id": c.srv.URL + path, "client_name": "Documented client", "redirect_uris": redirects,
		"grant_types": []string{"authorization_code", "refresh_token"}, "response_types": []string{"code"}, "token_endpoint_auth_method": "none"})
	if err != nil {
		t.Fatal(err)
	}
	c.docs[path] = doc
	return c.srv.URL + path
}

// listed fails unless the person's page shows clients of each kind, so that
// the tests are known to have used what they say.
func (c *clientIDs) listed(t *testing.T, p signInPortal, b *authtest.Browser) {
	t.Helper()
	page := b.Get(p.base() + "/clients")
	for _, want := range []string{"Documented client", strings.TrimPrefix(c.srv.URL, "https://"), "The IDE", "The assistant"} {
		if !strings.Contains(page.Body, want) {
			t.Errorf("the page of clients does not show %s", want)
		}
	}
}

// identity is who a client says that it is; the zero value registers.
type identity struct {
	document   string // address of its metadata document
	id, secret string // what it was given beforehand
}

// env tells it to the clients of oauth.mjs.
func (i identity) env(t *testing.T) []string {
	t.Helper()
	switch {
	case i.document != "":
		return []string{"CLIENT_DOCUMENT=" + i.document}
	case i.id != "":
		info := map[string]string{"client_id": i.id}
		if i.secret != "" {
			info["client_secret"] = i.secret
		}
		b, err := json.Marshal(info)
		if err != nil {
			t.Fatal(err)
		}
		return []string{"CLIENT_INFORMATION=" + string(b)}
	}
	return nil
}
