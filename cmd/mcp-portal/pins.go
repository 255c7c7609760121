package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mcp-portal/mcp-portal/registry"
)

func pinsCommand() *cobra.Command {
	var t target
	var raw bool
	cmd := &cobra.Command{
		Use:   "pins",
		Short: "Show where servers changed the definitions of their tools or their instructions, and release that",
		Long: `pins shows definitions of tools (title, description, schemas, annotations) and
what servers say of themselves (title, description, instructions) where these
are not the ones that were approved, with what is different. What a server lists
first counts as approved. With pin: warn what is changed stays in use; with
pin: review it is held back until it is released, and so is a new tool. See
catalog.pin and servers.<id>.pin. An admin's token is needed unless there is no
sign-in.`,
		Example: "  mcp-portal pins --url https://portal.example.com/mcp\n  mcp-portal pins release tracker/issue_create@3f2a9c0d1b7e5a48",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := t.pending(cmd.Context())
			if err != nil {
				return err
			}
			if raw {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(list)
			}
			printPending(cmd.OutOrStdout(), list)
			return nil
		},
	}
	t.flags(cmd)
	cmd.Flags().BoolVar(&raw, "json", false, "print JSON")
	cmd.AddCommand(pinsReleaseCommand())
	return cmd
}

func pinsReleaseCommand() *cobra.Command {
	var t target
	var all bool
	cmd := &cobra.Command{
		Use:   "release <server>[/<tool>]@<digest>...",
		Short: "Approve changed definitions as they are now",
		Long: `release approves definitions that pins shows, named with their digest, so that
nothing is approved that was not looked at. --all approves everything that is
pending at this moment.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return errors.New("name what is to be released as pins shows it (<server>/<tool>@<digest> or <server>@<digest>), or give --all")
			}
			if all {
				list, err := t.pending(cmd.Context())
				if err != nil {
					return err
				}
				for _, p := range list {
					args = append(args, pinName(p))
				}
			}
			for _, arg := range args {
				at := strings.LastIndexByte(arg, '@')
				server, tool, ok := strings.Cut(arg[:max(0, at)], "/")
				if server == "" || ok && tool == "" {
					return fmt.Errorf("%q is not of the form <server>/<tool>@<digest> or <server>@<digest>", arg)
				}
				var done struct{ Released string }
				if err := t.ask(cmd.Context(), "POST", "/pins/release", map[string]string{"server": server, "tool": tool, "digest": arg[at+1:]}, &done); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "released %s\n", done.Released)
			}
			return nil
		},
	}
	t.flags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "release everything that is pending now")
	return cmd
}

func (t *target) pending(ctx context.Context) (list []*registry.Pending, err error) {
	if t.config != "" {
		return nil, errors.New("pins are kept by a running portal: give --url, not --config")
	}
	err = t.ask(ctx, "GET", "/pins/list", nil, &list)
	return list, err
}

// printPending shows each definition with what is different. %q keeps what a
// server wrote from doing anything to the terminal.
func printPending(out io.Writer, list []*registry.Pending) {
	if len(list) == 0 {
		fmt.Fprintln(out, "every tool and server is as it was approved")
		return
	}
	for _, p := range list {
		what, how := "changed", "in use"
		if p.New {
			what = "new"
		}
		if p.Held {
			how = "held back"
		}
		fmt.Fprintf(out, "%s  %s, %s\n", pinName(p), what, how)
		for _, d := range registry.Differences(p.Was, p.Now) {
			if !d.Added {
				fmt.Fprintf(out, "  - %s: %q\n", d.Path, d.Was)
			}
			if !d.Gone {
				fmt.Fprintf(out, "  + %s: %q\n", d.Path, d.Is)
			}
		}
	}
}

// pinName names a definition the way release takes it.
func pinName(p *registry.Pending) string {
	if p.Tool == "" {
		return p.Server + "@" + p.Digest
	}
	return p.Server + "/" + p.Tool + "@" + p.Digest
}
