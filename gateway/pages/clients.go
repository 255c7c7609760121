package pages

import (
	"encoding/base64"
	"encoding/json"
	"html/template"
	"net/url"
	"strings"

	"github.com/mcp-portal/mcp-portal/wire"
)

// Client is how one MCP client is told about the portal.
type Client struct {
	ID     string
	Name   string
	Link   template.URL // deep link that adds the portal; may be empty
	Blocks []Block
}

// Block is one text to copy.
type Block struct {
	Label string // where it goes
	Text  string
}

// ClientName makes the name under which clients keep the portal: lower-case
// letters, digits and hyphens, at most 30, never empty. Some clients put it in
// front of every tool name, so it is short.
func ClientName(portal string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(portal) {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() == 30 {
			break
		}
	}
	if s := strings.Trim(b.String(), "-"); s != "" {
		return s
	}
	return "portal"
}

// clients returns the instructions. name is a ClientName and address a parsed
// URL written by net/url, so neither holds a quote, a dollar sign or a space.
// Without sign-in no token is asked for.
func clients(name, address string, signsIn bool) []Client {
	type remote struct {
		Type string `json:"type,omitempty"`
		URL  string `json:"url"`
	}
	type local struct {
		Command string   `json:"command"`
		Args    []string `json:"args"`
		Env     any      `json:"env,omitempty"`
	}
	bridge := local{"npx", []string{"-y", "mcp-remote", address}, nil}
	if strings.HasPrefix(address, "http:") {
		bridge.Args = append(bridge.Args, "--allow-http")
	}
	through, program := "Through the portal's own program, with a service token", local{"mcp-portal", []string{"stdio", "--url", address}, map[string]string{"MCP_PORTAL_TOKEN": "mcpp_st_..."}}
	remotely := "Through mcp-remote, which signs in with the browser and needs Node.js"
	if !signsIn {
		through, program.Env, remotely = "Through the portal's own program", nil, "Through mcp-remote, which needs Node.js"
	}
	// Double quotes hold the question mark together in every shell.
	quoted := `"` + address + `"`
	vscode := compact(struct {
		Name string `json:"name"`
		remote
	}{name, remote{"http", address}})
	return []Client{
		{ID: "claude-code", Name: "Claude Code", Blocks: []Block{
			{"In a terminal", "claude mcp add --transport http " + name + " " + quoted},
		}},
		{ID: "cursor", Name: "Cursor", Link: template.URL("cursor://anysphere.cursor-deeplink/mcp/install?name=" +
			url.QueryEscape(name) + "&config=" + url.QueryEscape(base64.StdEncoding.EncodeToString(compact(remote{URL: address})))),
			Blocks: []Block{{"In ~/.cursor/mcp.json", indented(map[string]any{"mcpServers": map[string]any{name: remote{URL: address}}})}}},
		{ID: "vs-code", Name: "VS Code", Link: template.URL("vscode:mcp/install?" + url.PathEscape(string(vscode))),
			Blocks: []Block{
				{"In a terminal (macOS, Linux)", "code --add-mcp '" + string(vscode) + "'"},
				{"Or in .vscode/mcp.json", indented(map[string]any{"servers": map[string]any{name: remote{"http", address}}})},
			}},
		{ID: "codex", Name: "Codex", Blocks: []Block{
			{"In a terminal", "codex mcp add " + name + " --url " + quoted},
			{"Or in ~/.codex/config.toml", "[mcp_servers." + name + "]\nurl = " + quoted},
		}},
		{ID: "other", Name: "Other clients", Blocks: []Block{
			{"The address (Streamable HTTP)", address},
			{"As JSON", indented(map[string]any{"mcpServers": map[string]any{name: remote{"http", address}}})},
		}},
		{ID: "stdio", Name: "Clients that only start programs", Blocks: []Block{
			{remotely, indented(map[string]any{"mcpServers": map[string]any{name: bridge}})},
			{through, indented(map[string]any{"mcpServers": map[string]any{name: program}})},
		}},
	}
}

func compact(v any) json.RawMessage { return wire.Encode(v) }

func indented(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // the address holds & when there is more than one parameter
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return string(compact(v))
	}
	return strings.TrimSuffix(b.String(), "\n")
}
