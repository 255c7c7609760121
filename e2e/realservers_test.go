package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/examples/company"
)

// node is the Node.js that the npm packages bring: newer than Debian's.
func node(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("npm/node_modules/.bin/node")
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("the npm packages are not installed: run make setup (%v)", err)
	}
	return path
}

func npmPath(t *testing.T, parts ...string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(append([]string{"npm", "node_modules"}, parts...)...))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the npm packages are not installed: run make setup (%v)", err)
	}
	return path
}

// companyOptions are the company as most tests want it.
var companyOptions = company.Options{}

// serveCompany runs the example company in this process, so that tests see
// the calls that reach it.
func serveCompany(t *testing.T, opt company.Options) (*company.Company, string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := company.New(opt)
	go func() { _ = c.Serve(t.Context(), ln) }()
	return c, "http://" + ln.Addr().String()
}

// companyServers is the YAML of the company's servers.
func companyServers(url string) string {
	var b strings.Builder
	for _, id := range company.Servers() {
		fmt.Fprintf(&b, "  %s:\n    url: %s%s\n    description: %q\n", id, url, company.Path(id), company.Descriptions()[id])
		if slices.Contains(company.Trusted(), id) {
			b.WriteString("    trust_annotations: true\n")
		}
	}
	return b.String()
}

