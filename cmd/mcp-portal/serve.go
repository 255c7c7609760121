package main

import (
	"fmt"
	"os/signal"

	"github.com/spf13/cobra"

	"github.com/mcp-portal/mcp-portal/config"
)

func serveCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the portal from a configuration file",
		Long: `serve runs the portal. It starts at once, whether the identity provider, Redis
and the upstream servers can be reached or not; what cannot be reached is shown
on the status page and heals by itself.

The file is watched: an edit takes effect without a restart and without
disturbing calls under way. A file with mistakes is reported with all its
mistakes and the old configuration stays in use.`,
		Example: "  mcp-portal serve --config portal.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(path)
			if err != nil {
				return err
			}
			log := newLog(cfg.Log)
			for _, w := range cfg.Warnings {
				log.Warn(w)
			}
			ln, err := listen(cfg.Listen)
			if err != nil {
				return err
			}
			cfg = bound(cfg, ln)
			p, err := start(cmd.Context(), cfg, ln, log)
			if err != nil {
				return err
			}
			if cfg.Auth.Mode == "none" {
				log.Warn("development mode: no sign-in; the portal listens on loopback only and everyone on this machine is " + cfg.Auth.DevUser)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "mcp-portal ready: %s\n", endpoint(cfg))
			go config.WatchFrom(cmd.Context(), cfg, log, p.reload, func(err error) {
				log.Error("the edited configuration has mistakes, the old one stays in use", "error", err)
			})
			<-cmd.Context().Done()
			signal.Reset() // a second signal ends the program at once
			log.Info("shutting down: calls under way may finish", "within", cfg.Limits.Drain)
			p.close(cfg.Limits.Drain)
			return nil
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", "portal.yaml", "configuration file")
	return cmd
}
