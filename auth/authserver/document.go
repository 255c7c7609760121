package authserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-portal/mcp-portal/auth/outbound"
)

const (
	maxDocument     = 5 << 10         // bytes, as the draft recommends
	documentTimeout = 5 * time.Second // of fetching one
	documentFresh   = 10 * time.Minute
	documentMin     = time.Minute
	documentMax     = 24 * time.Hour
	documentStale   = 24 * time.Hour // how long one goes on serving signed-in clients while its host is away
)

// keptDocument is a document as the store has it.
type keptDocument struct {
	Metadata clientMetadata `json:"metadata"`
	Until    time.Time      `json:"until"` // then it is fetched again
}

// document finds out who a client is whose id is the URL of its metadata
// (OAuth Client ID Metadata Document). Whoever can write at that URL is the
// client; the page for the person names its host. With old one that cannot be
// fetched now may be out of date: a host that is away for a while must not end
// the sign-ins of its clients, which lead nowhere any more.
func (s *Server) document(ctx context.Context, set *settings, id string, old bool) (*Client, error) {
	if err := checkDocumentURL(id); err != nil {
		return nil, invalidClient("the client_id %s", err)
	}
	key := "cimd:" + digest(id)
	kept, ok := cached[keptDocument](ctx, s.store, key)
	ok = ok && checkDocument(set, id, &kept.Metadata) == nil // under the rules of today
	if ok && s.now().Before(kept.Until) {
		return kept.Metadata.client(), nil
	}
	m, keep, err := s.fetchDocument(ctx, set, id)
	var e *Error
	if old && ok && errors.As(err, &e) && e.Status == 503 && s.now().Before(kept.Until.Add(documentStale)) {
		s.log.InfoContext(ctx, "a client metadata document cannot be fetched now; the one of before serves", "client", id, "error", err)
		return kept.Metadata.client(), nil
	}
	if err != nil {
		return nil, err
	}
	if raw, err := json.Marshal(keptDocument{*m, s.now().Add(keep)}); err == nil {
		if err := s.store.Set(ctx, key, raw, keep+documentStale); err != nil {
			s.log.DebugContext(ctx, "a client metadata document is not kept", "error", err)
		}
	}
	return m.client(), nil
}

func (m *clientMetadata) client() *Client {
	return &Client{ID: m.ClientID, Kind: KindDocument, Name: m.Name, Redirects: m.Redirects}
}

// checkDocumentURL demands what the draft demands of a client identifier URL.
// Whether it may be contacted is decided by outbound.
func checkDocumentURL(id string) error {
	if len(id) > 2000 {
		return errors.New("is longer than 2000 bytes")
	}
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c >= 0x7f || c == '\\' || c == '#' {
			return errors.New("has a character that no client identifier URL has")
		}
	}
	u, err := url.Parse(id)
	switch {
	case err != nil || u.Hostname() == "" || u.Opaque != "":
		return errors.New("is not a URL")
	case u.User != nil:
		return errors.New("has a user before the host")
	case u.Path == "" || u.Path == "/":
		return errors.New("has no path, which a client identifier URL must have")
	}
	for _, seg := range strings.Split(u.EscapedPath(), "/") {
		if d, err := url.PathUnescape(seg); err != nil || d == "." || d == ".." {
			return errors.New("has dot segments in its path")
		}
	}
	return nil
}

