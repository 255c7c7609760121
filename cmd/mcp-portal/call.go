package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

func callCommand() *cobra.Command {
	var t target
	var code, file, resume string
	cmd := &cobra.Command{
		Use:   "call [tool [arguments]]",
		Short: "Call one tool, or run a script that calls many",
		Long: `call calls one tool with its arguments as JSON, or runs JavaScript or TypeScript
as portal_execute does. It passes WriteGuard like every agent's call: what needs
approval is not run: on a terminal you are asked, elsewhere the answer says where
to approve it and how to go on.

Exit code 0: done. 2: the tool, the script or the policy answered an error.
3: the script waits for an approval or for a plan to be decided.`,
		Example: `  mcp-portal call dns_zones_list '{"per_page":50}'
  mcp-portal call --code 'return (await codemode.dns_zones_list({})).result_info'
  mcp-portal call --file report.ts
  mcp-portal call --config portal.yaml --user anna --groups support crm_contact_get '{"id":"53025"}'`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := map[string]any{}
			ways := 0
			if len(args) > 0 {
				ways++
				in["tool"] = args[0]
				if len(args) == 2 {
					if !json.Valid([]byte(args[1])) {
						return fmt.Errorf("the arguments are not valid JSON: %s. Write an object in single quotes: '{\"per_page\":2}'", args[1])
					}
					in["arguments"] = json.RawMessage(args[1])
				}
			}
			if code != "" {
				ways++
				in["code"] = code
			}
			if resume != "" {
				ways++
				if strings.HasPrefix(resume, "pl-") { // people copy what the answer names
					in["plan"] = resume
				} else {
					in["resume"] = resume
				}
			}
			if file != "" {
				ways++
				src, err := readSource(file)
				if err != nil {
					return err
				}
				in["code"] = src
			}
			if ways != 1 {
				return errors.New("give a tool name, --code, --file or --resume: exactly one of them")
			}
			return callAndPrint(cmd, &t, "optimize_context=search_and_execute", "portal_execute", in)
		},
	}
	t.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&code, "code", "", "a script to run")
	f.StringVarP(&file, "file", "f", "", "a file with a script to run; - reads standard input")
	f.StringVar(&resume, "resume", "", "id of a paused run, or of a decided plan, to go on with")
	return cmd
}

func readSource(file string) (string, error) {
	var b []byte
	var err error
	if file == "-" {
		b, err = io.ReadAll(os.Stdin)
	} else {
		b, err = os.ReadFile(file)
	}
	if err != nil {
		return "", fmt.Errorf("read the script: %w", err)
	}
	return string(b), nil
}
