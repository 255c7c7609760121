package main

import (
	"errors"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func stdioCommand() *cobra.Command {
	var t target
	var optimize, codemode, level string
	cmd := &cobra.Command{
		Use:   "stdio",
		Short: "Let a client that only starts programs use a portal",
		Long: `stdio is an MCP server on standard input and output that passes every message
to a portal and back, unchanged, in MCP 2026-07-28 and 2025. It is for clients
that cannot connect to a URL, or cannot send a token.

Put it into the client's configuration as the program to start. The token goes
into the client's environment for it, not into the arguments, which other users
of the machine can see:

  {"mcpServers": {"portal": {
    "command": "mcp-portal",
    "args": ["stdio", "--url", "https://portal.example.com/mcp",
             "--optimize-context", "search_and_execute"],
    "env": {"MCP_PORTAL_TOKEN": "mcpp_st_…"}}}}

The token is a service token (the portal's admin makes one with: mcp-portal
token <id>) or an access token of the portal's identity provider.

With --config no portal needs to run: the servers of the file are served to this
one client, as the user given with --user. What needs approval is asked in the
client; where it cannot ask, the answer has an address on this machine that
works as long as the client runs.

Standard output carries the protocol and nothing else; what goes wrong is said
on standard error, and in the answer to the request it concerns. When standard
input ends, requests under way have ten seconds, then the session is ended. A
portal that restarts is tried again; a call that may have reached it is never
sent twice: its answer then says that the outcome is unknown.`,
		Example: `  mcp-portal stdio --url https://portal.example.com/mcp
  mcp-portal stdio --config portal.yaml --user anna@example.com --groups support
  echo '{"jsonrpc":"2.0","id":1,"method":"tools/list"}' | mcp-portal stdio`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var l slog.Level
			if err := l.UnmarshalText([]byte(level)); err != nil {
				return errors.New("--log: give debug, info, warn or error")
			}
			log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l}))
			// Without this the first write after the client has gone would end
			// the program before it ends its session.
			broken := make(chan os.Signal, 1)
			signal.Notify(broken, syscall.SIGPIPE)
			defer signal.Stop(broken)
			p, err := t.reach(cmd.Context(), true)
			if err != nil {
				return err
			}
			defer p.end()
			address, err := withMode(p, optimize, codemode)
			if err != nil {
				return err
			}
			return newRelay(address, t.token != "", p.via, os.Stdout, log).run(cmd.Context(), os.Stdin)
		},
	}
	t.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&optimize, "optimize-context", "", "what the client sees: minimize_tools or search_and_execute (default: every tool)")
	f.StringVar(&codemode, "codemode", "", "code mode as in the address: search_and_execute, code or off")
	f.StringVar(&level, "log", "warn", "what to say on standard error: debug, info, warn or error")
	return cmd
}

// withMode is the address with the wishes of the flags.
func withMode(p *reached, optimize, codemode string) (string, error) {
	q, err := url.ParseQuery(p.query)
	if err != nil {
		return "", errors.New("--url: the part after the question mark cannot be read: write it like optimize_context=search_and_execute")
	}
	for name, v := range map[string]string{"optimize_context": optimize, "codemode": codemode} {
		if v == "" {
			continue
		}
		if q.Has(name) && q.Get(name) != v {
			return "", errors.New("--url and a flag disagree about " + name + ": leave one out")
		}
		q.Set(name, v)
	}
	if len(q) == 0 {
		return p.address, nil
	}
	return p.address + "?" + q.Encode(), nil
}
