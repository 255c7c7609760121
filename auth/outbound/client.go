package outbound

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

const (
	defaultTimeout = 10 * time.Second
	defaultMaxBody = 1 << 20
	maxHeader      = 32 << 10 // bytes of an answer's headers
)

// Options are what New can vary. The zero value is the strictest client.
type Options struct {
	// Allow lists what the admin lets be contacted although it is not public
	// https: origins ("http://127.0.0.1:9000" also allows plain http there),
	// hosts ("auth.internal": https to any of its ports) and networks
	// ("10.1.0.0/16": https to names that resolve into it).
	Allow    []string
	Timeout  time.Duration  // of one request with its body; 0: 10 s
	MaxBody  int64          // bytes of one answer; 0: 1 MiB
	Roots    *x509.CertPool // nil: those of the system
	Resolver *net.Resolver  // nil: that of the system
}

// New makes a client that sends https requests to addresses of the Internet
// and to what Options allow, and refuses all else with a *RefusedError:
// redirects are not followed, proxies of the environment not used. The check
// is made on the address that is connected to, after resolution, so a name
// that changes its mind between check and use gains nothing.
func New(o Options) (*http.Client, error) {
	allow, err := parseAllowed(o.Allow)
	if err != nil {
		return nil, fmt.Errorf("making the client for foreign addresses: %w", err)
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.MaxBody <= 0 {
		o.MaxBody = defaultMaxBody
	}
	g := &guard{allow: allow, resolver: o.Resolver}
	g.base = &http.Transport{
		Proxy:                  nil,
		DialContext:            g.dial,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.Roots},
		TLSHandshakeTimeout:    5 * time.Second,
		ResponseHeaderTimeout:  o.Timeout,
		MaxResponseHeaderBytes: maxHeader,
		MaxIdleConnsPerHost:    2,
		MaxIdleConns:           32,
		IdleConnTimeout:        30 * time.Second,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // a small answer must not become a large one
	}
	return &http.Client{Transport: Limit(g, o.MaxBody), Timeout: o.Timeout, CheckRedirect: refuseRedirect}, nil
}

func refuseRedirect(r *http.Request, via []*http.Request) error {
	return &RefusedError{Host: via[0].URL.Host, Reason: "it answered with a redirect, and redirects are not followed"}
}

// guard checks scheme and, when connecting, address.
type guard struct {
	allow    allowed
	resolver *net.Resolver
	base     *http.Transport
}

type listedKey struct{}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	listed := g.allow.names(r.URL)
	switch {
	case r.URL.Hostname() == "" || r.URL.User != nil:
		return nil, &RefusedError{Host: r.URL.Host, Reason: "its address is not a plain https URL"}
	case r.URL.Scheme != "https" && !listed:
		return nil, &RefusedError{Host: r.URL.Host, Reason: "it is not https"}
	}
	if listed {
		r = r.WithContext(context.WithValue(r.Context(), listedKey{}, true))
	}
	return g.base.RoundTrip(r)
}

// CloseIdleConnections implements what http.Client looks for.
func (g *guard) CloseIdleConnections() { g.base.CloseIdleConnections() }

func (g *guard) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second, Resolver: g.resolver}
	if listed, _ := ctx.Value(listedKey{}).(bool); !listed {
		d.ControlContext = func(_ context.Context, network, address string, _ syscall.RawConn) error {
			return g.check(addr, network, address)
		}
	}
	conn, err := d.DialContext(ctx, network, addr)
	var refused *RefusedError
	if errors.As(err, &refused) {
		return nil, refused // without the address that net.OpError adds
	}
	return conn, err
}

func (g *guard) check(host, network, address string) error {
	ap, err := netip.ParseAddrPort(address)
	if err == nil && (network == "tcp4" || network == "tcp6") && (Public(ap.Addr()) || g.allow.contains(ap.Addr())) {
		return nil
	}
	return &RefusedError{Host: host, Reason: "it is not on the public Internet; if it should be contacted, the portal's admin adds it to auth.private_hosts", Detail: address}
}

// Limit makes answers longer than that many bytes fail while they are read,
// with ErrTooLong. A body is never cut short as if it ended there.
func Limit(base http.RoundTripper, bytes int64) http.RoundTripper { return limiter{base, bytes} }

type limiter struct {
	base  http.RoundTripper
	bytes int64
}

func (l limiter) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := l.base.RoundTrip(r)
	if err == nil {
		res.Body = &limitedBody{ReadCloser: res.Body, left: l.bytes, limit: l.bytes}
	}
	return res, err
}

func (l limiter) CloseIdleConnections() {
	if c, ok := l.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

type limitedBody struct {
	io.ReadCloser
	left, limit int64
}

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("%w: longer than %d bytes", ErrTooLong, b.limit)
	}
	return n, err
}
