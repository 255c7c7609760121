package auth

import (
	"slices"
	"strings"

	"github.com/mcp-portal/mcp-portal/config"
)

// Access is who may use which server and tool, by the groups in the
// configuration and the limits of service tokens. It is immutable and safe
// for concurrent use. What it does not know it refuses.
type Access struct {
	admins  []string
	servers map[string]serverAccess
}

type serverAccess struct {
	groups []string            // empty: everyone signed in
	tools  map[string][]string // by original name, where the tool has groups of its own
	people bool                // calls need a login of the user's own, which machines do not have
}

// NewAccess builds the rules of a configuration.
func NewAccess(cfg *config.Config) *Access {
	a := &Access{admins: slices.Clone(cfg.Auth.Admins), servers: make(map[string]serverAccess, len(cfg.Servers))}
	for id, srv := range cfg.Servers {
		sa := serverAccess{groups: slices.Clone(srv.Groups), tools: map[string][]string{}, people: srv.Auth.PerUser()}
		for name, t := range srv.Tools {
			if len(t.Groups) > 0 {
				sa.tools[name] = slices.Clone(t.Groups)
			}
		}
		a.servers[id] = sa
	}
	return a
}

// CanServer reports whether the principal may use the server at all: it is in
// one of the server's groups, if the server has any, the scopes of its token
// cover it, and a service token is also not limited to other servers or to
// tools of other servers. A server where everybody needs a login of their own
// is for people only.
func (a *Access) CanServer(p *Principal, server string) bool {
	return a.CouldServer(p, server) && (p.Scope == nil || slices.Contains(p.Scope, server))
}

// CouldServer is CanServer without the scopes of the token: where it says yes
// and CanServer no, the client can get there by asking for another scope.
func (a *Access) CouldServer(p *Principal, server string) bool {
	s, ok := a.servers[server]
	if p == nil || !ok || (len(s.groups) > 0 && !p.InGroup(s.groups...)) || s.people && p.Kind == KindService {
		return false
	}
	if p.Servers != nil && !slices.ContainsFunc(p.Servers, func(g string) bool { return config.Match(g, server) }) {
		return false
	}
	return p.Tools == nil || slices.ContainsFunc(p.Tools, func(g string) bool { return config.MatchTool(serverPart(g), server, "") })
}

// CanTool reports whether the principal may use the tool, by its original
// name: it may use the server, is in one of the tool's groups, if the tool has
// any, and a service token is not limited to other tools. Groups of a tool
// narrow those of its server.
func (a *Access) CanTool(p *Principal, server, tool string) bool {
	if !a.CanServer(p, server) {
		return false
	}
	if groups := a.servers[server].tools[tool]; len(groups) > 0 && !p.InGroup(groups...) {
		return false
	}
	return p.Tools == nil || slices.ContainsFunc(p.Tools, func(g string) bool { return config.MatchTool(g, server, tool) })
}

// CanContent reports whether the principal may use what a server offers beside
// its tools: prompts, resources, completions. A service token that is limited
// to some tools of a server may not.
func (a *Access) CanContent(p *Principal, server string) bool {
	return a.CanServer(p, server) && (p.Tools == nil || slices.ContainsFunc(p.Tools, func(g string) bool {
		s, tool, ok := strings.Cut(g, "/")
		return ok && tool == "*" && config.Match(s, server)
	}))
}

// IsAdmin reports whether the principal is in one of the groups of
// auth.admins.
func (a *Access) IsAdmin(p *Principal) bool { return p != nil && p.InGroup(a.admins...) }

// serverPart turns "server/tool" into a glob for any tool of that server.
func serverPart(glob string) string {
	for i := range len(glob) {
		if glob[i] == '/' {
			return glob[:i] + "/*"
		}
	}
	return ""
}
