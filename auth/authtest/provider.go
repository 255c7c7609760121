package authtest

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/oauth2"

	"github.com/mcp-portal/mcp-portal/internal/testlog"
)

// Provider is a running oidc-provider, a certified OpenID provider (npm). Its
// people are alice (eng, mcp-users), bob (sales, mcp-users) and mallory (no
// group); "deny" is refused. It offers dynamic client registration and issues
// JWT access tokens for the resource a client names.
type Provider struct {
	Issuer       string
	ClientID     string // confidential client, for the portal's browser sign-in
	ClientSecret string
	PublicClient string // native client without a secret; redirect http://127.0.0.1:<any>/cb
}

// ProviderOptions are what StartProviderWith can vary.
type ProviderOptions struct {
	Redirects       []string // redirect URIs of ClientID, e.g. http://127.0.0.1:8080/auth/callback
	ConformIDTokens bool     // groups, name and email at userinfo only, not in ID tokens

	// Keys are public keys (JWK) by which ClientID proves itself in place of its
	// secret (private_key_jwt).
	Keys []jose.JSONWebKey

	// Documents makes it know clients by their metadata documents, not by
	// registration. Elsewhere says where an origin is on this machine, for the
	// documents that it fetches.
	Documents bool
	Elsewhere map[string]string
}

// StartProvider starts a provider for a portal with these redirect URIs. It
// needs node and, the first time, npm and its registry. It ends with the test.
func StartProvider(t testing.TB, redirects ...string) *Provider {
	t.Helper()
	return StartProviderWith(t, ProviderOptions{Redirects: redirects})
}

// StartProviderWith is StartProvider with more to choose.
func StartProviderWith(t testing.TB, o ProviderOptions) *Provider {
	t.Helper()
	dir := providerDir(t)
	install(t, dir)
	settings, err := json.Marshal(map[string]any{"redirects": o.Redirects, "conform": o.ConformIDTokens, "cimd": o.Documents, "keys": o.Keys, "fetch": o.Elsewhere})
	if err != nil {
		t.Fatalf("starting the test IdP: %v", err)
	}
	cmd := exec.Command("node", "idp.mjs", string(settings))
	cmd.Dir = dir
	var stderr testlog.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe() // it ends when this is closed, also if we are killed
	if err != nil {
		t.Fatalf("starting the test IdP: %v", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatalf("starting the test IdP: %v", err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting the test IdP: %v; install Node.js 20 or later", err)
	}
	t.Cleanup(func() {
		stdin.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	ready := make(chan string, 1)
	go func() {
		defer close(ready)
		for sc := bufio.NewScanner(stdout); sc.Scan(); {
			if issuer, ok := strings.CutPrefix(sc.Text(), "idp ready "); ok {
				ready <- issuer
			}
		}
	}()
	select {
	case issuer, ok := <-ready:
		if !ok {
			t.Fatalf("the test IdP ended before it was ready: %s", stderr.String())
		}
		return &Provider{Issuer: issuer, ClientID: "portal", ClientSecret: "portal-secret-of-the-test-idp", PublicClient: "cli"}
	case <-time.After(2 * time.Minute):
		t.Fatalf("the test IdP was not ready in two minutes: %s", stderr.String())
	}
	return nil
}

// Withdraw ends all grants: no refresh token given out so far is good any more.
func (p *Provider) Withdraw(t testing.TB) {
	t.Helper()
	resp, err := http.Post(p.Issuer+"/withdraw", "", nil)
	if err != nil {
		t.Fatalf("withdrawing grants of the test IdP: %v", err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("withdrawing grants of the test IdP: %s", resp.Status)
	}
}

// Token signs user in with the public client and gives an access token for the
// resource, as an MCP client would get it.
func (p *Provider) Token(t testing.TB, user, resource string) string {
	t.Helper()
	conf := oauth2.Config{ClientID: p.PublicClient, RedirectURL: "http://127.0.0.1:7777/cb", Scopes: []string{"openid", "profile", "email", "groups"},
		Endpoint: oauth2.Endpoint{AuthURL: p.Issuer + "/auth", TokenURL: p.Issuer + "/token", AuthStyle: oauth2.AuthStyleInParams}}
	verifier, state := oauth2.GenerateVerifier(), random()
	target := oauth2.SetAuthURLParam("resource", resource)
	page := NewBrowser(t, user).GetUntil(conf.AuthCodeURL(state, oauth2.S256ChallengeOption(verifier), target),
		func(u *url.URL) bool { return strings.HasPrefix(u.String(), conf.RedirectURL+"?") })
	q := page.URL.Query()
	if q.Get("state") != state || q.Get("code") == "" {
		t.Fatalf("the test IdP gave no code: %s (status %d)", page.URL.Redacted(), page.Status)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tok, err := conf.Exchange(ctx, q.Get("code"), oauth2.VerifierOption(verifier), target)
	if err != nil {
		t.Fatalf("the test IdP gave no token: %v", err)
	}
	return tok.AccessToken
}

// providerDir finds the provider's files from whatever package the test is in.
func providerDir(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatalf("looking for the test IdP: %v", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "auth", "testdata", "idp")
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("looking for the test IdP: no go.mod above the working directory")
		}
		dir = up
	}
}

// install runs npm ci unless it was done. It installs beside and moves into
// place, since tests of several packages may come here at once.
func install(t testing.TB, dir string) {
	t.Helper()
	target := filepath.Join(dir, "node_modules")
	if _, err := os.Stat(target); err == nil {
		return
	}
	tmp, err := os.MkdirTemp(dir, "node_modules.*")
	if err != nil {
		t.Fatalf("installing the test IdP: %v", err)
	}
	defer os.RemoveAll(tmp)
	for _, name := range []string{"package.json", "package-lock.json"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(tmp, name), b, 0o644)
		}
		if err != nil {
			t.Fatalf("installing the test IdP: %v", err)
		}
	}
	cmd := exec.Command("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("installing the test IdP (npm ci): %v\n%s", err, out)
	}
	if err := os.Rename(filepath.Join(tmp, "node_modules"), target); err != nil {
		if _, there := os.Stat(target); there != nil {
			t.Fatalf("installing the test IdP: %v", err)
		}
	}
}
