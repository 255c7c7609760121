package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	sdkauth "github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
)

// tokenLife is long enough for a request on a slow machine, and short enough
// to be waited for.
const tokenLife = 20 * time.Second

// signInPortal is a portal where clients sign people in, in front of a
// certified identity provider.
type signInPortal struct {
	*process
	idp *authtest.Provider
}

// signInOptions are what the portals of these tests differ in.
type signInOptions struct {
	auth  string // further lines below auth
	store string // address of Redis; empty: none
	base  string // public origin; empty: that of listen
}

func startSignInPortal(t *testing.T, o signInOptions) signInPortal {
	t.Helper()
	addr := freePort(t)
	if o.base == "" {
		o.base = "http://" + addr
	}
	return startSignInPortalAt(t, o, addr, authtest.StartProvider(t, o.base+"/auth/callback"))
}

func startSignInPortalAt(t *testing.T, o signInOptions, addr string, idp *authtest.Provider) signInPortal {
	t.Helper()
	_, company := serveCompany(t, companyOptions)
	_, hash := newServiceToken(t, "unused")
	p := startProcess(t, "serve", "--config", writeConfig(t, fmt.Sprintf(`
listen: %s
url: %s
auth:
  issuer: %s
  client_id: %s
  client_secret: %s
  scopes: [openid, profile, email, groups, offline_access]
  tokens: {access: %s}
  service_tokens: [{id: unused, hash: %q}]
%s
%s
servers:
%s`, addr, o.base, idp.Issuer, idp.ClientID, idp.ClientSecret, tokenLife, hash, o.auth, o.store, companyServers(company))))
	// Its page of servers is for people who signed in.
	eventually(t, "8 servers ready", func() error {
		if n := strings.Count(p.output(), "the server is ready"); n < 8 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	return signInPortal{p, idp}
}

// disconnectAll ends every client of the browser's person, on the page that
// lists them.
func (p signInPortal) disconnectAll(t *testing.T, b *authtest.Browser) {
	t.Helper()
	for range 20 {
		page := b.Get(p.base() + "/clients")
		form := page.Form()
		if page.Status != 200 {
			t.Fatalf("the page of clients: %d", page.Status)
		}
		if !form.Has("id") {
			return
		}
		if page = b.Post(p.base()+"/clients", form); page.Status != 200 {
			t.Fatalf("disconnecting: %d %s", page.Status, page.Body)
		}
	}
	t.Fatal("clients stay connected")
}

// expired waits until the portal refuses a token.
func (p signInPortal) expired(t *testing.T, token string) {
	t.Helper()
	if token == "" {
		t.Fatal("no token to wait for")
	}
	eventually(t, "the access token expires", func() error {
		if resp, _ := post(t, p.URL, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, map[string]string{"Authorization": "Bearer " + token}); resp.StatusCode != 401 {
			time.Sleep(500 * time.Millisecond)
			return fmt.Errorf("%s", resp.Status)
		}
		return nil
	})
}

// tsClient is a client of a TypeScript SDK in a process of its own.
type tsClient struct {
	in    io.Writer
	lines chan string
	b     *authtest.Browser
	opens int
}

func startTS(t *testing.T, id identity, args ...string) *tsClient {
	t.Helper()
	b := authtest.NewBrowser(t, "alice")
	cmd := exec.CommandContext(t.Context(), node(t), args...)
	cmd.Dir = "npm"
	cmd.Env = append(os.Environ(), id.env(t)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &tsClient{in: in, lines: make(chan string, 10), b: b}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	go func() {
		defer close(c.lines)
		sc := bufio.NewScanner(out)
		sc.Buffer(nil, 4<<20)
		for sc.Scan() {
			c.lines <- sc.Text()
		}
	}()
	return c
}

type tsResult struct {
	Version string
	Tools   []string
	Token   string
	Results []struct {
		IsError bool
		Text    string
	}
}

// do makes the client do its job, with a browser where it asks for one.
func (c *tsClient) do(t *testing.T) tsResult {
	t.Helper()
	if _, err := io.WriteString(c.in, "go\n"); err != nil {
		t.Fatal(err)
	}
	for {
		select {
		case line, ok := <-c.lines:
			if !ok {
				t.Fatal("the client ended")
			}
			what, rest, _ := strings.Cut(line, " ")
			switch what {
			case "open":
				c.opens++
				openCallback(t, c.b, rest)
			case "result":
				var r tsResult
				if err := json.Unmarshal([]byte(rest), &r); err != nil {
					t.Fatal(err)
				}
				return r
			default:
				t.Fatalf("the client says %s", line)
			}
		case <-time.After(2 * time.Minute):
			t.Fatal("the client does not answer")
		}
	}
}

// openCallback signs in and goes on to the client's own address.
func openCallback(t *testing.T, b *authtest.Browser, authorize string) {
	t.Helper()
	back, _ := b.SignIn(authorize, "allow")
	resp, err := http.Get(back.String())
	if err != nil {
		t.Fatalf("the client's callback: %v", err)
	}
	resp.Body.Close()
}

// Real clients from a cold start: they find out where to sign in, register or
// name their metadata document or the id they were given, bring a person
// there, list and call; go on after their access token has expired without
// asking anybody; and sign in anew after the person disconnected them.
func TestClientsSignIn(t *testing.T) {
	ids := publishClients(t)
	document := identity{document: ids.document(t, "http://127.0.0.1/callback")}
	public, confidential := identity{id: ids.public}, identity{id: ids.confidential, secret: ids.secret}
	p := startSignInPortal(t, signInOptions{auth: ids.config})
	admin := authtest.NewBrowser(t, "alice")
	if page := admin.Get(p.base() + "/clients"); page.Status != 200 || page.Form().Has("id") {
		t.Fatalf("clients before anything: %d", page.Status)
	}
	for _, query := range []string{"", "?optimize_context=search_and_execute"} {
		u := p.URL + query
		calls := `[{"name":"dns_zones_list","arguments":{"per_page":1}}]`
		want := "example"
		if query != "" {
			calls = `[{"name":"portal_execute","arguments":{"code":"return (await dns.zones_list({})).result_info.total_count"}}]`
			want = "55"
		}
		clients := map[string]*tsClient{
			"TypeScript v1":             startTS(t, identity{}, "oauth1.mjs", u, calls),
			"TypeScript v2, 2025-11-25": startTS(t, identity{}, "oauth2.mjs", u, calls),
			"TypeScript v2, 2026-07-28": startTS(t, identity{}, "oauth2.mjs", u, calls, "auto"),
		}
		goClients := map[string]*goClient{}
		for _, e := range eras {
			goClients["Go "+string(e)] = startGo(t, u, e, identity{})
		}
		if query == "" {
			clients["TypeScript v1, document"] = startTS(t, document, "oauth1.mjs", u, calls)
			clients["TypeScript v1, with a secret"] = startTS(t, confidential, "oauth1.mjs", u, calls)
			clients["TypeScript v2, document"] = startTS(t, document, "oauth2.mjs", u, calls, "auto")
			clients["TypeScript v2, given id"] = startTS(t, public, "oauth2.mjs", u, calls, "auto")
			clients["TypeScript v2, with a secret"] = startTS(t, confidential, "oauth2.mjs", u, calls)
			goClients["Go, document"] = startGo(t, u, modern, document)
			goClients["Go, given id"] = startGo(t, u, legacy, public)
			goClients["Go, with a secret"] = startGo(t, u, modern, confidential)
		}
		last := ""
		round := func(phase string, signIns int) {
			t.Helper()
			for name, c := range clients {
				r := c.do(t)
				last = r.Token
				if len(r.Results) != 1 || r.Results[0].IsError || !strings.Contains(r.Results[0].Text, want) || len(r.Tools) == 0 {
					t.Errorf("%s %s, %s: %+v", name, query, phase, r.Results)
				}
				if c.opens != signIns {
					t.Errorf("%s %s, %s: the person was asked %d times, want %d", name, query, phase, c.opens, signIns)
				}
			}
			for name, c := range goClients {
				c.do(t, query, want)
				if n := c.count(); n != signIns {
					t.Errorf("%s %s, %s: the person was asked %d times, want %d", name, query, phase, n, signIns)
				}
			}
		}
		round("cold", 1)
		if query == "" {
			ids.listed(t, p, admin)
		}
		p.expired(t, last)
		round("after the access token expired", 1)
		p.disconnectAll(t, admin)
		round("after the person disconnected it", 2)
	}
}

// goClient is a client of the Go SDK.
type goClient struct {
	session *mcp.ClientSession
	mu      sync.Mutex
	opens   int
}

func (c *goClient) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opens
}

func startGo(t *testing.T, u string, e era, id identity) *goClient {
	t.Helper()
	c := &goClient{}
	const redirect = "http://127.0.0.1:33418/callback"
	b := authtest.NewBrowser(t, "alice")
	conf := &sdkauth.AuthorizationCodeHandlerConfig{
		RedirectURL: redirect, RequestRefreshToken: true,
		AuthorizationCodeFetcher: func(_ context.Context, a *sdkauth.AuthorizationArgs) (*sdkauth.AuthorizationResult, error) {
			c.mu.Lock()
			c.opens++
			c.mu.Unlock()
			back, _ := b.SignIn(a.URL, "allow")
			q := back.Query()
			return &sdkauth.AuthorizationResult{Code: q.Get("code"), State: q.Get("state"), Iss: q.Get("iss")}, nil
		},
	}
	switch {
	case id.document != "":
		conf.ClientIDMetadataDocumentConfig = &sdkauth.ClientIDMetadataDocumentConfig{URL: id.document}
	case id.secret != "":
		conf.PreregisteredClient = &oauthex.ClientCredentials{ClientID: id.id, ClientSecretAuth: &oauthex.ClientSecretAuth{ClientSecret: id.secret}}
	case id.id != "":
		conf.PreregisteredClient = &oauthex.ClientCredentials{ClientID: id.id}
	default:
		conf.DynamicClientRegistrationConfig = &sdkauth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{
			ClientName: "Go client", RedirectURIs: []string{redirect}, TokenEndpointAuthMethod: "none", GrantTypes: []string{"authorization_code", "refresh_token"}}}
	}
	h, err := sdkauth.NewAuthorizationCodeHandler(conf)
	if err != nil {
		t.Fatal(err)
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, nil)
	c.session, err = client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: u, OAuthHandler: h, DisableStandaloneSSE: true}, &mcp.ClientSessionOptions{ProtocolVersion: string(e)})
	if err != nil {
		t.Fatalf("the Go client %s at %s: %v", e, u, err)
	}
	t.Cleanup(func() { _ = c.session.Close() })
	return c
}

