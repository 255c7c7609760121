package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
)

// loginPortal is a portal at a public https address, behind a proxy, with four
// servers where each user signs in: the portal is known there by registration,
// by a given id, by its metadata document, and by registration over HTTP+SSE.
type loginPortal struct {
	*process
	idp     *authtest.Provider
	servers map[string]*protected
	addr    string
	dir     string
	front   front
}

const portalTest = "https://portal.test"

func (p *loginPortal) yaml(keys string) string {
	s := fmt.Sprintf(`
listen: %s
url: %s
store: {file: %s/portal.db}
audit: {file: %s/audit.jsonl}
auth:
  mode: oidc
  accept: [idp]
  issuer: %s
  client_id: %s
  client_secret: %s
  encryption_keys: [%s]
  private_hosts: ["%s"]
servers:
`, p.addr, portalTest, p.dir, p.dir, p.idp.Issuer, p.idp.ClientID, p.idp.ClientSecret, keys, p.servers["cimd"].idp.Issuer)
	for id, v := range p.servers {
		more := ""
		if id == "given" {
			more = ", client_id: " + p.idp.ClientID + ", client_secret: " + p.idp.ClientSecret
		}
		s += fmt.Sprintf("  %s: {url: %q, trust_annotations: true, auth: {type: oauth, on_behalf: true, catalog: shared%s}}\n", id, v.URL, more)
	}
	return s
}

func newKey(t *testing.T) string {
	t.Helper()
	out, err := exec.Command(binary, "key").Output()
	if err != nil {
		t.Fatalf("mcp-portal key: %v", err)
	}
	return strings.TrimSpace(string(out))
}

func startLoginPortal(t *testing.T, key string) *loginPortal {
	t.Helper()
	p := &loginPortal{addr: freePort(t), dir: t.TempDir(), servers: map[string]*protected{}}
	p.front = front{portalTest, p.addr}
	p.idp = authtest.StartProvider(t, portalTest+"/auth/callback", portalTest+"/servers-callback")
	documents := authtest.StartProviderWith(t, authtest.ProviderOptions{Documents: true, Elsewhere: map[string]string{portalTest: "http://" + p.addr}})
	p.servers["dcr"], p.servers["given"] = serveProtected(t, p.idp, false), serveProtected(t, p.idp, false)
	p.servers["cimd"], p.servers["sse"] = serveProtected(t, documents, false), serveProtected(t, p.idp, true)
	p.start(t, key)
	return p
}

func (p *loginPortal) start(t *testing.T, keys string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, "portal.yaml"), []byte(p.yaml(keys)), 0o600); err != nil {
		t.Fatal(err)
	}
	p.process = startProcess(t, "serve", "--config", filepath.Join(p.dir, "portal.yaml"))
}

// browser is a person's, who is signed in nowhere yet.
func (p *loginPortal) browser(t *testing.T, user string) *authtest.Browser {
	b := authtest.NewBrowser(t, user)
	b.HTTP.Transport = p.front
	return b
}

// begin opens an address where one signs in at a server and presses the
// button; the browser stops at the portal's callback.
func (p *loginPortal) begin(b *authtest.Browser, address string) (page *authtest.Page, form url.Values) {
	page = b.Get(address)
	if page.Status != http.StatusOK || !strings.Contains(page.Body, "Continue to the sign-in") {
		return page, nil
	}
	return page, page.Form()
}

// signIn is begin and all that follows.
func (p *loginPortal) signIn(b *authtest.Browser, address string) *authtest.Page {
	page, form := p.begin(b, address)
	if form == nil {
		return page
	}
	return b.Post(portalTest+"/connect", form)
}

func (p *loginPortal) token(t *testing.T, user string) string {
	return p.idp.Token(t, user, portalTest+"/mcp")
}

