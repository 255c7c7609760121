package authserver

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/mcp-portal/mcp-portal/auth/vault"
	"github.com/mcp-portal/mcp-portal/config"
)

// A1, A2, A7, A11, A12, B110: what clients read before they begin.
func TestMetadata(t *testing.T) {
	r := newRig(t, nil)
	for _, p := range metadataPaths {
		a := r.get(p)
		has := func(member, want string) {
			t.Helper()
			list, _ := a.json[member].([]any)
			if !slices.Contains(list, any(want)) {
				t.Errorf("%s: %s is %v, want %s in it", p, member, a.json[member], want)
			}
		}
		if a.status != 200 || a.json["issuer"] != r.url {
			t.Fatalf("%s: %d %s", p, a.status, a.body)
		}
		for member, path := range map[string]string{"authorization_endpoint": "/authorize", "token_endpoint": "/token", "registration_endpoint": "/register", "revocation_endpoint": "/revoke", "jwks_uri": "/jwks.json"} {
			if a.json[member] != r.url+path {
				t.Errorf("%s: %s is %v", p, member, a.json[member])
			}
		}
		has("code_challenge_methods_supported", "S256")
		has("token_endpoint_auth_methods_supported", "none")
		has("grant_types_supported", "refresh_token")
		has("response_types_supported", "code")
		has("scopes_supported", "offline_access")
		if m, _ := a.json["code_challenge_methods_supported"].([]any); len(m) != 1 {
			t.Errorf("%s: PKCE methods %v", p, m)
		}
		if a.json["authorization_response_iss_parameter_supported"] != true || a.json["client_id_metadata_document_supported"] != true || a.header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: %s", p, a.body)
		}
	}
	keys := r.get(PathKeys)
	if strings.Contains(keys.body, `"d"`) || !strings.Contains(keys.body, `"kid"`) || !strings.Contains(keys.body, `"ES256"`) {
		t.Errorf("keys: %s", keys.body)
	}
	off := newRig(t, func(c *config.Config) {
		no := false
		c.Auth.Clients.Register, c.Auth.Clients.MetadataDocuments = &no, &no
	})
	a := off.get(metadataPaths[0])
	if a.json["registration_endpoint"] != nil || a.json["client_id_metadata_document_supported"] != false {
		t.Errorf("with registration off: %s", a.body)
	}
	if a := off.registerJSON(`{"redirect_uris":["` + loopback + `"]}`); a.status != 403 {
		t.Errorf("registering although it is off: %d", a.status)
	}
	if err := r.SetConfig(r.cfg, ""); err != nil {
		t.Fatal(err)
	}
	if a := r.get(metadataPaths[0]); a.status != 404 {
		t.Errorf("closed: %d", a.status)
	}
}

