package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
	"github.com/mcp-portal/mcp-portal/internal/testbrowser"
)

// chromium is a tab of a real browser.
type chromium struct {
	t   *testing.T
	ctx context.Context
}

func startChromium(t *testing.T) *chromium {
	t.Helper()
	return &chromium{t, testbrowser.Start(t)}
}

func (c *chromium) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	c.t.Helper()
	if err := chromedp.Do(c.ctx, actions...); err != nil {
		c.t.Fatalf("%s: %v, at %s: %.300s", what, err, evaluate[string](c, `location.href`), evaluate[string](c, `document.body.innerText`))
	}
}

func evaluate[T any](c *chromium, script string, opts ...chromedp.EvaluateOption) T {
	c.t.Helper()
	v, err := chromedp.Run(c.ctx, chromedp.Evaluate[T](script, opts...))
	if err != nil {
		c.t.Fatalf("%s: %v", script, err)
	}
	return v
}

func css(s string) chromedp.CSS { return chromedp.CSS(s) }

// callbackClient is a client whose callback a browser reaches.
type callbackClient struct {
	t        *testing.T
	p        signInPortal
	id       string
	redirect string
	answers  chan url.Values
	verifier string
}

func newCallbackClient(t *testing.T, p signInPortal) *callbackClient {
	t.Helper()
	c := &callbackClient{t: t, p: p, answers: make(chan url.Values, 10), verifier: strings.Repeat("verifier-", 6)}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/callback" {
			http.NotFound(w, r)
			return
		}
		c.answers <- r.URL.Query()
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<title>Client</title><p id="done">Back at the client</p>`)
	}))
	t.Cleanup(srv.Close)
	c.redirect = srv.URL + "/callback"
	resp, body := post(t, p.base()+"/register", fmt.Sprintf(`{"client_name":"Notes <b>app</b>","redirect_uris":[%q],"token_endpoint_auth_method":"none"}`, c.redirect), nil)
	var reg struct {
		ID string `json:"client_id"`
	}
	if err := json.Unmarshal(body, &reg); err != nil || resp.StatusCode != 201 {
		t.Fatalf("register: %s %s", resp.Status, body)
	}
	c.id = reg.ID
	return c
}

func (c *callbackClient) authorize() string {
	sum := sha256.Sum256([]byte(c.verifier))
	return c.p.base() + "/authorize?" + url.Values{"response_type": {"code"}, "client_id": {c.id}, "redirect_uri": {c.redirect}, "state": {"of the client"},
		"scope": {"mcp"}, "code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"}}.Encode()
}

// answer is what came back with the browser.
func (c *callbackClient) answer() url.Values {
	c.t.Helper()
	select {
	case q := <-c.answers:
		if q.Get("state") != "of the client" || q.Get("iss") != c.p.base() {
			c.t.Errorf("state %q, iss %q", q.Get("state"), q.Get("iss"))
		}
		return q
	case <-time.After(time.Minute):
		c.t.Fatal("the browser does not come back to the client")
	}
	return nil
}

func (c *callbackClient) exchange(code string) (access string) {
	c.t.Helper()
	resp, err := http.PostForm(c.p.base()+"/token", url.Values{"grant_type": {"authorization_code"}, "client_id": {c.id}, "code": {code}, "redirect_uri": {c.redirect}, "code_verifier": {c.verifier}})
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	var tok struct {
		Access string `json:"access_token"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&tok); err != nil || tok.Access == "" {
		c.t.Fatalf("the code gives no token: %s %v", resp.Status, err)
	}
	return tok.Access
}

func (p signInPortal) statusOf(t *testing.T, token string) int {
	t.Helper()
	resp, _ := post(t, p.URL, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, map[string]string{"Authorization": "Bearer " + token})
	return resp.StatusCode
}