// client connects with the capabilities given.
func (p *loginPortal) client(t *testing.T, e era, query, token string, opt *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	u := "http://" + p.addr + "/mcp"
	if query != "" {
		u += "?" + query
	}
	c := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, opt)
	s, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: u, HTTPClient: &http.Client{Transport: withToken{token: token}}}, &mcp.ClientSessionOptions{ProtocolVersion: string(e)})
	if err != nil {
		t.Fatalf("connect in era %s: %v", e, err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

var testAddress = regexp.MustCompile(`https://portal\.test/connect/[A-Z2-7]+`)

// Whoever has to sign in at a server in the middle of a call is asked where
// they are, and the call goes on: with real authorization servers, each way in
// which these know the portal, both transports, both eras, direct calls and
// code.
func TestSignInAtServersEverywhere(t *testing.T) {
	first := newKey(t)
	p := startLoginPortal(t, first)
	alice := p.token(t, "alice")
	page := p.browser(t, "alice")
	for id := range p.servers {
		if got := p.signIn(page, portalTest+"/connect?server="+id); got.Status != 200 || !strings.Contains(got.Body, "signed in at") {
			t.Fatalf("first sign-in at %s: %d %.1500s", id, got.Status, got.Body)
		}
	}
	byURL := func(asked *atomic.Int32) *mcp.ClientOptions {
		return &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{}}},
			ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				asked.Add(1)
				if r.Params.Mode != "url" || testAddress.FindString(r.Params.URL) != r.Params.URL {
					t.Errorf("asked %+v", r.Params)
				}
				if got := p.signIn(p.browser(t, "alice"), r.Params.URL); got.Status != 200 || !strings.Contains(got.Body, "Signed in") {
					t.Errorf("signing in: %d %.800s", got.Status, got.Body)
				}
				return &mcp.ElicitResult{Action: "accept"}, nil
			}}
	}
	for id, server := range p.servers {
		for _, e := range eras {
			t.Run(id+" "+string(e), func(t *testing.T) {
				tool := map[string]any{"code": "return await codemode." + id + "_whoami({})"}
				// In the client, by URL.
				var asked atomic.Int32
				direct := p.client(t, e, "", alice, byURL(&asked))
				server.withdraw(t)
				if got := call(t, direct, id+"_whoami", nil); got.IsError || text(t, got) != "account alice" || asked.Load() != 1 {
					t.Errorf("asked %d times: %s", asked.Load(), text(t, got))
				}
				// Only the access token is old: nobody is asked.
				server.expire()
				if got := call(t, direct, id+"_whoami", nil); got.IsError || text(t, got) != "account alice" || asked.Load() != 1 {
					t.Errorf("renewed: asked %d times: %s", asked.Load(), text(t, got))
				}
				// In code, by URL: one call from beginning to end.
				asked.Store(0)
				code := p.client(t, e, "optimize_context=search_and_execute", alice, byURL(&asked))
				server.withdraw(t)
				if got := call(t, code, "portal_execute", tool); got.IsError || text(t, got) != "account alice" || asked.Load() != 1 {
					t.Errorf("code: asked %d times: %s", asked.Load(), text(t, got))
				}
				// A client that cannot ask is given the address.
				plain := p.client(t, e, "", alice, nil)
				server.withdraw(t)
				got := call(t, plain, id+"_whoami", nil)
				address := testAddress.FindString(text(t, got))
				if !got.IsError || address == "" {
					t.Fatalf("no address: %s", text(t, got))
				}
				p.signIn(p.browser(t, "alice"), address)
				if got = call(t, plain, id+"_whoami", nil); got.IsError || text(t, got) != "account alice" {
					t.Errorf("after signing in: %s", text(t, got))
				}
				// And so in code: it pauses and goes on.
				paused := p.client(t, e, "optimize_context=search_and_execute", alice, nil)
				server.withdraw(t)
				got = call(t, paused, "portal_execute", tool)
				address = testAddress.FindString(text(t, got))
				run := regexp.MustCompile(`run_[A-Z2-7]{26}`).FindString(text(t, got))
				if address == "" || run == "" {
					t.Fatalf("code does not wait: %s", text(t, got))
				}
				p.signIn(p.browser(t, "alice"), address)
				if got = call(t, paused, "portal_execute", map[string]any{"resume": run}); got.IsError || text(t, got) != "account alice" {
					t.Errorf("resumed: %s", text(t, got))
				}
			})
		}
	}
	t.Run("another user's browser", func(t *testing.T) { p.foreignBrowser(t) })
	t.Run("keys", func(t *testing.T) { p.rotateKeys(t, first, alice) })
	p.nothingLeaks(t, alice)
}

