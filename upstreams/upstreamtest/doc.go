// Package upstreamtest is a scriptable MCP server for tests: over real HTTP in
// either era (http.go), or as a child process speaking stdio (stdio.go). It
// counts what reaches it and misbehaves on request. It shares no code with the
// client side that it tests, except the JSON helpers of wire.
//
//	offer.go   what the server offers, and the lists, page by page
//	http.go    the HTTP server: sessions, counting, going down and up
//	stream.go  the streams for notices of both eras
//	call.go    one request as a handler sees it, with every way to answer
//	stdio.go   the child process (sleeper.go: and its own child)
package upstreamtest