func (s *Server) fetchDocument(ctx context.Context, set *settings, id string) (*clientMetadata, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, documentTimeout)
	defer cancel()
	// What is told names the host as the client wrote it, and no more: the
	// answer must be no tool for exploring networks.
	cannot := func(what string, err error) error {
		return &Error{Status: 400, Code: "invalid_client", Description: "the client metadata document " + what, cause: err}
	}
	// What may pass is no fault of the client: told that it is not known, it
	// would throw its tokens away.
	later := func(what string, err error) error {
		return &Error{Status: 503, Code: "temporarily_unavailable", Description: "the client metadata document " + what + "; try again shortly", cause: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, id, nil)
	if err != nil {
		return nil, 0, cannot("has an address that cannot be fetched", err)
	}
	req.Header.Set("Accept", "application/json")
	res, err := set.http.Do(req)
	if err != nil {
		var refused *outbound.RefusedError
		if errors.As(err, &refused) {
			return nil, 0, cannot("is not fetched: "+refused.Error(), errors.New(refused.Detail))
		}
		return nil, 0, later("cannot be fetched", err)
	}
	defer res.Body.Close()
	if res.StatusCode >= 500 || res.StatusCode == http.StatusTooManyRequests {
		return nil, 0, later(fmt.Sprintf("was answered with status %d", res.StatusCode), nil)
	}
	if res.StatusCode != http.StatusOK {
		return nil, 0, cannot(fmt.Sprintf("was answered with status %d", res.StatusCode), nil)
	}
	kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err != nil || (kind != "application/json" && !strings.HasSuffix(kind, "+json")) {
		return nil, 0, cannot("is not served as JSON", err)
	}
	body, err := io.ReadAll(res.Body)
	if errors.Is(err, outbound.ErrTooLong) {
		return nil, 0, cannot(fmt.Sprintf("is longer than %d bytes", maxDocument), nil)
	}
	if err != nil {
		return nil, 0, later("cannot be fetched", err)
	}
	m, err := parseDocument(set, id, body)
	if err != nil {
		return nil, 0, cannot(err.Error(), nil)
	}
	return m, freshness(res.Header), nil
}

// parseDocument reads a client metadata document; id is where it was fetched.
func parseDocument(set *settings, id string, body []byte) (*clientMetadata, error) {
	var m clientMetadata
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, errors.New("is not a JSON object of the form of RFC 7591")
	}
	// Decoding matches names in any case; client_id decides whose document
	// it is and must be there exactly.
	var exact map[string]json.RawMessage
	if err := json.Unmarshal(body, &exact); err != nil || exact["client_id"] == nil {
		return nil, errors.New("has no client_id")
	}
	var named string
	if err := json.Unmarshal(exact["client_id"], &named); err != nil || named != m.ClientID {
		return nil, errors.New("names more than one client_id")
	}
	if err := checkDocument(set, id, &m); err != nil {
		return nil, err
	}
	return &m, nil
}

func checkDocument(set *settings, id string, m *clientMetadata) error {
	switch {
	case m.ClientID != id:
		return errors.New("is that of another client: its client_id is not the address it was fetched from")
	case m.Secret != "":
		return errors.New("contains a client_secret, which cannot be secret there")
	case printable(m.Name, maxClientName) == "":
		return errors.New("has no client_name")
	case m.AuthMethod != "" && m.AuthMethod != "none":
		return fmt.Errorf("asks for token_endpoint_auth_method %s; clients with a document are public here (none)", printable(m.AuthMethod, 50))
	}
	var e *Error
	m.AuthMethod = "none"
	if err := checkMetadata(set, m); errors.As(err, &e) {
		return errors.New("does not hold: " + e.Description)
	}
	return nil
}

// freshness says how long to keep a document by what its server says (RFC 9111
// section 5.2), within bounds: whoever removes a redirect URI wants that to
// count, and whoever says no-store must not make the portal fetch for each
// request of a sign-in.
func freshness(h http.Header) time.Duration {
	keep := documentFresh
	for _, part := range strings.Split(h.Get("Cache-Control"), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch strings.ToLower(name) {
		case "no-store", "no-cache":
			return documentMin
		case "max-age":
			if n, err := strconv.Atoi(strings.Trim(value, `"`)); err == nil && n >= 0 {
				keep = time.Duration(min(n, int(documentMax/time.Second))) * time.Second
			}
		}
	}
	return min(max(keep, documentMin), documentMax)
}
