package upstreams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/wire"
)

// streamPatience is how long a new session waits for its standalone stream.
const streamPatience = 500 * time.Millisecond

// politeness is how long a notice that nobody waits for may take.
const politeness = 5 * time.Second

// endpoint is what all sessions with one HTTP server share.
type endpoint struct {
	client *http.Client
	header http.Header // configured; may hold credentials

	noGET        atomic.Bool // the server has no standalone stream (405)
	literalNames atomic.Bool // the server compares Mcp-Name without decoding it
}

func newEndpoint(cfg config.Server, dial time.Duration, wrap func(server string, base http.RoundTripper) http.RoundTripper) (*endpoint, func()) {
	d := &net.Dialer{Timeout: dial, KeepAlive: 30 * time.Second}
	tr := &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := d.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &countingConn{Conn: c}, nil
		},
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: dial,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     30 * time.Second,
		DisableCompression:  true, // a compressing proxy would hold events back
	}
	var rt http.RoundTripper = tr
	if wrap != nil {
		rt = wrap(cfg.ID, tr)
	}
	e := &endpoint{
		header: http.Header{},
		client: &http.Client{Transport: rt, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // credentials go to the configured host only
		}},
	}
	if cfg.Bearer != "" {
		e.header.Set("Authorization", "Bearer "+cfg.Bearer.Reveal())
	}
	for k, v := range cfg.Headers {
		e.header.Set(k, v.Reveal())
	}
	return e, tr.CloseIdleConnections
}

// countingConn knows how many bytes left this machine, so that a request that
// failed can be told from one that was never written.
type countingConn struct {
	net.Conn
	written atomic.Int64
}

func (c *countingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	return n, err
}

func counterOf(c net.Conn) *countingConn {
	for c != nil {
		switch t := c.(type) {
		case *countingConn:
			return t
		case interface{ NetConn() net.Conn }: // TLS
			c = t.NetConn()
		default:
			return nil
		}
	}
	return nil
}

// streamable is one session over Streamable HTTP: stateless (2026-07-28), or
// begun by initialize with a session id or without one (2025-xx).
type streamable struct {
	*session
	*endpoint
	url     string
	version string // "" before initialize is answered
	sid     string
}

func (c *streamable) modern() bool { return wire.Modern(c.version) }

// newRequest prepares a request with the configured and the protocol headers.
func (c *streamable) newRequest(ctx context.Context, verb string, body io.Reader, method, name string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, verb, c.url, body)
	if err != nil {
		return nil, fmt.Errorf("prepare request: %w", stripURL(err))
	}
	for k, v := range c.header {
		r.Header[k] = v
	}
	if r.Header.Get("Accept-Encoding") == "" {
		// Without it any coding would be as good (RFC 9110, section 12.5.3).
		r.Header.Set("Accept-Encoding", "identity")
	}
	if err := c.auth.sign(r, c.peer); err != nil {
		if errors.Is(err, errGone) {
			c.lose(err)
		}
		return nil, err
	}
	wire.SetRequestHeaders(r.Header, c.version, c.sid, method, name)
	if name != "" && c.modern() && c.literalNames.Load() {
		r.Header.Set(wire.HeaderName, name)
	}
	return r, nil
}

// post sends one message. sent is set while the whole of it may have reached
// the server. Nothing is tried again when wanted has ended; ctx is that of the
// HTTP request, whose body goes through the door.
func (c *streamable) post(ctx, wanted context.Context, body []byte, method, name string, extra http.Header, sent *atomic.Bool, door *gate) (*http.Response, error) {
	return c.once(wanted, c.auth, c.peer, sent, func() (*http.Request, error) {
		r, err := c.newRequest(ctx, http.MethodPost, gated{door, strings.NewReader(string(body))}, method, name)
		if err != nil {
			return nil, err
		}
		r.ContentLength = int64(len(body))
		r.Header.Set("Content-Type", wire.TypeJSON)
		r.Header.Set("Accept", wire.TypeJSON+", "+wire.TypeEventStream)
		for k, v := range extra {
			if strings.HasPrefix(http.CanonicalHeaderKey(k), wire.HeaderParamPrefix) {
				r.Header[http.CanonicalHeaderKey(k)] = v
			}
		}
		return r, nil
	})
}

