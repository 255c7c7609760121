package config

import (
	"path/filepath"
	"strings"
	"time"
)

// Defaults returns a configuration with every default value and no server. It
// is where Parse starts, and what docs/configuration.md and the JSON Schema
// show as defaults. It is not valid by itself: sign-in needs an issuer.
func Defaults() *Config {
	return &Config{
		Name:   "MCP Portal",
		Listen: "127.0.0.1:8080",
		Auth: Auth{
			Mode:          "oidc",
			Scopes:        []string{"openid", "profile", "email"},
			GroupsClaim:   "groups",
			AssertionAud:  "token_endpoint",
			ClockSkew:     30 * time.Second,
			SessionMaxAge: 12 * time.Hour,
			Tokens:        Tokens{Access: 15 * time.Minute, Refresh: 30 * day, Grant: 90 * day, ReuseGrace: 30 * time.Minute},
			Clients:       Clients{RedirectSchemes: []string{"cursor", "vscode", "vscode-insiders", "windsurf", "zed", "raycast", "goose"}},
		},
		Servers: map[string]Server{},
		Guard: Guard{
			Preset:          "careful",
			Unlabelled:      []string{"private", "untrusted"},
			ApprovalExpires: 15 * time.Minute,
			PlanExpires:     time.Hour,
			AskTimeout:      5 * time.Minute,
		},
		Store: Store{Prefix: "mcp-portal:"},
		Code: Code{
			Mode:          "opt_in",
			Workers:       2,
			MaxWorkers:    8,
			Reuse:         "same-user",
			WallTime:      30 * time.Second,
			CPUTime:       5 * time.Second,
			MemoryMB:      192,
			MaxCalls:      1000,
			Parallel:      8,
			MaxSource:     128 << 10,
			MaxCallResult: 4 << 20,
			MaxArguments:  1 << 20,
			MaxValue:      4 << 20,
			MaxContent:    4 << 20,
			MaxLogs:       16 << 10,
			ResultTokens:  6000,
			RunsPerUser:   4,
			QueuePerUser:  16,
			PausedPerUser: 8,
			PausedInAll:   32,
			PausedFor:     15 * time.Minute,
		},
		Catalog: Catalog{Poll: 5 * time.Minute, NameMax: 64, Pin: "warn"},
		Limits: Limits{
			ConnectTimeout: 20 * time.Second,
			CallTimeout:    time.Minute,
			CallCeiling:    15 * time.Minute,
			Stall:          2 * time.Minute,
			Body:           4 << 20,
			Message:        32 << 20,
			CallsPerUser:   64,
			Sessions:       100,
			SessionIdle:    24 * time.Hour,
			Drain:          10 * time.Second,
		},
		Log: Log{Level: "info", Format: "text"},
	}
}

// defaultServer is what each entry of servers starts from.
func defaultServer() Server {
	return Server{Transport: "auto", Sessions: "session", Operations: Operations{Refresh: time.Hour}, Auth: ServerAuth{Type: AuthNone, Catalog: "user", Resource: "auto", Subject: "access_token", AssertionAud: "issuer"}}
}

// derive fills what follows from other keys. It runs after validation, on a
// configuration without errors.
func derive(c *Config) {
	for id, s := range c.Servers {
		s.ID = id
		if s.ConnectTimeout == 0 {
			s.ConnectTimeout = c.Limits.ConnectTimeout
		}
		if s.CallTimeout == 0 {
			s.CallTimeout = c.Limits.CallTimeout
		}
		if s.CallCeiling == 0 {
			s.CallCeiling = c.Limits.CallCeiling
		}
		if len(s.Command) > 0 {
			s.Transport = "stdio"
		}
		if s.OpenAPI != "" {
			s.Transport = "openapi"
			s.Auth.Catalog = "shared" // the document is the same for everyone
			if !strings.Contains(s.OpenAPI, "://") && !filepath.IsAbs(s.OpenAPI) {
				s.OpenAPI = filepath.Join(filepath.Dir(c.Path), s.OpenAPI)
			}
		}
		c.Servers[id] = s
	}
	if c.URL == "" && c.Auth.Mode == "none" {
		if host, port, err := splitListen(c.Listen); err == nil && port != 0 {
			c.URL = "http://" + joinHostPort(host, port)
		}
	}
	if len(c.Auth.Accept) == 0 && c.Auth.Mode == "oidc" {
		c.Auth.Accept = []string{"idp"}
		if c.Auth.ClientID != "" {
			c.Auth.Accept = []string{"portal"}
		}
	}
	for i := range c.Auth.Workloads {
		if w := &c.Auth.Workloads[i]; w.Audience == "" {
			w.Audience = c.URL + "/mcp"
		}
	}
	for i := range c.Auth.Clients.Static {
		if cl := &c.Auth.Clients.Static[i]; cl.Name == "" {
			cl.Name = cl.ID
		}
	}
	if len(c.Auth.Audience) == 0 && c.URL != "" {
		c.Auth.Audience = []string{c.URL + "/mcp"}
	}
	if c.Auth.Mode == "none" && c.Auth.DevUser == "" {
		c.Auth.DevUser = "dev@localhost"
	}
}
