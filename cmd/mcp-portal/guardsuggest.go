package main

import (
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/mcp-portal/mcp-portal/gateway"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

func guardSuggestCommand() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "suggest <server>",
		Short: "Write a starting policy for a server from its real tool list",
		Long: `suggest lists the tools of a server and writes a policy for it as YAML, for a
person to review: a class for each tool with what speaks for it, destructive ones
first, and rules that ask about what is no read. It believes what the server says
of its own reads, which the portal by itself never does; so nothing of it counts
until you have put it into your portal.yaml. The file passes check as it stands.`,
		Example: `  mcp-portal guard suggest dns > dns-policy.yaml
  mcp-portal guard suggest --config portal.yaml tracker`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var got struct {
				State string
				Tools []gateway.ListedTool
			}
			if err := t.ask(cmd.Context(), "GET", "/guard/tools?server="+url.QueryEscape(args[0]), nil, &got); err != nil {
				return err
			}
			if len(got.Tools) == 0 {
				return fmt.Errorf("server %s has no tools for you (it is %s): a policy cannot be made from nothing. Try again when it is ready, or as another user", args[0], got.State)
			}
			var tools []writeguard.Call
			for _, x := range got.Tools {
				tools = append(tools, writeguard.Call{Server: args[0], Tool: x.Tool, Description: x.Description, Annotations: x.Annotations})
			}
			_, err := fmt.Fprint(cmd.OutOrStdout(), writeguard.SuggestPolicy(args[0], tools, func(i int) json.RawMessage { return got.Tools[i].InputSchema }))
			return err
		},
	}
	t.flags(cmd)
	return cmd
}
