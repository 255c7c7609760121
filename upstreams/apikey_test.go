package upstreams

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/upstreams/openapi"
)

// A key that an API takes in the query is there once in every request, no
// argument sets it, and nothing that the API says gives it away, however the
// API repeats it.
func TestKeysInTheQueryAreSentAndNeverShown(t *testing.T) {
	const key = "k3y/wi+th&sig=ns é"
	escaped := url.QueryEscape(key)
	api := newShop(t, func(w http.ResponseWriter, r *http.Request) bool {
		self := "http://" + r.Host + r.RequestURI
		w.Header().Set("Link", "<"+self+"&page=2>; rel=next, </v1/items?api_key="+escaped+`&page=9>; rel="last"`)
		switch r.URL.Path {
		case "/v1/items":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"next":%q,"html":"?api_key=%s&amp;page=2","key":%q,"big":9007199254740993}`, strings.ReplaceAll(self, "&", `&`), escaped, r.URL.Query().Get("api_key"))
		case "/v1/items/text":
			_, _ = io.WriteString(w, "asked for "+self+" with "+key)
		case "/v1/items/moved":
			http.Redirect(w, r, "/v1/items/text?api_key="+escaped+"&x=1", http.StatusFound)
		case "/v1/items/away":
			http.Redirect(w, r, "http://elsewhere.example/?api_key="+escaped+"&x=1", http.StatusFound)
		default:
			http.Error(w, "no such thing: "+self, http.StatusNotFound)
		}
		return true
	})
	doc := strings.Replace(shopDocument, "parameters: [{name: page,", "parameters: [{name: API_key, in: query, required: true, schema: {type: string}}, {name: filter, in: query, style: form, explode: true, schema: {type: object}}, {name: page,", 1)
	api.document.Store(&doc)
	r := startAPI(t, config.Server{OpenAPI: api.URL + "/openapi.yaml", Query: map[string]config.Secret{"api_key": key}, Operations: config.Operations{AnyRequest: true}}, nil)
	c, _ := r.Catalogue("shop")
	if list := fmt.Sprintf("%s", c.Tools); strings.Contains(strings.ToLower(list), "api_key") || !strings.Contains(list, `"filter"`) {
		t.Errorf("the tools: %s", list)
	}
	all := ""
	ask := func(tool, args string) string {
		t.Helper()
		res, err := r.callAPI(t.Context(), tool, args)
		if err != nil {
			t.Fatalf("%s: %v", tool, err)
		}
		all += string(res)
		return string(res)
	}
	if got := ask("listItems", `{"page":1,"filter":{"api_key":"mine","Api_Key":"mine","color":"red"}}`); !strings.Contains(got, `"big":9007199254740993`) || !strings.Contains(got, `?color=red&page=1&page=2>; rel=next`) || !strings.Contains(got, `</v1/items?page=9>`) {
		t.Errorf("a list: %s", got)
	}
	if got := ask("listItems", `{"api_key":"mine"}`); !strings.Contains(got, "Nothing was sent") {
		t.Errorf("the key as argument: %s", got)
	}
	ask("getItem", `{"id":"text"}`)
	if got := ask("getItem", `{"id":"moved"}`); !strings.Contains(got, "asked for") {
		t.Errorf("a redirect: %s", got)
	}
	if got := ask("getItem", `{"id":"away"}`); !strings.Contains(got, "http://elsewhere.example/?x=1") {
		t.Errorf("a redirect elsewhere: %s", got)
	}
	ask("getItem", `{"id":"none"}`)
	ask(openapi.AnyRequestTool, `{"method":"GET","path":"/items","query":{"api_key":"mine"}}`)
	for _, got := range api.requests() {
		u, err := url.ParseRequestURI(strings.TrimPrefix(got, "GET "))
		if err != nil || len(u.Query()["api_key"]) != 1 || u.Query().Get("api_key") != key || strings.Contains(got, "mine") {
			t.Errorf("the API got %s", got)
		}
	}
	if n := len(api.requests()); n != 7 {
		t.Errorf("%d requests", n)
	}
	api.Close()
	_, err := r.callAPI(t.Context(), "listItems", `{}`)
	if err == nil {
		t.Fatal("a closed API answered")
	}
	all += err.Error() + fmt.Sprint(r.Statuses())
	for _, form := range append(config.Secret(key).Forms(), "k3y", "sig=ns") {
		if strings.Contains(all, form) {
			t.Errorf("%q is shown in %s", form, all)
		}
	}
}

// What is hidden is the key and nothing else.
func TestHidingAKey(t *testing.T) {
	long, short := queryKeys{"key": "abcdefghij"}, queryKeys{"key": "abc123"}
	for _, c := range []struct {
		keys      queryKeys
		text, out string
	}{
		{long, `https://a/x?key=abcdefghij`, `https://a/x`},
		{long, `https://a/x?key=abcdefghij&p=2`, `https://a/x?p=2`},
		{long, `https://a/x?p=2&key=abcdefghij&q`, `https://a/x?p=2&q`},
		{long, `https://a/x?p=2\u0026key=abcdefghij\u0026q`, `https://a/x?p=2\u0026q`},
		{long, `https://a/x?key=abcdefghij\u0026q`, `https://a/x?q`},
		{long, `{"key":"abcdefghij"}`, `{"key":"[redacted]"}`},
		{long, `{"key":"abcdefghi"}`, `{"key":"abcdefghi"}`},
		{short, `{"a":"xabc123","b":"abc123"}`, `{"a":"xabc123","b":"[redacted]"}`},
		{short, `?p=1&key=abc123`, `?p=1`},
		{queryKeys{}, `?key=abc`, `?key=abc`},
	} {
		if got := string(c.keys.hide([]byte(c.text))); got != c.out {
			t.Errorf("%s: %s, want %s", c.text, got, c.out)
		}
	}
}

// The document is asked for with the key, too; a new key makes a new connection;
// and errors never have it.
func TestKeysInTheQueryElsewhere(t *testing.T) {
	const key = "secret-key-of-shop"
	asked := make(chan string, 8)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Query().Get("api_key")
		_, _ = io.WriteString(w, shopDocument)
	}))
	t.Cleanup(api.Close)
	cfg := config.Server{OpenAPI: api.URL + "/openapi.yaml?v=1", Query: map[string]config.Secret{"api_key": key}}
	startAPI(t, cfg, nil)
	if got := <-asked; got != key {
		t.Errorf("the document was asked for with %q", got)
	}
	other := cfg
	other.Query = map[string]config.Secret{"api_key": "another-key-of-shop"}
	if sameConnection(cfg, other) || !sameConnection(cfg, cfg) {
		t.Error("a changed key is not a changed connection, or the same one is")
	}
	if got := newPeer("shop", cfg).clean("GET /?api_key=" + key + " failed"); strings.Contains(got, key) {
		t.Errorf("an error: %s", got)
	}
}
