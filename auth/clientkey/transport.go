package clientkey

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxForm bounds what is read of a request, bytes.
const maxForm = 1 << 20

// Transport proves the client in each form that is posted to an endpoint, for
// libraries that know only secrets. Other requests go through as they are.
type Transport struct {
	Base     http.RoundTripper
	Key      *Key
	Client   string // client_id
	Endpoint string // token endpoint
	Audience string
	Now      func() time.Time
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPost || r.Body == nil || r.URL.String() != t.Endpoint {
		return t.Base.RoundTrip(r)
	}
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxForm))
	_ = r.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("reading the request to prove who sends it: %w", err)
	}
	form, err := url.ParseQuery(string(raw))
	if err != nil {
		return nil, fmt.Errorf("reading the request to prove who sends it: %w", err)
	}
	if err := t.Key.Prove(form, t.Client, t.Audience, t.Now()); err != nil {
		return nil, err
	}
	body := form.Encode()
	again := r.Clone(r.Context())
	again.Header.Del("Authorization") // one proof only
	again.Body, again.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	again.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(body)), nil }
	return t.Base.RoundTrip(again)
}
