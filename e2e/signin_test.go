package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
)

// withToken is an HTTP client that sends a bearer token and a Host header.
type withToken struct{ token, host string }

func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if w.token != "" {
		r.Header.Set("Authorization", "Bearer "+w.token)
	}
	if w.host != "" {
		r.Host = w.host
	}
	return http.DefaultTransport.RoundTrip(r)
}

func connectAs(t *testing.T, p *process, e era, query, token string) (*mcp.ClientSession, error) {
	t.Helper()
	u := p.URL
	if query != "" {
		u += "?" + query
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, nil)
	s, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: u, HTTPClient: &http.Client{Transport: withToken{token: token}}, DisableStandaloneSSE: true}, &mcp.ClientSessionOptions{ProtocolVersion: string(e)})
	if err == nil {
		t.Cleanup(func() { _ = s.Close() })
	}
	return s, err
}

// newServiceToken makes a token with the program, as an admin would.
func newServiceToken(t *testing.T, id string) (token, hash string) {
	t.Helper()
	out, err := exec.Command(binary, "token", id).Output()
	if err != nil {
		t.Fatalf("mcp-portal token: %v", err)
	}
	token = regexp.MustCompile(`mcpp_st_\S+`).FindString(string(out))
	hash = regexp.MustCompile(`sha256:[0-9a-f]{64}`).FindString(string(out))
	if token == "" || hash == "" {
		t.Fatalf("mcp-portal token printed %s", out)
	}
	return token, hash
}

