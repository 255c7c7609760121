package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

func checkCommand() *cobra.Command {
	var path, token string
	var live bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Find all mistakes in a configuration file",
		Long: `check reads a configuration as serve would and prints every mistake as
file:line:column: key: what is wrong and how to mend it. It connects to nothing.
Exit code 0 means that serve would start with it.

With --live it also asks the portal that runs with this configuration how its
servers are: which are not ready, and where the portal's own sign-in does not
hold any more, and which rules and filters of the guard, and which entries of
servers.<id>.tools, name a tool that no server has, as far as these are ready.
Then 0 also means that there are none. An admin's token is needed unless there
is no sign-in.`,
		Example: "  mcp-portal check --config portal.yaml\n  MCP_PORTAL_TOKEN=… mcp-portal check --config portal.yaml --live",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				path = args[0]
			}
			cfg, err := config.Load(path)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return &exitError{1}
			}
			if _, err := writeguard.Compile(cfg); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return &exitError{1}
			}
			for _, w := range cfg.Warnings {
				fmt.Fprintln(os.Stderr, "warning: "+w)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is valid: %d servers, endpoint %s\n", path, len(cfg.Servers), endpoint(cfg))
			if live {
				return checkLive(cmd.Context(), cmd.OutOrStdout(), endpoint(cfg), token)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&live, "live", false, "also ask the running portal which servers need attention")
	cmd.Flags().StringVar(&token, "token", os.Getenv("MCP_PORTAL_TOKEN"), "with --live: bearer token of an admin (default $MCP_PORTAL_TOKEN)")
	cmd.Flags().StringVarP(&path, "config", "c", "portal.yaml", "configuration file")
	return cmd
}

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of portal.yaml, for editors",
		Long: `schema prints the JSON Schema of the configuration. Editors with YAML support
use it for completion: put this line at the top of portal.yaml

  # yaml-language-server: $schema=portal.schema.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(append(config.Schema(), '\n'))
			return err
		},
	}
}
