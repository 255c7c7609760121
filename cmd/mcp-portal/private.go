package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// private is a listener that only this process can reach. A portal that is
// started for one command acts as the user it was told to, without asking for
// a token: on a port every other program of the machine could do the same.
type private struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// privateHost is where requests to a private portal seem to go. Nothing
// listens there.
const privateHost = "127.0.0.1:1"

func newPrivate() *private {
	return &private{conns: make(chan net.Conn), done: make(chan struct{})}
}

// Accept waits for the next dial.
func (p *private) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close ends the listener.
func (p *private) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

// Addr is privateHost, for messages.
func (p *private) Addr() net.Addr { return privateAddr{} }

type privateAddr struct{}

func (privateAddr) Network() string { return "pipe" }
func (privateAddr) String() string  { return privateHost }

func (p *private) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.done:
		return nil, errors.New("the portal of this command has ended")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// transport sends every request to the private portal.
func (p *private) transport() *http.Transport {
	return &http.Transport{DialContext: p.dial, DisableCompression: true}
}

// approvalPages serves what a person needs to decide an approval of a private
// portal in the browser, and nothing else: who does not know the random id of
// an approval finds nothing. It returns how to end it.
func approvalPages(ln net.Listener, portal http.Handler) (end func()) {
	s := &http.Server{ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id, one := strings.CutPrefix(r.URL.Path, "/approvals/")
			if one && id != "" || strings.HasPrefix(r.URL.Path, "/assets/") {
				portal.ServeHTTP(w, r)
				return
			}
			http.Error(w, "This portal serves one program. Only its approvals can be opened here, by the address that the program was given.", http.StatusNotFound)
		})}
	go func() { _ = s.Serve(ln) }()
	return func() { _ = s.Close() }
}
