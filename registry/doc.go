// Package registry holds what every upstream server offers, as one immutable
// snapshot at a time: under which names clients see it, in which form strict
// clients accept it, how it is found by words, and how it survives a restart.
// It knows nothing of users: what a caller may see is asked of the caller.
//
//	upstreams ──Catalogue, Status──▶ Registry ──Snapshot──▶ gateway, codemode
//	                                    │
//	                                    ▼
//	                                  store     the last good catalogue of each server
//
//	snapshot.go   the types of a snapshot
//	lookup.go     finding a tool, prompt, resource or server in one
//	names.go      outward names, identifiers for code, and why they cannot collide
//	outer.go      definitions as clients get them
//	strict.go     which schemas strict clients refuse, and the equivalent they accept
//	resources.go  URIs of resources and templates, and whose they are
//	build.go      one server's catalogue and configuration become its part of a snapshot
//	registry.go   Update, SetServers, SetStatus: swapping snapshots and telling who listens
//	cache.go      the stored catalogues
//	search.go     Search: filters, exact names, ranking
//	index.go      the search index and its scoring
//	tokens.go     words out of names and sentences
//	synonyms.go   words that mean nearly the same in tool names
//	looks.go      which tools only look
//	links.go      explicit addresses for URIs in results
//	paramheaders.go  arguments that travel in headers, too
//	personal.go   lists that are one user's
//	pins.go       definitions compared with the approved ones
//	pinstore.go   what was approved, in the store
package registry
