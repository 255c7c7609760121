package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/mcp-portal/mcp-portal/auth/vault"
)

func keyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "key",
		Short: "Make an encryption key",
		Long: `key makes a random key for auth.encryption_keys, with which the portal seals
the credentials that it keeps in its store. It is secret: keep it in the
environment or in a file, not in portal.yaml itself. To rotate, put a new key
before the one in use; what the old one sealed is sealed anew when it is next
used. Remove the old one when everyone has signed in again, at the latest after
auth.tokens.grant.`,
		Example: "  mcp-portal key > /etc/mcp-portal/encryption-key\n\n  auth:\n    encryption_keys: [\"file:/etc/mcp-portal/encryption-key\"]",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintln(cmd.OutOrStdout(), vault.NewKey(time.Now()))
			return nil
		},
	}
}
