package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
)

// inspector is the official inspector's command line, with a memory of its own.
type inspector struct {
	url  string
	dir  string
	args []string // of every run
	port string   // of its callback
}

func newInspector(t *testing.T, url string, e era, args ...string) *inspector {
	t.Helper()
	_, port, _ := strings.Cut(freePort(t), ":")
	mode := map[era]string{legacy: "legacy", modern: "modern"}[e]
	return &inspector{url: url, dir: t.TempDir(), port: port, args: append([]string{"--protocol-era", mode}, args...)}
}

// run does one job and gives what it prints, and how often the person had to
// sign in. Signing in is offered to people only, so it gets a terminal.
func (i *inspector) run(t *testing.T, job ...string) (out string, signIns int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	args := append([]string{npmPath(t, "@modelcontextprotocol", "inspector", "clients", "cli", "build", "index.js"),
		"--server-url", i.url, "--transport", "http", "--format", "json", "--connect-timeout", "60000", "--callback-url", "http://127.0.0.1:" + i.port + "/oauth/callback"}, i.args...)
	cmd := exec.CommandContext(ctx, node(t), append(args, job...)...)
	cmd.Env = append(os.Environ(), "HOME="+i.dir, "MCP_STORAGE_DIR="+i.dir, "MCP_AUTO_OPEN_ENABLED=false", "MCP_INSPECTOR_SECRET_STORE=file", "NO_COLOR=1")
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	terminal, tty := openTerminal(t)
	cmd.Stderr = tty
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = tty.Close()
	var said strings.Builder
	read := make(chan int)
	go func() {
		n := 0
		sc := bufio.NewScanner(terminal)
		sc.Buffer(nil, 1<<20)
		for sc.Scan() {
			fmt.Fprintln(&said, sc.Text())
			if m := remoteURL.FindString(sc.Text()); m != "" {
				n++
				back, _ := authtest.NewBrowser(t, "alice").SignIn(m, "allow")
				visit(back)
			}
		}
		read <- n // the terminal ends with its last writer
	}()
	err := cmd.Wait()
	signIns = <-read
	if err != nil {
		t.Fatalf("the inspector %v: %v\n%s%s", job, err, said.String(), stdout.String())
	}
	return stdout.String(), signIns
}

// openTerminal gives the two ends of a new terminal.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("open a terminal: %v", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err = errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)); err != nil {
		t.Fatalf("open a terminal: %v", err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatalf("open a terminal: %v", err)
	}
	return master, slave
}

// The inspector from a cold start, in both eras, as a client that registers
// itself, one with a metadata document and one that the admin registered: it
// signs a person in, lists, calls, goes on with what it kept, also after its
// access token expired, and signs in anew after the person disconnected it.
func TestInspectorSignsIn(t *testing.T) {
	ids := publishClients(t)
	p := startSignInPortal(t, signInOptions{auth: ids.config})
	admin := authtest.NewBrowser(t, "alice")
	call := []string{"--method", "tools/call", "--tool-name", "dns_zones_list", "--tool-arg", "per_page=1"}
	code := []string{"--method", "tools/call", "--tool-name", "portal_execute", "--tool-args-json", `{"code":"return (await dns.zones_list({})).result_info.total_count"}`}
	type variant struct {
		name string
		*inspector
		job        []string
		tool, want string
	}
	var all []variant
	for _, e := range eras {
		all = append(all,
			variant{"registered " + string(e), newInspector(t, p.URL, e), call, "dns_zones_list", "example"},
			variant{"registered, with options, " + string(e), newInspector(t, p.URL+"?optimize_context=search_and_execute", e), code, "portal_execute", "55"})
	}
	all = append(all,
		variant{"document", newInspector(t, p.URL, modern, "--client-metadata-url", ids.document(t, "http://127.0.0.1/oauth/callback")), call, "dns_zones_list", "example"},
		variant{"static", newInspector(t, p.URL, legacy, "--client-id", ids.public), call, "dns_zones_list", "example"},
		variant{"static with a secret", newInspector(t, p.URL, modern, "--client-id", ids.confidential, "--client-secret", ids.secret), call, "dns_zones_list", "example"})
	round := func(phase string, signIns int) {
		for _, v := range all {
			job, want := v.job, v.want
			if phase == "cold" {
				job, want = []string{"--method", "tools/list"}, v.tool
			}
			if out, n := v.run(t, job...); n != signIns || !strings.Contains(out, want) {
				t.Errorf("%s, %s: asked the person %d times, want %d; printed %s", v.name, phase, n, signIns, out)
			}
		}
	}
	round("cold", 1)
	ids.listed(t, p, admin)
	round("with what it kept", 0)
	time.Sleep(tokenLife) // the last one's token is over then, too
	round("after the access token expired", 0)
	p.disconnectAll(t, admin)
	round("after the person disconnected it", 1)
}
