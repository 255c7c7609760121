package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/mcp-portal/mcp-portal/codemode"
	"github.com/mcp-portal/mcp-portal/wire"
)

// version is set by the linker (-X main.version=…).
var version = "dev"

func main() {
	// Before anything else: a sandbox worker must do no other work.
	if len(os.Args) > 1 && os.Args[1] == codemode.WorkerCommand {
		os.Exit(codemode.WorkerMain())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := root().ExecuteContext(ctx); err != nil {
		var e *exitError
		if errors.As(err, &e) {
			os.Exit(e.code)
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// exitError ends the program with a code after everything was already said.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit %d", e.code) }

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mcp-portal",
		Short: "One URL for all MCP servers of a company",
		Long: `mcp-portal puts many MCP servers behind one URL. It signs users in with the
company's identity provider, shows each user only what policy allows, lets
agents find tools by search and call them from code in a sandbox, and asks a
person before anything is changed.

  mcp-portal demo                         try it: an example company, no sign-in
  mcp-portal check --config portal.yaml   find mistakes in a configuration
  mcp-portal serve --config portal.yaml   run it
  mcp-portal tools --config portal.yaml   what a user would see
  mcp-portal call dns_zones_list          call one tool
  mcp-portal stdio --url https://…/mcp    for clients that only start programs
  mcp-portal guard explain dns_zones_list what the policy does with a tool, and why

Agents connect to http://…/mcp?optimize_context=search_and_execute and see two
tools; without the query they see all.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(serveCommand(), checkCommand(), demoCommand(), toolsCommand(), callCommand(), stdioCommand(), guardCommand(), pinsCommand(), tokenCommand(), keyCommand(), schemaCommand(), versionCommand())
	return cmd
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the Go version and the protocol versions spoken",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rev := ""
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						rev = " " + s.Value[:min(12, len(s.Value))]
					}
				}
			}
			fmt.Fprintf(cmd.OutOrStdout(), "mcp-portal %s%s %s %s/%s\nMCP %v\n", version, rev, runtime.Version(), runtime.GOOS, runtime.GOARCH, wire.SupportedVersions())
			return nil
		},
	}
}
