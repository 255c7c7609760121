package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// A cancelled request ends at the portal at once, in both eras, and is not
// answered. In 2025 the portal is told and ends the request itself; one that
// does not is left.
func TestStdioCancels(t *testing.T) {
	f := newFakePortal(t)
	began, ended, told := make(chan struct{}, 2), make(chan struct{}, 2), make(chan struct{}, 10)
	f.handle("tools/call", func(w http.ResponseWriter, r *http.Request, id json.RawMessage) {
		began <- struct{}{}
		if r.Header.Get("Mcp-Session-Id") != "" {
			<-told
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"roots/list\"}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"did\":\"cancel\"}}\n\n", id)
		} else {
			<-r.Context().Done()
		}
		ended <- struct{}{}
	})
	f.handle("prompts/get", func(w http.ResponseWriter, r *http.Request, _ json.RawMessage) {
		began <- struct{}{}
		<-r.Context().Done()
		ended <- struct{}{}
	})
	f.handle("notifications/cancelled", func(w http.ResponseWriter, r *http.Request, _ json.RawMessage) {
		told <- struct{}{}
		w.WriteHeader(http.StatusAccepted)
	})
	p := startPipes(t, nil, "--url", f.URL)
	p.send(hello)
	p.expect(`"id":"i"`)
	const cancel = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}`
	for i, line := range []string{
		modernLine(`"a"`, "tools/call", `"name":"a",`),
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"a"}}`,
		`{"jsonrpc":"2.0","id":"a","method":"prompts/get","params":{"name":"deaf"}}`,
	} {
		p.send(line)
		soon(t, "the call is at the portal", began)
		p.send(cancel)
		soon(t, "the call ends at the portal", ended)
		p.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
		p.expect(`"id":2`, `"did":"ping"`) // and nothing about "a" before it
		if i == 0 && f.count("POST notifications/cancelled") != 0 {
			t.Error("2026-07-28 over HTTP has no such notification")
		}
		eventually(t, "its id is free again", func() error {
			p.send(`{"jsonrpc":"2.0","id":"a","method":"ping"}`)
			if got := p.next(); !strings.Contains(got, `"did":"ping"`) {
				return errors.New(got)
			}
			return nil
		})
	}
	// Once, or a few times where that is slow, and five times in vain.
	if all, here := f.count("POST notifications/cancelled"), f.count("POST notifications/cancelled s1"); here < 6 || here > 9 || all != here {
		t.Errorf("%q", f.got)
	}
}

// A call may be slower on its way than its cancellation, which a 2025 server
// ignores when it comes first and which a closed connection does not replace. It
// is told again when the call is there.
func TestB014_StdioCancellationThatOvertakesItsCall(t *testing.T) {
	full := upstreamtest.NewFullHTTP(t, false)
	target, err := url.Parse(full.URL)
	if err != nil {
		t.Fatal(err)
	}
	entered, release := make(chan struct{}, 1), make(chan struct{})
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host }}
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte(`"hang"`)) {
			entered <- struct{}{}
			<-release
			r = r.WithContext(context.WithoutCancel(r.Context())) // it is on its way, whatever its sender does
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { slow.CloseClientConnections(); slow.Close() })
	p := startPipes(t, nil, "--url", slow.URL+target.Path)
	p.send(hello)
	p.expect(`"id":"i"`)
	p.send(`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"hang"}}`)
	soon(t, "the call is on its way", entered)
	p.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}`)
	eventually(t, "the cancellation is there before its call", func() error {
		if !slices.Contains(full.Seen(), "cancelled") {
			return fmt.Errorf("%q", full.Seen())
		}
		return nil
	})
	close(release)
	eventually(t, "the call is cancelled after it began", func() error {
		seen := full.Seen()
		slices.Reverse(seen)
		if last := slices.Index(seen, "cancelled"); last < 0 || last > slices.Index(seen, "hangs") {
			return fmt.Errorf("%q, the last first", seen)
		}
		return nil
	})
	p.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	p.expect(`"id":2`) // and nothing about "a" before it
}

// What the client says last arrives, though its input ends with it.
func TestStdioSendsWhatWasSaidLast(t *testing.T) {
	f := newFakePortal(t)
	heard := make(chan struct{}, 20)
	f.handle("notifications/said", func(w http.ResponseWriter, r *http.Request, _ json.RawMessage) {
		heard <- struct{}{}
		w.WriteHeader(http.StatusAccepted)
	})
	p := startPipes(t, nil, "--url", f.URL)
	p.send(hello)
	p.expect(`"id":"i"`)
	for range 20 {
		p.send(`{"jsonrpc":"2.0","method":"notifications/said"}`)
	}
	_ = p.in.Close()
	p.exit()
	if len(heard) != 20 {
		t.Errorf("%d of 20 notifications arrived", len(heard))
	}
}
