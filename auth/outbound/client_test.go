package outbound

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func mustNew(t *testing.T, o Options) *http.Client {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// refused fails unless the request was refused without a hint to an address.
func refused(t *testing.T, c *http.Client, url string) {
	t.Helper()
	res, err := c.Get(url)
	if err == nil {
		res.Body.Close()
	}
	var r *RefusedError
	if !errors.As(err, &r) {
		t.Errorf("%s: %v, want a RefusedError", url, err)
		return
	}
	if strings.Contains(r.Error(), "127.0.0.1") && !strings.Contains(url, "127.0.0.1") {
		t.Errorf("%s: the text names an address: %v", url, r)
	}
}

func TestPublic(t *testing.T) {
	for _, a := range []string{"8.8.8.8", "1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "::ffff:8.8.8.8"} {
		if !Public(netip.MustParseAddr(a)) {
			t.Errorf("%s is public", a)
		}
	}
	for _, a := range []string{"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.9.9.9", "169.254.169.254", "172.16.0.1", "172.31.255.255",
		"192.168.1.1", "192.0.0.8", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.9", "224.0.0.1", "240.0.0.1", "255.255.255.255", "192.88.99.1",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::7f00:1", "64:ff9b::7f00:1", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::1",
		"fc00::1", "fd12::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "3fff::1"} {
		if Public(netip.MustParseAddr(a)) {
			t.Errorf("%s is not public", a)
		}
	}
	if Public(netip.Addr{}) {
		t.Error("no address is public")
	}
}

// Nothing but https to the Internet is sent anywhere.
func TestHostileAddresses(t *testing.T) {
	var hits atomic.Int32
	srv := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer srv.Close()
	plain := httptest.NewServer(srv.Config.Handler)
	defer plain.Close()
	c := mustNew(t, Options{Roots: roots(srv)})
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	for _, u := range []string{
		srv.URL, plain.URL, "https://localhost:" + port, "https://127.1:" + port + "/", "https://[::1]:" + port, "https://[::ffff:127.0.0.1]:" + port,
		"https://0.0.0.0:" + port, "https://[::]:" + port, "https://user@127.0.0.1:" + port, "https://169.254.169.254/latest/meta-data",
		"https://[64:ff9b::7f00:1]:" + port, "https://10.0.0.1:" + port, "http://example.com/", "ftp://example.com/",
	} {
		if strings.Contains(u, "127.1:") {
			if _, err := c.Get(u); err == nil {
				t.Errorf("%s was answered", u) // some resolvers know no such form
			}
			continue
		}
		refused(t, c, u)
	}
	if n := hits.Load(); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
}

// A name is judged by the address it is connected to, not by one looked up
// before: it may answer differently the second time.
func TestRebinding(t *testing.T) {
	var hits atomic.Int32
	srv := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer srv.Close()
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	dns := &fakeDNS{addr: netip.MustParseAddr("127.0.0.1")}
	r := &net.Resolver{PreferGo: true, Dial: dns.dial}
	refused(t, mustNew(t, Options{Roots: roots(srv), Resolver: r}), "https://example.com:"+port+"/")
	if dns.asked.Load() == 0 {
		t.Fatal("the resolver of the test was not asked")
	}
	if hits.Load() != 0 {
		t.Error("the request arrived")
	}
	// The same is fine where the admin allows the name or the network.
	for _, allow := range []string{"example.com", "example.com:" + port, "https://example.com:" + port, "127.0.0.0/8"} {
		res, err := mustNew(t, Options{Roots: roots(srv), Resolver: r, Allow: []string{allow}}).Get("https://example.com:" + port + "/")
		if err != nil {
			t.Errorf("allowed by %s: %v", allow, err)
			continue
		}
		res.Body.Close()
	}
	for _, allow := range []string{"example.org", "example.com:1", "http://example.com:" + port, "10.0.0.0/8", "sub.example.com"} {
		refused(t, mustNew(t, Options{Roots: roots(srv), Resolver: r, Allow: []string{allow}}), "https://example.com:"+port+"/")
	}
}

func TestPlainHTTPOnlyAtAListedOrigin(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hi") }))
	defer srv.Close()
	res, err := mustNew(t, Options{Allow: []string{srv.URL}}).Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	refused(t, mustNew(t, Options{Allow: []string{"127.0.0.0/8", "127.0.0.1"}}), srv.URL)
}

func TestRedirectsLengthTimeAndProxy(t *testing.T) {
	var second atomic.Int32
	release := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/second", 302) })
	mux.HandleFunc("/second", func(http.ResponseWriter, *http.Request) { second.Add(1) })
	mux.HandleFunc("/long", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 101)) })
	mux.HandleFunc("/fits", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 100)) })
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "x")
		w.(http.Flusher).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	srv := httptest.NewTLSServer(mux)
	defer srv.Close()
	defer close(release)
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the proxy was asked") }))
	defer proxy.Close()
	t.Setenv("HTTPS_PROXY", proxy.URL)
	c := mustNew(t, Options{Roots: roots(srv), Allow: []string{srv.URL}, MaxBody: 100, Timeout: 300 * time.Millisecond})
	// The standard library asks no proxy for loopback, and reads its environment
	// once: only the setting itself can be looked at.
	if c.Transport.(limiter).base.(*guard).base.Proxy != nil {
		t.Error("the proxies of the environment are used")
	}
	refused(t, c, srv.URL+"/redirect")
	if second.Load() != 0 {
		t.Error("the redirect was followed")
	}
	read := func(path string) ([]byte, error) {
		res, err := c.Get(srv.URL + path)
		if err != nil {
			return nil, err
		}
		defer res.Body.Close()
		return io.ReadAll(res.Body)
	}
	if b, err := read("/long"); !errors.Is(err, ErrTooLong) {
		t.Errorf("101 bytes: %d bytes, %v", len(b), err)
	}
	if b, err := read("/slow"); err == nil || !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "Timeout") {
		t.Errorf("an answer that never ends: %q, %v", b, err)
	}
	big := mustNew(t, Options{Roots: roots(srv), Allow: []string{srv.URL}, MaxBody: 100})
	res, err := big.Get(srv.URL + "/fits")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); err != nil || len(b) != 100 {
		t.Errorf("100 bytes: %d, %v", len(b), err)
	}
}

func TestAllowListIsStrict(t *testing.T) {
	for _, bad := range []string{"", "http://", "ftp://x", "https://x/path", "https://u@x", "https://*.x", "https://x?y", "a b"} {
		if _, err := New(Options{Allow: []string{bad}}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// fakeDNS answers every question for an IPv4 address with addr.
type fakeDNS struct {
	addr  netip.Addr
	asked atomic.Int32
}

func (f *fakeDNS) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		for {
			// net.Pipe is no packet connection, so questions come as over TCP.
			var size [2]byte
			if _, err := io.ReadFull(there, size[:]); err != nil {
				return
			}
			q := make([]byte, binary.BigEndian.Uint16(size[:]))
			if _, err := io.ReadFull(there, q); err != nil {
				return
			}
			f.asked.Add(1)
			a := f.answer(q)
			if _, err := there.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...)); err != nil {
				return
			}
		}
	}()
	return here, nil
}

func (f *fakeDNS) answer(q []byte) []byte {
	end := 12
	for q[end] != 0 {
		end += int(q[end]) + 1
	}
	end += 5 // the root label, type and class
	isA := binary.BigEndian.Uint16(q[end-4:]) == 1
	out := append([]byte{q[0], q[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, q[12:end]...)
	if isA {
		out[7] = 1
		ip := f.addr.As4()
		out = append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		out = append(out, ip[:]...)
	}
	return out
}
