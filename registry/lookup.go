package registry

// Tool returns the tool with an outward name, or nil.
func (s *Snapshot) Tool(outward string) *Tool { return s.byOutward[outward] }

// ToolByIdentifier returns the tool with an identifier for code, or nil.
func (s *Snapshot) ToolByIdentifier(identifier string) *Tool { return s.byIdentifier[identifier] }

// ToolByIdentity returns the tool a server knows by name, or nil.
func (s *Snapshot) ToolByIdentity(server, name string) *Tool {
	return s.byIdentity[identity{server, name}]
}

// Tools returns all tools, sorted by outward name. The slice belongs to the
// snapshot: do not change it.
func (s *Snapshot) Tools() []*Tool { return s.tools }

// Server returns the server with an id, or nil.
func (s *Snapshot) Server(id string) *Server { return s.byID[id] }

// Prompt returns the prompt with an outward name, or nil.
func (s *Snapshot) Prompt(outward string) *Prompt { return s.prompts[outward] }
