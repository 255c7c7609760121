// Package store keeps the state that must outlive a request or be shared by
// replicas: sessions, approvals, snapshots, kept results. It knows keys and
// bytes and nothing of what they mean.
//
//	Store (store.go)         the interface: values with expiry, compare-and-
//	   │                     swap, take-once, channels, a truthful Status
//	   ├── redis.go          many replicas; every write is one atomic command or
//	   │    │                script on one key
//	   │    ├── redisprobe.go    whether Redis really takes writes, and if not why
//	   │    └── redissub.go      subscriptions that outlive the connection
//	   └── file.go           one machine, no set-up: a bbolt file, and channels
//	                         inside the process (hub.go)
//
// A backend never replaces another: when Redis is asked for and away, calls
// fail with ErrUnavailable and Status says so, until it is back. Opening does
// not need a Redis that runs. storetest holds the one suite of tests that both
// backends pass, and starts real Redis servers for it.
package store
