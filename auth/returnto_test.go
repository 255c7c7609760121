package auth

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestReturnPath(t *testing.T) {
	for raw, want := range map[string]string{
		"": "/", "/": "/", "/approvals/abc": "/approvals/abc", "/a?x=1&y=%2F%2Fevil": "/a?x=1&y=%2F%2Fevil",
		"/a%20b": "/a%20b", "/a:b@c": "/a:b@c", "/?next=https://evil.example": "/?next=https://evil.example", "/authors": "/authors",
	} {
		if got, ok := returnPath(raw); !ok || got != want {
			t.Errorf("returnPath(%q) = %q %v, want %q", raw, got, ok, want)
		}
	}
	for _, raw := range []string{
		"//evil.example", "///evil.example", `/\evil.example`, `\/evil.example`, `\\evil.example`, "https://evil.example", "https:evil.example",
		"HTTPS:/evil.example", "javascript:alert(1)", "data:text/html,x", "evil.example", "@evil.example", ".evil.example", "?x", "#x",
		"/%2Fevil.example", "/%2f%2fevil.example", "/%5Cevil.example", "/%5cevil.example", "/%252Fevil.example", "/%25252fevil.example",
		"/%2525252525252fevil.example", "/a/..//evil.example", "/./evil", "/a/../b", "/%2e%2e/b", "/.%2e//evil.example", "/a//evil.example",
		"/\t/evil.example", "/\n/evil.example", "\t//evil.example", " //evil.example", "/%09/evil.example", "/%0d%0aSet-Cookie:x", "/a b",
		"/a#//evil", "/a\x00", "/\u2215evil.example", "/%zz", "/auth/logout", "/auth/login?return_to=/auth/login", "/auth", "/%61uth/callback",
		"/" + strings.Repeat("a", maxReturn), "/" + strings.Repeat(">", maxReturn/2),
	} {
		if got, ok := returnPath(raw); ok {
			t.Errorf("returnPath(%q) = %q, want refused", raw, got)
		}
	}
}

func FuzzReturnPath(f *testing.F) {
	for _, s := range []string{"/a", "//evil", `/\evil`, "/%2fevil", "/a?b=c", "https://evil", "/.%2e/x", "/a;b", "/%25", "/a?%zz"} {
		f.Add(s)
	}
	base, err := url.Parse(portalURL + "/auth/callback")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		got, ok := returnPath(raw)
		if !ok {
			return
		}
		// What a browser would make of the header that is really sent.
		w := httptest.NewRecorder()
		redirect(w, httptest.NewRequest(http.MethodGet, base.String(), nil), got)
		loc := w.Header().Get("Location")
		browser := strings.NewReplacer("\t", "", "\n", "", "\r", "", `\`, "/").Replace(strings.TrimSpace(loc))
		u, err := base.Parse(browser)
		if err != nil || u.Scheme != base.Scheme || u.Host != base.Host || u.User != nil || strings.HasPrefix(u.Path, "//") || strings.HasPrefix(u.Path, "/auth/") {
			t.Fatalf("%q leads to %q (%v)", raw, loc, u)
		}
		// A proxy that decodes the path once more must not help either.
		if d, err := url.PathUnescape(u.EscapedPath()); err != nil || strings.HasPrefix(d, "//") || strings.Contains(d, `\`) {
			t.Fatalf("%q leads to %q, decoded %q", raw, loc, d)
		}
		if again, ok := returnPath(got); !ok || again != got {
			t.Fatalf("%q becomes %q, and that %q %v", raw, got, again, ok)
		}
	})
}