// The pages of sign-in in a real browser: sign in at the provider, look at the
// client, refuse and allow with the keyboard, disconnect it, and sign out,
// which ends everything.
func TestSignInPagesInChromium(t *testing.T) {
	p := startSignInPortal(t, signInOptions{})
	client := newCallbackClient(t, p)
	b := startChromium(t)

	// On a phone, signed in nowhere.
	b.do("sign in at the provider", chromedp.EmulateViewport(320, 640), chromedp.Navigate(client.authorize()), chromedp.WaitVisible(css(`input[name="login"]`)),
		chromedp.SendKeys(css(`input[name="login"]`), "alice"+kb.Enter), chromedp.WaitVisible(css(`button[value="allow"]`)))
	host := strings.TrimPrefix(strings.TrimSuffix(client.redirect, "/callback"), "http://")
	text := evaluate[string](b, `document.body.innerText`)
	for _, want := range []string{"Notes <b>app</b>", host, "nobody has checked the name", "Look closely", "Alice Example"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q: %s", want, text)
		}
	}
	if wide := evaluate[int64](b, `document.documentElement.scrollWidth`); wide > 320 {
		t.Errorf("the page is %d px wide on a screen of 320: %s", wide,
			evaluate[string](b, `[...document.querySelectorAll("*")].filter(e => e.getBoundingClientRect().right > 320).map(e => e.outerHTML.slice(0, 120)).join("\n")`))
	}
	for _, button := range []string{"allow", "deny"} {
		if high := evaluate[float64](b, `document.querySelector('button[value="`+button+`"]').getBoundingClientRect().height`); high < 36 {
			t.Errorf("the button %s is %v px high: too small for a finger", button, high)
		}
	}
	_, asked := authtest.NewBrowser(t, "bob").SignIn(client.authorize(), "deny")
	for name, want := range map[string]string{"X-Frame-Options": "DENY", "Content-Security-Policy": "frame-ancestors 'none'", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"} {
		if !strings.Contains(asked.Header.Get(name), want) {
			t.Errorf("%s is %q", name, asked.Header.Get(name))
		}
	}
	// Chromium applies form-action to where the decision leads in the end.
	if strings.Contains(asked.Header.Get("Content-Security-Policy"), "form-action") {
		t.Error("the page binds its form, so the browser could not go on to the client")
	}

	// Refused: Enter alone decides nothing.
	b.do("press Enter", chromedp.KeyEvent(kb.Enter))
	if !evaluate[bool](b, `!!document.querySelector('button[value="allow"]')`) {
		t.Error("Enter decided")
	}
	b.do("refuse", chromedp.Click(css(`button[value="deny"]`)), chromedp.WaitVisible(css(`#done`)))
	if q := client.answer(); q.Get("error") != "access_denied" || q.Has("code") {
		t.Errorf("refused, the client is told %v", q)
	}

	// Allowed, by keyboard only: the buttons come in the order they are read.
	allow := func() string {
		b.do("the page again", chromedp.Navigate(client.authorize()), chromedp.WaitVisible(css(`button[value="allow"]`)))
		for i := 0; evaluate[string](b, `document.activeElement?.value ?? ""`) != "allow"; i++ {
			if i == 30 {
				t.Fatal("the button is not reached with Tab")
			}
			b.do("Tab", chromedp.KeyEvent(kb.Tab))
		}
		if outline := evaluate[string](b, `getComputedStyle(document.activeElement).outlineStyle`); outline == "none" {
			t.Error("one does not see where the keyboard is")
		}
		b.do("allow", chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(css(`#done`)))
		q := client.answer()
		if q.Get("code") == "" {
			t.Fatalf("allowed, the client is told %v", q)
		}
		return client.exchange(q.Get("code"))
	}
	first := allow()
	if got := p.statusOf(t, first); got != 200 {
		t.Fatalf("the client's token: %d", got)
	}

	// Another site cannot show the page, though the cookie is sent there.
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<iframe src="%s" onload="document.title='loaded'"></iframe>`, p.base()+"/clients")
	}))
	defer thief.Close()
	b.do("a page with a frame", chromedp.Navigate(thief.URL))
	eventually(t, "the frame is done", func() error {
		if title := evaluate[string](b, `document.title`); title != "loaded" {
			return fmt.Errorf("the title is %q", title)
		}
		return nil
	})
	tree, err := chromedp.Call(b.ctx, page.GetFrameTree, cdp.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	if frames := tree.FrameTree.ChildFrames; len(frames) != 1 || frames[0].Frame.UnreachableURL == "" {
		t.Errorf("the portal's page was shown in a frame: %+v", frames)
	}

	// Disconnected on the page of clients.
	b.do("the page of clients", chromedp.Navigate(p.base()+"/clients"), chromedp.WaitVisible(css(`form[action="/clients"] button`)))
	if label := evaluate[string](b, `document.querySelector('form[action="/clients"] button').ariaLabel`); !strings.Contains(label, "Notes <b>app</b>") {
		t.Errorf("the button is labelled %q", label)
	}
	b.do("disconnect", chromedp.Click(css(`form[action="/clients"] button`)), chromedp.WaitVisible(css(`.empty`)))
	if got := p.statusOf(t, first); got != 401 {
		t.Errorf("the token of a disconnected client: %d", got)
	}

	// Signed out: the client, the session and the one at the provider end.
	second := allow()
	b.do("sign out", chromedp.Navigate(p.base()+"/"), chromedp.WaitVisible(css(`form[action="/auth/logout"] button`)), chromedp.Click(css(`form[action="/auth/logout"] button`)),
		chromedp.WaitNotPresent(css(`form[action="/auth/logout"]`)))
	if at := evaluate[string](b, `location.href`); !strings.HasPrefix(at, p.idp.Issuer+"/session/end") {
		t.Errorf("signed out, the browser is at %s", at)
	}
	if got := p.statusOf(t, second); got != 401 {
		t.Errorf("the client's token after its person signed out: %d", got)
	}
	b.do("end the session at the provider", chromedp.Click(css(`button[name="logout"]`)), chromedp.WaitNotPresent(css(`button[name="logout"]`)))
	b.do("a page of the portal", chromedp.Navigate(p.base()+"/clients"), chromedp.WaitVisible(css(`input[name="login"]`)))
}
