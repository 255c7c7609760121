// Package wire knows MCP messages as raw bytes: JSON-RPC 2.0 envelopes, JSON
// objects edited without touching what is not edited, server-sent events, and
// the Streamable HTTP transport of both protocol eras (2025-xx with sessions,
// 2026-07-28 without) in both roles. It does not know what a tool is.
//
//	message.go   JSON-RPC envelope: parse once, keep raw; batches split
//	object.go    ordered JSON object, byte-faithful editing
//	meta.go      params._meta: reading, and splicing without touching the rest
//	headers.go   Mcp-* request headers of both eras and their value encoding
//	sse.go       server-sent events, reading and writing
//	version.go   protocol versions and eras
//	level.go     levels of log messages
package wire