// send posts a message that has no answer of its own: a notification, or the
// answer to a question of the server.
func (c *streamable) send(ctx context.Context, m wire.Message) error {
	ctx, cancel := context.WithTimeout(ctx, politeness)
	defer cancel()
	return c.sendWithin(ctx, m)
}

// sendWithin is send as long as ctx allows.
func (c *streamable) sendWithin(ctx context.Context, m wire.Message) error {
	var sent atomic.Bool
	resp, err := c.post(ctx, ctx, m.Bytes(), m.Method, "", nil, &sent, &gate{})
	if err != nil {
		return c.peer.network(ctx, m.Method, sent.Load(), err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	if resp.StatusCode/100 != 2 {
		return c.refusal(resp, nil, &Call{Name: m.Method})
	}
	return nil
}

// reply answers a question of the server. A lost answer is the server's to
// time out; it is logged.
func (c *streamable) reply(m wire.Message) {
	go func() {
		if err := c.send(context.WithoutCancel(c.life), m); err != nil {
			c.log.Warn("an answer did not reach the server", "error", err)
		}
	}()
}

// initialized opens the standalone stream of a 2025 session.
func (c *streamable) initialized(ctx context.Context) error {
	if err := c.sendWithin(ctx, wire.Message{Method: "notifications/initialized"}); err != nil {
		return err
	}
	if c.noGET.Load() {
		return nil
	}
	// Servers exist that lose what they say while there is no stream, so it is
	// given a moment to open before the first call.
	open := make(chan struct{})
	go c.standalone(sync.OnceFunc(func() { close(open) }))
	select {
	case <-open:
	case <-time.After(streamPatience):
	case <-ctx.Done():
	}
	return nil
}

func (c *streamable) setVersion(v string) { c.version = v }

func (c *streamable) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, politeness)
	defer cancel()
	c.flush(ctx)
	gone := errors.Is(c.why(), errGone)
	c.lose(errRetired)
	c.end()
	if c.sid == "" || gone {
		return
	}
	r, err := c.newRequest(ctx, http.MethodDelete, nil, "", "")
	if err != nil {
		return
	}
	resp, err := c.fetch(r)
	if err != nil {
		c.log.Debug("the session could not be ended at the server", "error", c.peer.clean(stripURL(err).Error()))
		return
	}
	resp.Body.Close()
}

// refusal is the error of an HTTP status that is not 2xx. body is what came.
func (c *session) refusal(resp *http.Response, body []byte, call *Call) *CallError {
	kind, next := KindHTTP, ""
	switch code := resp.StatusCode; {
	case code/100 == 3:
		host := "elsewhere"
		if u, err := resp.Location(); err == nil {
			host = u.Host
		}
		e := c.peer.fail(call.Name, KindConnect, false, nil, "HTTP %d redirects to %s, and redirects are not followed: set the url to the final address", code, host)
		e.Problem.HTTPStatus = code
		return e
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		kind, next = KindAuth, ": check the server's bearer or headers"
		if c.auth != nil {
			next = ": the account that is signed in there may not do this"
		}
	case code == http.StatusTooManyRequests:
		next = ": too many requests"
		if after := resp.Header.Get("Retry-After"); after != "" {
			next += ", retry after " + after
		}
	}
	said := ""
	if t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); len(body) > 0 && (t == wire.TypeJSON || t == "text/plain" || t == "application/problem+json") {
		said = " (" + c.peer.clean(string(body)) + ")"
	}
	e := c.peer.fail(call.Name, kind, !refused(resp.StatusCode), nil, "HTTP %d %s%s%s", resp.StatusCode, http.StatusText(resp.StatusCode), next, said)
	e.Problem.HTTPStatus = resp.StatusCode
	return e
}

// refused reports statuses with which a server says that it did not carry the
// request out.
func refused(status int) bool {
	switch status {
	case 400, 401, 403, 404, 405, 406, 411, 413, 414, 415, 417, 421, 422, 426, 429, 431:
		return true
	}
	return status/100 == 3
}

func requestNumber(id int64) string { return strconv.FormatInt(id, 10) }

// mediaType is the content type without parameters.
func mediaType(h http.Header) string {
	t, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return strings.ToLower(strings.TrimSpace(strings.SplitN(h.Get("Content-Type"), ";", 2)[0]))
	}
	return t
}

var _ conn = (*streamable)(nil)

// rawError is the error member of a message that may not be well formed.
type rawError struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Error   *wire.Error     `json:"error"`
}
