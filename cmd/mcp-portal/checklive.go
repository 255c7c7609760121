package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// liveStatus is what check reads of /status.
type liveStatus struct {
	Servers []struct {
		Server, State string
		Error         *struct{ Message string }
	}
	Logins []struct {
		Server, State, Reason string
		SignIn                string `json:"sign_in"`
	} `json:"logins_wanted"`
	Guard struct{ Unmatched []string }
}

// checkLive prints what the running portal says needs somebody's attention.
func checkLive(ctx context.Context, out io.Writer, endpoint, token string) error {
	at := strings.TrimSuffix(endpoint, "/mcp") + "/status"
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return fmt.Errorf("ask the running portal: %w", err)
	}
	c := &http.Client{Transport: bearer{token, http.DefaultTransport}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := c.Do(r)
	if err != nil {
		return fmt.Errorf("no portal answers at %s: is it running?: %w", at, err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("the portal at %s tells how it is to admins only: set MCP_PORTAL_TOKEN to a service token with a group of auth.admins; make one with: mcp-portal token <id> --groups <group>", at)
	default:
		return fmt.Errorf("the portal at %s answered HTTP %d", at, resp.StatusCode)
	}
	var s liveStatus
	if err := json.NewDecoder(io.LimitReader(resp.Body, 16<<20)).Decode(&s); err != nil {
		return fmt.Errorf("the status of %s cannot be read: %w", at, err)
	}
	wanted := map[string]bool{}
	for _, l := range s.Logins {
		wanted[l.Server] = true
		switch l.State {
		case "more_rights":
			fmt.Fprintf(out, "server %s: the portal's own sign-in was refused for want of rights (%s); an admin signs in for more at %s\n", l.Server, l.Reason, l.SignIn)
		case "ended":
			fmt.Fprintf(out, "server %s: the portal's own sign-in does not hold any more (%s); an admin signs in again at %s\n", l.Server, l.Reason, l.SignIn)
		default:
			fmt.Fprintf(out, "server %s: nobody has signed the portal in yet; an admin does so at %s\n", l.Server, l.SignIn)
		}
	}
	ready, bad := 0, len(s.Logins)
	for _, v := range s.Servers {
		switch {
		case v.State == "ready":
			ready++
		case v.State == "disabled" || wanted[v.Server] || v.State == "login_needed": // users sign in when they need it
		default:
			bad++
			why := "no reason given"
			if v.Error != nil {
				why = strings.TrimPrefix(v.Error.Message, "server "+v.Server+": ")
			}
			fmt.Fprintf(out, "server %s: %s: %s\n", v.Server, v.State, why)
		}
	}
	for _, u := range s.Guard.Unmatched {
		bad++
		fmt.Fprintln(out, u)
	}
	fmt.Fprintf(out, "running at %s: %d of %d servers ready\n", endpoint, ready, len(s.Servers))
	if bad > 0 {
		return &exitError{1}
	}
	return nil
}
