package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/writeguard"
	"github.com/mcp-portal/mcp-portal/writeguard/policytest"
)

func guardTestCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "test <policy_test.yaml>…",
		Short: "Run tests of a policy: tables of calls with the decisions they must come to",
		Long: `test reads files that say which calls are to be allowed, denied or approved, and
judges each call with the configuration that the file names, or --config. It
connects to nothing: tools are described in the file. Each test that comes out
otherwise is printed as file:line: test: what was decided, and why.

  config: portal.yaml            # beside the file; this is the default
  users:
    olga: {email: olga@example.com, groups: [operators]}
  tests:
    - name: operators change records
      server: dns
      tool: record_create
      annotations: {destructiveHint: false}
      arguments: {zone_id: z1}
      user: olga                 # default: a person in no group
      mode: [direct, code]       # default: direct
      run: {calls: 3, taints: [private]}
      expect: allow              # allow, deny, approve or plan
      rule: operators-change-records   # these three are optional
      class: write
      reason: a part of the reason

Exit code 0: all as expected. 1: a file cannot be used. 2: a test failed.`,
		Example: `  mcp-portal guard test policy_test.yaml
  mcp-portal guard test --config next.yaml policy_test.yaml`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			broken := false
			for _, file := range args {
				f, err := policytest.Read(file)
				if err != nil {
					return err
				}
				own := path
				if own == "" {
					own = f.ConfigPath()
				}
				cfg, policy, err := loadPolicy(own)
				if err != nil {
					return err
				}
				failed, calls := f.Run(cfg, policy)
				for _, x := range failed {
					fmt.Fprintln(os.Stderr, x.Error())
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %d tests, %d calls judged by %s, %d wrong\n", file, len(f.Tests), calls, own, len(failed))
				broken = broken || len(failed) > 0
			}
			if broken {
				return &exitError{2}
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", "", "test this configuration instead of the one the files name")
	return cmd
}

// loadPolicy reads a configuration and compiles its policy.
func loadPolicy(path string) (*config.Config, *writeguard.Policy, error) {
	cfg, err := config.Load(path)
	if err != nil {
		return nil, nil, err
	}
	policy, err := writeguard.Compile(cfg)
	if err != nil {
		return nil, nil, err
	}
	return cfg, policy, nil
}
