package main

import (
	"bufio"
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
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/mcp-portal/mcp-portal/auth"
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
	f.StringVarP(&t.config, "config", "c", "", "configuration file: a portal is started for this command, which nobody else can reach, with a store of its own")
	f.StringVar(&t.user, "user", "", "with --config: act as this user: a principal id (<issuer>|<subject>), an e-mail address, or svc:<id> of a service token")
	f.StringSliceVar(&t.groups, "groups", nil, "with --config: the user's groups")
	f.DurationVar(&t.wait, "wait", 20*time.Second, "with --config: how long to wait for servers to be ready")
}

// reached is a portal that a command can talk to.
type reached struct {
	address string // of the MCP endpoint
	query   string // that was given with the address
	via     http.RoundTripper
	end     func() // ends what was started for it
}

// reach finds the portal, or starts one. pages are wanted by commands that live
// long enough for a person to open the address of an approval.
func (t *target) reach(ctx context.Context, pages bool) (*reached, error) {
	switch {
	case t.url != "" && t.config != "":
		return nil, errors.New("give --url or --config, not both")
	case t.config != "":
		p, via, err := t.start(ctx, pages)
		if err != nil {
			return nil, err
		}
		return &reached{address: "http://" + privateHost + "/mcp", via: bearer{t.token, via}, end: func() { p.close(time.Second) }}, nil
	case t.user != "" || len(t.groups) > 0:
		return nil, errors.New("--user and --groups need --config: a running portal knows you by your token")
	case t.url == "":
		if t.url = os.Getenv("MCP_PORTAL_URL"); t.url == "" {
			t.url = "http://127.0.0.1:8080/mcp"
		}
	}
	u, err := url.Parse(t.url)
	if err != nil {
		return nil, fmt.Errorf("--url: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("--url: %q is not an address such as https://portal.example.com/mcp", t.url)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/mcp"
	}
	r := &reached{query: u.RawQuery, via: bearer{t.token, http.DefaultTransport}, end: func() {}}
	u.RawQuery, u.Fragment = "", ""
	r.address = u.String()
	return r, nil
}

// connect returns a session in the given mode, and a function that ends it and
// whatever was started for it.
func (t *target) connect(ctx context.Context, query string) (*mcp.ClientSession, func(), error) {
	r, err := t.reach(ctx, false)
	if err != nil {
		return nil, nil, err
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "mcp-portal-cli", Version: version}, askOnTerminal())
	s, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: r.address + "?" + query, HTTPClient: &http.Client{Transport: r.via}, DisableStandaloneSSE: true}, nil)
	if err != nil {
		r.end()
		if strings.Contains(err.Error(), "Unauthorized") {
			return nil, nil, fmt.Errorf("the portal at %s wants a token: give --token or set MCP_PORTAL_TOKEN", r.address)
		}
		var op *net.OpError
		if errors.As(err, &op) && t.config == "" {
			return nil, nil, fmt.Errorf("no portal answers at %s: start one (mcp-portal demo), name it with --url, or give --config: %w", r.address, err)
		}
		return nil, nil, fmt.Errorf("connect to the portal at %s: %w", r.address, err)
	}
	return s, func() { _ = s.Close(); r.end() }, nil
}

// bearer adds the token, if there is one.
type bearer struct {
	token string
	via   http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.via.RoundTrip(r)
}

// askOnTerminal lets the person at a terminal approve what a command wants to
// change. Without a terminal nobody is asked, and the answer says where to go.
func askOnTerminal() *mcp.ClientOptions {
	if !term.IsTerminal(int(os.Stdin.Fd())) || !term.IsTerminal(int(os.Stderr.Fd())) {
		return nil
	}
	var one sync.Mutex
	return &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		one.Lock()
		defer one.Unlock()
		fmt.Fprintf(os.Stderr, "\n%s\n\nType approve or deny: ", r.Params.Message)
		line, err := bufio.NewReader(os.Stdin).ReadString('\n')
		if err != nil {
			return &mcp.ElicitResult{Action: "cancel"}, nil
		}
		switch strings.TrimSpace(line) {
		case "approve", "deny":
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": strings.TrimSpace(line)}}, nil
		}
		return &mcp.ElicitResult{Action: "cancel"}, nil
	}}
}

// actAs makes the temporary portal see the command as the user it is to act
// as: a service token of the file with a secret of this command's own, or a
// person with that id and name.
func (t *target) actAs(own *config.Config) error {
	id, machine := strings.CutPrefix(t.user, "svc:")
	if !machine {
		dev := config.Auth{Mode: "none", DevID: t.user, DevUser: t.user, DevGroups: t.groups, AllowGroups: own.Auth.AllowGroups, Admins: own.Auth.Admins,
			ClockSkew: own.Auth.ClockSkew, SessionMaxAge: own.Auth.SessionMaxAge}
		if t.user == "" {
			dev.DevID, dev.DevUser = "cli", "cli@localhost"
		}
		own.Auth = dev
		return nil
	}
	if len(t.groups) > 0 {
		return errors.New("--groups does not go with a service token: its groups are in the configuration")
	}
	token, hash, err := auth.NewServiceToken(id)
	if err != nil {
		return err
	}
	tokens := slices.Clone(own.Auth.ServiceTokens)
	i := slices.IndexFunc(tokens, func(s config.ServiceToken) bool { return s.ID == id })
	if i < 0 {
		return fmt.Errorf("--user %s: the configuration has no service token with the id %q", t.user, id)
	}
	tokens[i].Hash = hash
	own.Auth.ServiceTokens = tokens
	own.URL = "http://" + own.Listen
	t.token = token
	return nil
}

// start runs a portal for one command: the file's servers and policy, but a
// temporary store, no port, and one user as whom to act. The transport is the
// only way to it.
func (t *target) start(ctx context.Context, pages bool) (_ *portal, _ *http.Transport, err error) {
	cfg, err := config.Load(t.config)
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "mcp-portal-cli-")
	if err != nil {
		return nil, nil, fmt.Errorf("make a temporary directory: %w", err)
	}
	undo := []func(){func() { _ = os.RemoveAll(dir) }}
	cleanup := func() {
		for _, f := range slices.Backward(undo) {
			f()
		}
	}
	defer func() {
		if err != nil {
			cleanup()
		}
	}()
	own := *cfg
	own.Listen, own.URL = privateHost, ""
	own.Store = config.Store{File: dir + "/portal.db"}
	var open net.Listener
	if pages {
		if open, err = listen("127.0.0.1:0"); err != nil {
			return nil, nil, err
		}
		undo = append(undo, func() { _ = open.Close() })
		own.Listen = open.Addr().String()
	}
	if err := t.actAs(&own); err != nil {
		return nil, nil, err
	}
	ln := newPrivate()
	p, err := start(ctx, &own, ln, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, err
	}
	via := ln.transport()
	undo = append(undo, via.CloseIdleConnections)
	if pages {
		undo = append(undo, approvalPages(open, p.gateway.Handler()))
	}
	p.cleanup = cleanup
	p.waitReady(ctx, t.wait)
	return p, via, nil
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