func (c *goClient) do(t *testing.T, query, want string) {
	t.Helper()
	if len(names(t, c.session)) == 0 {
		t.Error("the Go client sees no tool")
	}
	name, args := "dns_zones_list", map[string]any{"per_page": 1}
	if query != "" {
		name, args = "portal_execute", map[string]any{"code": "return (await dns.zones_list({})).result_info.total_count"}
	}
	if res := call(t, c.session, name, args); res.IsError || !strings.Contains(text(t, res), want) {
		t.Errorf("the Go client's call: %s", text(t, res))
	}
}

var remoteURL = regexp.MustCompile(`https?://\S+/authorize\?\S+`)

// mcp-remote, for clients that only start programs: as a client that registers
// itself, with a metadata document, and with an id it was given.
func TestMCPRemoteSignsIn(t *testing.T) {
	ids := publishClients(t)
	p := startSignInPortal(t, signInOptions{auth: ids.config})
	admin := authtest.NewBrowser(t, "alice")
	for _, v := range []struct {
		name, query string
		args        []string
	}{
		{"registered", "", nil},
		{"registered, with options", "?optimize_context=search_and_execute", nil},
		{"document", "", []string{"--client-metadata-url", ids.document(t, "http://localhost/oauth/callback")}},
		{"given id", "", []string{"--static-oauth-client-info", `{"client_id":"` + ids.public + `"}`}},
	} {
		_, port, _ := strings.Cut(freePort(t), ":")
		dir := t.TempDir()
		for i, phase := range []string{"cold", "with what it kept", "after the person disconnected it"} {
			asked := remoteDoes(t, p.URL+v.query, dir, port, v.args, v.query)
			if asks := i != 1; asked != asks {
				t.Errorf("mcp-remote, %s, %s: asked the person: %v, want %v", v.name, phase, asked, asks)
			}
			if i == 1 {
				p.disconnectAll(t, admin)
			}
		}
	}
}

