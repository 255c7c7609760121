package authserver

import (
	"slices"
	"strings"
)

// ScopeAll is the scope of everything a person may use; ScopeServer+<id> that
// of one server.
const (
	ScopeAll    = "mcp"
	ScopeServer = "mcp:"
)

// grantScopes gives what of the scopes asked for is granted. What is not known
// is left out, since clients ask for scopes of other servers (openid,
// offline_access); nothing asked for, or nothing known, is everything, which
// is what clients that know no scopes mean.
func grantScopes(asked string, servers func(id string) bool) []string {
	var out []string
	for _, s := range strings.Fields(asked) {
		id, one := strings.CutPrefix(s, ScopeServer)
		switch {
		case s == ScopeAll:
			return []string{ScopeAll}
		case one && servers(id) && !slices.Contains(out, s):
			out = append(out, s)
		}
	}
	if len(out) == 0 && !strings.Contains(" "+asked, " "+ScopeServer) {
		return []string{ScopeAll}
	}
	return out
}

// narrower reports whether every scope is covered by those granted.
func narrower(asked, granted []string) bool {
	if slices.Contains(granted, ScopeAll) {
		return true
	}
	for _, s := range asked {
		if !slices.Contains(granted, s) {
			return false
		}
	}
	return true
}

// ServersOf gives the servers that scopes limit a token to, nil for no limit.
func ServersOf(scopes []string) []string {
	if slices.Contains(scopes, ScopeAll) {
		return nil
	}
	out := []string{}
	for _, s := range scopes {
		if id, ok := strings.CutPrefix(s, ScopeServer); ok {
			out = append(out, id)
		}
	}
	return out
}
