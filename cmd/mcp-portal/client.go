package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/upstreams"
)

// target says which portal a command talks to: one that runs, or one started
// from a configuration for this command alone. Either way the command is an
// MCP client like any other and goes through the same door.
type target struct {
	url    string
	token  string
	config string
	user   string
	groups []string
	wait   time.Duration
}

func (t *target) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.url, "url", "", "address of a running portal (default $MCP_PORTAL_URL, else http://127.0.0.1:8080/mcp)")
	f.StringVar(&t.token, "token", os.Getenv("MCP_PORTAL_TOKEN"), "bearer token for --url (default $MCP_PORTAL_TOKEN)")
	f.StringVarP(&t.config, "config", "c", "", "configuration file: a portal is started for this command, on loopback, with a store of its own")
	f.StringVar(&t.user, "user", "", "with --config: see and act as this user")
	f.StringSliceVar(&t.groups, "groups", nil, "with --config: the user's groups")
	f.DurationVar(&t.wait, "wait", 20*time.Second, "with --config: how long to wait for servers to be ready")
}

// connect returns a session in the given mode, and a function that ends it and
// whatever was started for it.
func (t *target) connect(ctx context.Context, query string) (*mcp.ClientSession, func(), error) {
	switch {
	case t.url != "" && t.config != "":
		return nil, nil, errors.New("give --url or --config, not both")
	case t.config != "":
	case t.url == "":
		if t.url = os.Getenv("MCP_PORTAL_URL"); t.url == "" {
			t.url = "http://127.0.0.1:8080/mcp"
		}
	}
	end := func() {}
	address := t.url
	if t.config != "" {
		p, err := t.start(ctx)
		if err != nil {
			return nil, nil, err
		}
		end = func() { p.close(time.Second) }
		address = endpoint(p.cfg)
	}
	u, err := url.Parse(address)
	if err != nil {
		end()
		return nil, nil, fmt.Errorf("--url: %w", err)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/mcp"
	}
	u.RawQuery = query
	client := mcp.NewClient(&mcp.Implementation{Name: "mcp-portal-cli", Version: version}, nil)
	s, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: u.String(), HTTPClient: &http.Client{Transport: bearer{t.token}}, DisableStandaloneSSE: true}, nil)
	if err != nil {
		end()
		var op *net.OpError
		if errors.As(err, &op) && t.config == "" {
			return nil, nil, fmt.Errorf("no portal answers at %s: start one (mcp-portal demo), name it with --url, or give --config: %w", address, err)
		}
		return nil, nil, fmt.Errorf("connect to the portal at %s: %w", address, err)
	}
	return s, func() { _ = s.Close(); end() }, nil
}

// bearer adds the token, if there is one.
type bearer struct{ token string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// start runs a portal for one command: the file's servers and policy, but a
// temporary store, a free loopback port, and one user as whom to act.
func (t *target) start(ctx context.Context) (*portal, error) {
	cfg, err := config.Load(t.config)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "mcp-portal-cli-")
	if err != nil {
		return nil, fmt.Errorf("make a temporary directory: %w", err)
	}
	ln, err := listen("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	own := *cfg
	own.Listen, own.URL = ln.Addr().String(), ""
	own.Store = config.Store{File: dir + "/portal.db"}
	own.Auth = config.Auth{Mode: "none", DevUser: "cli@localhost", DevGroups: t.groups, ClockSkew: cfg.Auth.ClockSkew, SessionMaxAge: cfg.Auth.SessionMaxAge}
	if t.user != "" {
		own.Auth.DevUser = t.user
	}
	p, err := start(ctx, &own, ln, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	p.cleanup = func() { _ = os.RemoveAll(dir) }
	p.waitReady(ctx, t.wait)
	return p, nil
}

// waitReady waits until every server is listed or has failed, at most so long.
func (p *portal) waitReady(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for {
		busy := slices.ContainsFunc(p.manager.Statuses(), func(s upstreams.Status) bool { return s.State == upstreams.Connecting })
		if !busy {
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
	for _, s := range p.manager.Statuses() {
		if s.State == upstreams.Degraded && s.Error != nil {
			fmt.Fprintf(os.Stderr, "warning: server %s is not ready: %s\n", s.Server, s.Error.Message)
		}
	}
}

// resultText is what a person reads of a tool result.
func resultText(res *mcp.CallToolResult) string {
	var parts []string
	for _, c := range res.Content {
		switch c := c.(type) {
		case *mcp.TextContent:
			parts = append(parts, c.Text)
		default:
			b, err := c.MarshalJSON()
			if err != nil {
				parts = append(parts, fmt.Sprintf("[%T]", c))
				continue
			}
			parts = append(parts, string(b))
		}
	}
	return strings.Join(parts, "\n")
}
