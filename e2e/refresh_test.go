package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
	"github.com/mcp-portal/mcp-portal/store/storetest"
	"github.com/mcp-portal/mcp-portal/upstreams/logins/logintest"
	"github.com/mcp-portal/mcp-portal/upstreams/upstreamtest"
)

// account is a server whose tool says as whom it is called, behind an
// authorization server that takes a refresh token once.
func account(t *testing.T) *logintest.Rig {
	return logintest.New(t, upstreamtest.Options{Era: upstreamtest.Modern, Tools: []json.RawMessage{json.RawMessage(`{"name":"whoami","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`)},
		Handle: func(c *upstreamtest.Call) bool {
			if c.Method != "tools/call" {
				return false
			}
			c.Text("account " + c.Header.Get("X-Account"))
			return true
		}})
}

// signInDev signs the developer in at a server of a portal without sign-in.
func signInDev(t *testing.T, p *process, address string) {
	t.Helper()
	b := authtest.NewBrowser(t, "")
	page := b.Get(address)
	if page.Status != 200 || !strings.Contains(page.Body, "Continue to the sign-in") {
		t.Fatalf("%s: %d %.500s", address, page.Status, page.Body)
	}
	if page = b.Post(p.base()+"/connect", page.Form()); page.Status != 200 || !strings.Contains(strings.ToLower(page.Body), "signed in") {
		t.Fatalf("signing in: %d %.500s", page.Status, page.Body)
	}
}

// B103: ten calls at two replicas on an expired token are one refresh. A
// replica that is killed during it holds the other up, no more: what the
// authorization server has not done the other does, and what it has done and
// nobody heard of is asked of the user.
func TestB103_OneRefreshOnTwoReplicas(t *testing.T) {
	lost, heard := account(t), account(t)
	yaml := fmt.Sprintf("listen: 127.0.0.1:0\nauth: {mode: none}\nstore: {redis: %q}\nservers:\n", storetest.StartRedis(t).URL())
	for id, r := range map[string]*logintest.Rig{"lost": lost, "heard": heard} {
		yaml += fmt.Sprintf("  %s: {url: %q, trust_annotations: true, auth: {type: oauth, on_behalf: true, catalog: shared}}\n", id, r.URL)
	}
	path := writeConfig(t, yaml)
	a, b := startProcess(t, "serve", "--config", path), startProcess(t, "serve", "--config", path)
	for _, id := range []string{"lost", "heard"} {
		// Each process has its own address, and a sign-in its own way back.
		signInDev(t, a, a.base()+"/connect?server="+id)
	}
	session := func(p *process) *mcp.ClientSession { return connect(t, p, modern, "", nil) }
	for _, p := range []*process{a, b} {
		eventually(t, "both servers are listed", func() error {
			if n := names(t, session(p)); !strings.Contains(fmt.Sprint(n), "lost_whoami") || !strings.Contains(fmt.Sprint(n), "heard_whoami") {
				return fmt.Errorf("there are %v", n)
			}
			return nil
		})
	}
	var sessions []*mcp.ClientSession
	for i := range 10 {
		sessions = append(sessions, session([]*process{a, b}[i%2]))
	}
	together := func(of []*mcp.ClientSession, tool string) (texts []string) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for _, s := range of {
			wg.Add(1)
			go func() {
				defer wg.Done()
				res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					texts = append(texts, err.Error())
					return
				}
				texts = append(texts, text(t, res))
			}()
		}
		wg.Wait()
		return texts
	}
	for _, id := range []string{"lost", "heard"} {
		r := map[string]*logintest.Rig{"lost": lost, "heard": heard}[id]
		r.Expire()
		for _, got := range together(sessions, id+"_whoami") {
			if got != "account ann" {
				t.Errorf("ten calls on an expired token: %s", got)
			}
		}
		if n := r.Count("token refresh_token"); n != 1 {
			t.Errorf("%d refreshes for ten calls at two replicas, want 1", n)
		}
	}

	// A token that is refused within seconds of its making is of no use, and
	// another would not be better: let them grow older than that.
	time.Sleep(11 * time.Second)
	// The first refresh of each hangs until its replica is dead.
	begun, dead := make(chan struct{}, 2), make(chan struct{})
	for _, r := range []*logintest.Rig{lost, heard} {
		var once sync.Once
		r.BeforeToken(func(f url.Values) {
			first := false
			once.Do(func() { first = true })
			if !first || f.Get("grant_type") != "refresh_token" {
				return
			}
			begun <- struct{}{}
			<-dead
			if r == lost {
				panic(http.ErrAbortHandler) // it never came to it
			}
		})
		r.Expire()
	}
	for _, tool := range []string{"lost_whoami", "heard_whoami"} {
		go func() {
			// At the replica that dies: whatever becomes of it.
			_, _ = sessions[0].CallTool(t.Context(), &mcp.CallToolParams{Name: tool})
		}()
	}
	<-begun
	<-begun
	var wg sync.WaitGroup
	wg.Add(2)
	at := []*mcp.ClientSession{sessions[1], sessions[3], sessions[5]}
	go func() {
		defer wg.Done()
		for _, got := range together(at, "lost_whoami") {
			if got != "account ann" {
				t.Errorf("a refresh that was lost on the way: %s", got)
			}
		}
	}()
	addresses := make(chan string, 3)
	go func() {
		defer wg.Done()
		for _, got := range together(at, "heard_whoami") {
			address := regexp.MustCompile(`http://\S+/connect/[A-Z2-7]+`).FindString(got)
			if address == "" {
				t.Errorf("a refresh whose answer was lost: %s", got)
			}
			addresses <- address
		}
	}()
	a.kill()
	close(dead)
	wg.Wait()
	if n := lost.Count("token refresh_token"); n != 3 { // one before, the lost one, one after
		t.Errorf("%d refreshes, want 3", n)
	}
	signInDev(t, b, <-addresses)
	if got := text(t, call(t, sessions[1], "heard_whoami", nil)); got != "account ann" {
		t.Errorf("after signing in again: %s", got)
	}
}
