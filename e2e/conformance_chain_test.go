package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The suite tests a client by running a command with the URL of its server.
// This command is the test program itself, in the role of a chain: it starts
// the portal before that server and drives the SDK's client through it. So the
// suite sees the portal as the client, doing what a real client asked for.
const (
	chainPortal = "E2E_CHAIN_PORTAL" // path of the portal; set: be a chain
	chainEra    = "E2E_CHAIN_ERA"    // of the client behind the portal
)

// chain is the program in that role; it returns the exit code.
func chain(portal, upstream string) int {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second)
	defer cancel()
	if err := chained(ctx, portal, upstream); err != nil {
		fmt.Fprintln(os.Stderr, "chain:", err)
		return 1
	}
	return 0
}

func chained(ctx context.Context, portal, upstream string) (err error) {
	dir, err := os.MkdirTemp("", "mcp-portal-chain-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "portal.yaml")
	scenario, about := os.Getenv("MCP_CONFORMANCE_SCENARIO"), os.Getenv("MCP_CONFORMANCE_CONTEXT")
	config := conformanceConfig(upstream)
	if signInScenario(scenario) {
		if config, err = signInConfig(upstream, scenario, about); err != nil {
			return err
		}
	}
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, portal, "serve", "--config", path)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}()
	sc := bufio.NewScanner(stdout)
	url, err := scanReady(sc)
	if err != nil {
		return err
	}
	go func() {
		for sc.Scan() {
			fmt.Fprintln(os.Stderr, sc.Text())
		}
	}()
	if signInScenario(scenario) {
		return signingIn(ctx, url, era(os.Getenv(chainEra)))
	}
	if err := awaitListed(ctx, url); err != nil {
		return err
	}
	return drive(ctx, url, era(os.Getenv(chainEra)), scenario, about)
}

// drive does what the client of a scenario is meant to do.
func drive(ctx context.Context, url string, e era, scenario, about string) error {
	var content map[string]any // of the answer to every question
	switch scenario {
	case "elicitation-sep1034-client-defaults":
		content = map[string]any{} // the client fills in the defaults of the form
	case "sep-2322-client-request-state":
		content = map[string]any{"confirmed": true}
	}
	opt := &mcp.ClientOptions{}
	if content != nil {
		opt.ElicitationHandler = func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: content}, nil
		}
	}
	s, err := mcp.NewClient(&mcp.Implementation{Name: "conformance-chain", Version: "1"}, opt).
		Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url}, &mcp.ClientSessionOptions{ProtocolVersion: string(e)})
	if err != nil {
		return fmt.Errorf("connect to the portal: %w", err)
	}
	defer s.Close()
	list, err := s.ListTools(ctx, nil)
	if err != nil {
		return fmt.Errorf("tools/list: %w", err)
	}
	// The portal's own tools are no part of the scenario.
	tools := slices.DeleteFunc(list.Tools, func(t *mcp.Tool) bool { return isPortalTool(t.Name) })
	call := func(name string, args any) error {
		if !slices.ContainsFunc(tools, func(t *mcp.Tool) bool { return t.Name == name }) {
			return fmt.Errorf("tool %s is not offered", name)
		}
		if _, err := s.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args}); err != nil {
			return fmt.Errorf("call %s: %w", name, err)
		}
		return nil
	}
	// Some scenarios expect that a call is refused on the way; the suite, not
	// the client, says whether it was.
	try := func(name string, args any) {
		if err := call(name, args); err != nil {
			fmt.Fprintln(os.Stderr, "chain: goes on after:", err)
		}
	}
	switch scenario {
	case "initialize", "request-metadata", "json-schema-ref-no-deref":
	case "tools_call":
		return call("add_numbers", map[string]any{"a": 5, "b": 3})
	case "elicitation-sep1034-client-defaults":
		return call("test_client_elicitation_defaults", map[string]any{})
	case "sse-retry":
		return call("test_reconnection", map[string]any{})
	case "json-schema-2020-12-preservation":
		for _, t := range tools {
			if t.Name == "json_schema_2020_12_tool" {
				return call("json_schema_echo", map[string]any{"schema": t.InputSchema})
			}
		}
		return errors.New("tool json_schema_2020_12_tool is not offered")
	case "sep-2322-client-request-state":
		for _, name := range []string{"test_mrtr_echo_state", "test_mrtr_no_state", "test_mrtr_unrelated", "test_mrtr_no_result_type"} {
			try(name, map[string]any{})
		}
	case "http-standard-headers":
		for _, t := range tools {
			try(t.Name, map[string]any{})
		}
		return readSomething(ctx, s)
	case "http-custom-headers":
		var c struct {
			ToolCalls []struct {
				Name      string         `json:"name"`
				Arguments map[string]any `json:"arguments"`
			} `json:"toolCalls"`
		}
		if err := json.Unmarshal([]byte(about), &c); err != nil || len(c.ToolCalls) == 0 {
			return fmt.Errorf("no calls to make in %q: %v", about, err)
		}
		for _, t := range c.ToolCalls {
			try(t.Name, t.Arguments)
		}
	case "http-invalid-tool-headers":
		for _, t := range tools {
			try(t.Name, map[string]any{"region": "us-west1"})
		}
	default:
		return fmt.Errorf("what the client does in scenario %q is not known here", scenario)
	}
	return nil
}

// readSomething reads the first resource and gets the first prompt.
func readSomething(ctx context.Context, s *mcp.ClientSession) error {
	resources, err := s.ListResources(ctx, nil)
	if err != nil {
		return fmt.Errorf("resources/list: %w", err)
	}
	for _, r := range resources.Resources {
		if _, err := s.ReadResource(ctx, &mcp.ReadResourceParams{URI: r.URI}); err != nil {
			return fmt.Errorf("read %s: %w", r.URI, err)
		}
	}
	prompts, err := s.ListPrompts(ctx, nil)
	if err != nil {
		return fmt.Errorf("prompts/list: %w", err)
	}
	for _, p := range prompts.Prompts {
		if _, err := s.GetPrompt(ctx, &mcp.GetPromptParams{Name: p.Name}); err != nil {
			return fmt.Errorf("get %s: %w", p.Name, err)
		}
	}
	return nil
}

// conformanceConfig is a portal before one server, as transparent as it can be:
// names without prefix, and every call allowed, since the suite tests the
// protocol and not the guard.
func conformanceConfig(upstream string) string {
	return fmt.Sprintf("listen: 127.0.0.1:0\nauth: {mode: none}\nguard: {rules: [{action: allow}]}\nservers:\n  up:\n    url: %s\n    prefix: false\n", upstream)
}

// awaitListed waits until the portal has listed its only server.
func awaitListed(ctx context.Context, url string) error {
	for {
		state, err := onlyState(ctx, strings.TrimSuffix(url, "/mcp")+"/status")
		if state == "ready" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the portal's server never became ready: it is %q, %v", state, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func onlyState(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var status struct{ Servers []struct{ State string } }
	if err := json.NewDecoder(resp.Body).Decode(&status); err != nil || len(status.Servers) != 1 {
		return "", fmt.Errorf("GET /status: %s, %d servers: %w", resp.Status, len(status.Servers), err)
	}
	return status.Servers[0].State, nil
}

func isPortalTool(name string) bool { return strings.HasPrefix(name, "portal_") }
