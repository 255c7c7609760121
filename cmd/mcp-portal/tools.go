package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/mcp-portal/mcp-portal/gateway"
)

func toolsCommand() *cobra.Command {
	var t target
	var pattern, detail string
	var servers []string
	var limit int
	cmd := &cobra.Command{
		Use:   "tools [words | tool names]",
		Short: "List and search tools as a user would see them",
		Long: `tools shows what an agent finds with portal_query_tools: without words the
servers, with words the tools that fit best, each with its class and what
WriteGuard would do. With --config it shows what any user would see: name the
user's groups with --groups.`,
		Example: `  mcp-portal tools                                    servers of the portal at 127.0.0.1:8080
  mcp-portal tools "list dns records"                 search
  mcp-portal tools --pattern '^dns_' --detail names   by regular expression
  mcp-portal tools --server dns --detail full         one server with parameters
  mcp-portal tools --config portal.yaml --groups support refund`,
		RunE: func(cmd *cobra.Command, args []string) error {
			in := map[string]any{}
			if len(args) > 0 {
				words := args[0]
				for _, a := range args[1:] {
					words += " " + a
				}
				in["query"] = words
			}
			if pattern != "" {
				in["pattern"] = pattern
			}
			if detail != "" {
				in["detail"] = detail
			}
			if len(servers) > 0 {
				in["servers"] = servers
			}
			if limit > 0 {
				in["limit"] = limit
			}
			return callAndPrint(cmd, &t, "optimize_context=search_and_execute", "portal_query_tools", in)
		},
	}
	t.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&pattern, "pattern", "", "regular expression (RE2) over name, description and parameters")
	f.StringVar(&detail, "detail", "", "names, brief or full")
	f.StringSliceVar(&servers, "server", nil, "only these servers")
	f.IntVar(&limit, "limit", 0, "at most so many tools (1 to 100)")
	return cmd
}

// callAndPrint calls a tool and prints its result; a tool error is exit code 2.
func callAndPrint(cmd *cobra.Command, t *target, query, tool string, args any) error {
	s, end, err := t.connect(cmd.Context(), query)
	if err != nil {
		return err
	}
	defer end()
	res, err := s.CallTool(cmd.Context(), &mcp.CallToolParams{Name: tool, Arguments: args, Meta: mcp.Meta{gateway.WholeKey: true}})
	if err != nil {
		return fmt.Errorf("call %s: %w", tool, err)
	}
	if res.IsError {
		fmt.Fprintln(os.Stderr, resultText(res))
		if t.config != "" && strings.Contains(resultText(res), "/approvals/") {
			fmt.Fprintln(os.Stderr, "The portal of this command ends with it, so that address will be gone. Run the command on a terminal to be asked there, or use a running portal with --url.")
		}
		end()
		return &exitError{2}
	}
	fmt.Fprintln(cmd.OutOrStdout(), resultText(res))
	if state, ok := res.StructuredContent.(map[string]any); ok && state["status"] == "paused" && state["run"] != nil {
		if t.config != "" {
			fmt.Fprintln(os.Stderr, "The portal of this command ends with it, and the run too. Run the command on a terminal to be asked there, or use a running portal with --url.")
		} else {
			fmt.Fprintf(os.Stderr, "After that: mcp-portal call --resume %v\n", state["run"])
		}
		end()
		return &exitError{3}
	}
	return nil
}
