package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mcp-portal/mcp-portal/gateway"
)

func guardCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "guard",
		Short: "Explain, test and try out the policy of WriteGuard",
		Long: `guard answers questions about the policy: what would happen to a call and why,
what a policy for a server could look like, whether a policy does what its tests
say, and which past decisions a changed policy would have made differently.
None of its commands calls a tool.`,
		Example: `  mcp-portal guard explain dns_record_delete '{"zone_id":"z1"}'
  mcp-portal guard suggest dns > dns-policy.yaml
  mcp-portal guard test policy_test.yaml
  mcp-portal guard replay --config portal.yaml --since 24h`,
	}
	cmd.AddCommand(guardExplainCommand(), guardSuggestCommand(), guardTestCommand(), guardReplayCommand())
	return cmd
}

func guardExplainCommand() *cobra.Command {
	var t target
	var mode, client string
	var raw bool
	cmd := &cobra.Command{
		Use:   "explain <tool> [arguments]",
		Short: "Say which class a tool has, who says so, and what happens to a call",
		Long: `explain asks the portal what WriteGuard would do with a call, without making it:
the tool's class and what it was told from, its labels, the decision, the rule
that decides and, for administrators, each rule that was tried before it. With
--config it judges with that file: name the user with --user and --groups.
Without arguments it says what holds for the tool, and which rules may decide
otherwise once the arguments are known.`,
		Example: `  mcp-portal guard explain dns_record_delete
  mcp-portal guard explain billing_refund_create '{"amount":5000}' --mode code
  mcp-portal guard explain --config portal.yaml --user anna@example.com --groups staff,ops dns/record_create`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := map[string]any{"tool": args[0], "mode": mode, "client": client}
			if len(args) == 2 {
				if !json.Valid([]byte(args[1])) {
					return fmt.Errorf("the arguments are not valid JSON: %s. Write an object in single quotes: '{\"per_page\":2}'", args[1])
				}
				q["arguments"] = json.RawMessage(args[1])
			}
			var e gateway.Explained
			if err := t.ask(cmd.Context(), "POST", "/guard/explain", q, &e); err != nil {
				return err
			}
			if raw {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(e)
			}
			printExplained(cmd.OutOrStdout(), e)
			return nil
		},
	}
	t.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&mode, "mode", "direct", "how it is called: direct, or code (in a script)")
	f.StringVar(&client, "client", "", `the client's "name/version", for rules that look at it`)
	f.BoolVar(&raw, "json", false, "print JSON")
	return cmd
}

func printExplained(w io.Writer, e gateway.Explained) {
	line := func(what, format string, a ...any) { fmt.Fprintf(w, "%-10s %s\n", what, fmt.Sprintf(format, a...)) }
	line("tool", "%s on server %s (%s)", e.Tool, e.Server, e.Outward)
	line("class", "%s, by %s: %s", e.Class, e.Source, e.Why)
	labels := "none"
	if len(e.Labels) > 0 {
		labels = strings.Join(e.Labels, ", ")
	}
	if e.ExternalWhy != "" {
		labels += " (external: " + e.ExternalWhy + ")"
	}
	line("labels", "%s", labels)
	line("decision", "%s, by %s", e.Action, e.Rule)
	if e.Would != "" {
		line("", "the guard only observes; otherwise: %s", e.Would)
	}
	line("", "%s", e.Reason)
	if e.Blocked != "" {
		line("filter", "these arguments are refused before that: %s", e.Blocked)
	}
	for _, s := range e.Terms {
		line("terms", "%s", s)
	}
	if len(e.If) > 0 {
		line("may change", "by %s, which depend on arguments or earlier calls that were not given; at worst: %s", strings.Join(e.If, ", "), e.Worst)
	}
	if len(e.Filters) > 0 {
		line("filters", "%s", strings.Join(e.Filters, ", "))
	}
	other := 0
	for i, s := range e.Steps {
		if !s.Tool {
			other++
			continue
		}
		line("rule "+fmt.Sprint(i+1), "%s: %s", s.Rule, s.Says)
	}
	switch {
	case other > 0:
		line("rules", "%d others are for other tools", other)
	case e.Hidden > 0:
		line("rules", "%d were tried; only administrators see which", e.Hidden)
	}
}

// ask puts a question to the portal that a command talks to, beside the MCP
// endpoint.
func (t *target) ask(ctx context.Context, method, path string, question, answer any) error {
	r, err := t.reach(ctx, false)
	if err != nil {
		return err
	}
	defer r.end()
	u, err := url.Parse(r.address)
	if err != nil {
		return err
	}
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/mcp")
	body := []byte(nil)
	if question != nil {
		if body, err = json.Marshal(question); err != nil {
			return fmt.Errorf("write the question: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String()+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if question != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := (&http.Client{Transport: r.via}).Do(req)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && t.config == "" {
			return fmt.Errorf("no portal answers at %s: start one (mcp-portal demo), name it with --url, or give --config: %w", r.address, err)
		}
		return fmt.Errorf("ask the portal at %s: %w", r.address, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return fmt.Errorf("ask the portal at %s: %w", r.address, err)
	}
	switch {
	case resp.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("the portal at %s wants a token: give --token or set MCP_PORTAL_TOKEN", r.address)
	case resp.StatusCode != http.StatusOK:
		var e struct{ Error string }
		if json.Unmarshal(raw, &e) == nil && e.Error != "" {
			return errors.New(e.Error)
		}
		return fmt.Errorf("the portal at %s answered %s: is it older than this program?", r.address, resp.Status)
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return fmt.Errorf("read the answer of the portal at %s: %w", r.address, err)
	}
	return nil
}
