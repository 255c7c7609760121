package auth

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/internal/testbrowser"
)

// A real browser decides by itself which cookies and Origin it sends.
func TestInARealBrowser(t *testing.T) {
	ctx := testbrowser.Start(t)
	do := func(what string, a ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		if err := chromedp.Do(ctx, a...); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	body := func() string {
		t.Helper()
		s, err := chromedp.Run(ctx, chromedp.Text(chromedp.CSS("body")))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	oidcPortal, idp := fakePortal(t, false, nil)
	devPortal := startPortal(t, false, func(url string) *config.Config {
		c := devConfig()
		c.URL = url
		return c
	})
	do("sign in", chromedp.Navigate(oidcPortal.url("/home")))
	if s := body(); !strings.Contains(s, "user="+idp.Issuer+"|alice") {
		t.Fatalf("after sign-in: %s", s)
	}
	for name, p := range map[string]*portal{"signed in": oidcPortal, "development": devPortal} {
		for _, policy := range []string{"same-origin", "no-referrer", "strict-origin-when-cross-origin"} {
			do("open the form", chromedp.Navigate(p.url("/form?policy="+policy)))
			do("send the form", chromedp.Click(chromedp.CSS("button")), chromedp.WaitNotPresent(chromedp.CSS("button")))
			if s := body(); s != "done it" {
				t.Errorf("%s, %s: %s", name, policy, s)
			}
		}
	}
	// A page of another origin, here a program on this machine that knows the
	// token, and one without an origin.
	csrf := "unused"
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Referrer-Policy", r.URL.Query().Get("policy"))
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<form method="post" action="` + r.URL.Query().Get("to") + `/do"><input name="csrf" value="` + csrf + `"><button>Go</button></form>`))
	}))
	defer evil.Close()
	for name, p := range map[string]*portal{"signed in": oidcPortal, "development": devPortal} {
		do("read the token", chromedp.Navigate(p.url("/home")))
		if _, rest, ok := strings.Cut(body(), "csrf=["); ok {
			csrf, _, _ = strings.Cut(rest, "]")
		}
		for _, policy := range []string{"same-origin", "no-referrer"} {
			do("open the other page", chromedp.Navigate(evil.URL+"?policy="+policy+"&to="+p.srv.URL))
			do("send its form", chromedp.Click(chromedp.CSS("button")), chromedp.WaitNotPresent(chromedp.CSS("button")))
			if s := body(); strings.Contains(s, "done") || (!strings.Contains(s, "another site") && !strings.Contains(s, "origin")) {
				t.Errorf("%s, %s, from another page: %s", name, policy, s)
			}
		}
	}
}