// foreignBrowser: an address, and the answer to it, belong to one user.
func (p *loginPortal) foreignBrowser(t *testing.T) {
	bob := p.client(t, modern, "", p.token(t, "bob"), nil)
	address := testAddress.FindString(text(t, call(t, bob, "dcr_whoami", nil)))
	if address == "" {
		t.Fatal("bob has not signed in there and is not asked to")
	}
	alices := p.browser(t, "alice")
	if got := p.signIn(alices, address); got.Status != http.StatusForbidden || !strings.Contains(got.Body, "another user") {
		t.Errorf("alice opened bob's address: %d %.500s", got.Status, got.Body)
	}
	// Bob begins; his answer is led to alice's browser, and to one of nobody.
	bobs := p.browser(t, "bob")
	_, form := p.begin(bobs, address)
	resp, err := bobs.HTTP.PostForm(portalTest+"/connect", form) // not followed
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	answer := bobs.GetUntil(resp.Header.Get("Location"), func(u *url.URL) bool { return u.Path == "/servers-callback" }).URL.String()
	for who, b := range map[string]*authtest.Browser{"alice": alices, "nobody": p.browser(t, "alice")} {
		if got := b.Get(answer); got.Status != http.StatusBadRequest {
			t.Errorf("%s brought bob's answer: %d %.500s", who, got.Status, got.Body)
		}
	}
	if got := call(t, bob, "dcr_whoami", nil); !got.IsError {
		t.Errorf("bob is signed in by an answer that another brought: %s", text(t, got))
	}
	if got := p.signIn(bobs, address); got.Status != 200 {
		t.Errorf("bob himself: %d %.500s", got.Status, got.Body)
	}
	if got := call(t, bob, "dcr_whoami", nil); text(t, got) != "account bob" {
		t.Errorf("bob, signed in: %s", text(t, got))
	}
	trail, err := os.ReadFile(filepath.Join(p.dir, "audit.jsonl"))
	if err != nil || !strings.Contains(string(trail), "the address of another user was opened") || !strings.Contains(string(trail), "the answer of a sign-in that another began") {
		t.Errorf("the audit says nothing of it: %v", err)
	}
}

// rotateKeys: logins survive a new key before the old one, and the end of the
// old one once they were used. Without their key they count as none.
func (p *loginPortal) rotateKeys(t *testing.T, first, alice string) {
	if got := p.signIn(p.browser(t, "alice"), portalTest+"/connect?server=given"); got.Status != 200 {
		t.Fatalf("%d %.500s", got.Status, got.Body)
	}
	second, third := newKey(t), newKey(t)
	ask := func() *mcp.CallToolResult { return call(t, p.client(t, modern, "", alice, nil), "given_whoami", nil) }
	for _, step := range []struct {
		keys string
		ok   bool
	}{{fmt.Sprintf("%q, %q", second, first), true}, {fmt.Sprintf("%q", second), true}, {fmt.Sprintf("%q", third), false}, {fmt.Sprintf("%q", second), true}} {
		p.stop()
		p.start(t, step.keys)
		p.waitListed(t, alice, "given_whoami")
		got := ask()
		if ok := !got.IsError && text(t, got) == "account alice"; ok != step.ok || !step.ok && testAddress.FindString(text(t, got)) == "" {
			t.Errorf("with the keys %s: %s", regexp.MustCompile(`:[^"]*`).ReplaceAllString(step.keys, ":…"), text(t, got))
		}
	}
}

// waitListed waits until a tool is in the list.
func (p *loginPortal) waitListed(t *testing.T, token, tool string) {
	t.Helper()
	eventually(t, tool+" is listed", func() error {
		for _, n := range names(t, p.client(t, modern, "", token, nil)) {
			if n == tool {
				return nil
			}
		}
		return fmt.Errorf("it is not")
	})
}

// nothingLeaks: no token is in the log, the audit or the store, and no token of
// a client at a server.
func (p *loginPortal) nothingLeaks(t *testing.T, client string) {
	p.stop()
	n := 0
	for id, s := range p.servers {
		for _, tok := range s.tokens() {
			n++
			for _, name := range []string{"portal.db", "audit.jsonl"} {
				b, err := os.ReadFile(filepath.Join(p.dir, name))
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(string(b), tok) {
					t.Errorf("a token for %s is in %s", id, name)
				}
			}
			if strings.Contains(p.output(), tok) {
				t.Errorf("a token for %s is in the log", id)
			}
		}
		for _, h := range s.sent {
			if strings.Contains(fmt.Sprint(h), client) {
				t.Errorf("server %s got the client's token", id)
			}
		}
	}
	if n < 8 {
		t.Errorf("%d tokens to look for", n)
	}
}
