package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/mcp-portal/mcp-portal/audit"
	"github.com/mcp-portal/mcp-portal/writeguard"
)

func guardReplayCommand() *cobra.Command {
	var path, file string
	var since time.Duration
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Say which past decisions a changed policy would have made otherwise",
		Long: `replay judges the calls of the audit log again with the rules of --config, and
lists what would have been decided otherwise. It connects to nothing and changes
nothing. What the log does not hold is said: arguments, unless audit.arguments is
on; the annotations behind a class, where trust_annotations or a class in the
configuration changed; what a session had read, unless the decision looked at it;
budgets, filters and what people answered are not looked at.

Exit code 0: every decision stays. 1: something cannot be read. 2: some would
differ, or it cannot be told.`,
		Example: `  mcp-portal guard replay --config next.yaml --audit /var/lib/portal/audit.jsonl --since 24h
  mcp-portal guard replay --since 168h`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, policy, err := loadPolicy(path)
			if err != nil {
				return err
			}
			if file == "" {
				if file = audit.Path(cfg.Audit, cfg.Path); file == "" {
					return fmt.Errorf("%s writes its audit log to %s: keep it in a file and name that with --audit", path, cfg.Audit.File)
				}
			}
			r := writeguard.NewReplay(policy)
			damaged := 0
			for e, err := range audit.Read(file, audit.Filter{Since: time.Now().Add(-since)}) {
				var line *audit.LineError
				switch {
				case errors.As(err, &line):
					damaged++
					fmt.Fprintln(os.Stderr, err)
				case err != nil:
					return err
				default:
					r.Add(e)
				}
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s over the last %s of %s\n", path, since, file)
			r.Print(cmd.OutOrStdout())
			if differ, unknown := r.Groups(); len(differ)+len(unknown)+damaged > 0 {
				return &exitError{2}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVarP(&path, "config", "c", "portal.yaml", "configuration with the policy to try")
	f.StringVar(&file, "audit", "", "audit log to read (default: the one that the configuration names)")
	f.DurationVar(&since, "since", 24*time.Hour, "how far back, e.g. 24h")
	return cmd
}
