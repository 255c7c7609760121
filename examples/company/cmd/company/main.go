// Command company serves the example company by itself, for trying a portal
// against it or grading one from outside:
//
//	go run ./examples/company/cmd/company --listen 127.0.0.1:7300
//
// It prints one line when it is ready. POST /reset puts the state back, GET
// /state tells what was done.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/mcp-portal/mcp-portal/examples/company"
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "company:", err)
		os.Exit(1)
	}
}

func serve() error {
	listen := flag.String("listen", "127.0.0.1:7300", "`address` to listen on; port 0 picks a free one")
	outage := flag.Bool("outage", false, "the first 3 tool calls of each run to crm lose their connection")
	latency := flag.Bool("latency", true, "let tools take the time of the fixture (tracker issue_get: 150 ms)")
	verbose := flag.Bool("verbose", false, "log every call to standard error")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; see --help", flag.Arg(0))
	}
	level := slog.LevelWarn
	if *verbose {
		level = slog.LevelDebug
	}
	c := company.New(company.Options{
		Outage:  *outage,
		Latency: *latency,
		Log:     slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})),
	})
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return fmt.Errorf("listening for the example company: %w; choose another --listen", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Printf("example company ready on http://%s/{%s}/mcp\n", l.Addr(), strings.Join(company.Servers(), ","))
	return c.Serve(ctx, l)
}
