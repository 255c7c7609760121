// Package openapi reads OpenAPI documents and says how their operations are
// called: as tools, as HTTP requests, and as results of tools. It makes no
// connection and knows no credential.
//
//	document.go   a document, whatever its version and notation (yaml.go)
//	refs.go       $ref within it
//	operations.go what it describes; names.go: as which tools; filter.go: which of it
//	schema.go     its schemas as JSON Schema of a bounded size, cycles included
//	tool.go       an operation as an MCP tool
//	request.go    arguments as a request: style.go its parameters, body.go its body
//	path.go       path templates, and what may stand in them
//	result.go     the answer as a result
//	match.go      method and path as an operation
//	spec.go       the document, or a part of it, for somebody who looks
//
// Documents are written by strangers: what one says can make its own operation
// useless and is reported, but never leads a request to another host.
package openapi