// A4, B112: registration.
func TestRegistration(t *testing.T) {
	r := newRig(t, func(c *config.Config) { c.Auth.Clients.RedirectHosts = []string{"*.example.com"} })
	for _, kind := range []string{"native", "web", ""} {
		a := r.registerJSON(`{"client_name":"X","application_type":"` + kind + `","redirect_uris":["` + loopback + `","cursor://anysphere.cursor-mcp/oauth/callback","https://app.example.com/cb"],"grant_types":["authorization_code","refresh_token"],"logo_uri":"javascript:alert(1)"}`)
		grants, _ := a.json["grant_types"].([]any)
		if a.status != 201 || a.json["token_endpoint_auth_method"] != "none" || !slices.Contains(grants, any("refresh_token")) || a.json["client_secret"] != nil || strings.Contains(a.body, "javascript") {
			t.Errorf("%s: %d %s", kind, a.status, a.body)
		}
	}
	for body, want := range map[string]string{
		`{}`: "invalid_redirect_uri", `{"redirect_uris":[]}`: "invalid_redirect_uri", `[`: "invalid_client_metadata", `{"redirect_uris":"x"}`: "invalid_client_metadata",
		`{"redirect_uris":["` + loopback + `"],"token_endpoint_auth_method":"private_key_jwt"}`: "invalid_client_metadata",
		`{"redirect_uris":["` + loopback + `"],"grant_types":["client_credentials"]}`:           "invalid_client_metadata",
		`{"redirect_uris":["` + loopback + `"],"response_types":["token"]}`:                     "invalid_client_metadata",
	} {
		if a := r.registerJSON(body); a.status != 400 || a.json["error"] != want {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	for _, bad := range []string{"http://evil.example.com/cb", "https://evil.example.org/cb", "javascript:alert(1)", "data:text/html,x", "https://app.example.com/cb#f", "https://u:p@app.example.com/cb",
		"https://app.example.com/*", "https://app.example.com/a/../b", "https://app.example.com/%2e%2e/b", "file:///etc/passwd", "http://localhost.evil.example.com/cb", "http://127.0.0.1.evil.example.com/cb", "app", "//x/cb", "https:/x", "unknown.app:/cb", "https://app.example.com\\@evil.org/cb", "vscode:"} {
		b, _ := json.Marshal(map[string]any{"redirect_uris": []string{bad}})
		if a := r.registerJSON(string(b)); a.status != 400 || a.json["error"] != "invalid_redirect_uri" {
			t.Errorf("%s: %d %s", bad, a.status, a.body)
		}
	}
	many, _ := json.Marshal(map[string]any{"redirect_uris": slices.Repeat([]string{loopback}, 11)})
	if a := r.registerJSON(string(many)); a.status != 400 {
		t.Errorf("eleven redirect URIs: %d", a.status)
	}
	if a := r.registerJSON(`{"client_name":"` + strings.Repeat("x", maxRegistration) + `"}`); a.status != 413 {
		t.Errorf("a long request: %d", a.status)
	}
	// A client with a secret has to prove itself.
	a := r.registerJSON(`{"redirect_uris":["` + loopback + `"],"token_endpoint_auth_method":"client_secret_basic"}`)
	id, secret := a.json["client_id"].(string), a.json["client_secret"].(string)
	code := r.code(id, alice, nil)
	for _, wrong := range []string{"", "x"} {
		if a := r.post(PathToken, codeForm(id, code), id, wrong); a.status != 401 || a.json["error"] != "invalid_client" || a.header.Get("WWW-Authenticate") == "" {
			t.Errorf("secret %q: %d %s", wrong, a.status, a.body)
		}
	}
	r.tokens(r.post(PathToken, codeForm(id, code), id, secret)) // the code is not used up by the failures
}

// A5, B112: where a code may go. Errors before that is known are pages.
func TestRedirects(t *testing.T) {
	r := newRig(t, nil)
	port := r.newClient("http://127.0.0.1/cb", "http://localhost:3000/cb", "http://[::1]/cb", "https://app.example.com/cb?x=1", "cursor://a/cb")
	for _, good := range []string{"http://127.0.0.1/cb", "http://127.0.0.1:49152/cb", "http://localhost:1/cb", "http://localhost/cb", "http://[::1]:9/cb", "https://app.example.com/cb?x=1", "cursor://a/cb"} {
		if a := r.get(r.query(port, url.Values{"redirect_uri": {good}})); a.status != 303 || !strings.HasPrefix(a.header.Get("Location"), PathConfirm) {
			t.Errorf("%s: %d %s", good, a.status, a.body)
		}
	}
	for _, bad := range []string{"http://127.0.0.1/cb/", "http://127.0.0.1/CB", "http://127.0.0.1/cb?x", "http://127.0.0.2/cb", "https://127.0.0.1/cb", "http://127.0.0.1/cb#x", "http://127.0.0.1:/cb", "http://127.0.0.1@evil.example/cb",
		"https://app.example.com:444/cb?x=1", "https://app.example.com/cb", "https://app.example.com/cb?x=1&y=2", "https://APP.example.com/cb?x=1", "https://app.example.com.evil.org/cb?x=1", "cursor://b/cb", "cursor://a:1/cb", "javascript:alert(1)", "http://localhost:1/cb/../x", "http://localhost%2f@evil/cb", ""} {
		a := r.get(r.query(port, url.Values{"redirect_uri": {bad}}))
		if a.status != 400 || a.header.Get("Location") != "" {
			t.Errorf("%s: %d %s", bad, a.status, a.header.Get("Location"))
		}
	}
	// Without a redirect URI in the request the only one registered counts.
	one := r.newClient(loopback)
	code := r.code(one, alice, url.Values{"redirect_uri": nil})
	form := codeForm(one, code)
	form.Del("redirect_uri")
	r.tokens(r.post(PathToken, form))
	// What was registered counts under the rules of today.
	hosted := r.newClient("https://app.example.com/cb")
	next := *r.cfg
	next.Auth.Clients.RedirectHosts = []string{"other.example.com"}
	if err := r.SetConfig(&next, r.url); err != nil {
		t.Fatal(err)
	}
	if a := r.get(r.query(hosted, url.Values{"redirect_uri": {"https://app.example.com/cb"}})); a.status != 400 {
		t.Errorf("a host that is not allowed any more: %d", a.status)
	}
}

// A2, A6, A7, A9: what /authorize refuses, told to the client with who says so.
func TestAuthorizeRefuses(t *testing.T) {
	r := newRig(t, nil)
	c := r.newClient(loopback)
	for name, x := range map[string]struct {
		change url.Values
		want   string
	}{
		"no challenge":        {url.Values{"code_challenge": nil}, "invalid_request"},
		"plain challenge":     {url.Values{"code_challenge_method": {"plain"}}, "invalid_request"},
		"no method":           {url.Values{"code_challenge_method": nil}, "invalid_request"},
		"short challenge":     {url.Values{"code_challenge": {"abc"}}, "invalid_request"},
		"token response":      {url.Values{"response_type": {"token"}}, "unsupported_response_type"},
		"no response type":    {url.Values{"response_type": nil}, "invalid_request"},
		"fragment mode":       {url.Values{"response_mode": {"fragment"}}, "invalid_request"},
		"request object":      {url.Values{"request": {"x"}}, "request_not_supported"},
		"request uri":         {url.Values{"request_uri": {"https://evil"}}, "request_not_supported"},
		"other resource":      {url.Values{"resource": {"https://other.example/mcp"}}, "invalid_target"},
		"one of two resource": {url.Values{"resource": {r.url + "/mcp", "https://other.example/mcp"}}, "invalid_target"},
		"silent":              {url.Values{"prompt": {"none"}}, "interaction_required"},
	} {
		a := r.get(r.query(c, x.change))
		u, err := url.Parse(a.header.Get("Location"))
		if err != nil || a.status != 303 || !strings.HasPrefix(u.String(), loopback) || u.Query().Get("error") != x.want || u.Query().Get("state") != "st" || u.Query().Get("iss") != r.url || u.Query().Has("code") {
			t.Errorf("%s: %d %s", name, a.status, a.header.Get("Location"))
		}
	}
	for name, q := range map[string]string{
		"client twice":   r.query(c, nil) + "&client_id=x",
		"redirect twice": r.query(c, nil) + "&redirect_uri=https://evil.example",
		"state twice":    r.query(c, nil) + "&state=x",
		"no client":      r.query("", nil),
		"unknown client": r.query("nobody", nil),
		"forged client":  r.query(c[:len(c)-3]+"AAA", nil),
		"malformed":      r.query(c, nil) + "&%zz",
	} {
		if a := r.get(q); a.status != 400 || a.header.Get("Location") != "" {
			t.Errorf("%s: %d %s", name, a.status, a.header.Get("Location"))
		}
	}
	// The page decides once; refusing tells the client so.
	id := r.waiting(c, nil)
	req, err := r.Ask(t.Context(), id, anyServer)
	if err != nil || req.Client.Name != "Test client" || req.Host != "127.0.0.1:7777" || !req.Local || req.Servers != nil || req.Client.Kind != KindRegistered {
		t.Fatalf("%+v %v", req, err)
	}
	to, err := r.Decide(t.Context(), id, alice, anyServer, false)
	if u, _ := url.Parse(to); err != nil || u.Query().Get("error") != "access_denied" || u.Query().Get("iss") != r.url || u.Query().Get("state") != "st" {
		t.Errorf("refused: %s %v", to, err)
	}
	if _, err := r.Decide(t.Context(), id, alice, anyServer, true); err == nil {
		t.Error("a request was decided twice")
	}
	if _, err := r.Ask(t.Context(), "", anyServer); err == nil {
		t.Error("an empty id is a request")
	}
}

// A6, R10, 4.2: one resource under many names, and none else.
func TestResources(t *testing.T) {
	const o = "https://portal.example.com"
	for _, good := range []string{o, o + "/", o + "/mcp", o + "/mcp/", "HTTPS://PORTAL.example.com/mcp", o + ":443/mcp", o + "/mcp?optimize_context=search_and_execute", o + "/mcp?codemode=off", o + "/mcp?optimize_context=a&codemode=b"} {
		if !canonicalResource(o, good) {
			t.Errorf("%s is this portal", good)
		}
	}
	for _, bad := range []string{"", "x", o + "/mcp/x", o + "/MCP", o + "/other", o + "/%6dcp", o + ":444/mcp", "http://portal.example.com/mcp", "https://portal.example.com.evil/mcp", "https://evil/mcp", "https://u@portal.example.com/mcp",
		o + "/mcp#x", o + "/mcp?other=x", o + "/mcp?optimize_context=a&other=b", o + "/mcp?optimize_context=%0a", o + "?optimize_context=a", o + "/mcp?" + strings.Repeat("a", 300), "//portal.example.com/mcp", o + "\\@evil/mcp"} {
		if canonicalResource(o, bad) {
			t.Errorf("%s is not this portal", bad)
		}
	}
	for raw, want := range map[string]string{"": "", "optimize_context=x": "?optimize_context=x", "a=b&optimize_context=x": "?optimize_context=x", "optimize_context=%22": "", "optimize_context=": "", "optimize_context=x&codemode=y": "?optimize_context=x&codemode=y"} {
		if got := EchoQuery(raw); got != want {
			t.Errorf("%q: %q, want %q", raw, got, want)
		}
	}
	r := newRig(t, nil)
	c := r.newClient(loopback)
	for _, res := range []string{"", "/", "/mcp", "/mcp/", "/mcp?optimize_context=search_and_execute"} {
		code := r.code(c, alice, url.Values{"resource": {r.url + res}})
		form := codeForm(c, code)
		form.Set("resource", r.url+res)
		access, _ := r.tokens(r.post(PathToken, form))
		claims, err := r.claims(t.Context(), r.state.Load(), access)
		if err != nil || claims.Audience != r.url+"/mcp" || claims.Subject != alice.ID {
			t.Errorf("%s: %+v %v", res, claims, err)
		}
	}
	form := codeForm(c, r.code(c, alice, nil))
	form.Set("resource", "https://other.example/mcp")
	if a := r.post(PathToken, form); a.json["error"] != "invalid_target" {
		t.Errorf("another resource at /token: %s", a.body)
	}
}

// A3: clients known by the URL of their metadata.
func TestClientMetadataDocuments(t *testing.T) {
	answers := map[string]func(w http.ResponseWriter, id string){}
	fetched := map[string]int{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		fetched[req.URL.Path]++
		answers[req.URL.Path](w, "http://"+req.Host+req.URL.Path)
	}))
	defer srv.Close()
	doc := func(change map[string]any) func(http.ResponseWriter, string) {
		return func(w http.ResponseWriter, id string) {
			m := map[string]any{"client_id": id, "client_name": "Hosted", "redirect_uris": []string{"http://localhost/callback"}, "token_endpoint_auth_method": "none"}
			for k, v := range change {
				m[k] = v
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(m)
		}
	}
	text := func(kind, body string) func(http.ResponseWriter, string) {
		return func(w http.ResponseWriter, _ string) {
			w.Header().Set("Content-Type", kind)
			_, _ = w.Write([]byte(body))
		}
	}
	answers["/good"] = doc(nil)
	bad := map[string]func(http.ResponseWriter, string){
		"/liar": doc(map[string]any{"client_id": srv.URL + "/good"}), "/noname": doc(map[string]any{"client_name": ""}), "/noredirects": doc(map[string]any{"redirect_uris": []string{}}),
		"/secret": doc(map[string]any{"client_secret": "x"}), "/badredirect": doc(map[string]any{"redirect_uris": []string{"http://evil.example/cb"}}), "/scheme": doc(map[string]any{"redirect_uris": []string{"javascript:alert(1)"}}),
		"/long": doc(map[string]any{"x": strings.Repeat("x", maxDocument)}), "/html": text("text/html", "{}"), "/nojson": text("application/json", "hello"), "/list": text("application/json", "[]"), "/key": doc(map[string]any{"token_endpoint_auth_method": "private_key_jwt"}),
		"/redirect": func(w http.ResponseWriter, _ string) { w.Header().Set("Location", "/good"); w.WriteHeader(302) },
		"/missing":  func(w http.ResponseWriter, _ string) { w.WriteHeader(404) },
		"/folded": func(w http.ResponseWriter, id string) {
			text("application/json", `{"client_id":"`+srv.URL+`/good","Client_ID":"`+id+`","client_name":"x","redirect_uris":["http://localhost/callback"]}`)(w, id)
		},
	}
	for p, f := range bad {
		answers[p] = f
	}
	r := newRig(t, func(c *config.Config) { c.Auth.PrivateHosts = []string{srv.URL} })
	where := url.Values{"redirect_uri": {"http://localhost:5123/callback"}}
	id := r.waiting(srv.URL+"/good", where) // any port: hosted documents name none
	req, err := r.Ask(t.Context(), id, anyServer)
	if err != nil || req.Client.Kind != KindDocument || req.Client.Host() != strings.TrimPrefix(srv.URL, "http://") {
		t.Fatalf("%+v %v", req, err)
	}
	fresh := func() url.Values {
		form := codeForm(srv.URL+"/good", r.code(srv.URL+"/good", alice, where))
		form.Set("redirect_uri", "http://localhost:5123/callback")
		form.Del("client_id")
		return form
	}
	r.tokens(r.post(PathToken, fresh(), srv.URL+"/good", "")) // as the Go SDK does: Basic with an empty secret
	if fetched["/good"] != 1 {
		t.Errorf("the document was fetched %d times for one sign-in", fetched["/good"])
	}
	for p := range bad {
		a := r.get(r.query(srv.URL+p, where))
		if a.status != 400 || a.header.Get("Location") != "" {
			t.Errorf("%s: %d %s", p, a.status, a.body)
		}
	}
	// A host that is away for a while, or withdraws the document.
	_, refresh := r.tokens(r.post(PathToken, fresh(), srv.URL+"/good", ""))
	refreshed := func() reply {
		return r.post(PathToken, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {refresh}}, srv.URL+"/good", "")
	}
	answers["/good"] = func(w http.ResponseWriter, _ string) { w.WriteHeader(502) }
	r.add(time.Hour)
	a := refreshed()
	if a.status != 200 {
		t.Errorf("while the host is away: %d %s", a.status, a.body)
	}
	_, refresh = r.tokens(a)
	if a := r.get(r.query(srv.URL+"/good", where)); a.status != 503 || a.header.Get("Location") != "" {
		t.Errorf("a sign-in while the host is away: %d %s", a.status, a.body)
	}
	r.add(24 * time.Hour)
	if a := refreshed(); a.status != 503 || a.json["error"] != "temporarily_unavailable" {
		t.Errorf("a host that is away for a day: %d %s", a.status, a.body)
	}
	answers["/good"] = func(w http.ResponseWriter, _ string) { w.WriteHeader(404) }
	if a := refreshed(); a.status != 400 || a.json["error"] != "invalid_client" {
		t.Errorf("a document that was withdrawn: %d %s", a.status, a.body)
	}
	answers["/good"] = doc(nil)
	if a := refreshed(); a.status != 200 {
		t.Errorf("when it is back: %d %s", a.status, a.body)
	}
	if a := r.get(r.query(srv.URL+"/good", url.Values{"redirect_uri": {"http://localhost:5123/other"}})); a.status != 400 {
		t.Errorf("another redirect URI: %d", a.status)
	}
	// Without the admin's word nothing inside is contacted.
	closed := newRig(t, nil)
	before := fetched["/good"]
	for _, u := range []string{srv.URL + "/good", strings.Replace(srv.URL, "http://", "https://", 1) + "/good", "https://localhost/x", "https://10.0.0.1/x", "https://[::1]/x", "https://169.254.169.254/x", "https://example.com", "https://u@example.com/x", "https://example.com/a/../b", "https://example.com/x#f"} {
		a := closed.get(closed.query(u, where))
		if a.status != 400 {
			t.Errorf("%s: %d %s", u, a.status, a.body)
		}
	}
	if fetched["/good"] != before {
		t.Error("an address inside was contacted")
	}
	for h, want := range map[string]time.Duration{"": documentFresh, "no-store": documentMin, "max-age=0": documentMin, "max-age=3600": time.Hour, "public, max-age=99999999": documentMax, "max-age=x": documentFresh} {
		if got := freshness(http.Header{"Cache-Control": {h}}); got != want {
			t.Errorf("%q: %s, want %s", h, got, want)
		}
	}
}

