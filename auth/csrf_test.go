package auth

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
	"github.com/mcp-portal/mcp-portal/config"
)

// post sends a request as a browser would, with what an attacker could vary.
func post(t *testing.T, b *authtest.Browser, target, contentType, body string, header http.Header) (int, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	req.Header.Set("Content-Type", contentType)
	res, err := b.HTTP.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(out)
}

func TestCSRF(t *testing.T) {
	const form = "application/x-www-form-urlencoded"
	oidcPortal, _ := fakePortal(t, true, func(c *config.Config) { c.Origins = []string{"https://app.example.com"} })
	devPortal := startPortal(t, false, func(url string) *config.Config {
		c := devConfig()
		c.URL = url
		return c
	})
	for name, p := range map[string]*portal{"signed in": oidcPortal, "development": devPortal} {
		t.Run(name, func(t *testing.T) {
			b, other := p.browser(t, "alice"), p.browser(t, "alice")
			csrf, foreign := csrfOf(t, b.Get(p.url("/home"))), csrfOf(t, other.Get(p.url("/home")))
			if csrf == "" || csrf == foreign {
				t.Fatalf("tokens %q and %q", csrf, foreign)
			}
			if again := csrfOf(t, b.Get(p.url("/home"))); again != csrf {
				t.Errorf("the token changed within the session")
			}
			body := url.Values{CSRFField: {csrf}, "what": {"it"}}.Encode()
			own := p.srv.URL
			for _, c := range []struct {
				name, contentType, body string
				header                  http.Header
				status                  int
			}{
				{"own page", form, body, http.Header{"Origin": {own}, "Sec-Fetch-Site": {"same-origin"}}, 200},
				{"no Origin, as old browsers", form, body, nil, 200},
				{"header instead of field", "application/json", `{}`, http.Header{CSRFHeader: {csrf}, "Origin": {own}}, 200},
				{"no token", form, "what=it", http.Header{"Origin": {own}}, 403},
				{"empty token", form, CSRFField + "=", http.Header{"Origin": {own}}, 403},
				{"token of another session", form, CSRFField + "=" + foreign, http.Header{"Origin": {own}}, 403},
				{"token in the query only", form, "what=it", http.Header{"Origin": {own}, "X-Query": {"1"}}, 403},
				{"token in text", "text/plain", body, http.Header{"Origin": {own}}, 403},
				{"evil origin", form, body, http.Header{"Origin": {"https://evil.example"}}, 403},
				{"null origin", form, body, http.Header{"Origin": {"null"}}, 403},
				{"null origin of another site", form, body, http.Header{"Origin": {"null"}, "Sec-Fetch-Site": {"cross-site"}}, 403},
				{"own page that hides its origin", form, body, http.Header{"Origin": {"null"}, "Sec-Fetch-Site": {"same-origin"}}, 200},
				{"that without the token", form, "what=it", http.Header{"Origin": {"null"}, "Sec-Fetch-Site": {"same-origin"}}, 403},
				{"configured origin is not the portal's own page", form, body, http.Header{"Origin": {"https://app.example.com"}}, 403},
				{"another program on this machine", form, body, http.Header{"Origin": {"http://localhost:6274"}}, 403},
				{"cross-site by fetch metadata", form, body, http.Header{"Sec-Fetch-Site": {"cross-site"}}, 403},
				{"same-site by fetch metadata", form, body, http.Header{"Sec-Fetch-Site": {"same-site"}}, 403},
				{"too long", form, body + "&x=" + strings.Repeat("a", maxForm), http.Header{"Origin": {own}}, 400},
			} {
				target := p.url("/do")
				if c.header.Get("X-Query") != "" {
					target += "?" + CSRFField + "=" + csrf
				}
				status, out := post(t, b, target, c.contentType, c.body, c.header)
				if status != c.status || (status == 200) != strings.HasPrefix(out, "done") {
					t.Errorf("%s: %d %s", c.name, status, out)
				}
				if status != 200 && strings.Contains(out, csrf) {
					t.Errorf("%s: the answer holds the token", c.name)
				}
			}
			if status, _ := post(t, p.browser(t, "eve"), p.url("/do"), form, body, http.Header{"Origin": {own}}); status == 200 {
				t.Error("the token works without the cookie")
			}
		})
	}
}

func TestDevelopmentMode(t *testing.T) {
	p := startPortal(t, false, func(url string) *config.Config {
		c := devConfig()
		c.URL = url
		return c
	})
	b := p.browser(t, "anyone")
	page := b.Get(p.url("/home"))
	if page.Status != 200 || !strings.Contains(page.Body, "user=dev name=dev@localhost groups=eng kind=dev") {
		t.Errorf("home: %d %s", page.Status, page.Body)
	}
	if page := b.Get(p.url("/auth/login?return_to=/home")); page.Status != 200 || page.URL.Path != "/home" {
		t.Errorf("login: %d %s", page.Status, page.URL)
	}
	if page := b.Get(p.url("/auth/login?return_to=//evil.example")); page.Status != 400 {
		t.Errorf("login to elsewhere: %d %s", page.Status, page.URL)
	}
	who, err := p.call("Bearer whatever")
	if err != nil || who.ID != "dev" || who.Kind != KindDev || who.Email != "dev@localhost" {
		t.Errorf("call: %+v %v", who, err)
	}
	if st := p.Status(); st.State != StateDev || st.Mode != "none" {
		t.Errorf("status %+v", st)
	}
	if _, _, body := challengeParts(t, p.Auth); body["error"] != CodeAccessDenied {
		t.Errorf("challenge body %v", body)
	}
	// Without the guard there is no cookie, hence no token, hence no change.
	req, err := http.NewRequest(http.MethodPost, p.url("/do"), nil)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, p.CheckCSRF(req), 403, CodeCSRF)
	// MCP clients get no cookie.
	req, err = http.NewRequest(http.MethodGet, p.url("/home"), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if len(res.Cookies()) != 0 {
		t.Errorf("an MCP client got %v", res.Cookies())
	}
}

func challengeParts(t *testing.T, a *Auth) (*http.Response, map[string]string, map[string]string) {
	t.Helper()
	res, params, body := challenge(t, a, denied("no", "ask"))
	if res.StatusCode != 403 || params != nil {
		t.Errorf("development mode: status %d with challenge %v", res.StatusCode, params)
	}
	return res, params, body
}
