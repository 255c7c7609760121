package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/examples/company"
)

//go:embed demo.yaml
var demoYAML []byte

// warehouseYAML is the server that --api adds at the end, below servers.
const warehouseYAML = `  warehouse:
    openapi: ${COMPANY}` + company.WarehouseDocument + ` # an HTTP API: each operation is a tool
    description: What is in stock of the products that the company ships.
    tools:
      movement_create:
        # A plan shows the item before, and its page can take the booking back.
        preview: { with: item_get, args: { sku: args.sku } }
        undo: { with: movement_delete, args: { id: result.id } }
`

func demoCommand() *cobra.Command {
	var addr, preset, logLevel, companyAddr string
	var outage, latency, keep, print, reset, api bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the portal with an example company, without sign-in",
		Long: `demo starts eight example MCP servers (dns, tracker, crm, billing, logs, docs,
kb, chat) over the data of an invented company, and a portal in front of them.
There is no sign-in, so it listens on loopback only. Everything is in a
temporary directory that is removed at the end.

It prints one line with the URL when it is ready. Open the address in a browser
for the lines to paste into Claude Code, Cursor or VS Code, and to approve what
an agent wants to change.

The company's data live in memory. GET /state at its address (--company) shows
what was changed and every call; --reset puts a running company back to its
beginning.`,
		Example: `  mcp-portal demo
  mcp-portal demo --listen 127.0.0.1:9000 --guard read-only
  mcp-portal demo --api                             with an HTTP API as ninth server
  mcp-portal demo --company 127.0.0.1:9001          then, from another shell:
  mcp-portal demo --company 127.0.0.1:9001 --reset`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if print {
				_, err := cmd.OutOrStdout().Write(demoConfig(api))
				return err
			}
			if reset {
				return resetCompany(cmd.Context(), companyAddr)
			}
			if !slices.Contains([]string{"careful", "read-only", "open"}, preset) {
				return fmt.Errorf("--guard %q: use careful, read-only or open", preset)
			}
			dir, err := os.MkdirTemp("", "mcp-portal-demo-")
			if err != nil {
				return fmt.Errorf("make a temporary directory: %w", err)
			}
			if !keep {
				defer os.RemoveAll(dir)
			}
			log := newLog(config.Log{Level: logLevel})
			p, err := startDemo(cmd.Context(), addr, companyAddr, preset, dir, demoConfig(api), company.Options{Outage: outage, Latency: latency, Log: log}, log)
			if err != nil {
				return err
			}
			home := "http://" + p.cfg.Listen
			fmt.Fprintf(cmd.OutOrStdout(), "mcp-portal demo ready: %s/mcp (home page %s/, paste: claude mcp add --transport http example-company '%s/mcp?optimize_context=search_and_execute')\n", home, home, home)
			if keep {
				fmt.Fprintf(os.Stderr, "store and audit log are kept in %s\n", dir)
			}
			<-cmd.Context().Done()
			signal.Reset() // a second signal ends the program at once
			p.close(2 * time.Second)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&addr, "listen", "127.0.0.1:8080", "loopback address of the portal; port 0 takes a free one")
	f.StringVar(&preset, "guard", "careful", "WriteGuard preset: careful, read-only or open")
	f.StringVar(&logLevel, "log-level", "warn", "debug, info, warn or error")
	f.BoolVar(&api, "api", false, "a ninth server, warehouse: an HTTP API with an OpenAPI document")
	f.BoolVar(&outage, "outage", false, "the crm server fails its first three calls")
	f.BoolVar(&latency, "latency", true, "some tools take as long as real ones (tracker issue_get: 150 ms)")
	f.StringVar(&companyAddr, "company", "127.0.0.1:0", "loopback address of the example company's servers")
	f.BoolVar(&reset, "reset", false, "put the running company at --company back to its beginning, and exit")
	f.BoolVar(&keep, "keep", false, "keep the store and the audit log when the demo ends")
	f.BoolVar(&print, "print-config", false, "print the configuration of the demo and exit")
	return cmd
}

// resetCompany resets the state of a running example company.
func resetCompany(ctx context.Context, addr string) error {
	if _, port, err := net.SplitHostPort(addr); err != nil || port == "0" {
		return errors.New("--reset needs --company with the address that the running demo was given")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/reset", nil)
	if err != nil {
		return fmt.Errorf("--company: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("reset the example company at %s: %w", addr, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("reset the example company at %s: it answered %s", addr, resp.Status)
	}
	return nil
}

// demoConfig is the configuration of the demo, with the warehouse if wanted.
func demoConfig(api bool) []byte {
	if !api {
		return demoYAML
	}
	return slices.Concat(demoYAML, []byte(warehouseYAML))
}

// startDemo runs the example company and a portal in front of it.
func startDemo(ctx context.Context, addr, companyAddr, preset, dir string, yaml []byte, opt company.Options, log *slog.Logger) (*portal, error) {
	if host, _, err := net.SplitHostPort(companyAddr); err != nil || !config.IsLoopback(host) {
		return nil, fmt.Errorf("--company %s: the example company has no sign-in, so its address must be on loopback, e.g. 127.0.0.1:9001", companyAddr)
	}
	upstream, err := net.Listen("tcp", companyAddr)
	if err != nil {
		return nil, fmt.Errorf("listen for the example company: %w", err)
	}
	go func() {
		if err := company.New(opt).Serve(ctx, upstream); err != nil {
			log.Error("the example company stopped", "error", err)
		}
	}()
	ln, err := listen(addr)
	if err != nil {
		return nil, err
	}
	vars := map[string]string{"LISTEN": ln.Addr().String(), "DIR": dir, "PRESET": preset, "COMPANY": "http://" + upstream.Addr().String()}
	cfg, err := config.Parse("demo.yaml", yaml, func(name string) (string, bool) { v, ok := vars[name]; return v, ok })
	if err != nil {
		_ = ln.Close()
		return nil, fmt.Errorf("the demo's configuration: %w", err)
	}
	return start(ctx, cfg, ln, log)
}