// R5: what is an access token of this portal, and what is not.
func TestVerify(t *testing.T) {
	r := newRig(t, nil)
	c := r.newClient(loopback)
	access, _ := r.signIn(c, alice)
	if err := r.valid(access); err != nil {
		t.Fatal(err)
	}
	stranger := newRig(t, nil)
	foreign, _ := stranger.signIn(stranger.newClient(loopback), alice)
	parts := strings.Split(access, ".")
	for name, bad := range map[string]string{"another portal's": foreign, "no signature": parts[0] + "." + parts[1] + ".", "changed": parts[0] + "." + parts[1][:len(parts[1])-4] + "AAAA." + parts[2],
		"alg none": "eyJhbGciOiJub25lIiwidHlwIjoiYXQrand0In0." + parts[1] + ".", "nothing": "", "text": "a.b.c"} {
		if r.valid(bad) == nil {
			t.Errorf("%s token is taken", name)
		}
	}
	for name, set := range map[string]func(*settings){"issuer": func(s *settings) { s.origin = "https://elsewhere" }} {
		s := *r.state.Load()
		set(&s)
		raw, err := r.mint(t.Context(), &s, accessClaims{Subject: "svc:ci"}, time.Minute)
		if err != nil || r.valid(raw) == nil {
			t.Errorf("another %s is taken (%v)", name, err)
		}
	}
	key, err := r.keys.current(t.Context(), r.Server)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key.private}, (&jose.SignerOptions{}).WithType("JWT").WithHeader(jose.HeaderKey("kid"), key.ID))
	if err != nil {
		t.Fatal(err)
	}
	other, err := jwt.Signed(signer).Claims(accessClaims{Issuer: r.url, Audience: r.url + "/mcp", Subject: "svc:ci", Expires: r.clock().Add(time.Hour).Unix()}).Serialize()
	if err != nil || r.valid(other) == nil {
		t.Errorf("a token of another type is taken (%v)", err)
	}
	r.add(r.cfg.Auth.Tokens.Access)
	if r.valid(access) == nil {
		t.Error("an expired token is taken")
	}
	// While the store is away who was just served is, for a minute; others
	// are not judged.
	one, refresh := r.signIn(c, alice)
	if err := r.valid(one); err != nil {
		t.Fatal(err)
	}
	two, _ := r.signIn(c, alice)
	r.store.set(true)
	if err := r.valid(one); err != nil {
		t.Errorf("served a moment ago: %v", err)
	}
	if e := internal("", r.valid(two)); e.Status != 503 {
		t.Errorf("not seen before: %v", e)
	}
	if a := r.refreshed(c, refresh); a.status != 503 {
		t.Errorf("refresh: %d %s", a.status, a.body)
	}
	if a := r.get(r.query(c, nil)); a.status != 303 || !strings.Contains(a.header.Get("Location"), "error=temporarily_unavailable") {
		t.Errorf("authorize: %d %s", a.status, a.header.Get("Location"))
	}
	r.add(seenFor)
	if e := internal("", r.valid(one)); e.Status != 503 {
		t.Errorf("served long ago: %v", e)
	}
}

