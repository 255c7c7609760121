package gateway_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// B125: users who reach a server with one key of the company share the key,
// not its sessions: neither what the server remembers in one, nor a
// cancellation.
func TestB125_OneKeyManySessions(t *testing.T) {
	for _, sessions := range []string{"session", "user"} {
		t.Run(sessions, func(t *testing.T) {
			var mu sync.Mutex
			memory := map[string]string{} // by session
			v := upstreamtest.New(t, upstreamtest.Options{Era: upstreamtest.Legacy, Tools: []json.RawMessage{toolDef("put", readOnly), toolDef("get", readOnly)}, Handle: func(c *upstreamtest.Call) bool {
				if c.Method != "tools/call" {
					return false
				}
				if c.Header.Get("Authorization") != "Bearer key-of-the-company" {
					t.Errorf("the server got %q", c.Header.Get("Authorization"))
				}
				mu.Lock()
				defer mu.Unlock()
				if c.Name() == "put" {
					memory[c.Session] = string(c.Params)
				}
				c.Text("have " + memory[c.Session])
				return true
			}})
			idp := authtest.StartFakeIdP(t)
			p := start(t, "url: ORIGIN\nauth:\n  mode: oidc\n  issuer: "+idp.Issuer+"\n  client_id: "+idp.ClientID+"\n  client_secret: "+idp.ClientSecret+"\n  accept: [idp]\n"+
				"servers:\n  s: {url: '"+v.URL+"', bearer: key-of-the-company, trust_annotations: true, sessions: "+sessions+"}\n", nil)
			as := func(user string) *client {
				return p.client(legacy, "", noCaps, map[string]string{"Authorization": "Bearer " + idp.Token(map[string]any{"sub": user, "aud": p.url + "/mcp"})})
			}
			alice, bob := as("alice"), as("bob")
			if got := alice.call("s_put", `{"id":"of-alice"}`, "", nil); !strings.Contains(got.text(), "of-alice") {
				t.Fatalf("%s", got.Raw)
			}
			if got := bob.call("s_get", `{}`, "", nil); strings.Contains(got.text(), "of-alice") || !strings.Contains(got.text(), "have") {
				t.Errorf("bob reads what alice put: %s", got.Raw)
			}
			if got := alice.call("s_get", `{}`, "", nil); !strings.Contains(got.text(), "of-alice") {
				t.Errorf("alice does not find what she put: %s", got.Raw)
			}
			if got := as("alice").call("s_get", `{}`, "", nil); strings.Contains(got.text(), "of-alice") != (sessions == "user") {
				t.Errorf("sessions: %s: another session of alice: %s", sessions, got.Raw)
			}
		})
	}
}

// B125: users who share a key, and even the ids of their requests, cancel
// nothing of each other.
func TestB125_CancellationIsOnesOwn(t *testing.T) {
	cancelled := make(chan string, 2)
	release := make(chan struct{})
	v := serve(t, upstreamtest.Legacy, func(c *upstreamtest.Call) bool {
		if c.Method != "tools/call" {
			return false
		}
		select {
		case <-c.Context().Done():
			cancelled <- string(c.Arguments().Get("id"))
		case <-release:
			c.Text("went on")
		}
		return true
	})
	p, as := company(t, strings.Replace(trusted(v), "trust_annotations", "bearer: key-of-the-company\n    trust_annotations", 1))
	ended := map[string]chan answer{}
	var bob *client
	for _, user := range []string{"alice", "bob"} {
		c := p.client(legacy, "", noCaps, as(user))
		bob = c
		ended[user] = make(chan answer, 1)
		go func() {
			ended[user] <- c.doAs(t.Context(), "77", "tools/call", `"name":"s_look","arguments":{"id":"`+user+`"}`, nil, nil)
		}()
	}
	p.until("both calls are at their server", func() bool { return len(v.calls()) == 2 })
	if resp, body := p.post("", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}`, bob.headers("", "")); resp.StatusCode != 202 {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	p.until("a call is cancelled at its server", func() bool { return len(cancelled) > 0 })
	if who := <-cancelled; who != `"bob"` {
		t.Errorf("bob cancelled the call of %s", who)
	}
	close(release)
	if got := <-ended["alice"]; !strings.Contains(got.text(), "went on") {
		t.Errorf("alice: %s %v", got.Raw, got.Err)
	}
	<-ended["bob"]
}

// B124: a server for which no credential is configured gets none, and nothing
// else that belongs to the client's hop.
func TestB124_NothingOfTheClientsHopLeaves(t *testing.T) {
	for _, server := range []upstreamtest.Era{upstreamtest.Legacy, upstreamtest.Modern} {
		v := serve(t, server, nil)
		p, as := company(t, trusted(v))
		h := as("ann")
		for k, value := range map[string]string{"Cookie": "c=canary", "X-Api-Key": "canary", "X-Forwarded-Access-Token": "canary", "Last-Event-ID": "canary", "Proxy-Authorization": "Basic canary", "X-Forwarded-For": "192.0.2.77", "User-Agent": "canary/1"} {
			h[k] = value
		}
		sessions := map[string]bool{}
		eachEra(t, func(t *testing.T, e era) {
			for _, mode := range []string{"", twoTools} {
				c := p.client(e, mode, noCaps, h)
				sessions[c.session] = e == legacy
				got := c.call("s_look", `{"id":"1"}`, "", nil)
				if mode == twoTools {
					got = c.code("return await s.look({id: '1'})", "", nil)
				}
				if !strings.Contains(got.text(), "ran look") {
					t.Fatalf("%s", got.Raw)
				}
			}
		})
		token := strings.TrimPrefix(h["Authorization"], "Bearer ")
		for _, q := range v.Requests() {
			for name, values := range q.Header {
				all := strings.Join(values, " ")
				if name == "Authorization" || name == "Cookie" || strings.Contains(all, "canary") || strings.Contains(all, token) || strings.Contains(all, "192.0.2.77") || sessions[all] {
					t.Errorf("server of %s: %s has %s: %.60s", server, q.Method, name, all)
				}
			}
		}
	}
}
