package auth

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/mcp-portal/mcp-portal/auth/clientkey"
)

// loginMaxAge is how long a sign-in at the IdP may take.
const loginMaxAge = 10 * time.Minute

// loginTxn is a sign-in under way, kept in the store under the digest of its
// state and taken out by the first callback that names it.
type loginTxn struct {
	Bind     string `json:"bind"` // digest of the cookie of the browser that began it
	Issuer   string `json:"issuer"`
	ClientID string `json:"client_id"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"` // PKCE
	ReturnTo string `json:"return_to"`
}

func loginKey(state string) string { return "login:" + digest(state) }

// Login begins a sign-in (GET /auth/login?return_to=/path): OpenID Connect
// code flow with PKCE, state and nonce. When the IdP cannot be reached it says
// so instead of sending the browser into the void.
func (a *Auth) Login(w http.ResponseWriter, r *http.Request) {
	s := a.state.Load()
	if !allowMethod(w, r, http.MethodGet) {
		return
	}
	if wait, ok := a.logins.Allow(a.callerOf(r)); !ok {
		a.page(w, r, page{Status: 429, Title: "Too many sign-ins", Text: "From this network address too many sign-ins were begun. Wait a moment and try again.", Link: "/auth/login", LinkText: "Try again", Retry: wait})
		return
	}
	back, ok := returnPath(r.URL.Query().Get("return_to"))
	if !ok {
		a.page(w, r, page{Status: 400, Title: "Bad link", Text: "This sign-in link leads to somewhere outside this portal, so it was not followed.", Link: "/", LinkText: "Go to the home page"})
		return
	}
	if s.dev {
		redirect(w, r, back)
		return
	}
	if s.cfg.Auth.ClientID == "" {
		a.page(w, r, page{Status: 501, Title: "Browser sign-in is not set up", Text: "The portal's admin sets auth.client_id and auth.client_secret in portal.yaml to the client registered at the identity provider for this portal."})
		return
	}
	idp, err := s.idp.reachable(r.Context())
	if err != nil {
		a.log.WarnContext(r.Context(), "sign-in not begun", "issuer", s.idp.issuer, "error", err)
		a.idpDown(w, r, s)
		return
	}
	// One cookie serves all sign-ins of a browser, so that two tabs do not
	// spoil each other's.
	bind := s.readCookie(r, loginCookie)
	if bind == "" {
		bind = random()
	}
	state := random()
	txn := loginTxn{Bind: digest(bind), Issuer: s.idp.issuer, ClientID: s.cfg.Auth.ClientID, Nonce: random(), Verifier: oauth2.GenerateVerifier(), ReturnTo: back}
	raw, err := json.Marshal(txn)
	if err == nil {
		var created bool
		created, err = a.store.Create(r.Context(), loginKey(state), raw, loginMaxAge)
		if err == nil && !created {
			err = errStateTaken
		}
	}
	if err != nil {
		a.ErrorPage(w, r, storeError("keeping the sign-in under way", err))
		return
	}
	http.SetCookie(w, s.cookie(loginCookie, bind, loginMaxAge))
	opts := []oauth2.AuthCodeOption{oidc.Nonce(txn.Nonce), oauth2.S256ChallengeOption(txn.Verifier)}
	for name, value := range s.cfg.Auth.LoginParams {
		opts = append(opts, oauth2.SetAuthURLParam(name, value))
	}
	if r.URL.Query().Get("switch") != "" {
		opts = append(opts, oauth2.SetAuthURLParam("prompt", switchPrompt(s.cfg.Auth.LoginParams["prompt"])))
	}
	redirect(w, r, s.oauth(idp).AuthCodeURL(state, opts...))
}

// switchPrompt is what the IdP is to ask when somebody else wants to sign in
// than its session is of (OpenID Connect Core 1.0, section 3.1.2.1). Where the
// admin asks for something always, that stays; select_account goes with all of
// it, and Google, for one, knows no login.
func switchPrompt(always string) string {
	prompts := strings.Fields(always)
	switch {
	case len(prompts) == 0:
		return "login"
	case slices.Contains(prompts, "login"), slices.Contains(prompts, "select_account"):
		return always
	case slices.Equal(prompts, []string{"none"}): // goes with nothing else
		return "login"
	}
	return always + " select_account"
}

// oauth is the portal as a client of the IdP.
func (s *settings) oauth(idp *idpState) *oauth2.Config {
	e := idp.provider.Endpoint()
	e.AuthStyle = oauth2.AuthStyleInHeader // the default of OpenID Connect Core 1.0 section 9
	secret := s.cfg.Auth.ClientSecret.Reveal()
	methods := idp.meta.AuthMethods
	if secret == "" || s.key != nil || (len(methods) > 0 && !slices.Contains(methods, "client_secret_basic") && slices.Contains(methods, "client_secret_post")) {
		e.AuthStyle = oauth2.AuthStyleInParams
	}
	scopes := s.cfg.Auth.Scopes
	if !slices.Contains(scopes, oidc.ScopeOpenID) {
		scopes = append([]string{oidc.ScopeOpenID}, scopes...)
	}
	return &oauth2.Config{ClientID: s.cfg.Auth.ClientID, ClientSecret: secret, Endpoint: e, RedirectURL: s.origin.String() + "/auth/callback", Scopes: scopes}
}

// atIDP has the OAuth library send its requests with the portal's client for the
// IdP, proven by its key if it has one.
func (s *settings) atIDP(ctx context.Context, idp *idpState) context.Context {
	if s.key == nil {
		return oidc.ClientContext(ctx, s.idp.http)
	}
	c, token := *s.idp.http, idp.provider.Endpoint().TokenURL
	audience := token
	if s.cfg.Auth.AssertionAud == "issuer" {
		audience = s.idp.issuer
	}
	c.Transport = &clientkey.Transport{Base: c.Transport, Key: s.key, Client: s.cfg.Auth.ClientID, Endpoint: token, Audience: audience, Now: s.now}
	return oidc.ClientContext(ctx, &c)
}

func (s *settings) issuerHost() string {
	if u, err := url.Parse(s.idp.issuer); err == nil && u.Host != "" {
		return u.Host
	}
	return "the identity provider"
}

func allowMethod(w http.ResponseWriter, r *http.Request, method string) bool {
	if r.Method == method {
		return true
	}
	w.Header().Set("Allow", method)
	writeError(w, &Error{Status: 405, Code: CodeInvalidRequest, Description: "this address takes " + method + " only"})
	return false
}

// redirect follows with GET whatever the method was.
func redirect(w http.ResponseWriter, r *http.Request, to string) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer") // the URL here may hold a code or state
	http.Redirect(w, r, to, http.StatusSeeOther)
}