// Sign-in with a certified identity provider: metadata, tokens, groups, the
// browser, machines.
func TestSignIn(t *testing.T) {
	addr := freePort(t)
	base := "http://" + addr
	idp := authtest.StartProvider(t, base+"/auth/callback")
	_, company := serveCompany(t, companyOptions)
	token, hash := newServiceToken(t, "nightly")
	yaml := fmt.Sprintf(`
listen: %s
url: %s
auth:
  mode: oidc
  accept: [idp]
  issuer: %s
  client_id: %s
  client_secret: %s
  scopes: [openid, profile, email, groups]
  admins: [eng]
  service_tokens:
    - {id: nightly, hash: %q, groups: [service], servers: [dns], tools: ["dns/zones_list", "dns/record_delete"]}
servers:
%s`, addr, base, idp.Issuer, idp.ClientID, idp.ClientSecret, hash, companyServers(company))
	yaml = strings.Replace(yaml, "  billing:\n", "  billing:\n    groups: [sales]\n", 1)
	yaml = strings.Replace(yaml, "  tracker:\n", "  tracker:\n    groups: [eng]\n    tools: {issue_delete: {groups: [owners]}}\n", 1)
	p := startProcess(t, "serve", "--config", writeConfig(t, yaml))
	alice := idp.Token(t, "alice", base+"/mcp")
	bob := idp.Token(t, "bob", base+"/mcp")
	p.waitServersAs(t, 8, alice)

	// Without a token: 401 that says where to sign in.
	resp, _ := post(t, p.URL, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, nil)
	challenge := resp.Header.Get("WWW-Authenticate")
	m := regexp.MustCompile(`resource_metadata="([^"]+)"`).FindStringSubmatch(challenge)
	if resp.StatusCode != 401 || m == nil {
		t.Fatalf("without a token: %s, WWW-Authenticate %q", resp.Status, challenge)
	}
	meta, err := http.Get(m[1])
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Resource             string   `json:"resource"`
		AuthorizationServers []string `json:"authorization_servers"`
	}
	err = json.NewDecoder(meta.Body).Decode(&doc)
	meta.Body.Close()
	if err != nil || doc.Resource != base+"/mcp" || len(doc.AuthorizationServers) != 1 || doc.AuthorizationServers[0] != idp.Issuer {
		t.Errorf("metadata: %+v %v", doc, err)
	}
	for what, bad := range map[string]string{"garbage": "x.y.z", "foreign audience": idp.Token(t, "alice", "https://other.example/mcp")} {
		if resp, _ := post(t, p.URL, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, map[string]string{"Authorization": "Bearer " + bad}); resp.StatusCode != 401 {
			t.Errorf("%s: %s, want 401", what, resp.Status)
		}
	}

	has := func(s *mcp.ClientSession, prefix string) bool {
		for _, n := range names(t, s) {
			if strings.HasPrefix(n, prefix) {
				return true
			}
		}
		return false
	}
	for _, e := range eras {
		for _, who := range []struct {
			name, token      string
			billing, tracker bool
		}{{"alice", alice, false, true}, {"bob", bob, true, false}} {
			s, err := connectAs(t, p, e, "", who.token)
			if err != nil {
				t.Fatalf("era %s, %s: %v", e, who.name, err)
			}
			if has(s, "billing_") != who.billing || has(s, "tracker_") != who.tracker || !has(s, "dns_") || has(s, "tracker_issue_delete") {
				t.Errorf("era %s, %s sees %v", e, who.name, names(t, s))
			}
			two, err := connectAs(t, p, e, "optimize_context=search_and_execute", who.token)
			if err != nil {
				t.Fatal(err)
			}
			// B136: the same verdict on every path.
			for _, hidden := range []struct{ tool, alias, server string }{{"billing_customers_list", "billing.customers_list", "billing"}, {"tracker_repos_list", "tracker.repos_list", "tracker"}, {"tracker_issue_delete", "tracker.issue_delete", ""}} {
				if hidden.server == "billing" && who.billing || hidden.server == "tracker" && who.tracker {
					continue
				}
				if res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: hidden.tool}); err == nil && !res.IsError {
					t.Errorf("era %s: %s called %s directly", e, who.name, hidden.tool)
				}
				for _, args := range []map[string]any{
					{"tool": hidden.tool}, {"tool": hidden.alias},
					{"code": "return await codemode." + hidden.tool + "({})"}, {"code": "return await codemode.call('" + hidden.tool + "', {})"},
					{"code": "return await " + hidden.alias + "({})"}, {"code": "return await codemode.describe('" + hidden.tool + "')"},
				} {
					if res := call(t, two, "portal_execute", args); !res.IsError {
						t.Errorf("era %s: %s reached %s with %v: %s", e, who.name, hidden.tool, args, text(t, res))
					}
				}
				// The name that was asked for comes back in the answer; what
				// must not is anything of the tool.
				for _, args := range []map[string]any{{"query": strings.ReplaceAll(hidden.tool, "_", " "), "limit": 100}, {"pattern": hidden.tool}, {"names": []string{hidden.tool}}} {
					if got := text(t, call(t, two, "portal_query_tools", args)); strings.Contains(got, hidden.tool+" [") || strings.Contains(got, "inputSchema") && strings.Contains(got, hidden.tool+"(") {
						t.Errorf("era %s: %s found %s with %v: %s", e, who.name, hidden.tool, args, got)
					}
				}
				if hidden.server != "" {
					if res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "portal_toggle_single_server", Arguments: map[string]any{"server_id": hidden.server, "action": "untoggle"}}); err == nil && !res.IsError {
						t.Errorf("era %s: %s switched %s", e, who.name, hidden.server)
					}
				}
			}
			if got := string(mustJSON(call(t, s, "portal_list_servers", nil).StructuredContent)); strings.Contains(got, `"billing"`) != who.billing || strings.Contains(got, `"tracker"`) != who.tracker {
				t.Errorf("era %s, %s: portal_list_servers: %s", e, who.name, got)
			}
		}
		if s, err := connectAs(t, p, e, "", bob); err != nil {
			t.Fatal(err)
		} else if _, err := s.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "tracker_triage_issue", Arguments: map[string]string{"repo": "portal", "number": "1"}}); err == nil {
			t.Errorf("era %s: bob got a prompt of a server he may not use", e)
		}

		// A machine sees what its token says, and cannot approve for itself.
		s, err := connectAs(t, p, e, "", token)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(names(t, s), " "); got != "portal_list_servers portal_toggle_servers portal_toggle_single_server dns_record_delete dns_zones_list" {
			t.Errorf("era %s: the machine sees %s", e, got)
		}
		if res := call(t, s, "dns_zones_list", nil); res.IsError {
			t.Errorf("era %s: %s", e, text(t, res))
		}
		if res := call(t, s, "dns_record_delete", map[string]any{"zone_id": "x", "record_id": "y"}); !res.IsError || !strings.Contains(text(t, res), "person") {
			t.Errorf("era %s: a machine's destructive call: %s", e, text(t, res))
		}
		if res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "dns_records_list", Arguments: map[string]any{"zone_id": "x"}}); err == nil && !res.IsError {
			t.Errorf("era %s: the machine called a tool outside its token", e)
		}
	}

	// A session belongs to its user.
	init := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	resp, _ = post(t, p.URL, init, map[string]string{"Authorization": "Bearer " + alice})
	if resp, _ := post(t, p.URL, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, map[string]string{"Authorization": "Bearer " + bob, "Mcp-Session-Id": resp.Header.Get("Mcp-Session-Id")}); resp.StatusCode != 404 {
		t.Errorf("bob in alice's session: %s", resp.Status)
	}

	// The status is for admins.
	for who, want := range map[string]int{alice: 200, bob: 403, token: 403, "": 401} {
		req, err := http.NewRequest("GET", base+"/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		if who != "" {
			req.Header.Set("Authorization", "Bearer "+who)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("/status: %d, want %d", resp.StatusCode, want)
		}
	}

	// The browser: the approval page asks alice to sign in and brings her back;
	// bob cannot see it.
	s, err := connectAs(t, p, legacy, "", alice)
	if err != nil {
		t.Fatal(err)
	}
	args := map[string]any{"channel_id": "C000", "text": "hello"}
	res := call(t, s, "chat_message_post", args)
	u := approvalURL.FindString(text(t, res))
	if u == "" {
		t.Fatalf("no address in %s", text(t, res))
	}
	page := authtest.NewBrowser(t, "bob").Get(u)
	if page.Status != 404 || strings.Contains(page.Body, "message_post") {
		t.Errorf("bob at alice's approval: %d", page.Status)
	}
	b := authtest.NewBrowser(t, "alice")
	page = b.Get(u)
	if page.Status != 200 || !strings.Contains(page.Body, "message_post") || page.URL.String() != u {
		t.Fatalf("alice at her approval: %d %s", page.Status, page.URL)
	}
	csrf := csrfField.FindStringSubmatch(page.Body)
	if csrf == nil {
		t.Fatal("no form on the page")
	}
	b.Post(u, url.Values{"csrf": {csrf[1]}, "decision": {"approve"}})
	if res := call(t, s, "chat_message_post", args); res.IsError {
		t.Errorf("after alice's yes: %s", text(t, res))
	}
	if home := b.Get(base + "/"); home.Status != 200 || !strings.Contains(home.Body, "Alice Example") || !strings.Contains(home.Body, base+"/mcp") {
		t.Errorf("alice's home page: %d", home.Status)
	}

	// The audit has a line per call, with who and why, and no secret.
	audit, err := os.ReadFile(filepath.Join(filepath.Dir(p.config(t)), "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(audit)), "\n")
	seen := map[string]bool{}
	for _, l := range lines {
		var ev map[string]any
		if err := json.Unmarshal([]byte(l), &ev); err != nil {
			t.Fatalf("audit line %q: %v", l, err)
		}
		seen[fmt.Sprint(ev["user"], " ", ev["status"], " ", ev["decision"])] = true
	}
	for _, want := range []string{idp.Issuer + "|alice ok approve", idp.Issuer + "|alice pending approve", "svc:nightly ok allow"} {
		if !seen[want] {
			t.Errorf("the audit has no line %q; it has %v", want, seen)
		}
	}
	for _, secret := range []string{alice, bob, token, idp.ClientSecret, "hello"} {
		if strings.Contains(string(audit), secret) || strings.Contains(p.output(), secret) {
			t.Errorf("a secret or an argument value is in the audit or the log: %.20s…", secret)
		}
	}
}

// config is the configuration file the process was started with.
func (p *process) config(t *testing.T) string {
	t.Helper()
	for i, a := range p.cmd.Args {
		if a == "--config" {
			return p.cmd.Args[i+1]
		}
	}
	t.Fatal("no --config")
	return ""
}

// waitServersAs is waitServers of a portal with sign-in.
func (p *process) waitServersAs(t *testing.T, n int, token string) {
	t.Helper()
	eventually(t, "servers ready", func() error {
		req, err := http.NewRequest("GET", p.base()+"/status", nil)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		var st struct{ Servers []struct{ State string } }
		if err := json.NewDecoder(resp.Body).Decode(&st); err != nil {
			return fmt.Errorf("%s: %w", resp.Status, err)
		}
		ready := 0
		for _, s := range st.Servers {
			if s.State == "ready" {
				ready++
			}
		}
		if ready < n {
			return fmt.Errorf("%d ready", ready)
		}
		return nil
	})
}

// B022: a portal on loopback behind a proxy that forwards the public Host is
// reached under the configured names, and under no other.
func TestB022_PublicHostBehindAProxy(t *testing.T) {
	addr := freePort(t)
	token, hash := newServiceToken(t, "m")
	p := startProcess(t, "serve", "--config", writeConfig(t, fmt.Sprintf(`
listen: %s
url: https://portal.example
hosts: [internal.example]
auth:
  mode: oidc
  issuer: https://127.0.0.1:1
  service_tokens: [{id: m, hash: %q}]
`, addr, hash)))
	for host, want := range map[string]int{"portal.example": 200, "portal.example:443": 200, "internal.example": 200, addr: 200, "evil.example": 403, "portal.example.evil": 403} {
		req, err := http.NewRequest("POST", "http://"+addr+"/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+token)
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("Host %s: %d, want %d", host, resp.StatusCode, want)
		}
	}
	_ = p
}

// The identity provider may be down at start and come later.
func TestIdPDownAtStart(t *testing.T) {
	idp := authtest.StartFakeIdP(t)
	idp.Down()
	addr := freePort(t)
	p := startProcess(t, "serve", "--config", writeConfig(t, fmt.Sprintf("listen: %s\nurl: http://%s\nauth: {mode: oidc, issuer: %q, admins: [a]}\n", addr, addr, idp.Issuer)))
	token := idp.Token(map[string]any{"sub": "u", "aud": "http://" + addr + "/mcp", "groups": []string{"a"}})
	resp, _ := post(t, p.URL, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, map[string]string{"Authorization": "Bearer " + token})
	if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("IdP down: %s, want 503 with Retry-After", resp.Status)
	}
	idp.Up()
	eventually(t, "the token is accepted", func() error {
		time.Sleep(200 * time.Millisecond)
		resp, b := post(t, p.URL, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, map[string]string{"Authorization": "Bearer " + token})
		if resp.StatusCode != 200 {
			return fmt.Errorf("%s %s", resp.Status, b)
		}
		return nil
	})
}

