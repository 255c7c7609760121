package upstreams

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/upstreams/openapi"
)

// apiSource is the OpenAPI document of one server: all its connections share
// it. It is read again when it may have changed; as long as it has not, what
// was made of it stays.
type apiSource struct {
	cfg  config.Server
	e    *endpoint
	peer *peer

	latest atomic.Pointer[apiState]

	mu   sync.Mutex // held while it is read
	tag  string     // ETag or Last-Modified of what was read last, or time and size of the file
	read time.Time  // when it was last known to be current
}

// apiState is what was made of one document; immutable.
type apiState struct {
	doc   *openapi.Document
	base  *url.URL
	tools json.RawMessage // result of tools/list
	sum   [32]byte        // of what was read, to notice a change
}

// current is the document as of now, read again if its time has come.
func (a *apiSource) current(ctx context.Context) (*apiState, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.latest.Load()
	if before != nil && a.remote() && time.Since(a.read) < a.cfg.Operations.Refresh {
		return before, nil
	}
	data, tag, err := a.fetch(ctx, before != nil)
	if err != nil {
		return nil, err
	}
	a.read = time.Now()
	if before != nil && (data == nil || sha256.Sum256(data) == before.sum) { // unchanged
		a.tag = tag
		return before, nil
	}
	state, err := a.make(data)
	if err != nil {
		return nil, err
	}
	a.tag = tag
	a.latest.Store(state)
	return state, nil
}

func (a *apiSource) remote() bool { return strings.Contains(a.cfg.OpenAPI, "://") }

// known is the document that was read last; nil: none was.
func (a *apiSource) known() *apiState { return a.latest.Load() }

func (a *apiSource) make(data []byte) (*apiState, error) {
	var fixed, query []string
	for name := range a.cfg.Query {
		query = append(query, name)
	}
	for h := range a.cfg.Headers {
		fixed = append(fixed, h)
	}
	doc, err := openapi.Parse(data, openapi.Options{Include: a.cfg.Operations.Include, Exclude: a.cfg.Operations.Exclude, AnyRequest: a.cfg.Operations.AnyRequest,
		Headers: fixed, Query: query, Trust: a.cfg.TrustAnnotations})
	if err != nil {
		return nil, a.peer.fail("", KindConfig, false, err, "its OpenAPI document %s: %v", a.place(), err)
	}
	base, err := a.address(doc)
	if err != nil {
		return nil, err
	}
	tools, err := json.Marshal(map[string]any{"tools": doc.Tools()})
	if err != nil {
		return nil, a.peer.fail("", KindConfig, false, err, "its OpenAPI document %s: %v", a.place(), err)
	}
	return &apiState{doc: doc, base: base, tools: tools, sum: sha256.Sum256(data)}, nil
}

// address is where the API is: as configured, or as the document says, if that
// is where the document comes from. Another host named by a document is not
// believed: credentials, and requests into this network, would follow it.
func (a *apiSource) address(doc *openapi.Document) (*url.URL, error) {
	if a.cfg.URL != "" {
		u, err := url.Parse(a.cfg.URL)
		if err != nil {
			return nil, a.peer.fail("", KindConfig, false, nil, "the url is no URL")
		}
		return u, nil
	}
	var from *url.URL
	if a.remote() {
		from, _ = url.Parse(a.cfg.OpenAPI) // checked when the configuration was loaded
	}
	base := doc.Base(from)
	switch {
	case base == nil:
		return nil, a.peer.fail("", KindConfig, false, nil, "its OpenAPI document %s does not say where the API is: set url", a.place())
	case from == nil || base.Scheme != from.Scheme || base.Host != from.Host:
		return nil, a.peer.fail("", KindConfig, false, nil, "its OpenAPI document %s says that the API is at %s, another place than its own: if that is right, set url to it", a.place(), base)
	}
	return base, nil
}

// place names the document without a query, which may hold a credential.
func (a *apiSource) place() string {
	place, _, _ := strings.Cut(a.cfg.OpenAPI, "?")
	return place
}

// fetch reads the document; nil data: it has not changed, if there was one
// before.
func (a *apiSource) fetch(ctx context.Context, before bool) (data []byte, tag string, err error) {
	if !a.remote() {
		return a.fetchFile(before)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, a.cfg.OpenAPI, nil)
	if err != nil {
		return nil, "", a.peer.fail("", KindConfig, false, nil, "the address of its OpenAPI document is no URL")
	}
	r.Header.Set("Accept", "application/json, application/yaml;q=0.9, */*;q=0.5")
	if a.cfg.URL == "" || sameOrigin(r.URL, a.cfg.URL) {
		for k, v := range a.e.header {
			r.Header[k] = v
		}
		r.URL = newQueryKeys(a.cfg).sign(r.URL)
	}
	if !before {
		a.tag = ""
	}
	if strings.HasPrefix(a.tag, "date ") {
		r.Header.Set("If-Modified-Since", strings.TrimPrefix(a.tag, "date "))
	} else if a.tag != "" {
		r.Header.Set("If-None-Match", a.tag)
	}
	resp, err := a.e.client.Do(r)
	if err != nil {
		e := a.peer.network(ctx, "", false, err)
		e.Problem.Message = a.peer.clean("reading its OpenAPI document: " + e.Problem.Message)
		return nil, "", e
	}
	defer resp.Body.Close()
	fail := func(format string, args ...any) error {
		e := a.peer.fail("", KindHTTP, false, nil, "reading its OpenAPI document %s: %s", a.place(), fmt.Sprintf(format, args...))
		e.Problem.HTTPStatus = resp.StatusCode
		return e
	}
	switch {
	case resp.StatusCode == http.StatusNotModified && before:
		return nil, a.tag, nil
	case resp.StatusCode/100 == 3:
		to := "elsewhere"
		if u, err := resp.Location(); err == nil {
			u.RawQuery = ""
			to = "to " + u.String()
		}
		return nil, "", fail("HTTP %d redirects %s: set openapi to the final address", resp.StatusCode, to)
	case resp.StatusCode != http.StatusOK:
		return nil, "", fail("HTTP %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	if data, err = readBounded(resp.Body, openapi.MaxDocument); err != nil {
		return nil, "", fail("%v", stripURL(err))
	}
	tag = resp.Header.Get("ETag")
	if tag == "" && resp.Header.Get("Last-Modified") != "" {
		tag = "date " + resp.Header.Get("Last-Modified")
	}
	return data, tag, nil
}

func (a *apiSource) fetchFile(before bool) (data []byte, tag string, err error) {
	fail := func(err error) error {
		return a.peer.fail("", KindConfig, false, err, "its OpenAPI document cannot be read: %v", err)
	}
	f, err := os.Open(a.cfg.OpenAPI)
	if err != nil {
		return nil, "", fail(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, "", fail(err)
	}
	tag = fmt.Sprintf("%d %d", info.ModTime().UnixNano(), info.Size())
	if before && tag == a.tag {
		return nil, tag, nil
	}
	if info.Size() > openapi.MaxDocument || !info.Mode().IsRegular() {
		return nil, "", fail(fmt.Errorf("it is no regular file of at most %d MB", openapi.MaxDocument>>20))
	}
	if data, err = io.ReadAll(io.LimitReader(f, openapi.MaxDocument+1)); err != nil {
		return nil, "", fail(err)
	}
	return data, tag, nil
}

func sameOrigin(u *url.URL, other string) bool {
	o, err := url.Parse(other)
	return err == nil && u.Scheme == o.Scheme && u.Host == o.Host
}