// remoteDoes runs mcp-remote for one job; asked says whether a person had to
// sign in.
func remoteDoes(t *testing.T, u, dir, port string, args []string, query string) (asked bool) {
	t.Helper()
	opened := make(chan struct{}, 1)
	pr, pw := io.Pipe()
	cmd := exec.CommandContext(t.Context(), node(t), append([]string{npmPath(t, "mcp-remote", "dist", "proxy.js"), u, port, "--allow-http"}, args...)...)
	cmd.Env = append(os.Environ(), "MCP_REMOTE_CONFIG_DIR="+dir, "PATH="+t.TempDir())
	cmd.Stderr = pw
	go func() {
		sc := bufio.NewScanner(pr)
		sc.Buffer(nil, 1<<20)
		for sc.Scan() {
			if m := remoteURL.FindString(sc.Text()); m != "" {
				back, _ := authtest.NewBrowser(t, "alice").SignIn(m, "allow")
				visit(back)
				select {
				case opened <- struct{}{}:
				default:
				}
			}
		}
	}()
	client := mcp.NewClient(&mcp.Implementation{Name: "stdio", Version: "1"}, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatalf("mcp-remote %v at %s: %v", args, u, err)
	}
	g := &goClient{session: s}
	g.do(t, query, map[bool]string{true: "example", false: "55"}[query == ""])
	_ = s.Close()
	_ = pw.Close()
	return len(opened) == 1
}

// visit goes to a client's callback as soon as it listens: mcp-remote names
// the address before it does.
func visit(back *url.URL) {
	for range 100 {
		if resp, err := http.Get(back.String()); err == nil {
			resp.Body.Close()
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}