// Replicas share keys, clients and grants; keys change with time.
func TestReplicasAndKeys(t *testing.T) {
	st, key := newStore(t), vault.NewKey(time.Now())
	a := newReplica(t, st, key, nil)
	b := newReplica(t, st, key, nil)
	if err := b.SetConfig(b.cfg, a.url); err != nil { // the same portal
		t.Fatal(err)
	}
	c := a.newClient(loopback)
	code := a.code(c, alice, nil)
	access, refresh := b.tokens(b.post(PathToken, codeForm(c, code)))
	if a.valid(access) != nil || b.valid(access) != nil {
		t.Error("a token is not valid everywhere")
	}
	a.tokens(a.post(PathToken, url.Values{"grant_type": {"refresh_token"}, "client_id": {c}, "refresh_token": {refresh}}))
	a.add(keyAge)
	b.add(keyAge)
	before := len(b.keys.keys)
	next, _ := a.signIn(c, alice)
	if err := b.valid(next); err != nil {
		t.Errorf("a new key is not known to the other replica: %v", err)
	}
	if len(b.keys.keys) != before+1 {
		t.Errorf("%d keys after rotation, %d before", len(b.keys.keys), before)
	}
	// Registered clients need no store; with their key gone they are told to
	// register again.
	fresh := newReplica(t, newStore(t), key, nil)
	if err := fresh.SetConfig(fresh.cfg, a.url); err != nil {
		t.Fatal(err)
	}
	if reply := fresh.get(fresh.query(c, url.Values{"resource": nil})); reply.status != 303 {
		t.Errorf("an empty store: %d %s", reply.status, reply.body)
	}
	lost := newReplica(t, newStore(t), vault.NewKey(time.Now()), nil)
	if reply := lost.refreshed(c, "x"); reply.status != 401 || reply.json["error"] != "invalid_client" {
		t.Errorf("another key: %d %s", reply.status, reply.body)
	}
}

