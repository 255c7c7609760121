// Package upstreams keeps the connections to MCP servers and knows how each of
// them is. It speaks Streamable HTTP, legacy HTTP+SSE and stdio, in both
// protocol eras, and hands out exact bytes. It does not know who may do what.
//
//	Manager ── one server per configured id (manager.go, apply.go)
//	   server ── loop: dial, list everything, publish, wait (server.go, loop.go)
//	      │        what it offers (catalogue.go), what it tells by itself (listen.go)
//	      ├─ main conn: lists, notices; also calls when nothing is per user
//	      └─ pool of conns for calls, one per user or session (pool.go, calls.go)
//	   conn ── one session with a server (conn.go), made by dial.go
//	      ├─ streamable: one HTTP exchange per call (streamable.go, exchange.go,
//	   │     standalone.go)
//	      ├─ api: an HTTP API as its OpenAPI document (apidoc.go) describes it
//	      │     (api.go)
//	      └─ pipe: messages both ways, answers by id (pipe.go)
//	           over sse.go (GET stream and POSTs) or stdio.go (a child process)
//	   live ── one call in flight: its token, its deadline, the questions the
//	           server asks during it (live.go, deadline.go)
//
// What is said about failures, and what is kept out of it: problem.go.
//
// What may go wrong with one call stays with that call: an answer that cannot
// be understood never closes a session that others use. What was handed to the
// network or to a child is never sent again; the single exception is a
// Streamable HTTP 404 for a session, with which the server says that it did
// not look at the request.
package upstreams
