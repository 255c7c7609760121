package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// suite runs the official conformance suite of the npm packages.
func suite(t *testing.T, env []string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), node(t), append([]string{npmPath(t, "@modelcontextprotocol", "conformance", "dist", "index.js")}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// suiteScenarios are the scenarios of a kind ("Server" or "Client") that the
// suite lists, with what it says of their revisions. requirements names a
// revision whose frozen set is meant; empty: all there are.
func suiteScenarios(t *testing.T, kind, requirements string) map[string]string {
	t.Helper()
	args := []string{"list"}
	if requirements != "" {
		args = append(args, "--requirements", requirements)
	}
	out, err := suite(t, nil, args...)
	if err != nil {
		t.Fatalf("list the scenarios: %v\n%s", err, out)
	}
	found := map[string]string{}
	inside := false
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\n")
		name, ok := strings.CutPrefix(line, "  - ")
		switch {
		case strings.HasPrefix(line, kind+" scenarios"):
			inside = true
		case line == "":
			inside = false
		case inside && ok:
			name, revisions, _ := strings.Cut(name, " ")
			found[name] = strings.Trim(revisions, "[]")
		}
	}
	if len(found) < map[string]int{"Authorization server": 2}[kind] || kind != "Authorization server" && len(found) < 20 {
		t.Fatalf("only %d %s scenarios are listed:\n%s", len(found), kind, out)
	}
	return found
}

// verdict is what became of one check of a scenario.
type verdict struct {
	Name    string `json:"name"`
	Status  string `json:"status"` // SUCCESS, FAILURE, WARNING, SKIPPED, INFO
	Message string `json:"errorMessage"`
}

// results are the checks of each scenario.
type results map[string][]verdict

// counts are how many checks of a scenario passed and failed.
func (r results) counts(scenario string) (passed, failed int) {
	for _, v := range r[scenario] {
		switch v.Status {
		case "SUCCESS":
			passed++
		case "FAILURE":
			failed++
		}
	}
	return passed, failed
}

var runFolder = regexp.MustCompile(`^(?:server-|authorization-server-)?(.+)-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z$`)

// readResults reads what the suite wrote into its output folder.
func readResults(t *testing.T, dir string) results {
	t.Helper()
	found := results{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.Name() != "checks.json" {
			return err
		}
		name, err := filepath.Rel(dir, filepath.Dir(path))
		if err != nil {
			return err
		}
		m := runFolder.FindStringSubmatch(name)
		if m == nil {
			return fmt.Errorf("%s is not a folder of one scenario", name)
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var checks []verdict
		if err := json.Unmarshal(raw, &checks); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		found[m[1]] = checks
		return nil
	})
	if err != nil {
		t.Fatalf("results of the suite: %v", err)
	}
	return found
}

var summaryLine = regexp.MustCompile(`(?m)^[✓✗] (\S+): (\d+) passed, (\d+) failed$`)

// runServerSuite runs the frozen set of a revision against an MCP server. Every
// scenario of the set has a result, and the files agree with the summary.
func runServerSuite(t *testing.T, url string, revision era, scenarios map[string]string) results {
	t.Helper()
	dir := t.TempDir()
	out, err := suite(t, nil, "server", "--url", url, "--requirements", string(revision), "--timeout", "120000", "-o", dir)
	lines := summaryLine.FindAllStringSubmatch(out, -1)
	if len(lines) == 0 {
		t.Fatalf("the suite came to no summary: %v\n%s", err, out)
	}
	found := readResults(t, dir)
	said := map[string]bool{}
	for _, m := range lines {
		said[m[1]] = true
		if passed, failed := found.counts(m[1]); m[2] != fmt.Sprint(passed) || m[3] != fmt.Sprint(failed) {
			t.Errorf("%s: the summary says %s passed and %s failed, the files %d and %d", m[1], m[2], m[3], passed, failed)
		}
	}
	for name := range scenarios {
		if !said[name] {
			t.Errorf("scenario %s of %s was not run", name, revision)
		}
	}
	return found
}

// runClientScenario has the suite's own server wait for the client at the far
// end of a chain, see chain.
func runClientScenario(t *testing.T, scenario string, front, harness era) results {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	args := []string{"client", "--command", self, "--scenario", scenario, "--timeout", "120000", "-o", dir}
	if harness != "extension" {
		args = append(args, "--spec-version", string(harness))
	}
	out, err := suite(t, []string{chainPortal + "=" + binary, chainEra + "=" + string(front)}, args...)
	found := readResults(t, dir)
	if len(found[scenario]) == 0 {
		t.Fatalf("%s: the suite came to no result: %v\n%s", scenario, err, out)
	}
	if _, failed := found.counts(scenario); err != nil && failed == 0 {
		found[scenario] = append(found[scenario], verdict{Name: "Overall", Status: "FAILURE", Message: lastLines(out, 12)})
	}
	return found
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// conformanceServer is the package of the SDK's own conformance server.
const conformanceServer = "github.com/modelcontextprotocol/go-sdk/conformance/everything-server"

// startConformanceServer runs the SDK's own conformance server, which the
// suite passes as a server of either era, and returns its URL.
func startConformanceServer(t *testing.T, program string, e era) string {
	t.Helper()
	addr := freePort(t)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, "-http", addr, fmt.Sprintf("-stateless=%t", e == modern))
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatalf("start the conformance server: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("conformance server %s:\n%s", e, lastLines(log.String(), 20))
		}
	})
	url := "http://" + addr + "/"
	eventually(t, "the conformance server answers", func() error {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		return c.Close()
	})
	return url
}

// scanReady is the URL in the line that a started portal prints.
func scanReady(sc *bufio.Scanner) (string, error) {
	for sc.Scan() {
		if m := readyLine.FindStringSubmatch(sc.Text()); m != nil {
			return m[1], nil
		}
	}
	return "", fmt.Errorf("the portal ended before it was ready: %w", sc.Err())
}
