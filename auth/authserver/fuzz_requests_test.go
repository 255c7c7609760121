package authserver

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/auth/vault"
	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/store"
)

// mapStore is what of a store these requests use, without a disk.
type mapStore struct {
	store.Store
	mu sync.Mutex
	m  map[string][]byte
}

func (s *mapStore) Get(_ context.Context, k string) ([]byte, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.m[k]
	return v, ok, nil
}

func (s *mapStore) Set(_ context.Context, k string, v []byte, _ time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.m[k] = v
	return nil
}

func (s *mapStore) Create(_ context.Context, k string, v []byte, _ time.Duration) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.m[k]; ok {
		return false, nil
	}
	if len(s.m) > 1000 {
		clear(s.m)
	}
	s.m[k] = v
	return true, nil
}

// fuzzed is a server with two clients of the admin, and how to ask it.
func fuzzed(f *testing.F) (*rig, func(method, path, kind, authorization, body string) *httptest.ResponseRecorder) {
	r := newReplica(f, &mapStore{m: map[string][]byte{}}, vault.NewKey(time.Now()), func(c *config.Config) {
		no := false
		c.Auth.Clients.MetadataDocuments = &no // nothing is fetched here
		c.Auth.Clients.Static = []config.Client{
			{ID: "app", Redirects: []string{"http://127.0.0.1/cb", "https://app.example.com/cb"}},
			{ID: "safe", Redirects: []string{"https://safe.example.com/cb"}, SecretHash: hashed("s3cret")}}
	})
	handlers := map[string]http.HandlerFunc{}
	for _, e := range r.Endpoints() {
		handlers[e.Path] = e.Handler
	}
	return r, func(method, path, kind, authorization, body string) *httptest.ResponseRecorder {
		u := &url.URL{Scheme: "http", Host: "127.0.0.1"}
		u.Path, u.RawQuery, _ = strings.Cut(path, "?")
		req := &http.Request{Method: method, URL: u, Header: http.Header{}, Body: http.NoBody, RemoteAddr: "192.0.2.1:1", Host: u.Host}
		if method == http.MethodPost {
			rec := httptest.NewRequest(method, "/", strings.NewReader(body))
			req.Body, req.ContentLength = rec.Body, rec.ContentLength
		}
		if kind != "" {
			req.Header.Set("Content-Type", kind)
		}
		if authorization != "" {
			req.Header.Set("Authorization", authorization)
		}
		w := httptest.NewRecorder()
		handlers[u.Path](w, req)
		return w
	}
}

// Whatever is asked for, a browser is sent to the portal's own page or to a
// redirect URI of the client that was named, and never with a code.
func FuzzAuthorizeQuery(f *testing.F) {
	r, ask := fuzzed(f)
	good := r.query("app", url.Values{"redirect_uri": {"http://127.0.0.1:4/cb"}})
	for _, s := range []string{good, good + "&state=x", strings.Replace(good, "S256", "plain", 1), strings.Replace(good, "127.0.0.1", "evil.example", 1), "/authorize?client_id=app&redirect_uri=http://127.0.0.1@evil/cb",
		"/authorize?client_id=app&redirect_uri=https://app.example.com/cb%0d%0aX:y", "/authorize?client_id=mcpp.x", "/authorize?client_id=%00;&redirect_uri=javascript:alert(1)"} {
		f.Add(strings.TrimPrefix(s, PathAuthorize+"?"))
	}
	f.Fuzz(func(t *testing.T, query string) {
		w := ask("GET", PathAuthorize+"?"+query, "", "", "")
		to := w.Header().Get("Location")
		switch {
		case w.Code >= 500:
			t.Fatalf("%q: %d %s", query, w.Code, w.Body)
		case to == "":
			return
		case strings.HasPrefix(to, PathConfirm+"?id="):
			return
		}
		u, err := url.Parse(to)
		if err != nil || u.Path != "/cb" || u.Hostname() != "127.0.0.1" && u.Host != "app.example.com" && u.Host != "safe.example.com" || u.Query().Get("iss") != r.url || u.Query().Has("code") || !u.Query().Has("error") {
			t.Fatalf("%q leads to %q", query, to)
		}
	})
}

// Whatever is sent, nobody gets a token who has no code.
func FuzzTokenRequest(f *testing.F) {
	_, ask := fuzzed(f)
	const form = "application/x-www-form-urlencoded"
	f.Add(form, "", "grant_type=authorization_code&client_id=app&code=x&redirect_uri=http://127.0.0.1/cb&code_verifier="+verifier)
	f.Add(form, "Basic c2FmZTpzM2NyZXQ=", "grant_type=refresh_token&refresh_token=mcpp_rt_x&scope=mcp")
	f.Add(form+"; charset=x", "Basic OiUl", "grant_type=client_credentials&client_id=a&client_id=b")
	f.Add("application/json", "Bearer x", `{"grant_type":"authorization_code"}`)
	f.Fuzz(func(t *testing.T, kind, authorization, body string) {
		for _, path := range []string{PathToken, PathRevoke} {
			w := ask("POST", path, kind, authorization, body)
			if w.Code >= 500 || strings.Contains(w.Body.String(), "access_token") || w.Header().Get("Cache-Control") != "no-store" {
				t.Fatalf("%s, %q, %q, %q: %d %s", path, kind, authorization, body, w.Code, w.Body)
			}
			if path == PathToken && (w.Code == 200 || !json.Valid(w.Body.Bytes())) {
				t.Fatalf("%q, %q, %q: %d %s", kind, authorization, body, w.Code, w.Body)
			}
		}
	})
}

// What is registered can be shown, and leads nowhere but to a client.
func FuzzRegistrationRequest(f *testing.F) {
	r, ask := fuzzed(f)
	f.Add([]byte(`{"client_name":"x","redirect_uris":["http://127.0.0.1/cb"]}`))
	f.Add([]byte(`{"client_name":"\u202e<b>","redirect_uris":["https://a.example/cb","javascript:x"],"token_endpoint_auth_method":"client_secret_basic"}`))
	f.Add([]byte(`{"redirect_uris":["http://localhost"],"Redirect_URIs":["data:x"]}{}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		w := ask("POST", PathRegister, "application/json", "", string(body))
		if w.Code >= 500 {
			t.Fatalf("%s: %d %s", body, w.Code, w.Body)
		}
		if w.Code != http.StatusCreated {
			return
		}
		var out registrationAnswer
		if err := json.NewDecoder(bytes.NewReader(w.Body.Bytes())).Decode(&out); err != nil {
			t.Fatal(err)
		}
		c, err := r.client(t.Context(), r.state.Load(), out.ClientID)
		if err != nil || len(c.Redirects) == 0 || strings.ContainsFunc(c.Name, hiddenRune) {
			t.Fatalf("%s is registered as %+v: %v", body, c, err)
		}
		for _, u := range c.Redirects {
			if checkRedirect(r.cfg.Auth.Clients, u) != nil {
				t.Fatalf("redirect %q is taken", u)
			}
		}
	})
}
