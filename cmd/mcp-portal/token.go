package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mcp-portal/mcp-portal/auth"
	"github.com/mcp-portal/mcp-portal/config"
)

func tokenCommand() *cobra.Command {
	var (
		rotate  bool
		path    string
		days    int
		overlap time.Duration
		limits  config.ServiceToken
	)
	cmd := &cobra.Command{
		Use:   "token ID",
		Short: "Make or rotate a service token for a machine",
		Long: `token makes a random service token. The token is printed once; only its hash
goes into portal.yaml, under auth.service_tokens. The machine sends it as
Authorization: Bearer <token>, or exchanges it at /token for short-lived access
tokens (grant_type=client_credentials, client_id the id, client_secret the token).

With --rotate it makes the successor of a token in portal.yaml and prints the
entry to put in its place: both tokens work until the time of --overlap is over,
so that machines can change over one by one.`,
		Example: "  mcp-portal token nightly-report --days 90 --servers billing --tools 'billing/list_*' --from 10.1.0.0/16\n  mcp-portal token nightly-report --rotate --config portal.yaml",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("give the token one id, like: mcp-portal token nightly-report")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if days < 0 || days > 3650 {
				return errors.New("--days must be from 1 to 3650, or 0 for a token that never expires")
			}
			now := time.Now().UTC()
			for _, n := range limits.From {
				if _, err := config.ParseNetwork(n); err != nil {
					return fmt.Errorf("--from %s %w", n, err)
				}
			}
			for _, g := range limits.Tools {
				if !strings.Contains(g, "/") {
					return fmt.Errorf("--tools %s has no server; write server/tool, like github/get_*", g)
				}
			}
			entry := limits
			entry.ID = args[0]
			if rotate {
				if len(limits.Groups)+len(limits.Servers)+len(limits.Tools)+len(limits.From) > 0 {
					return errors.New("--groups, --servers, --tools and --from are for new tokens: what a token may do stays as it is in the file when it is rotated")
				}
				before, err := serviceTokenOf(path, args[0])
				if err != nil {
					return err
				}
				entry = before
				entry.PreviousHash, entry.PreviousUntil = before.Hash, now.Add(overlap).Truncate(time.Second)
				if !before.Expires.IsZero() && before.Expires.Before(entry.PreviousUntil) {
					entry.PreviousUntil = before.Expires.UTC()
				}
			}
			token, hash, err := auth.NewServiceToken(args[0])
			if err != nil {
				return err
			}
			entry.Hash = hash
			switch {
			case days > 0:
				entry.Expires = now.AddDate(0, 0, days).Truncate(24 * time.Hour)
			case rotate && !entry.Expires.IsZero():
				return errors.New("the token has an expiry: say with --days how long its successor shall work")
			}
			fmt.Fprintf(cmd.OutOrStdout(), "token (shown once): %s\n\n%s", token, tokenEntry(entry, rotate))
			return nil
		},
	}
	cmd.Flags().BoolVar(&rotate, "rotate", false, "make the successor of a token that is in the configuration file")
	cmd.Flags().StringVarP(&path, "config", "c", "portal.yaml", "configuration file, for --rotate")
	cmd.Flags().IntVar(&days, "days", 0, "days until the token expires; 0: never")
	cmd.Flags().DurationVar(&overlap, "overlap", 7*24*time.Hour, "with --rotate, how long the token before still works")
	cmd.Flags().StringSliceVar(&limits.Groups, "groups", nil, "groups that the machine counts as a member of")
	cmd.Flags().StringSliceVar(&limits.Servers, "servers", nil, "the only servers that it may use")
	cmd.Flags().StringSliceVar(&limits.Tools, "tools", nil, "the only tools that it may use, like github/get_*")
	cmd.Flags().StringSliceVar(&limits.From, "from", nil, "the only networks that it may come from, like 10.1.0.0/16")
	return cmd
}

func serviceTokenOf(path, id string) (config.ServiceToken, error) {
	cfg, err := config.Load(path)
	if err != nil {
		return config.ServiceToken{}, err
	}
	for _, t := range cfg.Auth.ServiceTokens {
		if t.ID == id {
			return t, nil
		}
	}
	return config.ServiceToken{}, fmt.Errorf("%s has no service token %q; make one with: mcp-portal token %s", path, id, id)
}

// tokenEntry is the entry for portal.yaml. Of a rotated one only the keys that
// change are printed: the others stay as they are in the file.
func tokenEntry(t config.ServiceToken, rotated bool) string {
	s := fmt.Sprintf("auth:\n  service_tokens:\n    - id: %s\n      hash: %q\n", t.ID, t.Hash)
	if rotated {
		s += fmt.Sprintf("      previous_hash: %q\n      previous_until: %q\n", t.PreviousHash, t.PreviousUntil.Format(time.RFC3339))
	}
	if !t.Expires.IsZero() {
		s += fmt.Sprintf("      expires: %s\n", t.Expires.Format(time.DateOnly))
	}
	if rotated {
		return s + "      # groups, servers, tools and from stay as they are\n"
	}
	for _, l := range []struct {
		key  string
		list []string
	}{{"groups", t.Groups}, {"servers", t.Servers}, {"tools", t.Tools}, {"from", t.From}} {
		if len(l.list) > 0 {
			b, err := json.Marshal(l.list) // is YAML, too
			if err == nil {
				s += fmt.Sprintf("      %s: %s\n", l.key, b)
			}
		}
	}
	return s
}
