// Package gateway is what clients talk to: the MCP endpoint of both protocol
// eras, what each caller sees of the catalogue, the portal's own tools, the
// door through which every call to an upstream goes, and the web pages.
//
//	endpoint.go   HTTP: POST, GET, DELETE of /mcp, eras, headers, statuses
//	stream.go     one answer to a POST: JSON, or server-sent events when needed
//	session.go    2025 sessions, kept in the store and in memory
//	listen.go     list_changed to clients: GET streams and subscriptions/listen
//	methods.go    what each MCP method does
//	modes.go      query parameters → mode
//	view.go       what one caller sees: mode + access + toggles + snapshot
//	door.go       THE one way to an upstream: resolve, permit, guard, send, record
//	ask.go        asking a person: elicitation, input_required, a URL
//	tools.go      definitions of the portal_* tools
//	query.go      portal_query_tools
//	execute.go    portal_execute: one tool, code, resume
//	runs.go       runs that wait for a person
//	web.go        pages, sign-in, status
package gateway
