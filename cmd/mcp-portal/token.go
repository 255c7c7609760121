package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mcp-portal/mcp-portal/auth"
)

func tokenCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "token ID",
		Short: "Make a service token for a machine",
		Long: `token makes a random service token. The token is printed once; only its hash
goes into portal.yaml, under auth.service_tokens. The machine sends it as
Authorization: Bearer <token>.`,
		Example: "  mcp-portal token nightly-report",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("give the token one id, like: mcp-portal token nightly-report")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			token, hash, err := auth.NewServiceToken(args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "token (shown once): %s\n\nauth:\n  service_tokens:\n    - id: %s\n      hash: %q\n", token, args[0], hash)
			return nil
		},
	}
}
