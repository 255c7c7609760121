package config

import (
	"maps"
	"reflect"
	"slices"
)

// Change says what differs between two configurations, and what that costs.
// Server ids are in sorted order; a server is in at most one of the lists.
type Change struct {
	Added     []string // servers that are new
	Removed   []string // servers that are gone
	Reconnect []string // servers whose connection settings changed
	Toggled   []string // servers where only policy or texts changed; their connections stay
	Sections  []string // other top-level keys that differ, e.g. auth, guard, limits
	Restart   []string // of Sections, those that take effect only at the next start
}

// Empty reports whether nothing differs.
func (c Change) Empty() bool {
	return len(c.Added)+len(c.Removed)+len(c.Reconnect)+len(c.Toggled)+len(c.Sections) == 0
}

// needsRestart are the sections that are bound once, at start: a listener, a
// store and open files cannot be changed under running sessions.
var needsRestart = []string{"listen", "store", "audit", "log"}

// Diff compares two loaded configurations. It goes over the fields of the
// types themselves, so that a key added later cannot be forgotten here.
func Diff(old, new *Config) Change {
	var c Change
	for id, s := range new.Servers {
		before, ok := old.Servers[id]
		switch {
		case !ok:
			c.Added = append(c.Added, id)
		case reflect.DeepEqual(before, s):
		case reflect.DeepEqual(connection(before), connection(s)):
			c.Toggled = append(c.Toggled, id)
		default:
			c.Reconnect = append(c.Reconnect, id)
		}
	}
	for id := range maps.Keys(old.Servers) {
		if _, ok := new.Servers[id]; !ok {
			c.Removed = append(c.Removed, id)
		}
	}
	slices.Sort(c.Added)
	slices.Sort(c.Removed)
	slices.Sort(c.Reconnect)
	slices.Sort(c.Toggled)

	a, b := reflect.ValueOf(*old), reflect.ValueOf(*new)
	for _, name := range fieldNames(a.Type()) {
		if name == "servers" {
			continue
		}
		if !reflect.DeepEqual(fieldByName(a, name).Interface(), fieldByName(b, name).Interface()) {
			c.Sections = append(c.Sections, name)
			if slices.Contains(needsRestart, name) {
				c.Restart = append(c.Restart, name)
			}
		}
	}
	return c
}

// connection is a server without what can change while it stays connected.
// Whatever is not cleared here costs a reconnect, which is the safe default
// for a key added later.
func connection(s Server) Server {
	s.Title, s.Description = "", ""
	s.Enabled, s.Prefix = nil, nil
	s.TrustAnnotations = false
	s.Labels = nil
	s.Groups = nil
	s.DefaultDisabled = false
	s.Pin = ""
	s.Tools = nil
	return s
}
