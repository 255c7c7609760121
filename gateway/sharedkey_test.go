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
