package upstreams

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
)

// shopDocument is the document of the API that the tests call.
const shopDocument = `
openapi: 3.0.3
info: {title: Shop, version: "1"}
servers: [{url: /v1}]
paths:
  /items:
    get:
      operationId: listItems
      parameters: [{name: page, in: query, schema: {type: integer}}]
    post:
      operationId: addItem
      requestBody: {required: true, content: {application/json: {schema: {type: object}}}}
  /items/{id}:
    get: {operationId: getItem, parameters: [{name: id, in: path, required: true, schema: {type: string}}, {name: X-Trace, in: header, schema: {type: string}}]}
    delete: {operationId: deleteItem, parameters: [{name: id, in: path, required: true, schema: {type: string}}]}
`

// shop is an HTTP API that notes what reaches it.
type shop struct {
	*httptest.Server
	mu       sync.Mutex
	got      []string // method, request URI, body
	headers  []http.Header
	document atomic.Pointer[string]
	handle   func(w http.ResponseWriter, r *http.Request) bool
}

func newShop(t *testing.T, handle func(w http.ResponseWriter, r *http.Request) bool) *shop {
	t.Helper()
	s := &shop{handle: handle}
	s.document.Store(new(shopDocument))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/openapi.yaml" {
			doc := *s.document.Load()
			tag := fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(doc)))
			if r.Header.Get("If-None-Match") == tag {
				w.WriteHeader(http.StatusNotModified)
				return
			}
			w.Header().Set("ETag", tag)
			_, _ = io.WriteString(w, doc)
			return
		}
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.got = append(s.got, strings.TrimSpace(r.Method+" "+r.RequestURI+" "+string(body)))
		s.headers = append(s.headers, r.Header.Clone())
		s.mu.Unlock()
		if s.handle != nil && s.handle(w, r) {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"ok":true,"big":9007199254740993}`)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *shop) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.got...)
}

func (s *shop) server() config.Server {
	return config.Server{OpenAPI: s.URL + "/openapi.yaml", Bearer: "secret-token-of-shop"}
}

// startAPI runs one API as server "shop" and waits until it is listed.
func startAPI(t *testing.T, cfg config.Server, tweak func(*Options)) *rig {
	t.Helper()
	r := start(t, map[string]config.Server{"shop": cfg}, tweak)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		if _, err := r.List(ctx, "shop"); err == nil {
			return r
		} else if ctx.Err() != nil {
			t.Fatalf("the API is never listed: %v", err)
		}
	}
}

func (r *rig) callAPI(ctx context.Context, tool, args string) (json.RawMessage, error) {
	up, _ := r.Get("shop")
	return up.Do(ctx, &Call{Method: "tools/call", Name: tool, Params: json.RawMessage(`{"name":"` + tool + `","arguments":` + args + `}`), User: "u"})
}

func toolNames(t *testing.T, c *Catalogue) string {
	t.Helper()
	var names []string
	for _, raw := range c.Tools {
		var tool struct{ Name string }
		if err := json.Unmarshal(raw, &tool); err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
	}
	return strings.Join(names, " ")
}

// An OpenAPI document is a server: its operations are tools, a call is one
// request with the portal's credential, the answer is the result.
func TestAnAPIIsAServer(t *testing.T) {
	api := newShop(t, nil)
	r := startAPI(t, api.server(), nil)
	c, _ := r.Catalogue("shop")
	if got, want := toolNames(t, c), "listItems addItem getItem deleteItem"; got != want {
		t.Errorf("tools %s, want %s", got, want)
	}
	if st := r.Statuses()[0]; st.State != Ready || st.Transport != "openapi" {
		t.Errorf("status %+v", st)
	}
	res, err := r.callAPI(t.Context(), "addItem", `{"body":{"name":"ä/b","n":9007199254740993}}`)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(res), `"structuredContent":{"ok":true,"big":9007199254740993}`) {
		t.Errorf("result %s", res)
	}
	if _, err := r.callAPI(t.Context(), "getItem", `{"id":"a/b c?d#e%2f@f","X-Trace":"t1"}`); err != nil {
		t.Fatal(err)
	}
	want := []string{`POST /v1/items {"name":"ä/b","n":9007199254740993}`, `GET /v1/items/a%2Fb%20c%3Fd%23e%252f%40f`}
	if got := api.requests(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the API got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	h := api.headers[1]
	if h.Get("Authorization") != "Bearer secret-token-of-shop" || h.Get("X-Trace") != "t1" {
		t.Errorf("headers %v", h)
	}
}

// Whatever the arguments are, a request stays below the address of the API, and
// what cannot is not sent.
func TestArgumentsCannotLeaveTheAPI(t *testing.T) {
	api := newShop(t, nil)
	r := startAPI(t, api.server(), nil)
	for _, id := range []string{"..", ".", "../../admin", `..\\..\\admin`, "%2e%2e", "%2e%2e%2f%2e%2e%2fadmin", "..%2f..", "", `a\r\nHost: evil`} {
		res, err := r.callAPI(t.Context(), "getItem", `{"id":"`+id+`"}`)
		if err != nil || !strings.Contains(string(res), `"isError":true`) || !strings.Contains(string(res), "Nothing was sent") {
			t.Errorf("id %q: %s, %v", id, res, err)
		}
	}
	for _, args := range []string{`{}`, `{"id":null}`, `{"id":"1","other":2}`, `{"id":"1","X-Trace":"a\r\nX-Evil: 1"}`} {
		res, err := r.callAPI(t.Context(), "getItem", args)
		if err != nil || !strings.Contains(string(res), "Nothing was sent") {
			t.Errorf("%s: %s, %v", args, res, err)
		}
	}
	if got := api.requests(); len(got) > 0 {
		t.Errorf("the API got %q", got)
	}
	for _, id := range []string{"//evil.com/x", "@evil.com", "https://evil.com/", "a..b"} {
		if res, err := r.callAPI(t.Context(), "getItem", `{"id":"`+id+`"}`); err != nil || !strings.Contains(string(res), `"ok":true`) {
			t.Errorf("id %q: %s, %v", id, res, err)
		}
	}
	for _, got := range api.requests() {
		if !strings.HasPrefix(got, "GET /v1/items/") || strings.Count(got, "/") != 3 {
			t.Errorf("the API got %q", got)
		}
	}
}

// Errors of the API are results that say so; the model sees status and body.
func TestStatusesOfAnAPI(t *testing.T) {
	var status atomic.Int32
	api := newShop(t, func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Link", `</v1/items?page=2>; rel="next"`)
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(int(status.Load()))
		if status.Load() != 204 {
			_, _ = io.WriteString(w, `{"title":"told"}`)
		}
		return true
	})
	r := startAPI(t, api.server(), nil)
	for code, want := range map[int32][]string{
		200: {`"structuredContent":{"title":"told"}`, `"link":"</v1/items?page=2>; rel=\"next\""`},
		204: {`"text":"HTTP 204 No Content"`, `"structuredContent":{"status":204}`},
		404: {`"isError":true`, `HTTP 404 Not Found`, `"structuredContent":{"status":404,"body":{"title":"told"}}`},
		401: {`"isError":true`, `administrator`},
		429: {`"isError":true`, `retry after 7`},
		500: {`"isError":true`, `may have been carried out`},
	} {
		status.Store(code)
		before := len(api.requests())
		res, err := r.callAPI(t.Context(), "addItem", `{"body":{}}`)
		if err != nil {
			t.Errorf("%d: %v", code, err)
		}
		for _, w := range want {
			if !strings.Contains(string(res), w) {
				t.Errorf("%d: %s\nwant %s", code, res, w)
			}
		}
		if n := len(api.requests()) - before; n != 1 {
			t.Errorf("%d: %d requests", code, n)
		}
	}
}

// A write whose answer is lost is not repeated, and its outcome is unknown.
func TestAWriteToAnAPIIsSentOnce(t *testing.T) {
	api := newShop(t, func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost {
			return false
		}
		c, _, _ := w.(http.Hijacker).Hijack()
		_ = c.Close()
		return true
	})
	r := startAPI(t, api.server(), nil)
	if _, err := r.callAPI(t.Context(), "listItems", `{}`); err != nil { // leaves a connection that is kept alive
		t.Fatal(err)
	}
	_, err := r.callAPI(t.Context(), "addItem", `{"body":{"a":1}}`)
	var ce *CallError
	if !errors.As(err, &ce) || !ce.Sent {
		t.Errorf("error %v", err)
	}
	if got := api.requests(); len(got) != 2 {
		t.Errorf("the API got %q", got)
	}
}

// Redirects are followed within the origin and only for reads: a credential
// goes nowhere else.
func TestRedirectsOfAnAPI(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	api := newShop(t, func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.URL.Path == "/v1/items/far":
			http.Redirect(w, r, other.URL+"/signed?x=1", http.StatusFound)
		case r.URL.Path == "/v1/items/near":
			http.Redirect(w, r, "/v1/items/there", http.StatusTemporaryRedirect)
		case r.URL.Path == "/v1/items/loop":
			http.Redirect(w, r, "/v1/items/loop", http.StatusFound)
		case r.Method == http.MethodPost:
			http.Redirect(w, r, "/v1/other", http.StatusTemporaryRedirect)
		default:
			return false
		}
		return true
	})
	r := startAPI(t, api.server(), nil)
	for _, c := range [][3]string{
		{"getItem", `{"id":"near"}`, `"ok":true`},
		{"getItem", `{"id":"far"}`, "redirects to " + other.URL},
		{"getItem", `{"id":"loop"}`, "not followed"},
		{"addItem", `{"body":{}}`, "not followed"},
	} {
		if res, err := r.callAPI(t.Context(), c[0], c[1]); err != nil || !strings.Contains(string(res), c[2]) {
			t.Errorf("%s %s: %s, %v", c[0], c[1], res, err)
		}
	}
	if n := elsewhere.Load(); n > 0 {
		t.Errorf("%d requests went elsewhere", n)
	}
}

// A call ends with its caller and at its deadline, and what is too large is not
// read.
func TestLimitsOfAPICalls(t *testing.T) {
	began, gone := make(chan struct{}, 4), make(chan struct{}, 4)
	api := newShop(t, func(w http.ResponseWriter, r *http.Request) bool {
		switch r.URL.Path {
		case "/v1/items/slow":
			began <- struct{}{}
			<-r.Context().Done()
			gone <- struct{}{}
		case "/v1/items/large":
			_, _ = w.Write(make([]byte, 100_000))
		default:
			return false
		}
		return true
	})
	cfg := api.server()
	r := startAPI(t, cfg, func(o *Options) { o.Limits.Message = 50_000 })
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-began; cancel() }()
	var ce *CallError
	if _, err := r.callAPI(ctx, "getItem", `{"id":"slow"}`); !errors.As(err, &ce) || ce.Problem.Kind != KindCancelled {
		t.Errorf("cancelled: %v", err)
	}
	<-gone
	if _, err := r.callAPI(t.Context(), "getItem", `{"id":"large"}`); err == nil || !strings.Contains(err.Error(), "limits.message") {
		t.Errorf("large: %v", err)
	}
	cfg.CallTimeout = 50 * time.Millisecond
	r.Apply(map[string]config.Server{"shop": cfg}, nil)
	if _, err := r.callAPI(t.Context(), "getItem", `{"id":"slow"}`); !errors.As(err, &ce) || ce.Problem.Kind != KindTimeout {
		t.Errorf("late: %v", err)
	}
	<-gone
}

// A changed document changes the tools; one that breaks leaves those there are.
func TestDocumentsAreReadAgain(t *testing.T) {
	t.Run("url", func(t *testing.T) {
		api := newShop(t, nil)
		r := startAPI(t, api.server(), nil) // refresh 0: whenever it is listed
		api.document.Store(new(strings.Replace(shopDocument, "operationId: listItems", "operationId: findItems", 1)))
		c, err := r.List(t.Context(), "shop")
		if err != nil || !strings.HasPrefix(toolNames(t, c), "findItems ") {
			t.Errorf("%s, %v", toolNames(t, c), err)
		}
		api.document.Store(new("<html>gone</html>"))
		if _, err := r.List(t.Context(), "shop"); err == nil || !strings.Contains(err.Error(), "web page") {
			t.Errorf("broken: %v", err)
		}
		if _, err := r.callAPI(t.Context(), "findItems", `{}`); err != nil {
			t.Errorf("a call after the document broke: %v", err)
		}
	})
	t.Run("file", func(t *testing.T) {
		api := newShop(t, nil)
		file := filepath.Join(t.TempDir(), "shop.yaml")
		if err := os.WriteFile(file, []byte(shopDocument), 0o600); err != nil {
			t.Fatal(err)
		}
		r := startAPI(t, config.Server{OpenAPI: file, URL: api.URL + "/v2", Operations: config.Operations{Refresh: time.Hour}}, nil)
		if _, err := r.callAPI(t.Context(), "listItems", `{"page":2}`); err != nil || api.requests()[0] != "GET /v2/items?page=2" {
			t.Errorf("%q, %v", api.requests(), err)
		}
		if err := os.WriteFile(file, []byte(shopDocument+"  /more: {get: {operationId: more}}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := r.List(t.Context(), "shop"); err != nil || !strings.HasSuffix(toolNames(t, c), " more") {
			t.Errorf("%s, %v", toolNames(t, c), err)
		}
	})
}

// A document cannot send the portal, and its credential, to another host.
func TestADocumentCannotNameAnotherHost(t *testing.T) {
	api := newShop(t, nil)
	for server, want := range map[string]string{
		"http://169.254.169.254/latest": "set url to it",
		"https://evil.example/v1":       "set url to it",
		"//evil.example/v1":             "set url to it",
		"file:///etc":                   "set url",
	} {
		api.document.Store(new(strings.Replace(shopDocument, "url: /v1", `url: "`+server+`"`, 1)))
		r := start(t, map[string]config.Server{"shop": api.server()}, nil)
		if _, err := r.List(t.Context(), "shop"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", server, err)
		}
	}
	// What the administrator says counts.
	api.document.Store(new(strings.Replace(shopDocument, "url: /v1", "url: https://evil.example", 1)))
	cfg := api.server()
	cfg.URL = api.URL + "/mine/"
	r := startAPI(t, cfg, nil)
	if _, err := r.callAPI(t.Context(), "listItems", `{}`); err != nil || api.requests()[0] != "GET /mine/items" {
		t.Errorf("%q, %v", api.requests(), err)
	}
}

// The administrator chooses operations, and headers that arguments cannot set.
func TestOperationsAreChosen(t *testing.T) {
	api := newShop(t, nil)
	cfg := api.server()
	cfg.Headers = map[string]config.Secret{"x-trace": "fixed"}
	cfg.Operations = config.Operations{Include: []string{"GET *", "id:add*"}, Exclude: []string{"id:list*"}, AnyRequest: true}
	r := startAPI(t, cfg, nil)
	c, _ := r.Catalogue("shop")
	if got, want := toolNames(t, c), "addItem getItem any_request"; got != want {
		t.Errorf("tools %s, want %s", got, want)
	}
	if res, err := r.callAPI(t.Context(), "getItem", `{"id":"1","X-Trace":"mine"}`); err != nil || !strings.Contains(string(res), "Nothing was sent") {
		t.Errorf("%s, %v", res, err)
	}
	if _, err := r.callAPI(t.Context(), "getItem", `{"id":"1"}`); err != nil || api.headers[0].Get("X-Trace") != "fixed" {
		t.Errorf("%v, %v", api.headers, err)
	}
	for _, path := range []string{"@evil.com/x", "//evil", "/../..", "/%2e%2e/x", "/a/%252e%252e/b", "https://evil.com/x", `/a\r\nb`, `/a\\b`, "", "/a%2f..%2fb"} {
		res, err := r.callAPI(t.Context(), "any_request", `{"method":"GET","path":"`+path+`"}`)
		if err != nil || !strings.Contains(string(res), "Nothing was sent") {
			t.Errorf("%s: %s, %v", path, res, err)
		}
	}
	if _, err := r.callAPI(t.Context(), "any_request", `{"method":"put","path":"/a%2Fb/c?x=1","query":{"y":[2,3]},"body":{"z":1}}`); err != nil {
		t.Error(err)
	}
	if got := api.requests(); len(got) != 2 || got[1] != `PUT /v1/a%2Fb/c?x=1&y=2&y=3 {"z":1}` {
		t.Errorf("the API got %q", got)
	}
}