// Flooding is answered, not served.
func TestRateLimits(t *testing.T) {
	r := newRig(t, nil)
	c := r.newClient(loopback)
	r.limits.authorize, r.limits.register, r.limits.token = NewLimiter(time.Minute, 3, r.clock), NewLimiter(time.Minute, 3, r.clock), NewLimiter(time.Minute, 3, r.clock)
	for name, ask := range map[string]func() reply{
		"authorize": func() reply { return r.get(r.query(c, nil)) },
		"register":  func() reply { return r.registerJSON(`{"redirect_uris":["` + loopback + `"]}`) },
		"token":     func() reply { return r.refreshed(c, "x") },
	} {
		for range 3 {
			if a := ask(); a.status == 429 {
				t.Errorf("%s: refused early", name)
			}
		}
		if a := ask(); a.status != 429 || a.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d", name, a.status)
		}
		r.add(time.Minute)
		if a := ask(); a.status == 429 {
			t.Errorf("%s: refused although it waited", name)
		}
		r.add(time.Hour)
	}
	// Whom a request counts for: the one who sent it, whatever it says of others.
	for remote, want := range map[string]string{
		"8.8.8.8:1": "8.8.8.8", "10.0.0.1:1": "10.0.0.1", "127.0.0.1:1": "127.0.0.1", "[2606:4700::1:2]:1": "2606:4700::/64", "[::ffff:8.8.8.8]:1": "8.8.8.8", "@": "unknown",
	} {
		req := httptest.NewRequest("GET", "/", nil)
		req.RemoteAddr = remote
		req.Header.Set("X-Forwarded-For", "1.1.1.1")
		if got := counted(Peer(req)); got != want {
			t.Errorf("%s counts as %s, want %s", remote, got, want)
		}
	}
}
