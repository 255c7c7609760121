package e2e

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
	"github.com/mcp-portal/mcp-portal/upstreams/logins/logintest"
)

// checkLive runs mcp-portal check --live and gives its exit code.
func checkLive(t *testing.T, config string) (string, int) {
	t.Helper()
	out, err := exec.Command(binary, "check", "--live", "--config", config).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	code := 0
	if exit != nil {
		code = exit.ExitCode()
	}
	return string(out), code
}

// A login of the portal itself that cannot be renewed is said everywhere where
// somebody may look; what users signed in to themselves goes on.
func TestEndedAdminLoginIsLoudEverywhere(t *testing.T) {
	shared, own := account(t), account(t)
	addr := freePort(t)
	config := writeConfig(t, fmt.Sprintf(`
listen: %s
auth: {mode: none}
catalog: {poll: 1s}
servers:
  shared: {url: %q, trust_annotations: true, auth: {type: oauth}}
  own: {url: %q, trust_annotations: true, auth: {type: oauth, on_behalf: true}}
`, addr, shared.URL, own.URL))
	p := startProcess(t, "serve", "--config", config)
	if out, code := checkLive(t, config); code != 1 || !strings.Contains(out, "server shared: nobody has signed the portal in yet") || strings.Contains(out, "server own") {
		t.Errorf("before: check --live: %d %s", code, out)
	}
	for _, id := range []string{"shared", "own"} {
		signInDev(t, p, p.base()+"/connect?server="+id+"&for=all")
	}
	p.waitServers(t, 2)
	if out, code := checkLive(t, config); code != 0 || !strings.Contains(out, "2 of 2 servers ready") {
		t.Errorf("signed in: check --live: %d %s", code, out)
	}
	s := connect(t, p, legacy, "", nil)
	for _, id := range []string{"shared", "own"} {
		if id == "own" {
			own.Account("bea")
			signInDev(t, p, p.base()+"/connect?server=own")
		}
		if got := text(t, call(t, s, id+"_whoami", nil)); got != map[string]string{"shared": "account ann", "own": "account bea"}[id] {
			t.Fatalf("%s: %s", id, got)
		}
	}

	for _, r := range []*logintest.Rig{shared, own} {
		r.WithdrawOf("ann")
	}
	got := call(t, s, "shared_whoami", nil)
	if !got.IsError || !strings.Contains(text(t, got), "An administrator signs the portal in on its page of servers") {
		t.Errorf("the call: %s", text(t, got))
	}
	b := authtest.NewBrowser(t, "")
	eventually(t, "both ends are known", func() error {
		if out, _ := checkLive(t, config); !strings.Contains(out, "server own: the portal's own sign-in does not hold any more (the sign-in has expired or was revoked)") ||
			!strings.Contains(out, "server shared: the portal's own sign-in does not hold any more") || !strings.Contains(out, "http://"+addr+"/connect?server=own&for=all") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	if _, code := checkLive(t, config); code != 1 {
		t.Errorf("check --live ends with %d", code)
	}
	for _, path := range []string{"/", "/servers", "/clients"} {
		page := b.Get(p.base() + path)
		for _, id := range []string{"shared", "own"} {
			if page.Status != 200 || !strings.Contains(page.Body, "sign-in at "+id+" does not hold any more") {
				t.Errorf("the page %s does not say so of %s", path, id)
			}
		}
	}
	if n := strings.Count(p.output(), "level=ERROR msg=\"the portal's own sign-in at a server does not hold any more"); n != 2 {
		t.Errorf("%d errors in the log, want 2", n)
	}
	if got := text(t, call(t, s, "own_whoami", nil)); got != "account bea" {
		t.Errorf("the user's own login: %s", got)
	}
	for _, r := range []*logintest.Rig{shared, own} {
		r.Account("ann")
	}
	for _, id := range []string{"shared", "own"} {
		signInDev(t, p, p.base()+"/connect?server="+id+"&for=all")
	}
	eventually(t, "all is well again", func() error {
		if out, code := checkLive(t, config); code != 0 {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}