// Why a server does not work is said to those who can mend it; others learn
// that it does not, without addresses and paths of the company.
func TestReasonsAreForAdmins(t *testing.T) {
	addr := freePort(t)
	idp := authtest.StartProvider(t, "http://"+addr+"/auth/callback")
	p := startProcess(t, "serve", "--config", writeConfig(t, fmt.Sprintf(`
listen: %s
url: http://%s
auth:
  accept: [portal, idp]
  issuer: %s
  client_id: %s
  client_secret: %s
  scopes: [openid, profile, email, groups]
  admins: [eng]
servers:
  gone: {url: "http://127.0.0.1:1/secret-path"}
  lost: {command: [/no/such/program]}
`, addr, addr, idp.Issuer, idp.ClientID, idp.ClientSecret)))
	eventually(t, "both servers have failed", func() error {
		if n := strings.Count(p.output(), "the server is not ready"); n < 2 {
			return fmt.Errorf("%d have", n)
		}
		return nil
	})
	for who, want := range map[string]bool{"alice": true, "bob": false} {
		b := authtest.NewBrowser(t, who)
		for _, path := range []string{"/", "/servers"} {
			page := string(b.Get(p.base() + path).Body)
			if !strings.Contains(page, "degraded") {
				t.Fatalf("%s, %s: %.500s", who, path, page)
			}
			if got := strings.Contains(page, "127.0.0.1:1") && strings.Contains(page, "/no/such/program"); got != want {
				t.Errorf("%s, %s: the reasons are shown: %v, want %v", who, path, got, want)
			}
			if told := strings.Contains(page, "The portal tries again by itself"); told == want {
				t.Errorf("%s, %s: in plain words: %v, want %v", who, path, told, !want)
			}
		}
		// So do their agents.
		token := idp.Token(t, who, p.base()+"/mcp")
		for query, call := range map[string]*mcp.CallToolParams{
			"optimize_context=search_and_execute": {Name: "portal_query_tools", Arguments: map[string]any{}},
			"":                                    {Name: "portal_list_servers", Arguments: map[string]any{}},
			"codemode=code":                       {Name: "portal_code", Arguments: map[string]any{"code": "return await gone.find({})"}},
		} {
			s, err := connectAs(t, p, modern, query, token)
			if err != nil {
				t.Fatal(err)
			}
			res, err := s.CallTool(t.Context(), call)
			if err != nil {
				t.Fatal(err)
			}
			said := text(t, res)
			if !strings.Contains(said, "gone") || !strings.Contains(said, "reached") && !want || strings.Contains(said, "127.0.0.1:1") != want {
				t.Errorf("%s, %s: %s", who, call.Name, said)
			}
		}
	}
}
