package registry

import (
	"fmt"
	"strings"
	"time"

	"github.com/mcp-portal/mcp-portal/config"
	"github.com/mcp-portal/mcp-portal/upstreams"
)

// Where every user signs in at a server, what the server lists for one may be
// nobody else's business. Such lists are kept in memory, for the user they were
// made for: SnapshotFor puts them in the place that the server has in the
// snapshot of all. Users with equal lists share what is built from them.

// maxPersonal bounds the users of one server whose lists are kept at once.
const maxPersonal = 10_000

// personalList is what one server lists for some users.
type personalList struct {
	catalogue *upstreams.Catalogue
	part      *Server
}

// personalOf is the list of one user, and when it was read.
type personalOf struct {
	list *personalList
	at   time.Time
}

// build makes the part from a configuration.
func (p *personalList) build(cfg config.Server, nameMax int, pins *pinned) {
	part := buildServer(cfg, p.catalogue, nameMax, pins.ofOneUser())
	part.State = upstreams.Ready
	if p.part == nil || !sameServer(p.part, part) {
		p.part = part
	}
}

// personal finds the list with this content among those of the server.
func (e *entry) personal(c *upstreams.Catalogue) *personalList {
	for _, p := range e.own {
		if sameCatalogue(p.list.catalogue, c) {
			return p.list
		}
	}
	return nil
}

// UpdateFor takes what a server offers to one user.
func (r *Registry) UpdateFor(server, user string, c *upstreams.Catalogue) {
	if c == nil || user == "" {
		return
	}
	defer r.pins.poke()
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.servers[server]
	if e == nil || !e.cfg.Auth.PerUser() {
		return
	}
	p := e.personal(c)
	if p == nil {
		p = &personalList{catalogue: c}
		p.build(e.cfg, r.nameMax, e.pins)
	}
	if e.own == nil {
		e.own = map[string]personalOf{}
	}
	if _, known := e.own[user]; !known && len(e.own) >= maxPersonal {
		for other := range e.own { // any: it is read again when needed
			delete(e.own, other)
			break
		}
	}
	e.own[user] = personalOf{p, r.now()}
}

// DropFor forgets what a server offers to one user, whose login has ended.
func (r *Registry) DropFor(server, user string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.servers[server]; e != nil {
		delete(e.own, user)
	}
}

// Personal says how things stand with the list of a server for one user:
// shared, when one list is shown to all; else when the user's own was read,
// zero if it was not.
func (r *Registry) Personal(server, user string) (shared bool, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.servers[server]
	if e == nil {
		return false, time.Time{}
	}
	return e.catalogue != nil, e.own[user].at
}

// SnapshotFor is Snapshot with what servers list for this user alone.
func (r *Registry) SnapshotFor(user string) *Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	base := r.snapshot.Load()
	var parts []*Server
	var key strings.Builder
	for i, s := range base.Servers {
		e := r.servers[s.ID]
		if e == nil || e.catalogue != nil {
			continue
		}
		own, ok := e.own[user]
		if !ok {
			continue
		}
		if parts == nil {
			parts = append([]*Server(nil), base.Servers...)
		}
		parts[i] = own.list.part
		fmt.Fprintf(&key, "%s %p ", s.ID, own.list.part)
	}
	if parts == nil {
		return base
	}
	if r.mixedOf != base {
		r.mixedOf, r.mixed = base, map[string]*Snapshot{}
	}
	if s := r.mixed[key.String()]; s != nil {
		return s
	}
	if len(r.mixed) >= 256 { // many users with lists of their own
		clear(r.mixed)
	}
	s := assemble(nil, base.Version, parts)
	r.mixed[key.String()] = s
	return s
}
