// Package logins signs the portal, and its users, in at upstream servers that
// want OAuth, and keeps the tokens.
//
//	           /connect page          call of a user
//	                │                      │
//	flow.go      Begin, Finish          Current   current.go
//	  │ discover.go  who signs in there    │ record.go   sealed in the store
//	  │ metadata.go  documents, checked    │ refresh.go  one at a time, on all replicas
//	  │ client.go    CIMD, given, DCR      │ machine.go  tokens nobody signs in for
//	  └──────────── token.go ──────────────┘             the token endpoint
//
//	handle.go   addresses of /connect that belong to one user
//	events.go   what changed, told to all replicas; waiting for a login
//	signout.go  revocation and forgetting
//
// A login belongs to one server and one owner: a user, or the admin (user "").
// Its id is new with every sign-in and survives refreshing, so that it can be
// part of the key of an upstream session. Tokens leave the package only as the
// Credential of the request they authorize.
package logins
