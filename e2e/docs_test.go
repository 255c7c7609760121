package e2e

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every command and configuration of the README works as it stands there.
func TestReadmeExamples(t *testing.T) {
	doc, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	p := demo(t)
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(binary, filepath.Join(dir, "bin", "mcp-portal")); err != nil {
		t.Fatal(err)
	}
	yaml := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(doc)
	if yaml == nil {
		t.Fatal("the README has no configuration")
	}
	if err := os.WriteFile(filepath.Join(dir, "portal.yaml"), yaml[1], 0o600); err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)^    (bin/mcp-portal .*)$`).FindAllStringSubmatch(string(doc), -1)
	if len(commands) < 5 {
		t.Fatalf("only %d commands found", len(commands))
	}
	for _, m := range commands {
		if strings.Contains(m[1], "serve") {
			continue // check reads the same file; starting it needs that company's servers
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", m[1])
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "MCP_PORTAL_URL="+p.URL, "OIDC_CLIENT_SECRET=x", "TRACKER_TOKEN=y")
		out, err := cmd.CombinedOutput()
		want := 0
		if strings.Contains(m[1], "chat_message_post") {
			want = 2
			if !approvalURL.Match(out) {
				t.Errorf("%s: no address to approve it at: %s", m[1], out)
			}
		}
		if code := cmd.ProcessState.ExitCode(); code != want {
			t.Errorf("%s: exit code %d, want %d: %v\n%s", m[1], code, want, err, out)
		}
	}
}

// What the documents tell clients to start is an MCP server.
func TestStdioExamples(t *testing.T) {
	p := demo(t)
	found := 0
	for _, file := range []string{"../README.md", "../docs/stdio.md"} {
		doc, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var starts [][]string
		for _, m := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(doc, -1) {
			type start struct {
				Command string
				Args    []string
			}
			var c struct{ McpServers, Servers map[string]start }
			if err := json.Unmarshal(m[1], &c); err != nil {
				t.Fatalf("%s: %v in %s", file, err, m[1])
			}
			for _, s := range append(slices.Collect(maps.Values(c.McpServers)), slices.Collect(maps.Values(c.Servers))...) {
				starts = append(starts, append([]string{s.Command}, s.Args...))
			}
		}
		for _, m := range regexp.MustCompile(`(?m)(?:^echo .*\| |-- )(mcp-portal stdio .*)$`).FindAllStringSubmatch(string(doc), -1) {
			starts = append(starts, strings.Fields(m[1]))
		}
		found += len(starts)
		for _, args := range starts {
			i := slices.Index(args, "--url")
			if args[0] != "mcp-portal" || args[1] != "stdio" || i < 0 {
				t.Fatalf("%s: %q", file, args)
			}
			args[i+1] = p.URL
			c := startPipes(t, nil, args[2:]...)
			c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
			c.expect(`"name":"portal_`)
			_ = c.in.Close()
			c.exit()
		}
	}
	if found != 6 {
		t.Errorf("%d examples found", found)
	}
}

// --help of every command teaches: what it does and an example.
func TestHelp(t *testing.T) {
	for _, c := range []string{"", "serve", "check", "tools", "call", "demo", "stdio", "token", "key", "schema", "version", "guard", "guard explain", "guard suggest", "guard test", "guard replay"} {
		args := append(strings.Fields(c), "--help")
		out, err := exec.Command(binary, args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "Usage:") || !strings.Contains(string(out), "mcp-portal") {
			t.Errorf("%s --help: %v\n%s", c, err, out)
		}
		if strings.Contains(string(out), "sandbox-worker") {
			t.Errorf("%s --help shows the hidden worker command", c)
		}
	}
}

// check prints every mistake with its place, and exits 1.
func TestCheckFindsAllMistakes(t *testing.T) {
	path := writeConfig(t, "listen: 127.0.0.1:8080\nauth: {mode: none}\nservrs: {}\nguard:\n  preset: carefull\nservers:\n  a_b: {url: http://x.example/mcp}\n  c: {url: http://127.0.0.1/mcp, timeut: 3s}\n")
	out, err := exec.Command(binary, "check", "--config", path).CombinedOutput()
	if err == nil {
		t.Fatalf("accepted: %s", out)
	}
	for _, want := range []string{path + ":3:1:", "servers", path + ":5:11:", "careful", path + ":7:3:", "a_b", path + ":8:", "timeut"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
}
