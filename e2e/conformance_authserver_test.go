package e2e

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/auth/authtest"
)

// runAuthorizationSuite has the suite judge the portal as an authorization
// server. It asks for a browser once in each run.
func runAuthorizationSuite(t *testing.T) map[era]results {
	t.Helper()
	p := startSignInPortal(t, signInOptions{auth: "  clients: {static: [{id: suite, redirects: ['http://127.0.0.1/callback']}]}"})
	scenarios := suiteScenarios(t, "Authorization server", "")
	out := map[era]results{}
	for _, e := range eras {
		dir := t.TempDir()
		_, port, _ := strings.Cut(freePort(t), ":")
		cmd := exec.CommandContext(t.Context(), node(t), npmPath(t, "@modelcontextprotocol", "conformance", "dist", "index.js"),
			"authorization", "--url", p.base(), "--client-id", "suite", "--resource", p.URL, "--port", port, "--spec-version", string(e), "-o", dir)
		cmd.Dir, cmd.Stderr, cmd.Env = dir, os.Stderr, os.Environ()
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		for sc := bufio.NewScanner(io.TeeReader(stdout, &said)); sc.Scan(); {
			if m := remoteURL.FindString(sc.Text()); m != "" {
				back, _ := authtest.NewBrowser(t, "alice").SignIn(m, "allow")
				visit(back)
			}
		}
		_ = cmd.Wait() // what failed is in the files
		out[e] = readResults(t, dir)
		for name := range scenarios {
			if passed, _ := out[e].counts(name); passed == 0 {
				t.Errorf("authorization server, %s: nothing passed in %s:\n%s", e, name, said.String())
			}
		}
	}
	return out
}
