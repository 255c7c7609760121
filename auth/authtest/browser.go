package authtest

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// Browser is a browser without a screen: it keeps cookies, follows redirects
// and fills in the sign-in form of StartProvider's IdP as User.
type Browser struct {
	User string
	HTTP *http.Client // its CheckRedirect must stay; its Transport may be replaced

	t testing.TB
}

// Page is where a browser has arrived.
type Page struct {
	URL    *url.URL
	Status int
	Header http.Header
	Body   string
	Via    []string // URLs on the way, the first request first
}

// NewBrowser gives a browser with no cookies whose person is user.
func NewBrowser(t testing.TB, user string) *Browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatalf("making a cookie jar: %v", err)
	}
	return &Browser{User: user, t: t, HTTP: &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// Get opens a URL and follows where it leads.
func (b *Browser) Get(target string) *Page {
	b.t.Helper()
	return b.follow(http.MethodGet, target, nil, nil)
}

// GetUntil is Get, but stops before opening a URL for which stop is true and
// gives that; its page is empty.
func (b *Browser) GetUntil(target string, stop func(*url.URL) bool) *Page {
	b.t.Helper()
	return b.follow(http.MethodGet, target, nil, stop)
}

// Post sends a form as a page of the same origin would, and follows where it
// leads.
func (b *Browser) Post(target string, form url.Values) *Page {
	b.t.Helper()
	return b.follow(http.MethodPost, target, form, nil)
}

// hidden are the fields that a page of the portal puts into its forms.
var hidden = regexp.MustCompile(`<input type="hidden" name="([a-z]+)" value="([^"]*)">`)

// SignIn is what a person does when an MCP client opens an authorization URL:
// sign in at the IdP, look at the portal's page, and decide "allow" or "deny".
// It gives the address of the client where the browser would go on to, which
// it does not open, and the page that was looked at.
func (b *Browser) SignIn(authorize, decision string) (back *url.URL, consent *Page) {
	b.t.Helper()
	u, err := url.Parse(authorize)
	if err != nil {
		b.t.Fatalf("browser: %v", err)
	}
	client := u.Query().Get("redirect_uri")
	stop := func(u *url.URL) bool { return client != "" && strings.HasPrefix(u.String(), client) }
	consent = b.follow(http.MethodGet, authorize, nil, stop)
	if consent.Status == 0 {
		return consent.URL, consent
	}
	form := url.Values{"decision": {decision}}
	for _, m := range hidden.FindAllStringSubmatch(consent.Body, -1) {
		form.Set(m[1], html.UnescapeString(m[2]))
	}
	if consent.Status != 200 || !form.Has("id") {
		b.t.Fatalf("browser: no page to decide on, but %d at %s: %.500s", consent.Status, consent.URL.Redacted(), consent.Body)
	}
	asked := *consent
	page := b.follow(http.MethodPost, consent.URL.Scheme+"://"+consent.URL.Host+consent.URL.Path, form, stop)
	if page.Status != 0 {
		b.t.Fatalf("browser: the decision ended at %d %s: %.500s", page.Status, page.URL.Redacted(), page.Body)
	}
	return page.URL, &asked
}

// Form gives the hidden fields of a page's forms, the last of each name.
func (p *Page) Form() url.Values {
	form := url.Values{}
	for _, m := range hidden.FindAllStringSubmatch(p.Body, -1) {
		form.Set(m[1], html.UnescapeString(m[2]))
	}
	return form
}

func (b *Browser) follow(method, target string, form url.Values, stop func(*url.URL) bool) *Page {
	b.t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		b.t.Fatalf("browser: %v", err)
	}
	page := &Page{}
	for range 30 {
		if stop != nil && stop(u) {
			page.URL, page.Status, page.Header, page.Body = u, 0, nil, ""
			return page
		}
		page.Via = append(page.Via, u.String())
		if err := b.once(page, method, u, form); err != nil {
			b.t.Fatalf("browser: %s %s: %v", method, u.Redacted(), err)
		}
		if loc := page.Header.Get("Location"); loc != "" && page.Status/100 == 3 {
			if u, err = u.Parse(loc); err != nil {
				b.t.Fatalf("browser: redirect of %s: %v", page.URL, err)
			}
			method, form = http.MethodGet, nil
			continue
		}
		if page.Status == 200 && strings.Contains(page.Body, `<input name="login">`) {
			method, form = http.MethodPost, url.Values{"login": {b.User}}
			continue
		}
		return page
	}
	b.t.Fatalf("browser: %s: too many redirects: %s", target, strings.Join(page.Via, " → "))
	return nil
}

func (b *Browser) once(page *Page, method string, u *url.URL, form url.Values) error {
	req, err := http.NewRequest(method, u.String(), strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/html")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", u.Scheme+"://"+u.Host)
	}
	res, err := b.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return fmt.Errorf("reading the page: %w", err)
	}
	page.URL, page.Status, page.Header, page.Body = u, res.StatusCode, res.Header, string(body)
	return nil
}
