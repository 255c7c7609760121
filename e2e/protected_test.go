package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
)

// protected is an MCP server of the Go SDK that takes tokens of one
// authorization server, for itself only, and refuses those that it was told
// to.
type protected struct {
	URL string
	idp *authtest.Provider

	mu    sync.Mutex
	taken map[string]bool // tokens that were good
	old   map[string]bool // tokens that count as expired
	sent  []http.Header   // of all requests
}

type accountKey struct{}

// serveProtected starts one, over Streamable HTTP or HTTP+SSE.
func serveProtected(t *testing.T, idp *authtest.Provider, sse bool) *protected {
	t.Helper()
	s := &protected{idp: idp, taken: map[string]bool{}, old: map[string]bool{}}
	provider, err := oidc.NewProvider(t.Context(), idp.Issuer)
	if err != nil {
		t.Fatal(err)
	}
	make := func(r *http.Request) *mcp.Server {
		account, _ := r.Context().Value(accountKey{}).(string)
		v := mcp.NewServer(&mcp.Implementation{Name: "protected", Version: "1"}, nil)
		mcp.AddTool(v, &mcp.Tool{Name: "whoami", Description: "Says which account this is", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
			func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "account " + account}}}, nil, nil
			})
		return v
	}
	var mcpHandler http.Handler = mcp.NewStreamableHTTPHandler(make, nil)
	path := "/mcp"
	if sse {
		mcpHandler, path = mcp.NewSSEHandler(make, nil), "/sse"
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/.well-known/oauth-protected-resource") {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"resource": s.URL, "authorization_servers": []string{idp.Issuer}, "scopes_supported": []string{"openid", "profile"}})
			return
		}
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		id, err := provider.Verifier(&oidc.Config{ClientID: s.URL}).Verify(r.Context(), token)
		s.mu.Lock()
		s.sent = append(s.sent, r.Header.Clone())
		ok := err == nil && !s.old[token]
		if ok {
			s.taken[token] = true
		}
		s.mu.Unlock()
		if !ok {
			w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		mcpHandler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), accountKey{}, id.Subject)))
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	s.URL = server.URL + path
	return s
}

// expire makes the tokens taken so far count as expired.
func (s *protected) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.taken {
		s.old[k] = true
	}
}

// withdraw makes all logins there of no use.
func (s *protected) withdraw(t *testing.T) {
	t.Helper()
	s.idp.Withdraw(t)
	s.expire()
}

// tokens are all that were taken.
func (s *protected) tokens() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.taken {
		out = append(out, k)
	}
	return out
}

// front is a transport to an https origin that is served without TLS on this
// machine, as behind a proxy.
type front struct{ origin, addr string }

func (f front) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme+"://"+r.URL.Host == f.origin {
		r = r.Clone(r.Context())
		r.Host = r.URL.Host
		r.URL = &url.URL{Scheme: "http", Host: f.addr, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
	}
	return http.DefaultTransport.RoundTrip(r)
}
