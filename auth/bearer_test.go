package auth

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
)

func TestWhereTokensAreAccepted(t *testing.T) {
	idp := authtest.StartFakeIdP(t)
	r := newRig(t, oidcConfig(idp))
	tok := idp.Token(map[string]any{"aud": mcpAud})
	for _, c := range []struct {
		name, target string
		headers      []string
		status       int
		code         string
	}{
		{"nothing", "/mcp", nil, 401, ""},
		{"Bearer", "/mcp", []string{"Bearer " + tok}, 0, ""},
		{"bearer in small letters", "/mcp", []string{"bearer " + tok}, 0, ""},
		{"more spaces", "/mcp", []string{"Bearer   " + tok + "  "}, 0, ""},
		{"other query parameters", "/mcp?optimize_context=search_and_execute", []string{"Bearer " + tok}, 0, ""},
		{"no scheme", "/mcp", []string{tok}, 401, ""},
		{"Basic", "/mcp", []string{"Basic dXNlcjpwYXNz"}, 401, ""},
		{"Bearer and nothing", "/mcp", []string{"Bearer"}, 401, ""},
		{"Bearer and spaces", "/mcp", []string{"Bearer   "}, 401, ""},
		{"empty header", "/mcp", []string{""}, 401, ""},
		{"twice the same", "/mcp", []string{"Bearer " + tok, "Bearer " + tok}, 400, CodeInvalidRequest},
		{"good and bad", "/mcp", []string{"Bearer " + tok, "Bearer x"}, 400, CodeInvalidRequest},
		{"joined by a proxy", "/mcp", []string{"Bearer " + tok + ", Bearer " + tok}, 400, CodeInvalidRequest},
		{"two tokens", "/mcp", []string{"Bearer " + tok + " " + tok}, 400, CodeInvalidRequest},
		{"quotes", "/mcp", []string{`Bearer "` + tok + `"`}, 400, CodeInvalidRequest},
		{"oversized", "/mcp", []string{"Bearer " + strings.Repeat("a", maxBearer)}, 400, CodeInvalidRequest},
		{"in the query", "/mcp?access_token=" + tok, nil, 401, CodeInvalidToken},
		{"in the query, name encoded", "/mcp?access%5Ftoken=" + tok, nil, 401, CodeInvalidToken},
		{"in the query, capitals", "/mcp?a=b&Access_Token=" + tok, nil, 401, CodeInvalidToken},
		{"in the query after a semicolon", "/mcp?a=b;access_token=" + tok, nil, 401, CodeInvalidToken},
		{"in the query after nonsense", "/mcp?%zz&access_token=" + tok, nil, 401, CodeInvalidToken},
		{"in both", "/mcp?access_token=" + tok, []string{"Bearer " + tok}, 400, CodeInvalidRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := httptest.NewRequest(http.MethodPost, portalURL+c.target, nil)
			for _, h := range c.headers {
				req.Header.Add("Authorization", h)
			}
			_, err := r.Authenticate(req)
			if c.status == 0 {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			wantError(t, err, c.status, c.code)
		})
	}
	if strings.Contains(r.log.String(), tok) {
		t.Error("the token is in the log")
	}
	t.Run("in a form body", func(t *testing.T) {
		req := httptest.NewRequest(http.MethodPost, portalURL+"/mcp", strings.NewReader("access_token="+tok))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		_, err := r.Authenticate(req)
		wantError(t, err, 401, "")
	})
	t.Run("a browser session is none", func(t *testing.T) {
		req := httptest.NewRequest(http.MethodPost, portalURL+"/mcp", nil)
		req.AddCookie(&http.Cookie{Name: "__Host-" + sessionCookie, Value: random()})
		_, err := r.Authenticate(req)
		wantError(t, err, 401, "")
	})
}

func FuzzBearer(f *testing.F) {
	for _, s := range []string{"Bearer abc", "bearer  a.b.c ", "Basic x", "Bearer", "Bearer a b", "Bearer a,Bearer b", "\tBearer x", "Bearer é", "Bearer ="} {
		f.Add(s, "access_token=x")
	}
	f.Fuzz(func(t *testing.T, header, query string) {
		token, err := parseBearer(header)
		if err != nil && token != "" {
			t.Fatalf("%q gave both a token and an error", header)
		}
		if token != "" && (!isToken68(token) || !strings.Contains(header, token) || len(token) > maxBearer) {
			t.Fatalf("%q gave %q", header, token)
		}
		req := httptest.NewRequest(http.MethodGet, portalURL, nil)
		req.URL.RawQuery = query
		if req.URL.Query().Has("access_token") && !tokenInQuery(req.URL) {
			t.Fatalf("query %q holds a token that was not seen", query)
		}
	})
}