// The reference servers of npm run behind the portal together with the
// company; official clients list and call through it, in both eras, in every
// mode.
func TestRealServersAndClients(t *testing.T) {
	_, url := serveCompany(t, company.Options{})
	files := t.TempDir()
	if err := os.WriteFile(filepath.Join(files, "note.txt"), []byte("forty-two"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := node(t)
	cfg := writeConfig(t, fmt.Sprintf(`
listen: 127.0.0.1:0
auth: {mode: none}
guard: {preset: open}
servers:
%s  everything:
    command: [%q, %q, stdio]
    trust_annotations: true
    sessions: shared
  filesystem:
    command: [%q, %q, %q]
    trust_annotations: true
    sessions: shared
  memory:
    command: [%q, %q]
    env: {MEMORY_FILE_PATH: %q}
    trust_annotations: true
    sessions: shared
`, companyServers(url),
		n, npmPath(t, "@modelcontextprotocol", "server-everything", "dist", "index.js"),
		n, npmPath(t, "@modelcontextprotocol", "server-filesystem", "dist", "index.js"), files,
		n, npmPath(t, "@modelcontextprotocol", "server-memory", "dist", "index.js"), filepath.Join(t.TempDir(), "memory.jsonl")))
	p := startProcess(t, "serve", "--config", cfg)
	p.waitServers(t, 11)

	type want struct {
		name string
		args any
		text string
	}
	direct := []want{
		{"everything_echo", map[string]any{"message": "hello"}, "hello"},
		{"filesystem_read_text_file", map[string]any{"path": filepath.Join(files, "note.txt")}, "forty-two"},
		{"memory_create_entities", map[string]any{"entities": []any{map[string]any{"name": "Ada", "entityType": "person", "observations": []string{"likes engines"}}}}, "["}, // the second time there is nothing to create
		{"memory_read_graph", map[string]any{}, "likes engines"},
		{"dns_zones_list", map[string]any{"per_page": 1}, "total_count"},
	}
	code := "const e = await codemode.everything_echo({message: 'hello'}); const f = await filesystem.read_text_file({path: " + string(mustJSON(filepath.Join(files, "note.txt"))) + "}); const z = await dns.zones_list({}); return [JSON.stringify(e), JSON.stringify(f), z.result_info.total_count]"
	execute := func(tool string) []want { return []want{{tool, map[string]any{"code": code}, "forty-two"}} }
	modes := map[string][]want{
		"":                                    direct,
		"optimize_context=minimize_tools":     append([]want{{"portal_query_tools", map[string]any{"names": []string{"everything_echo"}}, "message"}}, direct...),
		"optimize_context=search_and_execute": append([]want{{"portal_query_tools", map[string]any{"query": "read a text file"}, "filesystem_read_text_file"}, {"portal_execute", map[string]any{"tool": "everything_echo", "arguments": map[string]any{"message": "hello"}}, "hello"}}, execute("portal_execute")...),
		"codemode=search_and_execute":         execute("portal_codemode_execute"),
		"codemode=code":                       execute("portal_code"),
	}
	counts := map[string]int{"optimize_context=search_and_execute": 2, "codemode=search_and_execute": 2, "codemode=code": 1}

	for query, wants := range modes {
		u := p.URL
		if query != "" {
			u += "?" + query
		}
		for _, e := range eras {
			s := connect(t, p, e, query, nil)
			if n := len(names(t, s)); counts[query] != 0 && n != counts[query] || counts[query] == 0 && n < 60 {
				t.Errorf("Go client, era %s, %q: %d tools", e, query, n)
			}
			for _, w := range wants {
				res := call(t, s, w.name, w.args)
				if res.IsError || !strings.Contains(string(mustJSON(res.Content)), w.text) {
					t.Errorf("Go client, era %s, %q, %s: %s", e, query, w.name, mustJSON(res.Content))
				}
			}
		}
		var calls []map[string]any
		for _, w := range wants {
			calls = append(calls, map[string]any{"name": w.name, "arguments": w.args})
		}
		for _, c := range []struct {
			script, version string
			args            []string
		}{{"sdk1.mjs", "2025-11-25", nil}, {"sdk2.mjs", "2025-11-25", nil}, {"sdk2.mjs", "2026-07-28", []string{"auto"}}} {
			cmd := exec.CommandContext(t.Context(), n, append([]string{c.script, u, string(mustJSON(calls))}, c.args...)...)
			cmd.Dir = "npm"
			out, err := cmd.Output()
			if err != nil {
				var stderr []byte
				if ee, ok := err.(*exec.ExitError); ok {
					stderr = ee.Stderr
				}
				t.Errorf("%s %v, %q: %v\n%s%s", c.script, c.args, query, err, out, stderr)
				continue
			}
			var got struct {
				Version   *string
				Tools     []string
				Resources int
				Results   []struct {
					IsError bool
					Text    string
				}
			}
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatalf("%s: %v\n%s", c.script, err, out)
			}
			if got.Version != nil && *got.Version != c.version {
				t.Errorf("%s %v negotiated %s, want %s", c.script, c.args, *got.Version, c.version)
			}
			if counts[query] != 0 && len(got.Tools) != counts[query] || len(got.Results) != len(wants) || got.Resources < 34 {
				t.Errorf("%s %v, %q: %d tools, %d resources, %d results", c.script, c.args, query, len(got.Tools), got.Resources, len(got.Results))
				continue
			}
			for i, w := range wants {
				if got.Results[i].IsError || !strings.Contains(got.Results[i].Text, w.text) {
					t.Errorf("%s %v, %q, %s: %s", c.script, c.args, query, w.name, got.Results[i].Text)
				}
			}
		}
		for _, mode := range []string{"legacy", "modern"} {
			inspect := func(args ...string) string {
				all := append([]string{npmPath(t, ".bin", "mcp-inspector"), "--cli", u, "--transport", "http", "--protocol-era", mode}, args...)
				cmd := exec.CommandContext(t.Context(), n, all...)
				cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Errorf("inspector %s, %q, %v: %v\n%s", mode, query, args, err, out)
				}
				return string(out)
			}
			first := wants[0]
			if out := inspect("--method", "tools/list"); !strings.Contains(out, first.name) {
				t.Errorf("inspector %s, %q: tools/list lacks %s:\n%.2000s", mode, query, first.name, out)
			}
			var pairs []string
			for k, v := range first.args.(map[string]any) {
				if s, ok := v.(string); ok {
					pairs = append(pairs, k+"="+s)
				} else {
					pairs = append(pairs, k+"="+string(mustJSON(v)))
				}
			}
			if out := inspect(append([]string{"--method", "tools/call", "--tool-name", first.name, "--tool-arg"}, pairs...)...); !strings.Contains(out, first.text) {
				t.Errorf("inspector %s, %q: %s answered:\n%.2000s", mode, query, first.name, out)
			}
		}
	}
}
