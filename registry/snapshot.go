package registry

import (
	"encoding/json"
	"regexp"

	"github.com/mcp-portal/mcp-portal/upstreams"
	"github.com/mcp-portal/mcp-portal/wire"
)

// Tool is one tool of one server. Server and Name are its identity; policies,
// grants and audit use them, never the outward name.
type Tool struct {
	Server       string // server id
	Name         string // original name
	Outward      string // what clients see: [A-Za-z0-9_-], ≤ catalog.name_max
	Identifier   string // outwardName as a JavaScript identifier, injective
	Member       string // JavaScript identifier unique within the server, for <server>.<tool>()
	Title        string
	Description  string
	Raw          json.RawMessage // the definition exactly as its server sent it
	Outer        json.RawMessage // Raw with the outward name, and made acceptable to strict clients
	InputSchema  json.RawMessage // as sent; nil if none
	OutputSchema json.RawMessage // as sent; nil if none
	Annotations  json.RawMessage // as sent; nil if none
	ParamHeaders []ParamHeader   // arguments that travel in headers, too
	AppURI       string          // resource of its user interface (MCP apps); empty if none

	badHeaders string // what is wrong with its x-mcp-header marks
}

// Prompt is one prompt of one server.
type Prompt struct {
	Server, Name, Outward string
	Raw, Outer            json.RawMessage
}

// Resource is one resource of one server. URIs are kept as they are; two
// servers with the same URI are told apart by Outward.
type Resource struct {
	Server, URI, Outward string
	Raw, Outer           json.RawMessage

	object wire.Object // Outer, under the original URI
}

// Template is one resource template of one server.
type Template struct {
	Server, URITemplate, Outward string
	Raw, Outer                   json.RawMessage

	object wire.Object    // Outer, under the original template
	match  *regexp.Regexp // the URIs it can expand to; nil if it is not understood
}

// Server is one server in a snapshot.
type Server struct {
	ID           string
	Identifier   string // id as a JavaScript identifier
	Bare         bool   // its tools and prompts are named without its id
	Title        string
	Description  string // the admin's, else the server's own words, bounded
	Instructions string
	Capabilities json.RawMessage // as sent; nil if none
	State        upstreams.State
	Tools        []*Tool // sorted by outward name
	Prompts      []*Prompt
	Resources    []*Resource
	Templates    []*Template
	Warnings     []string   // withheld tools, repeated cursors, …
	Disabled     []Disabled // tools that the configuration switches off
	Pending      []*Pending // definitions that are not the approved ones
	FromCache    bool       // listed by an earlier process, not yet by this one

	docs []document // of Tools, for search; in the same order
}

// Disabled is a tool that the server offers and the configuration switches off.
type Disabled struct{ Tool, Outward string }

// Snapshot is everything every server offers at one moment. It is immutable;
// a request uses one from beginning to end.
type Snapshot struct {
	// Version grows with every snapshot, also when only the state of a server
	// changed.
	Version uint64
	// Offers is the Version in which what is offered (tools, prompts, resources,
	// templates, in any outward detail) last changed. Lists prepared for one
	// Offers are right for every snapshot with the same.
	Offers  uint64
	Servers []*Server // sorted by id, enabled ones only

	byOutward    map[string]*Tool
	byID         map[string]*Server
	byIdentifier map[string]*Tool
	byIdentity   map[identity]*Tool
	prompts      map[string]*Prompt
	resources    map[string][]*Resource // by URI as its server says it
	apps         map[string][]string    // servers whose tools have a user interface at a URI
	tools        []*Tool                // sorted by outward name
	index        *index                 // shared by snapshots with the same tools
}

// identity is what policies and audit know a tool by.
type identity struct{ server, name string }
